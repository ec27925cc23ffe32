//! Conversions of slices of 16-bit floats: those of f16 by instructions, where the target has them. The compiler does not find these in
//! loops of single conversions.

use super::halves::{round_to_bf16, round_to_f16, widen_bf16, widen_f16};
use super::wide::with_wide_vectors;
use half::{bf16, f16};

/// [`bf16::to_f32`] of each element. Panics if the lengths differ.
pub(crate) fn widen_bf16s(x: &[bf16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    with_wide_vectors(|| x.iter().zip(out).for_each(|(&x, o)| *o = widen_bf16(x)));
}

/// [`bf16::from_f32`] of each element. Panics if the lengths differ.
pub(crate) fn round_to_bf16s(x: &[f32], out: &mut [bf16]) {
    assert_eq!(x.len(), out.len());
    with_wide_vectors(|| x.iter().zip(out).for_each(|(&x, o)| *o = round_to_bf16(x)));
}

/// [`f16::to_f32`] of each element. Panics if the lengths differ.
pub(crate) fn widen_f16s(x: &[f16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    #[cfg(target_arch = "x86_64")]
    if x86::widen(x, out) {
        return;
    }
    with_wide_vectors(|| x.iter().zip(out).for_each(|(&x, o)| *o = widen_f16(x)));
}

/// [`f16::from_f32`] of each element. Panics if the lengths differ.
pub(crate) fn round_to_f16s(x: &[f32], out: &mut [f16]) {
    assert_eq!(x.len(), out.len());
    #[cfg(target_arch = "x86_64")]
    if x86::round(x, out) {
        return;
    }
    with_wide_vectors(|| x.iter().zip(out).for_each(|(&x, o)| *o = round_to_f16(x)));
}

/// Adds each element of `x`, times `weight` if there is one, to `sums`. The product is rounded before it is added. Panics if the lengths
/// differ.
pub(crate) fn add_f16s(x: &[f16], weight: Option<f32>, sums: &mut [f32]) {
    assert_eq!(x.len(), sums.len());
    #[cfg(target_arch = "x86_64")]
    if x86::add(x, weight, sums) {
        return;
    }
    let (weight, mut wide) = (weight.unwrap_or(1.0), [0.0; ADDED]);
    for (x, sums) in x.chunks(ADDED).zip(sums.chunks_mut(ADDED)) {
        widen_f16s(x, &mut wide[..x.len()]);
        with_wide_vectors(|| wide.iter().zip(sums).for_each(|(x, sum)| *sum += x * weight));
    }
}

/// The number of elements that are widened before they are added, where no loop does both.
const ADDED: usize = 256;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::target::{Feature, thread_target};
    use half::f16;
    use std::arch::x86_64::*;

    /// Widens `x` to `out`, which has its length, if the target has instructions for it.
    pub(super) fn widen(x: &[f16], out: &mut [f32]) -> bool {
        let target = thread_target();
        if target.has(Feature::Avx512F) {
            // SAFETY: the machine has the features of every thread's target.
            unsafe { widen_avx512(x, out) };
        } else if target.has(Feature::F16c) {
            // SAFETY: as above.
            unsafe { widen_f16c(x, out) };
        } else {
            return false;
        }
        true
    }

    /// Rounds `x` to `out`, which has its length, if the target has instructions for it.
    pub(super) fn round(x: &[f32], out: &mut [f16]) -> bool {
        let target = thread_target();
        if target.has(Feature::Avx512F) {
            // SAFETY: the machine has the features of every thread's target.
            unsafe { round_avx512(x, out) };
        } else if target.has(Feature::F16c) {
            // SAFETY: as above.
            unsafe { round_f16c(x, out) };
        } else {
            return false;
        }
        true
    }

    /// [`add_f16s`](super::add_f16s), if the target converts and adds in vectors of 16.
    pub(super) fn add(x: &[f16], weight: Option<f32>, sums: &mut [f32]) -> bool {
        let has = thread_target().has(Feature::Avx512F);
        if has {
            // A factor of 1 leaves every number as it is.
            // SAFETY: the machine has the features of every thread's target.
            unsafe { add_avx512(x, weight.unwrap_or(1.0), sums) };
        }
        has
    }

    #[target_feature(enable = "avx512f")]
    fn add_avx512(x: &[f16], weight: f32, sums: &mut [f32]) {
        let ((parts, rest), (outs, out_rest)) = (x.as_chunks::<16>(), sums.as_chunks_mut::<16>());
        let factor = _mm512_set1_ps(weight);
        for (x, sums) in parts.iter().zip(outs) {
            // SAFETY: both arrays have 16 elements.
            unsafe {
                let x = _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast()));
                let sum = _mm512_add_ps(_mm512_loadu_ps(sums.as_ptr()), _mm512_mul_ps(x, factor));
                _mm512_storeu_ps(sums.as_mut_ptr(), sum);
            }
        }
        let mut wide = [0.0; 16];
        widen_avx512(rest, &mut wide[..rest.len()]);
        let wide = wide.iter().zip(out_rest);
        wide.for_each(|(x, sum)| *sum += x * weight);
    }

    /// Defines the loop over vectors of `$n` elements. The rest goes through a padded vector.
    macro_rules! in_vectors {
        ($name:ident $features:literal: $from:ty, $to:ty, $n:literal, |$x:ident, $o:ident| $convert:expr) => {
            #[target_feature(enable = $features)]
            fn $name(x: &[$from], out: &mut [$to]) {
                let ((parts, rest), (outs, out_rest)) = (x.as_chunks::<$n>(), out.as_chunks_mut::<$n>());
                for (x, o) in parts.iter().zip(outs) {
                    let ($x, $o) = (x.as_ptr(), o.as_mut_ptr());
                    // SAFETY: both pointers are to `$n` elements.
                    unsafe { $convert };
                }
                let (mut padded, mut last) = ([<$from>::default(); $n], [<$to>::default(); $n]);
                padded[..rest.len()].copy_from_slice(rest);
                let ($x, $o) = (padded.as_ptr(), last.as_mut_ptr());
                // SAFETY: as above.
                unsafe { $convert };
                out_rest.copy_from_slice(&last[..out_rest.len()]);
            }
        };
    }
    in_vectors!(widen_avx512 "avx512f": f16, f32, 16, |x, o| {
        _mm512_storeu_ps(o, _mm512_cvtph_ps(_mm256_loadu_si256(x.cast())))
    });
    in_vectors!(round_avx512 "avx512f": f32, f16, 16, |x, o| {
        _mm256_storeu_si256(o.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(x)))
    });
    in_vectors!(widen_f16c "avx,f16c": f16, f32, 8, |x, o| {
        _mm256_storeu_ps(o, _mm256_cvtph_ps(_mm_loadu_si128(x.cast())))
    });
    in_vectors!(round_f16c "avx,f16c": f32, f16, 8, |x, o| {
        _mm_storeu_si128(o.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Feature, Target, with_target};

    #[test]
    fn slices_are_converted_as_single_elements_are() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let some = (0..200_005u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9)));
        let singles: Vec<f32> = some.chain([65519.996, 65520.0, 2.98e-8, f32::NAN]).collect();
        let native = Target::native();
        for target in [
            native,
            native.without(Feature::Avx512F),
            native.without(Feature::Avx512F).without(Feature::F16c),
        ] {
            with_target(target, || {
                let (mut wide, mut narrow) = (vec![0.0; halves.len()], vec![f16::ZERO; singles.len()]);
                widen_f16s(&halves, &mut wide);
                round_to_f16s(&singles, &mut narrow);
                for weight in [None, Some(0.3)] {
                    let mut sums: Vec<f32> = (0..halves.len()).map(|i| i as f32 / 1000.0).collect();
                    let want = sums.clone();
                    add_f16s(&halves[3..], weight, &mut sums[3..]);
                    for ((x, before), sum) in halves.iter().zip(want).zip(sums).skip(3) {
                        let want = before + x.to_f32() * weight.unwrap_or(1.0);
                        assert!(sum == want || sum.is_nan() && want.is_nan(), "{before} and {x}: {sum}");
                    }
                }
                for (x, y) in halves.iter().zip(wide) {
                    assert!(y == x.to_f32() || y.is_nan() && x.is_nan(), "{x}: {y}");
                }
                for (x, y) in singles.iter().zip(narrow) {
                    let want = f16::from_f32(*x);
                    assert!(y.to_bits() == want.to_bits() || y.is_nan() && want.is_nan(), "{x}: {y}");
                }
            });
        }
    }
}
