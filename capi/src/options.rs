//! How models are compiled, and tokens that stop the work.

use crate::status::{borrow, borrow_mut, borrow_text, free, fxc_status, guard};
use fxc_rust::{CancelToken, Options};
use std::ffi::c_char;

/// How a model is compiled.
pub struct fxc_options(pub(crate) Options);

/// A token that stops compiling and calls.
pub struct fxc_cancel_token(CancelToken);

/// Changes options.
///
/// # Safety
/// `options` is NULL, or options that no other thread uses meanwhile.
unsafe fn change(options: *mut fxc_options, how: impl FnOnce(Options) -> Options) -> fxc_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { borrow_mut(options, "the options") }?;
        options.0 = how(std::mem::take(&mut options.0));
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
