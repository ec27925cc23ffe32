//! The loops of windows with AVX-512. Their callers have checked all lengths.

use super::Windows;
use std::arch::x86_64::*;

/// The numbers of elements of 4 and of 8 bytes in a vector.
const WORDS: usize = 16;
const LONG_WORDS: usize = 8;

impl Windows {
    /// The elements of 4 bytes from `base` on, and zeros beyond the end.
    ///
    /// # Safety
    /// `src` has at least `end` elements, and `base` is below `end`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn words(&self, src: *const i32, base: usize) -> [__m512i; 2] {
        let inside = u32::MAX >> (2 * WORDS - (self.end - base).min(2 * WORDS));
        // SAFETY: only elements below `end` are read.
        unsafe {
            let from = src.add(base);
            let low = _mm512_maskz_loadu_epi32(inside as u16, from);
            [
                low,
                _mm512_maskz_loadu_epi32((inside >> 16) as u16, from.wrapping_add(WORDS)),
            ]
        }
    }

    /// The elements of 8 bytes from `base` on, and zeros beyond the end.
    ///
    /// # Safety
    /// As for [`Windows::words`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn long_words(&self, src: *const i64, base: usize) -> [__m512i; 2] {
        let inside = u16::MAX >> (2 * LONG_WORDS - (self.end - base).min(2 * LONG_WORDS));
        // SAFETY: only elements below `end` are read.
        unsafe {
            let from = src.add(base);
            let low = _mm512_maskz_loadu_epi64(inside as u8, from);
            [
                low,
                _mm512_maskz_loadu_epi64((inside >> 8) as u8, from.wrapping_add(LONG_WORDS)),
            ]
        }
    }

    /// The elements of list `k` for the results in these lanes, from `j` on, whose window these are.
    ///
    /// # Safety
    /// `src` has at least `end` elements, and the list has the results.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn select_words(&self, src: *const i32, windows: [__m512i; 2], k: usize, j: usize, lanes: u16) -> __m512i {
        // SAFETY: only lanes of results are read, and positions without a window are below `end`.
        unsafe {
            let at = _mm512_maskz_loadu_epi32(lanes, self.lists[k].as_ptr().add(j));
            match self.bases[j / WORDS] {
                0.. => _mm512_permutex2var_epi32(windows[0], at, windows[1]),
                _ => _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), lanes, at, src),
            }
        }
    }

    /// [`Windows::select_words`] of elements of 8 bytes.
    ///
    /// # Safety
    /// As for [`Windows::select_words`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn select_long_words(
        &self,
        src: *const i64,
        windows: [__m512i; 2],
        k: usize,
        j: usize,
        lanes: u8,
    ) -> __m512i {
        // SAFETY: only lanes of results are read, and positions without a window are below `end`.
        unsafe {
            let at = _mm512_maskz_loadu_epi32(lanes.into(), self.lists[k].as_ptr().add(j));
            let at = _mm512_castsi512_si256(at);
            match self.bases[j / LONG_WORDS] {
                0.. => _mm512_permutex2var_epi64(windows[0], _mm512_cvtepi32_epi64(at), windows[1]),
                _ => _mm512_mask_i32gather_epi64::<8>(_mm512_setzero_si512(), lanes, at, src),
            }
        }
    }

    /// The window of the results from `j` on.
    ///
    /// # Safety
    /// `src` has at least `end` elements.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn window_of_words(&self, src: *const i32, j: usize) -> [__m512i; 2] {
        match self.bases[j / WORDS] {
            // SAFETY: a window starts below `end`.
            base @ 0.. => unsafe { self.words(src, base as usize) },
            _ => [_mm512_setzero_si512(); 2],
        }
    }

    /// The window of the results from `j` on, of elements of 8 bytes.
    ///
    /// # Safety
    /// `src` has at least `end` elements.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn window_of_long_words(&self, src: *const i64, j: usize) -> [__m512i; 2] {
        match self.bases[j / LONG_WORDS] {
            // SAFETY: a window starts below `end`.
            base @ 0.. => unsafe { self.long_words(src, base as usize) },
            _ => [_mm512_setzero_si512(); 2],
        }
    }

    /// # Safety
    /// `src` has at least `end` elements, `out` has `n`, and the list at least `first + n`.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn copy_words(&self, src: *const i32, first: usize, out: *mut i32, n: usize) {
        for j in (0..n).step_by(WORDS) {
            let lanes = u16::MAX >> (WORDS - (n - j).min(WORDS));
            // SAFETY: guaranteed by the caller.
            unsafe {
                let windows = self.window_of_words(src, first + j);
                let words = self.select_words(src, windows, 0, first + j, lanes);
                _mm512_mask_storeu_epi32(out.add(j), lanes, words);
            }
        }
    }

    /// [`Windows::copy_words`] of elements of 8 bytes.
    ///
    /// # Safety
    /// As for [`Windows::copy_words`].
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn copy_long_words(&self, src: *const i64, first: usize, out: *mut i64, n: usize) {
        for j in (0..n).step_by(LONG_WORDS) {
            let lanes = u8::MAX >> (LONG_WORDS - (n - j).min(LONG_WORDS));
            // SAFETY: guaranteed by the caller.
            unsafe {
                let windows = self.window_of_long_words(src, first + j);
                let words = self.select_long_words(src, windows, 0, first + j, lanes);
                _mm512_mask_storeu_epi64(out.add(j), lanes, words);
            }
        }
    }

    /// Sums of f32. Products are rounded, as elsewhere.
    ///
    /// # Safety
    /// `src` has at least `end` elements; the weights and `out` have `n`, and the `K` lists at least `first + n`.
    #[target_feature(enable = "avx512f")]
    #[expect(clippy::needless_range_loop, reason = "indices belong to several lists")]
    pub(super) unsafe fn sum_floats<const K: usize>(
        &self,
        src: *const f32,
        weights: [*const f32; K],
        first: usize,
        out: *mut f32,
        n: usize,
    ) {
        for j in (0..n).step_by(WORDS) {
            let lanes = u16::MAX >> (WORDS - (n - j).min(WORDS));
            // SAFETY: guaranteed by the caller.
            unsafe {
                let windows = self.window_of_words(src.cast(), first + j);
                let mut sum = _mm512_setzero_ps();
                for k in 0..K {
                    let value = self.select_words(src.cast(), windows, k, first + j, lanes);
                    let weight = _mm512_maskz_loadu_ps(lanes, weights[k].add(j));
                    let term = _mm512_mul_ps(_mm512_castsi512_ps(value), weight);
                    sum = if k == 0 { term } else { _mm512_add_ps(sum, term) };
                }
                _mm512_mask_storeu_ps(out.add(j), lanes, sum);
            }
        }
    }

    /// Sums of f64. Products are rounded, as elsewhere.
    ///
    /// # Safety
    /// As for [`Windows::sum_floats`].
    #[target_feature(enable = "avx512f")]
    #[expect(clippy::needless_range_loop, reason = "indices belong to several lists")]
    pub(super) unsafe fn sum_doubles<const K: usize>(
        &self,
        src: *const f64,
        weights: [*const f64; K],
        first: usize,
        out: *mut f64,
        n: usize,
    ) {
        for j in (0..n).step_by(LONG_WORDS) {
            let lanes = u8::MAX >> (LONG_WORDS - (n - j).min(LONG_WORDS));
            // SAFETY: guaranteed by the caller.
            unsafe {
                let windows = self.window_of_long_words(src.cast(), first + j);
                let mut sum = _mm512_setzero_pd();
                for k in 0..K {
                    let value = self.select_long_words(src.cast(), windows, k, first + j, lanes);
                    let weight = _mm512_maskz_loadu_pd(lanes, weights[k].add(j));
                    let term = _mm512_mul_pd(_mm512_castsi512_pd(value), weight);
                    sum = if k == 0 { term } else { _mm512_add_pd(sum, term) };
                }
                _mm512_mask_storeu_pd(out.add(j), lanes, sum);
            }
        }
    }

    /// Sums of integers, which begin with `start`.
    ///
    /// # Safety
    /// `src` has at least `end` elements. The lists have at least as many as `out`, and the weights, of which there are as many, the same.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn sum_words(&self, src: *const i32, weights: &[Vec<i32>], start: i32, out: &mut [i32]) {
        let n = out.len();
        for j in (0..n).step_by(WORDS) {
            let lanes = u16::MAX >> (WORDS - (n - j).min(WORDS));
            // SAFETY: guaranteed by the caller.
            unsafe {
                let windows = self.window_of_words(src, j);
                let mut sum = _mm512_set1_epi32(start);
                for (k, weights) in weights.iter().enumerate() {
                    let value = self.select_words(src, windows, k, j, lanes);
                    let weight = _mm512_maskz_loadu_epi32(lanes, weights.as_ptr().add(j));
                    sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(value, weight));
                }
                _mm512_mask_storeu_epi32(out.as_mut_ptr().add(j), lanes, sum);
            }
        }
    }
}
