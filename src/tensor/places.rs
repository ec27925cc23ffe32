//! Vector code that reads elements at listed positions, which are checked once for all that is read at them.

use super::wide::{WideLoop, run_wide, wide_function, with_wide_vectors};
#[cfg(target_arch = "x86_64")]
use crate::target::{Feature, thread_target};
#[cfg(target_arch = "x86_64")]
use std::any::TypeId;
use std::ops::{Add, Mul, Range};

wide_function! {
    /// Panics unless all positions are below `n`.
    fn check_places = check_places_body(n: usize, places: &[i32])
}

#[inline(always)]
fn check_places_body(n: usize, places: &[i32]) {
    let largest = places.iter().fold(-1, |m, &p| p.max(m));
    assert!(n > 0 && (largest as i64) < n as i64, "place {largest} of {n}");
}

/// Positions that were proven to be below a length; negative ones stand for nothing.
#[derive(Clone, Copy)]
pub(crate) struct Places<L> {
    list: L,
    end: usize,
}

/// What may hold positions: it gives the same list every time.
pub(crate) trait PlaceList {
    fn list(&self) -> &[i32];
}

impl PlaceList for Vec<i32> {
    fn list(&self) -> &[i32] {
        self
    }
}

impl PlaceList for &[i32] {
    fn list(&self) -> &[i32] {
        self
    }
}

impl<L: PlaceList> Places<L> {
    /// Panics unless all positions are below `end`, which is not 0.
    pub(crate) fn new(end: usize, list: L) -> Places<L> {
        check_places(end, list.list());
        Places { list, end }
    }

    /// Some of the positions.
    pub(crate) fn part(&self, range: Range<usize>) -> Places<&[i32]> {
        Places {
            list: &self.list.list()[range],
            end: self.end,
        }
    }
}

impl Places<&[i32]> {
    /// `out[j] = src[places[j]]`; zero for negative positions. Panics if `src` is shorter than the positions allow, or if `out` has
    /// another length than the list.
    pub(crate) fn gather<T: Copy + Default>(self, src: &[T], out: &mut [T]) {
        assert!(src.len() >= self.end && out.len() == self.list.len());
        // SAFETY: the positions were checked.
        if unsafe { gather_words(src, self.list, out) } {
            return;
        }
        with_wide_vectors(|| {
            for (&p, o) in self.list.iter().zip(out) {
                // SAFETY: the positions were checked. An unconditional read with a select can be vectorised; a branch
                // cannot.
                let v = unsafe { *src.get_unchecked(p.max(0) as usize) };
                *o = if p < 0 { T::default() } else { v };
            }
        });
    }
}

/// The number of elements that are read before they are combined.
const LANES: usize = 64;

/// `out[j] = Σ src[places[k][j]] * weights[k][j]` in the order of `k`; zero for negative positions. Panics if `src` is shorter than the
/// positions allow, or if lists have another length than `out`.
pub(crate) fn gather_weighted<T, const K: usize>(
    src: &[T],
    places: [Places<&[i32]>; K],
    weights: [&[T]; K],
    out: &mut [T],
) where
    T: Copy + Default + Add<Output = T> + Mul<Output = T> + 'static,
{
    let n = out.len();
    for k in 0..K {
        assert!(src.len() >= places[k].end && places[k].list.len() == n && weights[k].len() == n);
    }
    let places = places.map(|p| p.list);
    // SAFETY: the positions were checked, and all lists have the length of `out`.
    if unsafe { gather_weighted_words(src, &places, &weights, out) } {
        return;
    }
    let mut values = [[T::default(); LANES]; K];
    for (part, out) in out.chunks_mut(LANES).enumerate() {
        let (from, to) = (part * LANES, part * LANES + out.len());
        for (values, places) in values.iter_mut().zip(places) {
            // SAFETY: the positions were checked.
            unsafe { read_lanes(src, &places[from..to], values) };
        }
        run_wide(Weighted {
            values: &values,
            places: places.map(|p| &p[from..to]),
            weights: weights.map(|w| &w[from..to]),
            out,
        });
    }
}

/// Reads elements. What a negative position reads is not specified.
///
/// # Safety
/// `src` is not empty, and all positions are below its length.
#[inline(never)]
unsafe fn read_lanes<T: Copy>(src: &[T], places: &[i32], out: &mut [T; LANES]) {
    // SAFETY: guaranteed by the caller.
    if unsafe { gather_words(src, places, &mut out[..places.len()]) } {
        return;
    }
    // One by one, which on most processors without AVX-512 is as fast as their gather instructions.
    for (&p, o) in places.iter().zip(out) {
        // SAFETY: guaranteed by the caller.
        *o = unsafe { *src.get_unchecked(p.max(0) as usize) };
    }
}

/// [`Places::gather`] by gather instructions. Returns false, and writes nothing, if elements do not
/// have 4 bytes or the target does not have AVX-512. (On Sapphire Rapids this takes half the time of single reads.)
///
/// # Safety
/// All positions are below the length of `src`. `out` and `places` have the same length.
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(unused_variables, reason = "there are no gather instructions")
)]
unsafe fn gather_words<T: Copy>(src: &[T], places: &[i32], out: &mut [T]) -> bool {
    debug_assert_eq!(places.len(), out.len());
    #[cfg(target_arch = "x86_64")]
    if size_of::<T>() == 4 && thread_target().has(Feature::Avx512F) {
        // SAFETY: guaranteed by the caller; the machine has the features of every thread's target.
        unsafe { gather_words_avx512(src.as_ptr().cast(), places, out.as_mut_ptr().cast()) };
        return true;
    }
    false
}

/// # Safety
/// As for [`gather_words`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn gather_words_avx512(src: *const i32, places: &[i32], out: *mut i32) {
    use std::arch::x86_64::*;
    let zero = _mm512_setzero_si512();
    for (k, part) in places.chunks(16).enumerate() {
        let lanes = (u16::MAX) >> (16 - part.len());
        // SAFETY: only lanes of positions in `part` that are not negative are read, and only lanes of `part` are written.
        unsafe {
            let at = _mm512_maskz_loadu_epi32(lanes, part.as_ptr());
            let inside = _mm512_mask_cmpge_epi32_mask(lanes, at, zero);
            let words = _mm512_mask_i32gather_epi32::<4>(zero, inside, at, src);
            _mm512_mask_storeu_epi32(out.add(16 * k), lanes, words);
        }
    }
}

/// [`gather_weighted`] of f32 and f64 by gather instructions, without storing what they read. Returns false, and writes nothing, for other
/// elements or if the target does not have AVX-512.
///
/// # Safety
/// All positions are below the length of `src`, and all lists have the length of `out`.
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(unused_variables, reason = "there are no gather instructions")
)]
unsafe fn gather_weighted_words<T: 'static, const K: usize>(
    src: &[T],
    places: &[&[i32]; K],
    weights: &[&[T]; K],
    out: &mut [T],
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if thread_target().has(Feature::Avx512F) {
        let n = out.len();
        if TypeId::of::<T>() == TypeId::of::<f32>() {
            let weights = weights.map(|w| w.as_ptr().cast());
            let (from, to) = (src.as_ptr().cast(), out.as_mut_ptr().cast());
            // SAFETY: guaranteed by the caller; T is f32, and the machine has the features of every thread's target.
            unsafe { gather_weighted_avx512(from, places, weights, to, n) };
            return true;
        }
        if TypeId::of::<T>() == TypeId::of::<f64>() {
            let weights = weights.map(|w| w.as_ptr().cast());
            let (from, to) = (src.as_ptr().cast(), out.as_mut_ptr().cast());
            // SAFETY: as above, but T is f64.
            unsafe { gather_weighted_f64_avx512(from, places, weights, to, n) };
            return true;
        }
    }
    false
}

/// # Safety
/// As for [`gather_weighted_words`], where `n` is the length of all lists.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn gather_weighted_avx512<const K: usize>(
    src: *const f32,
    places: &[&[i32]; K],
    weights: [*const f32; K],
    out: *mut f32,
    n: usize,
) {
    use std::arch::x86_64::*;
    let zero = _mm512_setzero_si512();
    for j in (0..n).step_by(16) {
        let lanes = u16::MAX >> (16 - (n - j).min(16));
        let mut sum = _mm512_setzero_ps();
        for k in 0..K {
            // SAFETY: only lanes below `n` and, of these, positions that are not negative are read.
            let (value, weight) = unsafe {
                let at = _mm512_maskz_loadu_epi32(lanes, places[k].as_ptr().add(j));
                let inside = _mm512_mask_cmpge_epi32_mask(lanes, at, zero);
                let value = _mm512_mask_i32gather_ps::<4>(_mm512_setzero_ps(), inside, at, src);
                (value, _mm512_maskz_loadu_ps(lanes, weights[k].add(j)))
            };
            // The product is rounded, as in the loop for other elements.
            let term = _mm512_mul_ps(value, weight);
            sum = if k == 0 { term } else { _mm512_add_ps(sum, term) };
        }
        // SAFETY: only lanes below `n` are written.
        unsafe { _mm512_mask_storeu_ps(out.add(j), lanes, sum) };
    }
}

/// # Safety
/// As for [`gather_weighted_words`], where `n` is the length of all lists.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn gather_weighted_f64_avx512<const K: usize>(
    src: *const f64,
    places: &[&[i32]; K],
    weights: [*const f64; K],
    out: *mut f64,
    n: usize,
) {
    use std::arch::x86_64::*;
    let zero = _mm512_setzero_pd();
    for j in (0..n).step_by(8) {
        let lanes = u8::MAX >> (8 - (n - j).min(8));
        let mut sum = zero;
        for k in 0..K {
            // SAFETY: only lanes below `n` and, of these, positions that are not negative are read.
            let (value, weight) = unsafe {
                let at = _mm512_maskz_loadu_epi32(lanes.into(), places[k].as_ptr().add(j));
                let inside = _mm512_mask_cmpge_epi32_mask(lanes.into(), at, _mm512_setzero_si512());
                let at = _mm512_castsi512_si256(at);
                let value = _mm512_mask_i32gather_pd::<8>(zero, inside as u8, at, src);
                (value, _mm512_maskz_loadu_pd(lanes, weights[k].add(j)))
            };
            // The product is rounded, as in the loop for other elements.
            let term = _mm512_mul_pd(value, weight);
            sum = if k == 0 { term } else { _mm512_add_pd(sum, term) };
        }
        // SAFETY: only lanes below `n` are written.
        unsafe { _mm512_mask_storeu_pd(out.add(j), lanes, sum) };
    }
}

/// The elements of [`gather_weighted`] with their positions and weights. All lists have the length of `out`.
struct Weighted<'a, T, const K: usize> {
    values: &'a [[T; LANES]; K],
    places: [&'a [i32]; K],
    weights: [&'a [T]; K],
    out: &'a mut [T],
}

impl<T, const K: usize> WideLoop for Weighted<'_, T, K>
where
    T: Copy + Default + Add<Output = T> + Mul<Output = T>,
{
    #[inline(always)]
    fn run(self) {
        for (j, o) in self.out.iter_mut().enumerate().take(LANES) {
            let mut sum = T::default();
            for k in 0..K {
                // SAFETY: all lists have the length of `out`, of which at most `LANES` elements are taken.
                let (v, p, w) = unsafe {
                    let v = *self.values[k].get_unchecked(j);
                    (v, *self.places[k].get_unchecked(j), *self.weights[k].get_unchecked(j))
                };
                let term = if p < 0 { T::default() } else { v } * w;
                sum = if k == 0 { term } else { sum + term };
            }
            *o = sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weighted_places_skip_what_is_outside() {
        let src = [f32::INFINITY, 2.0, 4.0];
        let mut out = [0.0f32; 20];
        let places: Vec<i32> = (0..20).map(|i| [1, 2, -1][i % 3]).collect();
        let places = Places::new(3, &places[..]);
        places.gather(&src, &mut out);
        assert_eq!(out[..4], [2.0, 4.0, 0.0, 2.0]);
        gather_weighted(&src, [places; 2], [&[0.5; 20], &[2.0; 20]], &mut out);
        assert_eq!(out[..4], [5.0, 10.0, 0.0, 5.0]);
        let (src, mut out) = (src.map(f64::from), [0.0f64; 20]);
        gather_weighted(&src, [places; 2], [&[0.5; 20], &[2.0; 20]], &mut out);
        assert_eq!(out[..4], [5.0, 10.0, 0.0, 5.0]);
        assert_eq!(out[16..], [10.0, 0.0, 5.0, 10.0]);
    }

    #[test]
    #[should_panic(expected = "place 3 of 3")]
    fn places_are_checked() {
        Places::new(3, &[0, 3][..]);
    }
}
