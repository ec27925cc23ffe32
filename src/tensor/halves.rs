//! Conversions of single halves without branches and calls, so that loops of them become vector code. Those of the crate `half`
//! ask for the processor's features at every element.

use crate::target::{Feature, thread_target};
use half::{bf16, f16};

/// [`bf16::from_f32`] without branches, so that loops of it become vector code.
#[inline(always)]
pub(crate) fn round_to_bf16(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // The quiet NaN with these bits.
    let quiet = bits >> 16 | 0x40;
    bf16::from_bits(if x.is_nan() { quiet } else { rounded } as u16)
}

/// [`bf16::to_f32`] without a branch for NaN, which stays NaN.
#[inline(always)]
pub(crate) fn widen_bf16(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// [`f16::to_f32`]: shifts the exponent into place and corrects its bias with a multiplication, which also handles denormals
/// (F. Giesen's conversion).
#[inline(always)]
pub(crate) fn widen_f16(x: f16) -> f32 {
    let magnitude = u32::from(x.to_bits() & 0x7fff);
    let sign = u32::from(x.to_bits() & 0x8000) << 16;
    let scaled = (f32::from_bits(magnitude << 13) * f32::from_bits((254 - 15) << 23)).to_bits();
    let special = if magnitude > 0x7c00 { 511 << 22 } else { 255 << 23 };
    let bits = if magnitude > 0x7bff { scaled | special } else { scaled };
    f32::from_bits(bits | sign)
}

/// The conversions of a processor with F16C, for elements in any places, which are not converted in vectors. A function with the
/// intrinsics would be called for every element: it could not be inlined.
#[derive(Clone, Copy)]
pub(crate) struct F16c(());

impl F16c {
    /// The conversions, if the thread's target has them.
    pub(crate) fn of_thread() -> Option<F16c> {
        let has = cfg!(target_arch = "x86_64") && thread_target().has(Feature::F16c);
        has.then_some(F16c(()))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn widen(self, x: f16) -> f32 {
        use std::arch::x86_64::_mm_cvtsi32_si128;
        let single: f32;
        // SAFETY: the machine has the features of every thread's target. The instruction only writes its result.
        unsafe {
            let half = _mm_cvtsi32_si128(x.to_bits().into());
            std::arch::asm!("vcvtph2ps {}, {}", lateout(xmm_reg) single, in(xmm_reg) half, options(pure, nomem, nostack, preserves_flags));
        }
        single
    }

    /// Rounds to nearest, ties to even.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn round(self, x: f32) -> f16 {
        use std::arch::x86_64::{__m128i, _mm_cvtsi128_si32};
        let half: __m128i;
        // SAFETY: as in `widen`.
        let bits = unsafe {
            std::arch::asm!("vcvtps2ph {}, {}, 0", lateout(xmm_reg) half, in(xmm_reg) x, options(pure, nomem, nostack, preserves_flags));
            _mm_cvtsi128_si32(half)
        };
        f16::from_bits(bits as u16)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn widen(self, x: f16) -> f32 {
        widen_f16(x)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn round(self, x: f32) -> f16 {
        round_to_f16(x)
    }
}

/// [`widen_f16`], by an instruction if there is one.
#[inline(always)]
pub(crate) fn widen_one_f16(x: f16, by: Option<F16c>) -> f32 {
    by.map_or_else(|| widen_f16(x), |by| by.widen(x))
}

/// [`round_to_f16`], by an instruction if there is one.
#[inline(always)]
pub(crate) fn round_one_to_f16(x: f32, by: Option<F16c>) -> f16 {
    by.map_or_else(|| round_to_f16(x), |by| by.round(x))
}

/// [`f16::from_f32`]. Normal results add the rounding bias to the bits; denormal results add a float that aligns the mantissa
/// (F. Giesen's conversion).
#[inline(always)]
pub(crate) fn round_to_f16(x: f32) -> f16 {
    const ALIGN: u32 = ((127 - 15) + (23 - 10) + 1) << 23;
    let f = x.to_bits() & 0x7fff_ffff;
    let sign = (x.to_bits() >> 16) & 0x8000;
    let normal = f.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + (f >> 13 & 1)) >> 13;
    let denormal = (f32::from_bits(f) + f32::from_bits(ALIGN))
        .to_bits()
        .wrapping_sub(ALIGN);
    let finite = if f < 113 << 23 { denormal } else { normal };
    let special = if x.is_nan() { 0x7e00 | (f >> 13 & 0x1ff) } else { 0x7c00 };
    let bits = if f >= (127 + 16) << 23 { special } else { finite };
    f16::from_bits((bits | sign) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_that_of_the_formats() {
        let some = (0..200_000u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9)));
        let edges = [0.0, -0.0, f32::MAX, 65519.996, 65520.0, 6.1e-5, 2.98e-8, 2.99e-8, 1e-45];
        let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
        let ties = (0..0x8000).map(|i| f32::from_bits(0x3300_0000 + i * 0x800));
        for x in some.chain(edges).chain(special).chain(ties) {
            assert_eq!(round_to_bf16(x).to_bits(), bf16::from_f32(x).to_bits(), "{x:?}");
            let want = f16::from_f32(x);
            for got in [round_to_f16(x), round_one_to_f16(x, F16c::of_thread())] {
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{x:?}: {got} instead of {want}");
            }
        }
    }

    #[test]
    fn every_bf16_is_widened() {
        for x in (0..=u16::MAX).map(bf16::from_bits) {
            let (got, want) = (widen_bf16(x), x.to_f32());
            assert!(
                got == want || got.is_nan() && want.is_nan(),
                "{x:?}: {got} instead of {want}"
            );
        }
    }

    #[test]
    fn every_f16_is_widened() {
        for x in (0..=u16::MAX).map(f16::from_bits) {
            let (got, want) = (widen_f16(x), x.to_f32());
            let one = widen_one_f16(x, F16c::of_thread());
            assert!(
                one == want || one.is_nan() && want.is_nan(),
                "{x:?}: {one} instead of {want}"
            );
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{x:?}"
            );
        }
    }
}
