//! Tensors as lines along one dim, for routines that are not reductions: positions of extrema, scans, medians.

use crate::tensor::Tensor;
use crate::types::DType;

/// A tensor's elements as f64 or i64. Each dtype uses the one that represents all its values exactly.
pub(super) enum WideValues {
    Float(Vec<f64>),
    Int(Vec<i64>),
}

impl WideValues {
    pub(super) fn from_tensor(t: &Tensor) -> WideValues {
        match t.dtype() {
            d if d.is_float() => WideValues::Float(t.to(DType::F64).as_slice::<f64>().to_vec()),
            _ => WideValues::Int(t.to(DType::I64).as_slice::<i64>().to_vec()),
        }
    }
}

/// A tensor of `dtype` from these numbers, converted as torch casts.
pub(super) fn tensor_of(dtype: DType, shape: &[usize], values: &WideValues) -> Tensor {
    match values {
        WideValues::Float(v) => Tensor::from_slice(shape, v).to(dtype),
        WideValues::Int(v) => Tensor::from_slice(shape, v).to(dtype),
    }
}

/// The lines of a shape along one dim: element `k` of line `(o, i)` is at `(o * len + k) * inner + i`.
pub(super) struct DimLines {
    pub outer: usize,
    pub len: usize,
    pub inner: usize,
}

impl DimLines {
    /// The lines along `dim`. A 0-dim shape is one line of one element.
    pub(super) fn new(shape: &[usize], dim: usize) -> DimLines {
        DimLines {
            outer: shape.iter().take(dim).product(),
            len: shape.get(dim).copied().unwrap_or(1),
            inner: shape.iter().skip(dim + 1).product(),
        }
    }
}
