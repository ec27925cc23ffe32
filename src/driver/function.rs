//! A model that can be called repeatedly, with any sizes.

use super::call_result::{CallResult, returns_tuple, split_results};
use super::code_source::CodeSource;
use super::compile::Request;
use super::direct::DirectInputs;
use super::inputs::bind::BoundInputs;
use super::inputs::state;
use super::load::LoadedModel;
use super::ready::{BufferState, Ready};
use super::session::{Reported, Session, Staged};
use super::stage::Stage;
use super::symbolic::{SymbolicModule, compile_module};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Attribute, GraphModule, Mutation};
use crate::interp::Interpreter;
use crate::runtime::Executable;
use crate::source::Sources;
use crate::target::{Target, with_target};
use crate::tensor::Tensor;
use crate::types::Type;
use std::collections::HashMap;
use std::sync::Arc;

/// The maximum number of compiled size combinations, unless the caller says otherwise. The least recently used one is dropped.
const KEPT: usize = 16;

/// A model with code for the sizes that it was called with.
///
/// The passes run once, on symbolic sizes. Lowering replaces sizes by constants, which is best for loops and memory
/// plans. The first call with new sizes lowers for them, and later calls reuse the result. All sizes share folded and
/// packed weights, and the code of kernels that differ only in the extent of their outer loop, so another batch size
/// costs milliseconds. Buffers that calls update (the statistics of a batch normalisation in training, a key cache)
/// keep their values from call to call, also across sizes. Ranges and equations of sizes are checked when inputs are
/// bound ([`bind::bind`](super::inputs::bind::bind_inputs)).
///
/// If sizes depend on values (`nonzero`, `item`), the operations before the first such size are compiled and the
/// others are interpreted. This is reported once ([`Code::L0003`](crate::diag::Code)).
pub struct Function {
    name: String,
    module: GraphModule,
    /// The source of code that was compiled earlier.
    code: Option<Arc<CodeSource>>,
    /// Whether the module is complete. Otherwise it has only the inputs.
    whole: bool,
    request: Request,
    pub(super) state: BufferState,
    /// The original values of the attributes that [`Function::set_state`] has replaced in the module.
    replaced: HashMap<Arc<str>, Option<Attribute>>,
    general: SymbolicModule,
    /// The compiled versions. The most recently used one is last.
    pub(super) versions: Vec<Version>,
    /// The id of the version whose executable has the current state.
    pub(super) state_of: Option<u64>,
    /// The number of versions that were created.
    made: u64,
    /// The maximum number of versions.
    most_versions: usize,
    /// Whether a compilation reported something.
    noted: bool,
}

/// The code for one combination of input types.
pub(super) struct Version {
    /// Identifies a version of a function.
    pub(super) id: u64,
    inputs: Vec<Type>,
    /// How tensors map to the executable's inputs, if the model takes only tensors and is compiled as a whole.
    pub(super) direct: Option<DirectInputs>,
    /// The optimised module. Its sizes are fixed, or symbolic if the code was lowered from the module for all sizes.
    pub(super) module: Arc<GraphModule>,
    pub(super) ready: Ready,
}

impl Function {
    /// Creates a function for a loaded model. Only the number of threads and the pass options of `request` are used.
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
            most_versions: KEPT,
            noted: false,
        }
    }

    /// Keeps code for at most this many size combinations.
    pub(super) fn keep_versions(mut self, most: usize) -> Function {
        self.most_versions = most;
        self
    }

    /// The model's graphs, as they were read.
    pub fn module(&self) -> &GraphModule {
        &self.module
    }

    /// Whether the model was compiled earlier, so that it has been checked, and only its inputs were read.
    pub fn is_compiled_before(&self) -> bool {
        !self.whole
    }

    /// The number of compiled size combinations.
    pub fn compiled_count(&self) -> usize {
        self.versions.len()
    }

    /// The values of the buffers that calls have updated, by path.
    pub fn state(&self) -> &BufferState {
        &self.state
    }

    /// Sets the value of a buffer for the next call. Buffers that calls only read are constants of the code, so a new
    /// value makes the next call compile again.
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

    /// [`Function::state`] after a call that may have been unwound, with the buffers as they were before it.
    pub fn recover_state(&mut self) -> &BufferState {
        for version in &mut self.versions {
            if let Some(executable) = version.ready.executable_mut() {
                executable.return_state(&mut self.state);
            }
        }
        &self.state
    }

    /// Sets the buffers that calls have updated to the values in `before`, or to their initial values.
    pub fn restore_state(&mut self, before: &BufferState) {
        for (path, value) in &mut self.state {
            let first = || self.module.attributes.get(path)?.value.clone();
            if let Some(v) = before.get(path).cloned().or_else(first) {
                *value = v;
            }
        }
        self.state_of = None;
    }

    /// Whether calls are known to update the buffer. Its value is then an input of the code.
    fn changes_buffer(&self, path: &str) -> bool {
        let graph = self.versions.last().and_then(|v| v.module.entry());
        graph.is_some_and(|g| g.writes_buffer(path))
    }

    /// Reads the graphs of a compiled model, unless they have been read. If they cannot be read, the module keeps
    /// only the inputs, and calls that need the graphs report the reason.
    fn complete_module(&mut self) {
        if let (false, Some(code)) = (self.whole, &self.code)
            && let Ok(module) = code.read_module(&mut Sources::new())
        {
            self.module = module;
            self.whole = true;
        }
    }

    /// The executable of the last call's version, if the model is compiled as a whole.
    pub(super) fn whole_executable(&self) -> Option<&Executable> {
        self.versions.last()?.ready.whole_executable()
    }

    /// The bytes of the packed weights that the code of the last call reads.
    pub fn packed_bytes(&self) -> Option<usize> {
        let packed = self.whole_executable()?.packed_constants();
        Some(packed.iter().map(|p| p.bytes.bytes().len()).sum())
    }

    fn forget_code(&mut self) {
        self.general = SymbolicModule::Later;
        self.versions.clear();
    }

    /// Resets all buffers to the values in the model.
    pub fn reset(&mut self) {
        if !self.replaced.is_empty() {
            self.forget_code();
            for (path, first) in self.replaced.drain() {
                match first {
                    Some(a) => drop(self.module.attributes.insert(path, a)),
                    None => drop(self.module.attributes.shift_remove(&path)),
                }
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

    /// Compiles for the inputs of one call, unless there is a version for them. Errors are reported to the session.
    pub fn prepare(&mut self, session: &mut Session, bound: &BoundInputs) -> Staged<()> {
        let index = self.versions.iter().position(|v| v.inputs == bound.types);
        let version = match index {
            Some(i) => self.versions.remove(i),
            None => self.compiled_for(session, bound)?,
        };
        self.versions.push(version);
        if self.versions.len() > self.most_versions {
            self.versions.remove(0);
        }
        Ok(())
    }

    /// Calls the model. Errors are reported to the session.
    pub fn call(&mut self, session: &mut Session, bound: &BoundInputs) -> Staged<CallResult> {
        self.prepare(session, bound)?;
        let version = self.versions.last_mut().ok_or(Reported)?;
        // Interpreted parts are for the target too.
        let target = session.target.unwrap_or_else(Target::native);
        let result = with_target(target, || version.ready.run(&version.module, bound, &mut self.state));
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

    /// Stores the new values of buffers for the next call.
    pub(super) fn keep_written(&mut self, called: &CallResult) {
        for (m, t) in &called.written {
            if let Mutation::Buffer(path) = m {
                self.state.insert(path.clone(), t.clone());
            }
        }
    }

    /// A kernel knows that an index is out of range, but not which node it belongs to. The interpreter names the
    /// node, its location and the types.
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

    /// Compiles for the inputs of one call.
    fn compiled_for(&mut self, session: &mut Session, bound: &BoundInputs) -> Staged<Version> {
        if let Some(version) = self.loaded_for(session, bound)? {
            return Ok(version);
        }
        let reported = session.diagnostics.len();
        let request = Request {
            inputs: Some(bound.types.clone()),
            dims: bound.dims.clone(),
            until: Some(Stage::Compile),
            artifacts: vec![],
            ..self.request.clone()
        };
        if matches!(self.general, SymbolicModule::Later) {
            self.general = SymbolicModule::optimize(session, &self.module, &self.request);
        }
        let (module, ready) = match self.general.fitting(&bound.dims) {
            Some(general) => general.compile_sizes(session, &self.name, &request, bound)?,
            None => compile_module(session, &self.name, self.module.clone(), &request)?,
        };
        self.noted |= session.diagnostics.len() > reported;
        self.keep(session, &ready, &bound.types);
        Ok(self.new_version(bound, module, ready))
    }

    /// Stores new code in the cache, unless it has warnings that each process must report, or it contains replaced
    /// values.
    fn keep(&self, session: &mut Session, ready: &Ready, types: &[Type]) {
        if let Some(code) = self.code.as_ref().filter(|_| !self.noted && self.replaced.is_empty()) {
            code.keep(session, ready.whole_executable(), (types, &self.request.passes));
        }
    }

    fn new_version(&mut self, bound: &BoundInputs, module: Arc<GraphModule>, ready: Ready) -> Version {
        self.made += 1;
        Version {
            id: self.made,
            inputs: bound.types.clone(),
            direct: DirectInputs::find(&module, &ready, &bound.types, returns_tuple(self.module())),
            module,
            ready,
        }
    }

    /// Loads code from the model's source for the inputs of one call. If there is none, the whole module has been
    /// read afterwards.
    fn loaded_for(&mut self, session: &mut Session, bound: &BoundInputs) -> Staged<Option<Version>> {
        let Some(code) = self.code.clone() else { return Ok(None) };
        // The code does not have the replaced values.
        if self.replaced.is_empty() {
            let options = (&self.request.passes, self.request.threads);
            if let Some((module, ready)) = code.load_ready(session, &self.module, &bound.types, options)? {
                for (path, a) in &module.attributes {
                    self.module.attributes.entry(path.clone()).or_insert_with(|| a.clone());
                }
                return Ok(Some(self.new_version(bound, Arc::new(module), ready)));
            }
        }
        if !self.whole {
            self.module = session.read_module(&code)?;
            self.whole = true;
        }
        Ok(None)
    }
}

#[cfg(test)]
#[path = "function_tests.rs"]
mod tests;
