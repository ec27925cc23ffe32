//! numpy arrays: reads them in place, and creates them for fxc's memory.

use crate::array::{Array, Owner, Sizes};
use crate::dtype;
use fxc::Tensor;
use fxc::types::DType;
use numpy::npyffi::{self, NPY_ARRAY_ALIGNED, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE, NpyTypes, PY_ARRAY_API};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;

/// Whether an object is an array (an instance of numpy's class or of a derived class).
pub(crate) fn is_array(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyUntypedArray>()
}

/// The memory of an array.
pub(crate) fn read(object: &Bound<'_, PyAny>) -> PyResult<Array> {
    let array = object.cast::<PyUntypedArray>()?;
    let descr = array.dtype();
    let dtype = dtype_of(&descr)?;
    if !array.is_exact_instance_of::<PyUntypedArray>() && array.hasattr(intern!(object.py(), "mask"))? {
        let words = "a tensor cannot represent a masked array's mask; pass `array.filled(...)`";
        return Err(PyTypeError::new_err(words));
    }
    let size = dtype.size() as isize;
    let strides = array.strides();
    if !array.is_aligned() || strides.iter().any(|s| s % size != 0) {
        // A field of a record, or unaligned bytes.
        let copy = object.call_method0(intern!(object.py(), "copy"))?;
        return read(&copy);
    }
    let dense = array.is_c_contiguous();
    let strides: Option<Sizes<isize>> = (!dense).then(|| strides.iter().map(|s| s / size).collect());
    Ok(Array {
        dtype,
        shape: Sizes::from_slice(array.shape()),
        strides,
        // SAFETY: the object is an array, whose struct has the address of its first element.
        data: unsafe { (*array.as_array_ptr()).fields.data }.cast_const().cast(),
        _owner: Owner::Object(object.clone().unbind()),
    })
}

fn dtype_of(descr: &Bound<'_, PyArrayDescr>) -> PyResult<DType> {
    let native = matches!(descr.byteorder(), b'=' | b'|');
    if let Some(dtype) = dtype::from_numpy(descr.num()).filter(|_| native) {
        return Ok(dtype);
    }
    let name: String = descr.getattr("name")?.extract()?;
    match dtype::from_ml_dtypes(&name) {
        Some(dtype) => Ok(dtype),
        None if !native && dtype::from_numpy(descr.num()).is_some() => Err(PyTypeError::new_err(format!(
            "the array has a foreign byte order; pass `array.astype(\"{name}\")`"
        ))),
        None => Err(PyTypeError::new_err(format!(
            "fxc does not support numpy's dtype `{name}`"
        ))),
    }
}

/// Keeps a tensor alive as long as an array uses its memory.
#[pyclass(frozen, module = "fxc._fxc", name = "_Memory")]
pub(crate) struct Memory {
    _tensor: Tensor,
}

/// An array that uses the memory of a tensor. For types that numpy does not have, its dtype is from `ml_dtypes`.
pub(crate) fn make(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyAny>> {
    let dtype = tensor.dtype();
    let number = dtype::to_numpy(dtype);
    // Types that numpy does not have are created as unsigned integers of the same size.
    let carrier = match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        _ => DType::U32,
    };
    let plain = number.or_else(|| dtype::to_numpy(carrier));
    let array = wrap(py, tensor, plain.ok_or_else(|| no_type(dtype))?)?;
    match number {
        Some(_) => Ok(array),
        None => {
            let module = py.import("ml_dtypes").map_err(|_| no_type(dtype))?;
            let class = module.getattr(dtype.torch_name()).map_err(|_| no_type(dtype))?;
            array.call_method1("view", (class,))
        }
    }
}

fn no_type(dtype: DType) -> PyErr {
    let name = dtype.torch_name();
    PyValueError::new_err(format!(
        "a result has dtype {name}, which numpy does not support; install `ml_dtypes`, which adds it, or pass torch tensors"
    ))
}

fn wrap(py: Python<'_>, tensor: Tensor, number: i32) -> PyResult<Bound<'_, PyAny>> {
    let mut shape: Sizes<npyffi::npy_intp> = tensor.shape().iter().map(|&n| n as npyffi::npy_intp).collect();
    let data = tensor.bytes().as_ptr().cast_mut();
    let base = Bound::new(py, Memory { _tensor: tensor })?;
    let flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE;
    // SAFETY: the shape's elements are at `data`, row-major, in memory that the base object keeps alive. The array
    // takes the reference to the base object even if it fails.
    unsafe {
        let raw = PY_ARRAY_API.PyArray_New(
            py,
            npyffi::get_type_object(py, NpyTypes::PyArray_Type),
            shape.len() as i32,
            shape.as_mut_ptr(),
            number,
            std::ptr::null_mut(),
            data.cast(),
            0,
            flags,
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, raw)?;
        match PY_ARRAY_API.PyArray_SetBaseObject(py, raw.cast(), base.into_ptr()) {
            0 => Ok(array),
            _ => Err(PyErr::fetch(py)),
        }
    }
}
