//! Vector code that reads elements at computed positions. Bounds are checked for a whole run before the first read,
//! because checking each element would cost more than the read.

use super::wide::{WideLoop, run_wide, wide_function, with_wide_vectors};
#[cfg(target_arch = "x86_64")]
use crate::target::{Feature, thread_target};
#[cfg(target_arch = "x86_64")]
use std::any::TypeId;
use std::ops::{Add, Mul};

/// The positions in a tensor that a line of indices refers to: `index[j] * along + j * step` for column `j`. Indices
/// must be below `size`.
#[derive(Clone, Copy)]
pub(crate) struct IndexedLine<'a> {
    /// The indices.
    pub index: &'a [i64],
    /// The size of the indexed dim.
    pub size: usize,
    /// The distance of neighbouring elements along the indexed dim.
    pub along: usize,
    /// The distance between the positions of neighbouring columns with the same index.
    pub step: usize,
}

impl IndexedLine<'_> {
    /// Whether all indices are below the size. Panics if valid indices could refer to positions outside of a tensor
    /// of `len` elements.
    fn is_within(&self, len: usize) -> bool {
        let (Some(last), Some(most)) = (self.index.len().checked_sub(1), self.size.checked_sub(1)) else {
            return self.index.is_empty();
        };
        // As unsigned numbers, negative indices are large.
        let largest = with_wide_vectors(|| self.index.iter().fold(0, |m, &i| (i as u64).max(m)));
        let along = most.checked_mul(self.along);
        let end = along.and_then(|a| a.checked_add(last.checked_mul(self.step)?));
        let within = largest < self.size as u64;
        assert!(!within || end.is_some_and(|p| p < len), "the line is within the tensor");
        within
    }

    /// Reads an element for each index. Returns false, and writes nothing, if an index is out of bounds. Panics if
    /// `src` is too short for indices below the size, or if `out` and the indices differ in length.
    pub(crate) fn gather<T: Copy>(&self, src: &[T], out: &mut [T]) -> bool {
        assert_eq!(self.index.len(), out.len());
        let within = self.is_within(src.len());
        if within {
            // SAFETY: all indices are below the size, and the position of the largest index in the last column is
            // within `src`.
            with_wide_vectors(|| unsafe { read_line(src, self.index, self.along, self.step, out) });
        }
        within
    }

    /// Combines element `j * shift` of `src` with the element that index `j` refers to, in order. Returns false, and
    /// writes nothing, if an index is out of bounds. Panics if `dst` or `src` is too short.
    pub(crate) fn scatter<T: Copy>(&self, dst: &mut [T], src: &[T], shift: usize, combine: impl Fn(T, T) -> T) -> bool {
        if !self.is_within(dst.len()) {
            return false;
        }
        let last = self.index.len().saturating_sub(1).checked_mul(shift);
        assert!(self.index.is_empty() || last.is_some_and(|p| p < src.len()));
        for (j, &i) in self.index.iter().enumerate() {
            // SAFETY: the positions in both tensors were checked.
            unsafe {
                let to = dst.get_unchecked_mut(i as usize * self.along + j * self.step);
                *to = combine(*to, *src.get_unchecked(j * shift));
            }
        }
        true
    }
}

/// # Safety
/// All positions are within `src`.
#[inline(always)]
unsafe fn read_line<T: Copy>(src: &[T], index: &[i64], along: usize, step: usize, out: &mut [T]) {
    match (along, step) {
        (1, 0) => index.iter().zip(out).for_each(|(&i, o)| {
            // SAFETY: guaranteed by the caller.
            *o = unsafe { *src.get_unchecked(i as usize) }
        }),
        _ => index.iter().zip(out).enumerate().for_each(|(j, (&i, o))| {
            // SAFETY: guaranteed by the caller.
            *o = unsafe { *src.get_unchecked(i as usize * along + j * step) }
        }),
    }
}

/// `out[j] = src[index[j]]`, where negative indices count from the end. Returns false, and writes nothing, if an index is out of bounds.
/// Panics if `index` and `out` differ in length.
pub(crate) fn take_elements<T: Copy>(src: &[T], index: &[i64], out: &mut [T]) -> bool {
    assert_eq!(index.len(), out.len());
    let n = src.len() as i64;
    let from_front = |i: i64| i + if i < 0 { n } else { 0 };
    let within = with_wide_vectors(|| {
        index
            .iter()
            .fold(true, |all, &i| all & ((from_front(i) as u64) < n as u64))
    });
    if within {
        with_wide_vectors(|| {
            index.iter().zip(out).for_each(|(&i, o)| {
                // SAFETY: all indices, counted from the front, are below the length.
                *o = unsafe { *src.get_unchecked(from_front(i) as usize) }
            });
        });
    }
    within
}

wide_function! {
    /// Panics unless all positions are below `n`.
    fn check_places = check_places_body(n: usize, places: &[i32])
}

#[inline(always)]
fn check_places_body(n: usize, places: &[i32]) {
    let largest = places.iter().fold(-1, |m, &p| p.max(m));
    assert!(n > 0 && (largest as i64) < n as i64, "place {largest} of {n}");
}

/// `out[j] = src[places[j]]`; zero for negative positions. Panics if a position is out of bounds, or if `src` is
/// empty.
pub(crate) fn gather_places<T: Copy + Default>(src: &[T], places: &[i32], out: &mut [T]) {
    check_places(src.len(), places);
    let n = places.len().min(out.len());
    // SAFETY: the positions were checked.
    if unsafe { gather_words(src, &places[..n], &mut out[..n]) } {
        return;
    }
    with_wide_vectors(|| {
        for (&p, o) in places.iter().zip(out) {
            // SAFETY: the positions were checked. An unconditional read with a select can be vectorised; a branch
            // cannot.
            let v = unsafe { *src.get_unchecked(p.max(0) as usize) };
            *o = if p < 0 { T::default() } else { v };
        }
    });
}

/// The number of elements that are read before they are combined.
const LANES: usize = 64;

/// `out[j] = Σ src[places[k][j]] * weights[k][j]` in the order of `k`; zero for negative positions. Panics if a
/// position is out of bounds, if `src` is empty, or if a list is shorter than `out`.
pub(crate) fn gather_weighted<T, const K: usize>(src: &[T], places: [&[i32]; K], weights: [&[T]; K], out: &mut [T])
where
    T: Copy + Default + Add<Output = T> + Mul<Output = T> + 'static,
{
    let n = out.len();
    let (places, weights) = (places.map(|p| &p[..n]), weights.map(|w| &w[..n]));
    places.iter().for_each(|p| check_places(src.len(), p));
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

/// `out[j] = src[places[j]]`, zero for negative positions, by gather instructions. Returns false, and writes nothing, if elements do not
/// have 4 bytes or the target does not have AVX-512. (On Sapphire Rapids this takes half the time of single reads.)
///
/// # Safety
/// All positions are below the length of `src`. `out` and `places` have the same length.
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

/// [`gather_weighted`] of f32 by gather instructions, without storing what they read. Returns false, and writes nothing, for other
/// elements or if the target does not have AVX-512.
///
/// # Safety
/// All positions are below the length of `src`, and all lists have the length of `out`.
unsafe fn gather_weighted_words<T: 'static, const K: usize>(
    src: &[T],
    places: &[&[i32]; K],
    weights: &[&[T]; K],
    out: &mut [T],
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if TypeId::of::<T>() == TypeId::of::<f32>() && thread_target().has(Feature::Avx512F) {
        let weights = weights.map(|w| w.as_ptr().cast());
        let (from, to) = (src.as_ptr().cast(), out.as_mut_ptr().cast());
        // SAFETY: guaranteed by the caller; T is f32, and the machine has the features of every thread's target.
        unsafe { gather_weighted_avx512(from, places, weights, to, out.len()) };
        return true;
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

    fn line(index: &[i64], size: usize, along: usize, step: usize) -> IndexedLine<'_> {
        IndexedLine {
            index,
            size,
            along,
            step,
        }
    }

    #[test]
    fn lines_are_read_or_refused_as_a_whole() {
        let src: Vec<i32> = (0..40).collect();
        let mut out = [0; 17];
        let index: Vec<i64> = (0..17).map(|i| i * 3 % 5).collect();
        assert!(line(&index, 5, 4, 1).gather(&src, &mut out));
        let want: Vec<i32> = index.iter().zip(0..).map(|(&i, j)| i as i32 * 4 + j).collect();
        assert_eq!(out[..], want);
        for bad in [5, -1, i64::MAX, i64::MIN] {
            let mut index = index.clone();
            index[13] = bad;
            assert!(!line(&index, 5, 4, 1).gather(&src, &mut out));
            assert!(!line(&index, 5, 4, 1).scatter(&mut out, &src, 1, |_, b| b));
        }
        assert_eq!(out[..], want);
        assert!(line(&[], 0, 1, 1).gather(&src[..0], &mut []));
        assert!(!line(&[0], 0, 1, 1).gather(&src[..0], &mut out[..1]));
    }

    #[test]
    fn elements_are_combined_in_order() {
        let mut dst = vec![1i64; 6];
        let index = [2, 0, 2, 1];
        assert!(line(&index, 3, 2, 0).scatter(&mut dst, &[10, 0, 20, 0, 30, 0, 40], 2, |a, b| 2 * a + b));
        assert_eq!(dst, [22, 1, 42, 1, 2 * 12 + 30, 1]);
        assert!(line(&index, 3, 2, 0).scatter(&mut dst, &[7], 0, |_, b| b));
        assert_eq!(dst, [7, 1, 7, 1, 7, 1]);
    }

    #[test]
    #[should_panic(expected = "within the tensor")]
    fn a_line_that_leaves_the_tensor_is_a_mistake_of_the_caller() {
        line(&[0, 1], 3, 4, 0).gather(&[0u8; 8], &mut [0; 2]);
    }

    #[test]
    fn negative_indices_count_from_the_end() {
        let src = [10u8, 11, 12];
        let mut out = [0; 4];
        assert!(take_elements(&src, &[-1, 0, 2, -3], &mut out));
        assert_eq!(out, [12, 10, 12, 10]);
        for bad in [3, -4, i64::MIN, i64::MAX] {
            assert!(!take_elements(&src, &[0, bad], &mut out[..2]));
        }
        assert!(!take_elements(&src[..0], &[0], &mut out[..1]));
    }

    #[test]
    fn weighted_places_skip_what_is_outside() {
        let src = [f32::INFINITY, 2.0, 4.0];
        let mut out = [0.0f32; 20];
        let places: Vec<i32> = (0..20).map(|i| [1, 2, -1][i % 3]).collect();
        gather_places(&src, &places, &mut out);
        assert_eq!(out[..4], [2.0, 4.0, 0.0, 2.0]);
        gather_weighted(&src, [&places, &places], [&[0.5; 20], &[2.0; 20]], &mut out);
        assert_eq!(out[..4], [5.0, 10.0, 0.0, 5.0]);
    }

    #[test]
    #[should_panic(expected = "place 3 of 3")]
    fn places_are_checked() {
        gather_places(&[0.0f32; 3], &[0, 3], &mut [0.0; 2]);
    }
}
