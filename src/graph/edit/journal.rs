//! A journal of edits: which nodes were created, erased and replaced (torch's create, erase and replace hooks).
//!
//! torch calls hooks while the graph changes. Here edits are recorded and read later, so a reader never sees a
//! half-edited graph.

use crate::graph::{Graph, NodeId};

/// One edit of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Edit {
    /// The node was created.
    Created(NodeId),
    /// The node was erased.
    Erased(NodeId),
    /// `user` uses `new` where it used `old`.
    Replaced {
        /// The node whose arguments changed.
        user: NodeId,
        /// What it used.
        old: NodeId,
        /// What it uses now.
        new: NodeId,
    },
}

impl Graph {
    /// Starts to record edits. Discards earlier records.
    pub fn start_journal(&mut self) {
        self.journal = Some(vec![]);
    }

    /// Returns the edits since [`Graph::start_journal`], in order, and stops recording.
    pub fn take_journal(&mut self) -> Vec<Edit> {
        self.journal.take().unwrap_or_default()
    }

    pub(in crate::graph) fn record_edit(&mut self, edit: Edit) {
        if let Some(journal) = &mut self.journal {
            journal.push(edit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Val;

    #[test]
    fn edits_are_written_down_while_asked_for() {
        let mut g = Graph::new();
        let x = g.placeholder("x", None);
        let a = g.call_function("torch.relu", vec![Val::Leaf(x)], vec![]);
        g.set_output(Val::Leaf(a));
        let output = g.output().unwrap();
        g.start_journal();
        let b = g
            .inserting_before(Some(output), |g| {
                g.call_function("torch.exp", vec![Val::Leaf(x)], vec![])
            })
            .unwrap();
        g.replace_all_uses_with(a, b);
        g.erase_node(a).unwrap();
        let replaced = Edit::Replaced {
            user: output,
            old: a,
            new: b,
        };
        assert_eq!(g.take_journal(), [Edit::Created(b), replaced, Edit::Erased(a)]);
        g.erase_node(output).unwrap();
        assert!(g.take_journal().is_empty());
    }
}
