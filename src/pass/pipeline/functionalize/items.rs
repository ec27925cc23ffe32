//! Items of values that are tuples or lists. A tuple holds its items: a write to an item shows in every other use of it, and
//! in the tuple.

use super::write::replace_node;
use super::{Functionalize, written_at};
use crate::graph::{Arg, Graph, InsertPoint, NodeId};
use crate::pass::build::{GraphBuilder, item_index};
use crate::types::Val;

impl Functionalize<'_> {
    /// Replaces a node that takes an item by the first one that does. Returns whether it did.
    pub(super) fn replace_known_item(&mut self, graph: &mut Graph, n: NodeId) -> bool {
        let same = self.same_item(graph, n);
        if let Some(same) = same {
            replace_node(graph, n, &Val::Leaf(same));
        }
        same.is_some()
    }

    /// The earlier node that takes the same item as `n`, if `n` takes an item. The first such node is remembered.
    fn same_item(&mut self, graph: &Graph, n: NodeId) -> Option<NodeId> {
        let sequence = *graph[n].args().first()?.as_leaf()?;
        let length = graph[sequence].meta.ty.as_ref()?.items()?.len() as i64;
        let index = item_index(graph, n, sequence)?;
        let index = if index < 0 { index + length } else { index };
        let items = self.items.entry(sequence).or_default();
        let earlier = items.iter().find(|(i, _)| *i == index).map(|(_, m)| *m);
        if earlier.is_none() {
            items.push((index, n));
        }
        earlier
    }

    /// Replaces operands of `n` that are tuples with a written item by tuples of their items.
    pub(super) fn spread_written(&mut self, graph: &mut Graph, n: NodeId) {
        for i in graph[n].inputs() {
            if item_index(graph, n, i).is_none()
                && let Some(value) = self.written_items(graph, i, n)
            {
                graph.map_args(n, |m| if m == i { value.clone() } else { Val::Leaf(m) });
            }
        }
    }

    /// The items of a tuple, if one of them was written.
    fn written_items(&self, graph: &mut Graph, sequence: NodeId, user: NodeId) -> Option<Arg> {
        let known = self.items.get(&sequence)?;
        let inner = known.iter().map(|(i, m)| (*i, *m, self.written_items(graph, *m, user)));
        let known: Vec<(i64, NodeId, Option<Arg>)> = inner.collect();
        if !known.iter().any(|(_, m, inner)| inner.is_some() || self.is_stale(*m)) {
            return None;
        }
        let mut all = written_at(
            graph,
            sequence,
            InsertPoint::Before(user),
            |b: &mut GraphBuilder<'_>| b.items(sequence),
        );
        let (Val::Tuple(items) | Val::List(items)) = &mut all else {
            return None;
        };
        for (i, m, inner) in known {
            if let Some(item) = usize::try_from(i).ok().and_then(|i| items.get_mut(i)) {
                *item = inner.unwrap_or(Val::Leaf(m));
            }
        }
        Some(all)
    }

    /// Whether a later node has the value that `n` has after a write.
    fn is_stale(&self, n: NodeId) -> bool {
        let moved = |p: &super::ViewPlace| self.roots[&p.root].version != p.version;
        self.newest.contains_key(&n) || self.places.get(&n).is_some_and(moved)
    }
}
