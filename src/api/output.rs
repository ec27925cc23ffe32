//! What a call gives.

use crate::diag::Diagnostic;
use crate::driver::Value;
use crate::runtime::check_result_memory;
use crate::tensor::{Tensor, ViewMut};
use crate::types::Mutation;
use std::ops::Index;

/// The results of a call: tensors, in the structure that the model returns (a tuple, a dict, …).
///
/// The tensors own their memory: later calls do not change them.
#[derive(Clone, Debug)]
pub struct Outputs {
    value: Value,
    written: Vec<(Mutation, Tensor)>,
}

impl Outputs {
    pub(super) fn new(value: Value, written: Vec<(Mutation, Tensor)>) -> Outputs {
        Outputs { value, written }
    }

    /// Copies the tensors to memory of the caller's, if that is of their types.
    pub(super) fn copy_into(&self, targets: &mut [ViewMut<'_>]) -> Result<(), Diagnostic> {
        let tensors = self.tensors();
        let types = tensors.iter().map(|t| (t.dtype(), t.shape()));
        check_result_memory(types, targets).map_err(|d| *d)?;
        tensors
            .into_iter()
            .zip(targets)
            .for_each(|(t, target)| target.fill_from(t));
        Ok(())
    }

    /// The inputs that the call changes in place, by name, with their new values: the memory of an input itself is only read.
    pub fn changed_inputs(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.written.iter().filter_map(|(m, t)| match m {
            Mutation::Input(name) => Some((&**name, t)),
            _ => None,
        })
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
