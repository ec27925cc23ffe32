//! Compiled models with state.

use crate::outputs::fxc_outputs;
use crate::status::{Failure, borrow, borrow_mut, borrow_text, free, fxc_status, give, guard};
use crate::tensor::{call_inputs, call_outputs, fxc_buffer, fxc_tensor};
use fxc_rust::Session;
use std::ffi::c_char;

/// A compiled model that keeps its state: each call starts with the buffers that the previous call left. Only one
/// thread at a time may use it.
pub struct fxc_session(pub(crate) Session);

/// Calls the model: see fxc_compiled_run.
///
/// # Safety
/// `session` is a session that no other thread uses during the call; `inputs` points to `input_count` tensors; `out`
/// is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_run(
    session: *mut fxc_session,
    inputs: *const fxc_tensor,
    input_count: usize,
    out: *mut *mut fxc_outputs,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (session, inputs) = unsafe { (borrow_mut(session, "the session")?, call_inputs(inputs, input_count)?) };
        let outputs = session.0.run(inputs)?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, fxc_outputs::of_call(&outputs)) }
    })
}

/// Calls the model and writes the results to the caller's memory: see fxc_compiled_run_into.
///
/// # Safety
/// `session` is a session that no other thread uses during the call; the other arguments are as for
/// fxc_compiled_run_into.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_run_into(
    session: *mut fxc_session,
    inputs: *const fxc_tensor,
    input_count: usize,
    outputs: *const fxc_buffer,
    output_count: usize,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let session = unsafe { borrow_mut(session, "the session") }?;
        // SAFETY: guaranteed by the caller.
        let (inputs, mut outputs) =
            unsafe { (call_inputs(inputs, input_count)?, call_outputs(outputs, output_count)?) };
        session.0.run_into(inputs, &mut outputs).map_err(Failure::from)
    })
}

/// The buffers that calls have updated or fxc_session_set_state has set, named by path.
///
/// # Safety
/// `session` is a session that no other thread uses during the call; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_state(session: *const fxc_session, out: *mut *mut fxc_outputs) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let state = unsafe { borrow(session, "the session") }?.0.state();
        let state = fxc_outputs::new(state.iter().map(|(path, t)| (path.clone(), t)));
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, state) }
    })
}

/// Sets the value of a buffer for the next call. The value is copied and must have the buffer's dtype and shape.
///
/// # Safety
/// `session` is a session that no other thread uses during the call; `path` is a NUL-terminated text; `value` is a
/// tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_set_state(
    session: *mut fxc_session,
    path: *const c_char,
    value: *const fxc_tensor,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (session, path) = unsafe { (borrow_mut(session, "the session")?, borrow_text(path, "the path")?) };
        // SAFETY: guaranteed by the caller.
        let value = unsafe { borrow(value, "the value")?.as_view() }?.to_tensor();
        session.0.set_state(path, value).map_err(Failure::from)
    })
}

/// Resets all buffers to their initial values.
///
/// # Safety
/// `session` is a session that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_reset(session: *mut fxc_session) -> fxc_status {
    // SAFETY: guaranteed by the caller.
    guard(|| unsafe { borrow_mut(session, "the session") }.map(|s| s.0.reset()))
}

/// Frees a session.
///
/// # Safety
/// `session` is NULL, or a session that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_session_free(session: *mut fxc_session) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(session) }
}
