//! Which vector loops end with a group of iterations with masks ([`tails`](super::tails)).

use super::analysis::body_weight;
use super::row_plan::ROWS;
use super::widen::NEAR;
use crate::kernel::{BufferRole, Inst, Kernel, Loop, Stmt, Var};
use crate::scalar::{Binary, ScalarOp};

/// The number of iterations in a group with masks.
pub(super) const GROUP: usize = 16;

/// The number of instructions from which two iterations are faster as a group with masks than one by one. More iterations always are, a
/// single one never is.
const HEAVY: usize = 12;

/// What a group with masks costs in addition to one without, in groups. Processors that split 64-byte vectors take twice as long for
/// one as for a vector of 32 bytes, of which few could suffice. Where many instructions compute an element, masks cost little.
pub(super) fn mask_cost(l: &Loop) -> usize {
    if body_weight(&l.body) >= HEAVY { 1 } else { 2 }
}

/// Whether the last `count` iterations of a loop, fewer than a group has, are faster as a group with masks.
pub(super) fn is_worth_masks(l: &Loop, count: usize) -> bool {
    match count {
        0 | 1 => false,
        2 => body_weight(&l.body) >= HEAVY,
        _ => count < GROUP,
    }
}

/// Whether the last iterations of a loop can be a group with masks in a kernel of 64-byte vectors.
pub(super) fn can_mask(k: &Kernel, l: &Loop) -> bool {
    // The places of local buffers are constants, which an instruction's offset may include.
    let near = k.scratch_layout().1 * ROWS < NEAR as usize;
    near && !l.parallel && l.reduces.is_empty() && l.carries.is_empty() && is_maskable(k, &l.body, l.vars[0])
}

/// Whether each access that varies over `lane` can have a mask, and no lane faults on zeros.
fn is_maskable(k: &Kernel, body: &[Stmt], lane: Var) -> bool {
    body.iter().all(|s| match s {
        // What was just stored in smaller pieces does not reach a load of a whole vector before it reaches the cache.
        Stmt::Let(_, Inst::Load(b, i, _)) => {
            let buffer = k.buffer(*b);
            i.affine.stride(lane) == 0 || buffer.role == BufferRole::In
        }
        Stmt::Store(_, i, _) => i.affine.stride(lane) == 1,
        Stmt::Let(_, Inst::Op(ScalarOp::Binary(op, x, _))) => {
            let divides = matches!(op, Binary::FloorDiv | Binary::TruncDiv | Binary::Mod | Binary::Fmod);
            !divides || k.dtype(*x).is_float()
        }
        Stmt::Let(_, Inst::Bounded(..)) => false,
        Stmt::Let(..) => true,
        Stmt::Loop(l) => is_maskable(k, &l.body, lane),
    })
}
