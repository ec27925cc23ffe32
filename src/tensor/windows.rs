//! Weighted sums of elements at listed positions that increase slowly, as those of resampling: each group of results reads two vectors
//! that contain all its elements, and selects among their lanes. That takes less time than instructions that gather.

#[cfg(target_arch = "x86_64")]
mod lanes;

#[cfg(target_arch = "x86_64")]
use crate::target::{Feature, thread_target};
use std::any::TypeId;

/// The number of bytes of a vector.
const VECTOR: usize = 64;

/// The positions of the elements of some sums, proven to be below a length.
pub(crate) struct Windows {
    end: usize,
    /// The number of results in a group: the elements of a vector.
    group: usize,
    /// The first element of each group's window, or -1 if its elements are further apart.
    bases: Vec<i32>,
    /// For each term the positions relative to the window or, without one, to the first element.
    lists: Vec<Vec<i32>>,
}

impl Windows {
    /// For elements of `size` bytes. `None` if most groups have no window, or if there are no instructions for such elements. Panics
    /// unless all positions are below `end` and not negative, or if lists have different lengths.
    pub(crate) fn new(end: usize, lists: &[Vec<i32>], size: usize) -> Option<Windows> {
        let n = lists.first()?.len();
        let is_place = |p: &i32| usize::try_from(*p).is_ok_and(|p| p < end);
        assert!(lists.iter().all(|l| l.len() == n && l.iter().all(is_place)));
        if !has_windows() || !matches!(size, 4 | 8) {
            return None;
        }
        let (mut lists, mut bases, group) = (lists.to_vec(), vec![], VECTOR / size);
        for from in (0..n).step_by(group) {
            let range = from..n.min(from + group);
            let places = || lists.iter().flat_map(|l| &l[range.clone()]).copied();
            let (least, greatest) = (places().min()?, places().max()?);
            let fits = greatest - least < 2 * group as i32;
            if fits {
                let moved = lists.iter_mut().flat_map(|l| &mut l[range.clone()]);
                moved.for_each(|p| *p -= least);
            }
            bases.push(if fits { least } else { -1 });
        }
        let most = 2 * bases.iter().filter(|b| **b >= 0).count() > bases.len();
        most.then_some(Windows {
            end,
            group,
            bases,
            lists,
        })
    }

    /// Panics unless `src` has all elements, and `n` results from `first` on, which starts a group, have positions.
    fn check(&self, src: usize, first: usize, n: usize) {
        assert!(src >= self.end && first.is_multiple_of(self.group));
        assert!(self.lists.iter().all(|l| l.len() >= first + n));
    }

    /// `out[j] = Σ src[lists[k][first + j]] * weights[k][j]` in the order of `k`. Returns false, and writes nothing, unless elements are
    /// f32 or f64 of the size that the windows are for. Panics if `src` is shorter than the positions allow, if `first` does not start a
    /// group, if there are not `K` lists, or if the weights have another length than `out`.
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
        self.check(src.len(), first, n);
        assert!(self.lists.len() == K && weights.iter().all(|w| w.len() == n));
        #[cfg(target_arch = "x86_64")]
        if self.group * size_of::<T>() == VECTOR && has_windows() {
            let id = TypeId::of::<T>();
            // SAFETY: the lengths and the type were checked, and the machine has the features of every thread's target.
            unsafe {
                if id == TypeId::of::<f32>() {
                    let weights = weights.map(|w| w.as_ptr().cast());
                    self.sum_floats(src.as_ptr().cast(), weights, first, out.as_mut_ptr().cast(), n);
                    return true;
                }
                if id == TypeId::of::<f64>() {
                    let weights = weights.map(|w| w.as_ptr().cast());
                    self.sum_doubles(src.as_ptr().cast(), weights, first, out.as_mut_ptr().cast(), n);
                    return true;
                }
            }
        }
        false
    }

    /// `out[j] = start + Σ src[lists[k][j]] * weights[k][j]`, wrapping around. Returns false, and writes nothing, if the target has no
    /// instructions for it. Panics if `src` is shorter than the positions allow, if windows are for elements of another size, or if there
    /// are not as many weights as positions.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(unused_variables, reason = "there are no such instructions")
    )]
    pub(crate) fn sum_integers(&self, src: &[i32], weights: &[Vec<i32>], start: i32, out: &mut [i32]) -> bool {
        let n = out.len();
        self.check(src.len(), 0, n);
        assert!(self.group * size_of::<i32>() == VECTOR && self.lists.len() == weights.len());
        assert!(weights.iter().all(|w| w.len() == n));
        #[cfg(target_arch = "x86_64")]
        if has_windows() {
            // SAFETY: the lengths were checked, and the machine has the features of every thread's target.
            unsafe { self.sum_words(src.as_ptr(), weights, start, out) };
            return true;
        }
        false
    }

    /// `out[j] = src[list[first + j]]` of the one list. Returns false, and writes nothing, unless elements have the size that the windows
    /// are for. Panics if `src` is shorter than the positions allow, if `first` does not start a group, or if there are other lists.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(unused_variables, reason = "there are no such instructions")
    )]
    pub(crate) fn copy<T: Copy>(&self, src: &[T], first: usize, out: &mut [T]) -> bool {
        self.check(src.len(), first, out.len());
        assert!(self.lists.len() == 1);
        #[cfg(target_arch = "x86_64")]
        if self.group * size_of::<T>() == VECTOR && has_windows() {
            // SAFETY: elements have this size, the lengths were checked, and the machine has the features of every thread's target.
            unsafe {
                match size_of::<T>() {
                    4 => self.copy_words(src.as_ptr().cast(), first, out.as_mut_ptr().cast(), out.len()),
                    _ => self.copy_long_words(src.as_ptr().cast(), first, out.as_mut_ptr().cast(), out.len()),
                }
            }
            return true;
        }
        false
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

    /// Positions of `n` results that increase by `step`, with one that is far away.
    fn lists(n: usize, end: usize, step: f64) -> Vec<Vec<i32>> {
        let place = |i: usize, k: usize| ((i as f64 * step) as usize + k).min(end - 1) as i32;
        let mut lists: Vec<Vec<i32>> = (0..2).map(|k| (0..n).map(|i| place(i, k)).collect()).collect();
        // One group without a window.
        lists[1][3] = end as i32 - 1;
        lists
    }

    const CASES: [(usize, usize, f64); 5] = [
        (40, 20, 0.5),
        (100, 190, 1.9),
        (33, 34, 1.0),
        (50, 500, 3.0),
        (7, 1, 0.0),
    ];

    fn check_floats<T: Copy + Default + PartialEq + std::ops::Mul<Output = T> + std::ops::Add<Output = T> + 'static>(
        of: impl Fn(f32) -> T,
    ) {
        for (n, end, step) in CASES {
            let lists = lists(n, end, step);
            let Some(windows) = Windows::new(end, &lists, size_of::<T>()) else {
                continue;
            };
            let src: Vec<T> = (0..end).map(|i| of(i as f32 + 0.5)).collect();
            let weights: Vec<T> = (0..n).map(|i| of(i as f32)).collect();
            for first in [0, 16].into_iter().filter(|f| *f < n) {
                let mut out = vec![T::default(); n - first];
                assert!(windows.sum(&src, [&weights[first..]; 2], first, &mut out));
                for (j, o) in out.iter().enumerate() {
                    let [a, b] = [0, 1].map(|k| src[lists[k][first + j] as usize] * weights[first + j]);
                    assert!(*o == a + b, "{n} {end} {j}");
                }
            }
            let Some(one) = Windows::new(end, &lists[..1], size_of::<T>()) else {
                continue;
            };
            let mut out = vec![T::default(); n];
            assert!(one.copy(&src, 0, &mut out));
            assert!(out.iter().zip(&lists[0]).all(|(o, &p)| *o == src[p as usize]));
            assert!(!windows.sum(&vec![0u16; end], [&vec![0u16; n][..]; 2], 0, &mut vec![0u16; n]));
        }
    }

    #[test]
    fn windows_end_where_the_elements_do() {
        check_floats(|x| x);
        check_floats(f64::from);
    }

    #[test]
    fn sums_of_integers_wrap_around() {
        for (n, end, step) in CASES {
            let lists = lists(n, end, step);
            let Some(windows) = Windows::new(end, &lists, 4) else {
                continue;
            };
            let src: Vec<i32> = (0..end as i32).map(|i| i * 7 - 20).collect();
            let weights: Vec<Vec<i32>> = vec![(0..n as i32).map(|i| i << 27).collect(), vec![3; n]];
            let mut out = vec![0; n];
            assert!(windows.sum_integers(&src, &weights, 5, &mut out));
            for (j, o) in out.iter().enumerate() {
                let [a, b] = [0, 1].map(|k| src[lists[k][j] as usize].wrapping_mul(weights[k][j]));
                assert_eq!(*o, a.wrapping_add(b).wrapping_add(5), "{n} {end} {j}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "is_place")]
    fn positions_are_checked() {
        Windows::new(3, &[vec![0, 3]], 4);
    }
}
