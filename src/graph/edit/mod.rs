//! Graph editing: the methods of torch.fx's `Graph` and `Node`, with torch's error texts.

mod clean;
mod create;
mod journal;
mod module;
pub mod transform;

pub use journal::Edit;

use crate::graph::{Arg, Graph, Meta, NodeId, Opcode, namer};
use crate::types::Val;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The position of new nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertPoint {
    /// After the last node.
    #[default]
    End,
    /// Before this node.
    Before(NodeId),
}

/// An edit that would make the graph invalid. The text is torch's if torch has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphError(pub String);

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GraphError {}

/// The result of an edit.
pub type EditResult<T> = Result<T, GraphError>;

/// Edits.
impl Graph {
    /// Erases a node without users.
    pub fn erase_node(&mut self, n: NodeId) -> EditResult<()> {
        if !self.is_live(n) {
            return Err(GraphError(format!(
                "erase_node({}) on an already erased node",
                self.nodes[n].name
            )));
        }
        let node = &self.nodes[n];
        if !node.users.is_empty() {
            let users: Vec<String> = node.users().map(|u| format!("{}: None", self.nodes[u].name)).collect();
            return Err(GraphError(format!(
                "Tried to erase Node {} but it still had {} users in the graph: {{{}}}!",
                node.name,
                users.len(),
                users.join(", ")
            )));
        }
        // The insertion point must remain a live node.
        if self.insert == InsertPoint::Before(n) {
            self.insert = self.nodes[n].next.map_or(InsertPoint::End, InsertPoint::Before);
        }
        self.remove_uses(n);
        self.unlink(n);
        let node = &mut self.nodes[n];
        // The node stays in the arena, so that its id is never reused.
        node.erased = true;
        node.args.clear();
        node.kwargs.clear();
        self.drop_text(n);
        self.record_edit(Edit::Erased(n));
        Ok(())
    }

    /// Makes every user of `old` use `new` instead, and returns the changed users.
    pub fn replace_all_uses_with(&mut self, old: NodeId, new: NodeId) -> Vec<NodeId> {
        self.replace_uses_where(old, new, |_, _| true)
    }

    /// Makes the users of `old` for which `pick` is true use `new` instead, and returns the changed users.
    pub fn replace_uses_where(
        &mut self,
        old: NodeId,
        new: NodeId,
        pick: impl Fn(&Graph, NodeId) -> bool,
    ) -> Vec<NodeId> {
        let users: Vec<NodeId> = self.nodes[old].users().filter(|&u| pick(self, u)).collect();
        for &u in &users {
            self.replace_input_with(u, old, new);
        }
        users
    }

    /// Makes `user` use `new` wherever it used `old`.
    pub fn replace_input_with(&mut self, user: NodeId, old: NodeId, new: NodeId) {
        self.map_args(user, |n| Val::Leaf(if n == old { new } else { n }));
        self.record_edit(Edit::Replaced { user, old, new });
    }

    /// [`Graph::replace_all_uses_with`] that also gives `new` the metadata of `old` (torch's `propagate_meta`). `new`
    /// must not have any yet.
    ///
    /// # Errors
    /// `new` already has metadata.
    pub fn replace_with_meta(&mut self, old: NodeId, new: NodeId) -> EditResult<Vec<NodeId>> {
        if self.nodes[new].meta != Meta::default() {
            return Err(GraphError(
                "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already has .meta \
                 keys"
                .into(),
            ));
        }
        self.nodes[new].meta = self.nodes[old].meta.clone();
        self.take_text(old, new);
        Ok(self.replace_all_uses_with(old, new))
    }

    /// Rebuilds a node's arguments with `f` applied to every node in them.
    pub fn map_args(&mut self, user: NodeId, mut f: impl FnMut(NodeId) -> Arg) {
        // A node may occur in several arguments, so its users cannot be updated argument by argument.
        self.remove_uses(user);
        let map = |v: &Arg, f: &mut dyn FnMut(NodeId) -> Arg| -> Arg {
            let r: Result<Arg, std::convert::Infallible> = v.try_map(&mut |&n| Ok(f(n)));
            match r {
                Ok(v) => v,
            }
        };
        let node = &mut self.nodes[user];
        node.args = node.args.iter().map(|v| map(v, &mut f)).collect();
        node.kwargs = node.kwargs.iter().map(|(k, v)| (k.clone(), map(v, &mut f))).collect();
        self.add_uses(user);
    }

    /// Replaces the positional arguments.
    pub fn set_args(&mut self, n: NodeId, args: Vec<Arg>) {
        self.keep_arg_spans(n, &args);
        self.remove_uses(n);
        self.nodes[n].args = args;
        self.add_uses(n);
    }

    /// Replaces the keyword arguments.
    pub fn set_kwargs(&mut self, n: NodeId, kwargs: Vec<(Arc<str>, Arg)>) {
        self.keep_keyword_spans(n, &kwargs);
        self.remove_uses(n);
        self.nodes[n].kwargs = kwargs;
        self.add_uses(n);
    }

    /// Replaces positional argument `i`.
    pub fn update_arg(&mut self, n: NodeId, i: usize, value: Arg) -> EditResult<()> {
        if i >= self.nodes[n].args.len() {
            return Err(GraphError("tuple index out of range".into()));
        }
        let mut args = self.nodes[n].args.clone();
        args[i] = value;
        self.set_args(n, args);
        Ok(())
    }

    /// Inserts a positional argument before argument `i`.
    pub fn insert_arg(&mut self, n: NodeId, i: usize, value: Arg) -> EditResult<()> {
        if i > self.nodes[n].args.len() {
            return Err(GraphError(format!(
                "insert_args index must be between 0 and len(self.args), got {i}"
            )));
        }
        let mut args = self.nodes[n].args.clone();
        args.insert(i, value);
        self.set_args(n, args);
        Ok(())
    }

    /// Sets the keyword argument `name`, at its position if it is already there.
    pub fn update_kwarg(&mut self, n: NodeId, name: &str, value: Arg) {
        let mut kwargs = self.nodes[n].kwargs.clone();
        match kwargs.iter_mut().find(|(k, _)| &**k == name) {
            Some((_, v)) => *v = value,
            None => kwargs.push((name.into(), value)),
        }
        self.set_kwargs(n, kwargs);
    }

    /// Changes opcode and target but keeps name, arguments and users, to respell a call.
    pub fn set_target(&mut self, n: NodeId, op: Opcode, target: &str) {
        let node = &mut self.nodes[n];
        node.op = op;
        node.target = target.into();
    }

    /// Renames a node; torch's rules make the name unique.
    pub fn rename(&mut self, n: NodeId, candidate: &str) {
        if self.nodes[n].name != candidate {
            self.nodes[n].name = self.namer.create(candidate);
        }
    }

    /// Renames all nodes. `names` must be unique and have a name for each node.
    pub(crate) fn set_names(&mut self, names: impl IntoIterator<Item = (NodeId, String)>) {
        let mut namer = namer::Namer::default();
        for (n, name) in names {
            namer.reserve(&name);
            self.nodes[n].name = name;
        }
        self.namer = namer;
    }

    /// Moves `n` to just before `before` (torch's `before.prepend(n)`).
    pub fn move_before(&mut self, n: NodeId, before: NodeId) {
        if n != before {
            self.unlink(n);
            self.link(n, InsertPoint::Before(before));
        }
    }

    /// Moves `n` to just after `after` (torch's `after.append(n)`).
    pub fn move_after(&mut self, n: NodeId, after: NodeId) {
        if n != after {
            self.unlink(n);
            self.link(n, self.nodes[after].next.map_or(InsertPoint::End, InsertPoint::Before));
        }
    }

    /// Copies a node of another graph to the insertion point, with its arguments mapped by `transform` (torch's
    /// `node_copy`).
    pub fn node_copy(&mut self, from: &Graph, n: NodeId, mut transform: impl FnMut(NodeId) -> Arg) -> NodeId {
        let node = &from[n];
        let map = |v: &Arg, f: &mut dyn FnMut(NodeId) -> Arg| -> Arg {
            let r: Result<Arg, std::convert::Infallible> = v.try_map(&mut |&n| Ok(f(n)));
            match r {
                Ok(v) => v,
            }
        };
        let args = node.args.iter().map(|v| map(v, &mut transform)).collect();
        let kwargs = node
            .kwargs
            .iter()
            .map(|(k, v)| (k.clone(), map(v, &mut transform)))
            .collect();
        let new = self.create_node(node.op, &node.target, args, kwargs, Some(&node.name));
        self.nodes[new].meta = node.meta.clone();
        self.copy_text(from, n, new);
        new
    }

    /// Copies all nodes of another graph except its output to the insertion point (torch's `graph_copy`). `map` has the
    /// values of nodes that are not to be copied (placeholders bound to values of this graph), and receives those of
    /// the copied nodes. Returns the argument of the other graph's output node, in terms of this graph.
    pub fn graph_copy(&mut self, from: &Graph, map: &mut HashMap<NodeId, Arg>) -> EditResult<Option<Arg>> {
        for n in from.iter() {
            if map.contains_key(&n) {
                continue;
            }
            let missing = from[n].inputs().into_iter().find(|i| !map.contains_key(i));
            if let Some(i) = missing {
                return Err(GraphError(format!(
                    "Argument '{}' of Node '{}' was used before it has been defined! Please check that Nodes in the \
                     graph are topologically ordered",
                    from[i].name, from[n].name
                )));
            }
            if from[n].op == Opcode::Output {
                let result = from[n].args.first().unwrap_or(&Val::None);
                let r: Result<Arg, std::convert::Infallible> = result.try_map(&mut |i| Ok(map[i].clone()));
                return Ok(r.ok());
            }
            let new = self.node_copy(from, n, |i| map[&i].clone());
            map.insert(n, Val::Leaf(new));
        }
        Ok(None)
    }
}

/// The linked list and the users.
impl Graph {
    /// Whether `a` comes before `b` (torch's `a < b`). Takes time proportional to their distance.
    pub fn is_before(&self, a: NodeId, b: NodeId) -> bool {
        let (mut from_a, mut from_b) = (self.nodes[a].next, self.nodes[b].next);
        loop {
            match (from_a, from_b) {
                (Some(n), _) if n == b => return true,
                (_, Some(n)) if n == a => return false,
                // The node that reaches the end without meeting the other is the later one, unless they are the same
                // node.
                (None, _) => return false,
                (_, None) => return a != b,
                (Some(x), Some(y)) => (from_a, from_b) = (self.nodes[x].next, self.nodes[y].next),
            }
        }
    }

    /// Whether `n` is a node of this graph that has not been erased.
    pub fn is_live(&self, n: NodeId) -> bool {
        self.nodes.get(n).is_some_and(|n| !n.erased)
    }

    pub(in crate::graph) fn add_uses(&mut self, n: NodeId) {
        for i in self.nodes[n].inputs() {
            self.nodes[i].users.insert(n);
        }
    }

    fn remove_uses(&mut self, n: NodeId) {
        for i in self.nodes[n].inputs() {
            self.nodes[i].users.shift_remove(&n);
        }
    }

    pub(in crate::graph) fn link(&mut self, n: NodeId, point: InsertPoint) {
        let (prev, next) = match point {
            InsertPoint::End => (self.last, None),
            InsertPoint::Before(b) => (self.nodes[b].prev, Some(b)),
        };
        self.nodes[n].prev = prev;
        self.nodes[n].next = next;
        match prev {
            Some(p) => self.nodes[p].next = Some(n),
            None => self.first = Some(n),
        }
        match next {
            Some(x) => self.nodes[x].prev = Some(n),
            None => self.last = Some(n),
        }
        self.len += 1;
    }

    fn unlink(&mut self, n: NodeId) {
        let (prev, next) = (self.nodes[n].prev, self.nodes[n].next);
        match prev {
            Some(p) => self.nodes[p].next = next,
            None => self.first = next,
        }
        match next {
            Some(x) => self.nodes[x].prev = prev,
            None => self.last = prev,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests;
