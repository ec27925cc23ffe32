//! Customisation of the Python function that a graph becomes: torch's `CodeGen`, `on_generate_code`, `process_inputs`
//! and `process_outputs`.
//!
//! [`python::code_with`](super::python::code_with) gets the head of the function, its `return` and the lines of its
//! body from a [`CodeGen`]. The default methods produce torch's text. Overriding one method is enough to change the
//! calling convention:
//!
//! ```
//! use fxc::graph::codegen::CodeGen;
//! use fxc::graph::{Graph, python};
//!
//! /// Prints before every statement what is computed (torch's `on_generate_code`).
//! struct Traced;
//! impl CodeGen for Traced {
//!     fn body(&self, lines: Vec<String>) -> Vec<String> {
//!         let traced = |l: String| match l.split_once(" = ").filter(|_| !l.starts_with("return")) {
//!             Some((name, _)) => vec![format!("print('{name}')"), l.clone()],
//!             None => vec![l],
//!         };
//!         lines.into_iter().flat_map(traced).collect()
//!     }
//! }
//!
//! let graph = Graph::trace(&["x"], |t, p| t.function("torch.relu", (&p[0] + 1,), &[]));
//! let code = python::code_with(&graph, None, &Traced).source;
//! assert_eq!(
//!     code.trim(),
//!     "def forward(self, x):\n    print('add')\n    add = x + 1;  x = None\n    print('relu')\n    \
//!      relu = torch.relu(add);  add = None\n    return relu"
//! );
//! ```

use crate::graph::{Arg, Graph};
use crate::tensor::Tensor;
use crate::types::Val;
use std::convert::Infallible;

/// How a graph becomes a Python function, and how that function is called. The defaults are those of torch's `CodeGen`.
pub trait CodeGen {
    /// The head of the function, without a final newline, and everything before the body (torch's `gen_fn_def`).
    /// `params` has `self` and the parameters with their annotations and defaults; `returns` is empty or ` -> T`. Lines
    /// after the first must be indented.
    fn function(&self, params: &[String], returns: &str) -> String {
        format!("def forward({}){returns}:", params.join(", "))
    }

    /// The last statement; `value` is the text of the result (torch's `generate_output`).
    fn output(&self, value: &str) -> String {
        format!("return {value}").trim_end().to_string()
    }

    /// The statements of the body, without indentation (what torch passes to `on_generate_code`).
    fn body(&self, lines: Vec<String>) -> Vec<String> {
        lines
    }

    /// Names that the text uses in addition to those of the graph, each with its path (torch's `additional_globals`).
    fn additional_globals(&self) -> Vec<(String, String)> {
        vec![]
    }

    /// Converts the arguments of the function to those of the graph (torch's `process_inputs`).
    fn process_inputs(&self, inputs: Vec<Val<Tensor>>) -> Vec<Val<Tensor>> {
        inputs
    }

    /// Converts the graph's result to that of the function (torch's `process_outputs`).
    fn process_outputs(&self, result: Val<Tensor>) -> Val<Tensor> {
        result
    }
}

/// torch's own text: `gm.code`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forward;

impl CodeGen for Forward {}

/// Parameters are passed in one list. The list is cleared, so that each value is freed after its last use (torch's
/// `_BoxedCodeGen`).
///
/// ```
/// use fxc::graph::codegen::Boxed;
/// use fxc::graph::{Graph, python};
///
/// let graph = Graph::trace(&["x", "y"], |_, p| &p[0] + &p[1]);
/// let code = python::code_with(&graph, None, &Boxed).source;
/// assert_eq!(
///     code.trim(),
///     "def forward(self, args_list):\n    args_iter = iter(args_list)\n    x = next(args_iter)\n    \
///      y = next(args_iter)\n    args_list.clear()\n    add = x + y;  x = y = None\n    return add"
/// );
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Boxed;

/// The name of a parameter, without annotation and default.
fn bare_name(param: &str) -> &str {
    param.split([':', '=']).next().unwrap_or_default().trim()
}

impl CodeGen for Boxed {
    fn function(&self, params: &[String], returns: &str) -> String {
        let names: Vec<&str> = params.iter().map(|p| bare_name(p)).filter(|p| *p != "self").collect();
        let mut out = format!("def forward(self, args_list){returns}:");
        if !names.is_empty() {
            out += "\n    args_iter = iter(args_list)";
            names
                .iter()
                .for_each(|n| out += &format!("\n    {n} = next(args_iter)"));
            out += "\n    args_list.clear()";
        }
        out
    }
}

/// Nested parameters and results for a graph whose inputs and results are flat (torch's `_PyTreeCodeGen`). The code
/// flattens and unflattens them with `self._in_spec` and `self._out_spec`.
///
/// ```
/// use fxc::graph::codegen::{CodeGen, PyTree};
/// use fxc::graph::{Graph, GraphModule, python};
/// use fxc::interp::Interpreter;
/// use fxc::Tensor;
/// use fxc::types::Val;
///
/// // forward(pair, scale) with a pair (a, b), which gives {"sum": …, "all": [a, …]}
/// let graph = Graph::trace(&["a", "b", "c"], |_, p| {
///     let sum = (&p[0] + &p[1]) * &p[2];
///     (&p[0] + 0, sum)
/// });
/// let leaf = || Val::Leaf(());
/// let tree = PyTree {
///     args: vec!["pair".into(), "scale".into()],
///     kwargs: None,
///     output: Some(Val::Dict(vec![
///         (Val::Str("first".into()), leaf()),
///         (Val::Str("rest".into()), Val::List(vec![leaf()])),
///     ])),
/// };
/// let code = python::code_with(&graph, None, &tree).source;
/// assert!(code.contains(
///     "def forward(self, pair, scale):\n    a, b, c, = fx_pytree.tree_flatten_spec([pair, scale], self._in_spec)\n"
/// ));
/// assert!(code.contains("return pytree.tree_unflatten((add_1, mul), self._out_spec)"));
///
/// let one = |x: f32| Val::Leaf(Tensor::from_slice(&[1], &[x]));
/// let given = vec![Val::Tuple(vec![one(1.0), one(2.0)]), one(10.0)];
/// let module = GraphModule::new("g", graph);
/// let flat = Interpreter::new(&module).run(tree.process_inputs(given)).unwrap();
/// let Val::Dict(result) = tree.process_outputs(flat) else { panic!() };
/// assert_eq!(result[1].1, Val::List(vec![one(30.0)]));
/// ```
#[derive(Clone, Debug)]
pub struct PyTree {
    /// The parameters of the function, in order (torch's `orig_args`).
    pub args: Vec<String>,
    /// The keyword parameters, if the specification of the inputs is `(args, kwargs)`.
    pub kwargs: Option<Vec<String>>,
    /// The nesting of the result, with a leaf for each value of the graph's result; `None` returns the result
    /// unchanged.
    pub output: Option<Val<()>>,
}

/// The calling convention of a function with nested arguments (torch's `_PyTreeInfo`, as far as the text of the
/// function shows it). The graph's inputs are the flattened arguments, and its results are the leaves of a nested
/// result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PyTreeParams {
    /// The positional parameters.
    pub args: Vec<String>,
    /// The keyword parameters, if the specification of the inputs is `(args, kwargs)`.
    pub kwargs: Option<Vec<String>>,
    /// The number of inputs of the graph.
    pub inputs: usize,
}

impl PyTreeParams {
    /// Whether the graph still has as many inputs as the parameters are flattened to.
    pub fn matches_inputs(&self, graph: &Graph) -> bool {
        self.inputs == graph.placeholders().len()
    }

    /// The code generator for this calling convention.
    pub(super) fn to_pytree(&self) -> PyTree {
        PyTree {
            args: self.args.clone(),
            kwargs: self.kwargs.clone(),
            output: Some(Val::None),
        }
    }
}

/// A graph's result as the flat sequence of values that `tree_unflatten` takes.
pub(super) fn flatten_result(result: &Arg) -> Arg {
    let nests = |v: &Arg| matches!(v, Val::List(_) | Val::Tuple(_) | Val::Dict(_));
    match result {
        Val::List(v) | Val::Tuple(v) if !v.iter().any(nests) => result.clone(),
        v => Val::Tuple(nested_leaves(v)),
    }
}

impl PyTree {
    fn binding_lines(&self, params: &[String]) -> String {
        let annotated: Vec<&str> = params.iter().map(|p| &**p).filter(|p| p.contains(':')).collect();
        let names: Vec<&str> = params.iter().map(|p| bare_name(p)).collect();
        let mut out = match annotated.is_empty() {
            true => String::new(),
            false => format!("\n    {};\n", annotated.join("; ")),
        };
        let args = self.args.join(", ");
        let flattened = match &self.kwargs {
            None => format!("[{args}], self._in_spec"),
            Some(names) => {
                let pairs: Vec<String> = names.iter().map(|k| format!("'{k}':{k}")).collect();
                format!("([{args}], {{{}}}), self._in_spec", pairs.join(", "))
            }
        };
        out += &format!("\n    {}, = fx_pytree.tree_flatten_spec({flattened})", names.join(", "));
        out
    }
}

impl CodeGen for PyTree {
    fn function(&self, params: &[String], returns: &str) -> String {
        let own_self = self.args.first().is_some_and(|a| a == "self");
        let flat = if own_self {
            params
        } else {
            params.get(1..).unwrap_or_default()
        };
        let mut head: Vec<&str> = self
            .args
            .iter()
            .chain(self.kwargs.iter().flatten())
            .map(|a| &**a)
            .collect();
        if !own_self {
            head.insert(0, "self");
        }
        let bindings = if flat.is_empty() {
            String::new()
        } else {
            self.binding_lines(flat)
        };
        format!("def forward({}){returns}:{bindings}", head.join(", "))
    }

    fn output(&self, value: &str) -> String {
        match self.output {
            Some(_) => format!("return pytree.tree_unflatten({value}, self._out_spec)"),
            None => Forward.output(value),
        }
    }

    fn process_inputs(&self, inputs: Vec<Val<Tensor>>) -> Vec<Val<Tensor>> {
        inputs.iter().flat_map(nested_leaves).collect()
    }

    fn process_outputs(&self, result: Val<Tensor>) -> Val<Tensor> {
        let Some(tree) = &self.output else { return result };
        let flat = match result {
            Val::List(v) | Val::Tuple(v) => v,
            single => vec![single],
        };
        let mut flat = flat.into_iter();
        let built = tree.try_map(&mut |()| Ok::<_, Infallible>(flat.next().unwrap_or(Val::None)));
        built.unwrap_or_else(|never| match never {})
    }
}

/// The leaves of a nested argument, in torch's order. Lists, tuples and dicts nest; everything else is a leaf.
fn nested_leaves<T: Clone>(v: &Val<T>) -> Vec<Val<T>> {
    match v {
        Val::List(v) | Val::Tuple(v) => v.iter().flat_map(nested_leaves).collect(),
        Val::Dict(v) => v.iter().flat_map(|(_, x)| nested_leaves(x)).collect(),
        v => vec![v.clone()],
    }
}
