//! A walk over the vector loops of a kernel, which notes what varies from lane to lane.

use super::analysis::transposed_copy;
use super::masking::{GROUP, can_mask, is_worth_masks, mask_cost};
use crate::kernel::{Buf, Index, Inst, Kernel, Loop, Stmt, Value, Var};
use crate::scalar::{ScalarOp, Unary};
use std::collections::HashSet;

/// What is known of the vector loops seen so far.
pub(super) struct VectorLoops<'a> {
    pub k: &'a Kernel,
    /// The variable of the current vector loop.
    lane: Option<Var>,
    varying: HashSet<Value>,
    extents: Vec<usize>,
    /// For each of them the iterations in which all guarded loads read memory. The others do not run in the same groups.
    inside: Vec<usize>,
    /// What a group with masks costs in addition to one without, in groups, for the loops among them whose last iterations can be one.
    masked: Vec<Option<usize>>,
}

impl<'a> VectorLoops<'a> {
    pub(super) fn new(k: &'a Kernel) -> VectorLoops<'a> {
        VectorLoops {
            k,
            lane: None,
            varying: HashSet::new(),
            extents: vec![],
            inside: vec![],
            masked: vec![],
        }
    }

    /// The extents of the vector loops.
    pub(super) fn extents(&self) -> &[usize] {
        &self.extents
    }

    /// Counts only iterations in which guarded loads read memory from now on.
    pub(super) fn leave_borders_out(&mut self) {
        self.extents.clone_from(&self.inside);
    }

    /// The number of steps of all loops with this many lanes. Iterations that do not fill a vector run one by one.
    pub(super) fn steps(&self, lanes: usize) -> usize {
        self.extents.iter().map(|e| e / lanes + e % lanes).sum()
    }

    /// [`steps`](Self::steps) with 64-byte vectors of 32-bit lanes, and whether some of them have masks.
    pub(super) fn masked_steps(&self) -> (usize, bool) {
        let loops = self.extents.iter().zip(&self.masked);
        let steps = loops.map(|(&e, &masked)| {
            let single = e / GROUP + e % GROUP;
            masked.map_or(single, |cost| single.min(e.div_ceil(GROUP) + cost))
        });
        let rest = |(&e, masked): (&usize, &Option<usize>)| masked.is_some() && !e.is_multiple_of(GROUP);
        (steps.sum(), self.extents.iter().zip(&self.masked).any(rest))
    }

    /// [`steps`](Self::steps) of packed lanes with 64-byte vectors of `lanes` lanes. The last iterations are in lanes of 32 bits.
    pub(super) fn masked_packed_steps(&self, lanes: usize) -> usize {
        let loops = self.extents.iter().zip(&self.masked);
        let steps = loops.map(|(&e, &masked)| {
            let single = e / lanes + e % lanes;
            let with_masks = |cost| single.min(e / lanes + (e % lanes).div_ceil(GROUP) + cost);
            masked.map_or(single, with_masks)
        });
        steps.sum()
    }

    /// Whether the values that an index depends on are the same in all lanes.
    pub(super) fn is_fixed(&self, i: &Index) -> bool {
        i.dynamic.iter().all(|d| !self.varying.contains(&d.0))
    }

    fn varies(&self, i: &Inst, lane: Var) -> bool {
        let mut any = match i {
            Inst::Load(_, index, _) => index.affine.stride(lane) != 0,
            Inst::Index(a) => a.stride(lane) != 0,
            _ => false,
        };
        i.visit_operands(&mut |x| any |= self.varying.contains(&x));
        any
    }
}

/// The most iterations of a loop in which its guarded loads read memory.
fn inside_extent(k: &Kernel, l: &Loop) -> usize {
    let var = l.vars[0];
    let guards = l.body.iter().filter_map(|s| match s {
        Stmt::Let(_, Inst::Load(_, _, guard)) => guard.as_ref(),
        _ => None,
    });
    let conds = guards.flat_map(|g| &g.conds).filter(|c| c.expr.stride(var).abs() == 1);
    let extents = conds.map(|c| usize::try_from(c.hi.saturating_sub(c.lo)).unwrap_or(0));
    extents.fold(k.extent(var), usize::min)
}

/// What a survey of vector loops looks at.
pub(super) trait VisitLanes<'a>: Sized {
    /// The state of the walk.
    fn loops(&mut self) -> &mut VectorLoops<'a>;

    /// A constant, anywhere in the kernel.
    fn visit_constant(&mut self, _: Value) {}

    /// The reductions and carried values of a vector loop or of a loop inside one.
    fn visit_loop(&mut self, l: &Loop);

    /// A store in a vector loop. `stride` is that of its address from lane to lane.
    fn visit_store(&mut self, b: Buf, i: &Index, stride: i64);

    /// An instruction in a vector loop whose value varies.
    fn visit_varying(&mut self, v: Value, i: &Inst, lane: Var);

    /// Visits all statements.
    fn walk(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let(v, i) => self.walk_inst(*v, i),
                Stmt::Store(b, i, _) => {
                    if let Some(lane) = self.loops().lane {
                        self.visit_store(*b, i, i.affine.stride(lane));
                    }
                }
                Stmt::Loop(l) => self.walk_loop(l),
            }
        }
    }

    /// Visits an instruction.
    fn walk_inst(&mut self, v: Value, i: &Inst) {
        if let Inst::Op(ScalarOp::Const(_)) = i {
            self.visit_constant(v);
        }
        let loops = self.loops();
        if let Some(lane) = loops.lane
            && loops.varies(i, lane)
        {
            loops.varying.insert(v);
            self.visit_varying(v, i, lane);
        }
    }

    /// Visits a loop and its body.
    fn walk_loop(&mut self, l: &Loop) {
        let loops = self.loops();
        let outer = loops.lane;
        if outer.is_none() && transposed_copy(loops.k, l).is_some() {
            // A call, without vectors of its own.
            return;
        }
        if outer.is_none() && l.vector {
            loops.lane = Some(l.vars[0]);
            loops.extents.push(loops.k.extent(l.vars[0]));
            loops.inside.push(inside_extent(loops.k, l));
            let rest = loops.k.extent(l.vars[0]) % GROUP;
            let masked = is_worth_masks(l, rest) && can_mask(loops.k, l);
            loops.masked.push(masked.then(|| mask_cost(l)));
        }
        if loops.lane.is_some() {
            self.visit_loop(l);
        }
        let loops = self.loops();
        if outer.is_some() {
            // Within a group, every loop-carried value and reduction result has one lane per iteration.
            let carried = l.carries.iter().flat_map(|c| [c.phi, c.out]);
            let reduced = l.reduces.iter().flat_map(|r| r.out.iter().copied());
            loops.varying.extend(carried.chain(reduced));
        }
        self.walk(&l.body);
        self.loops().lane = outer;
    }
}

/// Whether lanes of integers have an operation.
pub(super) fn int_unary(op: Unary) -> bool {
    use Unary::*;
    matches!(
        op,
        Neg | Abs | BitNot | Sign | SignBit | Floor | Ceil | Round | Trunc | IsNan | IsInf
    )
}
