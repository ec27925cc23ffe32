//! The cost model of fusion: what a kernel moves and computes, and how long that takes.
//!
//! The duration of a kernel is the maximum of its memory time and its arithmetic time, plus the launch. Fusing a value
//! into the kernel of its operand saves the bytes of storing and reloading it. Running two independent kernels as one
//! saves a launch, and a read of what both read. The figures are those of one thread of a server of 2023. Decisions
//! depend only on their order of magnitude.

use super::cluster::{Cluster, Level};
use crate::kernel::estimate;
use crate::lower::ir::{Def, Tir, ValueId};
pub(crate) use crate::program::report::{Cost, LAUNCH};
use crate::scalar::{ScalarExpr, ScalarNode, ScalarOp};

/// The value whose buffer an operand reads, looking through views.
pub(in crate::lower) fn base_value(tir: &Tir, mut v: ValueId) -> ValueId {
    while let Def::View { arg, .. } = &tir.value(v).def {
        v = *arg;
    }
    v
}

fn byte_size(tir: &Tir, v: ValueId) -> usize {
    tir.value(v).numel() * tir.value(v).dtype.size()
}

/// The buffers that a cluster reads from outside, and how many bytes of each.
pub(in crate::lower) fn outside_reads(tir: &Tir, c: &Cluster) -> Vec<(ValueId, usize)> {
    let mut out: Vec<(ValueId, usize)> = vec![];
    for m in &c.members {
        for o in tir.operands(m.value) {
            let b = base_value(tir, o);
            // Only the first read of a buffer comes from memory. Later ones hit the cache.
            if c.member(b).is_none() && out.iter().all(|r| r.0 != b) {
                // A broadcast operand has more elements than its buffer, a slice fewer.
                out.push((b, byte_size(tir, o).min(byte_size(tir, b))));
            }
        }
    }
    out
}

/// The cost of a cluster, given which values are `stored`.
pub(in crate::lower) fn cluster_cost(tir: &Tir, c: &Cluster, stored: &dyn Fn(ValueId) -> bool) -> Cost {
    let mut cost = Cost {
        reads: outside_reads(tir, c).iter().fold(0, |n, r| n.saturating_add(r.1)),
        ..Cost::default()
    };
    for m in &c.members {
        match stored(m.value) {
            true => cost.writes = cost.writes.saturating_add(byte_size(tir, m.value)),
            false => cost.kept = cost.kept.saturating_add(byte_size(tir, m.value)),
        }
        let points = match (&tir.value(m.value).def, m.level) {
            (Def::Reduce { arg, .. }, _) => tir.value(*arg).numel(),
            (_, Level::Full | Level::Reduced) => tir.value(m.value).numel(),
        };
        cost.arithmetic += points as f64 * element_cost(tir, m.value) / estimate::LANES;
    }
    cost
}

/// The cost of one element of a value as a scalar, in nanoseconds.
fn element_cost(tir: &Tir, v: ValueId) -> f64 {
    match &tir.value(v).def {
        Def::Pointwise { expr, .. } => expr_cost(expr),
        Def::Reduce { reduction, .. } => 0.25 + expr_cost(&reduction.pre),
        _ => 0.0,
    }
}

fn expr_cost(e: &ScalarExpr) -> f64 {
    let node = |n: ScalarNode| match n {
        ScalarNode::Op(ScalarOp::Unary(op, _)) => estimate::unary_nanoseconds(op),
        ScalarNode::Op(ScalarOp::Binary(op, ..)) => estimate::binary_nanoseconds(op),
        ScalarNode::Arg(_) | ScalarNode::Index(_) => 0.0,
        _ => 0.25,
    };
    e.nodes().map(|(_, n, _)| node(n)).sum()
}
