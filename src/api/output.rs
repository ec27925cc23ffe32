//! Results of calls.

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
        // Buffers are written in place only while nobody else holds their values.
        let written = written.into_iter().filter(|(m, _)| matches!(m, Mutation::Input(_)));
        Outputs {
            value,
            written: written.collect(),
        }
    }

    /// Copies the tensors to the caller's memory, if it has their types.
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

    /// The inputs that the call changes in place, by name, with their new values. The memory of the inputs is only read.
    pub fn changed_inputs(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.written.iter().filter_map(|(m, t)| match m {
            Mutation::Input(name) => Some((&**name, t)),
            _ => None,
        })
    }

    /// The results in the model's structure.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The results in the model's structure.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// The tensors of the results in flattened order.
    pub fn tensors(&self) -> Vec<&Tensor> {
        self.value.leaves()
    }

    /// Tensor `i` of [`Outputs::tensors`], or `None` if `i` is out of range.
    pub fn get(&self, i: usize) -> Option<&Tensor> {
        self.value.leaves().get(i).copied()
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.value.leaves().len()
    }

    /// Whether the results contain no tensors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Tensor `i` of [`Outputs::tensors`]. Panics if `i` is out of range; see [`Outputs::get`].
impl Index<usize> for Outputs {
    type Output = Tensor;

    fn index(&self, i: usize) -> &Tensor {
        self.value.leaves()[i]
    }
}
