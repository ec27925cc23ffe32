//! A compiled model with state.

use super::compiled::{CallInputs, CompiledInner};
use super::error::Error;
use super::input::Input;
use super::model::Model;
use super::output::Outputs;
use super::worker::ModelWorker;
use crate::diag::Diagnostic;
use crate::driver::state;
use crate::tensor::{Tensor, ViewMut};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A compiled model that keeps its state between calls: each call starts with the buffers that the previous one left.
pub struct Session {
    shared: Arc<CompiledInner>,
    worker: Option<Box<ModelWorker>>,
}

impl Session {
    pub(super) fn new(shared: Arc<CompiledInner>) -> Session {
        let worker = Some(shared.take_worker());
        Session { shared, worker }
    }

    /// The worker, present until the session is dropped.
    fn ensure_worker(&mut self) -> &mut ModelWorker {
        self.worker.get_or_insert_with(|| self.shared.take_worker())
    }

    /// Calls the model: see [`Compiled::run`](super::Compiled::run).
    pub fn run<'a>(&mut self, inputs: impl IntoIterator<Item = Input<'a>>) -> Result<Outputs, Error> {
        let inputs: CallInputs = inputs.into_iter().collect();
        self.run_with(&inputs)
    }

    /// [`Session::run`] with inputs that the caller keeps for further calls.
    pub fn run_with(&mut self, inputs: &[Input<'_>]) -> Result<Outputs, Error> {
        self.with_worker(|w| w.run(inputs))
    }

    /// Calls the model and writes the results to the caller's memory: see [`Compiled::run_into`](super::Compiled::run_into).
    pub fn run_into<'a>(
        &mut self,
        inputs: impl IntoIterator<Item = Input<'a>>,
        outputs: &mut [ViewMut<'_>],
    ) -> Result<(), Error> {
        let inputs: CallInputs = inputs.into_iter().collect();
        self.with_worker(|w| w.run_into(&inputs, outputs))
    }

    /// Generates the code for a call with these inputs, unless there is some.
    pub(super) fn prepare_with(&mut self, inputs: &[Input<'_>]) -> Result<(), Error> {
        let worker = self.worker.get_or_insert_with(|| self.shared.take_worker());
        self.shared.with_limits(worker, |w| w.prepare_call(inputs))
    }

    fn with_worker<R>(&mut self, work: impl FnOnce(&mut ModelWorker) -> Result<R, Error>) -> Result<R, Error> {
        let worker = self.worker.get_or_insert_with(|| self.shared.take_worker());
        self.shared.run_worker(worker, work)
    }

    /// The model.
    pub(super) fn model(&self) -> &Model {
        self.shared.model()
    }

    /// An error with the model's sources.
    pub(super) fn make_error(&self, d: Diagnostic) -> Error {
        Error::new(d.into(), self.model().sources())
    }

    /// Whether calls have changed buffers.
    pub(super) fn has_state(&self) -> bool {
        self.worker.iter().any(|w| !w.function.state().is_empty())
    }

    /// The number of positions of the caches of keys and values among the buffers that calls have changed: tensors of rank 4 whose
    /// third dim is the position.
    pub(super) fn cached_positions(&self) -> Option<usize> {
        let state = self.worker.iter().flat_map(|w| w.function.state().values());
        let caches = state.filter(|t| t.rank() == 4 && t.dtype().is_float() && t.numel() > 0);
        caches.map(|t| t.shape()[2]).min()
    }

    /// The bytes of packed weights that the last call's code reads, and of the first `positions` of the caches among the buffers.
    pub(super) fn read_bytes(&self, positions: usize) -> Option<usize> {
        let function = &self.worker.as_ref()?.function;
        let caches = function.state().values().filter(|t| t.rank() == 4 && t.numel() > 0);
        let used = |t: &Tensor| t.byte_count() / t.shape()[2] * positions.min(t.shape()[2]);
        Some(function.packed_bytes()? + caches.map(used).sum::<usize>())
    }

    /// The buffers that calls have changed or [`Session::set_state`] has set, by path.
    pub fn state(&self) -> BTreeMap<String, Tensor> {
        let state = self.worker.iter().flat_map(|w| w.function.state());
        state.map(|(path, t)| (path.to_string(), t.clone())).collect()
    }

    /// Sets a buffer's value for the next call. It must have the buffer's dtype and shape. Code contains the values of parameters and of
    /// buffers that calls only read: setting one of them makes the next call recompile.
    pub fn set_state(&mut self, path: &str, value: Tensor) -> Result<(), Error> {
        let model = self.shared.model();
        match state::accept_value(model.module(), path, value) {
            Ok(value) => {
                self.ensure_worker().function.set_state(path, value);
                Ok(())
            }
            Err(d) => Err(Error::new(d.into(), &model.sources)),
        }
    }

    /// Resets all buffers to their initial values.
    pub fn reset(&mut self) {
        self.ensure_worker().function.reset();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.shared.give_back(worker);
        }
    }
}
