//! torch tensors, through the DLPack C functions that torch provides. This module never imports torch: if an object
//! is a tensor, torch has been imported.

use crate::array::{Array, Owner};
use crate::dlpack::{self, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use fxc::Tensor;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyType};
use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
struct ExchangeHeader {
    version: DLPackVersion,
    prev: *mut ExchangeHeader,
}

type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// Describes the memory of a tensor without transferring ownership.
type BorrowFn = unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> c_int;

/// Creates a tensor from memory whose ownership it takes.
type ImportFn = unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut c_void) -> c_int;

/// `DLPackExchangeAPI` of `dlpack.h`.
#[repr(C)]
struct ExchangeApi {
    header: ExchangeHeader,
    _allocate:
        Option<unsafe extern "C" fn(*mut DLTensor, *mut *mut DLManagedTensorVersioned, *mut c_void, SetError) -> c_int>,
    _export: Option<unsafe extern "C" fn(*mut c_void, *mut *mut DLManagedTensorVersioned) -> c_int>,
    import: Option<ImportFn>,
    borrow: Option<BorrowFn>,
    _stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

/// The parts of torch that calls need.
pub(crate) struct Torch {
    tensor: Py<PyType>,
    is_grad_enabled: Py<PyAny>,
    from_dlpack: Py<PyAny>,
    borrow: Option<BorrowFn>,
    import: Option<ImportFn>,
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

/// torch, if the program has imported it.
pub(crate) fn loaded(py: Python<'_>) -> PyResult<Option<&'static Torch>> {
    if let Some(torch) = TORCH.get(py) {
        return Ok(Some(torch));
    }
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let Ok(torch) = modules.get_item(intern!(py, "torch")) else {
        return Ok(None);
    };
    // During the import of torch, its module exists but is incomplete.
    let (Ok(tensor), Ok(grad)) = (torch.getattr("Tensor"), torch.getattr("is_grad_enabled")) else {
        return Ok(None);
    };
    let api = exchange_api(&tensor);
    let functions = Torch {
        borrow: api.and_then(|api| api.borrow),
        import: api.and_then(|api| api.import),
        tensor: tensor.cast_into::<PyType>()?.unbind(),
        is_grad_enabled: grad.unbind(),
        from_dlpack: torch.getattr("from_dlpack")?.unbind(),
    };
    Ok(Some(TORCH.get_or_init(py, || functions)))
}

/// The table of functions of a tensor class, if its version is supported.
fn exchange_api(class: &Bound<'_, PyAny>) -> Option<&'static ExchangeApi> {
    let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?;
    let capsule = capsule.cast_into::<PyCapsule>().ok()?;
    let table = capsule.pointer_checked(Some(c"dlpack_exchange_api")).ok()?;
    // SAFETY: the capsule's name identifies the content, and the library keeps the table for the life of the process.
    let header = unsafe { table.cast::<ExchangeHeader>().as_ref() };
    if header.version.major != dlpack::MAJOR {
        return None;
    }
    // SAFETY: as above; tables of this version have these members.
    Some(unsafe { table.cast::<ExchangeApi>().as_ref() })
}

impl Torch {
    /// Whether an object is a tensor.
    pub(crate) fn is_tensor(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = object.py();
        Ok(object.get_type().is(self.tensor.bind(py)) || object.is_instance(self.tensor.bind(py))?)
    }

    /// The memory of a tensor. Returns an error if torch itself would refuse to export it.
    pub(crate) fn read(&self, object: &Bound<'_, PyAny>) -> PyResult<Array> {
        let py = object.py();
        let needs_grad = object.getattr(intern!(py, "requires_grad"))?.is_truthy()?;
        if needs_grad && self.is_grad_enabled.bind(py).call0()?.is_truthy()? {
            let words = "an input tensor requires grad, but fxc does not compute gradients; call the model under \
                         `torch.no_grad()`, or pass `x.detach()`";
            return Err(PyRuntimeError::new_err(words));
        }
        if object.call_method0(intern!(py, "is_neg"))?.is_truthy()? {
            // DLPack cannot represent a pending negation.
            return self.read(&object.call_method0("resolve_neg")?);
        }
        let exact = object.get_type().is(self.tensor.bind(py));
        match self.borrow.filter(|_| exact) {
            Some(borrow) => borrow_tensor(object, borrow),
            None => dlpack::import(&object.call_method0("detach")?),
        }
    }

    /// The memory of a tensor, even if it requires a gradient. For code that torch runs as part of a compiled
    /// function.
    pub(crate) fn borrow(&self, object: &Bound<'_, PyAny>) -> PyResult<Array> {
        match self.borrow {
            Some(borrow) if self.is_tensor(object)? => borrow_tensor(object, borrow),
            _ => dlpack::import(&object.call_method0("detach")?),
        }
    }

    /// A torch tensor that uses the memory of an fxc tensor.
    pub(crate) fn make<'py>(&self, py: Python<'py>, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
        self.make_ordered(py, tensor, None)
    }

    /// A torch tensor that uses the memory of an fxc tensor, with dimensions in this order.
    pub(crate) fn make_ordered<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor,
        order: Option<&[usize]>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(import) = self.import else {
            let capsule = dlpack::capsule(py, tensor, order)?;
            return self.from_dlpack.bind(py).call1((capsule,));
        };
        let dtype = tensor.dtype();
        let exported = dlpack::export(tensor, order)
            .ok_or_else(|| PyValueError::new_err(format!("DLPack does not support {dtype}")))?;
        let mut out = std::ptr::null_mut();
        // SAFETY: the function takes ownership of the exported tensor, and returns a new reference or sets an
        // exception.
        unsafe {
            match import(exported.as_ptr(), &mut out) {
                0 => Bound::from_owned_ptr_or_err(py, out.cast()),
                _ => Err(PyErr::fetch(py)),
            }
        }
    }
}

fn borrow_tensor(object: &Bound<'_, PyAny>, borrow: BorrowFn) -> PyResult<Array> {
    let mut t = DLTensor::empty();
    let owner = Owner::Object(object.clone().unbind());
    // SAFETY: the object is an instance of exactly the class that provides the function. The owner keeps it, and
    // therefore its memory, alive.
    unsafe {
        match borrow(object.as_ptr().cast(), &mut t) {
            0 => dlpack::describe(&t, owner),
            _ => Err(unreadable(object, PyErr::fetch(object.py()))),
        }
    }
}

/// fxc's error for a tensor that torch does not export.
fn unreadable(object: &Bound<'_, PyAny>, cause: PyErr) -> PyErr {
    let py = object.py();
    let attribute = |name: &str| match object.getattr(name).and_then(|x| x.str()) {
        Ok(text) => text.to_string(),
        Err(_) => "unknown".to_string(),
    };
    let error = PyTypeError::new_err(format!(
        "torch does not give access to the memory of this tensor (device {}, layout {})",
        attribute("device"),
        attribute("layout")
    ));
    error.set_cause(py, Some(cause));
    error
}
