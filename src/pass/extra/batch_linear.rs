//! Merges small products of equal sizes into one batched product.
//!
//! `linear(x1, w1, b1)`, `linear(x2, w2, b2)` become `baddbmm` of the stacked inputs, weights and biases (Inductor's
//! group batch fusion) if the inputs have one type, the constant weights have one type, and none depends on another.
//! The weights are stacked at compile time. One call then does the work of many, which pays off where each is too small
//! to fill the machine.
//!
#![doc = include_str!("../examples/batch-linear.md")]

use super::group;
use super::merge_matmul::{Linear, concat_tensors};
use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, InsertPoint, NodeId};
use crate::op::emit::list_val;
use crate::op::{Build, OpId, OpResult, Traced};
use crate::pass::build::{GraphBuilder, NodeOrigin};
use crate::pass::{PassContext, each_graph};
use crate::tensor::Tensor;
use crate::types::{TensorType, Val};
use cranelift_entity::EntityRef;
use indexmap::IndexMap;
use std::collections::HashMap;

/// Products with more multiplications than this are large enough on their own.
const MOST: usize = 1 << 20;

/// What the products of a group have in common: the types of input, weight and bias.
type LinearGroupKey = (TensorType, TensorType, Option<TensorType>);

/// See the module.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    each_graph(module, |module, graph| {
        if !group::is_free(module, graph) {
            return Ok(0);
        }
        let mut linears: HashMap<NodeId, Linear> = HashMap::new();
        let mut kinds: IndexMap<LinearGroupKey, Vec<NodeId>> = IndexMap::new();
        for n in graph.iter() {
            if let Some(l) = Linear::from_node(module, graph, n)
                && let Some(kind) = group_key(graph, &l)
            {
                kinds.entry(kind).or_default().push(n);
                linears.insert(n, l);
            }
        }
        let mut changed = 0;
        for nodes in kinds.values() {
            for members in group::independent_groups(graph, nodes) {
                let list: Vec<&Linear> = members.iter().map(|n| &linears[n]).collect();
                let distinct = list.iter().any(|l| l.input != list[0].input);
                // Leave products of the same input to merge-matmul, which merges them without copying the input.
                if distinct && batch_products(module, graph, &list).is_some() {
                    changed += 1;
                }
            }
        }
        Ok(changed)
    })
}

/// The kind of a product that is worth batching.
fn group_key(graph: &Graph, l: &Linear) -> Option<LinearGroupKey> {
    let input = graph[l.input].meta.ty.as_ref()?.as_leaf()?.clone();
    let rows = match input.shape.as_deref()? {
        [rows, _] => rows.as_const().map_or(1, |r| r.max(1) as usize),
        _ => return None,
    };
    let work = l.weight.numel().checked_mul(rows)?;
    (work <= MOST).then(|| (input, l.weight.ty(), l.bias.as_ref().map(Tensor::ty)))
}

fn batch_products(module: &mut GraphModule, graph: &mut Graph, list: &[&Linear]) -> Option<()> {
    let count = list.len();
    let first = list.first()?;
    let [outputs, inputs] = *first.weight.shape() else {
        return None;
    };
    let weights: Vec<&Tensor> = list.iter().map(|l| &l.weight).collect();
    let biases: Option<Vec<&Tensor>> = list.iter().map(|l| l.bias.as_ref()).collect();
    let weight = concat_tensors(&weights, &[count, outputs, inputs])?;
    let bias = match biases {
        Some(b) => Some(concat_tensors(&b, &[count, 1, outputs])?),
        None => None,
    };
    let source = NodeOrigin::from_node(graph, first.node, "batch-linear");
    let before = graph.insert_point();
    graph.set_insert_point(InsertPoint::Before(first.node));
    let mut attribute = |graph: &mut Graph, hint: &str, value: Tensor| {
        let ty = Val::Leaf(value.ty());
        let name = module.add_constant(hint, value);
        let n = graph.get_attr(&name);
        source.mark(graph, n, ty);
        n
    };
    let weight = attribute(graph, "_batched_weight", weight);
    let bias = bias.map(|b| attribute(graph, "_batched_bias", b));
    let xs: Vec<NodeId> = list.iter().map(|l| l.input).collect();
    let mut b = GraphBuilder::new(graph, source, |_| true);
    let products = build_products(&mut b, &xs, weight, bias, count);
    graph.set_insert_point(before);
    let values = products.ok()?;
    for (l, &v) in list.iter().zip(&values) {
        let ty = graph[v].meta.ty.clone()?;
        NodeOrigin::from_node(graph, l.node, "batch-linear").mark(graph, v, ty);
    }
    let nodes: Vec<NodeId> = list.iter().map(|l| l.node).collect();
    group::replace_nodes(graph, &nodes, &values).then_some(())
}

/// The nodes of the products, one for each input.
fn build_products(
    b: &mut GraphBuilder<'_>,
    inputs: &[NodeId],
    weight: NodeId,
    bias: Option<NodeId>,
    count: usize,
) -> OpResult<Vec<NodeId>> {
    let traced = |b: &GraphBuilder<'_>, n: NodeId| b.traced(n).map(Val::Leaf).unwrap_or(Val::Unknown);
    let xs: Vec<Traced> = inputs.iter().filter_map(|&n| b.traced(n)).collect();
    let x = b.call(OpId::Stack, vec![list_val(&xs), Val::int(0)])?;
    let w = traced(b, weight);
    let w = b.call(OpId::Transpose, vec![w, Val::int(1), Val::int(2)])?;
    let y = match bias {
        Some(bias) => {
            let bias = traced(b, bias);
            b.call(OpId::Baddbmm, vec![bias, x, w])?
        }
        None => b.call(OpId::Bmm, vec![x, w])?,
    };
    let mut out = vec![];
    for i in 0..count {
        let item = b.call(OpId::Select, vec![y.clone(), Val::int(0), Val::int(i as i64)])?;
        out.extend(item.as_leaf().map(|t| NodeId::new(t.id as usize)));
    }
    Ok(out)
}
