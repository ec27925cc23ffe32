//! Compiled models.

use crate::outputs::fxc_outputs;
use crate::session::fxc_session;
use crate::status::{Failure, borrow, free, fxc_status, give, guard};
use crate::tensor::{call_inputs, call_outputs, fxc_buffer, fxc_tensor};
use fxc_rust::Compiled;

/// A model's code. Any number of threads may call it at the same time.
pub struct fxc_compiled(pub(crate) Compiled);

/// Calls the model on `input_count` tensors. Each call starts with the initial values of buffers; see
/// fxc_compiled_session to keep their values.
///
/// # Safety
/// `compiled` is a compiled model; `inputs` points to `input_count` tensors whose memory is not written during the
/// call; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_compiled_run(
    compiled: *const fxc_compiled,
    inputs: *const fxc_tensor,
    input_count: usize,
    out: *mut *mut fxc_outputs,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (compiled, inputs) = unsafe {
            (
                borrow(compiled, "the compiled model")?,
                call_inputs(inputs, input_count)?,
            )
        };
        let outputs = compiled.0.run(inputs)?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, fxc_outputs::of_call(&outputs)) }
    })
}

/// Calls the model and writes the tensors of its result, in flattened order, to the caller's memory, which must have
/// their types.
///
/// # Safety
/// `compiled` is a compiled model; `inputs` points to `input_count` tensors whose memory is not written during the
/// call; `outputs` points to `output_count` buffers that overlap neither the inputs nor each other and are not used
/// by other threads during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_compiled_run_into(
    compiled: *const fxc_compiled,
    inputs: *const fxc_tensor,
    input_count: usize,
    outputs: *const fxc_buffer,
    output_count: usize,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let compiled = unsafe { borrow(compiled, "the compiled model") }?;
        // SAFETY: guaranteed by the caller.
        let (inputs, mut outputs) =
            unsafe { (call_inputs(inputs, input_count)?, call_outputs(outputs, output_count)?) };
        compiled.0.run_into(inputs, &mut outputs).map_err(Failure::from)
    })
}

/// Creates a session: the compiled model with separate values of the buffers that calls update. The compiled model
/// may be freed afterwards.
///
/// # Safety
/// `compiled` is a compiled model; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_compiled_session(compiled: *const fxc_compiled, out: *mut *mut fxc_session) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, fxc_session(borrow(compiled, "the compiled model")?.0.session())) }
    })
}

/// Frees a compiled model.
///
/// # Safety
/// `compiled` is NULL, or a compiled model that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_compiled_free(compiled: *mut fxc_compiled) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(compiled) }
}
