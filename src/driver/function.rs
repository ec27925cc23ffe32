//! A model to be called again and again, at any sizes.

use super::call_result::{CallResult, returns_tuple, split_results};
use super::code_source::CodeSource;
use super::compile::{Request, compile};
use super::direct::DirectInputs;
use super::inputs::bind::BoundInputs;
use super::inputs::state;
use super::load::LoadedModel;
use super::ready::{BufferState, Ready};
use super::session::{Reported, Session, Staged};
use super::stage::Stage;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Attribute, GraphModule, Mutation};
use crate::interp::Interpreter;
use crate::runtime::Executable;
use crate::source::Sources;
use crate::tensor::Tensor;
use crate::types::{TensorType, Type};
use std::collections::HashMap;
use std::sync::Arc;

/// How many combinations of sizes stay compiled; the one that was called least recently goes.
const KEPT: usize = 16;

/// A model with the code for the sizes it was called with.
///
/// The passes run once, on symbolic sizes. Sizes become constants of the plans, which is what loops and memory are best made for; so
/// the first call with new sizes lowers for them, and later calls find that again. Folded and packed weights, and the code of
/// kernels that differ only in how far their outer loop goes, are shared by all sizes: another batch size costs
/// milliseconds. Buffers that calls
/// change (the statistics of a batch normalisation in training, a cache of keys) keep their values from call to call, also
/// from one size to another. Ranges and equations of sizes are checked when inputs are bound
/// ([`bind::bind`](super::inputs::bind::bind_inputs)).
///
/// Where sizes depend on values (`nonzero`, `item`), the operations before these are compiled and the others interpreted;
/// this is reported once ([`Code::L0003`](crate::diag::Code)).
pub struct Function {
    name: String,
    module: GraphModule,
    /// Where versions may be that were compiled before.
    code: Option<Arc<CodeSource>>,
    /// Whether the module has all of the model, and not its inputs alone.
    whole: bool,
    request: Request,
    pub(super) state: BufferState,
    /// Attributes whose values [`Function::set_state`] has replaced in the module, as they were.
    replaced: HashMap<Arc<str>, Option<Attribute>>,
    general: SymbolicModule,
    /// The one called last is at the end.
    pub(super) versions: Vec<Version>,
    /// The version whose executable has the present state.
    pub(super) state_of: Option<u64>,
    /// How many versions were made.
    made: u64,
    /// Whether compilations reported something.
    noted: bool,
}

/// The code for one combination of input types.
pub(super) struct Version {
    /// Tells versions of one function apart.
    pub(super) id: u64,
    inputs: Vec<Type>,
    /// How tensors become the executable's inputs, if the model takes only tensors and all of it is compiled.
    pub(super) direct: Option<DirectInputs>,
    /// The optimised module, whose sizes are fixed.
    pub(super) module: GraphModule,
    pub(super) ready: Ready,
}

/// The module as the passes leave it while sizes are symbols.
enum SymbolicModule {
    /// Not made yet.
    Later,
    /// There are no symbols, or the passes need sizes.
    None,
    Made(Box<GraphModule>),
}

impl Function {
    /// A function of a loaded model. Of `request`, the threads and the passes' options count.
    pub fn new(model: LoadedModel, request: Request) -> Function {
        Function {
            name: model.name,
            module: model.module,
            whole: !model.partial,
            code: model.code,
            request,
            state: BufferState::new(),
            replaced: HashMap::new(),
            general: SymbolicModule::Later,
            versions: vec![],
            state_of: None,
            made: 0,
            noted: false,
        }
    }

    /// The model's graphs, as they were read.
    pub fn module(&self) -> &GraphModule {
        &self.module
    }

    /// Whether the model was compiled before, and only its inputs were read: it was checked then.
    pub fn is_compiled_before(&self) -> bool {
        !self.whole
    }

    /// How many combinations of sizes are compiled.
    pub fn compiled_count(&self) -> usize {
        self.versions.len()
    }

    /// The values of the buffers that calls have changed, by path.
    pub fn state(&self) -> &BufferState {
        &self.state
    }

    /// Gives a buffer the value that the next call finds. Code holds the values of buffers that calls only read: with another value,
    /// the next call compiles again.
    pub fn set_state(&mut self, path: &str, value: Tensor) {
        if !self.changes_buffer(path) {
            self.complete_module();
            let first = self.module.attributes.get(path).cloned();
            self.replaced.entry(path.into()).or_insert(first);
            state::set_attribute(&mut self.module, path, value.clone());
            self.forget_code();
        }
        self.state.insert(path.into(), value);
        self.state_of = None;
    }

    /// Gives the buffers that calls have changed the values of `before`, or their first ones.
    pub fn restore_state(&mut self, before: &BufferState) {
        for (path, value) in &mut self.state {
            let first = || self.module.attributes.get(path)?.value.clone();
            if let Some(v) = before.get(path).cloned().or_else(first) {
                *value = v;
            }
        }
        self.state_of = None;
    }

    /// Whether calls are known to change the buffer, so that their code takes its value as an input.
    fn changes_buffer(&self, path: &str) -> bool {
        let graph = self.versions.last().and_then(|v| v.module.entry());
        graph.is_some_and(|g| g.writes_buffer(path))
    }

    /// Reads the graphs of a compiled model, if that was not done. Of a file whose graphs cannot be read the module keeps the inputs: calls
    /// that need more say what is wrong.
    fn complete_module(&mut self) {
        if let (false, Some(code)) = (self.whole, &self.code)
            && let Ok(module) = code.read_module(&mut Sources::new())
        {
            self.module = module;
            self.whole = true;
        }
    }

    /// What the last call's version runs, if all of it is compiled.
    pub(super) fn whole_executable(&self) -> Option<&Executable> {
        self.versions.last()?.ready.whole_executable()
    }

    fn forget_code(&mut self) {
        self.general = SymbolicModule::Later;
        self.versions.clear();
    }

    /// Gives all buffers the values again that the model was read with.
    pub fn reset(&mut self) {
        if !self.replaced.is_empty() {
            self.forget_code();
        }
        for (path, first) in self.replaced.drain() {
            match first {
                Some(a) => drop(self.module.attributes.insert(path, a)),
                None => drop(self.module.attributes.shift_remove(&path)),
            }
        }
        if self.state.is_empty() {
            return;
        }
        self.state_of = None;
        let module = &self.module;
        self.state.retain(|path, value| {
            let first = module.attributes.get(path).and_then(|a| a.value.clone());
            first.map(|t| *value = t).is_some()
        });
    }

    /// Compiles for the inputs of one call, unless this is done: a later call with the same sizes only runs. What goes wrong is
    /// reported to the session.
    pub fn prepare(&mut self, session: &mut Session, bound: &BoundInputs) -> Staged<()> {
        let index = self.versions.iter().position(|v| v.inputs == bound.types);
        let version = match index {
            Some(i) => self.versions.remove(i),
            None => self.compiled_for(session, bound)?,
        };
        self.versions.push(version);
        if self.versions.len() > KEPT {
            self.versions.remove(0);
        }
        Ok(())
    }

    /// Calls the model; what goes wrong is reported to the session.
    pub fn call(&mut self, session: &mut Session, bound: &BoundInputs) -> Staged<CallResult> {
        self.prepare(session, bound)?;
        let version = self.versions.last_mut().ok_or(Reported)?;
        let result = version.ready.run(&version.module, bound, &self.state);
        let is_tuple = returns_tuple(&self.module);
        let is_compiled = version.ready.whole_executable().is_some();
        let called = result.map(|v| split_results(&version.module, v, is_tuple).detach(is_compiled));
        self.state_of = Some(version.id);
        match called {
            Ok(called) => {
                self.keep_written(&called);
                Ok(called)
            }
            Err(d) => {
                session.report(self.locate_finding(d, bound));
                Err(Reported)
            }
        }
    }

    /// Keeps the new values of buffers for the next call.
    pub(super) fn keep_written(&mut self, called: &CallResult) {
        for (m, t) in &called.written {
            if let Mutation::Buffer(path) = m {
                self.state.insert(path.clone(), t.clone());
            }
        }
    }

    /// Kernels know that an index is out of range, but not whose: the interpreter names the node, its place and the types.
    pub(super) fn locate_finding(&self, finding: Diagnostic, bound: &BoundInputs) -> Diagnostic {
        if finding.code != Code::E0502 {
            return finding;
        }
        let read = match (&self.code, self.whole) {
            (Some(code), false) => code.read_module(&mut Sources::new()).ok(),
            _ => None,
        };
        let mut interpreter = Interpreter::new(read.as_ref().unwrap_or(&self.module));
        for (path, t) in &self.state {
            interpreter.set_attribute(path, t.clone());
        }
        interpreter.run(bound.values.clone()).err().unwrap_or(finding)
    }

    /// The optimised module with symbolic sizes: what the passes do is done once for all sizes, and the weights that they make are
    /// the same tensors at each.
    fn symbolic_module(&mut self, session: &mut Session) -> Option<&GraphModule> {
        if matches!(self.general, SymbolicModule::Later) {
            self.general = match optimized_for_symbols(session, &self.module, &self.request) {
                Some(m) => SymbolicModule::Made(Box::new(m)),
                None => SymbolicModule::None,
            };
        }
        match &self.general {
            SymbolicModule::Made(m) => Some(m),
            _ => None,
        }
    }

    /// The code for the inputs of one call.
    fn compiled_for(&mut self, session: &mut Session, bound: &BoundInputs) -> Staged<Version> {
        if let Some(version) = self.loaded_for(session, bound)? {
            return Ok(version);
        }
        let reported = session.diagnostics.len();
        let (module, again) = match self.symbolic_module(session) {
            Some(m) => (m.clone(), true),
            None => (self.module.clone(), false),
        };
        let request = Request {
            inputs: Some(bound.types.clone()),
            dims: bound.dims.clone(),
            until: Some(Stage::Compile),
            artifacts: vec![],
            ..self.request.clone()
        };
        let model = LoadedModel::new(self.name.clone(), module);
        let compilation = match again {
            true => session.quietly(|s| compile(s, model, &request))?,
            false => compile(session, model, &request)?,
        };
        let ready = compilation.ready.ok_or(Reported)?;
        self.noted |= session.diagnostics.len() > reported;
        self.keep(session, &ready, &bound.types);
        Ok(self.new_version(bound, compilation.module, ready))
    }

    /// Tells the cache of new code, unless something is to be said at each start, or the code has values that the model has not.
    fn keep(&self, session: &mut Session, ready: &Ready, types: &[Type]) {
        if let Some(code) = self.code.as_ref().filter(|_| !self.noted && self.replaced.is_empty()) {
            code.keep(session, ready.whole_executable(), (types, &self.request.passes));
        }
    }

    fn new_version(&mut self, bound: &BoundInputs, module: GraphModule, ready: Ready) -> Version {
        self.made += 1;
        Version {
            id: self.made,
            inputs: bound.types.clone(),
            direct: DirectInputs::find(&module, &ready, &bound.types),
            module,
            ready,
        }
    }

    /// The code of a compiled model for the inputs of one call. If the file has none, all of the module is there afterwards.
    fn loaded_for(&mut self, session: &mut Session, bound: &BoundInputs) -> Staged<Option<Version>> {
        let Some(code) = self.code.clone() else { return Ok(None) };
        // Code holds the values that were replaced.
        if self.replaced.is_empty() {
            let options = (&self.request.passes, self.request.threads);
            if let Some((module, ready)) = code.load_ready(session, &self.module, &bound.types, options)? {
                for (path, a) in &module.attributes {
                    self.module.attributes.entry(path.clone()).or_insert_with(|| a.clone());
                }
                return Ok(Some(self.new_version(bound, module, ready)));
            }
        }
        if !self.whole {
            self.module = session.read_module(&code)?;
            self.whole = true;
        }
        Ok(None)
    }
}

/// The module checked and optimised as it is declared. `None` if no input has a symbolic size, or if that does not go through:
/// then whatever is wrong is said where sizes are known.
fn optimized_for_symbols(session: &mut Session, module: &GraphModule, request: &Request) -> Option<GraphModule> {
    let graph = module.entry()?;
    let declared = |n: crate::graph::NodeId| graph[n].meta.ty.as_ref();
    let symbolic = |t: &Type| {
        let dims = |t: &TensorType| t.shape.iter().flatten().any(|d| d.as_const().is_none());
        t.leaves().into_iter().any(dims)
    };
    let placeholders = graph.placeholders();
    let ranked = |t: &Type| t.leaves().iter().all(|t| t.shape.is_some());
    let all_known = placeholders.iter().all(|&n| declared(n).is_some_and(ranked));
    if !all_known || !placeholders.iter().any(|&n| declared(n).is_some_and(symbolic)) || request.passes.limit.is_some()
    {
        return None;
    }
    let mut module = module.clone();
    session.try_work(|s| {
        s.check(&mut module, &[])?;
        s.optimize(&mut module, &request.passes)
    })?;
    Some(module)
}

#[cfg(test)]
#[path = "function_tests.rs"]
mod tests;
