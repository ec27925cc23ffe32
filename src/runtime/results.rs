//! The results of a run, in the executable's memory or the caller's.

use super::executable::{Executable, RunError};
use super::input::RunInput;
use crate::diag::words;
use crate::diag::{Code, Diagnostic};
use crate::program::{BufferId, BufferPlace, Program};
use crate::tensor::{Tensor, View, ViewMut};
use crate::types::{DType, TensorType, Val};

impl Executable {
    /// Runs and writes the results (flattened, without the new values of buffers) to the caller's memory. After the
    /// first call only library calls allocate.
    pub fn run_into<I: RunInput>(&mut self, inputs: &[I], targets: &mut [ViewMut<'_>]) -> Result<(), RunError> {
        let types = self
            .user_results()
            .iter()
            .map(|(b, shape)| (self.program.buffers[b.0].dtype, &shape[..]));
        check_result_memory(types, targets)?;
        self.lend_memory(targets);
        let done = self.run_steps(inputs);
        if done.is_ok() {
            for ((b, shape), target) in self.user_results().iter().zip(targets) {
                // The result is an input, a constant or the new value of a buffer, or it is returned twice.
                if !self.is_lent(*b, target) {
                    target.fill_from(&self.result_tensor(*b, shape, inputs));
                }
            }
            self.keep_buffer_values(inputs);
        }
        // Also after an error: the memory is lent for one run.
        self.lent.fill(std::ptr::null_mut());
        done
    }

    /// The results, flattened, without the leading new values of buffers and inputs.
    fn user_results(&self) -> &[(BufferId, Vec<usize>)] {
        self.result_leaves
            .get(self.program.mutations.len()..)
            .unwrap_or_default()
    }

    /// Lets steps write directly to the caller's memory those results that are allocated for each run and are not
    /// also the new value of a buffer.
    fn lend_memory(&mut self, targets: &mut [ViewMut<'_>]) {
        let (mutated, results) = self
            .result_leaves
            .split_at(self.program.mutations.len().min(self.result_leaves.len()));
        for ((b, _), target) in results.iter().zip(targets) {
            if let BufferPlace::Output(n) = self.program.buffers[b.0].place
                && self.lent[n].is_null()
                && !mutated.iter().any(|(m, _)| m == b)
            {
                self.lent[n] = target.address();
            }
        }
    }

    /// Whether the steps have written the buffer to the target directly.
    fn is_lent(&self, b: BufferId, target: &mut ViewMut<'_>) -> bool {
        matches!(self.program.buffers[b.0].place, BufferPlace::Output(n) if self.lent[n] == target.address())
    }

    /// The results in their structure. The results after the new values of buffers share no memory with the model and
    /// its state, because callers may write to them.
    pub(super) fn collect_output<I: RunInput>(&self, inputs: &[I]) -> Val<Tensor> {
        let output = self.program.output.as_ref().expect("lowering sets the output");
        let mut copied = self.kept_results.iter();
        output.map(|(b, shape)| {
            let t = self.result_tensor(*b, shape, inputs);
            if copied.next() == Some(&true) { t.deep_copy() } else { t }
        })
    }

    /// The content of a buffer that is returned.
    pub(super) fn result_tensor<I: RunInput>(&self, b: BufferId, shape: &[usize], inputs: &[I]) -> Tensor {
        match &self.program.buffers[b.0].place {
            BufferPlace::Input(n) => {
                let input = &self.program.inputs[*n];
                let t = match input.state {
                    Some(_) => self.state.get(&input.name).cloned(),
                    None => self.tensor_inputs[*n].map(|i| inputs[i].keep()),
                };
                t.expect("a tensor input").reshape(shape)
            }
            BufferPlace::Constant(t) => t.reshape(shape),
            BufferPlace::Output(n) if !self.lent[*n].is_null() => {
                // SAFETY: the caller lent memory for the buffer, and this run has written it.
                let view = unsafe { View::from_raw_parts(self.program.buffers[b.0].dtype, shape, None, self.lent[*n]) };
                view.expect("the buffer's size was checked").to_tensor()
            }
            BufferPlace::Output(n) => self.results[*n].reshape(shape),
            BufferPlace::Arena(_) | BufferPlace::Pieces => unreachable!("results are placed as outputs"),
        }
    }
}

/// Returns an error if the caller's memory does not have the types of the results.
pub(crate) fn check_result_memory<'a>(
    results: impl ExactSizeIterator<Item = (DType, &'a [usize])>,
    targets: &[ViewMut<'_>],
) -> Result<(), RunError> {
    if results.len() != targets.len() {
        let (expected, actual) = (words::count(results.len(), "result"), targets.len());
        let title = format!("the model has {expected}, but memory was given for {actual}");
        return Err(Box::new(Diagnostic::new(Code::E0504, title)));
    }
    for (i, ((dtype, shape), target)) in results.zip(targets).enumerate() {
        if dtype != target.dtype() || shape != target.shape() {
            let code = if dtype == target.dtype() {
                Code::E0504
            } else {
                Code::E0503
            };
            let is = TensorType::with_fixed_shape(dtype, shape);
            let title = format!("result {i} is {is}, but the memory for it is {}", target.ty());
            return Err(Box::new(Diagnostic::new(code, title)));
        }
    }
    Ok(())
}

/// The results of a program, flattened.
pub(super) fn result_leaves(program: &Program) -> Vec<(BufferId, Vec<usize>)> {
    let output = program.output.iter();
    output.flat_map(Val::leaves).cloned().collect()
}

/// For each result, whether it would share memory with the model: a constant, or the value of a buffer.
pub(super) fn kept_results(program: &Program, leaves: &[(BufferId, Vec<usize>)]) -> Vec<bool> {
    let (values, results) = leaves.split_at(program.mutations.len().min(leaves.len()));
    let outlives_call = |b: &BufferId| match &program.buffers[b.0].place {
        BufferPlace::Input(n) => program.inputs[*n].state.is_some(),
        BufferPlace::Constant(_) => true,
        _ => values.iter().any(|(v, _)| v == b),
    };
    let results = results.iter().map(|(b, _)| outlives_call(b));
    values.iter().map(|_| false).chain(results).collect()
}

/// Memory for the results that are allocated for each run.
pub(super) fn result_memory(program: &Program) -> Vec<Tensor> {
    let mut results = vec![None; program.outputs];
    for b in &program.buffers {
        if let BufferPlace::Output(n) = b.place {
            results[n] = Some(Tensor::zeros(b.dtype, &b.shape));
        }
    }
    results
        .into_iter()
        .map(|r| r.expect("every output has a buffer"))
        .collect()
}
