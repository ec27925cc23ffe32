//! Which rows run in step: facts about a kernel that decide how [`rows`](super::rows) writes it.

use super::analysis::body_weight;
use super::lanes::RegisterClass;
use crate::kernel::{Inst, Kernel, Loop, ReduceOp, Stmt};

/// Rows that run in step: as many as a 128-bit part has lanes of 32 bits.
pub(super) const ROWS: usize = 4;

/// The most elements of a row: four rows stay in the first cache with their results.
const LONGEST: usize = 1024;

/// The most [`body_weight`] of all loops of a row together, which is written once for each row.
const HEAVIEST: usize = 96;

/// The fewest elements of all rows that are worth as much code.
const FEWEST: usize = 2048;

/// How many iterations of the parallel loop run in step: [`ROWS`], or one.
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

/// The loops of a loop's body.
pub(super) fn inner_loops(l: &Loop) -> impl Iterator<Item = &Loop> {
    l.body.iter().filter_map(|s| match s {
        Stmt::Loop(l) => Some(l),
        _ => None,
    })
}

/// Bytes of scratch memory that a call of the compiled kernel uses: [`Kernel::scratch_layout`]'s, for each row in step.
pub(super) fn scratch_bytes(k: &Kernel) -> usize {
    k.scratch_layout().1 * in_step(k)
}

/// Whether a parallel loop's iterations are short rows with reductions whose ends can be merged.
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

/// Whether reductions of rows end together.
pub(super) fn can_merge_ends(op: ReduceOp, class: RegisterClass) -> bool {
    op.as_binary().is_some() && class == RegisterClass::F32
}
