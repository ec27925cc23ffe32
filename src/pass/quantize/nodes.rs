//! Changes of the operands of products.

use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, InsertPoint, NodeId};
use crate::pass::build::{NodeOrigin, canonical_args, full_args};
use crate::pass::canonical_op;
use crate::pass::library::decompose::decompose_error;
use crate::types::Val;

/// Runs `insert`, whose nodes come before `n` and originate in it.
pub(super) fn insert_before<R>(graph: &mut Graph, n: NodeId, insert: impl FnOnce(&mut Graph, NodeOrigin) -> R) -> R {
    let origin = NodeOrigin::from_node(graph, n, "quantize");
    let before = graph.insert_point();
    graph.set_insert_point(InsertPoint::Before(n));
    let result = insert(graph, origin);
    graph.set_insert_point(before);
    result
}

/// Argument `i` of call `n`, if it is a node.
pub(super) fn operand(graph: &Graph, n: NodeId, i: usize) -> Option<NodeId> {
    let args = full_args(canonical_op(graph, n)?, graph, n).ok()?;
    args.get(i)?.as_leaf().copied()
}

/// Makes `value` argument `i` of call `n`.
pub(super) fn set_operand(
    module: &GraphModule,
    graph: &mut Graph,
    n: NodeId,
    i: usize,
    value: NodeId,
) -> Result<(), Diagnostic> {
    let Some(op) = canonical_op(graph, n) else {
        return Ok(());
    };
    let mut args = full_args(op, graph, n).map_err(|e| decompose_error(module, graph, n, e))?;
    args[i] = Val::Leaf(value);
    let (positional, kwargs) = canonical_args(op, args);
    graph.set_args(n, positional);
    graph.set_kwargs(n, kwargs);
    Ok(())
}
