//! Memory of Python objects that calls read.

use crate::dlpack::Managed;
use fxc::types::DType;
use pyo3::prelude::*;
use smallvec::SmallVec;

/// Sizes or strides.
pub(crate) type Sizes<T> = SmallVec<[T; 6]>;

/// Owns memory while it is read.
#[allow(dead_code, reason = "the fields are there to be dropped")]
pub(crate) enum Owner {
    /// The Python object.
    Object(Py<PyAny>),
    /// A DLPack exporter's tensor.
    Managed(Managed),
}

/// An array as described by its library. It is only read.
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) shape: Sizes<usize>,
    /// In elements; `None` for row-major memory without gaps.
    pub(crate) strides: Option<Sizes<isize>>,
    pub(crate) data: *const u8,
    pub(crate) _owner: Owner,
}

// SAFETY: the memory is only read, and the owner keeps it alive on any thread.
unsafe impl Send for Array {}
// SAFETY: as for `Send`.
unsafe impl Sync for Array {}
