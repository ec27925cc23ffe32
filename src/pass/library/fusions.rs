//! Groups of calls that must stay on one device because values that are not tensors pass between them: torch's
//! `FxNetAccFusionsFinder`.
//!
//! A backend that only takes tensors cannot be given half of `size = x.size(0); y = x.view(size, -1)`. Such calls, and
//! the calls on paths between them, form a group. If the backend does not accept a part of a group, it gets none of it.

use crate::graph::{Graph, NodeId};
use crate::types::Val;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The groups of calls among `accepted` that pass values other than tensors between each other, each in graph order.
/// Every node of a group maps to it. The graph's nodes must have types. If a group contains a call that is not in
/// `accepted`, its calls are removed from `accepted`.
///
/// ```
/// use fxc::graph::{Graph, GraphModule, NodeId};
/// use fxc::infer::{InferOptions, infer};
/// use fxc::pass::fusions::acc_fusions;
/// use fxc::types::{DType, TensorType, Val};
///
/// let graph = Graph::trace(&["x"], |t, p| {
///     let relu = t.relu(&p[0]);
///     let size = relu.method("size", (0,));
///     relu.method("reshape", (size, -1)).method("exp", ())
/// });
/// let mut module = GraphModule::new("g", graph);
/// infer(&mut module, &InferOptions::for_inputs(vec![Val::Leaf(TensorType::with_fixed_shape(DType::F32, &[2, 3, 4]))]));
/// let graph = module.entry().unwrap();
/// let mut accepted: Vec<NodeId> = graph.iter().filter(|&n| graph[n].op().is_call()).collect();
/// let groups = acc_fusions(graph, &mut accepted);
/// let names: Vec<&str> = groups[&graph.find("size").unwrap()].iter().map(|&n| graph[n].name()).collect();
/// assert_eq!(names, ["size", "reshape"]);
/// assert!(!groups.contains_key(&graph.find("exp").unwrap()));
/// ```
pub fn acc_fusions(graph: &Graph, accepted: &mut Vec<NodeId>) -> HashMap<NodeId, Arc<Vec<NodeId>>> {
    let order: HashMap<NodeId, usize> = graph.iter().enumerate().map(|(i, n)| (n, i)).collect();
    let mut allowed: HashSet<NodeId> = accepted.iter().copied().collect();
    let mut out = HashMap::new();
    for n in graph.iter().filter(|n| accepted.contains(n)) {
        let seed = graph[n].op().is_call() && allowed.contains(&n) && !gives_tensor(graph, n);
        if !seed || out.contains_key(&n) {
            continue;
        }
        let nodes = FusionGroup::grow_from(graph, &order, n).sorted();
        if nodes.iter().all(|m| allowed.contains(m)) {
            let nodes = Arc::new(nodes);
            nodes.iter().for_each(|&m| _ = out.insert(m, nodes.clone()));
        } else {
            nodes.iter().for_each(|m| _ = allowed.remove(m));
        }
    }
    accepted.retain(|n| allowed.contains(n));
    out
}

/// Whether the result is one tensor (torch asks for `meta["tensor_meta"]`).
fn gives_tensor(graph: &Graph, n: NodeId) -> bool {
    matches!(graph[n].meta.ty, Some(Val::Leaf(_)))
}

/// A group under construction.
struct FusionGroup<'a> {
    graph: &'a Graph,
    order: &'a HashMap<NodeId, usize>,
    /// The position of its first node.
    top: usize,
    /// Its nodes, by position.
    nodes: BTreeSet<(usize, NodeId)>,
}

impl<'a> FusionGroup<'a> {
    /// The group that grows from `seed`: calls that read a value of the group that is not a tensor, calls that compute
    /// such a value for it, and calls on paths between its nodes.
    fn grow_from(graph: &'a Graph, order: &'a HashMap<NodeId, usize>, seed: NodeId) -> FusionGroup<'a> {
        let mut group = FusionGroup {
            graph,
            order,
            top: order[&seed],
            nodes: BTreeSet::from([(order[&seed], seed)]),
        };
        let mut todo = group.nodes.clone();
        while let Some((_, n)) = todo.pop_first() {
            let mut neighbours: Vec<NodeId> = vec![];
            if !gives_tensor(graph, n) {
                neighbours.extend(graph[n].users());
            }
            neighbours.extend(graph[n].inputs().into_iter().filter(|&i| !gives_tensor(graph, i)));
            for m in neighbours.into_iter().filter(|&m| graph[m].op().is_call()) {
                group.add(m, &mut todo);
            }
            for m in group.nodes_between() {
                group.add(m, &mut todo);
            }
        }
        group
    }

    fn add(&mut self, n: NodeId, todo: &mut BTreeSet<(usize, NodeId)>) {
        let entry = (self.order[&n], n);
        if self.nodes.insert(entry) {
            self.top = self.top.min(entry.0);
            todo.insert(entry);
        }
    }

    /// The calls outside of the group on paths that leave the group and return to it.
    fn nodes_between(&self) -> Vec<NodeId> {
        let inside = |n: NodeId| self.nodes.contains(&(self.order[&n], n));
        let last = self.nodes.last().map_or(0, |l| l.0);
        let mut reached: HashSet<NodeId> = HashSet::new();
        let mut open: Vec<NodeId> = self.nodes.iter().map(|(_, n)| *n).collect();
        while let Some(n) = open.pop() {
            let users = self.graph[n].users().filter(|u| self.order[u] < last && !inside(*u));
            open.extend(users.filter(|u| reached.insert(*u)).collect::<Vec<_>>());
        }
        let mut outside: HashSet<NodeId> = HashSet::new();
        let mut open: Vec<NodeId> = self.nodes.iter().map(|(_, n)| *n).collect();
        while let Some(n) = open.pop() {
            let inputs = self.graph[n].inputs().into_iter().filter(|i| reached.contains(i));
            open.extend(inputs.filter(|i| outside.insert(*i)).collect::<Vec<_>>());
        }
        outside.into_iter().collect()
    }

    fn sorted(&self) -> Vec<NodeId> {
        self.nodes.iter().map(|(_, n)| *n).collect()
    }
}
