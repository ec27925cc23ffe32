//! Short rows, several at a time.
//!
//! A row kernel (softmax, norms, sums) runs one iteration of its parallel loop for each row; at the end of each reduction the lanes of
//! a vector become one scalar, in as many dependent steps as a short row has vectors. Where rows are short, four run in step:
//!
//! ```text
//! each row:      its vector loop, down to one vector        a, b, c, d
//! all together:  [a b] = shuffle(a, b) + shuffle(a, b)      [c d] likewise
//!                [a b c d] = shuffle(ab, cd) + shuffle(ab, cd), then the parts of a wide vector
//! each row:      its scalar, and what it does with it
//! ```
//!
//! That is a third of the instructions, and no row waits for its own result alone. The order of additions within a row is that of
//! [`Lowering::collapse`], bit for bit: the rows left over at the end of a chunk run one by one.

use super::analysis::body_weight;
use super::func::{FunctionLowering, LoweredValue, VarAt};
use super::lanes::RegisterClass;
use super::loops::{End, LoopState};
use super::memory::Partials;
use super::reduce::ReduceRule;
use crate::kernel::{BufferRole, Inst, Kernel, Loop, ReduceOp, Stmt};
use cranelift_codegen::ir::{InstBuilder, Value};
use std::collections::HashMap;

/// Rows that run in step: as many as a 128-bit part has lanes of 32 bits.
pub(super) const ROWS: usize = 4;

/// The most elements of a row: four rows stay in the first cache with their results.
const LONGEST: usize = 1024;

/// The most [`weight`] of all loops of a row together, which is written once for each row.
const HEAVIEST: usize = 96;

/// What differs from row to row while rows run in step.
pub(super) struct RowState {
    vals: Vec<LoweredValue>,
    vars: Vec<VarAt>,
    partials: Partials,
    splats: HashMap<crate::kernel::Value, Value>,
    buffers: Vec<Value>,
}

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
fn can_merge_ends(op: ReduceOp, class: RegisterClass) -> bool {
    op.as_binary().is_some() && class == RegisterClass::F32
}

impl FunctionLowering<'_> {
    /// The body of a loop for the rows `i..i + ROWS` in step.
    pub(super) fn lower_rows_in_step(&mut self, l: &Loop, i: Value) {
        let outside = (self.vars.clone(), self.partials.clone());
        let (_, local) = self.k.scratch_layout();
        // Each row has scratch memory of its own.
        let k = self.k;
        self.partials.retain(|key, _| k.buffer(key.0).role != BufferRole::Local);
        if l.vars.len() == 1 {
            // Rows differ by constants: one address for all.
            self.bind_row(l, i, 0);
            self.hoist_addresses(&l.body);
            self.partials.retain(|key, _| k.buffer(key.0).role != BufferRole::Local);
        }
        for r in 0..ROWS {
            let before = (self.vars.clone(), self.partials.clone(), self.buffers.clone());
            self.move_local_buffers(r * local);
            self.bind_row(l, i, r);
            if l.vars.len() > 1 {
                self.hoist_addresses(&l.body);
            }
            let row = RowState {
                vals: self.vals.clone(),
                vars: std::mem::replace(&mut self.vars, before.0),
                partials: std::mem::replace(&mut self.partials, before.1),
                buffers: std::mem::replace(&mut self.buffers, before.2),
                splats: self.splats.clone(),
            };
            self.in_step.push(row);
        }
        for s in &l.body {
            match s {
                Stmt::Loop(inner) => {
                    self.lower_vector_loop(inner, End::Const(0), End::Const(self.k.extent(inner.vars[0]) as i64))
                }
                other => drop(self.each_row(|s, _| s.lower_body(std::slice::from_ref(other)))),
            }
        }
        self.in_step.clear();
        (self.vars, self.partials) = outside;
    }

    /// Binds the variables of a parallel loop to those of the row `r` after `first`.
    fn bind_row(&mut self, l: &Loop, first: Value, r: usize) {
        match l.vars[..] {
            [row] => self.vars[row.0 as usize] = VarAt::Past(first, r as i64),
            _ => {
                let at = self.e.b.ins().iadd_imm_s(first, r as i64);
                self.bind_parallel_vars(&l.vars, at);
            }
        }
    }

    /// Lets scratch memory begin `offset` bytes on.
    fn move_local_buffers(&mut self, offset: usize) {
        for (n, b) in self.k.buffers.iter().enumerate() {
            if b.role == BufferRole::Local && offset > 0 {
                self.buffers[n] = self.e.b.ins().iadd_imm_s(self.buffers[n], offset as i64);
            }
        }
    }

    /// How many rows are in step at the moment.
    pub(super) fn row_count(&self) -> usize {
        self.in_step.len().max(1)
    }

    /// `f` for each row in step, or once.
    pub(super) fn each_row<R>(&mut self, mut f: impl FnMut(&mut Self, usize) -> R) -> Vec<R> {
        if self.in_step.is_empty() {
            return vec![f(self, 0)];
        }
        let mut rows = std::mem::take(&mut self.in_step);
        let mut out = vec![];
        for (n, row) in rows.iter_mut().enumerate() {
            self.swap_row_state(row);
            out.push(f(self, n));
            self.swap_row_state(row);
        }
        self.in_step = rows;
        out
    }

    fn swap_row_state(&mut self, row: &mut RowState) {
        std::mem::swap(&mut self.vals, &mut row.vals);
        std::mem::swap(&mut self.vars, &mut row.vars);
        std::mem::swap(&mut self.partials, &mut row.partials);
        std::mem::swap(&mut self.splats, &mut row.splats);
        std::mem::swap(&mut self.buffers, &mut row.buffers);
    }

    /// What each row's groups, of which `wide` has what [`Lowering::halved`] left, come to, for each reduction of a loop.
    pub(super) fn collapse_rows(&mut self, l: &Loop, wide: Vec<LoopState>) -> Vec<LoopState> {
        let mut out: Vec<LoopState> = vec![vec![]; wide.len()];
        for r in &l.reduces {
            let range = out[0].len()..out[0].len() + r.op.arity();
            let parts: Vec<LoopState> = wide.iter().map(|w| w[range.clone()].to_vec()).collect();
            let how = self.reduce_rule(r);
            let ends = if parts.len() == ROWS && can_merge_ends(how.op, RegisterClass::from_dtype(how.dtype)) {
                self.merge_four_rows(how, [0, 1, 2, 3].map(|r| parts[r][0][0]))
            } else {
                parts.into_iter().map(|p| self.collapse_lanes(how, p)).collect()
            };
            for (row, end) in out.iter_mut().zip(ends) {
                row.extend(end);
            }
        }
        out
    }

    /// The ends of four rows' vectors: what [`Lowering::collapse`] makes of each.
    fn merge_four_rows(&mut self, how: ReduceRule, [a, b, c, d]: [Value; ROWS]) -> Vec<LoopState> {
        // Lanes 0 and 1 of two vectors with their lanes 2 and 3, turned about: no other shuffle has these orders, by which `widen`
        // knows them.
        let (lower, upper) = ([1, 0, 5, 4], [3, 2, 7, 6]);
        let ab = self.combine_shuffled(how, a, b, lower, upper);
        let cd = self.combine_shuffled(how, c, d, lower, upper);
        let all = self.combine_shuffled(how, ab, cd, [3, 1, 7, 5], [2, 0, 6, 4]);
        let all = self.across_parts(how, all);
        let swapped = self.e.shuffle32(all, all, [1, 0, 3, 2]);
        let [low, low_swapped] = [all, swapped].map(|v| self.e.shuffle32(v, v, [2, 3, 0, 1]));
        let lowest = [swapped, all, low_swapped, low];
        let ends = lowest.map(|v| vec![vec![self.e.b.ins().extractlane(v, 0)]]);
        ends.into()
    }

    /// Two orders of two vectors' lanes, combined.
    fn combine_shuffled(&mut self, how: ReduceRule, x: Value, y: Value, left: [u8; 4], right: [u8; 4]) -> Value {
        let [l, r] = [left, right].map(|order| vec![vec![self.e.shuffle32(x, y, order)]]);
        self.with_form(true, |s| s.combine(how, &l, &r))[0][0]
    }
}
