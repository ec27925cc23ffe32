//! f64 functions computed in place: the arithmetic of [`math::functions`](crate::math::functions), emitted.

use super::Real;
use super::vector::Vector;
use crate::codegen::lanes::{Emitter, Lanes, RegisterClass};
use crate::codegen::natives::NativeInst;
use crate::math::functions::{MAGIC, Number, SPLIT_BIAS, exp, exp2, expm1, log, log1p, sigmoid};
use crate::scalar::Unary;
use cranelift_codegen::ir::{InstBuilder, Value};
use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Sub};

const D: RegisterClass = RegisterClass::F64;
const L: RegisterClass = RegisterClass::I64;

/// One of the vectors of a group of f64 numbers, or its one scalar.
#[derive(Clone, Copy)]
struct Double<'c, 'e>(Vector<'c, 'e>);

impl<'e> Double<'_, 'e> {
    fn emit(self, f: impl FnOnce(&mut Emitter<'e>, &Lanes) -> Lanes) -> Self {
        Double(self.0.emit(f))
    }

    fn emit2(self, y: Self, f: impl FnOnce(&mut Emitter<'e>, &Lanes, &Lanes) -> Lanes) -> Self {
        Double(self.0.emit2(y.0, f))
    }
}

impl Add for Double<'_, '_> {
    type Output = Self;
    fn add(self, y: Self) -> Self {
        Double(self.0 + y.0)
    }
}

impl Sub for Double<'_, '_> {
    type Output = Self;
    fn sub(self, y: Self) -> Self {
        Double(self.0 - y.0)
    }
}

impl Mul for Double<'_, '_> {
    type Output = Self;
    fn mul(self, y: Self) -> Self {
        Double(self.0 * y.0)
    }
}

impl Div for Double<'_, '_> {
    type Output = Self;
    fn div(self, y: Self) -> Self {
        Double(self.0 / y.0)
    }
}

impl Add<f64> for Double<'_, '_> {
    type Output = Self;
    fn add(self, y: f64) -> Self {
        self + self.constant(y)
    }
}

impl Sub<f64> for Double<'_, '_> {
    type Output = Self;
    fn sub(self, y: f64) -> Self {
        self - self.constant(y)
    }
}

impl Mul<f64> for Double<'_, '_> {
    type Output = Self;
    fn mul(self, y: f64) -> Self {
        match y {
            -1.0 => self.emit(|e, x| e.fneg(D, x)),
            _ => self * self.constant(y),
        }
    }
}

impl Number for Double<'_, '_> {
    type Mask = Value;

    fn constant(self, k: f64) -> Self {
        self.emit(|e, x| e.float_like(D, x, k))
    }

    fn fma(self, factor: Self, term: Self) -> Self {
        Double(self.0.fma(factor.0, term.0))
    }

    fn round_ties_even(self) -> Self {
        self.emit(|e, x| e.map1(x, |e, x| e.b.ins().nearest(x)))
    }

    fn abs(self) -> Self {
        self.emit(|e, x| e.fabs(D, x))
    }

    fn copysign(self, sign: Self) -> Self {
        self.emit2(sign, |e, x, y| e.copysign(D, x, y))
    }

    fn below(self, other: Self) -> Value {
        self.0.below(other.0)
    }

    fn equals(self, other: Self) -> Value {
        self.0.equals(other.0)
    }

    fn pick(c: Value, x: Self, y: Self) -> Self {
        Double(Vector::pick(c, x.0, y.0))
    }

    fn power_of_two(self) -> Self {
        (self + MAGIC).emit(|e, t| {
            let bits = e.bitcast_lanes(L, t);
            let bits = e.shl(&bits, 52);
            let one = e.int_like(L, &bits, 1.0f64.to_bits() as i64);
            let bits = e.iadd(&bits, &one);
            e.bitcast_lanes(D, &bits)
        })
    }

    fn scale(self, n: Self) -> Self {
        if self.0.has_natives() {
            return self.emit2(n, |e, p, n| e.native(NativeInst::ScaleF64, D, p, n));
        }
        let half = Double((n * 0.5).0.floor());
        self * half.power_of_two() * (n - half).power_of_two()
    }

    fn split_power(self) -> (Self, Self) {
        let small = self.below(self.constant(f64::MIN_POSITIVE));
        let x = Self::pick(small, self * 18014398509481984.0, self);
        let t = x.emit(|e, x| {
            let bits = e.bitcast_lanes(L, x);
            let bias = e.int_like(L, &bits, SPLIT_BIAS as i64);
            let t = e.iadd(&bits, &bias);
            e.shr(&t, 52)
        });
        let m = x.emit2(t, |e, x, t| {
            let bits = e.bitcast_lanes(L, x);
            let raised = e.shl(t, 52);
            let bits = e.isub(&bits, &raised);
            let one = e.int_like(L, &bits, 1.0f64.to_bits() as i64);
            let bits = e.iadd(&bits, &one);
            e.bitcast_lanes(D, &bits)
        });
        let e = t.emit(|e, t| {
            let bits = e.int_like(L, t, 0x4330_0000_0000_0000);
            let sum = e.bor(t, &bits);
            e.bitcast_lanes(D, &sum)
        });
        let bias = Self::pick(small, self.constant(1077.0), self.constant(1023.0));
        (e - 4503599627370496.0 - bias, m)
    }
}

/// The function of an operation that is computed in place.
fn function<N: Number>(op: Unary) -> Option<fn(N) -> N> {
    Some(match op {
        Unary::Exp => exp::<N, true>,
        Unary::Exp2 => exp2::<N, true>,
        Unary::Expm1 => expm1::<N, true>,
        Unary::Sigmoid => sigmoid::<N, true>,
        Unary::Log => log::<N>,
        Unary::Log1p => log1p::<N>,
        _ => return None,
    })
}

impl Emitter<'_> {
    /// An f64 operation of one number, unless it is left to a call. A call computes in the widest vectors, so only kernels of wide
    /// vectors, which cannot call, compute in place.
    pub(in crate::codegen) fn unary_f64(&mut self, op: Unary, x: &Lanes) -> Option<Lanes> {
        if self.width == 16 {
            return None;
        }
        let each = x.iter().map(|&value| {
            let emitter = &RefCell::new(&mut *self);
            function(op).map(|f| f(Double(Vector { emitter, value })).0.value)
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::inline::is_inline_f64;
    use crate::math::functions::{LANE_OPS, LaneOp};

    #[test]
    fn analysis_knows_the_functions() {
        for op in LANE_OPS {
            if let LaneOp::Unary(op) = *op {
                assert_eq!(function::<f64>(op).is_some(), is_inline_f64(op), "{op:?}");
            }
        }
    }
}
