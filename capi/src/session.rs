//! Compiled models with state.

use crate::compiled::name_outputs;
use crate::outputs::fxc_outputs;
use crate::status::{Failure, borrow, borrow_mut, borrow_text, free, fxc_status, give, guard};
use crate::tensor::{call_inputs, call_outputs, fxc_buffer, fxc_tensor};
use fxc_rust::Session;
use std::ffi::c_char;

/// A compiled model that remembers what calls change: each call finds the buffers as the last one left them. One thread at a time may
/// use it.
pub struct fxc_session(pub(crate) Session);

/// Calls the model: see fxc_compiled_run.
///
/// # Safety
/// `session` is a session that no other thread uses meanwhile; `inputs` points to `input_count` tensors; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_run(
    session: *mut fxc_session,
    inputs: *const fxc_tensor,
    input_count: usize,
    out: *mut *mut fxc_outputs,
) -> fxc_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (session, inputs) = unsafe { (borrow_mut(session, "the session")?, call_inputs(inputs, input_count)?) };
        let outputs = session.0.run(inputs)?;
        // SAFETY: the caller's promise.
        unsafe { give(out, name_outputs(&outputs)) }
    })
}

/// Calls the model with results in memory of the caller's: see fxc_compiled_run_into.
///
/// # Safety
/// `session` is a session that no other thread uses meanwhile; the rest is as for fxc_compiled_run_into.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_run_into(
    session: *mut fxc_session,
    inputs: *const fxc_tensor,
    input_count: usize,
    outputs: *const fxc_buffer,
    output_count: usize,
) -> fxc_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let session = unsafe { borrow_mut(session, "the session") }?;
        // SAFETY: the caller's promise.
        let (inputs, mut outputs) =
            unsafe { (call_inputs(inputs, input_count)?, call_outputs(outputs, output_count)?) };
        session.0.run_into(inputs, &mut outputs).map_err(Failure::from)
    })
}

/// The buffers that calls have changed or fxc_session_set_state has set, named by their paths.
///
/// # Safety
/// `session` is a session that no other thread uses meanwhile; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_state(session: *const fxc_session, out: *mut *mut fxc_outputs) -> fxc_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let state = unsafe { borrow(session, "the session") }?.0.state();
        let state = fxc_outputs::new(state.iter().map(|(path, t)| (path.clone(), t)));
        // SAFETY: the caller's promise.
        unsafe { give(out, state) }
    })
}

/// Gives a buffer the value that the next call finds, which is copied. It must be of the buffer's dtype and shape.
///
/// # Safety
/// `session` is a session that no other thread uses meanwhile; `path` is a NUL-terminated text; `value` is a tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_set_state(
    session: *mut fxc_session,
    path: *const c_char,
    value: *const fxc_tensor,
) -> fxc_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (session, path) = unsafe { (borrow_mut(session, "the session")?, borrow_text(path, "the path")?) };
        // SAFETY: the caller's promise.
        let value = unsafe { borrow(value, "the value")?.as_view() }?.to_tensor();
        session.0.set_state(path, value).map_err(Failure::from)
    })
}

/// Gives all buffers their first values again.
///
/// # Safety
/// `session` is a session that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_reset(session: *mut fxc_session) -> fxc_status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { borrow_mut(session, "the session") }.map(|s| s.0.reset()))
}

/// Frees a session.
///
/// # Safety
/// `session` is NULL, or a session that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_free(session: *mut fxc_session) {
    // SAFETY: the caller's promise.
    unsafe { free(session) }
}
