//! Reductions: what they begin with, how two partial results become one, how the lanes of a group do.

use super::func::Lowering;
use super::lanes::{Class, MEM};
use super::loops::State;
use crate::kernel::{Loop, ReduceOp};
use crate::scalar::{Compare, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use cranelift_codegen::ir::types::{I16X8, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

impl Lowering<'_> {
    /// The identities of a loop's reductions in the current form.
    pub(super) fn identities(&mut self, l: &Loop) -> State {
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

    /// A group's lanes combined into one scalar: halves of the group by vectors, then lane pairs; always the same tree.
    pub(super) fn collapse(&mut self, op: ReduceOp, dtype: DType, mut x: State) -> State {
        let classes = [Class::of(dtype), Class::I64];
        let plain = op.binary().is_some() && classes[0] != Class::Bool;
        let mut elements = self.e.elements;
        // One vector, or as many elements as 128 bits have of 32.
        let lane = if plain { classes[0].size() } else { 4 };
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
        if plain {
            return vec![vec![self.across(op, dtype, x[0][0])]];
        }
        let mut lanes: Vec<State> = vec![vec![]; elements];
        for (v, c) in x.iter().zip(classes) {
            let scalars = self.with_form(true, |s| s.e.extract(c, v));
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

    /// The lanes of one vector combined, in registers: each step combines the vector with itself in another order, the parts of
    /// a wide one first (see [`widen`](super::widen)), so that at the end every lane has the result.
    fn across(&mut self, op: ReduceOp, dtype: DType, x: Value) -> Value {
        let ty = self.e.b.func.dfg.value_type(x);
        let mut x = x;
        for neighbours in [false, true].into_iter().take(self.e.width.ilog2() as usize - 4) {
            let v = self.e.bitcast(I16X8, x);
            let y = match neighbours {
                false => self.e.b.ins().uadd_sat(v, v),
                true => self.e.b.ins().sadd_sat(v, v),
            };
            let y = self.e.bitcast(ty, y);
            x = self.with_form(true, |s| s.combine(op, dtype, &[vec![x]], &[vec![y]]))[0][0];
        }
        let orders: &[[u8; 4]] = match Class::of(dtype).size() {
            8 => &[[2, 3, 0, 1]],
            _ => &[[1, 0, 3, 2], [2, 3, 0, 1]],
        };
        for &order in orders {
            let y = self.e.shuffle32(x, x, order);
            x = self.with_form(true, |s| s.combine(op, dtype, &[vec![x]], &[vec![y]]))[0][0];
        }
        if dtype.is_float() || self.e.width == 16 {
            return self.e.b.ins().extractlane(x, 0);
        }
        let at = self.e.b.ins().stack_addr(I64, self.e.slot, 0);
        self.e.b.ins().store(MEM, x, at, 0);
        self.e.b.ins().load(Class::of(dtype).scalar(), MEM, at, 0)
    }

    /// `a ⊕ b` in the current form.
    pub(super) fn combine(&mut self, op: ReduceOp, dtype: DType, a: &[Vec<Value>], b: &[Vec<Value>]) -> State {
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
}
