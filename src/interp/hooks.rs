//! Hooks that watch or override the execution of nodes: the methods of torch's `Interpreter` that subclasses override.

use super::{Interpreter, RuntimeValue};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, Node, NodeId, Opcode, torch_print};
use crate::types::Val;
use std::collections::HashMap;
use std::sync::Arc;

/// A node that is about to run.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct RunningNode<'a> {
    /// The module.
    pub module: &'a GraphModule,
    /// The graph that contains the node: the entry, or one that it calls.
    pub graph: &'a Graph,
    /// The node.
    pub id: NodeId,
    /// The values of its positional arguments.
    pub args: &'a [RuntimeValue],
    /// The values of its keyword arguments.
    pub kwargs: &'a [(Arc<str>, RuntimeValue)],
}

/// The result of a hook: a value that replaces the node's result, or `None` to run the node as usual.
pub type Hooked = Result<Option<RuntimeValue>, Diagnostic>;

/// Hooks called for every node, including those of called graphs. A method that returns a value replaces the node's
/// computation. [`RunningNode::call`] runs the node with other arguments.
pub trait Hooks {
    /// Called before a node runs. The default calls the method of the node's opcode.
    fn run_node(&mut self, node: RunningNode<'_>) -> Hooked {
        match node.node().op() {
            Opcode::Placeholder => self.placeholder(node),
            Opcode::GetAttr => self.get_attr(node),
            Opcode::CallFunction => self.call_function(node),
            Opcode::CallMethod => self.call_method(node),
            Opcode::CallModule => self.call_module(node),
            Opcode::Output => self.output(node),
        }
    }

    /// A parameter of the graph. A returned value replaces the caller's.
    fn placeholder(&mut self, _at: RunningNode<'_>) -> Hooked {
        Ok(None)
    }

    /// A parameter, buffer or constant.
    fn get_attr(&mut self, _at: RunningNode<'_>) -> Hooked {
        Ok(None)
    }

    /// A call of a function.
    fn call_function(&mut self, _at: RunningNode<'_>) -> Hooked {
        Ok(None)
    }

    /// A call of a method of the first argument.
    fn call_method(&mut self, _at: RunningNode<'_>) -> Hooked {
        Ok(None)
    }

    /// A call of a module.
    fn call_module(&mut self, _at: RunningNode<'_>) -> Hooked {
        Ok(None)
    }

    /// The result.
    fn output(&mut self, _at: RunningNode<'_>) -> Hooked {
        Ok(None)
    }

    /// Called with the result of a node.
    fn after_node(&mut self, _graph: &Graph, _node: NodeId, _result: &RuntimeValue) -> Result<(), Diagnostic> {
        Ok(())
    }
}

/// Hooks that do nothing.
pub(super) struct NoHooks;
impl Hooks for NoHooks {}

impl<'a> RunningNode<'a> {
    /// The node.
    pub fn node(&self) -> &'a Node {
        &self.graph[self.id]
    }

    /// Its name.
    pub fn name(&self) -> &'a str {
        self.node().name()
    }

    /// The target: what the node calls or reads.
    pub fn target(&self) -> &'a str {
        self.node().target()
    }

    /// Runs the node with other arguments (torch's `super().call_function(target, args, kwargs)`).
    pub fn call(&self, args: &[RuntimeValue], kwargs: &[(Arc<str>, RuntimeValue)]) -> Result<RuntimeValue, Diagnostic> {
        call_target(self.module, self.node().op(), self.target(), args, kwargs)
    }

    /// Calls another function with these arguments.
    pub fn call_function(
        &self,
        target: &str,
        args: &[RuntimeValue],
        kwargs: &[(Arc<str>, RuntimeValue)],
    ) -> Result<RuntimeValue, Diagnostic> {
        call_target(self.module, Opcode::CallFunction, target, args, kwargs)
    }
}

/// Calls a target with an opcode: a function in any spelling, a method, a module or a graph of `module`.
///
/// # Errors
/// Whatever the call itself reports; an opcode that is not a call (E0201).
pub fn call_target(
    module: &GraphModule,
    op: Opcode,
    target: &str,
    args: &[RuntimeValue],
    kwargs: &[(Arc<str>, RuntimeValue)],
) -> Result<RuntimeValue, Diagnostic> {
    if !op.is_call() {
        return Err(Diagnostic::new(Code::E0201, format!("`{op}` is not a call")));
    }
    let mut graph = Graph::new();
    let mut inputs = vec![];
    let mut lifted = |graph: &mut Graph, v: &RuntimeValue| -> Arg {
        let r: Result<Arg, std::convert::Infallible> = v.try_map(&mut |t| {
            inputs.push(Val::Leaf(t.clone()));
            Ok(Val::Leaf(graph.placeholder("input", None)))
        });
        match r {
            Ok(v) => v,
        }
    };
    let args: Vec<Arg> = args.iter().map(|v| lifted(&mut graph, v)).collect();
    let kwargs = kwargs.iter().map(|(k, v)| (k.clone(), lifted(&mut graph, v))).collect();
    let n = graph.create_node(op, target, args, kwargs, None);
    graph.set_output(Val::Leaf(n));
    // A name that no graph of the module can have, so that it shadows none.
    const NAME: &str = "<call>";
    let mut wrapper = module.lift(NAME, graph);
    wrapper.graphs.move_index(0, wrapper.graphs.len() - 1);
    let mut interpreter = Interpreter::new(&wrapper);
    let inputs = inputs
        .into_iter()
        .map(|v| v.map(|t| super::TensorCell::new(t.clone())))
        .collect();
    interpreter
        .run_graph(NAME, inputs, &mut NoHooks)
        .map(|v| super::to_runtime_value(&v))
}

/// Adds to an error without a source location which node was running (torch's `While executing`).
pub(super) fn while_executing(d: Diagnostic, graph: &Graph, n: NodeId) -> Diagnostic {
    const HEAD: &str = "While executing ";
    if graph[n].meta.span.is_some() || d.notes.iter().any(|note| note.starts_with(HEAD)) {
        return d;
    }
    d.note(format!("{HEAD}{}", torch_print::format_node(graph, n)))
}

/// The values of the entry graph's nodes (torch's `env`).
pub type Env = HashMap<NodeId, RuntimeValue>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::Interpreter;
    use crate::tensor::Tensor;

    fn x() -> RuntimeValue {
        Val::Leaf(Tensor::from_slice(&[2], &[1f32, 4.0]))
    }

    fn floats(v: &RuntimeValue) -> Vec<f32> {
        v.as_leaf().unwrap().as_slice::<f32>().to_vec()
    }

    /// From torch's documentation: `neg` replaces `sigmoid`, and every method's result is increased by 1.
    struct Changed;
    impl Hooks for Changed {
        fn call_function(&mut self, at: RunningNode<'_>) -> Hooked {
            match at.target() {
                "torch.sigmoid" => at.call_function("torch.neg", at.args, at.kwargs).map(Some),
                _ => Ok(None),
            }
        }

        fn call_method(&mut self, at: RunningNode<'_>) -> Hooked {
            let result = at.call(at.args, at.kwargs)?;
            at.call_function("operator.add", &[result, Val::int(1)], &[]).map(Some)
        }
    }

    #[test]
    fn opcodes_have_hooks_of_their_own() {
        let g = Graph::trace(&["x"], |t, p| {
            t.function("torch.sigmoid", (&p[0],), &[])
                .method_with("clamp", (), &[("min", Val::int(-2))])
                * 2
        });
        let m = GraphModule::new("g", g);
        let y = Interpreter::new(&m).run_with(vec![x()], &mut Changed).unwrap();
        // (clamp(-x, min=-2) + 1) * 2
        assert_eq!(floats(&y), [0.0, -2.0]);
    }

    #[test]
    fn values_are_kept_and_given() {
        let g = Graph::trace(&["x"], |_, p| (&p[0] + 1).method("exp", ()) - 1);
        let (add, exp) = (g.find("add").unwrap(), g.find("exp").unwrap());
        let m = GraphModule::new("g", g);
        let mut i = Interpreter::new(&m);
        i.keep_values();
        i.run(vec![x()]).unwrap();
        assert_eq!(floats(&i.env()[&add]), [2.0, 5.0]);
        // `exp` has a given value and is not computed.
        let known = Env::from([(exp, x())]);
        let y = i.run_from(vec![x()], known).unwrap();
        assert_eq!(floats(&y), [0.0, 3.0]);
        assert_eq!(floats(&i.env()[&exp]), [1.0, 4.0]);
    }

    #[test]
    fn given_values_are_those_of_the_entry_graph() {
        let twice = Graph::trace(&["x"], |_, p| &p[0] * 2);
        let g = Graph::trace(&["x"], |t, p| t.function("twice", (&(&p[0] + 1),), &[]));
        let add = g.find("add").unwrap();
        assert_eq!(twice.find("mul"), Some(add), "the ids are equal");
        let mut m = GraphModule::new("g", g);
        m.graphs.insert("twice".into(), twice);
        let y = Interpreter::new(&m)
            .run_from(vec![x()], Env::from([(add, x())]))
            .unwrap();
        assert_eq!(floats(&y), [2.0, 8.0]);
    }

    #[test]
    fn errors_say_what_was_running() {
        let g = Graph::trace(&["x"], |_, p| p[0].method("view", (3,)).named("odd"));
        let m = GraphModule::new("g", g);
        let e = Interpreter::new(&m).run(vec![x()]).unwrap_err();
        let note = "While executing %odd : [num_users=1] = call_method[target=view](args = (%x, 3), kwargs = {})";
        assert!(e.notes.iter().any(|n| n == note), "{e:?}");
    }

    #[test]
    fn calls_reach_graphs_and_modules() {
        let mut m = GraphModule::new("g", Graph::trace(&["x"], |_, p| p[0].clone()));
        m.graphs.insert("twice".into(), Graph::trace(&["x"], |_, p| &p[0] * 2));
        m.add_submodule("act", "ReLU", vec![], vec![]).unwrap();
        let y = call_target(&m, Opcode::CallFunction, "twice", &[x()], &[]).unwrap();
        assert_eq!(floats(&y), [2.0, 8.0]);
        let y = call_target(&m, Opcode::CallModule, "act", &[x()], &[]).unwrap();
        assert_eq!(floats(&y), [1.0, 4.0]);
        assert!(call_target(&m, Opcode::GetAttr, "w", &[], &[]).is_err());
        assert!(call_target(&m, Opcode::CallFunction, "no.such", &[x()], &[]).is_err());
    }
}
