//! Merges products of one matrix with several weights into one product with the weights side by side.
//!
//! `linear(x, w1, b1)`, `linear(x, w2, b2)` of constant weights become one `linear` whose result is split: one pass
//! over `x`, and one larger product, which uses more of the machine. The weights are joined at compile time. Every
//! element is the same sum as before.
//!
#![doc = include_str!("../examples/merge-matmul.md")]

use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, InsertPoint, NodeId, Opcode};
use crate::op::OpId;
use crate::pass::build::{NodeOrigin, full_args};
use crate::pass::{PassContext, canonical_op, each_graph};
use crate::tensor::Tensor;
use crate::types::{TensorType, Val};
use std::collections::HashMap;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    each_graph(module, |module, graph| {
        let mut groups: Vec<Vec<Linear>> = vec![];
        let mut known: HashMap<(NodeId, bool), usize> = HashMap::new();
        for n in graph.ids() {
            let Some(l) = Linear::from_node(module, graph, n) else {
                continue;
            };
            let key = (l.input, l.bias.is_some());
            let group = *known.entry(key).or_insert(groups.len());
            match groups.get_mut(group) {
                Some(g) => g.push(l),
                None => groups.push(vec![l]),
            }
        }
        let mut changed = 0;
        for g in groups {
            changed += merge_products(module, graph, &g).is_some() as usize;
        }
        Ok(changed)
    })
}

/// A product with constant weights.
pub(in crate::pass) struct Linear {
    pub(in crate::pass) node: NodeId,
    pub(in crate::pass) input: NodeId,
    pub(in crate::pass) weight: Tensor,
    pub(in crate::pass) bias: Option<Tensor>,
}

impl Linear {
    /// Reads node `n` as a product.
    pub(in crate::pass) fn from_node(module: &GraphModule, graph: &Graph, n: NodeId) -> Option<Linear> {
        let op = canonical_op(graph, n).filter(|op| op.is(OpId::Linear))?;
        let args = full_args(op, graph, n).ok()?;
        let input = *args.first()?.as_leaf()?;
        let constant = |i: usize| -> Option<Tensor> {
            let node = &graph[*args.get(i)?.as_leaf()?];
            let attribute = (node.op() == Opcode::GetAttr).then(|| module.attributes.get(node.target()))??;
            attribute.value.clone()
        };
        let weight = constant(1).filter(|w| w.rank() == 2)?;
        let bias = match args.get(2) {
            None | Some(Val::None) => None,
            Some(_) => Some(constant(2)?),
        };
        Some(Linear {
            node: n,
            input,
            weight,
            bias,
        })
    }
}

fn merge_products(module: &mut GraphModule, graph: &mut Graph, group: &[Linear]) -> Option<()> {
    let (first, rest) = group.split_first()?;
    let same = |l: &Linear| l.weight.dtype() == first.weight.dtype() && l.weight.shape()[1] == first.weight.shape()[1];
    if rest.is_empty() || !rest.iter().all(same) {
        return None;
    }
    let ty = graph[first.node].meta.ty.as_ref()?.as_leaf()?.clone();
    let sizes: Vec<usize> = group.iter().map(|l| l.weight.shape()[0]).collect();
    let total = sizes.iter().try_fold(0usize, |a, b| a.checked_add(*b))?;
    let weights: Vec<&Tensor> = group.iter().map(|l| &l.weight).collect();
    let weight = concat_tensors(&weights, &[total, first.weight.shape()[1]])?;
    let biases: Option<Vec<&Tensor>> = group.iter().map(|l| l.bias.as_ref()).collect();
    let bias = match &biases {
        Some(b) => Some(concat_tensors(b, &[total])?),
        None => None,
    };
    let types: Option<Vec<TensorType>> = sizes.iter().map(|&n| with_features(&ty, n)).collect();
    let (types, whole) = (types?, with_features(&ty, total)?);
    let source = NodeOrigin::from_node(graph, first.node, "merge-matmul");
    let before = graph.insert_point();
    graph.set_insert_point(InsertPoint::Before(first.node));
    let mut args = vec![Val::Leaf(first.input)];
    let constants = [("_merged_weight", Some(weight)), ("_merged_bias", bias)];
    for (hint, value) in constants.into_iter().filter_map(|(hint, v)| Some((hint, v?))) {
        let ty = Val::Leaf(value.ty());
        let n = graph.get_attr(&module.add_constant(hint, value));
        source.mark(graph, n, ty);
        args.push(Val::Leaf(n));
    }
    let product = graph.call_op(OpId::Linear, args);
    source.mark(graph, product, Val::Leaf(whole));
    let list = Val::List(sizes.iter().map(|&n| Val::int(n as i64)).collect());
    let args = vec![Val::Leaf(product), list, Val::int(-1)];
    let split = graph.call_op(OpId::SplitWithSizes, args);
    source.mark(graph, split, Val::List(types.iter().cloned().map(Val::Leaf).collect()));
    replace_by_parts(graph, group, split, types);
    graph.set_insert_point(before);
    Some(())
}

/// The type with `n` features, its last dimension.
fn with_features(ty: &TensorType, n: usize) -> Option<TensorType> {
    let mut t = ty.clone();
    *t.shape.as_mut()?.last_mut()? = n.into();
    Some(t)
}

/// Replaces each product of a group by its part of `split`.
fn replace_by_parts(graph: &mut Graph, group: &[Linear], split: NodeId, types: Vec<TensorType>) {
    for (i, (l, ty)) in group.iter().zip(types).enumerate() {
        let args = vec![Val::Leaf(split), Val::int(i as i64)];
        let item = graph.call_op(OpId::ItemOf, args);
        NodeOrigin::from_node(graph, l.node, "merge-matmul").mark(graph, item, Val::Leaf(ty));
        graph.replace_all_uses_with(l.node, item);
    }
    for l in group {
        // All its uses were replaced, so erasing it cannot fail.
        let _ = graph.erase_node(l.node);
    }
}

/// Concatenates tensors of one dtype to one of `shape`.
pub(in crate::pass) fn concat_tensors(parts: &[&Tensor], shape: &[usize]) -> Option<Tensor> {
    let dtype = parts.first()?.dtype();
    crate::tensor::byte_len(dtype, shape)?;
    let mut out = Tensor::zeros(dtype, shape);
    let mut offset = 0;
    let bytes = out.bytes_mut();
    for p in parts {
        let b = p.bytes();
        bytes.get_mut(offset..offset + b.len())?.copy_from_slice(b);
        offset += b.len();
    }
    Some(out)
}
