//! A compiled model.

use super::error::Error;
use super::input::Input;
use super::model::Model;
use super::options::Options;
use super::output::Outputs;
use super::session::Session;
use super::worker::Worker;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A model's code. A clone refers to the same code; calls may run at the same time on several threads.
///
/// A call does not change the model: buffers that it writes (the statistics of a batch normalisation in training, a cache of
/// keys) have their first values again in the next. [`Compiled::session`] gives a model that remembers them.
#[derive(Clone)]
pub struct Compiled(Arc<Shared>);

pub(super) struct Shared {
    model: Model,
    options: Options,
    /// Those that no call uses now. Each has its own memory for intermediate values; code for the same kernels and packed weights
    /// are shared.
    idle: Mutex<Vec<Worker>>,
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Vec<Worker>> {
        // Nothing that may panic is done with the lock held, so the list is whole.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// One that no call uses, or a new one.
    pub(super) fn worker(&self) -> Worker {
        let idle = self.idle().pop();
        idle.unwrap_or_else(|| Worker::new(&self.model, &self.options))
    }

    /// Takes back a worker for later calls, with the buffers' first values.
    pub(super) fn give_back(&self, mut worker: Worker) {
        worker.function.reset();
        worker.take_findings();
        self.idle().push(worker);
    }
}

impl Compiled {
    pub(super) fn new(model: Model, options: Options) -> Result<Compiled, Error> {
        let mut worker = Worker::new(&model, &options);
        worker.prepare()?;
        Ok(Compiled(Arc::new(Shared {
            model,
            options,
            idle: Mutex::new(vec![worker]),
        })))
    }

    /// Calls the model. Tensors are given by position or by name; sizes that the model leaves open may differ from call to call, and
    /// a first call with new sizes compiles for them.
    pub fn run(&self, inputs: impl IntoIterator<Item = Input>) -> Result<Outputs, Error> {
        let mut worker = self.0.worker();
        let result = worker.run(inputs);
        self.0.give_back(worker);
        result
    }

    /// The compiled model with a memory of its own for what calls change.
    pub fn session(&self) -> Session {
        Session::new(self.0.clone())
    }

    /// The model it was made from.
    pub fn model(&self) -> &Model {
        self.0.model()
    }
}
