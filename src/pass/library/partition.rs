//! Groups of nodes that a backend can take as one: torch's `CapabilityBasedPartitioner`.
//!
//! Supported nodes are added to parts one by one, in graph order, as long as no two parts depend on each other. Nodes
//! with effects keep their order, so each counts as depending on the effects before it.

use super::split::{self, GraphPart};
use super::support::Supports;
use crate::graph::{Graph, GraphError, GraphModule, NodeId, Opcode, is_impure};
use crate::op;
use crate::op::OpId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Proposes parts of one graph.
pub struct Partitioner<'a> {
    graph: &'a Graph,
    supported: Supports<'a>,
    /// Whether a part may be a single call (torch's `allows_single_node_partition`).
    pub allow_single_node: bool,
    /// Targets, in any spelling, that do not count as work of a part, such as views. Taking an item never counts.
    pub non_compute_ops: Vec<String>,
    /// Targets of calls that may form a part alone even if `allow_single_node` is off.
    pub allowed_single_node_ops: Vec<String>,
    /// Whether only calls that use each other's results are merged. Otherwise independent parts are merged too.
    pub skip_horizontal_fusion: bool,
    next: HashMap<NodeId, Vec<NodeId>>,
}

/// Parts under construction.
#[derive(Default)]
struct PendingParts {
    of: HashMap<NodeId, usize>,
    members: Vec<Vec<NodeId>>,
}

impl<'a> Partitioner<'a> {
    /// A partitioner of the calls that `supported` accepts. `module` determines which calls of its modules and graphs
    /// have effects.
    pub fn new(
        module: Option<&GraphModule>,
        graph: &'a Graph,
        supported: impl Fn(&Graph, NodeId) -> bool + 'a,
    ) -> Partitioner<'a> {
        let mut next: HashMap<NodeId, Vec<NodeId>> = graph.iter().map(|n| (n, graph[n].users().collect())).collect();
        let effects: Vec<NodeId> = graph
            .iter()
            .filter(|&n| graph[n].op().is_call() && is_impure(graph, n, module))
            .collect();
        for pair in effects.windows(2) {
            next.entry(pair[0]).or_default().push(pair[1]);
        }
        Partitioner {
            graph,
            supported: Box::new(supported),
            allow_single_node: false,
            non_compute_ops: vec![],
            allowed_single_node_ops: vec![],
            skip_horizontal_fusion: false,
            next,
        }
    }

    /// Returns the parts, named `fused_0`, `fused_1`, … in the order of their first nodes.
    pub fn propose(&self) -> Vec<GraphPart> {
        let mut parts = PendingParts::default();
        for n in self.graph.iter() {
            if self.graph[n].op().is_call() && (self.supported)(self.graph, n) {
                self.assign_part(&mut parts, n);
            }
        }
        self.items_to_producers(&mut parts);
        let order: HashMap<NodeId, usize> = self.graph.iter().enumerate().map(|(i, n)| (n, i)).collect();
        let mut lists: Vec<Vec<NodeId>> = parts.members.into_iter().filter(|m| self.is_worth(m)).collect();
        lists.iter_mut().for_each(|l| l.sort_by_key(|n| order[n]));
        lists.sort_by_key(|l| order[&l[0]]);
        let named = lists.into_iter().enumerate();
        named
            .map(|(i, nodes)| GraphPart {
                name: format!("fused_{i}"),
                nodes,
            })
            .collect()
    }

    /// Puts `n` into a new part, which then merges with the parts it may merge with.
    fn assign_part(&self, parts: &mut PendingParts, n: NodeId) {
        let mut part = parts.members.len();
        parts.members.push(vec![n]);
        parts.of.insert(n, part);
        let mut others: Vec<usize> = self.graph[n]
            .inputs()
            .iter()
            .filter_map(|i| parts.of.get(i).copied())
            .collect();
        if !self.skip_horizontal_fusion {
            others.extend(0..part);
        }
        let mut seen = HashSet::new();
        for other in others {
            let free = other != part && seen.insert(other) && !parts.members[other].is_empty();
            if free && !self.makes_cycle(parts, part, other) {
                let (from, to) = (part.max(other), part.min(other));
                let moved = std::mem::take(&mut parts.members[from]);
                moved.iter().for_each(|&m| _ = parts.of.insert(m, to));
                parts.members[to].extend(moved);
                part = to;
            }
        }
    }

    /// Whether merging the two parts creates a cycle: a path leaves them and returns.
    fn makes_cycle(&self, parts: &PendingParts, a: usize, b: usize) -> bool {
        let inside = |n: NodeId| parts.of.get(&n).is_some_and(|p| *p == a || *p == b);
        let members = parts.members[a].iter().chain(&parts.members[b]);
        let mut todo: Vec<NodeId> = members
            .flat_map(|n| &self.next[n])
            .copied()
            .filter(|&n| !inside(n))
            .collect();
        let mut seen: HashSet<NodeId> = HashSet::new();
        let mut entered: HashSet<usize> = HashSet::new();
        while let Some(n) = todo.pop() {
            if inside(n) {
                return true;
            }
            if !seen.insert(n) {
                continue;
            }
            todo.extend(&self.next[&n]);
            if let Some(&p) = parts.of.get(&n)
                && entered.insert(p)
            {
                todo.extend(&parts.members[p]);
            }
        }
        false
    }

    /// Moves the items of a call (if all its users take items) to the part of the call, or out of any part if the call
    /// has none.
    fn items_to_producers(&self, parts: &mut PendingParts) {
        for n in self.graph.iter() {
            let users: Vec<NodeId> = self.graph[n].users().collect();
            if users.is_empty() || !self.graph[n].op().is_call() || !users.iter().all(|&u| self.is_item(u)) {
                continue;
            }
            let home = parts.of.get(&n).copied();
            for u in users {
                let now = parts.of.get(&u).copied();
                if now == home {
                    continue;
                }
                if let Some(p) = now {
                    parts.members[p].retain(|&m| m != u);
                    parts.of.remove(&u);
                }
                if let Some(p) = home {
                    parts.members[p].push(u);
                    parts.of.insert(u, p);
                }
            }
        }
    }

    fn is_item(&self, n: NodeId) -> bool {
        self.is_one_of(n, &["operator.getitem", OpId::ItemOf.name()])
    }

    /// Whether the node calls one of `targets`: as written, or by another spelling of the same op.
    fn is_one_of<S: AsRef<str>>(&self, n: NodeId, targets: &[S]) -> bool {
        let rows = |target: &str, method: bool| -> Vec<&'static str> {
            let readings = op::candidates(&op::canonical_path(target, method));
            readings.iter().map(|c| c.op.name).collect()
        };
        let node = &self.graph[n];
        let own_rows = rows(node.target(), node.op() == Opcode::CallMethod);
        let same = |t: &str| t == node.target() || rows(t, false).iter().any(|r| own_rows.contains(r));
        targets.iter().any(|t| same(t.as_ref()))
    }

    /// Whether a part is worth making: it has more than one call that computes, or may be a single call.
    fn is_worth(&self, nodes: &[NodeId]) -> bool {
        let computes = |&&n: &&NodeId| !self.is_item(n) && !self.is_one_of(n, &self.non_compute_ops);
        let may_be_alone = |n: &NodeId| self.is_one_of(*n, &self.allowed_single_node_ops);
        !nodes.is_empty()
            && (self.allow_single_node || nodes.iter().filter(computes).count() > 1 || nodes.iter().any(may_be_alone))
    }

    /// Removes calls that compute nothing from the start and the end of each part.
    pub fn remove_bookend_non_compute_ops(&self, parts: &mut Vec<GraphPart>) {
        for p in parts.iter_mut() {
            let inside: HashSet<NodeId> = p.nodes.iter().copied().collect();
            let mut gone: HashSet<NodeId> = HashSet::new();
            let idle = |n: NodeId| self.is_one_of(n, &self.non_compute_ops);
            for &n in &p.nodes {
                let open = |i: &NodeId| !inside.contains(i) || gone.contains(i);
                if idle(n) && self.graph[n].inputs().iter().all(open) {
                    gone.insert(n);
                }
            }
            for &n in p.nodes.iter().rev() {
                let open = |u: NodeId| !inside.contains(&u) || gone.contains(&u);
                if idle(n) && self.graph[n].users().all(open) {
                    gone.insert(n);
                }
            }
            p.nodes.retain(|n| !gone.contains(n));
        }
        parts.retain(|p| !p.nodes.is_empty());
    }
}

/// Proposes parts and turns them into graphs (torch's `partition_and_fuse`). Returns the names of the new graphs.
///
/// ```
/// use fxc::graph::{Graph, GraphModule};
/// use fxc::pass::partition::partition_and_fuse;
///
/// let graph = Graph::trace(&["x"], |t, p| {
///     let a = (&p[0] + 1) * 2;
///     t.function("torch.fft.fft", (&a,), &[]) + a
/// });
/// let mut module = GraphModule::new("net", graph);
/// partition_and_fuse(&mut module, "net", |graph, n| graph[n].target().starts_with("operator.")).unwrap();
/// let graph = &module.graphs["net"];
/// let calls = graph.iter().filter(|&n| graph[n].op().is_call()).map(|n| graph[n].target());
/// // The sum needs the transform, and is alone: it is not part.
/// assert_eq!(calls.collect::<Vec<_>>(), ["fused_0", "torch.fft.fft", "operator.add"]);
/// ```
///
/// # Errors
/// There is no graph `name`.
pub fn partition_and_fuse(
    module: &mut GraphModule,
    name: &str,
    supported: impl Fn(&Graph, NodeId) -> bool,
) -> Result<Vec<Arc<str>>, GraphError> {
    let graph = split::find_graph(module, name)?.clone();
    let parts = Partitioner::new(Some(module), &graph, supported).propose();
    split::fuse(module, name, &parts)
}
