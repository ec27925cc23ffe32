//! Tensors that fxc returns: results of calls, and the state of sessions.

use crate::status::{Failure, borrow, borrow_mut, c_text, free, fxc_status, guard, guard_value};
use crate::tensor::fxc_tensor;
use fxc_rust::{Outputs, Tensor};
use std::ffi::CString;

/// Tensors that own their memory: later calls do not change them.
pub struct fxc_outputs(Vec<(CString, Tensor)>);

impl fxc_outputs {
    pub(crate) fn new<'a>(tensors: impl IntoIterator<Item = (String, &'a Tensor)>) -> fxc_outputs {
        let named = tensors.into_iter().map(|(name, t)| (c_text(&name), t.clone()));
        fxc_outputs(named.collect())
    }

    /// The tensors of a result, named by their positions.
    pub(crate) fn of_call(outputs: &Outputs) -> fxc_outputs {
        let tensors = outputs.tensors().into_iter().enumerate();
        fxc_outputs::new(tensors.map(|(i, t)| (format!("output.{i}"), t)))
    }
}

/// The number of tensors, in the order of the flattened result.
///
/// # Safety
/// `outputs` are outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_outputs_count(outputs: *const fxc_outputs) -> usize {
    // SAFETY: guaranteed by the caller.
    guard_value(0, || Ok(unsafe { borrow(outputs, "the outputs") }?.0.len()))
}

/// Tensor `index`. The memory that `out` refers to is valid until the outputs are freed.
///
/// # Safety
/// `outputs` are outputs; `out` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_outputs_get(
    outputs: *const fxc_outputs,
    index: usize,
    out: *mut fxc_tensor,
) -> fxc_status {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (all, out) = unsafe {
            (
                &borrow(outputs, "the outputs")?.0,
                borrow_mut(out, "the pointer for the result")?,
            )
        };
        let entry = all.get(index).ok_or_else(|| {
            Failure::Argument(format!(
                "index {index} is out of range: there are {} tensors",
                all.len()
            ))
        });
        let (name, tensor) = entry?;
        *out = fxc_tensor::describe(tensor, name.as_ptr());
        Ok(())
    })
}

/// Frees outputs.
///
/// # Safety
/// `outputs` is NULL, or outputs that are no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fxc_outputs_free(outputs: *mut fxc_outputs) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(outputs) }
}
