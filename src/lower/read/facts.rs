//! What reading a graph needs to know of its nodes, whatever the sizes are.

use super::GraphReader;
use crate::graph::{Graph, NodeId, Opcode};
use crate::op::{self, Meaning, Op, OpId};
use crate::types::Val;
use std::sync::Arc;

/// What is known of a node.
#[derive(Clone, Default)]
pub(super) struct NodeFacts {
    pub name: Arc<str>,
    /// The op that it calls.
    pub op: Option<&'static Op>,
    pub users_swap_dims_1_2: bool,
    pub has_demands: bool,
    /// Whether lowering the call does not compute its type by the op's rule.
    pub has_own_rule: bool,
}

impl NodeFacts {
    pub(super) fn of_node(graph: &Graph, n: NodeId) -> NodeFacts {
        let node = &graph[n];
        let is_call = node.op() == Opcode::CallFunction;
        let op = is_call.then(|| op::by_name(node.target())).flatten();
        NodeFacts {
            name: node.name().into(),
            op,
            users_swap_dims_1_2: users_swap_dims_1_2(graph, n),
            has_demands: op.is_some_and(Op::has_demands),
            has_own_rule: op.is_some_and(has_own_rule),
        }
    }
}

impl GraphReader<'_> {
    /// The facts of a node. They are known if the graph is lowered for many sizes.
    pub(super) fn node_facts(&self, n: NodeId) -> NodeFacts {
        match self.binding.sized.filter(|_| self.depth == 0) {
            Some(sized) => sized.facts[n].clone(),
            None => NodeFacts::of_node(self.graph, n),
        }
    }
}

/// Whether the meaning of an op does not compute the result's type by the same rule. Library calls and ops without tensors ask the rule.
fn has_own_rule(op: &Op) -> bool {
    !matches!(
        op.meaning,
        Meaning::Host | Meaning::Pointwise(_) | Meaning::View(_) | Meaning::Reduce(_)
    )
}

/// Whether `n` has users and all of them permute its third dim before the second.
fn users_swap_dims_1_2(graph: &Graph, n: NodeId) -> bool {
    let turns = |u: NodeId| {
        let user = &graph[u];
        let ints = |v: &Val<NodeId>| Some(v.items()?.iter().filter_map(Val::as_int).collect::<Vec<i64>>());
        match (user.op_id(), user.args()) {
            (Some(OpId::Transpose), [_, a, b]) => {
                let mut dims = [a, b].map(|d| d.as_int().map(|d| d.rem_euclid(4)));
                dims.sort();
                dims == [Some(1), Some(2)]
            }
            (Some(OpId::Permute), [_, dims]) => ints(dims).is_some_and(|d| {
                let place = |n: i64| d.iter().position(|&x| x.rem_euclid(4) == n);
                d.len() == 4 && place(2) < place(1)
            }),
            _ => false,
        }
    };
    let mut users = graph[n].users().peekable();
    users.peek().is_some() && users.all(turns)
}
