//! Merges products of several matrices with one weight into one product of the stacked matrices.
//!
//! This is torch.fx's `merge_matmul`: `matmul(a, w)`, `matmul(b, w)` become `matmul(cat([a, b]), w)`, whose result is
//! split. One product with more rows uses the machine better, and the weight is read once. `linear` with a common
//! weight and bias is merged too. No product may depend on another, and sizes must be known.
//!
#![doc = include_str!("../examples/merge-rows.md")]

use super::group;
use crate::diag::Diagnostic;
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, NodeId};
use crate::op::emit::{ints_val, list_val};
use crate::op::{Build, OpId, OpResult, Traced};
use crate::pass::build::{GraphBuilder, NodeOrigin, full_args};
use crate::pass::{PassContext, canonical_op, each_graph};
use crate::types::{DType, Dim, Val};
use cranelift_entity::EntityRef;
use indexmap::IndexMap;

/// What the products of a group have in common: the op, all arguments but the first, the dtype and all sizes but the
/// first.
type RowGroupKey = (Option<OpId>, Vec<NodeId>, DType, Vec<Dim>);

/// See the module.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    each_graph(module, |module, graph| {
        if !group::is_free(module, graph) {
            return Ok(0);
        }
        let mut kinds: IndexMap<RowGroupKey, Vec<NodeId>> = IndexMap::new();
        for n in graph.iter() {
            if let Some(kind) = group_key(graph, n) {
                kinds.entry(kind).or_default().push(n);
            }
        }
        let mut changed = 0;
        for nodes in kinds.values() {
            for members in group::independent_groups(graph, nodes) {
                changed += merge_products(graph, &members).is_some() as usize;
            }
        }
        Ok(changed)
    })
}

fn group_key(graph: &Graph, n: NodeId) -> Option<RowGroupKey> {
    let op = canonical_op(graph, n).filter(|op| matches!(op.id(), Some(OpId::Linear | OpId::Matmul | OpId::Mm)))?;
    let args = full_args(op, graph, n).ok()?;
    let rest: Option<Vec<NodeId>> = args[1..]
        .iter()
        .filter(|a| !a.is_none())
        .map(|a| a.as_leaf().copied())
        .collect();
    let rest = rest?;
    let rank = |n: NodeId| Some(graph[n].meta.ty.as_ref()?.as_leaf()?.shape.as_ref()?.len());
    let input = graph[*args[0].as_leaf()?].meta.ty.as_ref()?.as_leaf()?;
    let shape = input.shape.as_deref()?;
    let plain = rank(*rest.first()?) == Some(2) && shape.len() >= 2 && shape.iter().all(|d| d.as_const().is_some());
    plain.then(|| (op.id(), rest, input.dtype, shape[1..].to_vec()))
}

fn merge_products(graph: &mut Graph, members: &[NodeId]) -> Option<()> {
    let first = *members.first()?;
    let inputs: Option<Vec<NodeId>> = members.iter().map(|&n| graph[n].args()[0].as_leaf().copied()).collect();
    let inputs = inputs?;
    let rows = |n: NodeId| {
        graph[n]
            .meta
            .ty
            .as_ref()?
            .as_leaf()?
            .shape
            .as_ref()?
            .first()?
            .as_const()
    };
    let sizes: Option<Vec<i64>> = inputs.iter().map(|&n| rows(n)).collect();
    let sizes = sizes?;
    let before = graph.insert_point();
    graph.set_insert_point(InsertPoint::Before(first));
    let rest: Vec<Arg> = graph[first].args()[1..].to_vec();
    let op = canonical_op(graph, first)?;
    let source = NodeOrigin::from_node(graph, first, "merge-rows");
    let mut b = GraphBuilder::new(graph, source, |_| true);
    let products = build_product(&mut b, op, &inputs, &rest, &sizes);
    graph.set_insert_point(before);
    let values = products.ok().filter(|v| v.len() == members.len())?;
    for (&n, &v) in members.iter().zip(&values) {
        let ty = graph[v].meta.ty.clone()?;
        NodeOrigin::from_node(graph, n, "merge-rows").mark(graph, v, ty);
    }
    group::replace_nodes(graph, members, &values).then_some(())
}

/// The nodes of the parts of the merged product.
fn build_product(
    b: &mut GraphBuilder<'_>,
    op: &'static crate::op::Op,
    inputs: &[NodeId],
    rest: &[Arg],
    sizes: &[i64],
) -> OpResult<Vec<NodeId>> {
    let xs: Vec<Traced> = inputs.iter().filter_map(|&n| b.traced(n)).collect();
    let x = b.call(OpId::Cat, vec![list_val(&xs), Val::int(0)])?;
    let mut args = vec![x];
    args.extend(rest.iter().map(|a| b.trace(a)));
    let y = b.call_row(op, args)?;
    let parts = b.call(OpId::SplitWithSizes, vec![y, ints_val(sizes), Val::int(0)])?;
    let leaves = parts.leaves().into_iter();
    Ok(leaves.map(|t| NodeId::new(t.id as usize)).collect())
}
