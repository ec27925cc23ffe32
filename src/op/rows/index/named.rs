//! Slices that an index tensor names along a dim.

use super::combine::Cell;
use crate::op::rows::dense::{sizes_around, to_i64_indices};
use crate::op::rows::fill::{BYTES_PER_PART, units_per_part};
use crate::op::{Call, OpResult, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{Tensor, WideLoop, run_wide};
use std::ops::Range;

/// Slices along a dim that an index tensor names: the tensor as `[outer, n, inner]`, and the positions along `n`.
pub(super) struct NamedSlices {
    pub outer: usize,
    pub n: usize,
    pub inner: usize,
    pub places: Vec<usize>,
}

impl NamedSlices {
    /// `check` gives the place that an index names along a dim of a size, or torch's error.
    pub(super) fn new(
        c: &Call<Tensor>,
        message: &str,
        check: fn(i64, usize, usize) -> OpResult<usize>,
    ) -> OpResult<NamedSlices> {
        NamedSlices::of_shape(c, c.leaf("self")?.shape(), message, check)
    }

    /// [`NamedSlices::new`] for a call without its first operand, which has this shape.
    pub(super) fn of_shape(
        c: &Call<Tensor>,
        shape: &[usize],
        message: &str,
        check: fn(i64, usize, usize) -> OpResult<usize>,
    ) -> OpResult<NamedSlices> {
        let dim = wrap_dim(c.int("dim")?, shape.len())?;
        let (outer, n, inner) = sizes_around(shape, dim);
        let index = to_i64_indices(c.leaf("index")?, message)?;
        let index = index.as_slice::<i64>().iter();
        Ok(NamedSlices {
            outer,
            n,
            inner,
            places: match outer {
                0 => vec![],
                _ => index.map(|&i| check(i, n, dim)).collect::<OpResult<_>>()?,
            },
        })
    }

    /// Calls `f(to, from)` with the ranges of each slice in the tensor, and in one that has only the named slices.
    pub(super) fn for_each(&self, mut f: impl FnMut(Range<usize>, Range<usize>)) {
        let mut from = 0;
        for o in 0..self.outer {
            for p in &self.places {
                let to = (o * self.n + p) * self.inner;
                f(to..to + self.inner, from..from + self.inner);
                from += self.inner;
            }
        }
    }

    /// Combines the elements of each named slice of `dst` with those of `src`, which has only these slices, in order. Threads take
    /// blocks of the dims before or, without those, ranges of places, for which each reads the whole list.
    pub(super) fn combine<T: Cell>(&self, src: &[T], dst: &mut [T], pool: &Pool, combine: impl Fn(T, T) -> T + Sync) {
        let (n, inner, count) = (self.n, self.inner, self.places.len());
        if dst.is_empty() || src.is_empty() {
            return;
        }
        if self.outer > 1 {
            let outer = units_per_part(self.outer, count * inner * size_of::<T>(), pool);
            return pool.run_parts(dst, outer * n * inner, |part, dst| {
                let blocks = dst.chunks_exact_mut(n * inner).enumerate();
                blocks.for_each(|(k, dst)| {
                    let src = &src[(part * outer + k) * count * inner..][..count * inner];
                    self.combine_places(0, src, dst, &combine);
                });
            });
        }
        let parts = pool.threads().min(size_of_val(src) / BYTES_PER_PART).max(1);
        let rows = n.div_ceil(parts);
        pool.run_parts(dst, rows * inner, |part, dst| {
            self.combine_places(part * rows, src, dst, &combine)
        });
    }

    /// [`NamedSlices::combine`] for the slices of `dst`, which are those from place `first` on.
    fn combine_places<T: Cell>(&self, first: usize, src: &[T], dst: &mut [T], combine: &impl Fn(T, T) -> T) {
        if self.inner == 1 {
            for (&p, &s) in self.places.iter().zip(src) {
                if let Some(d) = dst.get_mut(p.wrapping_sub(first)) {
                    *d = combine(*d, s);
                }
            }
            return;
        }
        let end = first + dst.len() / self.inner;
        for (&p, src) in self.places.iter().zip(src.chunks_exact(self.inner)) {
            if (first..end).contains(&p) {
                let dst = &mut dst[(p - first) * self.inner..][..self.inner];
                run_wide(CombineSlices { dst, src, combine });
            }
        }
    }
}

/// Combines the elements of two slices.
struct CombineSlices<'a, T, F> {
    dst: &'a mut [T],
    src: &'a [T],
    combine: &'a F,
}

impl<T: Cell, F: Fn(T, T) -> T> WideLoop for CombineSlices<'_, T, F> {
    #[inline(always)]
    fn run(self) {
        let pairs = self.dst.iter_mut().zip(self.src);
        pairs.for_each(|(d, s)| *d = (self.combine)(*d, *s));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_combine_as_one_does() {
        let (n, count) = (37, 5000);
        for (outer, inner) in [(1, 17), (1, 1), (9, 13), (40, 1)] {
            let places: Vec<usize> = (0..count).map(|i| i * i % n).collect();
            let slices = NamedSlices {
                outer,
                n,
                inner,
                places,
            };
            let src: Vec<i64> = (0..(outer * count * inner) as i64).collect();
            let combine = |a: i64, b: i64| a.wrapping_mul(3).wrapping_add(b);
            let mut want = vec![1i64; outer * n * inner];
            slices.for_each(|to, from| {
                let pairs = want[to].iter_mut().zip(&src[from]);
                pairs.for_each(|(d, s)| *d = combine(*d, *s));
            });
            for threads in [1, 3] {
                let mut dst = vec![1i64; outer * n * inner];
                slices.combine(&src, &mut dst, &Pool::new(threads), combine);
                assert_eq!(dst, want);
            }
        }
    }
}
