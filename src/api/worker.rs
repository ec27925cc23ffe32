//! The resources for one call at a time: the code for the sizes so far, memory and threads.

use super::error::Error;
use super::input::{Input, TensorRef};
use super::model::Model;
use super::options::Options;
use super::output::Outputs;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::driver::{self, BoundInputs, CallResult, Function, bind};
use crate::graph::GraphModule;
use crate::tensor::{StridedCopies, Tensor, ViewMut};
use crate::types::Type;
use smallvec::SmallVec;

/// The names of the entry graph's inputs, in order.
pub(super) fn input_names(module: &GraphModule) -> Vec<String> {
    let Some(graph) = module.entry() else { return vec![] };
    let placeholders = graph.placeholders().into_iter();
    placeholders.map(|n| graph[n].target().to_string()).collect()
}

/// A model's code with memory for one call at a time.
pub(super) struct ModelWorker {
    session: driver::Session,
    pub(super) function: Function,
    options: Options,
    /// The names of the inputs, in order.
    names: Vec<String>,
    /// Copies of inputs that the code cannot read in place.
    copies: StridedCopies,
}

impl ModelWorker {
    pub(super) fn new(model: &Model, options: &Options) -> ModelWorker {
        let mut session = driver::Session::new();
        session.sources = model.sources.clone();
        session.exact = options.exact;
        session.precision = options.precision;
        session.cancel = options.cancel.clone();
        session.no_fallback = options.no_fallback;
        session.cache = options.cache.clone();
        session.target = options.targets.last().copied();
        let loaded = model.graphs.to_loaded(&model.name);
        ModelWorker {
            names: input_names(model.graphs.inputs()),
            session,
            copies: StridedCopies::default(),
            function: Function::new(loaded, options.to_request()),
            options: options.clone(),
        }
    }

    /// Generates the code if all sizes are known before a call; else checks the graph with its declared types.
    pub(super) fn prepare(&mut self, bound: BoundInputs) -> Result<(), Error> {
        let types = &bound.types;
        let is_fixed = |t: &&Type| match t {
            Type::Leaf(t) => t.fixed_shape().is_some(),
            Type::Unknown | Type::Any(_) => false,
            _ => true,
        };
        let done = if types.iter().flat_map(|t| t.flatten()).all(|t| is_fixed(&t)) {
            self.function.prepare(&mut self.session, &bound)
        } else if self.function.is_compiled_before() {
            Ok(())
        } else {
            let mut module = self.function.module().clone();
            self.session.check(&mut module, types)
        };
        done.map_err(|driver::Reported| self.take_error())
    }

    /// Whether there are diagnostics since the last call.
    pub(super) fn has_findings(&self) -> bool {
        !self.session.diagnostics.is_empty()
    }

    /// The diagnostics since the last call.
    pub(super) fn take_findings(&mut self) -> Diagnostics {
        std::mem::take(&mut self.session.diagnostics)
    }

    /// Stores new code in the cache after its first successful call.
    pub(super) fn write_cache(&mut self) {
        if !self.session.pending.is_empty() {
            driver::write_in_background(std::mem::take(&mut self.session.pending));
        }
    }

    fn take_error(&mut self) -> Error {
        Error::new(self.take_findings(), &self.session.sources)
    }

    fn bind_inputs(&mut self, inputs: &[Input<'_>]) -> Result<BoundInputs, Error> {
        let count = self.names.len();
        let mut names = self.names.iter().cloned();
        let given: Option<Vec<_>> = inputs.iter().map(|i| i.to_provided(&mut names)).collect();
        let Some(given) = given else {
            let title = format!("the model takes {count} inputs, but more positional inputs were given");
            self.session.report(Diagnostic::new(Code::E0501, title));
            return Err(self.take_error());
        };
        let (bound, found) = bind::bind_inputs(self.function.module(), given, self.options.dims.clone());
        self.session.diagnostics.extend(found);
        bound.ok_or_else(|| self.take_error())
    }

    /// Generates the code for a call with these inputs, unless there is some.
    pub(super) fn prepare_call(&mut self, inputs: &[Input<'_>]) -> Result<(), Error> {
        let copies = self.copies.update(inputs.iter().map(Input::as_view));
        let tensors = dense_tensors(inputs, copies, &self.names);
        if tensors.is_some_and(|tensors| self.function.has_direct(&tensors)) {
            return Ok(());
        }
        let bound = self.bind_inputs(inputs)?;
        let done = self.function.prepare(&mut self.session, &bound);
        done.map_err(|driver::Reported| self.take_error())
    }

    /// Calls the model. Its buffers keep their new values.
    pub(super) fn run(&mut self, inputs: &[Input<'_>]) -> Result<Outputs, Error> {
        let copies = self.copies.update(inputs.iter().map(Input::as_view));
        let tensors = dense_tensors(inputs, copies, &self.names);
        let direct = tensors.and_then(|tensors| self.function.call_direct(&mut self.session, &tensors));
        let called = match direct {
            Some(called) => called,
            None => {
                let bound = self.bind_inputs(inputs)?;
                self.function.call(&mut self.session, &bound)
            }
        };
        match called {
            Ok(CallResult { result, written }) => Ok(Outputs::new(result, written)),
            Err(driver::Reported) => Err(self.take_error()),
        }
    }

    /// [`ModelWorker::run`] that writes the result's tensors to the caller's memory.
    pub(super) fn run_into(&mut self, inputs: &[Input<'_>], outputs: &mut [ViewMut<'_>]) -> Result<(), Error> {
        let copies = self.copies.update(inputs.iter().map(Input::as_view));
        let tensors = dense_tensors(inputs, copies, &self.names);
        let direct = tensors.and_then(|tensors| self.function.call_direct_into(&mut self.session, &tensors, outputs));
        match direct {
            Some(Ok(())) => Ok(()),
            Some(Err(driver::Reported)) => Err(self.take_error()),
            None => self.run_and_copy(inputs, outputs),
        }
    }

    fn run_and_copy(&mut self, inputs: &[Input<'_>], outputs: &mut [ViewMut<'_>]) -> Result<(), Error> {
        let before = self.function.state().clone();
        let results = self.run(inputs)?;
        results.copy_into(outputs).map_err(|d| {
            // A call that fails changes nothing.
            self.function.restore_state(&before);
            self.session.report(d);
            self.take_error()
        })
    }
}

/// The inputs in the model's order as dense tensors, if all of them are tensors and each is given once.
fn dense_tensors<'a>(
    inputs: &'a [Input<'_>],
    copies: &'a [Option<Tensor>],
    names: &[String],
) -> Option<SmallVec<[TensorRef<'a>; 4]>> {
    if inputs.len() != names.len() {
        return None;
    }
    let mut places: SmallVec<[Option<TensorRef<'a>>; 4]> = SmallVec::from_elem(None, names.len());
    let mut next = 0;
    for (i, input) in inputs.iter().enumerate() {
        let place = match input.name() {
            Some(name) => names.iter().position(|n| n == name)?,
            None => next,
        };
        next += usize::from(input.name().is_none());
        let tensor = match copies.get(i) {
            Some(Some(t)) => TensorRef::Tensor(t),
            _ => input.as_tensor()?,
        };
        if places[place].replace(tensor).is_some() {
            return None;
        }
    }
    places.into_iter().collect()
}
