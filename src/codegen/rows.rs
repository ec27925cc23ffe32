//! Short rows, several at a time.
//!
//! A row kernel (softmax, norms, sums) runs one iteration of its parallel loop for each row. At the end of each
//! reduction the lanes of a vector become one scalar, which takes as many dependent steps as a short row has vectors.
//! Short rows therefore run four in lockstep:
//!
//! ```text
//! each row:      its vector loop, down to one vector        a, b, c, d
//! all together:  [a b] = shuffle(a, b) + shuffle(a, b)      [c d] likewise
//!                [a b c d] = shuffle(ab, cd) + shuffle(ab, cd), then the parts of a wide vector
//! each row:      its scalar, and what it does with it
//! ```
//!
//! That takes a third of the instructions, and no row waits for its own result alone. Additions within a row keep the
//! order of [`FunctionLowering::collapse_lanes`], so results are bit-identical: the rows left over at the end of a
//! chunk run one by one.

use super::lanes::RegisterClass;
use super::reduce::ReduceRule;
use super::row_plan::{ROWS, can_merge_ends};
use super::state::{End, FunctionLowering, LoopState, RowState, VarAt};
use crate::kernel::{BufferRole, Loop, Stmt};
use cranelift_codegen::ir::{InstBuilder, Value};

impl FunctionLowering<'_> {
    /// Lowers the body of a loop for the rows `i..i + ROWS` in lockstep.
    pub(super) fn lower_rows_in_step(&mut self, l: &Loop, i: Value) {
        let outside = (self.vars.clone(), self.partials.clone());
        let (_, local) = self.k.scratch_layout();
        // Each row has its own scratch memory.
        let k = self.k;
        self.partials.retain(|key, _| k.buffer(key.0).role != BufferRole::Local);
        if l.vars.len() == 1 {
            // The rows' indices differ by constants, so they share one address.
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

    /// Binds the variables of a parallel loop to row `first + r`.
    fn bind_row(&mut self, l: &Loop, first: Value, r: usize) {
        match l.vars[..] {
            [row] => self.vars[row.0 as usize] = VarAt::Past(first, r as i64),
            _ => {
                let row_index = self.e.b.ins().iadd_imm_s(first, r as i64);
                self.bind_parallel_vars(&l.vars, row_index);
            }
        }
    }

    /// Moves the base of the local buffers by `offset` bytes.
    fn move_local_buffers(&mut self, offset: usize) {
        for (n, b) in self.k.buffers.iter().enumerate() {
            if b.role == BufferRole::Local && offset > 0 {
                self.buffers[n] = self.e.b.ins().iadd_imm_s(self.buffers[n], offset as i64);
            }
        }
    }

    /// The number of rows that currently run in lockstep.
    pub(super) fn row_count(&self) -> usize {
        self.in_step.len().max(1)
    }

    /// Runs `f` for each row in lockstep, or once if there are none.
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

    /// The results of each row's reductions. `wide` has the vectors that [`FunctionLowering::halve_groups`] left for
    /// each row.
    pub(super) fn collapse_rows(&mut self, l: &Loop, wide: Vec<LoopState>) -> Vec<LoopState> {
        let mut out: Vec<LoopState> = vec![vec![]; wide.len()];
        for r in &l.reduces {
            let range = out[0].len()..out[0].len() + r.op.arity();
            let parts: Vec<LoopState> = wide.iter().map(|w| w[range.clone()].to_vec()).collect();
            let rule = self.reduce_rule(r);
            let ends = if parts.len() == ROWS && can_merge_ends(rule.op, RegisterClass::from_dtype(rule.dtype)) {
                self.merge_four_rows(rule, [0, 1, 2, 3].map(|r| parts[r][0][0]))
            } else {
                parts.into_iter().map(|p| self.collapse_lanes(rule, p)).collect()
            };
            for (row, end) in out.iter_mut().zip(ends) {
                row.extend(end);
            }
        }
        out
    }

    /// Combines the vectors of four rows into one result each, with the same value as
    /// [`FunctionLowering::collapse_lanes`].
    fn merge_four_rows(&mut self, rule: ReduceRule, [a, b, c, d]: [Value; ROWS]) -> Vec<LoopState> {
        // Lanes 0 and 1 of both vectors, and lanes 2 and 3, each pair swapped. No other shuffle uses these orders, so
        // `widen` can recognise them.
        let (lower, upper) = ([1, 0, 5, 4], [3, 2, 7, 6]);
        let ab = self.combine_shuffled(rule, a, b, lower, upper);
        let cd = self.combine_shuffled(rule, c, d, lower, upper);
        let all = self.combine_shuffled(rule, ab, cd, [3, 1, 7, 5], [2, 0, 6, 4]);
        let all = self.across_parts(rule, all);
        let swapped = self.e.shuffle32(all, all, [1, 0, 3, 2]);
        let [low, low_swapped] = [all, swapped].map(|v| self.e.shuffle32(v, v, [2, 3, 0, 1]));
        let lowest = [swapped, all, low_swapped, low];
        let ends = lowest.map(|v| vec![vec![self.e.b.ins().extractlane(v, 0)]]);
        ends.into()
    }

    /// Combines two permutations of two vectors' lanes.
    fn combine_shuffled(&mut self, rule: ReduceRule, x: Value, y: Value, left: [u8; 4], right: [u8; 4]) -> Value {
        let [l, r] = [left, right].map(|order| vec![vec![self.e.shuffle32(x, y, order)]]);
        self.with_form(true, |s| s.combine(rule, &l, &r))[0][0]
    }
}
