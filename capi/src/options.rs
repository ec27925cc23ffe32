//! How models are compiled, and tokens that stop the work.

use crate::status::{Failure, borrow, borrow_mut, borrow_slice, borrow_text, free, fxc_status, guard, guard_value};
use fxc_rust::{CancelToken, Options, Target};
use std::borrow::Cow;
use std::ffi::c_char;

/// How a model is compiled.
pub struct fxc_options(pub(crate) Options);

/// A token that stops compiling and calls.
pub struct fxc_cancel_token(CancelToken);

/// The options, or the default ones for NULL.
///
/// # Safety
/// `options` is NULL, or options that nobody changes meanwhile.
pub(crate) unsafe fn options_or_default<'a>(options: *const fxc_options) -> Cow<'a, Options> {
    // SAFETY: the caller's promise.
    match unsafe { options.as_ref() } {
        Some(options) => Cow::Borrowed(&options.0),
        None => Cow::Owned(Options::new()),
    }
}

/// Changes options.
///
/// # Safety
/// `options` is NULL, or options that no other thread uses meanwhile.
unsafe fn change(options: *mut fxc_options, update: impl FnOnce(Options) -> Options) -> fxc_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { borrow_mut(options, "the options") }?;
        options.0 = update(std::mem::take(&mut options.0));
        Ok(())
    })
}

/// The default options.
#[unsafe(no_mangle)]
pub extern "C" fn fxc_options_new() -> *mut fxc_options {
    Box::into_raw(Box::new(fxc_options(Options::new())))
}

/// How many threads a call runs on, the caller's included; 0, the default, is one per processor.
///
/// # Safety
/// `options` are options that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_threads(options: *mut fxc_options, threads: usize) -> fxc_status {
    // SAFETY: the caller's promise.
    unsafe { change(options, |o| o.threads(threads)) }
}

/// Whether convolutions are the sums of their products, and no algorithm that rounds differently takes their place.
///
/// # Safety
/// `options` are options that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_exact(options: *mut fxc_options, exact: bool) -> fxc_status {
    // SAFETY: the caller's promise.
    unsafe { change(options, |o| o.exact(exact)) }
}

/// Fixes a symbolic size. Calls with another size fail.
///
/// # Safety
/// `options` are options that no other thread uses meanwhile; `name` is a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_dim(options: *mut fxc_options, name: *const c_char, size: i64) -> fxc_status {
    guard(|| {
        // SAFETY: the caller's promise.
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

/// Adds a list of sizes for which code is made before the first call. `names` are symbolic sizes, separated by commas, which all take each
/// of the `count` sizes; `x[0]` names a dimension of an input. Several lists are combined.
///
/// # Safety
/// `options` are options that no other thread uses meanwhile; `names` is a NUL-terminated text; `sizes` points to `count` sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_add_sizes(
    options: *mut fxc_options,
    names: *const c_char,
    sizes: *const i64,
    count: usize,
) -> fxc_status {
    guard(|| {
        // SAFETY: the caller's promise.
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

/// Adds a processor for which `fxc_model_save_compiled` writes code, in place of the machine's: "x86-64-v3".
///
/// # Safety
/// `options` are options that no other thread uses meanwhile; `target` is a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_add_target(options: *mut fxc_options, target: *const c_char) -> fxc_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (options, target) = unsafe { (borrow_mut(options, "the options")?, borrow_text(target, "the target")?) };
        let parsed = Target::parse(target);
        let parsed = parsed.map_err(|valid| Failure::Argument(format!("unknown target \"{target}\": {valid}")))?;
        options.0 = std::mem::take(&mut options.0).target(parsed);
        Ok(())
    })
}

/// Whether `fxc_model_save_compiled` leaves the graphs and their weights out of the file, which then only runs where its code fits.
///
/// # Safety
/// `options` are options that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_code_only(options: *mut fxc_options, code_only: bool) -> fxc_status {
    // SAFETY: the caller's promise.
    unsafe { change(options, |o| o.code_only(code_only)) }
}

/// Whether `fxc_model_open_with` accepts compiled models (`.fxc`), which are programs; true by default. A program that opens files which
/// others name should not accept them.
///
/// # Safety
/// `options` are options that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_allow_code(options: *mut fxc_options, allowed: bool) -> fxc_status {
    // SAFETY: the caller's promise.
    unsafe { change(options, |o| o.allow_code(allowed)) }
}

/// Whether a compiled model without usable code for the inputs or the machine is compiled again (true, the default) or is an error.
///
/// # Safety
/// `options` are options that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_fallback(options: *mut fxc_options, allowed: bool) -> fxc_status {
    // SAFETY: the caller's promise.
    unsafe { change(options, |o| o.fallback(allowed)) }
}

/// Whether code is kept in the user's cache of compiled models and taken from there; false by default. It counts where models are opened
/// (`fxc_model_open_with`) and where they are compiled. `fxc_flush_cache` waits until the code is written.
///
/// # Safety
/// `options` are options that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_cache(options: *mut fxc_options, enabled: bool) -> fxc_status {
    // SAFETY: the caller's promise.
    unsafe { change(options, |o| o.cache(enabled)) }
}

/// Waits until the user's cache holds the code that calls have made. Call it before the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn fxc_flush_cache() {
    guard_value((), || {
        fxc_rust::flush_cache();
        Ok(())
    });
}

/// Lets a token stop compiling and calls.
///
/// # Safety
/// `options` are options that no other thread uses meanwhile; `token` is a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_set_cancel(
    options: *mut fxc_options,
    token: *const fxc_cancel_token,
) -> fxc_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (options, token) = unsafe { (borrow_mut(options, "the options")?, borrow(token, "the token")?) };
        options.0 = std::mem::take(&mut options.0).cancel(token.0.clone());
        Ok(())
    })
}

/// Frees options.
///
/// # Safety
/// `options` is NULL, or options that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_options_free(options: *mut fxc_options) {
    // SAFETY: the caller's promise.
    unsafe { free(options) }
}

/// A token that nobody has cancelled.
#[unsafe(no_mangle)]
pub extern "C" fn fxc_cancel_token_new() -> *mut fxc_cancel_token {
    Box::into_raw(Box::new(fxc_cancel_token(CancelToken::new())))
}

/// Stops the work that has the token, from any thread.
///
/// # Safety
/// `token` is a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_cancel_token_cancel(token: *const fxc_cancel_token) -> fxc_status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(token, "the token") }.map(|t| t.0.cancel()))
}

/// Lets later work run again.
///
/// # Safety
/// `token` is a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_cancel_token_reset(token: *const fxc_cancel_token) -> fxc_status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow(token, "the token") }.map(|t| t.0.reset()))
}

/// Frees a token. Options that have it keep what it is.
///
/// # Safety
/// `token` is NULL, or a token that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_cancel_token_free(token: *mut fxc_cancel_token) {
    // SAFETY: the caller's promise.
    unsafe { free(token) }
}
