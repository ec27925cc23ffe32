//! Which nodes of a tail can be compiled, and in which order they can run.

use crate::graph::purity::node_effect;
use crate::graph::{Graph, GraphModule, Mutation, NodeId, Opcode};
use crate::infer::{call_type, graph_callee, resolve_with};
use crate::op::{self, Effect, Meaning, Sizes};
use crate::types::{Dim, TensorType, Type, Val};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The number of times that regions are formed again without a node that cannot be in one.
const MOST_ROUNDS: usize = 64;

/// A size in place of unknown ones, to see whether a result's sizes follow from those of its operands.
const SAMPLE_SIZE: i64 = 6;

/// How a node of the tail runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// In the interpreter, since its result's type depends on values or it has a side effect.
    Alone,
    /// With operands and a result of known types.
    Known,
    /// With sizes that are known when its operands are.
    Sized,
}

/// The kinds and stages of a tail's nodes.
pub(super) struct NodeKinds {
    /// The nodes of the tail, in the order of the graph.
    pub tail: Vec<NodeId>,
    kinds: HashMap<NodeId, Kind>,
    stages: HashMap<NodeId, usize>,
    /// The nodes that multiply or are compositions of several ops.
    heavy: HashSet<NodeId>,
    /// The nodes with side effects: they draw random numbers or check something, and stay in the order of the graph.
    ordered: HashSet<NodeId>,
    /// The buffers that calls change.
    written: HashSet<Arc<str>>,
}

impl NodeKinds {
    /// The kinds of the nodes of a tail. `None` if a node writes to its operands, so that the order of reads and writes matters.
    pub(super) fn find(module: &GraphModule, graph: &Graph, tail: &HashSet<NodeId>) -> Option<NodeKinds> {
        let buffers = graph.mutations.iter().filter_map(|m| match m {
            Mutation::Buffer(path) => Some(path.clone()),
            _ => None,
        });
        let mut kinds = NodeKinds {
            tail: graph.iter().filter(|n| tail.contains(n)).collect(),
            kinds: HashMap::new(),
            stages: HashMap::new(),
            heavy: HashSet::new(),
            ordered: HashSet::new(),
            written: buffers.collect(),
        };
        for &n in &kinds.tail {
            let effect = node_effect(graph, n, Some(module));
            if effect == Effect::Mutates {
                return None;
            }
            let kind = match effect {
                Effect::Pure => kind_of(module, graph, n),
                _ => {
                    kinds.ordered.insert(n);
                    Kind::Alone
                }
            };
            kinds.kinds.insert(n, kind);
            let meaning = op::by_name(graph[n].target()).map(|op| &op.meaning);
            if matches!(meaning, Some(Meaning::Contract(_) | Meaning::Decompose(_))) {
                kinds.heavy.insert(n);
            }
        }
        kinds.settle(graph);
        Some(kinds)
    }

    pub(super) fn kind(&self, n: NodeId) -> Kind {
        self.kinds[&n]
    }

    pub(super) fn stage(&self, n: NodeId) -> usize {
        self.stages[&n]
    }

    /// Whether one of the nodes multiplies matrices, convolves, or is a composition of several ops.
    pub(super) fn is_heavy(&self, nodes: &[NodeId]) -> bool {
        nodes.iter().any(|n| self.heavy.contains(n))
    }

    /// Whether a node is a constant of the module, which a region reads itself.
    pub(super) fn is_constant(&self, graph: &Graph, n: NodeId) -> bool {
        graph[n].op() == Opcode::GetAttr && !self.written.contains(graph[n].target())
    }

    /// Computes stages, and takes nodes out of regions whose operands or results no region can have, until there are none.
    fn settle(&mut self, graph: &Graph) {
        for _ in 0..MOST_ROUNDS {
            self.compute_stages(graph);
            let groups = self.groups(graph);
            let misfits: Vec<NodeId> = self
                .tail
                .iter()
                .copied()
                .filter(|&n| self.kinds[&n] != Kind::Alone && !self.fits(graph, &groups, n))
                .collect();
            if misfits.is_empty() {
                return;
            }
            for n in misfits {
                self.kinds.insert(n, Kind::Alone);
            }
        }
        self.kinds.values_mut().for_each(|kind| *kind = Kind::Alone);
        self.compute_stages(graph);
    }

    /// Whether what enters and leaves the node's region is tensors, or sizes that enter it.
    fn fits(&self, graph: &Graph, groups: &HashMap<NodeId, usize>, n: NodeId) -> bool {
        let together = |a: NodeId, b: NodeId| groups.get(&a).is_some_and(|g| groups.get(&b) == Some(g));
        let leaf = |n: NodeId| matches!(&graph[n].meta.ty, Some(Val::Leaf(t)) if t.shape.is_some());
        let size = |n: NodeId| matches!(&graph[n].meta.ty, Some(Val::Int(_)));
        let inputs = graph[n].inputs();
        let enter = inputs
            .iter()
            .filter(|&&i| !together(i, n) && !self.is_constant(graph, i));
        let mut users = graph[n].users();
        enter.into_iter().all(|&i| leaf(i) || size(i)) && (leaf(n) || users.all(|u| together(u, n)))
    }

    /// A node's stage: one more than that of an operand from another region. A node with a side effect is in no earlier stage than the
    /// one before it.
    fn compute_stages(&mut self, graph: &Graph) {
        self.stages.clear();
        let mut last_effect = 0;
        for &n in &self.tail {
            let inputs = graph[n].inputs();
            let stages = inputs
                .iter()
                .filter_map(|&i| Some(self.stages.get(&i)? + !self.joins(graph, i, n) as usize));
            let mut stage = stages.max().unwrap_or(0);
            if self.ordered.contains(&n) {
                stage = stage.max(last_effect);
                last_effect = stage;
            }
            self.stages.insert(n, stage);
        }
    }

    /// Whether a node of the tail and its user can be in one region. A result of known type ends a region whose sizes are known
    /// at run time, so that what follows it is compiled once.
    fn joins(&self, graph: &Graph, n: NodeId, user: NodeId) -> bool {
        match (self.kinds.get(&n), self.kinds[&user]) {
            (Some(Kind::Known), Kind::Known) => true,
            (Some(Kind::Sized), Kind::Sized) => !graph[n].meta.ty.as_ref().is_some_and(super::tail::is_fixed),
            _ => false,
        }
    }

    /// The region of each node that is in one: nodes of known types by stage, others with those of their stage that they are
    /// connected to.
    pub(super) fn groups(&self, graph: &Graph) -> HashMap<NodeId, usize> {
        let mut groups = UnionFind::default();
        let mut of_stage: HashMap<usize, NodeId> = HashMap::new();
        for &n in &self.tail {
            match self.kinds[&n] {
                Kind::Alone => {}
                Kind::Known => groups.join(n, *of_stage.entry(self.stages[&n]).or_insert(n)),
                Kind::Sized => {
                    groups.join(n, n);
                    let inputs = graph[n].inputs();
                    let same = |i: &&NodeId| self.stages.get(i) == self.stages.get(&n) && self.joins(graph, **i, n);
                    inputs.iter().filter(same).for_each(|&i| groups.join(i, n));
                }
            }
        }
        groups.numbers()
    }
}

/// The kind of a node without side effects, by its own type and those of its operands.
fn kind_of(module: &GraphModule, graph: &Graph, n: NodeId) -> Kind {
    let node = &graph[n];
    let Some(ty) = node.meta.ty.as_ref().filter(|_| !node.meta.claimed) else {
        return Kind::Alone;
    };
    let is_fixed = |n: NodeId| graph[n].meta.ty.as_ref().is_some_and(super::tail::is_fixed);
    let is_known = is_fixed(n) && node.inputs().iter().all(|&i| is_fixed(i));
    match is_known {
        true if is_value(ty) => Kind::Known,
        false if is_value(ty) && follows_from_operands(module, graph, n) => Kind::Sized,
        _ => Kind::Alone,
    }
}

/// Whether a type is one that compiled code can have as a value: tensors of known rank, sizes, and structures of them.
fn is_value(ty: &Type) -> bool {
    match ty {
        Val::Leaf(t) => t.shape.is_some(),
        Val::Int(_) => true,
        Val::List(v) | Val::Tuple(v) => v.iter().all(is_value),
        _ => false,
    }
}

/// Whether the sizes of a node's result are known when those of its operands are.
fn follows_from_operands(module: &GraphModule, graph: &Graph, n: NodeId) -> bool {
    if graph_callee(module, "", graph, n).is_some() {
        return false;
    }
    let sample = |n: NodeId| graph[n].meta.ty.as_ref().map_or(Val::Unknown, sampled);
    let resolved = resolve_with(module, "", graph, n, &sample);
    let ty = resolved.ok().and_then(|r| call_type(&r, &mut Sizes::default()).ok());
    // An error says that the sample sizes do not fit, so sizes matter.
    ty.is_none_or(|t| super::tail::is_fixed(&t))
}

/// A type with sample sizes in place of those that are unknown.
fn sampled(ty: &Type) -> Type {
    let dim = |d: &Dim| match d.as_const() {
        Some(c) => Dim::Const(c),
        None => Dim::Const(SAMPLE_SIZE),
    };
    match ty {
        Val::Leaf(t) => Val::Leaf(TensorType {
            dtype: t.dtype,
            shape: t.shape.as_ref().map(|s| s.iter().map(dim).collect()),
        }),
        Val::Int(d) => Val::Int(dim(d)),
        Val::List(v) => Val::List(v.iter().map(sampled).collect()),
        Val::Tuple(v) => Val::Tuple(v.iter().map(sampled).collect()),
        other => other.clone(),
    }
}

/// Sets of nodes that are joined one pair at a time.
#[derive(Default)]
struct UnionFind {
    index: HashMap<NodeId, usize>,
    parents: Vec<usize>,
}

impl UnionFind {
    fn join(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.add(a), self.add(b));
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b);
    }

    fn add(&mut self, n: NodeId) -> usize {
        let next = self.parents.len();
        let index = *self.index.entry(n).or_insert(next);
        if index == next {
            self.parents.push(next);
        }
        index
    }

    fn root(&mut self, mut i: usize) -> usize {
        while self.parents[i] != i {
            self.parents[i] = self.parents[self.parents[i]];
            i = self.parents[i];
        }
        i
    }

    /// The number of each node's set.
    fn numbers(mut self) -> HashMap<NodeId, usize> {
        let index = std::mem::take(&mut self.index);
        index.into_iter().map(|(n, i)| (n, self.root(i))).collect()
    }
}
