//! Replaces composite ops by the ops they consist of.
//!
//! Lowering decomposes composites itself, but only those without a kernel. This is for users who want a graph of
//! primitive ops, as `run_decompositions` of `torch.export` returns.
//!
#![doc = include_str!("../examples/decompose.md")]

use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, InsertPoint, NodeId};
use crate::infer;
use crate::op::{Call, Meaning, Op, OpResult};
use crate::pass::build::{GraphBuilder, NodeOrigin, full_args, replace_with_value};
use crate::pass::{canonical_op, each_graph};
use crate::types::Val;

/// Decomposes every composite op of a canonical module for which `keep` is false. Returns how many there were.
pub fn decompose(module: &mut GraphModule, keep: fn(&Op) -> bool) -> Result<usize, Diagnostic> {
    each_graph(module, |module, graph| {
        let mut changed = 0;
        for n in graph.ids() {
            let Some(op) = canonical_op(graph, n).filter(|op| !keep(op)) else {
                continue;
            };
            let done = decompose_node(graph, n, op, keep);
            changed += done.map_err(|e| decompose_error(module, graph, n, e))? as usize;
        }
        Ok(changed)
    })
}

pub(in crate::pass) fn decompose_error(
    module: &GraphModule,
    graph: &Graph,
    n: NodeId,
    e: crate::op::OpError,
) -> Diagnostic {
    match infer::resolve_node(module, graph, n) {
        Ok(r) => infer::op_error(graph, n, &r, e, &|i| graph[i].meta.ty.clone().unwrap_or(Val::Unknown)),
        Err(d) => d,
    }
}

/// Decomposes a node and erases it. Returns false if its op is not composite.
pub fn decompose_node(graph: &mut Graph, n: NodeId, op: &'static Op, keep: fn(&Op) -> bool) -> OpResult<bool> {
    let Meaning::Decompose(f) = op.meaning else {
        return Ok(false);
    };
    let args = full_args(op, graph, n)?;
    // An item of a node's list, or that list rebuilt, cannot be decomposed further.
    let is_list = |n: &NodeId| {
        let ty = graph[*n].meta.ty.as_ref();
        ty.is_none_or(|t| t.as_leaf().is_none() && (*t == Val::Unknown || !t.leaves().is_empty()))
    };
    if args.iter().flat_map(|a| a.leaves()).any(is_list) {
        return Ok(false);
    }
    let point = graph.insert_point();
    graph.set_insert_point(InsertPoint::Before(n));
    let source = NodeOrigin::from_node(graph, n, "decompose");
    let mut b = GraphBuilder::new(graph, source, keep);
    let call = Call {
        op,
        args: args.iter().map(|a| b.trace(a)).collect(),
    };
    let result = f(&mut b, &call);
    graph.set_insert_point(point);
    let value = GraphBuilder::to_arg(&result?);
    replace_with_value(graph, n, &value);
    Ok(graph.erase_node(n).is_ok())
}
