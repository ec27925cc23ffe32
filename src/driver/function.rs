//! A model to be called again and again, at any sizes.

use super::bind::{Bound, Value};
use super::compile::{Request, compile};
use super::load::Model;
use super::run::arguments;
use super::session::{Reported, Session, Staged};
use super::split::{Split, Tail};
use super::stage::Stage;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, GraphModule, Mutation};
use crate::interp::Interpreter;
use crate::runtime::Executable;
use crate::tensor::Tensor;
use crate::types::{Type, Val};
use std::collections::HashMap;
use std::sync::Arc;

/// How many combinations of sizes stay compiled; the one that was called least recently goes.
const KEPT: usize = 16;

/// A model with the code for the sizes it was called with.
///
/// Symbolic sizes become constants of the compiled code, which is what loops, memory plans and weight layouts are best
/// made for; so the first call with new sizes compiles for them, and later calls find that code again. Buffers that calls
/// change (the statistics of a batch normalisation in training, a cache of keys) keep their values from call to call, also
/// from one size to another. Ranges and equations of sizes are checked when inputs are bound
/// ([`bind::bind`](super::bind::bind)).
///
/// Where sizes depend on values (`nonzero`, `item`), the operations before these are compiled and the others interpreted;
/// this is reported once ([`Code::L0003`](crate::diag::Code)).
pub struct Function {
    name: String,
    module: GraphModule,
    request: Request,
    state: HashMap<Arc<str>, Tensor>,
    /// The one called last is at the end.
    ready: Vec<Ready>,
}

/// What a call gives.
#[derive(Clone, Debug)]
pub struct Called {
    /// The model's result.
    pub result: Value,
    /// The buffers and inputs that the call changed, with their new values.
    pub written: Vec<(Mutation, Tensor)>,
}

struct Ready {
    inputs: Vec<Type>,
    /// The optimised module, whose sizes are fixed.
    module: GraphModule,
    way: Way,
}

enum Way {
    Compiled(Box<Executable>),
    Split(Box<Split>),
}

impl Function {
    /// A function of a loaded model. Of `request`, the threads and the passes' options count.
    pub fn new(model: Model, request: Request) -> Function {
        Function {
            name: model.name,
            module: model.module,
            request,
            state: HashMap::new(),
            ready: vec![],
        }
    }

    /// How many combinations of sizes are compiled.
    pub fn compiled(&self) -> usize {
        self.ready.len()
    }

    /// The values of the buffers that calls have changed, by path.
    pub fn state(&self) -> &HashMap<Arc<str>, Tensor> {
        &self.state
    }

    /// Gives a buffer the value that the next call finds.
    pub fn set_state(&mut self, path: &str, value: Tensor) {
        self.state.insert(path.into(), value);
    }

    /// Calls the model; what goes wrong is reported to the session.
    pub fn call(&mut self, session: &mut Session, bound: &Bound) -> Staged<Called> {
        let found = self.ready.iter().position(|r| r.inputs == bound.types);
        let mut ready = match found {
            Some(i) => self.ready.remove(i),
            None => self.prepare(session, bound)?,
        };
        let called = ready.run(bound, &self.state);
        self.ready.push(ready);
        if self.ready.len() > KEPT {
            self.ready.remove(0);
        }
        let called = called.map_err(|d| {
            session.report(self.located(d, bound));
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
    fn located(&self, found: Diagnostic, bound: &Bound) -> Diagnostic {
        if found.code != Code::E0502 {
            return found;
        }
        let mut interpreter = Interpreter::new(&self.module);
        for (path, t) in &self.state {
            interpreter.set_attribute(path, t.clone());
        }
        interpreter.run(bound.values.clone()).err().unwrap_or(found)
    }

    /// Compiles for the inputs of one call.
    fn prepare(&self, session: &mut Session, bound: &Bound) -> Staged<Ready> {
        let request = Request {
            inputs: Some(bound.types.clone()),
            dims: bound.dims.clone(),
            until: Some(Stage::Optimize),
            artifacts: vec![],
            ..self.request.clone()
        };
        let model = Model::new(self.name.clone(), self.module.clone());
        let module = compile(session, model, &request)?.module;
        let Some(graph) = module.entry() else {
            return Err(Reported);
        };
        let way = match Tail::of(graph) {
            None => {
                let program = session.lower(&module, &bound.dims)?;
                Way::Compiled(Box::new(session.compile(program, request.threads, false)?))
            }
            Some(tail) => {
                session.report(tail.warning(graph));
                let head = match tail.head(graph) {
                    None => None,
                    Some((head, kept)) => {
                        let mut program = session.lower_graph(&module, &head, &bound.dims)?;
                        // The head's results are the values that the tail uses.
                        program.mutations.clear();
                        Some((session.compile(program, request.threads, false)?, kept))
                    }
                };
                Way::Split(Box::new(Split { head }))
            }
        };
        Ok(Ready {
            inputs: bound.types.clone(),
            module,
            way,
        })
    }
}

impl Ready {
    fn run(&mut self, bound: &Bound, state: &HashMap<Arc<str>, Tensor>) -> Result<Called, Diagnostic> {
        let graph = self.module.entry().expect("it was compiled");
        let result = match &mut self.way {
            Way::Compiled(executable) => {
                state.iter().for_each(|(path, t)| executable.set_state(path, t));
                let inputs = arguments(executable, graph, bound)?;
                executable.run(&inputs).map_err(|d| *d)?
            }
            Way::Split(split) => {
                let mut interpreter = Interpreter::new(&self.module);
                for (path, t) in state {
                    interpreter.set_attribute(path, t.clone());
                    if let Some((head, _)) = &mut split.head {
                        head.set_state(path, t);
                    }
                }
                split.run(&self.module, &mut interpreter, bound)?
            }
        };
        Ok(called(graph, result))
    }
}

/// The leading results that are new values of buffers and inputs, and the others.
fn called(graph: &Graph, result: Value) -> Called {
    let mutations = &graph.mutations;
    match result {
        Val::Tuple(mut items) if !mutations.is_empty() && items.len() >= mutations.len() => {
            let rest = items.split_off(mutations.len());
            let tensors = items.into_iter().zip(mutations);
            let written = tensors.filter_map(|(v, m)| match v {
                Val::Leaf(t) => Some((m.clone(), t)),
                _ => None,
            });
            Called {
                written: written.collect(),
                result: Val::Tuple(rest),
            }
        }
        result => Called {
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

    fn bound(f: &Function, x: &Tensor) -> Bound {
        let given = Provided {
            name: "x".into(),
            given: Given::Value(Val::Leaf(x.clone())),
            origin: "the test".into(),
            must_match: true,
        };
        let (bound, found) = bind::bind(&f.module, vec![given], Dims::new());
        bound.unwrap_or_else(|| panic!("{found:?}"))
    }

    fn call(f: &mut Function, session: &mut Session, x: &Tensor) -> Called {
        let bound = bound(f, x);
        let called = f.call(session, &bound);
        called.unwrap_or_else(|_| panic!("{:?}", session.diagnostics))
    }

    fn arange(rows: usize) -> Tensor {
        fill::filled(DType::F32, &[rows, 2], Fill::Arange)
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
        assert_eq!(f.compiled(), 3);
        let given = Provided {
            name: "x".into(),
            given: Given::Value(Val::Leaf(arange(10))),
            origin: "the test".into(),
            must_match: true,
        };
        let (none, found) = bind::bind(&f.module, vec![given], Dims::new());
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
        assert_eq!(f.compiled(), KEPT);
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
        let calls: Vec<Called> = (0..5).map(|_| call(&mut f, &mut s, &arange(2))).collect();
        for (i, c) in calls.iter().enumerate() {
            let n = (i + 1) as f64;
            assert_eq!(numbers(&c.result), [20.0 * n, 40.0 * n]);
            assert_eq!(c.written[0].1.get(0).to_f64(), 2.0 * n);
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
