//! Loops: serial, parallel, and in groups of lanes.

use super::analysis::{UNROLL, constants_of, find_varying, shape, stores_of, weight};
use super::func::{Lowering, Val, VarAt};
use super::lanes::{Class, MEM};
use crate::kernel::{self, Loop, ReduceOp, Var};
use crate::scalar::{Compare, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value};
use std::collections::HashSet;

/// The most values that stay in vector registers throughout a loop of groups.
const KEPT: usize = 6;

/// Groups that a float sum adds up before it begins anew.
const BLOCK: i64 = 256;

/// The registers of each value that goes from iteration to iteration.
type State = Vec<Vec<Value>>;

/// One end of a range of iterations.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Const(i64),
    At(Value),
}

impl Lowering<'_> {
    /// A loop and what comes out of it.
    pub fn nest(&mut self, l: &Loop) {
        let saved = self.partials.clone();
        if l.parallel {
            self.parallel(l);
        } else if l.vector && self.lane.is_none() {
            let n = self.k.extent(l.vars[0]) as i64;
            self.vector(l, End::Const(0), End::Const(n));
        } else {
            self.serial(l);
        }
        self.partials = saved;
    }

    fn parallel(&mut self, l: &Loop) {
        let (begin, end) = self.range;
        if l.vector {
            return self.vector(l, End::At(begin), End::At(end));
        }
        self.hoist_addresses(&l.body);
        self.counted(End::At(begin), End::At(end), 1, vec![], |s, i, _| {
            s.decompose(&l.vars, i);
            s.body(&l.body);
            vec![]
        });
        self.close(l);
    }

    /// Binds the variables of a parallel loop from its flat index.
    fn decompose(&mut self, vars: &[Var], flat: Value) {
        let mut rest = flat;
        for (n, &v) in vars.iter().enumerate().rev() {
            let extent = self.k.extent(v) as i64;
            let at = if n == 0 {
                VarAt::At(rest)
            } else if extent == 1 {
                VarAt::Const(0)
            } else {
                let size = self.e.b.ins().iconst(I64, extent);
                let q = self.e.b.ins().udiv(rest, size);
                let p = self.e.b.ins().imul(q, size);
                let r = self.e.b.ins().isub(rest, p);
                rest = q;
                VarAt::At(r)
            };
            self.vars[v.0 as usize] = at;
        }
    }

    /// Values and variables of a loop are gone after it.
    fn close(&mut self, l: &Loop) {
        self.forget(&l.body);
        for c in &l.carries {
            self.vals[c.phi.0 as usize] = Val::None;
        }
        for &v in &l.vars {
            self.vars[v.0 as usize] = VarAt::Const(0);
        }
    }

    /// Everything that goes through a loop: reductions, then carried values; as they are before it.
    fn initial(&mut self, l: &Loop) -> State {
        let inits = l.reduces.iter().flat_map(|r| r.init.iter().copied());
        let all: Vec<_> = inits.chain(l.carries.iter().map(|c| c.init)).collect();
        all.into_iter().map(|v| self.registers(v)).collect()
    }

    /// Binds what comes out of a loop.
    fn results(&mut self, l: &Loop, state: &State) {
        let outs = l.reduces.iter().flat_map(|r| r.out.iter().copied());
        let all: Vec<_> = outs.chain(l.carries.iter().map(|c| c.out)).collect();
        for (v, x) in all.into_iter().zip(state) {
            self.vals[v.0 as usize] = self.value_of(x);
        }
    }

    /// One iteration of the body: the state after it.
    fn iteration(&mut self, l: &Loop, state: &State) -> State {
        let carried = &state[state.len() - l.carries.len()..];
        for (c, x) in l.carries.iter().zip(carried) {
            self.vals[c.phi.0 as usize] = self.value_of(x);
        }
        self.body(&l.body);
        let mut out = vec![];
        for r in &l.reduces {
            let values: State = r.value.iter().map(|&v| self.registers(v)).collect();
            let acc = &state[out.len()..out.len() + values.len()];
            let dtype = self.k.dtype(r.value[0]);
            let lanes = self.lane.is_some();
            out.extend(self.with_form(lanes, |s| s.combine(r.op, dtype, acc, &values)));
        }
        for c in &l.carries {
            out.push(self.registers(c.next));
        }
        out
    }

    /// A loop in order, in scalars or within a group.
    fn serial(&mut self, l: &Loop) {
        let n = self.k.extent(l.vars[0]);
        let mut state = self.initial(l);
        let var = l.vars[0].0 as usize;
        if n <= 1 || n * weight(&l.body) <= UNROLL {
            for i in 0..n {
                self.vars[var] = VarAt::Const(i as i64);
                state = self.iteration(l, &state);
                self.forget(&l.body);
            }
        } else {
            self.hoist_addresses(&l.body);
            (state, _) = self.counted(End::Const(0), End::Const(n as i64), 1, state, |s, i, state| {
                s.vars[var] = VarAt::At(i);
                s.iteration(l, state)
            });
        }
        self.close(l);
        self.results(l, &state);
    }

    pub(super) fn end_value(&mut self, e: End) -> Value {
        match e {
            End::Const(c) => self.e.b.ins().iconst(I64, c),
            End::At(v) => v,
        }
    }

    /// `while i + step <= end { state = body(i, state); i += step }` from `start`: the state and `i` after it.
    fn counted(
        &mut self,
        start: End,
        end: End,
        step: i64,
        state: State,
        body: impl FnOnce(&mut Self, Value, &State) -> State,
    ) -> (State, End) {
        let known = match (start, end) {
            (End::Const(a), End::Const(b)) => Some(((b - a).div_euclid(step).max(0), a)),
            _ => None,
        };
        if let Some((0, _)) = known {
            return (state, start);
        }
        let (header, exit) = (self.e.b.create_block(), self.e.b.create_block());
        let first = self.end_value(start);
        let i = self.e.b.append_block_param(header, I64);
        let inner = self.params(header, &state);
        let after_i = self.e.b.append_block_param(exit, I64);
        let after = self.params(exit, &state);
        // The last start of a whole step; signed, because it may be negative.
        let limit = match end {
            End::Const(c) => self.e.b.ins().iconst(I64, c - step),
            End::At(v) => self.e.b.ins().iadd_imm_s(v, -step),
        };
        if known.is_some() {
            self.jump_with(header, first, &state);
        } else {
            let c = self.e.b.ins().icmp(IntCC::SignedLessThanOrEqual, first, limit);
            self.branch(c, (header, first, &state), (exit, first, &state));
        }
        self.e.b.switch_to_block(header);
        let next = body(self, i, &inner);
        let i2 = self.e.b.ins().iadd_imm_s(i, step);
        let c = self.e.b.ins().icmp(IntCC::SignedLessThanOrEqual, i2, limit);
        self.branch(c, (header, i2, &next), (exit, i2, &next));
        self.e.b.seal_block(header);
        self.e.b.seal_block(exit);
        self.e.b.switch_to_block(exit);
        let i = known.map_or(End::At(after_i), |(trips, a)| End::Const(a + trips * step));
        (after, i)
    }

    fn params(&mut self, block: Block, like: &State) -> State {
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

    fn jump_with(&mut self, to: Block, i: Value, state: &State) {
        let args = block_args(i, state);
        self.e.b.ins().jump(to, &args);
    }

    fn branch(&mut self, c: Value, yes: (Block, Value, &State), no: (Block, Value, &State)) {
        let (a, b) = (block_args(yes.1, yes.2), block_args(no.1, no.2));
        self.e.b.ins().brif(c, yes.0, &a, no.0, &b);
    }

    // Vector loops.

    /// A vector loop over `start..end`: iterations where a guarded load may be outside one by one, the rest in groups.
    fn vector(&mut self, l: &Loop, start: End, end: End) {
        let mut acc = self.identities(l);
        let (mut low, high) = self.inner_range(l, start, end);
        let same = match (start, low) {
            (End::Const(a), End::Const(b)) => a == b && a % 16 == 0,
            (End::At(a), End::At(b)) => a == b,
            _ => false,
        };
        let stores = self.e.width == 64 && same && self.has_streams(l);
        if let (true, End::At(begin)) = (stores, low) {
            // A chunk may begin anywhere.
            let up = self.e.b.ins().iadd_imm_s(begin, 15);
            let up = self.e.b.ins().band_imm_s(up, -16);
            let last = self.end_value(high);
            low = End::At(self.e.b.ins().smin(up, last));
        }
        acc = self.scalar_part(l, start, low, acc);
        let mut at = low;
        self.aligned = stores;
        for elements in self.group_sizes(l) {
            (acc, at) = self.lane_part(l, at, high, elements, acc);
        }
        self.aligned = false;
        acc = self.scalar_part(l, at, high, acc);
        acc = self.scalar_part(l, high, end, acc);
        self.close(l);
        let mut out = vec![];
        for r in &l.reduces {
            let init: State = r.init.iter().map(|&v| self.registers(v)).collect();
            let part = &acc[out.len()..out.len() + init.len()];
            let dtype = self.k.dtype(r.init[0]);
            out.extend(self.with_form(false, |s| s.combine(r.op, dtype, &init, part)));
        }
        self.results(l, &out);
    }

    /// Whether a vector loop writes past the caches.
    fn has_streams(&mut self, l: &Loop) -> bool {
        let before = self.lane.replace(l.vars[0]);
        let mut stores = vec![];
        stores_of(&l.body, &mut stores);
        let any = stores.iter().any(|(b, i)| self.streams(*b, i));
        self.lane = before;
        any
    }

    /// The identities of a loop's reductions in the current form.
    fn identities(&mut self, l: &Loop) -> State {
        let lanes = self.lane.is_some();
        let mut out = vec![];
        for r in &l.reduces {
            for (n, &v) in r.init.iter().enumerate() {
                let d = self.k.dtype(v);
                let s = if n == 0 {
                    r.op.identity(d)
                } else {
                    Scalar::Int(DType::I64, i64::MAX)
                };
                out.push(self.with_form(lanes, |l| {
                    let n = l.e.count(Class::of(d));
                    l.constant_lanes(s, n)
                }));
            }
        }
        out
    }

    fn scalar_part(&mut self, l: &Loop, start: End, end: End, acc: State) -> State {
        if matches!((start, end), (End::Const(a), End::Const(b)) if a >= b) {
            return acc;
        }
        if let (End::At(a), End::At(b)) = (start, end)
            && a == b
        {
            return acc;
        }
        let saved = self.partials.clone();
        self.hoist_addresses(&l.body);
        let var = l.vars[0].0 as usize;
        let (acc, _) = self.counted(start, end, 1, acc, |s, i, acc| {
            s.vars[var] = VarAt::At(i);
            s.iteration(l, acc)
        });
        self.close(l);
        self.partials = saved;
        acc
    }

    /// Groups of `elements` iterations as far as they fit; results combined into `acc`, which is scalar.
    fn lane_part(&mut self, l: &Loop, start: End, end: End, elements: usize, acc: State) -> (State, End) {
        if let (End::Const(a), End::Const(b)) = (start, end)
            && b - a < elements as i64
        {
            return (acc, start);
        }
        let saved = self.partials.clone();
        self.hoist_addresses(&l.body);
        self.e.elements = elements;
        self.spread_invariants(l);
        self.lane = Some(l.vars[0]);
        let mut wide = self.identities(l);
        let mut at = start;
        if self.cascades(l, start, end) {
            (wide, at) = self.blocks(l, start, end, wide);
        }
        let step = elements as i64;
        (wide, at) = self.counted(at, end, step, wide, |s, i, wide| s.lane_iteration(l, i, wide));
        self.lane = None;
        self.splats.clear();
        self.close(l);
        self.partials = saved;
        let mut out = vec![];
        for r in &l.reduces {
            let n = r.op.arity();
            let (from, dtype) = (out.len(), self.k.dtype(r.init[0]));
            let part = self.collapse(r.op, dtype, wide[from..from + n].to_vec());
            let before = &acc[from..from + n];
            out.extend(self.with_form(false, |s| s.combine(r.op, dtype, before, &part)));
        }
        self.e.elements = 1;
        (out, at)
    }

    /// One group of iterations beginning at `i`.
    fn lane_iteration(&mut self, l: &Loop, i: Value, state: &State) -> State {
        self.vars[l.vars[0].0 as usize] = VarAt::At(i);
        self.iteration(l, state)
    }

    /// Whether a sum of floats is so long that its rounding errors would show.
    fn cascades(&self, l: &Loop, start: End, end: End) -> bool {
        let (End::Const(a), End::Const(b)) = (start, end) else {
            return false;
        };
        let sum = |r: &kernel::Reduce| r.op == ReduceOp::Add && self.k.dtype(r.init[0]).is_float();
        (b - a) / self.e.elements as i64 >= 2 * BLOCK && l.reduces.iter().any(sum)
    }

    /// Groups in blocks, each reduced by itself: the errors of a sum grow with the number of blocks and the length of one, not with the product.
    fn blocks(&mut self, l: &Loop, start: End, end: End, wide: State) -> (State, End) {
        let step = self.e.elements as i64;
        let block = BLOCK * step;
        self.counted(start, end, block, wide, |s, i, wide| {
            let last = s.e.b.ins().iadd_imm_s(i, block);
            let fresh = s.identities(l);
            let body = |s: &mut Self, i, state: &State| s.lane_iteration(l, i, state);
            let (part, _) = s.counted(End::At(i), End::At(last), step, fresh, body);
            let mut out = vec![];
            for r in &l.reduces {
                let range = out.len()..out.len() + r.op.arity();
                let dtype = s.k.dtype(r.init[0]);
                let (a, b) = (&wide[range.clone()], &part[range]);
                out.extend(s.with_form(true, |s| s.combine(r.op, dtype, a, b)));
            }
            out
        })
    }

    /// A group's lanes combined into one scalar: halves of the group by vectors, then lane pairs; always the same tree.
    fn collapse(&mut self, op: ReduceOp, dtype: DType, mut x: State) -> State {
        let classes = [Class::of(dtype), Class::I64];
        let mut elements = self.e.elements;
        // One vector, or as many elements as 128 bits have of 32.
        let lane = if self.e.width > 16 { classes[0].size() } else { 4 };
        while elements > self.e.width / lane {
            let half = |x: &State, k: usize| -> State {
                x.iter()
                    .map(|v| v[k * v.len() / 2..(k + 1) * v.len() / 2].to_vec())
                    .collect()
            };
            let (a, b) = (half(&x, 0), half(&x, 1));
            x = self.with_form(true, |s| s.combine(op, dtype, &a, &b));
            elements /= 2;
        }
        if self.e.width > 16 {
            elements = 16 / lane;
        }
        let mut lanes: Vec<State> = vec![vec![]; elements];
        for (v, c) in x.iter().zip(classes) {
            let scalars = match self.e.width {
                16 => self.with_form(true, |s| s.e.extract(c, v)),
                _ => self.parts(op, dtype, v),
            };
            for (lane, s) in lanes.iter_mut().zip(scalars) {
                lane.push(vec![s]);
            }
        }
        self.with_form(false, |s| {
            while lanes.len() > 1 {
                let pairs: Vec<State> = lanes.chunks(2).map(|p| s.combine(op, dtype, &p[0], &p[1])).collect();
                lanes = pairs;
            }
        });
        lanes.swap_remove(0)
    }

    /// The 16-byte parts of one wide vector combined, as scalars, through the stack slot; see [`widen`](super::widen).
    fn parts(&mut self, op: ReduceOp, dtype: DType, x: &[Value]) -> Vec<Value> {
        let ty = Class::of(dtype).vector();
        let at = self.e.b.ins().stack_addr(I64, self.e.slot, 0);
        self.e.b.ins().store(MEM, x[0], at, 0);
        let mut parts: Vec<Value> = (0..self.e.width as i32 / 16)
            .map(|k| self.e.b.ins().load(ty, MEM, at, 16 * k))
            .collect();
        while parts.len() > 1 {
            let half = parts.split_off(parts.len() / 2);
            let pairs = parts
                .iter()
                .zip(&half)
                .map(|(&a, &b)| self.with_form(true, |s| s.combine(op, dtype, &[vec![a]], &[vec![b]]))[0][0]);
            parts = pairs.collect();
        }
        self.e.b.ins().store(MEM, parts[0], at, 0);
        let (scalar, size) = (Class::of(dtype).scalar(), Class::of(dtype).size() as i32);
        (0..16 / size)
            .map(|k| self.e.b.ins().load(scalar, MEM, at, size * k))
            .collect()
    }

    /// `a ⊕ b` in the current form.
    fn combine(&mut self, op: ReduceOp, dtype: DType, a: &[Vec<Value>], b: &[Vec<Value>]) -> State {
        if let Some(op) = op.binary() {
            return vec![self.e.binary(op, dtype, &a[0], &b[0])];
        }
        let e = &mut self.e;
        let order = if op == ReduceOp::ArgMax {
            Compare::Gt
        } else {
            Compare::Lt
        };
        let mut better = e.compare(order, dtype, &b[0], &a[0]);
        let mut equal = e.compare(Compare::Eq, dtype, &b[0], &a[0]);
        better = e.mask32(&better);
        equal = e.mask32(&equal);
        if dtype.is_float() {
            let (na, nb) = (e.unary(Unary::IsNan, dtype, &a[0]), e.unary(Unary::IsNan, dtype, &b[0]));
            let (na, nb) = (e.mask32(&na), e.mask32(&nb));
            let only = e.map2(&nb, &na, |e, x, y| e.b.ins().band_not(x, y));
            let both = e.band(&na, &nb);
            better = e.bor(&better, &only);
            equal = e.bor(&equal, &both);
        }
        let first = e.compare(Compare::Lt, DType::I64, &b[1], &a[1]);
        let first = e.mask32(&first);
        let tie = e.band(&equal, &first);
        let better = e.bor(&better, &tie);
        let value = e.select(dtype, &better, &b[0], &a[0]);
        let value = if dtype == DType::B8 { e.mask32(&value) } else { value };
        vec![value, e.select(DType::I64, &better, &b[1], &a[1])]
    }

    /// How many iterations run as one group: first the main loop's, then smaller ones for what is left.
    fn group_sizes(&self, l: &Loop) -> Vec<usize> {
        let shape = shape(&l.body, self.k);
        let mut n: usize = if (shape.reduces || !l.reduces.is_empty()) && !shape.heavy {
            16
        } else {
            8
        };
        // As many vectors, whatever their width.
        let wider = self.e.width / 16;
        n *= wider;
        // Columns of a long reduction: some cache lines of each row at a time.
        if shape.columns && !shape.heavy {
            n = if wider > 2 { 64 } else { 32 };
        }
        if shape.wide {
            n /= 2;
        }
        let extent = self.k.extent(l.vars[0]);
        let least = 4 * wider;
        while n > least && n > extent {
            n /= 2;
        }
        if n > least { vec![n, least] } else { vec![n] }
    }

    /// Loads the constants of a light loop before it: there are registers for them. In a loop with polynomials there are not, and each use
    /// loads its constant.
    fn keep_constants(&mut self, l: &Loop) {
        let mut constants = vec![];
        if shape(&l.body, self.k).heavy || !constants_of(&l.body, &mut constants) {
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

    /// Spreads over lanes, before the loop, the uniform values that its iterations combine with varying ones.
    fn spread_invariants(&mut self, l: &Loop) {
        let mut varying = HashSet::new();
        let mut needed = vec![];
        let mut spread = |v: kernel::Value, varying: &HashSet<kernel::Value>| {
            if !varying.contains(&v) && !needed.contains(&v) {
                needed.push(v);
            }
        };
        find_varying(&l.body, l.vars[0], &mut varying, &mut spread);
        for v in needed {
            if let Val::Uniform(x) = self.vals[v.0 as usize] {
                let class = Class::of(self.k.dtype(v));
                let s = self.with_form(true, |s| s.e.splat(class, x)[0]);
                self.splats.insert(v, s);
            }
        }
        self.keep_constants(l);
    }
}

fn block_args(i: Value, state: &State) -> Vec<BlockArg> {
    std::iter::once(i)
        .chain(state.iter().flatten().copied())
        .map(|v| v.into())
        .collect()
}
