//! Sums over pairs of neighbours.

use super::lanes::{half_of_words, product, read_f64_pairs, read_pairs, read_words, sum, write_halves};
use super::{GROUP, Neighbours};
use std::arch::x86_64::*;

impl<const R: usize> Neighbours<2, R> {
    /// Writes the sums of the points in `src`, one after the other.
    ///
    /// # Safety
    /// The machine has AVX-512 F, DQ and VL. `src` has the elements of a plane, and the weights and `out` those of the points.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    #[expect(clippy::needless_range_loop, reason = "indices belong to several lists")]
    pub(super) unsafe fn sum_pairs<const FORMAT: u8>(
        &self,
        src: *const f32,
        weights: [[*const f32; 2]; R],
        out: *mut f32,
    ) {
        for (g, from) in (0..self.n).step_by(GROUP).enumerate() {
            let lanes = u16::MAX >> (GROUP - (self.n - from).min(GROUP));
            // SAFETY: the lists have as many elements as a vector.
            let order = |k: usize| unsafe { _mm512_loadu_si512(self.order[g][k].as_ptr().cast()) };
            let order = [order(0), order(1)];
            let mut total = _mm512_setzero_ps();
            for r in 0..R {
                // SAFETY: positions are within the plane, with the element that follows them.
                let [low, high] = unsafe { read_pairs(src, self.starts[r].as_ptr().add(from)) };
                for k in 0..2 {
                    let value = _mm512_maskz_permutex2var_ps(self.inside[g][r][k], low, order[k], high);
                    // SAFETY: only lanes of points are read.
                    let weight = unsafe { _mm512_maskz_loadu_ps(lanes, weights[r][k].add(from)) };
                    let term = product::<FORMAT>(value, weight);
                    total = if r + k == 0 { term } else { sum::<FORMAT>(total, term) };
                }
            }
            // SAFETY: only lanes of points are written.
            unsafe { _mm512_mask_storeu_ps(out.add(from), lanes, total) };
        }
    }

    /// [`Neighbours::sum_pairs`] of elements of 16 bits: a word has both of a pair.
    ///
    /// # Safety
    /// As for [`Neighbours::sum_pairs`].
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    #[expect(clippy::needless_range_loop, reason = "indices belong to several lists")]
    pub(super) unsafe fn sum_half_pairs<const FORMAT: u8>(
        &self,
        src: *const u16,
        weights: [[*const f32; 2]; R],
        out: *mut u16,
    ) {
        for (g, from) in (0..self.n).step_by(GROUP).enumerate() {
            let lanes = u16::MAX >> (GROUP - (self.n - from).min(GROUP));
            // The last bit of an order says which of the two is meant.
            let shift = |k: usize| {
                // SAFETY: the lists have as many elements as a vector.
                let order = unsafe { _mm512_loadu_si512(self.order[g][k].as_ptr().cast()) };
                _mm512_slli_epi32::<4>(_mm512_and_si512(order, _mm512_set1_epi32(1)))
            };
            let shift = [shift(0), shift(1)];
            let mut total = _mm512_setzero_ps();
            for r in 0..R {
                // SAFETY: positions are within the plane, with the element that follows them.
                let words = unsafe { read_words(src, self.starts[r].as_ptr().add(from)) };
                for k in 0..2 {
                    let value = half_of_words::<FORMAT>(words, shift[k]);
                    let value = _mm512_maskz_mov_ps(self.inside[g][r][k], value);
                    // SAFETY: only lanes of points are read.
                    let weight = unsafe { _mm512_maskz_loadu_ps(lanes, weights[r][k].add(from)) };
                    let term = product::<FORMAT>(value, weight);
                    total = if r + k == 0 { term } else { sum::<FORMAT>(total, term) };
                }
            }
            // SAFETY: only lanes of points are written.
            unsafe { write_halves::<FORMAT>(total, lanes, out.add(from)) };
        }
    }

    /// [`Neighbours::sum_pairs`] of f64.
    ///
    /// # Safety
    /// As for [`Neighbours::sum_pairs`].
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    #[expect(clippy::needless_range_loop, reason = "indices belong to several lists")]
    pub(super) unsafe fn sum_f64_pairs(&self, src: *const f64, weights: [[*const f64; 2]; R], out: *mut f64) {
        const HALF: usize = GROUP / 2;
        for from in (0..self.n).step_by(HALF) {
            let lanes = u8::MAX >> (HALF - (self.n - from).min(HALF));
            let (g, first) = (from / GROUP, from % GROUP);
            // The last four bits of an order are that of a lane of the half's two vectors.
            let order = |k: usize| {
                // SAFETY: the half is in the list.
                let half = unsafe { _mm256_loadu_si256(self.order[g][k].as_ptr().add(first).cast()) };
                _mm512_cvtepi32_epi64(half)
            };
            let order = [order(0), order(1)];
            let mut total = _mm512_setzero_pd();
            for r in 0..R {
                // SAFETY: positions are within the plane, with the element that follows them.
                let [low, high] = unsafe { read_f64_pairs(src, self.starts[r].as_ptr().add(from)) };
                for k in 0..2 {
                    let inside = (self.inside[g][r][k] >> first) as u8;
                    let value = _mm512_maskz_permutex2var_pd(inside, low, order[k], high);
                    // SAFETY: only lanes of points are read.
                    let weight = unsafe { _mm512_maskz_loadu_pd(lanes, weights[r][k].add(from)) };
                    let term = _mm512_mul_pd(value, weight);
                    total = if r + k == 0 { term } else { _mm512_add_pd(total, term) };
                }
            }
            // SAFETY: only lanes of points are written.
            unsafe { _mm512_mask_storeu_pd(out.add(from), lanes, total) };
        }
    }
}
