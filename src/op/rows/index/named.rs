//! Slices that an index tensor names along a dim.

mod write;

use super::rounded::{AsStored, PartView};
use crate::op::rows::dense::{sizes_around, to_i64_indices};
use crate::op::rows::fill::{BYTES_PER_PART, units_per_part};
use crate::op::{Call, OpResult, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{Offsets, Tensor, WideLoop, indices_within, run_wide};
use crate::types::DType;
use std::hint::select_unpredictable;
use std::ops::Range;

/// The most elements of a unit, the named slices of one place of the dims before, for which several units are read or written together.
pub(super) const SHORT_UNIT: usize = 256;

/// The most elements of units that are read or written together.
const UNITS: usize = 1024;

/// How often the positions of these units are used at least: computing them takes about as long as using them once.
const REPEATS: usize = 8;

/// The positions of the elements of several units: the slices of `inner` elements at `index` along a dim of size `n`, for as many of
/// `outer` places of the dims before as are read or written together. Indices are below `n`.
pub(super) fn unit_offsets(index: &[i64], n: usize, inner: usize, outer: usize) -> Offsets {
    let most = UNITS / (index.len() * inner).max(1);
    let units = most.min(outer / REPEATS).max(1);
    let mut offsets = Vec::with_capacity(units * index.len() * inner);
    for o in 0..units {
        let start = |i: i64| (o * n + i as usize) * inner;
        match inner {
            1 => offsets.extend(index.iter().map(|&i| start(i))),
            _ => index.iter().for_each(|&i| offsets.extend(start(i)..start(i) + inner)),
        }
    }
    Offsets::new(offsets)
}

/// Slices along a dim that an index tensor names: the tensor as `[outer, n, inner]`, and the positions along `n`.
pub(super) struct NamedSlices {
    pub outer: usize,
    pub n: usize,
    pub inner: usize,
    /// Places along the dim.
    index: Tensor,
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
        let given = index.as_slice::<i64>();
        let index = match outer {
            0 => Tensor::zeros(DType::I64, &[0]),
            // All checks accept these.
            _ if indices_within(given, n) => index,
            _ => {
                let places = given.iter().map(|&i| check(i, n, dim).map(|p| p as i64));
                Tensor::from_slice(&[given.len()], &places.collect::<OpResult<Vec<_>>>()?)
            }
        };
        Ok(NamedSlices { outer, n, inner, index })
    }

    /// The places along the dim, all below its size.
    pub(super) fn places(&self) -> &[i64] {
        self.index.as_slice::<i64>()
    }

    /// Calls `f(to, from)` with the ranges of each slice in the tensor, and in one that has only the named slices.
    pub(super) fn for_each(&self, mut f: impl FnMut(Range<usize>, Range<usize>)) {
        let mut from = 0;
        for o in 0..self.outer {
            for &p in self.places() {
                let to = (o * self.n + p as usize) * self.inner;
                f(to..to + self.inner, from..from + self.inner);
                from += self.inner;
            }
        }
    }

    /// Whether [`NamedSlices::combine`] combines single elements, not slices of them.
    pub(super) fn are_elements(&self) -> bool {
        self.inner == 1 || self.has_short_units()
    }

    fn has_short_units(&self) -> bool {
        self.outer > 1 && self.places().len() * self.inner <= SHORT_UNIT
    }

    /// Combines the elements of each named slice of `dst` with those of `src`, which has only these slices, in order. Threads take
    /// blocks of the dims before or, without those, ranges of places, for which each reads the whole list.
    pub(super) fn combine<T: Copy + Send + Sync>(
        &self,
        src: &[T],
        dst: &mut [T],
        pool: &Pool,
        combine: impl Fn(T, T) -> T + Sync,
    ) {
        self.combine_as(&AsStored, src, dst, pool, &combine);
    }

    /// [`NamedSlices::combine`], where elements of `dst` are combined as `view` shows them.
    pub(super) fn combine_as<D: Copy + Send + Sync, T: Copy + Send, S: Copy + Sync>(
        &self,
        view: &impl PartView<D, T>,
        src: &[S],
        dst: &mut [D],
        pool: &Pool,
        how: &impl Combine<T, S>,
    ) {
        let (n, inner, count) = (self.n, self.inner, self.places().len());
        if dst.is_empty() || src.is_empty() {
            return;
        }
        let alone = Pool::alone();
        if self.outer > 1 {
            let (from, to) = (count * inner, n * inner);
            let offsets = (self.has_short_units()).then(|| unit_offsets(self.places(), n, inner, self.outer));
            let outer = units_per_part(self.outer, from * size_of::<D>(), pool).min((view.most() / to).max(1));
            return pool.run_parts(dst, outer * to, |part, dst| {
                let src = &src[part * outer * from..][..dst.len() / to * from];
                view.update(dst, alone, |dst| match &offsets {
                    Some(offsets) => combine_units(offsets, (src, from), (dst, to), how),
                    None => {
                        let blocks = dst.chunks_exact_mut(to).zip(src.chunks_exact(from));
                        blocks.for_each(|(dst, src)| self.combine_places(0, src, dst, how));
                    }
                });
            });
        }
        if view.most() < usize::MAX && inner > 1 && !self.reach_most_of(dst.len()) {
            return self.combine_by_place(view, src, dst, pool, how);
        }
        if let Some(columns) = self.columns_per_part(size_of::<S>(), pool) {
            return view.update(dst, alone, |dst| self.combine_columns(columns, src, dst, pool, how));
        }
        let rows = n.div_ceil(self.place_parts(size_of_val(src), pool));
        pool.run_parts(dst, rows * inner, |part, dst| {
            view.update(dst, alone, |dst| self.combine_places(part * rows, src, dst, how));
        });
    }

    /// [`NamedSlices::combine_as`] without dims before, where a thread takes some elements of each slice.
    fn combine_columns<T: Copy + Send, S: Copy + Sync>(
        &self,
        columns: usize,
        src: &[S],
        dst: &mut [T],
        pool: &Pool,
        how: &impl Combine<T, S>,
    ) {
        pool.run_columns(dst, self.inner, columns, |part, mut dst| {
            for (&p, src) in self.places().iter().zip(src.chunks_exact(self.inner)) {
                let to = dst.row(p as usize);
                how.slice(to, &src[part * columns..][..to.len()]);
            }
        });
    }

    /// [`NamedSlices::combine_as`] without dims before, for numbers that are not stored as such: the slices at a place are combined one
    /// after the other, so that only few numbers exist at a time.
    fn combine_by_place<D: Copy + Send + Sync, T: Copy, S: Copy + Sync>(
        &self,
        view: &impl PartView<D, T>,
        src: &[S],
        dst: &mut [D],
        pool: &Pool,
        how: &impl Combine<T, S>,
    ) {
        let inner = self.inner;
        let sources = SourcesOfPlaces::new(self.places(), self.n);
        let most = view.most().min(FEW_NUMBERS.max(inner));
        let (rows, columns) = ((most / inner).max(1), inner.min(most));
        let bytes = inner * size_of::<D>() * (1 + self.places().len() / self.n);
        let part = units_per_part(self.n, bytes, pool).next_multiple_of(rows);
        pool.run_parts(dst, part * inner, |i, dst| {
            let (first, mut buffer) = (i * part, vec![]);
            let all = first..first + dst.len() / inner;
            for places in sources.occupied(all, rows, SHORT_GAP / inner) {
                let block = &mut dst[(places.start - first) * inner..(places.end - first) * inner];
                for (c, numbers) in block.chunks_mut(columns * places.len()).enumerate() {
                    let width = numbers.len() / places.len();
                    view.update_few(numbers, &mut buffer, |numbers| {
                        for (row, place) in numbers.chunks_exact_mut(width).zip(places.clone()) {
                            let slices = sources.of(place).iter();
                            slices.for_each(|&k| how.slice(row, &src[k * inner + c * columns..][..width]));
                        }
                    });
                }
            }
        });
    }

    /// [`NamedSlices::combine_as`] for the slices of `dst`, which are those from place `first` on.
    fn combine_places<T: Copy, S: Copy>(&self, first: usize, src: &[S], dst: &mut [T], how: &impl Combine<T, S>) {
        if self.inner == 1 {
            return self.combine_elements(first, src, dst, how);
        }
        let end = first + dst.len() / self.inner;
        for (&p, src) in self.places().iter().zip(src.chunks_exact(self.inner)) {
            let p = p as usize;
            if (first..end).contains(&p) {
                how.slice(&mut dst[(p - first) * self.inner..][..self.inner], src);
            }
        }
    }
}

impl NamedSlices {
    /// [`NamedSlices::combine_places`] for slices of one element.
    fn combine_elements<T: Copy, S: Copy>(&self, first: usize, src: &[S], dst: &mut [T], how: &impl Combine<T, S>) {
        let elements = self.places().iter().zip(src);
        if dst.len() == self.n {
            for (&p, &s) in elements {
                if let Some(d) = dst.get_mut(p as usize) {
                    *d = how.element(*d, s);
                }
            }
            return;
        }
        let Some((last, &any)) = dst.iter().enumerate().next_back() else {
            return;
        };
        // Branches on whether a place is in `dst` would be mispredicted, so that the other elements go elsewhere.
        let mut spare = [any; SPARE];
        for (k, (&p, &s)) in elements.enumerate() {
            let at = (p as usize).wrapping_sub(first);
            let d = select_unpredictable(at <= last, &mut dst[at.min(last)], &mut spare[k % SPARE]);
            *d = how.element(*d, s);
        }
    }

    /// Whether short slices reach most of a tensor of `len` elements that is not too large to exist as numbers. Sorting the slices by
    /// place would take longer than converting all elements.
    fn reach_most_of(&self, len: usize) -> bool {
        self.inner < SHORT_GAP && self.places().len() >= self.n / 2 && len <= MOST_NUMBERS
    }

    /// How many elements of each slice a thread takes, if there are no dims before, slices are long and places are few; `None` if that does
    /// not save time. Of many places, each thread takes some: threads that share every slice would wait for each other's cache lines.
    fn columns_per_part(&self, size: usize, pool: &Pool) -> Option<usize> {
        if self.n >= MANY_PLACES * pool.threads() {
            return None;
        }
        let columns = units_per_part(self.inner, self.places().len() * size, pool).max(LONG_SLICE);
        let columns = columns.next_multiple_of(LONG_SLICE);
        (pool.threads() > 1 && self.outer == 1 && columns < self.inner).then_some(columns)
    }

    /// The number of threads that take some of the places, for slices of so many bytes in all.
    fn place_parts(&self, bytes: usize, pool: &Pool) -> usize {
        pool.threads().min(bytes / BYTES_PER_PART).max(1)
    }
}

/// The number of elements in which others' results go, by turns, because updates of one would wait for each other.
const SPARE: usize = 8;

/// Parts of slices have a multiple of this number of elements.
const LONG_SLICE: usize = 256;

/// As many places for each thread have about as many slices.
const MANY_PLACES: usize = 64;

/// The most numbers that are converted at once, unless one slice has more: 8 KiB, which the first cache holds.
const FEW_NUMBERS: usize = 2 << 10;

/// The most numbers of a whole tensor: 16 MiB.
const MOST_NUMBERS: usize = 4 << 20;

/// The most elements between two slices that are converted together with them, because a second call would take longer.
const SHORT_GAP: usize = 64;

/// For each place along a dim, the numbers of the slices that an index tensor puts there, in order.
struct SourcesOfPlaces {
    /// Where the numbers of each place begin, and the end of the last ones.
    starts: Vec<usize>,
    numbers: Vec<usize>,
}

impl SourcesOfPlaces {
    /// The sources of `n` places. `index` is below `n`.
    fn new(index: &[i64], n: usize) -> SourcesOfPlaces {
        let mut starts = vec![0; n + 1];
        index.iter().for_each(|&p| starts[p as usize + 1] += 1);
        for p in 0..n {
            starts[p + 1] += starts[p];
        }
        let (mut next, mut numbers) = (starts.clone(), vec![0; index.len()]);
        for (k, &p) in index.iter().enumerate() {
            numbers[next[p as usize]] = k;
            next[p as usize] += 1;
        }
        SourcesOfPlaces { starts, numbers }
    }

    fn of(&self, place: usize) -> &[usize] {
        &self.numbers[self.starts[place]..self.starts[place + 1]]
    }

    /// Splits the places that have slices into ranges of at most `most` places. Up to `gap` consecutive places without slices are
    /// included between others.
    fn occupied(&self, all: Range<usize>, most: usize, gap: usize) -> impl Iterator<Item = Range<usize>> {
        let has_slices = |p: &usize| self.starts[*p] < self.starts[*p + 1];
        let mut next = all.start;
        std::iter::from_fn(move || {
            let start = (next..all.end).find(has_slices)?;
            let mut end = start + 1;
            while let Some(more) = (end..all.end.min(end + gap + 1)).find(has_slices)
                && more < start + most
            {
                end = more + 1;
            }
            next = end;
            Some(start..end)
        })
    }
}

/// [`NamedSlices::combine_as`] for units of `from` elements of `src` and `to` elements of `dst`.
fn combine_units<T: Copy, S: Copy>(
    offsets: &Offsets,
    (src, from): (&[S], usize),
    (dst, to): (&mut [T], usize),
    how: &impl Combine<T, S>,
) {
    let together = offsets.list().len() / from;
    let parts = dst.chunks_mut(together * to).zip(src.chunks(together * from));
    parts.for_each(|(dst, src)| offsets.scatter(dst, src, |x, y| how.element(x, y)));
}

/// How the elements of a slice are combined with those of another.
pub(super) trait Combine<T, S>: Sync {
    fn element(&self, x: T, y: S) -> T;
    /// Combines all elements of two slices of one length.
    fn slice(&self, x: &mut [T], y: &[S]);
}

impl<T: Copy, S: Copy, F: Fn(T, S) -> T + Sync> Combine<T, S> for F {
    #[inline(always)]
    fn element(&self, x: T, y: S) -> T {
        self(x, y)
    }

    fn slice(&self, x: &mut [T], y: &[S]) {
        run_wide(CombineSlices { x, y, combine: self });
    }
}

struct CombineSlices<'a, T, S, F> {
    x: &'a mut [T],
    y: &'a [S],
    combine: &'a F,
}

impl<T: Copy, S: Copy, F: Fn(T, S) -> T> WideLoop for CombineSlices<'_, T, S, F> {
    #[inline(always)]
    fn run(self) {
        let pairs = self.x.iter_mut().zip(self.y);
        pairs.for_each(|(x, y)| *x = (self.combine)(*x, *y));
    }
}

#[cfg(test)]
mod tests;
