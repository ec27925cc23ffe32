//! Tensors in the caller's memory.

use crate::status::{Failure, borrow_slice, borrow_text};
use fxc_rust::types::DType;
use fxc_rust::{Input, View, ViewMut};
use std::ffi::{c_char, c_void};
use std::ptr;

/// An element type: FXC_F32, FXC_I64, ….
pub type fxc_dtype = u32;

/// Unknown before a call. No tensor has this type.
pub const FXC_UNKNOWN: fxc_dtype = 0;
/// IEEE double.
pub const FXC_F64: fxc_dtype = 1;
/// IEEE float.
pub const FXC_F32: fxc_dtype = 2;
/// IEEE half.
pub const FXC_F16: fxc_dtype = 3;
/// bfloat16.
pub const FXC_BF16: fxc_dtype = 4;
/// 64-bit integer.
pub const FXC_I64: fxc_dtype = 5;
/// 32-bit integer.
pub const FXC_I32: fxc_dtype = 6;
/// 16-bit integer.
pub const FXC_I16: fxc_dtype = 7;
/// 8-bit integer.
pub const FXC_I8: fxc_dtype = 8;
/// Unsigned 8-bit integer.
pub const FXC_U8: fxc_dtype = 9;
/// A byte that is 0 or 1.
pub const FXC_BOOL: fxc_dtype = 10;
/// Unsigned 16-bit integer.
pub const FXC_U16: fxc_dtype = 11;
/// Unsigned 32-bit integer.
pub const FXC_U32: fxc_dtype = 12;
/// Unsigned 64-bit integer.
pub const FXC_U64: fxc_dtype = 13;
/// 8-bit float with 4 bits of exponent.
pub const FXC_F8E4M3FN: fxc_dtype = 14;
/// 8-bit float with 5 bits of exponent.
pub const FXC_F8E5M2: fxc_dtype = 15;

const DTYPES: [(fxc_dtype, DType); 15] = [
    (FXC_F64, DType::F64),
    (FXC_F32, DType::F32),
    (FXC_F16, DType::F16),
    (FXC_BF16, DType::BF16),
    (FXC_I64, DType::I64),
    (FXC_I32, DType::I32),
    (FXC_I16, DType::I16),
    (FXC_I8, DType::I8),
    (FXC_U8, DType::U8),
    (FXC_BOOL, DType::B8),
    (FXC_U16, DType::U16),
    (FXC_U32, DType::U32),
    (FXC_U64, DType::U64),
    (FXC_F8E4M3FN, DType::F8E4M3FN),
    (FXC_F8E5M2, DType::F8E5M2),
];

/// A tensor that fxc reads.
#[repr(C)]
pub struct fxc_tensor {
    /// The first element. Dense, aligned elements are read in place; others are copied first.
    pub data: *const c_void,
    /// Element type.
    pub dtype: fxc_dtype,
    /// The number of dimensions.
    pub rank: usize,
    /// The sizes, outermost first.
    pub shape: *const usize,
    /// The strides in elements, which may be negative; NULL for row-major elements without gaps.
    pub strides: *const isize,
    /// The name of the input; NULL for the next input by position.
    pub name: *const c_char,
}

/// A tensor that fxc writes, row-major without gaps.
#[repr(C)]
pub struct fxc_buffer {
    /// The first element, aligned to its size.
    pub data: *mut c_void,
    /// Element type.
    pub dtype: fxc_dtype,
    /// The number of dimensions.
    pub rank: usize,
    /// The sizes, outermost first.
    pub shape: *const usize,
}

/// The number of a dtype; [`FXC_UNKNOWN`] for dtypes without a number.
pub(crate) fn dtype_number(dtype: DType) -> fxc_dtype {
    DTYPES
        .iter()
        .find(|(_, d)| *d == dtype)
        .map_or(FXC_UNKNOWN, |(n, _)| *n)
}

fn find_dtype(number: fxc_dtype) -> Result<DType, Failure> {
    let row = DTYPES.iter().find(|(n, _)| *n == number);
    row.map(|(_, d)| *d)
        .ok_or_else(|| Failure::Argument(format!("{number} is not a valid dtype")))
}

fn check_data(data: *const c_void, shape: &[usize]) -> Result<(), Failure> {
    if data.is_null() && !shape.contains(&0) {
        return Err(Failure::Argument("the data of a tensor with elements is NULL".into()));
    }
    Ok(())
}

impl fxc_tensor {
    /// # Safety
    /// The pointers are valid for `'a`, as the fields describe.
    pub(crate) unsafe fn as_view<'a>(&'a self) -> Result<View<'a>, Failure> {
        // SAFETY: guaranteed by the caller.
        let shape = unsafe { borrow_slice(self.shape, self.rank, "the shape") }?;
        let strides = match self.strides.is_null() {
            true => None,
            // SAFETY: guaranteed by the caller.
            false => Some(unsafe { borrow_slice(self.strides, self.rank, "the strides") }?),
        };
        check_data(self.data, shape)?;
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { View::from_raw_parts(find_dtype(self.dtype)?, shape, strides, self.data.cast()) }?)
    }

    /// # Safety
    /// As for [`fxc_tensor::as_view`].
    unsafe fn as_input<'a>(&'a self) -> Result<Input<'a>, Failure> {
        // SAFETY: guaranteed by the caller.
        let view = unsafe { self.as_view() }?;
        if self.name.is_null() {
            return Ok(view.into());
        }
        // SAFETY: guaranteed by the caller.
        Ok((unsafe { borrow_text(self.name, "the input's name") }?, view).into())
    }

    /// Describes a tensor. The result is valid as long as `shape` and `data`.
    pub(crate) fn describe(t: &fxc_rust::Tensor, name: *const c_char) -> fxc_tensor {
        fxc_tensor {
            data: t.bytes().as_ptr().cast(),
            dtype: dtype_number(t.dtype()),
            rank: t.rank(),
            shape: t.shape().as_ptr(),
            strides: ptr::null(),
            name,
        }
    }
}

/// The inputs of a call.
///
/// # Safety
/// `inputs` points to `count` tensors whose pointers are valid for `'a`.
pub(crate) unsafe fn call_inputs<'a>(inputs: *const fxc_tensor, count: usize) -> Result<Vec<Input<'a>>, Failure> {
    // SAFETY: guaranteed by the caller.
    let inputs: &'a [fxc_tensor] = unsafe { borrow_slice(inputs, count, "the list of inputs") }?;
    // SAFETY: guaranteed by the caller.
    inputs.iter().map(|i| unsafe { i.as_input() }).collect()
}

/// The memory for results of a call.
///
/// # Safety
/// `outputs` points to `count` buffers whose pointers are valid for `'a` and not used by anything else.
pub(crate) unsafe fn call_outputs<'a>(outputs: *const fxc_buffer, count: usize) -> Result<Vec<ViewMut<'a>>, Failure> {
    // SAFETY: guaranteed by the caller.
    let outputs: &'a [fxc_buffer] = unsafe { borrow_slice(outputs, count, "the list of results") }?;
    let view = |o: &'a fxc_buffer| {
        // SAFETY: guaranteed by the caller.
        let shape = unsafe { borrow_slice(o.shape, o.rank, "the shape") }?;
        check_data(o.data, shape)?;
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { ViewMut::from_raw_parts(find_dtype(o.dtype)?, shape, o.data.cast()) }?)
    };
    outputs.iter().map(view).collect()
}
