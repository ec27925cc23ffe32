//! f64 functions computed in place: the arithmetic of [`math::functions`](crate::math::functions), emitted.

use super::vector::Vector;
use crate::codegen::lanes::RegisterClass;
use crate::codegen::natives::NativeInst;
use crate::math::functions::{Arithmetic, MAGIC, Number, SPLIT_BIAS, exp, exp2, expm1, log, log1p, sigmoid};
use crate::scalar::Unary;
use cranelift_codegen::ir::InstBuilder;

const D: RegisterClass = RegisterClass::F64;
const L: RegisterClass = RegisterClass::I64;

impl Number for Vector<'_, '_, f64> {
    fn round_ties_even(self) -> Self {
        self.emit(|e, x| e.map1(x, |e, x| e.b.ins().nearest(x)))
    }

    fn copysign(self, sign: Self) -> Self {
        self.emit2(sign, |e, x, y| e.copysign(D, x, y))
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
        if self.has_natives() {
            return self.emit2(n, |e, p, n| e.native(NativeInst::ScaleF64, D, p, n));
        }
        let half = (n * 0.5).emit(|e, x| e.map1(x, |e, x| e.b.ins().floor(x)));
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

/// The function of an operation of one number, if it is computed in place.
pub(super) fn unary<N: Number>(op: Unary) -> Option<fn(N) -> N> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::inline::is_inline_f64;
    use crate::math::functions::{LANE_OPS, LaneOp};

    #[test]
    fn analysis_knows_the_functions() {
        for op in LANE_OPS {
            if let LaneOp::Unary(op) = *op {
                assert_eq!(unary::<f64>(op).is_some(), is_inline_f64(op), "{op:?}");
            }
        }
    }
}
