//! A model to be called again and again, at any sizes.

use super::compile::{Request, compile};
use super::inputs::bind::{BoundInputs, Value};
use super::inputs::state;
use super::load::LoadedModel;
use super::ready::{BufferState, Ready};
use super::session::{Reported, Session, Staged};
use super::stage::Stage;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Attribute, GraphModule, Mutation};
use crate::interp::Interpreter;
use crate::tensor::Tensor;
use crate::types::{TensorType, Type, Val};
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
    request: Request,
    state: BufferState,
    /// Attributes whose values [`Function::set_state`] has replaced in the module, as they were.
    replaced: HashMap<Arc<str>, Option<Attribute>>,
    general: SymbolicModule,
    /// The one called last is at the end.
    versions: Vec<Version>,
}

/// What a call gives.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// The model's result.
    pub result: Value,
    /// The buffers and inputs that the call changed, with their new values.
    pub written: Vec<(Mutation, Tensor)>,
}

/// The code for one combination of input types.
struct Version {
    inputs: Vec<Type>,
    /// The optimised module, whose sizes are fixed.
    module: GraphModule,
    ready: Ready,
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
            request,
            state: BufferState::new(),
            replaced: HashMap::new(),
            general: SymbolicModule::Later,
            versions: vec![],
        }
    }

    /// The model's graphs, as they were read.
    pub fn module(&self) -> &GraphModule {
        &self.module
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
            let first = self.module.attributes.get(path).cloned();
            self.replaced.entry(path.into()).or_insert(first);
            state::set_attribute(&mut self.module, path, value.clone());
            self.forget_code();
        }
        self.state.insert(path.into(), value);
    }

    /// Whether calls are known to change the buffer, so that their code takes its value as an input.
    fn changes_buffer(&self, path: &str) -> bool {
        let graph = self.versions.last().and_then(|v| v.module.entry());
        graph.is_some_and(|g| g.writes_buffer(path))
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
        let module = &self.module;
        self.state.retain(|path, value| {
            let first = module.attributes.get(path).and_then(|a| a.value.clone());
            first.map(|t| *value = t).is_some()
        });
    }

    /// Compiles for the inputs of one call, unless this is done: a later call with the same sizes only runs. What goes wrong is
    /// reported to the session.
    pub fn prepare(&mut self, session: &mut Session, bound: &BoundInputs) -> Staged<()> {
        let found = self.versions.iter().position(|v| v.inputs == bound.types);
        let version = match found {
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
        let called = result.map(|v| split_results(&version.module, v, is_tuple));
        let called = called.map_err(|d| {
            session.report(self.locate_finding(d, bound));
            Reported
        })?;
        for (m, t) in &called.written {
            if let Mutation::Buffer(path) = m {
                self.state.insert(path.clone(), t.clone());
            }
        }
        Ok(called)
    }

    /// Kernels know that an index is out of range, but not whose: the interpreter names the node, its place and the types.
    fn locate_finding(&self, found: Diagnostic, bound: &BoundInputs) -> Diagnostic {
        if found.code != Code::E0502 {
            return found;
        }
        let mut interpreter = Interpreter::new(&self.module);
        for (path, t) in &self.state {
            interpreter.set_attribute(path, t.clone());
        }
        interpreter.run(bound.values.clone()).err().unwrap_or(found)
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
        let made = match again {
            true => session.quietly(|s| compile(s, model, &request))?,
            false => compile(session, model, &request)?,
        };
        Ok(Version {
            inputs: bound.types.clone(),
            module: made.module,
            ready: made.ready.ok_or(Reported)?,
        })
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

/// Whether the graph, as it was read, writes its result as a tuple.
fn returns_tuple(module: &GraphModule) -> bool {
    let output = module.entry().and_then(|g| Some(&g[g.output()?]));
    output.is_some_and(|o| matches!(o.args().first(), Some(Val::Tuple(_))))
}

/// The leading results that are new values of buffers and inputs, and the others: a tuple, or the one that the graph returns.
fn split_results(module: &GraphModule, result: Value, is_tuple: bool) -> CallResult {
    let mutations = module.entry().map_or(&[][..], |g| &g.mutations);
    match result {
        Val::Tuple(mut items) if !mutations.is_empty() && items.len() >= mutations.len() => {
            let mut rest = items.split_off(mutations.len());
            let tensors = items.into_iter().zip(mutations);
            let written = tensors.filter_map(|(v, m)| match v {
                Val::Leaf(t) => Some((m.clone(), t)),
                _ => None,
            });
            let single = if is_tuple || rest.len() != 1 { None } else { rest.pop() };
            CallResult {
                written: written.collect(),
                result: single.unwrap_or(Val::Tuple(rest)),
            }
        }
        result => CallResult {
            result,
            written: vec![],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Dims, Fill, Given, Provided, bind, fill};
    use crate::types::DType;

    fn function(session: &mut Session, text: &str) -> Function {
        let model = session
            .load_text("test", text)
            .unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
        Function::new(model, Request::default())
    }

    fn bound(f: &Function, x: &Tensor) -> BoundInputs {
        let given = Provided {
            name: "x".into(),
            given: Given::Value(Val::Leaf(x.clone())),
            origin: "the test".into(),
            must_match: true,
        };
        let (bound, found) = bind::bind_inputs(&f.module, vec![given], Dims::new());
        bound.unwrap_or_else(|| panic!("{found:?}"))
    }

    fn call(f: &mut Function, session: &mut Session, x: &Tensor) -> CallResult {
        let bound = bound(f, x);
        let called = f.call(session, &bound);
        called.unwrap_or_else(|_| panic!("{:?}", session.diagnostics))
    }

    fn arange(rows: usize) -> Tensor {
        fill::filled_tensor(DType::F32, &[rows, 2], Fill::Arange)
    }

    fn numbers(v: &Value) -> Vec<f64> {
        let leaves = v.leaves();
        let each = |t: &&Tensor| (0..t.numel()).map(|i| t.get(i).to_f64()).collect::<Vec<_>>();
        leaves.iter().flat_map(each).collect()
    }

    #[test]
    fn each_size_is_compiled_once() {
        let mut s = Session::new();
        let mut f = function(
            &mut s,
            "dim N in 1..9
            graph main {
                %x : f32[N, 2] = placeholder x
                %n = call_method size(%x, 0)
                %y = call_function torch.sum(%x, 0)
                %z = call_function operator.mul(%y, %n)
                output %z
            }",
        );
        for rows in [1, 3, 8, 3, 1] {
            let n = rows as f64;
            let want = [n * n * (n - 1.0), n * n * n];
            assert_eq!(
                numbers(&call(&mut f, &mut s, &arange(rows)).result),
                want,
                "{rows} rows"
            );
        }
        assert_eq!(f.compiled_count(), 3);
        let given = Provided {
            name: "x".into(),
            given: Given::Value(Val::Leaf(arange(10))),
            origin: "the test".into(),
            must_match: true,
        };
        let (none, found) = bind::bind_inputs(&f.module, vec![given], Dims::new());
        assert!(none.is_none() && found.iter().any(|d| d.title.contains("outside of its range 1..9")));
    }

    #[test]
    fn only_so_many_sizes_stay_compiled() {
        let mut s = Session::new();
        let text = "graph main { %x : f32[N, 2] = placeholder x  %y = call_function torch.neg(%x)  output %y }";
        let mut f = function(&mut s, text);
        for rows in 1..KEPT + 4 {
            assert_eq!(
                call(&mut f, &mut s, &arange(rows)).result.leaves()[0].shape(),
                [rows, 2]
            );
        }
        assert_eq!(f.compiled_count(), KEPT);
    }

    #[test]
    fn buffers_keep_their_values_from_call_to_call_and_size_to_size() {
        let mut s = Session::new();
        let mut f = function(
            &mut s,
            "const total : f32[2] = [0, 0]
            graph main {
                %x : f32[N, 2] = placeholder x
                %t = get_attr total
                %s = call_function torch.sum(%x, 0)
                %u = call_method add_(%t, %s)
                %y = call_function operator.add(%t, 0)
                output %y
            }",
        );
        assert_eq!(numbers(&call(&mut f, &mut s, &arange(2)).result), [2.0, 4.0]);
        assert_eq!(numbers(&call(&mut f, &mut s, &arange(2)).result), [4.0, 8.0]);
        let third = call(&mut f, &mut s, &arange(3));
        assert_eq!(numbers(&third.result), [10.0, 17.0]);
        assert_eq!(third.written[0].0, Mutation::Buffer("total".into()));
        assert_eq!(numbers(&call(&mut f, &mut s, &arange(2)).result), [12.0, 21.0]);
        f.set_state("total", Tensor::from_slice(&[2], &[0.5f32, 0.0]));
        assert_eq!(numbers(&call(&mut f, &mut s, &arange(2)).result), [2.5, 4.0]);
    }

    #[test]
    fn results_that_are_kept_stay_as_they_were() {
        let mut s = Session::new();
        let text = "const total : f32[2] = [0, 0]
            graph main {
                %x : f32[N, 2] = placeholder x
                %t = get_attr total
                %s = call_function torch.sum(%x, 0)
                %u = call_method add_(%t, %s)
                %y = call_function operator.mul(%t, 10)
                output %y
            }";
        let mut f = function(&mut s, text);
        let calls: Vec<CallResult> = (0..5).map(|_| call(&mut f, &mut s, &arange(2))).collect();
        for (i, c) in calls.iter().enumerate() {
            let n = (i + 1) as f64;
            assert_eq!(numbers(&c.result), [20.0 * n, 40.0 * n]);
            assert_eq!(c.written[0].1.get(0).to_f64(), 2.0 * n);
        }
    }

    #[test]
    fn sizes_share_code_and_weights() {
        let mut s = Session::new();
        let text = "dim N in 1..64
            const w : f32[2, 3] = [[1, 2, 3], [4, 5, 6]]
            graph main {
                %x : f32[N, 2] = placeholder x
                %w = get_attr w
                %y = call_function torch.matmul(%x, %w)
                %z = call_function torch.tanh(%y)
                %n = call_function torch.sum(%z, 1)
                output %n
            }";
        let mut f = function(&mut s, text);
        for rows in [5, 6, 7] {
            let want = (0..rows).map(|i| {
                let at = |k: usize| (2 * i + k) as f64;
                (1..=3)
                    .map(|j| (at(0) * j as f64 + at(1) * (j + 3) as f64).tanh())
                    .sum::<f64>()
            });
            let got = numbers(&call(&mut f, &mut s, &arange(rows)).result);
            assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}");
        }
        assert!(matches!(f.general, SymbolicModule::Made(_)));
        let executables: Vec<_> = f.versions.iter().filter_map(|v| v.ready.executable()).collect();
        for e in &executables[1..] {
            assert_eq!(
                e.kernels().shared_with(executables[0].kernels()),
                e.kernels().function_count()
            );
        }
    }

    #[test]
    fn what_has_no_compiled_form_is_interpreted() {
        let text = "graph main {
                %x : f32[3, 2] = placeholder x
                %p = call_function operator.gt(%x, -1)
                %q = call_function torch.all(%p)
                %y = call_function torch.ops.higher_order.cond(%q, @loop, @same, (%x,))
                output %y
            }
            graph loop {
                %x : f32[3, 2] = placeholder x
                %r = call_function torch.ops.higher_order.while_loop(@test, @body, (0, %x), ())
                %y = call_function operator.getitem(%r, 1)
                output (%y,)
            }
            graph same { %x : f32[3, 2] = placeholder x  output (%x,) }
            graph test {
                %i : int = placeholder i
                %x : f32[3, 2] = placeholder x
                %t = call_function operator.lt(%i, 3)
                output %t
            }
            graph body {
                %i : int = placeholder i
                %x : f32[3, 2] = placeholder x
                %j = call_function operator.add(%i, 1)
                %y = call_function operator.mul(%x, 2)
                output (%j, %y)
            }";
        // In the second model it comes before a size that depends on values.
        let sized = "%w = call_function operator.getitem(%y, 0)
                %z = call_function torch.nonzero(%w)
                output (%w, %z)";
        for text in [text.into(), text.replacen("output %y", sized, 1)] {
            let mut s = Session::new();
            let mut f = function(&mut s, &text);
            let got = numbers(&call(&mut f, &mut s, &arange(3)).result);
            assert_eq!(got[..6], [0.0, 8.0, 16.0, 24.0, 32.0, 40.0]);
            let found = s.diagnostics.iter().find(|d| d.code == Code::L0003);
            let told = found.map(|d| &*d.title);
            let why = "the graph runs in the interpreter: a number that is carried is known only when the graph runs";
            assert_eq!(told, Some(why), "{:?}", s.diagnostics);
        }
    }

    #[test]
    fn what_follows_a_size_that_depends_on_values_is_interpreted() {
        let mut s = Session::new();
        let mut f = function(
            &mut s,
            "graph main {
                %x : f32[N, 2] = placeholder x
                %h = call_function torch.exp(%x)
                %m = call_function operator.gt(%h, 5)
                %i = call_function torch.nonzero(%m)
                %y = call_function operator.mul(%i, 2)
                %n = call_function torch.neg(%h)
                output (%y, %n)
            }",
        );
        let called = call(&mut f, &mut s, &arange(2));
        // exp(2) and exp(3) are above 5.
        assert_eq!(numbers(&called.result)[..4], [2.0, 0.0, 2.0, 2.0]);
        assert!((numbers(&called.result)[4 + 3] + 3f64.exp()).abs() < 1e-4);
        let warnings: Vec<_> = s.diagnostics.iter().map(|d| d.title.clone()).collect();
        assert_eq!(
            warnings,
            ["2 of 5 operations run in the interpreter, because sizes depend on values"]
        );
        assert_eq!(
            numbers(&call(&mut f, &mut s, &arange(1)).result),
            [-1.0, -1f64.exp() as f32 as f64]
        );
    }
}
