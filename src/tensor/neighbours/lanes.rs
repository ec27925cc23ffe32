//! Vectors of AVX-512: their arithmetic by format, and elements at listed positions as lanes.

use std::arch::x86_64::*;

/// The formats of numbers. Those of 16 bits are f32 that the format holds exactly.
pub(super) const F32: u8 = 0;
pub(super) const BF16: u8 = 1;
pub(super) const F16: u8 = 2;
pub(super) const F64: u8 = 3;

/// Rounds a sum or a product of numbers of a format to that format. NaN stays NaN: a result that is NaN has the bits of an operand, or
/// those of the standard NaN, of which the last 16 are zeros, so that rounding does not change it.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) fn rounded<const FORMAT: u8>(x: __m512) -> __m512 {
    match FORMAT {
        BF16 => {
            let bits = _mm512_castps_si512(x);
            let odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(1 << 16));
            let half = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
            let sum = _mm512_mask_add_epi32(half, odd, half, _mm512_set1_epi32(1));
            _mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32(!0xffff)))
        }
        F16 => _mm512_cvtph_ps(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)),
        _ => x,
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) fn product<const FORMAT: u8>(a: __m512, b: __m512) -> __m512 {
    rounded::<FORMAT>(_mm512_mul_ps(a, b))
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) fn sum<const FORMAT: u8>(a: __m512, b: __m512) -> __m512 {
    rounded::<FORMAT>(_mm512_add_ps(a, b))
}

/// The 4 bytes that begin at each of 16 positions: an element, or two neighbours of 2 bytes.
///
/// # Safety
/// There are 16 positions at `at`, and 4 bytes of `src` at each.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn read_words<T>(src: *const T, at: *const i32) -> __m512i {
    // SAFETY: guaranteed by the caller, for all `k` below 16.
    let one = |k: usize| unsafe { src.offset(*at.add(k) as isize).cast::<i32>().read_unaligned() };
    let four = |k: usize| _mm_setr_epi32(one(k), one(k + 1), one(k + 2), one(k + 3));
    let eight = |k: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(four(k)), four(k + 4));
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(eight(0)), eight(8))
}

/// One of the two numbers in each word. `shift` is 0 for the first, and 16 for the second.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) fn half_of_words<const FORMAT: u8>(words: __m512i, shift: __m512i) -> __m512 {
    match FORMAT {
        BF16 => {
            let up = _mm512_sub_epi32(_mm512_set1_epi32(16), shift);
            let moved = _mm512_sllv_epi32(words, up);
            _mm512_castsi512_ps(_mm512_and_si512(moved, _mm512_set1_epi32(!0xffff)))
        }
        _ => _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srlv_epi32(words, shift))),
    }
}

/// Writes the numbers of these lanes, which the format holds exactly, as its elements.
///
/// # Safety
/// There is an element at `to` for each of the lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn write_halves<const FORMAT: u8>(x: __m512, lanes: u16, to: *mut u16) {
    let words = match FORMAT {
        BF16 => _mm512_srli_epi32::<16>(_mm512_castps_si512(x)),
        _ => _mm512_cvtepu16_epi32(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)),
    };
    // SAFETY: guaranteed by the caller.
    unsafe { _mm512_mask_cvtepi32_storeu_epi16(to.cast(), lanes, words) };
}

/// [`read_words`] of 8 positions and elements of 8 bytes.
///
/// # Safety
/// There are 8 positions at `at`, and an element of `src` at each.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn read_long_words(src: *const i64, at: *const i32) -> __m512i {
    // SAFETY: guaranteed by the caller, for all `k` below 8.
    let one = |k: usize| unsafe { *src.offset(*at.add(k) as isize) };
    let four = |k: usize| _mm256_setr_epi64x(one(k), one(k + 1), one(k + 2), one(k + 3));
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(four(0)), four(4))
}

/// Two f64 at each of 8 positions, those of 4 positions in each vector.
///
/// # Safety
/// There are 8 positions at `at`, and two elements of `src` at each.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn read_f64_pairs(src: *const f64, at: *const i32) -> [__m512d; 2] {
    // SAFETY: guaranteed by the caller, for all `k` below 8.
    let pair = |k: usize| unsafe { _mm_loadu_pd(src.offset(*at.add(k) as isize)) };
    let two = |k: usize| _mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(pair(k)), pair(k + 1));
    let four = |k: usize| _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(two(k)), two(k + 2));
    [four(0), four(4)]
}

/// Two elements at each of 16 positions, those of 8 positions in each vector.
///
/// # Safety
/// There are 16 positions at `at`, and two elements of `src` at each.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn read_pairs(src: *const f32, at: *const i32) -> [__m512; 2] {
    // SAFETY: guaranteed by the caller, for all `k` below 16.
    let pair = |k: usize| unsafe { src.offset(*at.add(k) as isize).cast::<f64>().read_unaligned() };
    let four = |k: usize| {
        let (low, high) = (_mm_set_pd(pair(k + 1), pair(k)), _mm_set_pd(pair(k + 3), pair(k + 2)));
        _mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(low), high)
    };
    let eight = |k: usize| {
        let all = _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(four(k)), four(k + 4));
        _mm512_castpd_ps(all)
    };
    [eight(0), eight(8)]
}

/// Four elements at each of 16 positions: those of every fourth one in a vector.
///
/// # Safety
/// There are 16 positions at `at`, and four elements of `src` at each.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn read_quads(src: *const f32, at: *const i32) -> [__m512; 4] {
    // SAFETY: guaranteed by the caller, for all `k` below 16.
    let quad = |k: usize| unsafe { _mm_loadu_ps(src.offset(*at.add(k) as isize)) };
    let two = |k: usize| _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(quad(k)), quad(k + 4));
    let four = |k: usize| _mm512_insertf32x8::<1>(_mm512_castps256_ps512(two(k)), two(k + 8));
    [four(0), four(1), four(2), four(3)]
}

/// Transposes the 4x4 elements of each quarter of the vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
pub(super) fn transpose_quarters([a, b, c, d]: [__m512; 4]) -> [__m512; 4] {
    let low = |a, b| _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
    let high = |a, b| _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    let (ab, cd) = (low(a, b), low(c, d));
    let (ab_high, cd_high) = (high(a, b), high(c, d));
    [
        _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
        _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)),
        _mm512_castpd_ps(_mm512_unpacklo_pd(ab_high, cd_high)),
        _mm512_castpd_ps(_mm512_unpackhi_pd(ab_high, cd_high)),
    ]
}
