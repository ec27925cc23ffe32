//! Weighted sums of elements at listed positions that increase slowly, as those of resampling: each group of results reads two vectors
//! that contain all its elements, and selects among their lanes. That takes less time than instructions that gather.

#[cfg(target_arch = "x86_64")]
use crate::target::{Feature, thread_target};
#[cfg(target_arch = "x86_64")]
use std::any::TypeId;

/// The number of results in a group.
const GROUP: usize = 16;
/// The number of elements that two vectors have.
const WINDOW: i32 = 32;

/// The positions of the elements of some sums, proven to be below a length.
pub(crate) struct Windows {
    end: usize,
    /// The first element of each group's window, or -1 if its elements are further apart.
    bases: Vec<i32>,
    /// For each term the positions relative to the window or, without one, to the first element.
    lists: Vec<Vec<i32>>,
}

impl Windows {
    /// `None` if most groups have no window, or if the target has no instructions for them. Panics unless all positions are below `end`
    /// and not negative, or if lists have different lengths.
    pub(crate) fn new(end: usize, lists: &[Vec<i32>]) -> Option<Windows> {
        let n = lists.first()?.len();
        let is_place = |p: &i32| usize::try_from(*p).is_ok_and(|p| p < end);
        assert!(lists.iter().all(|l| l.len() == n && l.iter().all(is_place)));
        let mut lists = lists.to_vec();
        let mut bases = vec![];
        for from in (0..n).step_by(GROUP) {
            let range = from..n.min(from + GROUP);
            let group = || lists.iter().flat_map(|l| &l[range.clone()]).copied();
            let (least, greatest) = (group().min()?, group().max()?);
            let fits = greatest - least < WINDOW;
            if fits {
                let moved = lists.iter_mut().flat_map(|l| &mut l[range.clone()]);
                moved.for_each(|p| *p -= least);
            }
            bases.push(if fits { least } else { -1 });
        }
        let most = 2 * bases.iter().filter(|b| **b >= 0).count() > bases.len();
        (most && has_windows()).then_some(Windows { end, bases, lists })
    }

    /// `out[j] = Σ src[lists[k][first + j]] * weights[k][j]` in the order of `k`. Returns false, and writes nothing, unless elements are
    /// f32. Panics if `src` is shorter than the positions allow, if `first` does not start a group, if there are not `K` lists, or if the
    /// weights have another length than `out`.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(unused_variables, reason = "there are no such instructions")
    )]
    pub(crate) fn sum<T: 'static, const K: usize>(
        &self,
        src: &[T],
        weights: [&[T]; K],
        first: usize,
        out: &mut [T],
    ) -> bool {
        let n = out.len();
        assert!(src.len() >= self.end && self.lists.len() == K && first.is_multiple_of(GROUP));
        assert!(weights.iter().all(|w| w.len() == n) && self.lists.iter().all(|l| l.len() >= first + n));
        #[cfg(target_arch = "x86_64")]
        if TypeId::of::<T>() == TypeId::of::<f32>() && has_windows() {
            let (src, to) = (src.as_ptr().cast(), out.as_mut_ptr().cast());
            let weights = weights.map(|w| w.as_ptr().cast());
            // SAFETY: T is f32, the lengths were checked, and the machine has the features of every thread's target.
            unsafe { self.sum_avx512(src, weights, first, to, n) };
            return true;
        }
        false
    }

    /// `out[j] = src[list[first + j]]` of the one list. Returns false, and writes nothing, unless elements have 4 bytes. Panics if `src`
    /// is shorter than the positions allow, if `first` does not start a group, or if there are other lists.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(unused_variables, reason = "there are no such instructions")
    )]
    pub(crate) fn copy<T: Copy>(&self, src: &[T], first: usize, out: &mut [T]) -> bool {
        assert!(src.len() >= self.end && self.lists.len() == 1 && first.is_multiple_of(GROUP));
        assert!(self.lists[0].len() >= first + out.len());
        #[cfg(target_arch = "x86_64")]
        if size_of::<T>() == 4 && has_windows() {
            let (src, to) = (src.as_ptr().cast(), out.as_mut_ptr().cast());
            // SAFETY: elements have 4 bytes, the lengths were checked, and the machine has the features of every thread's target.
            unsafe { self.copy_avx512(src, first, to, out.len()) };
            return true;
        }
        false
    }

    /// # Safety
    /// `src` has at least `end` elements, `out` has `n`, and the list at least `first + n`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    unsafe fn copy_avx512(&self, src: *const i32, first: usize, out: *mut i32, n: usize) {
        use std::arch::x86_64::*;
        for j in (0..n).step_by(GROUP) {
            let lanes = u16::MAX >> (GROUP - (n - j).min(GROUP));
            let base = self.bases[(first + j) / GROUP];
            // SAFETY: guaranteed by the caller; positions without a window are below `end`.
            unsafe {
                let at = _mm512_maskz_loadu_epi32(lanes, self.lists[0].as_ptr().add(first + j));
                let words = match base {
                    0.. => {
                        let [low, high] = self.window(src.cast(), base as usize).map(|v| _mm512_castps_si512(v));
                        _mm512_permutex2var_epi32(low, at, high)
                    }
                    _ => _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), lanes, at, src),
                };
                _mm512_mask_storeu_epi32(out.add(j), lanes, words);
            }
        }
    }

    /// The elements from `base` on, and zeros beyond the end.
    ///
    /// # Safety
    /// `src` has at least `end` elements, and `base` is below `end`.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn window(&self, src: *const f32, base: usize) -> [std::arch::x86_64::__m512; 2] {
        use std::arch::x86_64::*;
        let inside = u32::MAX >> (WINDOW as usize - (self.end - base).min(WINDOW as usize));
        // SAFETY: only elements below `end` are read.
        unsafe {
            let from = src.add(base);
            let low = _mm512_maskz_loadu_ps(inside as u16, from);
            [
                low,
                _mm512_maskz_loadu_ps((inside >> 16) as u16, from.wrapping_add(GROUP)),
            ]
        }
    }

    /// # Safety
    /// `src` has at least `end` elements; the weights and `out` have `n`, and the lists at least `first + n`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[expect(
        clippy::needless_range_loop,
        reason = "loops over indices become vector code more often"
    )]
    unsafe fn sum_avx512<const K: usize>(
        &self,
        src: *const f32,
        weights: [*const f32; K],
        first: usize,
        out: *mut f32,
        n: usize,
    ) {
        use std::arch::x86_64::*;
        for j in (0..n).step_by(GROUP) {
            let lanes = u16::MAX >> (GROUP - (n - j).min(GROUP));
            let base = self.bases[(first + j) / GROUP];
            let windows = match base {
                // SAFETY: guaranteed by the caller.
                0.. => unsafe { self.window(src, base as usize) },
                _ => [_mm512_setzero_ps(); 2],
            };
            let mut sum = _mm512_setzero_ps();
            for k in 0..K {
                // SAFETY: only lanes below `n` are read, and positions without a window are below `end`.
                let (value, weight) = unsafe {
                    let at = _mm512_maskz_loadu_epi32(lanes, self.lists[k].as_ptr().add(first + j));
                    let value = match base {
                        0.. => _mm512_permutex2var_ps(windows[0], at, windows[1]),
                        _ => _mm512_mask_i32gather_ps::<4>(_mm512_setzero_ps(), lanes, at, src),
                    };
                    (value, _mm512_maskz_loadu_ps(lanes, weights[k].add(j)))
                };
                // The product is rounded, as elsewhere.
                let term = _mm512_mul_ps(value, weight);
                sum = if k == 0 { term } else { _mm512_add_ps(sum, term) };
            }
            // SAFETY: only lanes below `n` are written.
            unsafe { _mm512_mask_storeu_ps(out.add(j), lanes, sum) };
        }
    }
}

/// Whether the target has instructions that select among the lanes of two vectors.
fn has_windows() -> bool {
    #[cfg(target_arch = "x86_64")]
    return thread_target().has(Feature::Avx512F);
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_where_the_elements_do() {
        for (n, end, step) in [
            (40, 20, 0.5),
            (100, 190, 1.9),
            (33, 34, 1.0),
            (50, 500, 3.0),
            (7, 1, 0.0),
        ] {
            let place = |i: usize, k: usize| ((i as f64 * step) as usize + k).min(end - 1) as i32;
            let mut lists: Vec<Vec<i32>> = (0..2).map(|k| (0..n).map(|i| place(i, k)).collect()).collect();
            // One group without a window.
            lists[1][3] = end as i32 - 1;
            let Some(windows) = Windows::new(end, &lists) else {
                continue;
            };
            let src: Vec<f32> = (0..end).map(|i| i as f32 + 0.5).collect();
            let weights: Vec<f32> = (0..n).map(|i| i as f32).collect();
            for first in [0, 16].into_iter().filter(|f| *f < n) {
                let mut out = vec![0.0f32; n - first];
                assert!(windows.sum(&src, [&weights[first..]; 2], first, &mut out));
                for (j, o) in out.iter().enumerate() {
                    let [a, b] = [0, 1].map(|k| src[lists[k][first + j] as usize] * weights[first + j]);
                    assert_eq!(*o, a + b, "{n} {end} {j}");
                }
            }
            let one = Windows::new(end, &lists[..1]).expect("windows");
            let mut out = vec![0.0f32; n];
            assert!(one.copy(&src, 0, &mut out));
            assert!(out.iter().zip(&lists[0]).all(|(o, &p)| *o == src[p as usize]));
            assert!(!windows.sum(&vec![0.0f64; end], [&vec![0.0f64; n][..]; 2], 0, &mut vec![0.0f64; n]));
        }
    }

    #[test]
    #[should_panic(expected = "is_place")]
    fn positions_are_checked() {
        Windows::new(3, &[vec![0, 3]]);
    }
}
