//! Inputs that a model mutates, as `x += 1` in `forward` does.

use crate::args::{CallSignature, Library};
use crate::results::Maker;
use crate::{ndarray, torch};
use fxc::{Outputs, Tensor};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Copies the new values of mutated inputs to the arrays and tensors that were passed, as the module would have
/// written them.
///
/// Read-only memory (a read-only array, an object that only lends its memory) is left unchanged.
pub(crate) fn hand_back(
    outputs: &Outputs,
    signature: &CallSignature,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    if outputs.changed_inputs().next().is_none() {
        return Ok(());
    }
    let objects = signature.objects(args, kwargs)?;
    for (name, value) in outputs.changed_inputs() {
        let index = signature.inputs.iter().position(|n| n == name);
        if let Some(object) = index.and_then(|i| objects[i].as_ref()) {
            write(object, value)?;
        }
    }
    Ok(())
}

/// Writes a value into an array or tensor.
fn write(object: &Bound<'_, PyAny>, value: &Tensor) -> PyResult<()> {
    let py = object.py();
    if ndarray::is_array(object) {
        let flags = object.getattr(intern!(py, "flags"))?;
        if flags.getattr(intern!(py, "writeable"))?.is_truthy()? {
            let value = Maker::new(py, Library::Numpy)?.tensor(value.clone())?;
            py.import(intern!(py, "numpy"))?
                .call_method1(intern!(py, "copyto"), (object, value))?;
        }
        return Ok(());
    }
    if let Some(torch) = torch::loaded(py)?
        && torch.is_tensor(object)?
    {
        let value = Maker::new(py, Library::Torch)?.tensor(value.clone())?;
        // A detached tensor shares the memory and the version counter, and can be written where the original requires
        // grad.
        let plain = object.call_method0(intern!(py, "detach"))?;
        plain.call_method1(intern!(py, "copy_"), (value,))?;
    }
    Ok(())
}
