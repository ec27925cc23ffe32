//! Splitting a loop where a comparison of its variable turns.
//!
//! `for i in 0..1024 { y[i] = i <= row ? x[i] : 0 }`, a row of a lower triangle, is a copy and then zeros. Only the group of
//! iterations that contains the turn compares.

use super::analysis::body_weight;
use super::state::{End, FunctionLowering};
use crate::kernel::{self, Affine, Inst, Kernel, Loop, Stmt};
use crate::scalar::{Compare, ScalarOp};
use crate::tensor::Scalar;
use crate::types::DType;
use cranelift_codegen::ir::{InstBuilder, Value};
use std::collections::{HashMap, HashSet};

/// The least number of iterations of a loop that is split, and the greatest [`body_weight`].
const SHORTEST: usize = 64;
const HEAVIEST: usize = 64;

/// A comparison that is true on one side of an iteration and false on the other.
pub(super) struct Turn {
    /// The comparison.
    value: kernel::Value,
    /// Its value before the turn.
    before: bool,
    /// The first iteration after the turn is `floor((k - rest) / stride)`.
    k: i64,
    rest: Affine,
    stride: i64,
}

impl FunctionLowering<'_> {
    /// The turn at which to split a vector loop over `start..end`.
    pub(super) fn find_turn(&self, l: &Loop, start: End, end: End) -> Option<Turn> {
        let known = match (start, end) {
            (End::Const(a), End::Const(_)) => a == 0,
            _ => l.parallel,
        };
        let n = self.k.extent(l.vars[0]);
        let plain = l.reduces.is_empty() && l.carries.is_empty() && self.in_step.is_empty();
        let nested = l.body.iter().any(|s| matches!(s, Stmt::Loop(_)));
        let guarded = |s: &Stmt| matches!(s, Stmt::Let(_, Inst::Load(_, _, Some(_))));
        if !known || !plain || nested || n < SHORTEST || body_weight(&l.body) > HEAVIEST || l.body.iter().any(guarded) {
            return None;
        }
        let compares = |s: &Stmt| matches!(s, Stmt::Let(_, Inst::Op(ScalarOp::Compare(..))));
        if self.e.packed < 4 || !l.body.iter().any(compares) {
            return None;
        }
        let known = find_affines(self.k);
        l.body.iter().find_map(|s| match s {
            Stmt::Let(v, Inst::Op(ScalarOp::Compare(op, x, y))) => {
                let difference = known.get(x)?.clone() - known.get(y)?.clone();
                turn_of(*v, *op, difference, l)
            }
            _ => None,
        })
    }

    /// Lowers a vector loop over `start..end` in parts: groups before the turn, the group with the turn, groups after it, the rest.
    pub(super) fn lower_around_turn(&mut self, l: &Loop, start: End, end: End, t: &Turn) {
        let sizes = self.group_sizes(l);
        let least = sizes.last().copied().unwrap_or(1) as i64;
        let streams = self.e.width == 64 && self.has_streams(l);
        let mut acc = vec![None];
        let first = match (streams, start) {
            (true, End::At(begin)) => {
                let line = self.next_line(begin, end);
                self.scalar_part(l, start, line, &mut acc);
                line
            }
            _ => start,
        };
        let whole = self.groups_end(first, end, least);
        let [turn, after] = self.turning_group(first, whole, least, t);
        self.aligned = streams;
        for (from, to, known) in [
            (first, turn, Some(t.before)),
            (turn, after, None),
            (after, whole, Some(!t.before)),
        ] {
            self.decided = known.map(|k| (t.value, k)).into_iter().collect();
            self.unused = known.map_or_else(HashSet::new, |k| unused_values(&l.body, t.value, k));
            let mut next = from;
            let one = [least as usize];
            for &elements in if known.is_some() { &sizes[..] } else { &one[..] } {
                next = self.lane_part(l, next, to, elements, &mut acc);
            }
        }
        self.aligned = false;
        self.decided.clear();
        self.unused.clear();
        let rest = self.masked_part(l, whole, end);
        self.scalar_part(l, rest, end, &mut acc);
        self.close_loop(l);
    }

    /// The start and the end of the group of `least` iterations with the turn, among the groups over `first..whole`.
    fn turning_group(&mut self, first: End, whole: End, least: i64, t: &Turn) -> [End; 2] {
        let turn = self.floor_quotient(t.k, &t.rest, t.stride);
        let turn = self.max_or_min_end(turn, first, true);
        let turn = self.max_or_min_end(turn, whole, false);
        let turn = self.groups_end(first, turn, least);
        let after = self.end_value(turn);
        let after = self.e.b.ins().iadd_imm_s(after, least);
        [turn, self.max_or_min_end(End::At(after), whole, false)]
    }

    /// Where groups of `least` iterations, a power of two, end that start at `first`.
    fn groups_end(&mut self, first: End, end: End, least: i64) -> End {
        if let (End::Const(a), End::Const(b)) = (first, end) {
            return End::Const(a + (b - a) / least * least);
        }
        let (first, end) = (self.end_value(first), self.end_value(end));
        let count = self.e.b.ins().isub(end, first);
        let count = self.e.b.ins().band_imm_s(count, -least);
        End::At(self.e.b.ins().iadd(first, count))
    }

    /// Where the first cache line starts of a chunk that may start anywhere.
    pub(super) fn next_line(&mut self, begin: Value, end: End) -> End {
        let up = self.e.b.ins().iadd_imm_s(begin, 15);
        let up = self.e.b.ins().band_imm_s(up, -16);
        let last = self.end_value(end);
        End::At(self.e.b.ins().smin(up, last))
    }
}

/// The values of a body that its stores do not need where a condition is known.
fn unused_values(body: &[Stmt], condition: kernel::Value, known: bool) -> HashSet<kernel::Value> {
    let (mut needed, mut unused) = (HashSet::new(), HashSet::new());
    for s in body.iter().rev() {
        match s {
            Stmt::Store(_, i, v) => {
                needed.insert(*v);
                needed.extend(i.dynamic.iter().map(|d| d.0));
            }
            Stmt::Let(v, _) if !needed.contains(v) => {
                unused.insert(*v);
            }
            Stmt::Let(v, _) if *v == condition => {}
            Stmt::Let(_, Inst::Op(ScalarOp::Select(c, x, y))) if *c == condition => {
                needed.insert(*c);
                needed.insert(if known { *x } else { *y });
            }
            Stmt::Let(_, i) => i.visit_operands(&mut |x| {
                needed.insert(x);
            }),
            Stmt::Loop(_) => unreachable!("a body that is split has no loops"),
        }
    }
    unused
}

/// The turn of a comparison `difference op 0`.
fn turn_of(value: kernel::Value, op: Compare, mut difference: Affine, l: &Loop) -> Option<Turn> {
    let var = l.vars[0];
    let mut op = op;
    if difference.stride(var) < 0 {
        difference = -difference;
        op = match op {
            Compare::Lt => Compare::Gt,
            Compare::Gt => Compare::Lt,
            Compare::Le => Compare::Ge,
            Compare::Ge => Compare::Le,
            other => other,
        };
    }
    let stride = difference.stride(var);
    let rest = difference.without(var);
    // Below the turn, `stride * var + rest` is negative, or at most zero.
    let (before, k) = match op {
        Compare::Lt => (true, stride - 1),
        Compare::Ge => (false, stride - 1),
        Compare::Le => (true, stride),
        Compare::Gt => (false, stride),
        _ => return None,
    };
    (stride > 0).then_some(Turn {
        value,
        before,
        k,
        rest,
        stride,
    })
}

/// The values of a kernel that are affine in the loop variables: indices, and constants, also after conversion to 32 bits if they
/// fit.
fn find_affines(k: &Kernel) -> HashMap<kernel::Value, Affine> {
    let mut out = HashMap::new();
    collect_affines(k, &k.body, &mut out);
    out
}

fn collect_affines(k: &Kernel, body: &[Stmt], out: &mut HashMap<kernel::Value, Affine>) {
    let fits = |a: &Affine, bits: u32| {
        let (lo, hi) = a.value_range(|v| k.extent(v).max(1));
        lo > -(1i128 << bits) && hi < 1i128 << bits
    };
    for s in body {
        let (v, affine) = match s {
            Stmt::Let(v, Inst::Index(a)) => (v, Some(a.clone()).filter(|a| fits(a, 60))),
            Stmt::Let(v, Inst::Op(ScalarOp::Const(Scalar::Int(_, c)))) => {
                (v, Some(Affine::from(*c)).filter(|a| fits(a, 60)))
            }
            Stmt::Let(v, Inst::Op(ScalarOp::Cast(DType::I32, x))) => (v, out.get(x).cloned().filter(|a| fits(a, 31))),
            Stmt::Let(..) | Stmt::Store(..) => continue,
            Stmt::Loop(l) => {
                collect_affines(k, &l.body, out);
                continue;
            }
        };
        if let Some(a) = affine {
            out.insert(*v, a);
        }
    }
}
