//! The addend of a block's columns, in vectors. An array on the way would be written in parts and read whole, which waits for the writes.

use super::{COLS, StoreJob};
use crate::math::pairs::pack::Source;
use std::arch::x86_64::*;

/// The addend of the columns, in the order of memory; zeros without an addend, and after the last column.
///
/// # Safety
/// The addend has one value for each column.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn load_addend(j: &StoreJob) -> [__m512; 2] {
    let mask = u32::MAX >> (COLS - j.cols);
    // SAFETY: guaranteed by the caller; masked elements are not accessed.
    unsafe {
        match j.addend {
            None => [_mm512_setzero_ps(); 2],
            Some((Source::Narrow(p), [_, 1])) => {
                let elements = _mm512_maskz_loadu_epi16(mask, p.cast());
                let halves = [
                    _mm512_castsi512_si256(elements),
                    _mm512_extracti64x4_epi64::<1>(elements),
                ];
                halves.map(|half| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half))))
            }
            Some((Source::Wide(p), [_, 1])) => [
                _mm512_maskz_loadu_ps(mask as __mmask16, p),
                _mm512_maskz_loadu_ps((mask >> 16) as __mmask16, p.wrapping_add(COLS / 2)),
            ],
            Some((x, [_, step])) => {
                let value = |i: usize| if i < j.cols { x.value(i * step) } else { 0.0 };
                let values: [f32; COLS] = std::array::from_fn(value);
                [0, COLS / 2].map(|i| _mm512_loadu_ps(values.as_ptr().add(i)))
            }
        }
    }
}
