//! The arithmetic of 16-bit floats: each result is rounded. Numbers are f32 that 16 bits hold exactly, and rounding is integer
//! arithmetic, which loops compute in vectors.

use super::grid_axis::GridReal;
use crate::tensor::{Element, round_to_bf16, round_to_f16, widen_f16, with_wide_vectors};
use half::{bf16, f16};
use std::ops::{Add, Div, Mul, Sub};

/// A bf16.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
pub(super) struct RealBf16(pub f32);

/// An f16.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
pub(super) struct RealF16(pub f32);

impl RealBf16 {
    #[inline(always)]
    pub(super) fn rounded(x: f32) -> RealBf16 {
        RealBf16(if x.is_nan() { x } else { keep_bits::<16>(x) })
    }
}

impl RealF16 {
    #[inline(always)]
    pub(super) fn rounded(x: f32) -> RealF16 {
        let size = x.abs();
        let kept = keep_bits::<13>(size);
        let normal = if kept >= 65536.0 { f32::INFINITY } else { kept };
        // Below the least normal number all steps are those of 0.5 in f32.
        let small = (size + 0.5) - 0.5;
        let y = if size < 6.103_515_6e-5 { small } else { normal };
        RealF16(if x.is_nan() { x } else { y.copysign(x) })
    }
}

/// Rounds away the `N` last bits, ties to even.
#[inline(always)]
fn keep_bits<const N: u32>(x: f32) -> f32 {
    let bits = x.to_bits();
    let half = (1 << (N - 1)) - 1 + (bits >> N & 1);
    f32::from_bits(bits.wrapping_add(half) & (u32::MAX << N))
}

macro_rules! arithmetic {
    ($t:ident: $($op:ident $f:ident $sign:tt),*) => { $(impl $op for $t {
        type Output = $t;
        #[inline(always)]
        fn $f(self, other: $t) -> $t { $t::rounded(self.0 $sign other.0) }
    })* };
}
arithmetic!(RealBf16: Add add +, Sub sub -, Mul mul *, Div div /);
arithmetic!(RealF16: Add add +, Sub sub -, Mul mul *, Div div /);

/// An element of an image or a grid, which is computed with as a [`GridReal`].
pub(super) trait GridElement: Element + Default {
    type Real: GridReal;
    fn widen(self) -> Self::Real;
    /// Elements as numbers, in `buffer` unless they are.
    fn numbers<'a>(x: &'a [Self], buffer: &'a mut Vec<Self::Real>) -> &'a [Self::Real];
    /// Fills `out` with the numbers that `f` writes, by way of `buffer` unless they are elements.
    fn write(out: &mut [Self], buffer: &mut [Self::Real], f: impl FnOnce(&mut [Self::Real]));
}

macro_rules! wide_elements {
    ($($t:ty),*) => { $(impl GridElement for $t {
        type Real = $t;
        #[inline(always)]
        fn widen(self) -> $t { self }
        fn numbers<'a>(x: &'a [$t], _: &'a mut Vec<$t>) -> &'a [$t] { x }
        fn write(out: &mut [$t], _: &mut [$t], f: impl FnOnce(&mut [$t])) { f(out) }
    })* };
}
wide_elements!(f32, f64);

macro_rules! half_elements {
    ($($t:ident $real:ident $widen:path, $round:path);*) => { $(impl GridElement for $t {
        type Real = $real;
        #[inline(always)]
        fn widen(self) -> $real { $real($widen(self)) }
        fn numbers<'a>(x: &'a [$t], buffer: &'a mut Vec<$real>) -> &'a [$real] {
            buffer.clear();
            with_wide_vectors(|| buffer.extend(x.iter().map(|v| v.widen())));
            buffer
        }
        fn write(out: &mut [$t], buffer: &mut [$real], f: impl FnOnce(&mut [$real])) {
            let buffer = &mut buffer[..out.len()];
            f(buffer);
            with_wide_vectors(|| out.iter_mut().zip(&*buffer).for_each(|(o, v)| *o = $round(v.0)));
        }
    })* };
}
half_elements!(bf16 RealBf16 bf16::to_f32, round_to_bf16; f16 RealF16 widen_f16, round_to_f16);

#[cfg(test)]
mod tests {
    use super::*;

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
