//! The inputs of a run: tensors, or the caller's memory.

use crate::tensor::{Tensor, View};
use crate::types::{DType, TensorType};

/// An input of a run, row-major without gaps.
pub trait RunInput {
    /// Element type.
    fn dtype(&self) -> DType;

    /// Shape.
    fn shape(&self) -> &[usize];

    /// The address of the first element, which is only read.
    fn address(&self) -> *const u8;

    /// The elements as a tensor that outlives the run.
    fn keep(&self) -> Tensor;

    /// The type.
    fn ty(&self) -> TensorType {
        TensorType::with_fixed_shape(self.dtype(), self.shape())
    }
}

impl RunInput for Tensor {
    fn dtype(&self) -> DType {
        Tensor::dtype(self)
    }

    fn shape(&self) -> &[usize] {
        Tensor::shape(self)
    }

    fn address(&self) -> *const u8 {
        self.bytes().as_ptr()
    }

    fn keep(&self) -> Tensor {
        self.clone().detach()
    }
}

/// Panics if the view is not dense; callers check this first.
impl RunInput for &View<'_> {
    fn dtype(&self) -> DType {
        View::dtype(self)
    }

    fn shape(&self) -> &[usize] {
        View::shape(self)
    }

    fn address(&self) -> *const u8 {
        self.dense_address().expect("runs are given dense views")
    }

    fn keep(&self) -> Tensor {
        self.to_tensor()
    }
}
