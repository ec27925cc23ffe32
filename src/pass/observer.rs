//! What a pass did to a graph, node by node: torch's `GraphTransformObserver`.

use crate::graph::{Edit, Graph, NodeId};
use std::collections::HashMap;
use std::sync::Arc;

/// Watches one pass over one graph. While it watches, the graph writes its edits down.
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
pub struct Transformed {
    /// The pass.
    pub pass: String,
    /// Nodes that were made and are still there, in the order of their making.
    pub created: Vec<String>,
    /// Nodes of the graph before that are gone.
    pub erased: Vec<String>,
    /// `(user, old, new)`: the user reads the new node where it read the old one.
    pub replaced: Vec<(String, String, String)>,
    /// The graph before, for a drawing or a difference.
    pub before: Graph,
}

impl GraphTransformObserver {
    /// Watches `graph` from now on; `pass` is what is about to change it.
    pub fn start(graph: &mut Graph, pass: &str) -> GraphTransformObserver {
        let before = graph.clone();
        graph.start_journal();
        GraphTransformObserver {
            pass: pass.into(),
            names: before.iter().map(|n| (n, before[n].name().to_string())).collect(),
            before,
        }
    }

    /// What was done since. New nodes that say nothing of where they come from name the pass (torch's `from_node`).
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
