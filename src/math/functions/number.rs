//! The arithmetic of functions that are both run here and emitted by code generation, so that results have the same bits.

use super::MAGIC;
use std::ops::{Add, Div, Mul, Sub};

/// Numbers, or lanes of numbers, and constants `K` of their type.
pub(crate) trait Arithmetic<K: Copy>:
    Copy
    + Add<Output = Self>
    + Add<K, Output = Self>
    + Sub<Output = Self>
    + Sub<K, Output = Self>
    + Mul<Output = Self>
    + Mul<K, Output = Self>
    + Div<Output = Self>
{
    /// A condition for each lane.
    type Mask: Copy;

    /// A constant.
    fn constant(self, k: K) -> Self;
    /// `self * factor + term`, rounded once where the target has fused multiply-add.
    fn fma(self, factor: Self, term: Self) -> Self;
    fn abs(self) -> Self;
    /// `self < other`.
    fn below(self, other: Self) -> Self::Mask;
    fn equals(self, other: Self) -> Self::Mask;
    /// `c ? x : y`, both computed.
    fn pick(c: Self::Mask, x: Self, y: Self) -> Self;

    /// The polynomial with these coefficients, from the highest power down.
    #[inline(always)]
    fn horner<const N: usize>(self, c: &[K; N]) -> Self {
        let mut p = self.constant(c[0]);
        let mut i = 1;
        while i < N {
            p = p.fma(self, self.constant(c[i]));
            i += 1;
        }
        p
    }
}

/// An f64 number or, in code generation, f64 lanes of a target with fused multiply-add.
pub(crate) trait Number: Arithmetic<f64> {
    fn round_ties_even(self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    /// `2^self` for an integer from -1022 to 1023.
    fn power_of_two(self) -> Self;
    /// `self * 2^n`, rounded once, for an integer n from -2000 to 2000.
    fn scale(self, n: Self) -> Self;
    /// The exponent and the significand, in sqrt(1/2)..sqrt(2), of a positive number.
    fn split_power(self) -> (Self, Self);

    /// The number held within bounds. NaN stays.
    #[inline(always)]
    fn bounded(self, low: f64, high: f64) -> Self {
        let low = self.constant(low);
        let x = Self::pick(self.below(low), low, self);
        let high = self.constant(high);
        Self::pick(high.below(x), high, x)
    }
}

impl Arithmetic<f64> for f64 {
    type Mask = bool;

    #[inline(always)]
    fn constant(self, k: f64) -> f64 {
        k
    }

    #[inline(always)]
    fn fma(self, factor: f64, term: f64) -> f64 {
        self.mul_add(factor, term)
    }

    #[inline(always)]
    fn abs(self) -> f64 {
        f64::abs(self)
    }

    #[inline(always)]
    fn below(self, other: f64) -> bool {
        self < other
    }

    #[inline(always)]
    fn equals(self, other: f64) -> bool {
        self == other
    }

    #[inline(always)]
    fn pick(c: bool, x: f64, y: f64) -> f64 {
        if c { x } else { y }
    }
}

impl Number for f64 {
    #[inline(always)]
    fn round_ties_even(self) -> f64 {
        f64::round_ties_even(self)
    }

    #[inline(always)]
    fn copysign(self, sign: f64) -> f64 {
        f64::copysign(self, sign)
    }

    #[inline(always)]
    fn power_of_two(self) -> f64 {
        let bits = (self + MAGIC).to_bits() << 52;
        f64::from_bits(bits.wrapping_add(1.0f64.to_bits()))
    }

    #[inline(always)]
    fn scale(self, n: f64) -> f64 {
        let half = (n * 0.5).floor();
        self * half.power_of_two() * (n - half).power_of_two()
    }

    #[inline(always)]
    fn split_power(self) -> (f64, f64) {
        let small = self < f64::MIN_POSITIVE;
        let x = f64::pick(small, self * 18014398509481984.0, self);
        // Both sides of the difference are positive, so the shift need not be arithmetic.
        let t = x.to_bits().wrapping_add(SPLIT_BIAS);
        let e = t >> 52;
        let m = f64::from_bits(x.to_bits().wrapping_sub((e << 52).wrapping_sub(1.0f64.to_bits())));
        // The bits of 2^52 + e.
        let e = f64::from_bits(e | 0x4330_0000_0000_0000) - 4503599627370496.0;
        (e - f64::pick(small, 1077.0, 1023.0), m)
    }
}

/// Added to the bits of a number, it raises the exponent where the significand is at least sqrt(2).
pub(crate) const SPLIT_BIAS: u64 = 1.0f64.to_bits() - 0x3fe6_a09e_0000_0000;
