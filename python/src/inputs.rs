//! Converts arguments to inputs of the library.

use crate::args::{Arguments, CallSignature};
use crate::array::Array;
use fxc::types::{DType, Val};
use fxc::{Input, LayoutError, Tensor, View};

/// The inputs of a call. They borrow the arrays' memory, which their owners keep alive.
pub(crate) fn of_call<'a>(
    arguments: &'a Arguments,
    signature: &'a CallSignature,
) -> Result<Vec<Input<'a>>, LayoutError> {
    let all = arguments.slots.iter().all(Option::is_some);
    let mut inputs = Vec::with_capacity(arguments.slots.len());
    for (slot, name) in arguments.slots.iter().zip(&signature.inputs) {
        let Some(value) = slot else { continue };
        let input = match value {
            Val::Leaf(i) => array_input(&arguments.arrays[*i])?,
            value => Input::new(to_value(value, &arguments.arrays)?),
        };
        inputs.push(match all {
            true => input,
            false => Input::from((name.as_str(), input)),
        });
    }
    Ok(inputs)
}

fn array_input(array: &Array) -> Result<Input<'_>, LayoutError> {
    Ok(match array.dtype {
        DType::B8 if !are_bools_clean(array) => bools(array)?.into(),
        _ => view(array)?.into(),
    })
}

/// A value with copies of its arrays as tensors.
pub(crate) fn to_value(value: &Val<usize>, arrays: &[Array]) -> Result<Val<Tensor>, LayoutError> {
    value.try_map(&mut |&i| to_tensor(&arrays[i]).map(Val::Leaf))
}

/// A tensor with a copy of an array's elements.
pub(crate) fn to_tensor(array: &Array) -> Result<Tensor, LayoutError> {
    Ok(match array.dtype {
        DType::B8 => bools(array)?,
        _ => view(array)?.to_tensor(),
    })
}

/// An array's memory.
fn view(array: &Array) -> Result<View<'_>, LayoutError> {
    // SAFETY: the shape and strides are the array's, and its owner keeps the memory alive. A write from another
    // thread during the call is a race with the library that owns the memory as well.
    unsafe { View::from_raw_parts(array.dtype, &array.shape, array.strides.as_deref(), array.data) }
}

/// Normalises bools to 0 and 1: numpy can view any bytes as bools.
fn bools(array: &Array) -> Result<Tensor, LayoutError> {
    // SAFETY: as in `view`; bytes have any value.
    let bytes = unsafe { View::from_raw_parts(DType::U8, &array.shape, array.strides.as_deref(), array.data) }?;
    let bytes = bytes.to_tensor();
    let truths: Vec<bool> = bytes.as_slice::<u8>().iter().map(|&b| b != 0).collect();
    Ok(View::from_bools(&array.shape, &truths)?.to_tensor())
}

/// Whether an array of bools has no gaps, and all its bytes are 0 or 1.
fn are_bools_clean(array: &Array) -> bool {
    if array.strides.as_deref().is_some_and(|s| !is_row_major(&array.shape, s)) {
        return false;
    }
    let count = array.shape.iter().product();
    if count == 0 {
        return true;
    }
    // SAFETY: the array is row-major without gaps, and its owner keeps the memory alive.
    let bytes = unsafe { std::slice::from_raw_parts(array.data, count) };
    bytes.iter().fold(0, |all, b| all | b) <= 1
}

/// Whether elements with these strides are in row-major order without gaps.
fn is_row_major(shape: &[usize], strides: &[isize]) -> bool {
    let mut next = 1;
    shape.iter().zip(strides).rev().all(|(&n, &stride)| {
        let fits = n == 1 || stride == next;
        next = next.saturating_mul(n as isize);
        fits
    })
}
