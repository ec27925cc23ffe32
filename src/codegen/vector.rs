//! Lowers vector loops: in groups of lanes as far as they fit, in scalars before and after.
//!
//! `for i in 0..1003 { y[i] = x[i] + 1 }` over f32 with 16-byte vectors runs groups of eight iterations (two vectors),
//! then groups of four, then the last three one by one. A sum keeps one accumulator per lane through the groups, and
//! `reduce` combines them into one scalar.

use super::analysis::{UNROLL, body_shape, body_weight, constants_of, find_varying, stores_of};
use super::lanes::RegisterClass;
use super::state::{End, FunctionLowering, LoopState, LoweredValue, VarAt};
use crate::kernel::{self, Loop, ReduceOp};
use crate::math::functions::LANES_PER_CALL;
use cranelift_codegen::ir::{InstBuilder, Value};
use std::collections::HashSet;
use std::ops::Range;

/// The maximum number of values kept in vector registers throughout a loop of groups.
const KEPT: usize = 6;

/// The groups of a short loop are unrolled if their vectors times [`body_weight`] are at most this.
const STRAIGHT: usize = 96;

/// The reductions' results so far, for each row in lockstep (see [`rows`](super::rows)), if there were iterations.
pub(super) type RowResults = Vec<Option<LoopState>>;

/// The number of single iterations whose terms are combined one after the other.
const PART: i64 = 4;

/// The number of groups in a block of a float sum. Each block is summed separately.
const BLOCK: i64 = 256;

impl FunctionLowering<'_> {
    /// Lowers a vector loop over `start..end`. Iterations where a guarded load may be out of range run one by one, unless it certainly
    /// is; the others run in groups.
    pub(super) fn lower_vector_loop(&mut self, l: &Loop, start: End, end: End) {
        if let Some(turn) = self.find_turn(l, start, end) {
            return self.lower_around_turn(l, start, end, &turn);
        }
        if self.in_step.is_empty() {
            // Once for all parts.
            self.hoist_addresses(&l.body);
        }
        let (mut low, high) = self.inner_range(l, start, end);
        let same = match (start, low) {
            (End::Const(a), End::Const(b)) => a == b && a % 16 == 0,
            (End::At(a), End::At(b)) => a == b,
            _ => false,
        };
        let stores = self.e.width == 64 && same && self.has_streams(l);
        if let (true, End::At(begin)) = (stores, low) {
            // Single iterations run before.
            low = self.next_line(begin, high);
        }
        let mut acc: RowResults = vec![None; self.row_count()];
        let border = self.has_exact_border(l);
        self.outside_part(l, border, start, low, &mut acc);
        let mut next = low;
        self.aligned = stores;
        for elements in self.group_sizes(l) {
            next = self.lane_part(l, next, high, elements, &mut acc);
        }
        self.aligned = false;
        next = self.masked_part(l, next, high);
        self.inside_part(l, next, high, &mut acc);
        self.outside_part(l, border, high, end, &mut acc);
        self.each_row(|s, r| {
            s.close_loop(l);
            let out = s.with_initial(l, acc[r].take());
            s.bind_results(l, &out);
        });
    }

    /// Whether a vector loop has streaming stores.
    pub(super) fn has_streams(&mut self, l: &Loop) -> bool {
        let before = self.lane.replace(l.vars[0]);
        let mut stores = vec![];
        stores_of(&l.body, &mut stores);
        let any = stores.iter().any(|(b, i)| self.is_streaming_store(*b, i));
        self.lane = before;
        any
    }

    /// Lowers iterations where a guarded load may be out of range: one by one, unless all guarded loads certainly are
    /// (`certain`).
    fn outside_part(&mut self, l: &Loop, certain: bool, start: End, end: End, acc: &mut RowResults) {
        let mut next = start;
        if certain {
            self.outside = Some(l.vars[0]);
            if let Some(&least) = self.group_sizes(l).last() {
                next = self.lane_part(l, next, end, least, acc);
            }
            next = self.masked_part(l, next, end);
        }
        self.scalar_part(l, next, end, acc);
        self.outside = None;
    }

    /// Lowers iterations one by one where no guarded load is out of range.
    fn inside_part(&mut self, l: &Loop, start: End, end: End, acc: &mut RowResults) {
        let before = self.inside.replace(l.vars[0]);
        self.scalar_part(l, start, end, acc);
        self.inside = before;
    }

    /// Lowers iterations one by one, and combines their results with those of earlier iterations in `acc`: single terms
    /// added to a large sum would each be rounded to its precision.
    pub(super) fn scalar_part(&mut self, l: &Loop, start: End, end: End, acc: &mut RowResults) {
        if matches!((start, end), (End::Const(a), End::Const(b)) if a >= b) {
            return;
        }
        if let (End::At(a), End::At(b)) = (start, end)
            && a == b
        {
            return;
        }
        let var = l.vars[0].0 as usize;
        self.each_row(|s, r| {
            let saved = s.partials.clone();
            s.hoist_addresses(&l.body);
            let fresh = s.identity_state(l);
            let part = match few_iterations(l, start, end) {
                Some(few) => s.unroll_iterations(l, few, &fresh),
                None => {
                    let body = |s: &mut Self, i, acc: &LoopState| {
                        s.vars[var] = VarAt::At(i);
                        s.lower_iteration(l, acc)
                    };
                    s.emit_counted_loop(start, end, 1, fresh, body).0
                }
            };
            acc[r] = Some(match acc[r].take() {
                Some(before) => s.with_form(false, |s| s.combine_states(l, &before, &part)),
                None => part,
            });
            s.close_loop(l);
            s.partials = saved;
        });
    }

    /// Lowers single iterations without a loop. The terms of a reduction are combined in several parts, which do not wait for each other.
    fn unroll_iterations(&mut self, l: &Loop, few: Range<i64>, fresh: &LoopState) -> LoopState {
        let apart = !l.reduces.is_empty() && l.carries.is_empty();
        let step = if apart { PART } else { few.end - few.start };
        let mut total: Option<LoopState> = None;
        for first in few.clone().step_by(step.max(1) as usize) {
            let mut state = fresh.clone();
            for i in first..few.end.min(first + step) {
                self.vars[l.vars[0].0 as usize] = VarAt::Const(i);
                state = self.lower_iteration(l, &state);
                self.forget(&l.body);
            }
            total = Some(match total {
                Some(before) => self.with_form(false, |s| s.combine_states(l, &before, &state)),
                None => state,
            });
        }
        total.unwrap_or_else(|| fresh.clone())
    }

    /// Lowers groups of `elements` iterations as far as they fit and returns where they end. Their results are combined
    /// into `acc`, which is scalar.
    pub(super) fn lane_part(&mut self, l: &Loop, start: End, end: End, elements: usize, acc: &mut RowResults) -> End {
        if let (End::Const(a), End::Const(b)) = (start, end)
            && b - a < elements as i64
        {
            return start;
        }
        self.e.elements = elements;
        let mut next = start;
        let wide = self.each_row(|s, _| {
            let (wide, after) = s.lower_groups(l, start, end);
            next = after;
            s.halve_groups(l, wide)
        });
        let parts = self.collapse_rows(l, wide);
        for (acc, part) in acc.iter_mut().zip(parts) {
            *acc = Some(match acc.take() {
                Some(before) => self.with_form(false, |s| s.combine_states(l, &before, &part)),
                None => part,
            });
        }
        self.e.elements = 1;
        next
    }

    /// Lowers groups as far as they fit. Returns the lanes of each reduction and where the groups end.
    fn lower_groups(&mut self, l: &Loop, start: End, end: End) -> (LoopState, End) {
        let saved = self.partials.clone();
        self.hoist_addresses(&l.body);
        self.spread_invariants(l);
        self.lane = Some(l.vars[0]);
        let (wide, next) = match self.few_groups(l, start, end) {
            Some(groups) => self.unroll_groups(l, groups),
            None => {
                let (mut wide, mut next) = (self.identity_state(l), start);
                if self.needs_cascade(l, start, end) {
                    (wide, next) = self.reduce_in_blocks(l, start, end, wide);
                }
                let step = self.e.elements as i64;
                self.emit_counted_loop(next, end, step, wide, |s, i, wide| s.lane_iteration(l, i, wide))
            }
        };
        self.lane = None;
        self.splats.clear();
        self.close_loop(l);
        self.partials = saved;
        (wide, next)
    }

    /// Lowers one group of iterations, starting at `i`.
    fn lane_iteration(&mut self, l: &Loop, i: Value, state: &LoopState) -> LoopState {
        self.vars[l.vars[0].0 as usize] = VarAt::At(i);
        self.lower_iteration(l, state)
    }

    /// The starts of the groups of a short range, if they are few and light enough to unroll.
    fn few_groups(&self, l: &Loop, start: End, end: End) -> Option<Vec<i64>> {
        let (End::Const(a), End::Const(b)) = (start, end) else {
            return None;
        };
        let (groups, step) = ((b - a) as usize / self.e.elements, self.e.elements as i64);
        let vectors = (self.e.packed * self.e.elements / self.e.width).max(1);
        let short = groups > 0 && groups * vectors * body_weight(&l.body) <= STRAIGHT;
        short.then(|| (0..groups as i64).map(|g| a + g * step).collect())
    }

    /// Unrolls the groups. The first group's values are the initial accumulators of the others.
    fn unroll_groups(&mut self, l: &Loop, groups: Vec<i64>) -> (LoopState, End) {
        let mut wide = vec![];
        let mut next = 0;
        for first in groups {
            self.vars[l.vars[0].0 as usize] = VarAt::Const(first);
            wide = self.lower_iteration(l, &wide);
            self.forget(&l.body);
            next = first + self.e.elements as i64;
        }
        (wide, End::Const(next))
    }

    /// Whether a sum of floats is so long that its rounding errors would matter.
    fn needs_cascade(&self, l: &Loop, start: End, end: End) -> bool {
        let (End::Const(a), End::Const(b)) = (start, end) else {
            return false;
        };
        let sum = |r: &kernel::Reduce| r.op == ReduceOp::Add && self.k.dtype(r.init[0]).is_float();
        (b - a) / self.e.elements as i64 >= 2 * BLOCK && l.reduces.iter().any(sum)
    }

    /// Lowers groups in blocks, each reduced separately. The error of a sum then grows with the number of blocks plus
    /// the length of one, not with their product.
    fn reduce_in_blocks(&mut self, l: &Loop, start: End, end: End, wide: LoopState) -> (LoopState, End) {
        let step = self.e.elements as i64;
        let block = BLOCK * step;
        self.emit_counted_loop(start, end, block, wide, |s, i, wide| {
            let last = s.e.b.ins().iadd_imm_s(i, block);
            let fresh = s.identity_state(l);
            let body = |s: &mut Self, i, state: &LoopState| s.lane_iteration(l, i, state);
            let (part, _) = s.emit_counted_loop(End::At(i), End::At(last), step, fresh, body);
            s.with_form(true, |s| s.combine_states(l, wide, &part))
        })
    }

    /// The numbers of iterations that run as one group: first for the main loop, then smaller ones for the remainder.
    pub(super) fn group_sizes(&self, l: &Loop) -> Vec<usize> {
        if self.e.single {
            return vec![self.e.width / self.e.packed];
        }
        if self.e.packed < 4 {
            let vector = self.e.width / self.e.packed;
            let several = 4 * vector;
            return match several <= self.k.extent(l.vars[0]) {
                true => vec![several, vector],
                false => vec![vector],
            };
        }
        let shape = body_shape(&l.body, self.k);
        let mut n: usize = if (shape.reduces || !l.reduces.is_empty()) && !shape.heavy {
            16
        } else {
            8
        };
        // The same number of vectors at every width.
        let wider = self.e.width / 16;
        n *= wider;
        // For columns of a long reduction, a few cache lines of each row at a time.
        if shape.columns && !shape.heavy {
            n = if wider > 2 { 64 } else { 32 };
        }
        if shape.wide {
            n /= 2;
        }
        // A call is worth its cost for many lanes. Wide kernels do not call.
        if shape.calls && wider == 1 {
            n = n.max(LANES_PER_CALL);
        }
        let extent = self.k.extent(l.vars[0]);
        let least = 4 * wider;
        while n > least && n > extent {
            n /= 2;
        }
        if n > least { vec![n, least] } else { vec![n] }
    }

    /// In a light loop, loads the constants before the loop, because registers are available. A loop with polynomials
    /// needs its registers, so each use loads its constant.
    fn keep_constants(&mut self, l: &Loop) {
        let mut constants = vec![];
        if body_shape(&l.body, self.k).heavy || !constants_of(&l.body, &mut constants) {
            return;
        }
        if constants.len() + self.splats.len() > KEPT {
            return;
        }
        for (v, s) in constants {
            let x = self.with_form(true, |l| l.constant_lanes(s, 1)[0]);
            self.splats.insert(v, x);
        }
    }

    /// Before the loop, splats the uniform values that iterations combine with varying ones.
    pub(super) fn spread_invariants(&mut self, l: &Loop) {
        let mut varying = HashSet::new();
        let mut needed = vec![];
        let mut spread = |v: kernel::Value, varying: &HashSet<kernel::Value>| {
            if !varying.contains(&v) && !needed.contains(&v) {
                needed.push(v);
            }
        };
        find_varying(&l.body, l.vars[0], &mut varying, &mut spread);
        for v in needed {
            if let LoweredValue::Uniform(x) = self.vals[v.0 as usize] {
                let class = RegisterClass::from_dtype(self.k.dtype(v));
                let s = self.with_form(true, |s| s.e.splat(class, x)[0]);
                self.splats.insert(v, s);
            }
        }
        self.keep_constants(l);
    }
}

/// The iterations of a short range, if they are few and light enough to unroll.
fn few_iterations(l: &Loop, start: End, end: End) -> Option<Range<i64>> {
    let (End::Const(a), End::Const(b)) = (start, end) else {
        return None;
    };
    let work = (b - a).saturating_mul(body_weight(&l.body) as i64);
    (work <= UNROLL as i64).then_some(a..b)
}
