//! DLPack: reads the memory of other libraries' tensors, and exports fxc's tensors.
//!
//! The structs are those of `dlpack.h` 1.x. Current libraries export versioned tensors. The older form is supported
//! for libraries that do not.

use crate::array::{Array, Owner};
use crate::dtype;
use fxc::Tensor;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use smallvec::SmallVec;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";
const PLAIN: &CStr = c"dltensor";
const PLAIN_USED: &CStr = c"used_dltensor";

/// The device type of the CPU, and those of memory that the CPU can read directly.
const CPU: i32 = 1;
const PINNED: [i32; 2] = [3, 11];

/// The major version of these structs.
pub(crate) const MAJOR: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DLPackVersion {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DLDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
pub(crate) struct DLTensor {
    data: *mut c_void,
    device: DLDevice,
    ndim: i32,
    dtype: DLDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

impl DLTensor {
    /// A tensor to be filled in.
    pub(crate) fn empty() -> DLTensor {
        DLTensor {
            data: std::ptr::null_mut(),
            device: DLDevice { kind: 0, id: 0 },
            ndim: 0,
            dtype: DLDataType {
                code: 0,
                bits: 0,
                lanes: 1,
            },
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        }
    }
}

#[repr(C)]
pub(crate) struct DLManagedTensor {
    dl_tensor: DLTensor,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

#[repr(C)]
pub(crate) struct DLManagedTensorVersioned {
    version: DLPackVersion,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    flags: u64,
    dl_tensor: DLTensor,
}

/// An exporter's tensor, which is returned to the exporter when it is no longer read.
pub(crate) enum Managed {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Plain(NonNull<DLManagedTensor>),
}

// SAFETY: the exporters' deleters acquire the interpreter's lock if they need it, so any thread may call them.
unsafe impl Send for Managed {}
// SAFETY: as for `Send`; shared access reads nothing.
unsafe impl Sync for Managed {}

impl Drop for Managed {
    fn drop(&mut self) {
        match self {
            // SAFETY: the owner of a tensor that was taken out of its capsule must call its deleter once, which
            // happens here.
            Managed::Versioned(t) => unsafe {
                if let Some(delete) = t.as_ref().deleter {
                    delete(t.as_ptr());
                }
            },
            // SAFETY: as above.
            Managed::Plain(t) => unsafe {
                if let Some(delete) = t.as_ref().deleter {
                    delete(t.as_ptr());
                }
            },
        }
    }
}

/// The memory that a DLPack tensor describes.
///
/// # Safety
/// The tensor follows `dlpack.h`, and `owner` keeps its memory alive.
pub(crate) unsafe fn describe(t: &DLTensor, owner: Owner) -> PyResult<Array> {
    if t.device.kind != CPU && !PINNED.contains(&t.device.kind) {
        return Err(PyTypeError::new_err(format!(
            "the tensor is on {}, but fxc computes on the CPU; move it with `.cpu()` (or `.to(\"cpu\")`) first",
            device_name(t.device.kind)
        )));
    }
    let (code, bits, lanes) = (t.dtype.code, t.dtype.bits, t.dtype.lanes);
    let known = dtype::from_dlpack(code, bits).filter(|_| lanes == 1);
    let dtype = known.ok_or_else(|| {
        let shown = format!("DLPack code {code} of {bits} bits in {lanes} lanes");
        PyTypeError::new_err(format!("fxc does not support the element type {shown}"))
    })?;
    let rank = usize::try_from(t.ndim).map_err(|_| PyBufferError::new_err("a tensor has a negative rank"))?;
    let mut shape = SmallVec::<[usize; 6]>::with_capacity(rank);
    let mut strides = SmallVec::<[isize; 6]>::with_capacity(rank);
    for i in 0..rank {
        // SAFETY: the rank is the number of items of the shape.
        let n = unsafe { *t.shape.add(i) };
        shape.push(usize::try_from(n).map_err(|_| PyBufferError::new_err("a tensor has a negative size"))?);
        if !t.strides.is_null() {
            // SAFETY: and of the strides, if there are any.
            strides.push(unsafe { *t.strides.add(i) } as isize);
        }
    }
    let dense = t.strides.is_null();
    Ok(Array {
        dtype,
        shape,
        strides: (!dense).then_some(strides),
        // Do not add an offset to a null address.
        data: if t.data.is_null() {
            std::ptr::null()
        } else {
            // SAFETY: the first element is within the exporter's memory.
            unsafe { t.data.cast::<u8>().cast_const().add(t.byte_offset as usize) }
        },
        _owner: owner,
    })
}

fn device_name(kind: i32) -> String {
    let name = match kind {
        2 | 13 => "a CUDA GPU",
        4 => "an OpenCL device",
        7 => "a Vulkan device",
        8 => "a Metal GPU",
        10 => "a ROCm GPU",
        14 => "a oneAPI device",
        15 => "a WebGPU device",
        18 => "a Trainium device",
        n => return format!("DLPack device type {n}"),
    };
    name.to_string()
}

/// The memory of an object with `__dlpack__`.
pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<Array> {
    let py = object.py();
    let device = object.call_method0("__dlpack_device__")?;
    let (kind, _): (i32, i32) = device.extract()?;
    if kind != CPU && !PINNED.contains(&kind) {
        let device_text = device_name(kind);
        let class = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "the {class} is on {device_text}, but fxc computes on the CPU; move it to the CPU first"
        )));
    }
    let kwargs = PyDict::new(py);
    kwargs.set_item("max_version", (MAJOR, 0))?;
    let capsule = match object.call_method("__dlpack__", (), Some(&kwargs)) {
        Ok(c) => c,
        // Libraries from before DLPack 1.0 do not have this parameter.
        Err(e) if e.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__")?,
        Err(e) => return Err(e),
    };
    take_capsule(capsule.cast::<PyCapsule>()?)
}

/// Takes the tensor out of a capsule.
fn take_capsule(capsule: &Bound<'_, PyCapsule>) -> PyResult<Array> {
    let raw = capsule.as_ptr();
    // SAFETY: `raw` is a capsule. Its name identifies the content, and renaming it marks the tensor as taken.
    unsafe {
        if pyo3::ffi::PyCapsule_IsValid(raw, VERSIONED.as_ptr()) == 1 {
            let t = pyo3::ffi::PyCapsule_GetPointer(raw, VERSIONED.as_ptr()).cast::<DLManagedTensorVersioned>();
            let t = NonNull::new(t).ok_or_else(|| PyErr::fetch(capsule.py()))?;
            pyo3::ffi::PyCapsule_SetName(raw, VERSIONED_USED.as_ptr());
            let managed = Managed::Versioned(t);
            if t.as_ref().version.major != MAJOR {
                return Err(PyBufferError::new_err(
                    "the tensor uses an unsupported version of DLPack",
                ));
            }
            return describe(&t.as_ref().dl_tensor, Owner::Managed(managed));
        }
        if pyo3::ffi::PyCapsule_IsValid(raw, PLAIN.as_ptr()) == 1 {
            let t = pyo3::ffi::PyCapsule_GetPointer(raw, PLAIN.as_ptr()).cast::<DLManagedTensor>();
            let t = NonNull::new(t).ok_or_else(|| PyErr::fetch(capsule.py()))?;
            pyo3::ffi::PyCapsule_SetName(raw, PLAIN_USED.as_ptr());
            return describe(&t.as_ref().dl_tensor, Owner::Managed(Managed::Plain(t)));
        }
    }
    Err(PyBufferError::new_err(
        "`__dlpack__` did not return an unused DLPack capsule",
    ))
}

/// An fxc tensor with the structs that describe it.
struct Exported {
    managed: DLManagedTensorVersioned,
    shape: SmallVec<[i64; 6]>,
    strides: SmallVec<[i64; 6]>,
    /// Keeps the memory alive.
    _tensor: Tensor,
}

unsafe extern "C" fn delete_exported(t: *mut DLManagedTensorVersioned) {
    // SAFETY: the context is the box that `export` created, and the consumer calls this once.
    unsafe {
        if !t.is_null() {
            drop(Box::from_raw((*t).manager_ctx.cast::<Exported>()));
        }
    }
}

/// Exports a tensor to another library, which then owns it. If the consumer may write, no other tensor may share the
/// memory.
/// With an `order`, dimension `i` of the tensor is dimension `order[i]` of the export.
pub(crate) fn export(tensor: Tensor, order: Option<&[usize]>) -> Option<NonNull<DLManagedTensorVersioned>> {
    let (code, bits) = dtype::to_dlpack(tensor.dtype())?;
    let mut exported = Box::new(Exported {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion { major: MAJOR, minor: 0 },
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete_exported),
            flags: 0,
            dl_tensor: DLTensor::empty(),
        },
        shape: ordered(tensor.shape(), order),
        strides: ordered(&row_major_strides(tensor.shape()), order),
        _tensor: tensor,
    });
    let t = &mut exported.managed.dl_tensor;
    t.device = DLDevice { kind: CPU, id: 0 };
    t.dtype = DLDataType { code, bits, lanes: 1 };
    t.ndim = exported.shape.len() as i32;
    t.data = exported._tensor.bytes().as_ptr().cast_mut().cast();
    (t.shape, t.strides) = (exported.shape.as_mut_ptr(), exported.strides.as_mut_ptr());
    let raw = Box::into_raw(exported);
    // SAFETY: the box was just leaked, and its fields do not move.
    unsafe {
        (*raw).managed.manager_ctx = raw.cast();
        Some(NonNull::from(&mut (*raw).managed))
    }
}

fn row_major_strides(shape: &[usize]) -> SmallVec<[usize; 6]> {
    let mut strides: SmallVec<[usize; 6]> = SmallVec::from_elem(1, shape.len());
    for i in (1..shape.len()).rev() {
        // As in fxc: nothing is read through these strides if a size is zero.
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    strides
}

fn ordered(sizes: &[usize], order: Option<&[usize]>) -> SmallVec<[i64; 6]> {
    let mut out: SmallVec<[i64; 6]> = sizes.iter().map(|&n| n as i64).collect();
    for (&n, &place) in sizes.iter().zip(order.unwrap_or_default()) {
        out[place] = n as i64;
    }
    out
}

/// A capsule with an fxc tensor, as `__dlpack__` returns it.
pub(crate) fn capsule<'py>(py: Python<'py>, tensor: Tensor, order: Option<&[usize]>) -> PyResult<Bound<'py, PyAny>> {
    let exported =
        export(tensor, order).ok_or_else(|| PyBufferError::new_err("DLPack does not support the element type"))?;
    // SAFETY: the pointer is not null; the destructor deletes a tensor that was not taken.
    unsafe {
        let raw = pyo3::ffi::PyCapsule_New(exported.as_ptr().cast(), VERSIONED.as_ptr(), Some(delete_capsule));
        Bound::from_owned_ptr_or_err(py, raw)
    }
}

unsafe extern "C" fn delete_capsule(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: a capsule with its original name contains the tensor that `export` created.
    unsafe {
        if pyo3::ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            let t = pyo3::ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr());
            delete_exported(t.cast());
        }
    }
}
