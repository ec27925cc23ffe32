//! Finds matrix products with constant weights.

use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::op::OpId;
use crate::pass::build::full_args;
use crate::pass::canonical_op;
use crate::types::{DType, TensorType};
use std::sync::Arc;

/// A product of a computed operand and a constant weight.
pub(super) struct WeightProduct {
    /// The weight's attribute.
    pub path: Arc<str>,
    /// The parameter of the product that the weight is.
    pub operand: usize,
    /// Whether rows of the operand are output features: `[features, inputs]`, as in `linear`. Otherwise they are inputs.
    pub by_features: bool,
    /// Whether rows of the attribute are output features.
    pub stored_by_features: bool,
    /// The type of the attribute.
    pub ty: TensorType,
}

impl WeightProduct {
    /// The parameter of the product that is multiplied by the weight.
    pub(super) fn input(&self) -> usize {
        self.operand - 1
    }

    /// Reads node `n` of a canonical graph as such a product. Weights are matrices of f32, f16 or bf16; views that
    /// transpose them may stand between the attribute and the product.
    pub(super) fn from_node(module: &GraphModule, graph: &Graph, n: NodeId) -> Option<WeightProduct> {
        let op = canonical_op(graph, n)?;
        let (operand, by_features) = match op.id()? {
            OpId::Linear => (1, true),
            OpId::Mm | OpId::Matmul => (1, false),
            OpId::Addmm => (2, false),
            _ => return None,
        };
        let args = full_args(op, graph, n).ok()?;
        let (attribute, transposed) = attribute_of(graph, *args.get(operand)?.as_leaf()?)?;
        let path: Arc<str> = graph[attribute].target().into();
        let ty = module.attributes.get(&path)?.value.as_ref()?.ty();
        let float = matches!(ty.dtype, DType::F32 | DType::F16 | DType::BF16);
        let is_matrix = ty.fixed_shape().is_some_and(|s| s.len() == 2);
        // The attribute must not change between calls.
        (float && is_matrix && !graph.writes_buffer(&path)).then_some(WeightProduct {
            path,
            operand,
            by_features,
            stored_by_features: by_features != transposed,
            ty,
        })
    }
}

/// The `get_attr` node that `n` is or transposes, and whether it is transposed.
fn attribute_of(graph: &Graph, mut n: NodeId) -> Option<(NodeId, bool)> {
    let mut transposed = false;
    while graph[n].op() != Opcode::GetAttr {
        let op = canonical_op(graph, n)?;
        let args = full_args(op, graph, n).ok()?;
        let dims = |values: &[crate::graph::Arg]| -> Option<Vec<i64>> {
            let dim = |v: &crate::graph::Arg| v.as_int().map(|d| d.rem_euclid(2));
            values.iter().map(dim).collect()
        };
        let swaps = match op.id()? {
            OpId::T => true,
            OpId::Transpose => dims(args.get(1..3)?)? != [0, 0] && dims(args.get(1..3)?)? != [1, 1],
            OpId::Permute => dims(args.get(1)?.items()?)? == [1, 0],
            _ => return None,
        };
        transposed ^= swaps;
        n = *args.first()?.as_leaf()?;
    }
    Some((n, transposed))
}
