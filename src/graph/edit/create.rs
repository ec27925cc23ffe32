//! Node creation at the insert point with a unique name, as in torch's `Graph.create_node` and `inserting_before`.

use super::{EditResult, GraphError};
use crate::graph::{Arg, Edit, Graph, InsertPoint, Node, NodeId, Opcode, namer};
use crate::op::OpId;
use indexmap::IndexSet;
use std::sync::Arc;

impl Graph {
    /// Adds a node at the insertion point. `name` is a suggestion: torch's rules make it unique.
    pub fn create_node(
        &mut self,
        op: Opcode,
        target: &str,
        args: Vec<Arg>,
        kwargs: Vec<(Arc<str>, Arg)>,
        name: Option<&str>,
    ) -> NodeId {
        let candidate = match name {
            Some(n) => n.to_string(),
            None => namer::candidate_name(target, op == Opcode::CallFunction),
        };
        let name = self.namer.create(&candidate);
        self.push(op, target, args, kwargs, name)
    }

    /// Adds a node at the insertion point with exactly this name, as a file gives it. Fails if the name is taken.
    pub fn create_named(
        &mut self,
        op: Opcode,
        target: &str,
        args: Vec<Arg>,
        kwargs: Vec<(Arc<str>, Arg)>,
        name: &str,
    ) -> EditResult<NodeId> {
        if !self.namer.reserve(name) {
            return Err(GraphError(format!("Node redefined name {name}!")));
        }
        Ok(self.push(op, target, args, kwargs, name.to_string()))
    }

    fn push(&mut self, op: Opcode, target: &str, args: Vec<Arg>, kwargs: Vec<(Arc<str>, Arg)>, name: String) -> NodeId {
        let id = self.nodes.push(Node {
            name,
            op,
            target: target.into(),
            args,
            kwargs,
            users: IndexSet::new(),
            prev: None,
            next: None,
            erased: false,
            meta: Default::default(),
        });
        self.add_uses(id);
        self.link(id, self.insert);
        self.record_edit(Edit::Created(id));
        id
    }

    /// Adds a parameter of the graph.
    pub fn placeholder(&mut self, name: &str, default: Option<Arg>) -> NodeId {
        self.create_node(Opcode::Placeholder, name, default.into_iter().collect(), vec![], None)
    }

    /// Adds a read of a parameter, buffer or constant of the module.
    pub fn get_attr(&mut self, path: &str) -> NodeId {
        self.create_node(Opcode::GetAttr, path, vec![], vec![], None)
    }

    /// Adds a call of a function.
    pub fn call_function(&mut self, target: &str, args: Vec<Arg>, kwargs: Vec<(Arc<str>, Arg)>) -> NodeId {
        self.create_node(Opcode::CallFunction, target, args, kwargs, None)
    }

    /// Adds a call of an op of the op table.
    pub fn call_op(&mut self, op: OpId, args: Vec<Arg>) -> NodeId {
        self.call_function(op.name(), args, vec![])
    }

    /// Adds a call of a method of `args[0]`.
    pub fn call_method(&mut self, method: &str, args: Vec<Arg>, kwargs: Vec<(Arc<str>, Arg)>) -> NodeId {
        self.create_node(Opcode::CallMethod, method, args, kwargs, None)
    }

    /// Adds a call of a submodule.
    pub fn call_module(&mut self, path: &str, args: Vec<Arg>, kwargs: Vec<(Arc<str>, Arg)>) -> NodeId {
        self.create_node(Opcode::CallModule, path, args, kwargs, None)
    }

    /// Adds the graph's output.
    pub fn set_output(&mut self, result: Arg) -> NodeId {
        self.create_node(Opcode::Output, "output", vec![result], vec![], None)
    }

    /// Runs `f` with the insertion point before `n`; `None` is the start of the graph.
    pub fn inserting_before<R>(&mut self, n: Option<NodeId>, f: impl FnOnce(&mut Graph) -> R) -> EditResult<R> {
        if n.is_some_and(|n| !self.is_live(n)) {
            return Err(GraphError("Node to insert before is not in graph.".into()));
        }
        let point = n.or(self.first).map_or(InsertPoint::End, InsertPoint::Before);
        Ok(self.inserting_at(point, f))
    }

    /// Runs `f` with the insertion point after `n`, in creation order; `None` is the end of the graph.
    pub fn inserting_after<R>(&mut self, n: Option<NodeId>, f: impl FnOnce(&mut Graph) -> R) -> EditResult<R> {
        if n.is_some_and(|n| !self.is_live(n)) {
            return Err(GraphError("Node to insert after is not in graph.".into()));
        }
        let point = n
            .and_then(|n| self.nodes[n].next)
            .map_or(InsertPoint::End, InsertPoint::Before);
        Ok(self.inserting_at(point, f))
    }

    fn inserting_at<R>(&mut self, point: InsertPoint, f: impl FnOnce(&mut Graph) -> R) -> R {
        let before = std::mem::replace(&mut self.insert, point);
        let r = f(self);
        self.insert = before;
        r
    }

    /// The current insertion point.
    pub fn insert_point(&self) -> InsertPoint {
        self.insert
    }

    /// Sets the insertion point.
    pub fn set_insert_point(&mut self, point: InsertPoint) {
        self.insert = point;
    }
}
