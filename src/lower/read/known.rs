//! Calls whose op and types are those of an earlier call in the graph. Most nodes are such calls, and need no types of their own.

use super::GraphReader;
use super::build::is_by_types;
use crate::graph::{Arg, Node, NodeId};
use crate::lower::ir::ValueId;
use crate::lower::ir::known::{CallKey, begin_key, begin_node, encode_arg, encode_keyword, encode_type};
use crate::op::{MemoryUse, Op, OpError, OpResult};
use crate::types::{Dim, Val};

impl GraphReader<'_> {
    /// The key of a node that calls an op whose definition the types determine.
    pub(super) fn node_key(&self, n: NodeId, op: Option<&'static Op>) -> Option<CallKey> {
        let op = op.filter(|op| is_by_types(op) && op.facts.memory != MemoryUse::Window)?;
        let is_folded = self.depth == 0 && self.binding.sized.is_some_and(|s| s.is_folded(n));
        if is_folded {
            return None;
        }
        let node = &self.graph[n];
        let mut words = begin_key(op);
        begin_node(&mut words);
        for a in node.args() {
            self.encode_node_arg(a, &mut words)?;
        }
        for (name, a) in node.kwargs() {
            encode_keyword(op.schema.index_of(name)?, &mut words);
            self.encode_node_arg(a, &mut words)?;
        }
        Some(words)
    }

    fn encode_node_arg(&self, a: &Arg, words: &mut CallKey) -> Option<()> {
        let mut value = |v: &ValueId, words: &mut CallKey| {
            let d = self.tir.value(*v);
            encode_type(d.dtype, &d.shape, words);
            Some(())
        };
        let mut leaf = |n: &NodeId, words: &mut CallKey| {
            let known = self.env[*n].as_ref()?;
            encode_arg(known, words, &mut value, &Dim::as_const)
        };
        encode_arg(a, words, &mut leaf, &|d| self.bind(d).ok())
    }

    /// The value of a node with the key of an earlier one.
    pub(super) fn read_known_call(&mut self, n: NodeId, op: &Op, key: &CallKey) -> Option<OpResult<Val<ValueId>>> {
        let meaning = self.tir.known.meaning(key)?;
        let (node, env) = (&self.graph[n], &self.env);
        let operand = |i: usize| {
            let leaf = argument(node, op, i).and_then(Val::as_leaf);
            let value = leaf.and_then(|n| env[*n].as_ref()).and_then(Val::as_leaf);
            value
                .copied()
                .ok_or_else(|| OpError::refused(format!("`{}` requires a tensor here", op.name)))
        };
        Some(self.tir.push_known(&meaning, operand).map(Val::Leaf))
    }
}

/// The argument of a parameter.
fn argument<'a>(node: &'a Node, op: &Op, i: usize) -> Option<&'a Arg> {
    let keyword = || {
        let name = &op.schema.params.get(i)?.name;
        node.kwargs().iter().find(|(k, _)| **k == **name).map(|(_, v)| v)
    };
    node.args().get(i).or_else(keyword)
}
