//! A compiled model.

use super::error::Error;
use super::input::Input;
use super::model::{Model, ValueInfo};
use super::options::Options;
use super::output::Outputs;
use super::session::Session;
use super::worker::ModelWorker;
use crate::diag::{Diagnostic, Diagnostics};
use crate::driver;
use crate::tensor::ViewMut;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The inputs of a call.
pub(super) type CallInputs<'a> = SmallVec<[Input<'a>; 4]>;

/// A model's code. A clone refers to the same code; calls may run at the same time on several threads.
///
/// A call does not change the model: buffers that it writes (the statistics of a batch normalisation in training, a cache of
/// keys) have their initial values again in the next call. [`Compiled::session`] returns a session that keeps them.
#[derive(Clone)]
pub struct Compiled(Arc<CompiledInner>);

#[allow(clippy::vec_box, reason = "each call moves a worker")]
pub(super) struct CompiledInner {
    model: Model,
    options: Options,
    /// Idle workers. Each has its own memory for intermediate values; workers share machine code and packed weights.
    idle: Mutex<Vec<Box<ModelWorker>>>,
    /// The warnings of compilation so far.
    warnings: Mutex<Diagnostics>,
    /// See [`Compiled::is_quick`].
    is_quick: AtomicBool,
}

impl CompiledInner {
    #[allow(clippy::vec_box, reason = "each call moves a worker")]
    fn lock_idle(&self) -> MutexGuard<'_, Vec<Box<ModelWorker>>> {
        // Code that may panic does not run while the lock is held, so the list is consistent.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_warnings(&self) -> MutexGuard<'_, Diagnostics> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the model with a worker. Afterwards new code is stored in the cache.
    pub(super) fn run_worker<R>(
        &self,
        worker: &mut ModelWorker,
        work: impl FnOnce(&mut ModelWorker) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let result = self.with_limits(worker, work)?;
        worker.write_cache();
        Ok(result)
    }

    /// Runs a function with a worker and collects its warnings.
    pub(super) fn with_limits<R>(
        &self,
        worker: &mut ModelWorker,
        work: impl FnOnce(&mut ModelWorker) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let sources = &self.model.sources;
        let done = self.options.run_limited(sources, || Ok(work(worker)));
        let result = done.inspect_err(|_| {
            // Work that was unwound may have left the worker's memory in any state.
            let state = worker.function.recover_state().clone();
            *worker = ModelWorker::new(&self.model, &self.options);
            state
                .into_iter()
                .for_each(|(path, value)| worker.function.set_state(&path, value));
        })??;
        if worker.has_findings() {
            self.lock_warnings().extend(worker.take_findings());
        }
        Ok(result)
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// An idle worker, or a new one.
    pub(super) fn take_worker(&self) -> Box<ModelWorker> {
        let idle = self.lock_idle().pop();
        idle.unwrap_or_else(|| Box::new(ModelWorker::new(&self.model, &self.options)))
    }

    /// Returns a worker for later calls and resets its buffers to their initial values.
    pub(super) fn give_back(&self, mut worker: Box<ModelWorker>) {
        worker.function.reset();
        self.lock_idle().push(worker);
    }
}

impl Drop for CompiledInner {
    /// After this the program may exit, which ends background threads.
    fn drop(&mut self) {
        if self.options.cache.is_some() {
            driver::finish_cache_writes();
        }
    }
}

impl Compiled {
    pub(super) fn new(model: Model, options: Options) -> Result<Compiled, Error> {
        let mut worker = Box::new(ModelWorker::new(&model, &options));
        for inputs in model.inputs_to_prepare(&options)? {
            worker.prepare(inputs)?;
        }
        Ok(Compiled(Arc::new(CompiledInner {
            model,
            options,
            warnings: Mutex::new(worker.take_findings()),
            idle: Mutex::new(vec![worker]),
            is_quick: AtomicBool::new(false),
        })))
    }

    /// Calls the model. Tensors are passed by position or by name. Symbolic sizes may differ between calls; the first call with
    /// new sizes compiles for them.
    pub fn run<'a>(&self, inputs: impl IntoIterator<Item = Input<'a>>) -> Result<Outputs, Error> {
        let inputs: CallInputs = inputs.into_iter().collect();
        self.run_with(&inputs)
    }

    /// [`Compiled::run`] with inputs that the caller keeps for further calls.
    pub fn run_with(&self, inputs: &[Input<'_>]) -> Result<Outputs, Error> {
        self.with_worker(|w| w.run(inputs))
    }

    /// Calls the model and writes the result's tensors, in flattened order, to the caller's memory, which must have their types. With
    /// positional tensors and sizes from earlier calls, a call does not allocate heap memory.
    ///
    /// ```
    /// use fxc::{Model, Options, View, ViewMut};
    ///
    /// let model = Model::from_text("graph main { %x : f32[2] = placeholder x  %y = call_function torch.neg(%x)  output %y }")?;
    /// let compiled = model.compile(&Options::new())?;
    /// let (x, mut y) = ([1.0f32, -2.0], [0.0f32; 2]);
    /// compiled.run_into([View::from_slice(&[2], &x)?.into()], &mut [ViewMut::from_slice(&[2], &mut y)?])?;
    /// assert_eq!(y, [-1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_into<'a>(
        &self,
        inputs: impl IntoIterator<Item = Input<'a>>,
        outputs: &mut [ViewMut<'_>],
    ) -> Result<(), Error> {
        let inputs: CallInputs = inputs.into_iter().collect();
        self.with_worker(|w| w.run_into(&inputs, outputs))
    }

    fn with_worker<R>(&self, work: impl FnOnce(&mut ModelWorker) -> Result<R, Error>) -> Result<R, Error> {
        let mut worker = self.0.take_worker();
        let result = self.0.run_worker(&mut worker, work);
        self.0.is_quick.store(worker.function.is_quick(), Relaxed);
        self.0.give_back(worker);
        result
    }

    /// The model's inputs, in order.
    pub fn inputs(&self) -> Vec<ValueInfo> {
        self.0.model().inputs()
    }

    /// The results: see [`Model::outputs`].
    pub fn outputs(&self) -> Result<Vec<ValueInfo>, Error> {
        self.0.model().outputs()
    }

    /// Whether the last call took so little work that releasing a lock during the next one, and taking it again, would take longer.
    #[doc(hidden)]
    pub fn is_quick(&self) -> bool {
        self.0.is_quick.load(Relaxed)
    }

    /// Starts a session, which keeps the state that calls change.
    pub fn session(&self) -> Session {
        Session::new(self.0.clone())
    }

    /// The warnings of compilation so far, for example about the part of the graph that runs in the interpreter (`L0003`). A call with new
    /// sizes may add warnings.
    pub fn warnings(&self) -> Vec<Diagnostic> {
        self.0.lock_warnings().iter().cloned().collect()
    }

    /// The model that was compiled.
    pub fn model(&self) -> &Model {
        self.0.model()
    }
}
