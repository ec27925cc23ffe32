//! Finds the nodes that came from one module or function of the user's program (torch's `get_source_partitions`).
//!
//! A node knows its enclosing modules and the function it was traced from if its file has them: archives of
//! `torch.export`, and graphs traced by fxc.

use crate::graph::{Graph, NodeId, Opcode};
use indexmap::IndexMap;
use std::collections::HashSet;
use std::sync::Arc;

/// The nodes of one module or one call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourcePartition {
    /// The class or function, as requested.
    pub source: Arc<str>,
    /// The module's path, or the function's name with its number.
    pub name: Arc<str>,
    /// The nodes, in order.
    pub nodes: Vec<NodeId>,
    /// The values from outside that they use.
    pub inputs: Vec<NodeId>,
    /// The nodes that others use.
    pub outputs: Vec<NodeId>,
    /// The parameters, buffers and constants that they read.
    pub params: Vec<NodeId>,
}

/// The partitions of each of `sources`: classes (`Linear`, or with the Python module) and functions (`linear`). A node belongs to
/// the innermost module of its stack.
pub fn source_partitions(graph: &Graph, sources: &[&str]) -> IndexMap<Arc<str>, Vec<SourcePartition>> {
    let mut partitions: IndexMap<(Arc<str>, Arc<str>), Vec<NodeId>> = IndexMap::new();
    for n in graph.iter().filter(|&n| graph[n].op().is_call()) {
        let meta = &graph[n].meta;
        for w in sources {
            let module = meta.modules.last().filter(|m| &*m.class == *w || m.class_name() == *w);
            let called = meta.function.as_ref();
            let function =
                called.filter(|(_, qualified)| **qualified == **w || qualified.rsplit('.').next() == Some(w));
            let name = module
                .map(|m| m.path.clone())
                .or_else(|| function.map(|(name, _)| name.clone()));
            if let Some(name) = name {
                partitions.entry((Arc::from(*w), name)).or_default().push(n);
            }
        }
    }
    let mut out: IndexMap<Arc<str>, Vec<SourcePartition>> = IndexMap::new();
    for ((source, name), nodes) in partitions {
        let part = source_partition(graph, source.clone(), name, nodes);
        out.entry(source).or_default().push(part);
    }
    out
}

fn source_partition(graph: &Graph, source: Arc<str>, name: Arc<str>, nodes: Vec<NodeId>) -> SourcePartition {
    let inside: HashSet<NodeId> = nodes.iter().copied().collect();
    let mut seen = HashSet::new();
    let (mut inputs, mut params) = (vec![], vec![]);
    for i in nodes.iter().flat_map(|&n| graph[n].inputs()) {
        if inside.contains(&i) || !seen.insert(i) {
            continue;
        }
        match graph[i].op() {
            Opcode::GetAttr => params.push(i),
            _ => inputs.push(i),
        }
    }
    let is_output = |n: &&NodeId| graph[**n].users().any(|u| !inside.contains(&u));
    let outputs = nodes.iter().filter(is_output).copied().collect();
    SourcePartition {
        source,
        name,
        nodes,
        inputs,
        outputs,
        params,
    }
}

/// Whether a node of `second` uses one of `first` (torch's `check_subgraphs_connected`).
pub fn check_subgraphs_connected(graph: &Graph, first: &SourcePartition, second: &SourcePartition) -> bool {
    let uses = |n: &NodeId| graph[*n].inputs().iter().any(|i| first.nodes.contains(i));
    second.nodes.iter().any(uses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::trace::{Module, Proxy, Tracer};

    struct Block;
    impl Module for Block {
        fn forward(&self, t: &Tracer, p: &[Proxy]) -> Proxy {
            let w = t.attribute("w");
            (&p[0] * &w).method("exp", ())
        }
    }

    #[test]
    fn nodes_stand_with_their_module() {
        let g = Graph::trace(&["x"], |t, p| {
            let a = t.module("a", &Block, p);
            t.module("b", &Block, &[a + 1])
        });
        let found = source_partitions(&g, &["Block"]);
        let [a, b] = &found["Block"][..] else {
            panic!("{found:?}")
        };
        assert_eq!((&*a.name, &*b.name), ("a", "b"));
        let names = |v: &[NodeId]| v.iter().map(|&n| g[n].name()).collect::<Vec<_>>();
        assert_eq!(names(&a.nodes), ["mul", "exp"]);
        assert_eq!((names(&a.inputs), names(&a.params)), (vec!["x"], vec!["w"]));
        assert_eq!(names(&b.outputs), ["exp_1"]);
        assert!(!check_subgraphs_connected(&g, a, b));
        assert!(source_partitions(&g, &["Linear"]).is_empty());
    }
}
