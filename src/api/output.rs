//! What a call gives.

use crate::driver::Value;
use crate::tensor::Tensor;
use std::ops::Index;

/// The results of a call: tensors, in the structure that the model returns (a tuple, a dict, …).
///
/// The tensors own their memory: later calls do not change them.
#[derive(Clone, Debug)]
pub struct Outputs {
    value: Value,
}

impl Outputs {
    pub(super) fn new(value: Value) -> Outputs {
        Outputs { value }
    }

    /// The results as the model structures them.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The results as the model structures them.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// The tensors of the results, in the order of a flattened structure.
    pub fn tensors(&self) -> Vec<&Tensor> {
        self.value.leaves()
    }

    /// The number `i` of [`Outputs::tensors`], if there are so many.
    pub fn get(&self, i: usize) -> Option<&Tensor> {
        self.value.leaves().get(i).copied()
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.value.leaves().len()
    }

    /// Whether there are no tensors among the results.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The number `i` of [`Outputs::tensors`]. Panics if there are not so many, see [`Outputs::get`].
impl Index<usize> for Outputs {
    type Output = Tensor;

    fn index(&self, i: usize) -> &Tensor {
        self.value.leaves()[i]
    }
}
