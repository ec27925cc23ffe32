//! Compile options, and cancel tokens.

use crate::status::{Failure, borrow, borrow_mut, borrow_slice, borrow_text, free, fxc_status, guard, guard_value};
use fxc_rust::{CancelToken, Options, Precision, Target};
use std::borrow::Cow;
use std::ffi::c_char;
use std::time::Duration;

/// Compile options.
pub struct fxc_options(pub(crate) Options);

/// A token that cancels compilations and calls.
pub struct fxc_cancel_token(CancelToken);

/// Copies the options; NULL means the default options.
///
/// # Safety
/// `options` is NULL, or options that are not changed during the call.
pub(crate) unsafe fn options_or_default<'a>(options: *const fxc_options) -> Cow<'a, Options> {
    // SAFETY: guaranteed by the caller.
    match unsafe { options.as_ref() } {
        Some(options) => Cow::Borrowed(&options.0),
        None => Cow::Owned(Options::new()),
    }
}

/// Changes options.
///
/// # Safety
/// `options` is NULL, or options that no other thread uses during the call.
unsafe fn change(options: *mut fxc_options, update: impl FnOnce(Options) -> Options) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let options = unsafe { borrow_mut(options, "the options") }?;
        options.0 = update(std::mem::take(&mut options.0));
        Ok(())
    })
}

/// Creates the default options.
#[unsafe(no_mangle)]
pub extern "C" fn fxc_options_new() -> *mut fxc_options {
    Box::into_raw(Box::new(fxc_options(Options::new())))
}

/// Sets the number of threads for a call, including the caller's; 0, the default, means one per processor.
///
/// # Safety
/// `options` are options that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_threads(options: *mut fxc_options, threads: usize) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |o| o.threads(threads)) }
}

/// Sets whether convolutions are computed as sums of products, without algorithms that round differently (Winograd).
///
/// # Safety
/// `options` are options that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_exact(options: *mut fxc_options, exact: bool) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |o| o.exact(exact)) }
}

/// Sets what f32 products and convolutions multiply: "f32", the default, or "bf16" for operands that are rounded, with f32 sums.
///
/// # Safety
/// `options` are options that no other thread uses during the call; `name` is a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_precision(options: *mut fxc_options, name: *const c_char) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (options, name) = unsafe { (borrow_mut(options, "the options")?, borrow_text(name, "the precision")?) };
        let precision = Precision::parse(name);
        let precision =
            precision.map_err(|valid| Failure::Argument(format!("unknown precision \"{name}\": {valid}")))?;
        options.0 = std::mem::take(&mut options.0).precision(precision);
        Ok(())
    })
}

/// Sets the memory that fxc may hold in this process while it reads, compiles or calls the model, in bytes. Work that needs more fails
/// with E0509. The default is what the machine has available.
///
/// # Safety
/// `options` are options that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_max_memory(options: *mut fxc_options, bytes: usize) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |o| o.max_memory(bytes)) }
}

/// Sets the number of nodes that the model's graphs may have after inlining, with the items of nested values; 1000000 by default. A larger
/// model fails with E0114.
///
/// # Safety
/// `options` are options that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_max_nodes(options: *mut fxc_options, nodes: usize) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |o| o.max_nodes(nodes)) }
}

/// Sets the seconds that reading, compiling or a call may take; any number by default. The time is checked between passes, nodes and
/// steps: work that takes longer fails with E0513 at the next of them.
///
/// # Safety
/// `options` are options that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_max_time(options: *mut fxc_options, seconds: f64) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let options = unsafe { borrow_mut(options, "the options") }?;
        let time = Duration::try_from_secs_f64(seconds);
        let time = time.map_err(|_| Failure::Argument(format!("{seconds} is not a number of seconds")))?;
        options.0 = std::mem::take(&mut options.0).max_time(time);
        Ok(())
    })
}

/// Sets a symbolic size. Calls with another size fail.
///
/// # Safety
/// `options` are options that no other thread uses during the call; `name` is a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_dim(options: *mut fxc_options, name: *const c_char, size: i64) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (options, name) = unsafe {
            (
                borrow_mut(options, "the options")?,
                borrow_text(name, "the size's name")?,
            )
        };
        options.0 = std::mem::take(&mut options.0).dim(name, size);
        Ok(())
    })
}

/// Adds a list of sizes to compile for before the first call. `names` are symbolic sizes, separated by commas, all of
/// which take each of the `count` sizes; `x[0]` names a dimension of an input. Several lists are combined.
///
/// # Safety
/// `options` are options that no other thread uses during the call; `names` is a NUL-terminated text; `sizes` points
/// to `count` sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_add_sizes(
    options: *mut fxc_options,
    names: *const c_char,
    sizes: *const i64,
    count: usize,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (options, names, sizes) = unsafe {
            (
                borrow_mut(options, "the options")?,
                borrow_text(names, "the names")?,
                borrow_slice(sizes, count, "the sizes")?,
            )
        };
        options.0 = std::mem::take(&mut options.0).at(names, sizes.iter().copied());
        Ok(())
    })
}

/// Adds a processor that `fxc_model_save_compiled` compiles for, instead of the machine's: "x86-64-v3".
///
/// # Safety
/// `options` are options that no other thread uses during the call; `target` is a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_add_target(options: *mut fxc_options, target: *const c_char) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (options, target) = unsafe { (borrow_mut(options, "the options")?, borrow_text(target, "the target")?) };
        let parsed = Target::parse(target);
        let parsed = parsed.map_err(|valid| Failure::Argument(format!("unknown target \"{target}\": {valid}")))?;
        options.0 = std::mem::take(&mut options.0).target(parsed);
        Ok(())
    })
}

/// Sets whether `fxc_model_save_compiled` leaves out the graphs and their weights. Such a file only runs, and only
/// where its code fits.
///
/// # Safety
/// `options` are options that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_code_only(options: *mut fxc_options, code_only: bool) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |o| o.code_only(code_only)) }
}

/// Sets whether `fxc_model_open_with` accepts compiled models (`.fxc`), which contain machine code; true by default.
/// A program should not accept them if others can choose which files it opens.
///
/// # Safety
/// `options` are options that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_allow_code(options: *mut fxc_options, allowed: bool) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |o| o.allow_code(allowed)) }
}

/// Accepts weights files in this folder that the text of a model names, in `fxc_model_open_with` and
/// `fxc_model_from_text_with`. Otherwise they must be in the folder of the text (E0410).
///
/// # Safety
/// `options` are options that no other thread uses during the call; `folder` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_allow_path(options: *mut fxc_options, folder: *const c_char) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (options, folder) = unsafe { (borrow_mut(options, "the options")?, borrow_text(folder, "the folder")?) };
        options.0 = std::mem::take(&mut options.0).allow_path(folder);
        Ok(())
    })
}

/// Sets whether a compiled model without usable code for the inputs or the machine is compiled again (true, the
/// default) or is an error.
///
/// # Safety
/// `options` are options that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_fallback(options: *mut fxc_options, allowed: bool) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |o| o.fallback(allowed)) }
}

/// Sets whether code is read from and stored in the user's cache of compiled models; false by default. The option
/// applies to opening models (`fxc_model_open_with`) and to compiling them. `fxc_flush_cache` waits until the code is
/// written.
///
/// # Safety
/// `options` are options that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_cache(options: *mut fxc_options, enabled: bool) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    unsafe { change(options, |o| o.cache(enabled)) }
}

/// Waits until the code that calls have compiled is in the user's cache. Call it before the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn fxc_flush_cache() {
    guard_value((), || {
        fxc_rust::flush_cache();
        Ok(())
    });
}

/// Sets a token that can cancel compilations and calls.
///
/// # Safety
/// `options` are options that no other thread uses during the call; `token` is a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_cancel(
    options: *mut fxc_options,
    token: *const fxc_cancel_token,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (options, token) = unsafe { (borrow_mut(options, "the options")?, borrow(token, "the token")?) };
        options.0 = std::mem::take(&mut options.0).cancel(token.0.clone());
        Ok(())
    })
}

/// Frees options.
///
/// # Safety
/// `options` is NULL, or options that are no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_free(options: *mut fxc_options) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(options) }
}

/// Creates a token that is not cancelled.
#[unsafe(no_mangle)]
pub extern "C" fn fxc_cancel_token_new() -> *mut fxc_cancel_token {
    Box::into_raw(Box::new(fxc_cancel_token(CancelToken::new())))
}

/// Cancels the work that uses the token. Any thread may call this.
///
/// # Safety
/// `token` is a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_cancel_token_cancel(token: *const fxc_cancel_token) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(token, "the token") }.map(|t| t.0.cancel()))
}

/// Resets the token, so that later work runs again.
///
/// # Safety
/// `token` is a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_cancel_token_reset(token: *const fxc_cancel_token) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow(token, "the token") }.map(|t| t.0.reset()))
}

/// Frees a token. Options that use it are not affected.
///
/// # Safety
/// `token` is NULL, or a token that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_cancel_token_free(token: *mut fxc_cancel_token) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(token) }
}
