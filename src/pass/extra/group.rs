//! Several nodes of one graph that are to become one: which of them may, and putting the new one in order.

use crate::graph::purity::canonical_effect;
use crate::graph::{Graph, GraphModule, NodeId};
use crate::op::Effect;
use crate::pass::canonical_op;
use std::collections::HashSet;

/// The nodes in groups, in their order, so that none of a group needs another's result. Groups of one are left out.
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

/// Whether nodes may change places as long as definitions stand before uses: at most one of them has an effect.
pub(super) fn is_free(module: &GraphModule, graph: &Graph) -> bool {
    let with_effect = |&n: &NodeId| {
        graph[n].op().is_call()
            && canonical_op(graph, n).is_none_or(|op| canonical_effect(op, graph, n, module) != Effect::Pure)
    };
    graph.iter().filter(with_effect).count() <= 1
}

/// Puts a value in the place of each node, erases the nodes, and brings the graph in order again. False if there is no
/// order, which cannot be for nodes that are [`independent_groups`].
pub(super) fn replace_nodes(graph: &mut Graph, nodes: &[NodeId], values: &[NodeId]) -> bool {
    for (&old, &new) in nodes.iter().zip(values) {
        graph.replace_all_uses_with(old, new);
        // All its uses were replaced.
        let _ = graph.erase_node(old);
    }
    graph.topological_sort().is_ok()
}
