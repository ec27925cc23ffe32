//! The oracle: interprets a graph at any level, node by node, by the meaning of its ops in the op table.
//!
//! It is deliberately simple: no fusion, no layouts, no approximations. Pointwise ops are evaluated in the dtype's own
//! arithmetic. Sums, matrix products and convolutions are accumulated in f64 and rounded once, so that they are at
//! least as accurate as torch's. Passes and compiled code are tested against it.
//!
//! In-place ops and writes through views behave as in torch, since the interpreter models which values share memory
//! ([`cell`]). The graph need not be functional.
//!
//! A value is dropped at its last use. [`Interpreter::boxed_run`] takes its inputs out of the caller's list, so that
//! they too are freed after their last use.

mod calls;
pub mod cell;
pub mod contract;
mod control;
mod eval;
mod frame;
mod hooks;
mod reduce;
mod runs;

use self::calls::check_claim;
use crate::diag::limits::check_time;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, Mutation, NodeId, Opcode};
use crate::infer::{self};
use crate::op::{Call, OpError, OpResult};
use crate::tensor::{Tensor, byte_len, is_available};
use crate::types::{Dim, TensorType, Type, Val};
use cell::TensorCell;
use cranelift_entity::SecondaryMap;
use frame::GraphFrame;
pub use hooks::{Env, Hooked, Hooks, RunningNode, call_target};
use hooks::{NoHooks, while_executing};
use runs::RunnableModule;
use std::collections::HashMap;
use std::sync::Arc;

/// A run-time value: a tensor, a Python value, or a structure of them.
pub type RuntimeValue = Val<Tensor>;

/// The maximal nesting depth of calls of graphs.
const MAX_CALL_DEPTH: usize = 64;

/// Runs the entry graph. `inputs` are the values of its placeholders in order. Missing inputs take their defaults and
/// surplus ones are ignored, as in torch's `Interpreter.run`.
pub fn run(module: &GraphModule, inputs: Vec<RuntimeValue>) -> Result<RuntimeValue, Diagnostic> {
    Interpreter::new(module).run(inputs)
}

/// The result of a call of one op on tensors. The constant folder uses it.
pub fn evaluate_call(call: &Call<Tensor>) -> OpResult<RuntimeValue> {
    let result = eval::apply_op(&call.map(|t| TensorCell::new(t.clone())))?;
    Ok(result.map(|c| c.tensor().clone()))
}

/// Help text: how to give a model its weights.
const WHERE_WEIGHTS_ARE: &str =
    "name the weights file with `weights \"model.safetensors\"` in the text, or pass `--weights-from FILE`";

/// The value of a module's attribute.
pub fn attribute_value(module: &GraphModule, path: &str) -> Result<Tensor, Diagnostic> {
    match module.attributes.get(path) {
        Some(a) => a.value.clone().ok_or_else(|| {
            Diagnostic::new(Code::E0401, format!("`{path}` has no value"))
                .at_opt(a.span, "declared here")
                .help(WHERE_WEIGHTS_ARE)
        }),
        None => Err(Diagnostic::new(Code::E0401, format!("unknown attribute `{path}`")).help(WHERE_WEIGHTS_ARE)),
    }
}

/// Runs the graphs of a module.
pub struct Interpreter<'m> {
    module: RunnableModule<'m>,
    /// Why the module cannot run, if it cannot.
    refused: Option<Diagnostic>,
    /// The attributes that were read or set. Those that a run writes keep their new value for the next run.
    attributes: HashMap<Arc<str>, TensorCell>,
    /// The inputs of the last run, if they are watched.
    inputs: Option<Vec<Val<TensorCell>>>,
    /// The values that a functional graph returned for what it changes, after the last run.
    updated: Vec<(Mutation, Tensor)>,
    /// The values of the entry graph's nodes: those given before a run, and those kept from it.
    env: Env,
    /// Whether to keep values rather than drop them at their last use.
    keep_values: bool,
    depth: usize,
}

impl<'m> Interpreter<'m> {
    /// An interpreter of `module`.
    pub fn new(module: &'m GraphModule) -> Interpreter<'m> {
        let (module, refused) = RunnableModule::for_module(module);
        Interpreter {
            module,
            refused,
            attributes: HashMap::new(),
            inputs: None,
            updated: vec![],
            env: Env::new(),
            keep_values: false,
            depth: 0,
        }
    }

    /// Keeps the inputs of each run, so that [`Interpreter::written_values`] can report those that it wrote to.
    pub fn watch_inputs(&mut self) {
        self.inputs = Some(vec![]);
    }

    /// Keeps the values of the entry graph's nodes instead of dropping each at its last use (torch's
    /// `garbage_collect_values=False`).
    pub fn keep_values(&mut self) {
        self.keep_values = true;
    }

    /// The values that the last run kept, if [`Interpreter::keep_values`] was called.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// [`Interpreter::run`], except that nodes of the entry graph with a value in `env` are not run (torch's
    /// `initial_env`).
    pub fn run_from(&mut self, inputs: Vec<RuntimeValue>, env: Env) -> Result<RuntimeValue, Diagnostic> {
        struct Given(Env);
        impl Hooks for Given {
            fn run_node(&mut self, node: RunningNode<'_>) -> Hooked {
                // A node of a called graph may have the same id.
                let of_entry = node.module.entry().is_some_and(|g| std::ptr::eq(g, node.graph));
                Ok(self.0.get(&node.id).filter(|_| of_entry).cloned())
            }
        }
        self.run_with(inputs, &mut Given(env))
    }

    /// Sets an attribute for the next run.
    pub fn set_attribute(&mut self, path: &str, value: Tensor) {
        self.attributes.insert(path.into(), TensorCell::new(value));
    }

    /// The buffers and (if watched) inputs that the last run or an earlier one changed, with their new values.
    pub fn written_values(&self) -> Vec<(Mutation, Tensor)> {
        let mut out = self.updated.clone();
        let known = |out: &[(Mutation, Tensor)], m: &Mutation| out.iter().any(|(k, _)| k == m);
        let mut attributes: Vec<_> = self.attributes.iter().filter(|(_, c)| c.is_written()).collect();
        attributes.sort_by_key(|(path, _)| (*path).clone());
        for (path, cell) in attributes {
            let m = Mutation::Buffer(path.clone());
            if !known(&out, &m) {
                out.push((m, cell.fresh().tensor().clone()));
            }
        }
        let graph = self.module.entry();
        let names = graph.map_or(vec![], |g| g.placeholders().iter().map(|&p| g[p].name()).collect());
        for (name, v) in names.iter().zip(self.inputs.iter().flatten()) {
            let m = Mutation::Input((*name).into());
            if let Val::Leaf(cell) = v
                && cell.is_written()
                && !known(&out, &m)
            {
                out.push((m, cell.fresh().tensor().clone()));
            }
        }
        out
    }

    /// Runs the entry graph; see [`run`]. Buffers that a run changes keep their new values for the next run.
    pub fn run(&mut self, inputs: Vec<RuntimeValue>) -> Result<RuntimeValue, Diagnostic> {
        self.run_with(inputs, &mut NoHooks)
    }

    /// Runs the entry graph and takes the inputs out of the list. Their number must be right.
    pub fn boxed_run(&mut self, inputs: &mut Vec<RuntimeValue>) -> Result<RuntimeValue, Diagnostic> {
        let expected = self.module.entry().map_or(0, |g| g.placeholders().len());
        if inputs.len() != expected {
            let detail = if inputs.len() > expected {
                "extra arguments"
            } else {
                "missing arguments"
            };
            return Err(Diagnostic::new(
                Code::E0501,
                format!(
                    "Interpreter.boxed_run expected {expected} arguments for placeholders but received {} ({detail})",
                    inputs.len()
                ),
            ));
        }
        self.run(std::mem::take(inputs))
    }

    /// Runs the entry graph and calls `hooks` for every node, including those of called graphs.
    pub fn run_with(&mut self, inputs: Vec<RuntimeValue>, hooks: &mut dyn Hooks) -> Result<RuntimeValue, Diagnostic> {
        if let Some(d) = &self.refused {
            return Err(d.clone());
        }
        let name = self
            .module
            .entry_name()
            .cloned()
            .ok_or_else(|| Diagnostic::new(Code::E0104, "the file contains no graph to run"))?;
        self.depth = 0;
        self.env.clear();
        let inputs: Vec<Val<TensorCell>> = inputs
            .into_iter()
            .map(|v| v.map(|t| TensorCell::new(t.clone())))
            .collect();
        if let Some(watched) = &mut self.inputs {
            *watched = inputs.clone();
        }
        let result = to_runtime_value(&self.run_graph(&name, inputs, hooks)?);
        self.keep_buffer_values(&result);
        Ok(result)
    }

    /// Keeps the new values of buffers, which come first among the results of a functional graph.
    fn keep_buffer_values(&mut self, result: &RuntimeValue) {
        self.updated.clear();
        let (Some(graph), Val::Tuple(items)) = (self.module.entry(), result) else {
            return;
        };
        for (m, v) in graph.mutations.iter().zip(items) {
            let Val::Leaf(t) = v else { continue };
            if let Mutation::Buffer(path) = m {
                self.attributes.insert(path.clone(), TensorCell::new(t.clone()));
            }
            self.updated.push((m.clone(), t.clone()));
        }
    }

    fn run_graph(
        &mut self,
        name: &str,
        inputs: Vec<Val<TensorCell>>,
        hooks: &mut dyn Hooks,
    ) -> Result<Val<TensorCell>, Diagnostic> {
        let module = self.module.clone();
        let graph = &module.graphs[name];
        if self.depth >= MAX_CALL_DEPTH {
            let title = format!("graph calls are nested more than {MAX_CALL_DEPTH} deep at `{name}`");
            return Err(Diagnostic::new(Code::E0111, title));
        }
        self.depth += 1;
        let last = last_uses(graph);
        let mut frame = GraphFrame {
            name,
            graph,
            env: SecondaryMap::new(),
            inputs: inputs.into_iter(),
        };
        for n in graph.iter() {
            check_time()?;
            let value = self.run_hooked_node(&mut frame, n, hooks);
            let value = value.map_err(|d| while_executing(d, graph, n))?;
            if self.keep_values && self.depth == 1 {
                self.env.insert(n, to_runtime_value(&value));
            }
            if graph[n].op() == Opcode::Output {
                self.depth -= 1;
                return Ok(value);
            }
            frame.env[n] = Some(value);
            for &dead in &last[n] {
                frame.env[dead] = None;
            }
        }
        self.depth -= 1;
        Ok(Val::None)
    }

    fn run_hooked_node(
        &mut self,
        frame: &mut GraphFrame<'_>,
        n: NodeId,
        hooks: &mut dyn Hooks,
    ) -> Result<Val<TensorCell>, Diagnostic> {
        let graph = frame.graph;
        let value = |a: &Arg| frame.fetch_arg(n, a).map(|v| to_runtime_value(&v));
        let args = graph[n].args().iter().map(value).collect::<Result<Vec<_>, _>>()?;
        let kwargs = graph[n].kwargs().iter().map(|(k, a)| Ok((k.clone(), value(a)?)));
        let kwargs = kwargs.collect::<Result<Vec<_>, Diagnostic>>()?;
        let running = RunningNode {
            module: &self.module,
            graph,
            id: n,
            args: &args,
            kwargs: &kwargs,
        };
        let result = match hooks.run_node(running)? {
            Some(v) => {
                if graph[n].op() == Opcode::Placeholder {
                    // Consume the caller's value nevertheless, as torch does.
                    frame.inputs.next();
                }
                v.map(|t| TensorCell::new(t.clone()))
            }
            None => self.run_node(frame, n, hooks)?,
        };
        hooks.after_node(graph, n, &to_runtime_value(&result))?;
        Ok(result)
    }

    fn run_node(
        &mut self,
        frame: &mut GraphFrame<'_>,
        n: NodeId,
        hooks: &mut dyn Hooks,
    ) -> Result<Val<TensorCell>, Diagnostic> {
        let node = &frame.graph[n];
        match node.op() {
            Opcode::Placeholder => frame.eval_placeholder(n),
            Opcode::GetAttr => self.load_attribute(frame.graph, n, node.target()).map(Val::Leaf),
            Opcode::Output => node.args().first().map_or(Ok(Val::None), |a| frame.fetch_arg(n, a)),
            _ => {
                let ty = |i: NodeId| frame.env[i].as_ref().map_or(Val::Unknown, eval::type_of);
                let resolved = infer::resolve_with(&self.module, frame.name, frame.graph, n, &ty)?;
                let value = self.run_call(frame, n, &resolved, hooks)?;
                check_claim(frame.graph, n, &value).map(|()| value)
            }
        }
    }

    fn load_attribute(&mut self, graph: &Graph, n: NodeId, path: &str) -> Result<TensorCell, Diagnostic> {
        if let Some(c) = self.attributes.get(path) {
            return Ok(c.fresh());
        }
        let value = attribute_value(&self.module, path).map_err(|d| d.at_opt(graph[n].meta.span, "used here"))?;
        let cell = TensorCell::new(value);
        self.attributes.insert(path.into(), cell.clone());
        Ok(cell)
    }
}

/// The value with its cells replaced by their current tensors.
fn to_runtime_value(v: &Val<TensorCell>) -> RuntimeValue {
    v.map(|c| c.fresh().tensor().clone())
}

/// For each node, the nodes whose last use it is (torch's `user_to_last_uses`).
pub fn last_uses(graph: &Graph) -> SecondaryMap<NodeId, Vec<NodeId>> {
    let mut last: SecondaryMap<NodeId, Vec<NodeId>> = SecondaryMap::new();
    let mut seen: SecondaryMap<NodeId, bool> = SecondaryMap::new();
    for n in graph.iter().rev() {
        for i in graph[n].inputs() {
            if !std::mem::replace(&mut seen[i], true) {
                last[n].push(i);
            }
        }
    }
    last
}

/// Returns an error if a result would exceed the address space, or the memory that the system grants.
fn check_size(ty: &Type, op: &str) -> OpResult<()> {
    for t in ty.leaves() {
        let fits = |t: &TensorType| {
            let shape = t.shape.as_ref()?;
            let sizes: Option<Vec<usize>> = shape
                .iter()
                .map(|d| match d {
                    Dim::Const(c) => usize::try_from(*c).ok(),
                    // The size depends on values: evaluation checks it.
                    _ => Some(1),
                })
                .collect();
            byte_len(t.dtype, &sizes?)
        };
        if t.shape.is_none() {
            continue;
        }
        let Some(bytes) = fits(t) else {
            let title = format!("the result of `{op}`, {t}, exceeds the address space");
            return Err(OpError::new(Code::E0306, title));
        };
        if !is_available(bytes) {
            let title = format!("not enough memory for the result of `{op}`, {t}");
            return Err(OpError::new(Code::E0509, title));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
