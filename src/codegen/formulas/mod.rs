//! f32 functions in the notation of formulas. A formula is written once, over [`Real`]; [`vector`] emits its steps for one
//! vector of a group after the other, so that long formulas do not run out of registers.
//!
//! Each formula states its error. Tests measure it, and `tools/fit_functions.py` makes the coefficients. NaN, infinities,
//! zeros and denormals give torch's values.

// The coefficients have all the digits that the fits produced.
#![allow(clippy::excessive_precision)]

mod double;
mod erf;
mod hyperbolic;
mod inverse;
mod power;
mod trig;
mod vector;

use crate::math::functions::Arithmetic;
use crate::scalar::{Binary, Unary};

/// An f32 number or the f32 lanes of a vector.
pub(super) trait Real: Arithmetic<f32> {
    /// Whether [`Arithmetic::fma`] rounds once.
    fn fuses(self) -> bool;
    fn sqrt(self) -> Self;
    fn floor(self) -> Self;
    /// `[e, m]` with a normal positive `self = 2^e m` and m in 0.6668..1.3336.
    fn split_power(self) -> [Self; 2];
    /// The natural logarithm: 1 ULP.
    fn ln(self) -> Self;
    /// `self`, which must not be negative, with the sign of `sign`.
    fn or_sign(self, sign: Self) -> Self;
    /// `ln(self) + low` for a small `low`, of a number that is not a denormal.
    fn ln_plus(self, low: Self) -> Self;
    /// `ln(self)` of a positive normal number, as two summands.
    fn ln_in_two(self) -> [Self; 2];
    /// Whether one of the two is NaN.
    fn unordered(self, other: Self) -> Self::Mask;
    /// Whether the sign bit is set.
    fn has_sign(self) -> Self::Mask;
    /// Whether this bit of the number is set.
    fn has_bit(self, bit: u32) -> Self::Mask;
    /// `self` with its sign bit inverted where `bits` has this bit.
    fn flip_sign(self, bits: Self, bit: u32) -> Self;
    /// The number whose bits, as an integer, are larger by `n`.
    fn add_to_bits(self, n: i32) -> Self;
    /// `self * 2^n`, where `t` is [`MAGIC`] plus the integer `n`.
    fn times_power(self, n: Self, t: Self) -> Self;
    /// The values of `f` in the lanes where `c` holds, `old` in the others. `f` is computed only if `c` holds in any lane.
    fn replace<const N: usize>(c: Self::Mask, old: [Self; N], f: impl FnOnce() -> [Self; N]) -> [Self; N];
    /// `[r, low, t]` where the number is `k pi / 2 + r + low` with `|r| <= pi / 4`, and the integer k is in the low bits of
    /// `t`; for numbers of any size.
    fn reduce_quadrants(self) -> [Self; 3];

    /// `self * factor + term` with constants.
    fn affine(self, factor: f32, term: f32) -> Self {
        self.fma(self.constant(factor), self.constant(term))
    }

    /// `self * factor + term` with a constant factor.
    fn axpy(self, factor: f32, term: Self) -> Self {
        self.fma(self.constant(factor), term)
    }

    /// The rounding error of a product: `self * y - product`.
    fn product_error(self, y: Self, product: Self) -> Self {
        if self.fuses() {
            return self.fma(y, product.negate());
        }
        // Products of halves of 12 bits are exact (Dekker 1971).
        let halves = |x: Self| {
            let wide = x * 4097.0;
            let high = wide - (wide - x);
            [high, x - high]
        };
        let ([a, b], [c, d]) = (halves(self), halves(y));
        (((a * c - product) + a * d) + b * c) + b * d
    }

    fn negate(self) -> Self {
        self * -1.0
    }

    /// `limit` where `self` is above it. NaN stays NaN.
    fn at_most(self, limit: f32) -> Self {
        let limit = self.constant(limit);
        Self::pick(limit.below(self), limit, self)
    }
}

/// 1.5 * 2^23. Adding it rounds a float to an integer, whose value is then in the low bits.
const MAGIC: f32 = super::poly::MAGIC;

/// The formula of an operation of one number, if it has one.
pub(super) fn unary<R: Real>(op: Unary) -> Option<fn(R) -> R> {
    Some(match op {
        Unary::Sin => trig::sin,
        Unary::Cos => trig::cos,
        Unary::Tan => trig::tan,
        Unary::Asin => inverse::asin,
        Unary::Acos => inverse::acos,
        Unary::Atan => inverse::atan,
        Unary::Sinh => hyperbolic::sinh,
        Unary::Cosh => hyperbolic::cosh,
        Unary::Asinh => hyperbolic::asinh,
        Unary::Acosh => hyperbolic::acosh,
        Unary::Atanh => hyperbolic::atanh,
        Unary::Erfc => erf::erfc,
        Unary::Erfinv => erf::erfinv,
        _ => return None,
    })
}

/// The formula of an operation of two numbers, if it has one.
pub(super) fn binary<R: Real>(op: Binary) -> Option<fn(R, R) -> R> {
    Some(match op {
        Binary::Atan2 => inverse::atan2,
        Binary::Pow => power::pow,
        Binary::Hypot => power::hypot,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::vector::Vector;
    use super::*;
    use crate::codegen::inline::{has_unary_formula, is_inline_binary};
    use crate::math::functions::{LANE_OPS, LaneOp};

    #[test]
    fn analysis_knows_the_formulas() {
        for op in LANE_OPS {
            match *op {
                LaneOp::Unary(op) => assert_eq!(unary::<Vector<f32>>(op).is_some(), has_unary_formula(op), "{op:?}"),
                LaneOp::Binary(op) => assert_eq!(binary::<Vector<f32>>(op).is_some(), is_inline_binary(op), "{op:?}"),
            }
        }
    }
}
