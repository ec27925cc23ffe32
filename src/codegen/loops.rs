//! Lowers serial and parallel loops and the values they carry. `vector` lowers loops in groups of lanes.

use super::analysis::{UNROLL, body_weight};
use super::lanes::Lanes;
use super::row_plan::{ROWS, in_step};
use super::state::{End, FunctionLowering, LoopState, LoweredValue, VarAt};
use crate::kernel::{self, Loop, Var};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value};

impl FunctionLowering<'_> {
    /// Lowers a loop and binds its results.
    pub(super) fn lower_loop(&mut self, l: &Loop) {
        let saved = self.partials.clone();
        if l.parallel {
            self.lower_parallel(l);
        } else if l.vector && self.lane.is_none() {
            let n = self.k.extent(l.vars[0]) as i64;
            self.lower_vector_loop(l, End::Const(0), End::Const(n));
        } else if !self.lower_transposed_copy(l) {
            self.lower_serial(l);
        }
        self.partials = saved;
    }

    fn lower_parallel(&mut self, l: &Loop) {
        let (begin, end) = self.own_range(l);
        if l.vector {
            return self.lower_vector_loop(l, End::At(begin), End::At(end));
        }
        self.hoist_addresses(&l.body);
        let mut next = End::At(begin);
        if in_step(self.k) == ROWS {
            (_, next) = self.emit_counted_loop(next, End::At(end), ROWS as i64, vec![], |s, i, _| {
                s.lower_rows_in_step(l, i);
                vec![]
            });
        }
        self.lower_parallel_vars(l, &l.vars, next, End::At(end));
        self.close_loop(l);
    }

    /// The iterations of a parallel loop that are within the range to run.
    fn own_range(&mut self, l: &Loop) -> (Value, Value) {
        let all = match self.k.parallel_range(l) {
            Some(all) if self.k.parallel_loop().is_none() => all,
            _ => return self.range,
        };
        let (begin, end) = self.range;
        let within = |s: &mut Self, i: Value| {
            let first = s.e.b.ins().iconst(I64, all.start as i64);
            let i = s.e.b.ins().isub(i, first);
            let least = s.e.b.ins().iconst(I64, 0);
            let most = s.e.b.ins().iconst(I64, all.len() as i64);
            let i = s.e.b.ins().smax(i, least);
            s.e.b.ins().smin(i, most)
        };
        (within(self, begin), within(self, end))
    }

    /// Lowers the iterations `begin..end` of a parallel loop's last variables, as one flat range. A loop for each variable needs no
    /// division per iteration, and computes what depends on the outer variables once.
    fn lower_parallel_vars(&mut self, l: &Loop, vars: &[Var], begin: End, end: End) {
        let Some((&first, rest)) = vars.split_first() else {
            return;
        };
        let count = rest
            .iter()
            .fold(1i64, |n, &v| n.saturating_mul(self.k.extent(v) as i64));
        if rest.is_empty() || count == 0 {
            self.emit_counted_loop(begin, end, 1, vec![], |s, i, _| {
                s.vars[first.0 as usize] = VarAt::At(i);
                s.lower_body(&l.body);
                vec![]
            });
            return;
        }
        let (begin, end) = (self.end_value(begin), self.end_value(end));
        let size = self.e.b.ins().iconst(I64, count);
        let from = self.e.b.ins().udiv(begin, size);
        let up = self.e.b.ins().iadd_imm_s(end, count - 1);
        let to = self.e.b.ins().udiv(up, size);
        self.emit_counted_loop(End::At(from), End::At(to), 1, vec![], |s, i, _| {
            let saved = s.partials.clone();
            s.vars[first.0 as usize] = VarAt::At(i);
            s.hoist_addresses(&l.body);
            let before = s.e.b.ins().imul(i, size);
            let low = s.e.b.ins().isub(begin, before);
            let zero = s.e.b.ins().iconst(I64, 0);
            let low = s.e.b.ins().smax(low, zero);
            let high = s.e.b.ins().isub(end, before);
            let high = s.e.b.ins().smin(high, size);
            s.lower_parallel_vars(l, rest, End::At(low), End::At(high));
            s.partials = saved;
            vec![]
        });
    }

    /// Computes the variables of a parallel loop from its flat index.
    pub(super) fn bind_parallel_vars(&mut self, vars: &[Var], flat: Value) {
        let mut rest = flat;
        for (n, &v) in vars.iter().enumerate().rev() {
            let extent = self.k.extent(v) as i64;
            let value = if n == 0 {
                VarAt::At(rest)
            } else if extent == 1 {
                VarAt::Const(0)
            } else if (extent as u64).is_power_of_two() {
                let r = self.e.b.ins().band_imm_u(rest, extent - 1);
                rest = self.e.b.ins().ushr_imm_u(rest, extent.trailing_zeros() as i64);
                VarAt::At(r)
            } else {
                // The remainder from the quotient, because `urem` would divide a second time.
                let size = self.e.b.ins().iconst(I64, extent);
                let q = self.e.b.ins().udiv(rest, size);
                let p = self.e.b.ins().imul(q, size);
                let r = self.e.b.ins().isub(rest, p);
                rest = q;
                VarAt::At(r)
            };
            self.vars[v.0 as usize] = value;
        }
    }

    /// Drops the values and variables of a loop after it.
    pub(super) fn close_loop(&mut self, l: &Loop) {
        self.forget(&l.body);
        for c in &l.carries {
            self.vals[c.phi.0 as usize] = LoweredValue::None;
        }
        for &v in &l.vars {
            self.vars[v.0 as usize] = VarAt::Const(0);
        }
    }

    /// The initial values of a loop's reductions, followed by those of its carried values.
    fn initial_state(&mut self, l: &Loop) -> LoopState {
        let inits = l.reduces.iter().flat_map(|r| r.init.iter().copied());
        let all: Vec<_> = inits.chain(l.carries.iter().map(|c| c.init)).collect();
        all.into_iter().map(|v| self.registers_of(v)).collect()
    }

    /// Binds the results of a loop.
    pub(super) fn bind_results(&mut self, l: &Loop, state: &LoopState) {
        let outs = l.reduces.iter().flat_map(|r| r.out.iter().copied());
        let all: Vec<_> = outs.chain(l.carries.iter().map(|c| c.out)).collect();
        for (v, x) in all.into_iter().zip(state) {
            self.vals[v.0 as usize] = self.value_of(x);
        }
    }

    /// Lowers one iteration of the body and returns the state after it. The first iteration of a vector loop may have
    /// no state before it.
    pub(super) fn lower_iteration(&mut self, l: &Loop, state: &LoopState) -> LoopState {
        let carried = &state[state.len() - l.carries.len()..];
        for (c, x) in l.carries.iter().zip(carried) {
            self.vals[c.phi.0 as usize] = self.value_of(x);
        }
        self.lower_body(&l.body);
        let mut out = vec![];
        for r in &l.reduces {
            if let Some(&(a, b)) = self.folds.added_up.get(&r.value[0]) {
                let acc = state.get(out.len()).cloned();
                out.push(self.product_added(a, b, acc));
                continue;
            }
            let values: LoopState = r.value.iter().map(|&v| self.registers_of(v)).collect();
            let Some(acc) = state.get(out.len()..out.len() + values.len()) else {
                out.extend(values);
                continue;
            };
            let (rule, lanes) = (self.reduce_rule(r), self.lane.is_some());
            out.extend(self.with_form(lanes, |s| s.combine(rule, acc, &values)));
        }
        for c in &l.carries {
            out.push(self.registers_of(c.next));
        }
        out
    }

    /// `acc + a * b`, rounded once if the target has fused multiply-add. Without an accumulator, the product.
    fn product_added(&mut self, a: kernel::Value, b: kernel::Value, acc: Option<Lanes>) -> Lanes {
        let [a, b] = [a, b].map(|v| self.registers_of(v));
        let lanes = self.lane.is_some();
        self.with_form(lanes, |s| match acc {
            Some(acc) => s.e.fma(&a, &b, &acc),
            None => s.e.fmul(&a, &b),
        })
    }

    /// Lowers a serial loop, in scalars or within a group.
    fn lower_serial(&mut self, l: &Loop) {
        let n = self.k.extent(l.vars[0]);
        let mut state = self.initial_state(l);
        let var = l.vars[0].0 as usize;
        if n <= 1 || n * body_weight(&l.body) <= UNROLL {
            for i in 0..n {
                self.vars[var] = VarAt::Const(i as i64);
                state = self.lower_iteration(l, &state);
                self.forget(&l.body);
            }
        } else {
            self.hoist_addresses(&l.body);
            (state, _) = self.emit_counted_loop(End::Const(0), End::Const(n as i64), 1, state, |s, i, state| {
                s.vars[var] = VarAt::At(i);
                s.lower_iteration(l, state)
            });
        }
        self.close_loop(l);
        self.bind_results(l, &state);
    }

    pub(super) fn end_value(&mut self, e: End) -> Value {
        match e {
            End::Const(c) => self.e.b.ins().iconst(I64, c),
            End::At(v) => v,
        }
    }

    /// Emits `i = start; while i + step <= end { state = body(i, state); i += step }`. Returns the state and `i` after
    /// the loop.
    pub(super) fn emit_counted_loop(
        &mut self,
        start: End,
        end: End,
        step: i64,
        state: LoopState,
        body: impl FnOnce(&mut Self, Value, &LoopState) -> LoopState,
    ) -> (LoopState, End) {
        let known = known_trips(start, end, step);
        if let Some((0, _)) = known {
            return (state, start);
        }
        let (header, exit) = (self.e.b.create_block(), self.e.b.create_block());
        let first = self.end_value(start);
        let (i, inner) = self.append_loop_params(header, &state);
        let (after_i, after) = self.append_loop_params(exit, &state);
        // The last `i` at which a whole step fits. Compared as signed because it may be negative.
        let limit = match end {
            End::Const(c) => self.e.b.ins().iconst(I64, c - step),
            End::At(v) => self.e.b.ins().iadd_imm_s(v, -step),
        };
        // At least one step fits, so the first test is not needed.
        if known.is_some() {
            self.jump_with(header, first, &state);
        } else {
            let c = self.e.b.ins().icmp(IntCC::SignedLessThanOrEqual, first, limit);
            self.branch_with(c, (header, first, &state), (exit, first, &state));
        }
        self.e.b.switch_to_block(header);
        let next = body(self, i, &inner);
        let i2 = self.e.b.ins().iadd_imm_s(i, step);
        let c = self.e.b.ins().icmp(IntCC::SignedLessThanOrEqual, i2, limit);
        self.branch_with(c, (header, i2, &next), (exit, i2, &next));
        self.e.b.seal_block(header);
        self.e.b.seal_block(exit);
        self.e.b.switch_to_block(exit);
        let i = known.map_or(End::At(after_i), |(trips, a)| End::Const(a + trips * step));
        (after, i)
    }

    /// Appends parameters to `block`: the counter, and the loop's state.
    fn append_loop_params(&mut self, block: Block, like: &LoopState) -> (Value, LoopState) {
        let counter = self.e.b.append_block_param(block, I64);
        (counter, self.append_state_params(block, like))
    }

    fn append_state_params(&mut self, block: Block, like: &LoopState) -> LoopState {
        like.iter()
            .map(|x| {
                x.iter()
                    .map(|&v| {
                        let ty = self.e.b.func.dfg.value_type(v);
                        self.e.b.append_block_param(block, ty)
                    })
                    .collect()
            })
            .collect()
    }

    fn jump_with(&mut self, to: Block, i: Value, state: &LoopState) {
        let args = block_args(i, state);
        self.e.b.ins().jump(to, &args);
    }

    fn branch_with(&mut self, c: Value, yes: (Block, Value, &LoopState), no: (Block, Value, &LoopState)) {
        let (a, b) = (block_args(yes.1, yes.2), block_args(no.1, no.2));
        self.e.b.ins().brif(c, yes.0, &a, no.0, &b);
    }
}

fn block_args(i: Value, state: &LoopState) -> Vec<BlockArg> {
    std::iter::once(i)
        .chain(state.iter().flatten().copied())
        .map(|v| v.into())
        .collect()
}

/// The number of whole steps from `start` to `end` and the value of `start`, if both ends are constant.
fn known_trips(start: End, end: End, step: i64) -> Option<(i64, i64)> {
    match (start, end) {
        (End::Const(a), End::Const(b)) => Some(((b - a).div_euclid(step).max(0), a)),
        _ => None,
    }
}
