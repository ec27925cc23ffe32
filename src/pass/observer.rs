//! Records what a pass did to a graph, node by node: torch's `GraphTransformObserver`.

use crate::graph::{Edit, Graph, NodeId};
use std::collections::HashMap;
use std::sync::Arc;

/// Watches one pass over one graph. Meanwhile the graph keeps a journal of its edits.
///
/// ```
/// use fxc::graph::{Graph, Opcode};
/// use fxc::pass::observer::GraphTransformObserver;
/// use fxc::types::Val;
///
/// let mut graph = Graph::trace(&["x"], |t, p| t.function("torch.relu", (&p[0],), &[]) + 1);
/// let observer = GraphTransformObserver::start(&mut graph, "relu-to-gelu");
/// let relu = graph.find("relu").unwrap();
/// let args = graph[relu].args().to_vec();
/// let gelu = graph
///     .inserting_after(Some(relu), |g| g.call_function("torch.nn.functional.gelu", args, vec![]))
///     .unwrap();
/// graph.replace_all_uses_with(relu, gelu);
/// graph.erase_node(relu).unwrap();
///
/// let seen = observer.finish(&mut graph);
/// assert_eq!((seen.created, seen.erased), (vec!["gelu".to_string()], vec!["relu".to_string()]));
/// assert_eq!(seen.replaced, [("add".to_string(), "relu".to_string(), "gelu".to_string())]);
/// assert_eq!(graph[gelu].meta.provenance, ["relu-to-gelu".into()]);
/// ```
pub struct GraphTransformObserver {
    pass: Arc<str>,
    before: Graph,
    names: HashMap<NodeId, String>,
}

/// What a pass did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Transformed {
    /// The pass.
    pub pass: String,
    /// New nodes that still exist, in the order of creation.
    pub created: Vec<String>,
    /// Nodes of the old graph that no longer exist.
    pub erased: Vec<String>,
    /// `(user, old, new)`: `user` reads `new` instead of `old`.
    pub replaced: Vec<(String, String, String)>,
    /// The old graph, for a drawing or a diff.
    pub before: Graph,
}

impl GraphTransformObserver {
    /// Starts watching `graph`; `pass` is the name of the pass that is about to run.
    pub fn start(graph: &mut Graph, pass: &str) -> GraphTransformObserver {
        let before = graph.clone();
        graph.start_journal();
        GraphTransformObserver {
            pass: pass.into(),
            names: before.iter().map(|n| (n, before[n].name().to_string())).collect(),
            before,
        }
    }

    /// Returns the changes since the start. New nodes without provenance get the pass's name as provenance (torch's
    /// `from_node`).
    pub fn finish(self, graph: &mut Graph) -> Transformed {
        let mut out = Transformed {
            pass: self.pass.to_string(),
            ..Transformed::default()
        };
        let journal = graph.take_journal();
        let mut names = self.names;
        for edit in &journal {
            if let Edit::Created(n) = edit
                && graph.is_live(*n)
            {
                names.insert(*n, graph[*n].name().to_string());
            }
        }
        let name = |n: &NodeId| names.get(n).cloned().unwrap_or_else(|| "(gone)".into());
        for edit in journal {
            match edit {
                Edit::Created(n) if graph.is_live(n) => {
                    out.created.push(name(&n));
                    let meta = graph.meta_mut(n);
                    if meta.provenance.is_empty() {
                        meta.provenance.push(self.pass.clone());
                    }
                }
                Edit::Created(_) => {}
                Edit::Erased(n) if self.before.is_live(n) => out.erased.push(name(&n)),
                Edit::Erased(_) => {}
                Edit::Replaced { user, old, new } => out.replaced.push((name(&user), name(&old), name(&new))),
            }
        }
        out.before = self.before;
        out
    }
}
