//! Tensors as lines along one dim, for routines that are not reductions: positions of extrema, scans, medians.

use crate::op::OpResult;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;

/// A tensor's elements as f64 or i64. Each dtype uses the one that represents all its values exactly.
pub(super) enum WideValues {
    Float(Vec<f64>),
    Int(Vec<i64>),
}

impl WideValues {
    pub(super) fn from_tensor(t: &Tensor) -> WideValues {
        match t.dtype() {
            DType::F32 => WideValues::Float(t.as_slice::<f32>().iter().map(|&x| x as f64).collect()),
            DType::I64 => WideValues::Int(t.as_slice::<i64>().to_vec()),
            d if d.is_float() => WideValues::Float((0..t.numel()).map(|i| t.get(i).to_f64()).collect()),
            _ => WideValues::Int((0..t.numel()).map(|i| t.get(i).to_i64()).collect()),
        }
    }
}

/// A tensor of `dtype` from these numbers, converted as torch casts.
pub(super) fn tensor_of(dtype: DType, shape: &[usize], values: &WideValues) -> Tensor {
    match values {
        WideValues::Float(v) => Tensor::from_fn(dtype, shape, |i| Scalar::F64(v[i])),
        WideValues::Int(v) => Tensor::from_fn(dtype, shape, |i| Scalar::Int(DType::I64, v[i])),
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

    /// Calls `f` with the positions of each line, in the element order of a result without the dim.
    pub(super) fn for_each_line(
        &self,
        mut f: impl FnMut(&mut dyn Iterator<Item = usize>) -> OpResult<()>,
    ) -> OpResult<()> {
        for o in 0..self.outer {
            for i in 0..self.inner {
                f(&mut (0..self.len).map(|k| (o * self.len + k) * self.inner + i))?;
            }
        }
        Ok(())
    }
}
