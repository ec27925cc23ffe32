//! The arithmetic of 16-bit floats: each result is rounded. Numbers are f32 that 16 bits hold exactly, and rounding is integer
//! arithmetic, which loops compute in vectors.

use std::ops::{Add, Div, Mul, Sub};

/// A bf16.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct RealBf16(pub f32);

/// An f16.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct RealF16(pub f32);

impl RealBf16 {
    #[inline(always)]
    pub(crate) fn rounded(x: f32) -> RealBf16 {
        let bits = x.to_bits();
        let half = 0x7fff + (bits >> 16 & 1);
        let kept = f32::from_bits(bits.wrapping_add(half) & 0xffff_0000);
        RealBf16(if x.is_nan() { x } else { kept })
    }
}

impl RealF16 {
    /// Adds and subtracts a power of two whose steps are those of an f16 as large as `x`.
    #[inline(always)]
    pub(crate) fn rounded(x: f32) -> RealF16 {
        const EXPONENT: u32 = 0xff << 23;
        let size = x.abs();
        // Below the least normal number all steps are the same; above the largest number, every result is infinite.
        let power = (size.to_bits() & EXPONENT).clamp(113 << 23, 143 << 23);
        let large = f32::from_bits(power + (13 << 23));
        let kept = (size + large) - large;
        let y = if kept >= 65536.0 { f32::INFINITY } else { kept };
        RealF16(if x.is_nan() { x } else { y.copysign(x) })
    }
}

macro_rules! floats {
    ($($t:ident),*) => { $(impl $t {
        /// The numbers as f32, which must stay such that 16 bits hold them.
        pub(crate) fn floats_mut(x: &mut [$t]) -> &mut [f32] {
            // SAFETY: the type is transparent, and the borrow is unique.
            unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), x.len()) }
        }
    })* };
}
floats!(RealBf16, RealF16);

macro_rules! arithmetic {
    ($t:ident: $($op:ident $f:ident $sign:tt),*) => { $(impl $op for $t {
        type Output = $t;
        #[inline(always)]
        fn $f(self, other: $t) -> $t { $t::rounded(self.0 $sign other.0) }
    })* };
}
arithmetic!(RealBf16: Add add +, Sub sub -, Mul mul *, Div div /);
arithmetic!(RealF16: Add add +, Sub sub -, Mul mul *, Div div /);

macro_rules! saturated {
    ($($name:ident $t:ty),*) => { $(
        /// The number as an integer, as `as` converts it, but NaN gives the largest. The compiler does not find vector code for `as`.
        #[inline(always)]
        pub(crate) fn $name(x: $t) -> i32 {
            const END: $t = 2_147_483_648.0;
            let least = if x > -END { x } else { -END };
            let inside = if least < END { least } else { 0.0 };
            // SAFETY: the number is one of 32 bits.
            let i = unsafe { inside.to_int_unchecked() };
            if x < END { i } else { i32::MAX }
        }
    )* };
}
saturated!(f32_to_i32 f32, f64_to_i32 f64);

macro_rules! clamped {
    ($($name:ident $t:ty: $most:literal),*) => { $(
        /// The integer part of the number between these two, of which NaN gives the lower one. `low` is a number of the type.
        #[inline(always)]
        pub(crate) fn $name(x: $t, low: i32, high: i32) -> i32 {
            // The greatest number of the type that is an i32.
            const MOST: $t = $most;
            let (low, high) = (low as $t, if (high as $t) < MOST { high as $t } else { MOST });
            let above = if x > low { x } else { low };
            let inside = if above < high { above } else { high };
            // SAFETY: the number is between two of 32 bits.
            unsafe { inside.to_int_unchecked() }
        }
    )* };
}
clamped!(f32_to_i32_within f32: 2_147_483_520.0, f64_to_i32_within f64: 2_147_483_647.0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_saturated() {
        for x in [
            0.0,
            -1.5,
            2.9,
            2e9,
            -2e9,
            1e10,
            -1e10,
            f32::INFINITY,
            f32::NEG_INFINITY,
            2_147_483_520.0,
        ] {
            assert_eq!(f32_to_i32(x), x as i32);
            assert_eq!(f64_to_i32(x.into()), x as i32);
        }
        assert_eq!([f32_to_i32(f32::NAN), f64_to_i32(f64::NAN)], [i32::MAX; 2]);
        for (x, want) in [(-9.0, -2), (-1.5, -1), (6.9, 6), (7.0, 7), (1e20, 7), (f32::NAN, -2)] {
            assert_eq!(f32_to_i32_within(x, -2, 7), want);
            assert_eq!(f64_to_i32_within(x.into(), -2, 7), want);
        }
        assert_eq!(f32_to_i32_within(f32::INFINITY, 0, i32::MAX), i32::MAX - 127);
        assert_eq!(f64_to_i32_within(f64::INFINITY, 0, i32::MAX), i32::MAX);
        assert_eq!(
            [f64_to_i32(2_147_483_647.9), f64_to_i32(-2_147_483_648.9)],
            [i32::MAX, i32::MIN]
        );
    }
    use half::{bf16, f16};

    #[test]
    fn rounding_is_that_of_the_formats() {
        let some = (0..200_000u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9)));
        let edges = [
            65519.996,
            65520.0,
            6.1e-5,
            2.98e-8,
            2.99e-8,
            1e-45,
            -0.0,
            f32::MAX,
            f32::NEG_INFINITY,
            f32::NAN,
        ];
        let ties = (0..4096).map(|i| f32::from_bits(0x3f80_0000 + i * 0x800));
        for x in some.chain(edges).chain(ties) {
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(same(RealBf16::rounded(x).0, bf16::from_f32(x).to_f32()), "{x:?}");
            assert!(same(RealF16::rounded(x).0, f16::from_f32(x).to_f32()), "{x:?}");
        }
    }
}
