//! Memory layout of elements: sizes, strides, and errors about them.

use super::byte_len;
use crate::types::DType;
use std::fmt;

/// Why memory cannot hold a tensor of the requested shape.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// The size in bytes does not fit the address space.
    TooLarge(DType, Vec<usize>),
    /// The shape and the memory differ in their number of elements.
    ElementCount {
        /// The shape.
        shape: Vec<usize>,
        /// The number of elements of the memory.
        given: usize,
    },
    /// The number of strides differs from the rank.
    StrideCount {
        /// The rank.
        rank: usize,
        /// The number of strides.
        strides: usize,
    },
    /// An element would be outside of the memory.
    OutOfBounds {
        /// The shape.
        shape: Vec<usize>,
        /// The strides, in elements.
        strides: Vec<isize>,
        /// The number of elements of the memory.
        given: usize,
    },
    /// The memory does not start at a multiple of the element's size.
    Unaligned(DType),
    /// The elements do not have the requested dtype.
    WrongDtype {
        /// The tensor's dtype.
        is: DType,
        /// The requested dtype.
        asked: DType,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::TooLarge(dtype, shape) => write!(f, "{dtype}{shape:?} exceeds the address space"),
            LayoutError::ElementCount { shape, given } => {
                write!(f, "a tensor of shape {shape:?} cannot have {given} elements")
            }
            LayoutError::StrideCount { rank, strides } => {
                write!(f, "{strides} strides were given for {rank} dimensions")
            }
            LayoutError::OutOfBounds { shape, strides, given } => {
                write!(f, "shape {shape:?} with strides {strides:?} exceeds {given} elements")
            }
            LayoutError::Unaligned(dtype) => write!(f, "the memory is not aligned to elements of {dtype}"),
            LayoutError::WrongDtype { is, asked } => write!(f, "the elements are {is}, not {asked}"),
        }
    }
}

impl std::error::Error for LayoutError {}

pub(super) fn check_count(dtype: DType, shape: &[usize], given: usize) -> Result<(), LayoutError> {
    if byte_len(dtype, shape).is_none() {
        return Err(LayoutError::TooLarge(dtype, shape.to_vec()));
    }
    if shape.iter().product::<usize>() != given {
        return Err(LayoutError::ElementCount {
            shape: shape.to_vec(),
            given,
        });
    }
    Ok(())
}

/// The offset of the last element, in elements; `None` if it overflows.
pub(super) fn last_element(dtype: DType, shape: &[usize], strides: &[isize]) -> Result<Option<usize>, LayoutError> {
    if strides.len() != shape.len() {
        return Err(LayoutError::StrideCount {
            rank: shape.len(),
            strides: strides.len(),
        });
    }
    if byte_len(dtype, shape).is_none() {
        return Err(LayoutError::TooLarge(dtype, shape.to_vec()));
    }
    let mut steps = shape.iter().zip(strides);
    Ok(steps.try_fold(0usize, |at, (&n, &s)| {
        at.checked_add(n.saturating_sub(1).checked_mul(s.unsigned_abs())?)
    }))
}

/// Whether elements with these strides are row-major without gaps. The stride of a dimension of size 1 does not matter.
pub(super) fn is_row_major(shape: &[usize], strides: &[isize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut wanted = 1usize;
    for (&n, &s) in shape.iter().zip(strides).rev() {
        if n != 1 && s != wanted as isize {
            return false;
        }
        wanted = wanted.saturating_mul(n);
    }
    true
}
