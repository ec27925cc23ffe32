//! Removes ops that return their operand.
//!
//! Only rewrites that change no bit: `x + 0` stays, because -0.0 + 0 is 0.0. Casts to the same type, copies and dropout
//! in evaluation are rules (`rules/identities.fxir`). Index maps show which views move nothing. Assertions that
//! inference has proved are removed too.
//!
#![doc = include_str!("../examples/identities.md")]

use super::simplify;
use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, NodeId};
use crate::op::view::DimMap;
use crate::op::{Call, Op, OpId, Sizes};
use crate::pass::{PassContext, canonical_op, each_graph};
use crate::rewrite;
use crate::types::{Dim, TensorType, Val};

/// See the module.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    let report = rewrite::rewrite(module, simplify::identity_rules(), &rewrite::RewriteOptions::default())?;
    let views = each_graph(module, |_, graph| {
        let mut changed = 0;
        for n in graph.ids() {
            let Some(op) = canonical_op(graph, n) else { continue };
            if is_checked(graph, n, op) {
                changed += graph.erase_node(n).is_ok() as usize;
            } else if let Some(x) = identity_operand(graph, n, op) {
                graph.replace_all_uses_with(n, x);
                changed += graph.erase_node(n).is_ok() as usize;
            }
        }
        Ok(changed)
    })?;
    Ok(report.total() + views)
}

/// The first argument, if the node is a view that returns all of it unchanged.
fn identity_operand(graph: &Graph, n: NodeId, op: &'static Op) -> Option<NodeId> {
    let x = *graph[n].args().first()?.as_leaf()?;
    let (ty, from) = (
        graph[n].meta.ty.as_ref()?.as_leaf()?,
        graph[x].meta.ty.as_ref()?.as_leaf()?,
    );
    if ty != from || !ty.has_known_sizes() {
        return None;
    }
    let args = crate::pass::build::full_args(op, graph, n).ok()?;
    same_view(graph, op, &args).then_some(x)
}

/// Whether a view leaves every element in its place.
fn same_view(graph: &Graph, op: &'static Op, args: &[crate::graph::Arg]) -> bool {
    let Some(rule) = op.view else { return false };
    let ty = |n: NodeId| graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
    let call: Call<TensorType> = Call {
        op,
        args: args.iter().map(|a| crate::infer::arg_type(a, &ty)).collect(),
    };
    // The shapes are equal, so a reshape moves nothing.
    rule(&call, &mut Sizes::default()).is_ok_and(|v| match &v.map {
        DimMap::Reshape => true,
        DimMap::Affine(map) => map.iter().enumerate().all(|(d, x)| {
            // A dim of size 1 has one element, whether its index is used or (by `expand`) ignored.
            let single = v.shape.get(d) == Some(&Dim::Const(1));
            x.offset == Dim::Const(0) && (single || x.terms == [(d, 1)])
        }),
        DimMap::Strided { .. } => false,
    })
}

/// Whether the node only asserts what inference has already proved.
fn is_checked(graph: &Graph, n: NodeId, op: &Op) -> bool {
    let unused = graph[n].users().len() == 0;
    match op.id() {
        // The op's rule has compared the known sizes, but not sizes that depend on values.
        Some(OpId::_AssertTensorMetadata) => unused && has_shape(graph, n),
        Some(OpId::_AssertScalar) => unused && matches!(graph[n].args().first(), Some(Val::Bool(true))),
        _ => false,
    }
}

/// Whether the first argument is a tensor of known shape.
fn has_shape(graph: &Graph, n: NodeId) -> bool {
    let first = graph[n].args().first().and_then(Val::as_leaf);
    let ty = first.and_then(|x| graph[*x].meta.ty.as_ref()?.as_leaf());
    ty.is_some_and(TensorType::has_known_sizes)
}
