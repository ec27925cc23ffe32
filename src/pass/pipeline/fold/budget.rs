//! How large folded values may be, and how long it may take to compute them.

use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::tensor::byte_len;
use crate::types::{TensorType, Type};

/// How many times larger than the limit a result may be that replaces a constant.
const REPLACED: usize = 64;
/// How many times larger than the limit all such results together may be, so that a long chain of operations on a large
/// constant is not interpreted for minutes.
const REPLACED_IN_ALL: usize = 1024;
/// The multiplications of all products of large constants: a fraction of a second.
const MULTIPLICATIONS: f64 = 8e9;

/// What may still be folded in a module.
pub(super) struct FoldBudget {
    /// The bytes of a result that replaces nothing.
    pub limit: usize,
    /// The bytes of all larger results.
    bytes: usize,
    multiplications: f64,
}

impl FoldBudget {
    pub(super) fn new(limit: usize) -> FoldBudget {
        FoldBudget {
            limit,
            bytes: limit.saturating_mul(REPLACED_IN_ALL),
            multiplications: MULTIPLICATIONS,
        }
    }

    /// The bytes of a result that takes the place of a constant.
    pub(super) fn for_replacement(&self) -> usize {
        self.limit.saturating_mul(REPLACED).min(self.bytes).max(self.limit)
    }

    /// Whether a node is a product of matrices, or a convolution, that is worth folding although its result is large. Otherwise every call
    /// would compute it: a table of positions times the weights of each layer. The result has at most as many bytes as the operands.
    pub(super) fn folds_product(&self, graph: &Graph, n: NodeId, op: &Op, ty: &TensorType) -> bool {
        let Some([operands, _]) = operand_sizes(graph, n) else {
            return false;
        };
        let size = ty.fixed_shape().and_then(|shape| byte_len(ty.dtype, &shape));
        op.is_contraction()
            && ty.dtype.is_float()
            && size.is_some_and(|size| size as f64 <= operands)
            && multiplications(graph, n, ty).is_some_and(|m| m <= self.multiplications)
    }

    /// Takes what folding a node took from the budget.
    pub(super) fn spend(&mut self, graph: &Graph, n: NodeId, op: &Op, (ty, size): (&TensorType, usize)) {
        if size <= self.limit {
            return;
        }
        self.bytes = self.bytes.saturating_sub(size);
        if op.is_contraction() {
            self.multiplications -= multiplications(graph, n, ty).unwrap_or(0.0);
        }
    }
}

/// The bytes of all operands, and the product of the numbers of elements of the two largest.
fn operand_sizes(graph: &Graph, n: NodeId) -> Option<[f64; 2]> {
    let mut bytes = 0.0;
    let mut counts = vec![];
    for i in graph[n].inputs() {
        let Some(Type::Leaf(ty)) = graph[i].meta.ty.as_ref() else {
            continue;
        };
        let count: f64 = ty.fixed_shape()?.iter().map(|&n| n as f64).product();
        bytes += count * ty.dtype.size() as f64;
        counts.push(count);
    }
    counts.sort_by(f64::total_cmp);
    // A node that is both operands is one input.
    let [a, b] = match counts[..] {
        [.., a, b] => [a, b],
        [a] => [a, a],
        [] => return None,
    };
    Some([bytes, a * b])
}

/// About as many as a product takes: exactly for matrices of sizes m, n and k, whose operands and result have mk, kn and mn elements.
fn multiplications(graph: &Graph, n: NodeId, ty: &TensorType) -> Option<f64> {
    let [_, operands] = operand_sizes(graph, n)?;
    let result: f64 = ty.fixed_shape()?.iter().map(|&n| n as f64).product();
    Some((operands * result).sqrt())
}
