//! Blocks of 32 elements of bf16 as two vectors of f32, rounded by the processor.
//!
//! Widening and rounding whole blocks takes half of the instructions that single vectors take. The price is an order of the elements:
//! the first vector has the first four of every eight, as `vpunpcklwd` gives them, the second vector the others.
//!
//! The functions are for kernels with AVX-512 F, BW, VL and BF16, into which they are inlined.

use std::arch::x86_64::*;

/// The two vectors of a block.
pub(in crate::math) type Fours = [__m512; 2];

/// The vectors of elements that are in the order of memory.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
pub(in crate::math) fn order([first, second]: [__m512; 2]) -> Fours {
    [
        _mm512_shuffle_f32x4::<0x88>(first, second),
        _mm512_shuffle_f32x4::<0xdd>(first, second),
    ]
}

/// The elements of a block of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
pub(in crate::math) fn widen(block: __m512i) -> Fours {
    let zero = _mm512_setzero_si512();
    [
        _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, block)),
        _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, block)),
    ]
}

/// A block of bf16 in the order of memory.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
pub(in crate::math) fn round(block: Fours) -> __m512i {
    let order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    _mm512_permutexvar_epi64(order, round_in_memory_order(block))
}

/// A block of bf16 from vectors that are in the order of memory.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
pub(in crate::math) fn round_in_memory_order([first, second]: [__m512; 2]) -> __m512i {
    // SAFETY: all 512-bit vectors have the same representation.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first)) }
}

/// Clamps both vectors. NaN stays NaN.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
pub(in crate::math) fn clamp([low, high]: [__m512; 2], bounds: Option<(f32, f32)>) -> [__m512; 2] {
    let Some((least, most)) = bounds else {
        return [low, high];
    };
    let (least, most) = (_mm512_set1_ps(least), _mm512_set1_ps(most));
    let low = _mm512_min_ps(most, _mm512_max_ps(least, low));
    [low, _mm512_min_ps(most, _mm512_max_ps(least, high))]
}

/// `x * scale + shift`, in two steps.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
pub(in crate::math) fn transform(x: Fours, scale: Fours, shift: Fours) -> Fours {
    let product = [_mm512_mul_ps(x[0], scale[0]), _mm512_mul_ps(x[1], scale[1])];
    add(product, shift)
}

/// `x + y`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
pub(in crate::math) fn add(x: [__m512; 2], y: [__m512; 2]) -> [__m512; 2] {
    [_mm512_add_ps(x[0], y[0]), _mm512_add_ps(x[1], y[1])]
}

/// Reads the vectors of 32 elements of f32.
///
/// # Safety
/// The elements are readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
pub(in crate::math) unsafe fn load(p: *const f32) -> [__m512; 2] {
    // SAFETY: guaranteed by the caller.
    unsafe { [_mm512_loadu_ps(p), _mm512_loadu_ps(p.add(16))] }
}
