//! Products of pairs.

use std::arch::x86_64::*;

/// A pair of A in all lanes.
#[inline(always)]
pub(super) unsafe fn splat_pair(p: *const u16) -> __m512bh {
    // SAFETY: the caller provides two elements. All 512-bit vectors have the same representation.
    unsafe { std::mem::transmute(_mm512_set1_epi32(p.cast::<i32>().read_unaligned())) }
}

/// An element of A and a zero in all lanes.
#[inline(always)]
pub(super) unsafe fn splat_last(p: *const u16) -> __m512bh {
    // SAFETY: the caller provides the element.
    unsafe { std::mem::transmute(_mm512_set1_epi32(*p as i32)) }
}

/// Sums plus products of pairs.
#[inline(always)]
pub(super) unsafe fn add_products(sums: __m512, a: __m512bh, b: __m512i) -> __m512 {
    // SAFETY: the caller runs on a machine with the instruction.
    unsafe { _mm512_dpbf16_ps(sums, a, std::mem::transmute::<__m512i, __m512bh>(b)) }
}
