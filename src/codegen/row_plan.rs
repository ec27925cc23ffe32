//! Decides which kernels run rows in lockstep; [`rows`](super::rows) lowers them.

use super::analysis::body_weight;
use super::lanes::RegisterClass;
use crate::kernel::{Inst, Kernel, Loop, ReduceOp, Stmt};

/// The number of rows that run in lockstep: as many as 32-bit lanes in 128 bits.
pub(super) const ROWS: usize = 4;

/// The maximum length of a row in elements. Four such rows and their results stay in the L1 cache.
const LONGEST: usize = 1024;

/// The maximum total [`body_weight`] of a row's loops. Their code is emitted once for each row.
const HEAVIEST: usize = 96;

/// The minimum number of elements in all rows that justifies the extra code.
const FEWEST: usize = 2048;

/// The number of iterations of the parallel loop that run in lockstep: [`ROWS`] or 1.
pub(super) fn in_step(k: &Kernel) -> usize {
    let enough = |l: &Loop| {
        let longest = inner_loops(l).flat_map(|l| &l.vars).map(|&v| k.extent(v)).max();
        let rows = k.parallel_extent();
        rows >= ROWS && rows.saturating_mul(longest.unwrap_or(0)) >= FEWEST
    };
    match k.parallel_loop() {
        Some(l) if enough(l) && short_rows(k, l) => ROWS,
        _ => 1,
    }
}

/// The loops directly in a loop's body.
pub(super) fn inner_loops(l: &Loop) -> impl Iterator<Item = &Loop> {
    l.body.iter().filter_map(|s| match s {
        Stmt::Loop(l) => Some(l),
        _ => None,
    })
}

/// The bytes of scratch memory that a call of the compiled kernel uses: [`Kernel::scratch_layout`]'s, for each row in
/// lockstep.
pub(super) fn scratch_bytes(k: &Kernel) -> usize {
    k.scratch_layout().1 * in_step(k)
}

/// Whether a parallel loop's iterations are short rows with reductions whose last steps can be merged.
fn short_rows(k: &Kernel, l: &Loop) -> bool {
    let plain = |l: &Loop| {
        let straight = l.body.iter().all(|s| match s {
            Stmt::Loop(_) => false,
            Stmt::Let(_, Inst::Load(_, _, guard)) => guard.is_none(),
            _ => true,
        });
        l.vector && l.carries.is_empty() && straight && l.vars.iter().all(|&v| k.extent(v) <= LONGEST)
    };
    let merged = |l: &Loop| {
        l.reduces
            .iter()
            .any(|r| can_merge_ends(r.op, RegisterClass::from_dtype(k.dtype(r.init[0]))))
    };
    let heavy: usize = inner_loops(l).map(|l| body_weight(&l.body)).sum();
    !l.vector && heavy <= HEAVIEST && inner_loops(l).all(plain) && inner_loops(l).any(merged)
}

/// Whether the last steps of several rows' reductions can be merged.
pub(super) fn can_merge_ends(op: ReduceOp, class: RegisterClass) -> bool {
    op.as_binary().is_some() && class == RegisterClass::F32
}
