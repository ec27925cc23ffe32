//! The tail of a graph: what depends on sizes that depend on values.

use super::plan::RegionPlan;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::infer::place_note;
use crate::infer::untyped::{self, Untyped};
use crate::types::{Type, Val};
use std::collections::HashSet;

/// The tail of a graph: the nodes whose types depend on values, and all nodes that depend on them.
pub(in crate::driver) struct InterpretedTail {
    nodes: HashSet<NodeId>,
    /// The first node whose type depends on values.
    first: NodeId,
}

impl InterpretedTail {
    /// The tail of a graph whose nodes have types for fixed input sizes, if there is one.
    pub(in crate::driver) fn from_graph(graph: &Graph) -> Option<InterpretedTail> {
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
    pub(in crate::driver) fn whole_graph(graph: &Graph) -> Option<InterpretedTail> {
        let nodes: HashSet<NodeId> = graph.iter().filter(|&n| graph[n].op().is_call()).collect();
        let first = graph.iter().find(|n| nodes.contains(n))?;
        Some(InterpretedTail { nodes, first })
    }

    /// The number of operations in the tail.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The calls before the tail.
    pub(super) fn nodes_before(&self, graph: &Graph) -> HashSet<NodeId> {
        let calls = graph.iter().filter(|n| graph[*n].op() == Opcode::CallFunction);
        calls.filter(|n| !self.nodes.contains(n)).collect()
    }

    /// The regions of the tail of the module's entry graph that are compiled for the sizes that occur.
    pub(in crate::driver) fn regions(&self, module: &GraphModule) -> Option<RegionPlan> {
        RegionPlan::new(module, &self.nodes)
    }

    /// The warning about the tail, which is reported once. `compiled` is the number of its operations in regions.
    pub(in crate::driver) fn warning(&self, graph: &Graph, compiled: usize) -> Diagnostic {
        let node = &graph[self.first];
        let all = graph.iter().filter(|&n| graph[n].op().is_call()).count();
        let part = format!(
            "{} of {all} operations run in the interpreter",
            self.nodes.len() - compiled
        );
        let missing = self.missing_types(graph);
        if !missing.is_empty() {
            let title = format!("{part}, because {}", untyped::what_is_missing(graph, &missing));
            return untyped::explain_missing(graph, &missing, Diagnostic::new(Code::L0003, title));
        }
        let d = Diagnostic::new(Code::L0003, format!("{part} because of data-dependent sizes"))
            .at_opt(node.meta.span, "the first operation with data-dependent sizes");
        let d = place_note(graph, self.first).map_or(d.clone(), |p| d.note(p));
        let d = match compiled {
            0 => d,
            n => d.note(format!("{n} of the operations after it are compiled when they run")),
        };
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
    pub(in crate::driver) fn nothing_compiled(&self, graph: &Graph) -> Diagnostic {
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
    pub(in crate::driver) fn head_graph(&self, graph: &Graph) -> Option<(Graph, Vec<NodeId>)> {
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
pub(super) fn is_fixed(ty: &Type) -> bool {
    match ty {
        Val::Leaf(t) => t.fixed_shape().is_some(),
        Val::Unknown | Val::Any(_) => false,
        Val::Int(d) => d.as_const().is_some(),
        Val::List(v) | Val::Tuple(v) => v.iter().all(is_fixed),
        Val::Dict(v) => v.iter().all(|(_, x)| is_fixed(x)),
        _ => true,
    }
}
