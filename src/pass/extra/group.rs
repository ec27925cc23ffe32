//! Helpers for merging several nodes of a graph into one: which nodes may merge, and restoring the order afterwards.

use crate::graph::purity::canonical_effect;
use crate::graph::{Graph, GraphModule, NodeId};
use crate::op::Effect;
use crate::pass::canonical_op;
use std::collections::HashSet;

/// Partitions the nodes, in their order, into groups without dependencies within a group. Groups of one are left out.
pub(super) fn independent_groups(graph: &Graph, nodes: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut groups: Vec<Vec<NodeId>> = vec![];
    for &n in nodes {
        let needs = dependencies_of(graph, n);
        match groups.iter_mut().find(|g| !g.iter().any(|m| needs.contains(m))) {
            Some(g) => g.push(n),
            None => groups.push(vec![n]),
        }
    }
    groups.retain(|g| g.len() > 1);
    groups
}

/// All nodes that `n` depends on.
fn dependencies_of(graph: &Graph, n: NodeId) -> HashSet<NodeId> {
    let mut seen = HashSet::new();
    let mut todo = graph[n].inputs();
    while let Some(i) = todo.pop() {
        if seen.insert(i) {
            todo.extend(graph[i].inputs());
        }
    }
    seen
}

/// Whether nodes may be reordered as long as definitions come before uses: at most one of them has an effect.
pub(super) fn is_free(module: &GraphModule, graph: &Graph) -> bool {
    let with_effect = |&n: &NodeId| {
        graph[n].op().is_call()
            && canonical_op(graph, n).is_none_or(|op| canonical_effect(op, graph, n, module) != Effect::Pure)
    };
    graph.iter().filter(with_effect).count() <= 1
}

/// Replaces each node by a value, erases the nodes, and restores a valid order. Returns false if there is none, which
/// cannot happen for nodes that are [`independent_groups`].
pub(super) fn replace_nodes(graph: &mut Graph, nodes: &[NodeId], values: &[NodeId]) -> bool {
    for (&old, &new) in nodes.iter().zip(values) {
        graph.replace_all_uses_with(old, new);
        // All its uses were replaced, so erasing it cannot fail.
        let _ = graph.erase_node(old);
    }
    graph.topological_sort().is_ok()
}
