//! Reductions: their initial values, combining two partial results, and combining the lanes of a group.

use super::lanes::{MEM, RegisterClass};
use super::state::{FunctionLowering, LoopState, LoweredValue};
use crate::kernel::{self, Loop, Reduce, ReduceOp};
use crate::scalar::{Compare, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use cranelift_codegen::ir::types::{I16X8, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

/// How to combine two partial results.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReduceRule {
    pub op: ReduceOp,
    pub dtype: DType,
    /// Whether NaN need not be propagated; see [`Folds::numbers`](super::folds::Folds).
    numbers: bool,
}

impl ReduceRule {
    /// Whether vectors combine lane by lane with one operation.
    fn is_lane_wise(self) -> bool {
        self.op.as_binary().is_some() && RegisterClass::from_dtype(self.dtype) != RegisterClass::Bool
    }
}

impl FunctionLowering<'_> {
    /// The combining rule of a reduction.
    pub(super) fn reduce_rule(&self, r: &Reduce) -> ReduceRule {
        ReduceRule {
            op: r.op,
            dtype: self.k.dtype(r.init[0]),
            numbers: self.folds.numbers.contains(&r.out[0]),
        }
    }

    /// Whether a reduction's initial values are constants equal to its identity.
    fn begins_with_nothing(&self, r: &Reduce) -> bool {
        let identity = r.op.identity(self.k.dtype(r.init[0]));
        let negative = |s: Scalar| s.to_f64().is_sign_negative();
        let same = |a: Scalar, b: Scalar| a == b && negative(a) == negative(b);
        let is = |v: &kernel::Value, s| matches!(self.vals[v.0 as usize], LoweredValue::Const(c) if same(c, s));
        is(&r.init[0], identity) && r.init[1..].iter().all(|v| is(v, Scalar::Int(DType::I64, i64::MAX)))
    }

    /// Combines the initial values of a loop's reductions with `parts`, the results of its iterations.
    pub(super) fn with_initial(&mut self, l: &Loop, parts: Option<LoopState>) -> LoopState {
        let mut out: LoopState = vec![];
        for r in &l.reduces {
            let part = parts.as_ref().map(|p| p[out.len()..out.len() + r.init.len()].to_vec());
            out.extend(match part {
                Some(part) if self.begins_with_nothing(r) => part,
                part => {
                    let init: LoopState = r.init.iter().map(|&v| self.registers_of(v)).collect();
                    let rule = self.reduce_rule(r);
                    match part {
                        Some(part) => self.with_form(false, |s| s.combine(rule, &init, &part)),
                        None => init,
                    }
                }
            });
        }
        out
    }

    /// The identities of a loop's reductions, in the current form.
    pub(super) fn identity_state(&mut self, l: &Loop) -> LoopState {
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
                    let n = l.e.value_count(RegisterClass::from_dtype(d));
                    l.constant_lanes(s, n)
                }));
            }
        }
        out
    }

    /// Combines a group's halves until one vector is left. Pairs and b8, which do not combine lane-wise, stop at as
    /// many elements as a vector has 32-bit lanes.
    fn halved_one(&mut self, rule: ReduceRule, mut x: LoopState) -> LoopState {
        let lane = if self.e.packed < 4 {
            self.e.packed
        } else if rule.is_lane_wise() {
            RegisterClass::from_dtype(rule.dtype).size()
        } else {
            4
        };
        let mut elements = self.e.elements;
        while elements > self.e.width / lane {
            let half = |x: &LoopState, k: usize| -> LoopState {
                x.iter()
                    .map(|v| v[k * v.len() / 2..(k + 1) * v.len() / 2].to_vec())
                    .collect()
            };
            let (a, b) = (half(&x, 0), half(&x, 1));
            x = self.with_form(true, |s| s.combine(rule, &a, &b));
            elements /= 2;
        }
        x
    }

    /// Combines each reduction's group until it is one vector.
    pub(super) fn halve_groups(&mut self, l: &Loop, wide: LoopState) -> LoopState {
        let mut out: LoopState = vec![];
        for r in &l.reduces {
            let part = wide[out.len()..out.len() + r.op.arity()].to_vec();
            let rule = self.reduce_rule(r);
            out.extend(self.halved_one(rule, part));
        }
        out
    }

    /// Combines the lanes that [`FunctionLowering::halve_groups`] left into one scalar, always in the same tree.
    pub(super) fn collapse_lanes(&mut self, rule: ReduceRule, x: LoopState) -> LoopState {
        if self.e.packed < 4 {
            return vec![vec![self.collapse_packed(rule, x[0][0])]];
        }
        if rule.is_lane_wise() {
            return vec![vec![self.combine_across(rule, x[0][0])]];
        }
        let classes = [RegisterClass::from_dtype(rule.dtype), RegisterClass::I64];
        let mut lanes: Vec<LoopState> = vec![];
        for (v, c) in x.iter().zip(classes) {
            let scalars = self.with_form(true, |s| s.e.extract_scalars(c, v));
            lanes.resize(scalars.len(), vec![]);
            for (lane, s) in lanes.iter_mut().zip(scalars) {
                lane.push(vec![s]);
            }
        }
        self.with_form(false, |s| {
            while lanes.len() > 1 {
                let pairs: Vec<LoopState> = lanes.chunks(2).map(|p| s.combine(rule, &p[0], &p[1])).collect();
                lanes = pairs;
            }
        });
        lanes.swap_remove(0)
    }

    /// Combines the lanes of one vector in registers. Each step combines the vector with a permutation of itself, the
    /// parts of a wide vector last, so at the end every lane has the result.
    fn combine_across(&mut self, rule: ReduceRule, x: Value) -> Value {
        let orders: &[[u8; 4]] = match RegisterClass::from_dtype(rule.dtype).size() {
            8 => &[[2, 3, 0, 1]],
            _ => &[[2, 3, 0, 1], [1, 0, 3, 2]],
        };
        let mut x = x;
        for &order in orders {
            let y = self.e.shuffle32(x, x, order);
            x = self.with_form(true, |s| s.combine(rule, &[vec![x]], &[vec![y]]))[0][0];
        }
        x = self.across_parts(rule, x);
        if rule.dtype.is_float() || self.e.width == 16 {
            return self.e.b.ins().extractlane(x, 0);
        }
        let address = self.e.b.ins().stack_addr(I64, self.e.slot, 0);
        self.e.b.ins().store(MEM, x, address, 0);
        self.e
            .b
            .ins()
            .load(RegisterClass::from_dtype(rule.dtype).scalar_type(), MEM, address, 0)
    }

    /// Combines the 128-bit parts of a wide vector lane by lane, so that each part has the result; see
    /// [`widen`](super::widen).
    pub(super) fn across_parts(&mut self, rule: ReduceRule, x: Value) -> Value {
        let ty = self.e.b.func.dfg.value_type(x);
        let mut x = x;
        for neighbours in [false, true].into_iter().take(self.e.width.ilog2() as usize - 4) {
            let v = self.e.bitcast(I16X8, x);
            let y = match neighbours {
                false => self.e.b.ins().uadd_sat(v, v),
                true => self.e.b.ins().sadd_sat(v, v),
            };
            let y = self.e.bitcast(ty, y);
            x = self.with_form(true, |s| s.combine(rule, &[vec![x]], &[vec![y]]))[0][0];
        }
        x
    }

    /// Combines two partial results of each reduction of a loop, in the current form.
    pub(super) fn combine_states(&mut self, l: &Loop, a: &LoopState, b: &LoopState) -> LoopState {
        let mut out: LoopState = vec![];
        for r in &l.reduces {
            let range = out.len()..out.len() + r.op.arity();
            let rule = self.reduce_rule(r);
            out.extend(self.combine(rule, &a[range.clone()], &b[range]));
        }
        out
    }

    /// `a ⊕ b` in the current form.
    pub(super) fn combine(&mut self, rule: ReduceRule, a: &[Vec<Value>], b: &[Vec<Value>]) -> LoopState {
        let ReduceRule { op, dtype, numbers } = rule;
        if numbers {
            return vec![self.e.max_xy(&a[0], &b[0])];
        }
        if let Some(op) = op.as_binary() {
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
            let both_nan = e.band(&na, &nb);
            better = e.bor(&better, &only);
            equal = e.bor(&equal, &both_nan);
        }
        // As in torch, NaN precedes all numbers, and the lowest index wins among equals.
        let first = e.compare(Compare::Lt, DType::I64, &b[1], &a[1]);
        let first = e.mask32(&first);
        let tie = e.band(&equal, &first);
        let better = e.bor(&better, &tie);
        let value = e.select(dtype, &better, &b[0], &a[0]);
        let value = if dtype == DType::B8 { e.mask32(&value) } else { value };
        vec![value, e.select(DType::I64, &better, &b[1], &a[1])]
    }
}
