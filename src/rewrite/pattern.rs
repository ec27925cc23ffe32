//! A graph in which some placeholders are holes: one side of a rule.

use super::view::{CallView, ViewCallee};
use crate::graph::{Arg, Graph, GraphModule, Node, NodeId, Opcode};
use crate::infer::{self, InferOptions};
use crate::op;
use crate::syntax::ast;
use crate::types::{Type, Val};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// The maximum number of nodes in a pattern. The cost of matching grows with the number of operand orders.
pub(super) const MAX_NODES: usize = 256;

/// What a placeholder of a pattern matches.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Hole {
    /// Any value, of this type if given.
    Value(Type),
    /// Any literal.
    Literal,
    /// Any number of items of a list.
    Rest,
    /// The value of an expression over the other holes.
    Computed(ast::Value),
    /// `%a or %b or 1`: the first of these arguments that matches.
    Either(Vec<Arg>),
}

/// The reason why a graph is not a pattern. The text is torch's if torch has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(pub String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

/// A graph with holes.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The graph; its holes are placeholders.
    pub graph: Graph,
    holes: HashMap<NodeId, Hole>,
    /// The holes and nodes by the names that conditions and the other side of the rule use.
    names: HashMap<Arc<str>, NodeId>,
    /// The results, in order.
    pub outputs: Vec<Arg>,
    /// For each call, the ops that it may be.
    views: HashMap<NodeId, Vec<CallView<NodeId>>>,
    /// The nodes and holes that every match binds.
    always: HashSet<NodeId>,
}

impl Pattern {
    /// Creates a pattern from `graph`. Placeholders that are not in `holes` become `Hole::Value`s.
    pub(super) fn new(graph: Graph, mut holes: HashMap<NodeId, Hole>) -> Pattern {
        let mut names = HashMap::new();
        for n in graph.iter() {
            if graph[n].op() == Opcode::Placeholder {
                let ty = graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
                holes.entry(n).or_insert(Hole::Value(ty));
            }
            names.insert(Arc::from(graph[n].name()), n);
        }
        let result = graph.output().and_then(|o| graph[o].args().first());
        let outputs = match result {
            Some(Val::Tuple(v) | Val::List(v)) => v.clone(),
            Some(v) => vec![v.clone()],
            None => vec![],
        };
        let views = graph
            .iter()
            .filter(|&n| graph[n].op().is_call())
            .map(|n| (n, call_views(&graph, &holes, n)))
            .collect();
        let mut pattern = Pattern {
            graph,
            holes,
            names,
            outputs,
            views,
            always: HashSet::new(),
        };
        pattern.always = pattern.always_bound();
        pattern
    }

    /// Creates a pattern in which placeholders match any value. The graph must not contain unused nodes.
    pub fn from_graph(graph: &Graph) -> Result<Pattern, PatternError> {
        let mut module = GraphModule::new("pattern", graph.clone());
        // Types help to resolve overloads, but a pattern need not have them.
        let _ = infer::infer(&mut module, &InferOptions::default());
        let graph = module.graphs.swap_remove("pattern").unwrap_or_default();
        let p = Pattern::new(graph, HashMap::new());
        match p.fault() {
            Some(e) => Err(e),
            None => Ok(p),
        }
    }

    /// The reason why this side of a rule is invalid, if any.
    pub(super) fn fault(&self) -> Option<PatternError> {
        let err = |s: String| Some(PatternError(s));
        if self.graph.len() > MAX_NODES {
            return err(format!(
                "the pattern has {} nodes; the limit is {MAX_NODES}",
                self.graph.len()
            ));
        }
        None
    }

    /// The reason why this pattern can never match, if any.
    pub(super) fn search_fault(&self) -> Option<PatternError> {
        let err = |s: String| Some(PatternError(s));
        let calls = |a: &Arg| {
            let alternatives = a.as_leaf().map(|&n| self.alternatives(n)).unwrap_or_default();
            !alternatives.is_empty() && alternatives.iter().all(|n| !self.holes.contains_key(n))
        };
        if self.outputs.is_empty() || !self.outputs.iter().all(calls) {
            return err("a pattern's results must be nodes of the pattern".into());
        }
        let used = self.reachable();
        let dead = self
            .graph
            .iter()
            .find(|n| !used.contains(n) && self.graph[*n].op() != Opcode::Output);
        dead.and_then(|n| {
            let name = self.graph[n].name();
            match self.holes.contains_key(&n) {
                true => err(format!("the pattern does not use the parameter `{name}`")),
                false => err(format!("`%{name}` does not contribute to the pattern's result")),
            }
        })
    }

    /// The nodes that the results depend on.
    fn reachable(&self) -> HashSet<NodeId> {
        let mut seen = HashSet::new();
        let mut todo: Vec<NodeId> = self.outputs.iter().flat_map(|a| a.leaves()).copied().collect();
        while let Some(n) = todo.pop() {
            if seen.insert(n) {
                todo.extend(self.graph[n].inputs());
                if let Some(Hole::Either(list)) = self.holes.get(&n) {
                    todo.extend(list.iter().flat_map(|a| a.leaves()).copied());
                }
            }
        }
        seen
    }

    /// The nodes and holes that every match binds, without those that only some alternatives need.
    fn always_bound(&self) -> HashSet<NodeId> {
        let mut bound: HashMap<NodeId, HashSet<NodeId>> = HashMap::new();
        let bound_by = |bound: &HashMap<NodeId, HashSet<NodeId>>, a: &Arg| -> HashSet<NodeId> {
            a.leaves()
                .into_iter()
                .filter_map(|n| bound.get(n))
                .flatten()
                .copied()
                .collect()
        };
        // Alternatives come after their parts, so one pass in order visits operands first.
        for n in self.graph.iter() {
            let mut set = match self.holes.get(&n) {
                Some(Hole::Either(list)) => {
                    let mut each = list.iter().map(|a| bound_by(&bound, a));
                    let first = each.next().unwrap_or_default();
                    each.fold(first, |all, other| &all & &other)
                }
                _ => {
                    let node = &self.graph[n];
                    let args = node.args().iter().chain(node.kwargs().iter().map(|(_, v)| v));
                    args.flat_map(|a| bound_by(&bound, a)).collect()
                }
            };
            set.insert(n);
            bound.insert(n, set);
        }
        self.outputs.iter().flat_map(|a| bound_by(&bound, a)).collect()
    }

    /// The calls and attributes that every match binds.
    pub(super) fn required(&self) -> impl Iterator<Item = NodeId> {
        self.calls().filter(|n| self.always.contains(n))
    }

    /// The holes and nodes that only some matches bind.
    pub(super) fn sometimes_bound(&self) -> impl Iterator<Item = NodeId> {
        self.reachable().into_iter().filter(|n| !self.always.contains(n))
    }

    /// The holes, in the order of the graph.
    pub fn holes(&self) -> impl Iterator<Item = (NodeId, &Hole)> {
        self.graph.iter().filter_map(|n| Some((n, self.holes.get(&n)?)))
    }

    /// The hole for a node, if it is one.
    pub fn hole(&self, n: NodeId) -> Option<&Hole> {
        self.holes.get(&n)
    }

    /// The hole or node with this name. The names of literals include the `$`.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// The name of a hole or node.
    pub fn name(&self, n: NodeId) -> &str {
        self.graph[n].name()
    }

    /// The nodes that are neither holes nor the output.
    pub fn calls(&self) -> impl Iterator<Item = NodeId> {
        let holes = &self.holes;
        let graph = &self.graph;
        graph
            .iter()
            .filter(move |n| !holes.contains_key(n) && graph[*n].op() != Opcode::Output)
    }

    /// The ops that a call may be.
    pub(super) fn views(&self, n: NodeId) -> &[CallView<NodeId>] {
        self.views.get(&n).map_or(&[], Vec::as_slice)
    }

    /// The keys of the callees of the first result.
    pub(super) fn root_keys(&self) -> Vec<Arc<str>> {
        let root = self.outputs.first().and_then(|a| a.as_leaf());
        let nodes = root.map(|&n| self.alternatives(n)).unwrap_or_default();
        let views = nodes.into_iter().flat_map(|n| self.views(n));
        views.map(|v| v.callee.key()).collect()
    }

    /// The nodes that a node can match: itself, or the alternatives of its hole. Literals are omitted.
    fn alternatives(&self, n: NodeId) -> Vec<NodeId> {
        match self.holes.get(&n) {
            Some(Hole::Either(list)) => list.iter().filter_map(|a| a.as_leaf().copied()).collect(),
            _ => vec![n],
        }
    }

    /// Makes the holes of this replacement refer to those of `pattern`, in order.
    pub(super) fn rename_holes(&mut self, pattern: &Pattern) {
        let mine: Vec<NodeId> = self.holes().map(|(n, _)| n).collect();
        let theirs: Vec<Arc<str>> = pattern.holes().map(|(n, _)| pattern.name(n).into()).collect();
        self.names.retain(|_, n| !mine.contains(n));
        for (n, name) in mine.into_iter().zip(theirs) {
            self.names.insert(name, n);
        }
    }

    /// The name in the pattern of a hole of this replacement.
    pub(super) fn outer_name(&self, n: NodeId) -> Option<&str> {
        self.names.iter().find(|(_, m)| **m == n).map(|(k, _)| &**k)
    }
}

/// The ops that a call in a pattern may be, each with one argument per parameter. A hole in place of a list argument
/// matches a list of any length: `$k` in `max_pool2d(%x, $k)` matches `[3, 3]`.
fn call_views(graph: &Graph, holes: &HashMap<NodeId, Hole>, n: NodeId) -> Vec<CallView<NodeId>> {
    let node = &graph[n];
    let ty = |n: NodeId| graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
    let arg_types: Vec<Type> = node.args().iter().map(|a| infer::arg_type(a, &ty)).collect();
    let kwarg_types = node.kwargs().iter();
    let kwarg_types: Vec<(Arc<str>, Type)> = kwarg_types.map(|(k, v)| (k.clone(), infer::arg_type(v, &ty))).collect();
    let types: Vec<(&str, &Type)> = kwarg_types.iter().map(|(k, t)| (&**k, t)).collect();
    let kwargs: Vec<(&str, &Arg)> = node.kwargs().iter().map(|(k, v)| (&**k, v)).collect();
    let whole = |n: &NodeId| holes.get(n).is_some_and(|h| !matches!(h, Hole::Rest));
    let mut out: Vec<CallView<NodeId>> = vec![];
    if node.op() != Opcode::CallModule {
        let path = op::canonical_path(node.target(), node.op() == Opcode::CallMethod);
        for candidate in op::candidates(&path) {
            let Ok(spelling) = candidate.bind(&arg_types, &types, true) else {
                continue;
            };
            let args = spelling.apply_with(node.args(), &kwargs, &whole).args;
            let callee = ViewCallee::Op(spelling.op, spelling.inplace);
            let known = |v: &CallView<NodeId>| v.callee == callee && same_args(&v.args, &args);
            if !out.iter().any(known) {
                out.push(CallView {
                    writes: spelling.inplace,
                    callee,
                    args,
                    kwargs: vec![],
                });
            }
        }
    }
    if out.is_empty() {
        out.push(uninterpreted_view(node));
    }
    out
}

/// The view of a call that is of no known op.
fn uninterpreted_view(node: &Node) -> CallView<NodeId> {
    CallView {
        callee: ViewCallee::Other(node.op(), node.target().into()),
        args: node.args().to_vec(),
        kwargs: node.kwargs().to_vec(),
        writes: false,
    }
}

fn same_args(a: &[Arg], b: &[Arg]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| super::is_same_value(a, b))
}
