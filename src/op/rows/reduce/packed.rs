//! Positions of extrema in many short lines and in few long columns: several lines or rows fill a vector.

use crate::op::rows::index::combine::Cell;
use crate::tensor::WideLoop;

/// The elements that are compared at once.
const LANES: usize = 64;

/// The longest lines of which several are compared together: their elements stay in the first cache.
pub(super) const SHORT: usize = 64;

/// The most columns of which several rows are compared together.
pub(super) const FEW: usize = LANES / 2;

/// The fewest groups of rows for which the groups' extrema are worth combining.
const GROUPS: usize = 4;

/// Whether columns are so few and long that several of their rows are compared together.
pub(super) fn are_few_long_columns(n: usize, width: usize) -> bool {
    width <= FEW && n / (LANES / width) >= GROUPS && n <= i32::MAX as usize
}

/// The best element so far in each lane, and where it was found.
struct BestLanes<T> {
    values: [T; LANES],
    places: [i32; LANES],
}

impl<T: Cell> BestLanes<T> {
    #[inline(always)]
    fn new(first: &[T; LANES]) -> BestLanes<T> {
        BestLanes {
            values: *first,
            places: [0; LANES],
        }
    }

    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "loops over indices become vector code more often"
    )]
    fn update(&mut self, row: &[T; LANES], place: i32, largest: bool) {
        for j in 0..LANES {
            let take = beats(row[j], self.values[j], largest);
            self.values[j] = if take { row[j] } else { self.values[j] };
            self.places[j] = if take { place } else { self.places[j] };
        }
    }
}

/// Whether `x` takes the place of an extremum before it. NaN beats numbers.
#[inline(always)]
fn beats<T: Cell>(x: T, best: T, largest: bool) -> bool {
    let better = if largest { x > best } else { x < best };
    !best.is_nan() & (x.is_nan() | better)
}

/// The positions of the extrema along the second dim of `v` as `[…, n, width]`, where `n` is at most [`SHORT`] and `width` at most
/// [`FEW`]. Neither `v` nor the lines are empty.
pub(super) struct BestInShortLines<'a, T> {
    pub v: &'a [T],
    pub n: usize,
    pub width: usize,
    pub largest: bool,
    pub out: &'a mut [i64],
}

impl<T: Cell> WideLoop for BestInShortLines<'_, T> {
    #[inline(always)]
    fn run(self) {
        let (n, width) = (self.n, self.width);
        let mut rows = vec![[self.v[0]; LANES]; n];
        let lanes = LANES / width * width;
        let parts = self.out.chunks_mut(lanes).zip(self.v.chunks(lanes * n));
        for (out, v) in parts {
            for (b, block) in v.chunks_exact(n * width).enumerate() {
                spread_block(block, width, b * width, &mut rows);
            }
            let mut best = BestLanes::new(&rows[0]);
            for (k, row) in rows.iter().enumerate().skip(1) {
                best.update(row, k as i32, self.largest);
            }
            out.iter_mut().zip(&best.places).for_each(|(o, &p)| *o = p as i64);
        }
    }
}

/// Copies the rows of a block, of `width` elements, to lanes from `first` on.
#[inline(always)]
fn spread_block<T: Cell>(block: &[T], width: usize, first: usize, rows: &mut [[T; LANES]]) {
    if width == 1 {
        let first = first % LANES;
        for (row, &x) in rows.iter_mut().zip(block) {
            row[first] = x;
        }
        return;
    }
    for (row, from) in rows.iter_mut().zip(block.chunks_exact(width)) {
        let to = &mut row[first..first + width];
        to.iter_mut().zip(from).for_each(|(t, &x)| *t = x);
    }
}

/// The positions of the extrema of columns that [`are_few_long_columns`].
pub(super) struct BestInFewColumns<'a, T> {
    /// Rows of as many elements as `out` has.
    pub v: &'a [T],
    pub largest: bool,
    pub out: &'a mut [i64],
}

impl<T: Cell> WideLoop for BestInFewColumns<'_, T> {
    #[inline(always)]
    fn run(self) {
        let width = self.out.len();
        let group = LANES / width;
        let step = group * width;
        let Some(first) = self.v.first_chunk::<LANES>() else {
            let columns = [(self.v[0], 0); FEW];
            return self.finish(columns, 0);
        };
        // Lanes after the last row of a group repeat the next group's, and do not count.
        let (mut best, mut groups) = (BestLanes::new(first), 1);
        while let Some(row) = self.v[groups * step..].first_chunk::<LANES>() {
            best.update(row, groups as i32, self.largest);
            groups += 1;
        }
        let mut columns = [(first[0], 0); FEW];
        for (c, column) in columns.iter_mut().enumerate().take(width) {
            *column = (best.values[c], best.places[c] as usize * group);
            for j in 1..group {
                let lane = j * width + c;
                let other = (best.values[lane], best.places[lane] as usize * group + j);
                *column = better_place(*column, other, self.largest);
            }
        }
        self.finish(columns, groups * group);
    }
}

impl<T: Cell> BestInFewColumns<'_, T> {
    /// Writes the positions, after the rows from `from` on were compared with the extrema before them.
    #[inline(always)]
    fn finish(self, mut columns: [(T, usize); FEW], from: usize) {
        let width = self.out.len();
        for (k, row) in self.v.chunks_exact(width).enumerate().skip(from) {
            for (column, &x) in columns.iter_mut().zip(row) {
                if k == 0 || beats(x, column.0, self.largest) {
                    *column = (x, k);
                }
            }
        }
        self.out.iter_mut().zip(columns).for_each(|(o, c)| *o = c.1 as i64);
    }
}

/// The better of two elements with their places; the first of equals.
#[inline(always)]
fn better_place<T: Cell>(a: (T, usize), b: (T, usize), largest: bool) -> (T, usize) {
    let (first, second) = if a.1 < b.1 { (a, b) } else { (b, a) };
    if beats(second.0, first.0, largest) {
        second
    } else {
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{SplitMix, run_wide};

    /// Few different numbers with some NaN, so that equal extrema are common.
    fn elements(count: usize, seed: u64) -> Vec<f32> {
        let mut random = SplitMix::new(seed);
        let element = |x: usize| if x == 0 { f32::NAN } else { (x % 7) as f32 };
        let of = if seed.is_multiple_of(2) { 30 } else { 5000 };
        (0..count).map(|_| element(random.next_below(of))).collect()
    }

    fn one_by_one(v: &[f32], n: usize, width: usize, largest: bool) -> Vec<i64> {
        let line = |l: usize| {
            let at = |k: usize| v[(l / width * n + k) * width + l % width];
            (1..n).fold(0, |best, k| if beats(at(k), at(best), largest) { k } else { best }) as i64
        };
        (0..v.len() / n).map(line).collect()
    }

    #[test]
    fn short_lines_have_the_extrema_of_single_elements() {
        for (outer, n, width) in [(200, 7, 1), (1, 2, 1), (65, 64, 1), (50, 5, 7), (9, 3, 32), (64, 1, 1)] {
            for (seed, largest) in [(1, true), (2, true), (3, false), (4, false)] {
                let v = elements(outer * n * width, seed);
                let mut out = vec![-1; outer * width];
                run_wide(BestInShortLines {
                    v: &v,
                    n,
                    width,
                    largest,
                    out: &mut out,
                });
                assert_eq!(out, one_by_one(&v, n, width, largest), "{outer} {n} {width}");
            }
        }
    }

    #[test]
    fn few_columns_have_the_extrema_of_single_elements() {
        for (n, width) in [
            (300, 1),
            (256, 1),
            (1000, 7),
            (41, 7),
            (64, 32),
            (8, 32),
            (150, 31),
            (90, 3),
        ] {
            assert!(are_few_long_columns(n, width) || n < 64);
            for (seed, largest) in [(1, true), (2, true), (3, false), (4, false)] {
                let v = elements(n * width, seed);
                let mut out = vec![-1; width];
                run_wide(BestInFewColumns {
                    v: &v,
                    largest,
                    out: &mut out,
                });
                assert_eq!(out, one_by_one(&v, n, width, largest), "{n} {width}");
            }
        }
        let mut out = [-1; 3];
        run_wide(BestInFewColumns {
            v: &[1, 5, 2, 3, 5, 9],
            largest: true,
            out: &mut out,
        });
        assert_eq!(out, [1, 0, 1]);
    }
}
