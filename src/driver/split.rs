//! Compiles the part of a graph before sizes that depend on values, and interprets the rest.
//!
//! ```text
//! x ──▶ backbone ──▶ scores ──▶ nonzero ──▶ rows ──▶ result
//!       └─── compiled ───┘      └──── interpreted ───┘
//! ```
//!
//! `nonzero`, `unique`, `masked_select`, `item` and the like return tensors whose sizes (or numbers that are sizes) are
//! only known after they have run. Such nodes and all that depend on them form the tail of the graph.

use super::inputs::bind::{BoundInputs, Value};
use super::run::executable_inputs;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::infer::place_note;
use crate::infer::untyped::{self, Untyped};
use crate::interp::{Hooked, Hooks, Interpreter, RunningNode};
use crate::parallel::CancelToken;
use crate::runtime::{Executable, cancelled};
use crate::types::{Type, Val};
use std::collections::{HashMap, HashSet};

/// The tail of a graph: the nodes whose types depend on values, and all nodes that depend on them.
pub(super) struct InterpretedTail {
    nodes: HashSet<NodeId>,
    /// The first node whose type depends on values.
    first: NodeId,
}

impl InterpretedTail {
    /// The tail of a graph whose nodes have types for fixed input sizes, if there is one.
    pub(super) fn from_graph(graph: &Graph) -> Option<InterpretedTail> {
        let mut nodes = HashSet::new();
        let mut first = None;
        for n in graph.iter().filter(|&n| graph[n].op().is_call()) {
            let known = graph[n].meta.ty.as_ref().is_some_and(is_fixed) && !graph[n].meta.claimed;
            if !known || graph[n].inputs().iter().any(|i| nodes.contains(i)) {
                nodes.insert(n);
                first.get_or_insert(n);
            }
        }
        Some(InterpretedTail { nodes, first: first? })
    }

    /// The whole graph as a tail, for a graph that cannot be compiled; `None` if it has no calls.
    pub(super) fn whole_graph(graph: &Graph) -> Option<InterpretedTail> {
        let nodes: HashSet<NodeId> = graph.iter().filter(|&n| graph[n].op().is_call()).collect();
        let first = graph.iter().find(|n| nodes.contains(n))?;
        Some(InterpretedTail { nodes, first })
    }

    /// The warning about the tail, which is reported once.
    pub(super) fn warning(&self, graph: &Graph) -> Diagnostic {
        let node = &graph[self.first];
        let all = graph.iter().filter(|&n| graph[n].op().is_call()).count();
        let part = format!("{} of {all} operations run in the interpreter", self.nodes.len());
        let missing = self.missing_types(graph);
        if !missing.is_empty() {
            let title = format!("{part}, because {}", untyped::what_is_missing(graph, &missing));
            return untyped::explain_missing(graph, &missing, Diagnostic::new(Code::L0003, title));
        }
        let d = Diagnostic::new(Code::L0003, format!("{part} because of data-dependent sizes"))
            .at_opt(node.meta.span, "the first operation with data-dependent sizes");
        let d = place_note(graph, self.first).map_or(d.clone(), |p| d.note(p));
        match node.meta.span {
            Some(_) => d,
            None => d.note(format!(
                "the first such operation is `%{}` (`{}`)",
                node.name(),
                node.target()
            )),
        }
    }

    /// The error if the tail is the whole graph and code was requested.
    pub(super) fn nothing_compiled(&self, graph: &Graph) -> Diagnostic {
        let title = "no part of the graph can be compiled";
        let missing = self.missing_types(graph);
        if missing.is_empty() {
            return Diagnostic::new(Code::E0601, title)
                .note("operations with data-dependent sizes run in the interpreter");
        }
        let title = format!("{title}, because {}", untyped::what_is_missing(graph, &missing));
        untyped::explain_missing(graph, &missing, Diagnostic::new(Code::E0601, title))
    }

    /// The inputs and attributes whose missing types the tail's nodes depend on.
    fn missing_types(&self, graph: &Graph) -> Vec<Untyped> {
        let mut missing = untyped::find_untyped(graph);
        missing.retain(|u| graph[u.node].users().any(|n| self.nodes.contains(&n)));
        missing
    }

    /// The graph without the tail, and the nodes whose values the tail uses, which become its results. `None` if the
    /// tail is everything that is computed.
    pub(super) fn head_graph(&self, graph: &Graph) -> Option<(Graph, Vec<NodeId>)> {
        let output = graph.output();
        let in_tail = |n: NodeId| self.nodes.contains(&n) || Some(n) == output;
        let mut boundary: Vec<NodeId> = vec![];
        for n in graph.iter().filter(|&n| in_tail(n)) {
            for i in graph[n].inputs() {
                if graph[i].op().is_call() && !in_tail(i) && !boundary.contains(&i) {
                    boundary.push(i);
                }
            }
        }
        if boundary.is_empty() {
            return None;
        }
        let mut head = graph.clone();
        // Its results are the values that the tail uses, and the tail updates the buffers.
        head.mutations.clear();
        let mut tail: Vec<NodeId> = graph.iter().filter(|&n| in_tail(n)).collect();
        tail.reverse();
        for n in tail {
            // Its users came later and have been erased.
            head.erase_node(n).ok()?;
        }
        head.set_insert_point(crate::graph::InsertPoint::End);
        head.set_output(Val::Tuple(boundary.iter().map(|&n| Val::Leaf(n)).collect()));
        Some((head, boundary))
    }
}

/// Whether all sizes and numbers of a type are known.
fn is_fixed(ty: &Type) -> bool {
    match ty {
        Val::Leaf(t) => t.fixed_shape().is_some(),
        Val::Unknown | Val::Any(_) => false,
        Val::Int(d) => d.as_const().is_some(),
        Val::List(v) | Val::Tuple(v) => v.iter().all(is_fixed),
        Val::Dict(v) => v.iter().all(|(_, x)| is_fixed(x)),
        _ => true,
    }
}

/// A graph split into a compiled head and an interpreted tail.
pub(super) struct SplitExecutable {
    tail: InterpretedTail,
    /// The compiled part, unless it is empty, and the nodes whose values are its results.
    head: Option<(Executable, Vec<NodeId>)>,
    /// Ends calls, between two nodes.
    cancel: CancelToken,
}

/// Hooks that provide the values that the head computed, so that the interpreter computes only the others, until the
/// call is cancelled.
struct Computed<'a> {
    values: HashMap<NodeId, Value>,
    skip: HashSet<NodeId>,
    cancel: &'a CancelToken,
}

impl Hooks for Computed<'_> {
    fn run_node(&mut self, node: RunningNode<'_>) -> Hooked {
        if self.cancel.is_cancelled() {
            return Err(cancelled());
        }
        // The nodes of graphs that the entry calls may have the same ids as its own.
        if !node.module.entry().is_some_and(|entry| std::ptr::eq(entry, node.graph)) {
            return Ok(None);
        }
        if let Some(v) = self.values.get(&node.id) {
            return Ok(Some(v.clone()));
        }
        Ok(self.skip.contains(&node.id).then_some(Val::None))
    }
}

impl SplitExecutable {
    /// A tail, with the head that was compiled from the same graph.
    pub(super) fn new(
        tail: InterpretedTail,
        head: Option<(Executable, Vec<NodeId>)>,
        cancel: CancelToken,
    ) -> SplitExecutable {
        SplitExecutable { tail, head, cancel }
    }

    /// The compiled part.
    pub(super) fn executable(&self) -> Option<&Executable> {
        self.head.as_ref().map(|h| &h.0)
    }

    /// The compiled part.
    pub(super) fn executable_mut(&mut self) -> Option<&mut Executable> {
        self.head.as_mut().map(|h| &mut h.0)
    }

    /// The number of operations that are not compiled.
    pub(super) fn interpreted_count(&self) -> usize {
        self.tail.nodes.len()
    }

    /// Runs the module's entry graph: the head as compiled code, the rest in `interpreter`, which holds the module's
    /// buffers.
    pub(super) fn run(
        &mut self,
        module: &GraphModule,
        interpreter: &mut Interpreter<'_>,
        bound: &BoundInputs,
    ) -> Result<Value, Diagnostic> {
        let Some(graph) = module.entry() else {
            return interpreter.run(bound.values.clone());
        };
        let mut computed = Computed {
            values: HashMap::new(),
            skip: HashSet::new(),
            cancel: &self.cancel,
        };
        if let Some((executable, boundary)) = &mut self.head {
            let inputs = executable_inputs(executable, graph, bound)?;
            let values = executable.run(&inputs).map_err(|d| *d)?;
            let values = values.items().map(<[Value]>::to_vec).unwrap_or_default();
            computed.values = boundary.iter().copied().zip(values).collect();
            let tail = &self.tail.nodes;
            computed.skip = graph
                .iter()
                .filter(|n| graph[*n].op() == Opcode::CallFunction && !tail.contains(n))
                .collect();
        }
        interpreter.run_with(bound.values.clone(), &mut computed)
    }
}

#[cfg(test)]
mod tests {
    use crate::driver::{Dims, Fill, Function, Given, Provided, Request, Session, bind, fill};
    use crate::types::{DType, Val};

    /// Node ids of each graph start at zero: those of `more` equal ids of nodes that the head computed.
    #[test]
    fn called_graphs_compute_their_own_nodes() {
        let text = "graph main {
                %x : f32[2, 2] = placeholder x
                %a = call_function torch.relu(%x)
                %b = call_function torch.mul(%a, 2.0)
                %i = call_function torch.nonzero(%b)
                %n = call_function torch.sum(%i)
                %p = call_function operator.gt(%n, 0)
                %y = call_function torch.cond(%p, @more, @less, (%i,))
                output (%b, %y)
            }
            graph more {
                %i = placeholder i
                %j = call_function torch.add(%i, 1)
                %k = call_function torch.mul(%j, 3)
                output (%k,)
            }
            graph less { %i = placeholder i  output (%i,) }";
        let mut s = Session::new();
        let Ok(model) = s.load_text("test", text) else {
            panic!("{:?}", s.diagnostics);
        };
        let given = Provided {
            name: "x".into(),
            given: Given::Value(Val::Leaf(fill::filled_tensor(DType::F32, &[2, 2], Fill::Arange))),
            origin: "the test".into(),
            must_match: true,
        };
        let (bound, found) = bind::bind_inputs(&model.module, vec![given], Dims::new());
        let bound = bound.unwrap_or_else(|| panic!("{found:?}"));
        let called = Function::new(model, Request::default()).call(&mut s, &bound);
        let result = called.unwrap_or_else(|_| panic!("{:?}", s.diagnostics)).result;
        assert!(s.diagnostics.iter().any(|d| d.title.contains("run in the interpreter")));
        let leaves = result.leaves();
        let numbers = |i: usize| {
            (0..leaves[i].numel())
                .map(|k| leaves[i].get(k).to_f64())
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(0), [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(numbers(1), [3.0, 6.0, 6.0, 3.0, 6.0, 6.0]);
    }
}
