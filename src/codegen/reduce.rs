//! Reductions: what they begin with, how two partial results become one, how the lanes of a group do.

use super::func::Lowering;
use super::lanes::{Class, MEM};
use super::loops::State;
use crate::kernel::{Loop, ReduceOp};
use crate::scalar::{Compare, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use cranelift_codegen::ir::types::I64;
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
