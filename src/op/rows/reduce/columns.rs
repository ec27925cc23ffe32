//! Positions of extrema in columns: lines that lie side by side.

use super::packed::{Place, Placed};
use crate::op::rows::fill::units_per_part;
use crate::op::rows::lines::DimLines;
use crate::parallel::Pool;
use crate::tensor::{WideLoop, run_wide};

/// The columns that are compared at once: a vector of the narrowest elements.
const LANES: usize = 32;

/// The columns whose extrema stay in the first cache while rows are read.
const AT_ONCE: usize = 1024;

/// Rows, which are compared column by column.
#[derive(Clone, Copy)]
struct Rows<'a, E> {
    v: &'a [E],
    width: usize,
}

/// The positions of the extrema of the columns from `first` on. Elements are compared by their keys. At most [`AT_ONCE`] columns.
struct BestInColumns<'a, E, F, const LARGEST: bool> {
    rows: Rows<'a, E>,
    first: usize,
    key: F,
    out: &'a mut [i64],
}

impl<E: Copy, T: Placed, F: Fn(E) -> T, const LARGEST: bool> WideLoop for BestInColumns<'_, E, F, LARGEST> {
    #[inline(always)]
    fn run(self) {
        let (Rows { v, width }, count) = (self.rows, self.out.len());
        let mut keys = [(self.key)(v[0]); AT_ONCE];
        for (key, &x) in keys.iter_mut().zip(&v[self.first..][..count]) {
            *key = (self.key)(x);
        }
        self.out.fill(0);
        let rows = v.len() / width;
        for from in (1..rows).step_by(T::Place::MOST) {
            let mut places = [T::Place::new(0); AT_ONCE];
            let some = &v[from * width..][..T::Place::MOST.min(rows - from) * width];
            for (k, row) in some.chunks_exact(width).enumerate() {
                let (row, place) = (&row[self.first..][..count], T::Place::new(k + 1));
                let (chunks, rest) = row.as_chunks::<LANES>();
                let (key_chunks, _) = keys.as_chunks_mut::<LANES>();
                let (place_chunks, _) = places.as_chunks_mut::<LANES>();
                for ((row, keys), places) in chunks.iter().zip(key_chunks).zip(place_chunks) {
                    update_lanes::<LANES, _, _, LARGEST>(&self.key, row, keys, places, place);
                }
                let done = count - rest.len();
                for ((x, key), p) in rest.iter().zip(&mut keys[done..]).zip(&mut places[done..]) {
                    update_lanes::<1, _, _, LARGEST>(&self.key, &[*x], as_array(key), as_array(p), place);
                }
            }
            for (o, p) in self.out.iter_mut().zip(places) {
                // Places count from 1; 0 is "none in these rows".
                *o = if p.get() > 0 { (from - 1 + p.get()) as i64 } else { *o };
            }
        }
    }
}

fn as_array<T>(x: &mut T) -> &mut [T; 1] {
    std::array::from_mut(x)
}

#[inline(always)]
fn update_lanes<const N: usize, E: Copy, T: Placed, const LARGEST: bool>(
    key: &impl Fn(E) -> T,
    row: &[E; N],
    best: &mut [T; N],
    places: &mut [T::Place; N],
    place: T::Place,
) {
    for j in 0..N {
        let x = key(row[j]);
        let take = x.beats::<LARGEST>(best[j]);
        best[j] = if take { x } else { best[j] };
        places[j] = if take { place } else { places[j] };
    }
}

/// The positions of the extrema of columns. Elements are compared by their keys.
pub(super) fn arg_columns<E: Copy + Sync, T: Placed, const LARGEST: bool>(
    v: &[E],
    key: impl Fn(E) -> T + Copy + Sync,
    lines: &DimLines,
    out: &mut [i64],
    pool: &Pool,
) {
    let (n, width) = (lines.len, lines.inner);
    let count = units_per_part(out.len(), n * size_of::<E>(), pool).next_multiple_of(LANES);
    if lines.outer == 1 {
        let rows = Rows { v, width };
        return pool.run_parts(out, count, |i, out| {
            arg_block::<_, _, LARGEST>(rows, key, i * count, out)
        });
    }
    let blocks = count.div_ceil(width);
    pool.run_parts(out, blocks * width, |i, out| {
        let v = &v[i * blocks * n * width..][..out.len() * n];
        for (out, v) in out.chunks_exact_mut(width).zip(v.chunks_exact(n * width)) {
            arg_block::<_, _, LARGEST>(Rows { v, width }, key, 0, out);
        }
    });
}

/// The positions of the extrema of the columns from `first` on.
fn arg_block<E: Copy, T: Placed, const LARGEST: bool>(
    rows: Rows<E>,
    key: impl Fn(E) -> T + Copy,
    first: usize,
    out: &mut [i64],
) {
    let find = |at: usize, out: &mut [i64]| {
        let first = first + at;
        run_wide(BestInColumns::<_, _, LARGEST> { rows, first, key, out });
    };
    // The columns after the last whole vector are compared with some before them once more.
    let (count, rest) = (out.len(), out.len() % LANES);
    let whole = if count < LANES { count } else { count - rest };
    for at in (0..whole).step_by(AT_ONCE) {
        find(at, &mut out[at..whole.min(at + AT_ONCE)]);
    }
    if whole < count {
        find(count - LANES, &mut out[count - LANES..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_by_one<const LARGEST: bool>(v: &[i16], n: usize, width: usize) -> Vec<i64> {
        let line = |l: usize| {
            let at = |k: usize| v[(l / width * n + k) * width + l % width];
            (1..n).fold(0, |best, k| if at(k).beats::<LARGEST>(at(best)) { k } else { best }) as i64
        };
        (0..v.len() / n).map(line).collect()
    }

    fn check<const LARGEST: bool>([outer, n, width]: [usize; 3], of: usize) {
        let v: Vec<i16> = (0..outer * n * width).map(|i| (i * 7919 % of) as i16).collect();
        let lines = DimLines {
            outer,
            len: n,
            inner: width,
        };
        let mut out = vec![-1; outer * width];
        arg_columns::<_, i16, LARGEST>(&v, |x| x, &lines, &mut out, &Pool::new(1));
        assert_eq!(out, one_by_one::<LARGEST>(&v, n, width), "{outer} {n} {width}");
    }

    #[test]
    fn columns_have_the_extrema_of_single_elements() {
        for shape in [[1, 5, 3], [2, 9, 33], [3, 40, 64], [1, 3, 2100], [5, 2, 95]] {
            check::<true>(shape, 11);
            check::<false>(shape, 3001);
        }
    }

    #[test]
    fn places_may_exceed_the_integers_they_are_kept_in() {
        let n = 3 * i16::MAX as usize + 5;
        check::<true>([1, n, 2], 30011);
        check::<false>([1, n, 2], 30011);
    }
}
