//! Copies of single elements.

use super::lanes::{read_long_words, read_words};
use super::{GROUP, Neighbours};
use std::arch::x86_64::*;

/// The words of four vectors.
const FEW: usize = 4 * GROUP;

impl Neighbours<1, 1> {
    /// Writes the elements of the points in `src`, one after the other, which have 4 bytes.
    ///
    /// # Safety
    /// The machine has AVX-512 F, DQ and VL. `src` has the elements of a plane, and `out` those of the points.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    pub(super) unsafe fn copy_words(&self, src: *const i32, out: *mut i32) {
        if self.end <= FEW {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.select_words(src, out) };
        }
        for (g, from) in (0..self.n).step_by(GROUP).enumerate() {
            let lanes = u16::MAX >> (GROUP - (self.n - from).min(GROUP));
            // SAFETY: positions are within the plane, and only lanes of points are written.
            unsafe {
                let words = read_words(src, self.starts[0].as_ptr().add(from));
                let words = _mm512_maskz_mov_epi32(self.inside[g][0][0], words);
                _mm512_mask_storeu_epi32(out.add(from), lanes, words);
            }
        }
    }

    /// [`Neighbours::copy_words`] from a plane that four vectors hold.
    ///
    /// # Safety
    /// As for [`Neighbours::copy_words`].
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    unsafe fn select_words(&self, src: *const i32, out: *mut i32) {
        let inside = u64::MAX >> (FEW - self.end);
        let mut plane = [_mm512_setzero_si512(); FEW / GROUP];
        for (k, part) in plane.iter_mut().enumerate() {
            let lanes = (inside >> (GROUP * k)) as u16;
            // SAFETY: only lanes of the plane are read.
            *part = unsafe { _mm512_maskz_loadu_epi32(lanes, src.wrapping_add(GROUP * k)) };
        }
        for (g, from) in (0..self.n).step_by(GROUP).enumerate() {
            let lanes = u16::MAX >> (GROUP - (self.n - from).min(GROUP));
            // SAFETY: the list has whole groups.
            let at = unsafe { _mm512_loadu_si512(self.starts[0].as_ptr().add(from).cast()) };
            // The last five bits of a position are a lane of two vectors.
            let low = _mm512_permutex2var_epi32(plane[0], at, plane[1]);
            let high = _mm512_permutex2var_epi32(plane[2], at, plane[3]);
            let is_high = _mm512_test_epi32_mask(at, _mm512_set1_epi32(2 * GROUP as i32));
            let words = _mm512_mask_mov_epi32(low, is_high, high);
            let words = _mm512_maskz_mov_epi32(self.inside[g][0][0], words);
            // SAFETY: only lanes of points are written.
            unsafe { _mm512_mask_storeu_epi32(out.add(from), lanes, words) };
        }
    }

    /// [`Neighbours::copy_words`] of elements of 8 bytes.
    ///
    /// # Safety
    /// As for [`Neighbours::copy_words`].
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    pub(super) unsafe fn copy_long_words(&self, src: *const i64, out: *mut i64) {
        for from in (0..self.n).step_by(GROUP / 2) {
            let lanes = u8::MAX >> (GROUP / 2 - (self.n - from).min(GROUP / 2));
            let inside = (self.inside[from / GROUP][0][0] >> (from % GROUP)) as u8;
            // SAFETY: positions are within the plane, and only lanes of points are written.
            unsafe {
                let words = read_long_words(src, self.starts[0].as_ptr().add(from));
                _mm512_mask_storeu_epi64(out.add(from), lanes, _mm512_maskz_mov_epi64(inside, words));
            }
        }
    }
}
