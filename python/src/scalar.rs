//! Numbers, texts and torch's names as values.

use fxc::types::{DType, Val};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyComplexMethods, PyFloat, PyInt, PyString};

/// None, a bool, a number or a text as a value; `None` for any other object.
pub(crate) fn from_python<T>(value: &Bound<'_, PyAny>) -> PyResult<Option<Val<T>>> {
    Ok(Some(if value.is_none() {
        Val::None
    } else if let Ok(b) = value.cast::<PyBool>() {
        Val::Bool(b.is_true())
    } else if value.is_instance_of::<PyInt>() {
        let too_wide = |_| PyValueError::new_err("the int does not fit in 64 bits");
        Val::int(value.extract().map_err(too_wide)?)
    } else if value.is_instance_of::<PyFloat>() {
        Val::Float(value.extract()?)
    } else if let Ok(c) = value.cast::<PyComplex>() {
        Val::Complex(c.real(), c.imag())
    } else if let Ok(s) = value.cast::<PyString>() {
        Val::Str(s.to_cow()?.as_ref().into())
    } else {
        return Ok(None);
    }))
}

/// The value of `torch.float32`, `torch.device("cpu")` and other torch names; `None` for any other object.
pub(crate) fn from_torch_name<T>(value: &Bound<'_, PyAny>) -> PyResult<Option<Val<T>>> {
    let class = value.get_type();
    if class.module()?.to_cow()? != "torch" {
        return Ok(None);
    }
    let text = value.str()?.to_string();
    let name = text.trim_start_matches("torch.");
    Ok(match &*class.name()?.to_cow()? {
        "dtype" => DType::all().find(|d| d.torch_name() == name).map(Val::DType),
        "device" => Some(Val::Device(name.into())),
        "layout" | "memory_format" => Some(Val::TorchName(name.into())),
        _ => None,
    })
}
