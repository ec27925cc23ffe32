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
    width <= FEW && n / (LANES / width) >= GROUPS
}

/// An integer for the places of elements in some rows.
pub(super) trait Place: Copy {
    /// The most rows that have places.
    const MOST: usize;
    fn new(place: usize) -> Self;
    fn get(self) -> usize;
}

macro_rules! places {
    ($($t:ident),*) => { $(impl Place for $t {
        const MOST: usize = $t::MAX as usize;
        #[inline(always)]
        fn new(place: usize) -> $t { place as $t }
        #[inline(always)]
        fn get(self) -> usize { self as usize }
    })* };
}
places!(i16, i32, i64);

/// An element that is compared with others to find an extremum.
pub(super) trait Placed: Cell {
    /// Places are as wide as elements, so that a comparison selects both.
    type Place: Place;

    /// Whether the element takes the place of an extremum before it. NaN beats numbers.
    #[inline(always)]
    fn beats<const LARGEST: bool>(self, best: Self) -> bool {
        let better = if LARGEST { self > best } else { self < best };
        !best.is_nan() & (self.is_nan() | better)
    }
}

macro_rules! placed {
    ($($t:ident $place:ident),*) => { $(impl Placed for $t { type Place = $place; })* };
}
placed!(f32 i32, f64 i64, i64 i64, i32 i32, i16 i16);

/// The best element so far in each lane, and where it was found.
struct BestLanes<T: Placed> {
    values: [T; LANES],
    places: [T::Place; LANES],
}

impl<T: Placed> BestLanes<T> {
    #[inline(always)]
    fn new(first: &[T; LANES]) -> BestLanes<T> {
        BestLanes {
            values: *first,
            places: [T::Place::new(0); LANES],
        }
    }

    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "loops over indices become vector code more often"
    )]
    fn update<const LARGEST: bool>(&mut self, row: &[T; LANES], place: T::Place) {
        for j in 0..LANES {
            let take = row[j].beats::<LARGEST>(self.values[j]);
            self.values[j] = if take { row[j] } else { self.values[j] };
            self.places[j] = if take { place } else { self.places[j] };
        }
    }
}

impl<T: Placed> BestLanes<T> {
    /// The extremum of column `c` of `width`, and its row. The lanes hold groups of rows, from group `first` on.
    #[inline(always)]
    fn first_of_column<const LARGEST: bool>(&self, c: usize, width: usize, first: usize) -> (T, usize) {
        let group = LANES / width;
        let row = |j: usize| (first + self.places[j * width + c].get()) * group + j;
        let of_lane = |j: usize| (self.values[j * width + c], row(j));
        (1..group).fold(of_lane(0), |best, j| better_place::<T, LARGEST>(best, of_lane(j)))
    }
}

/// The positions of the extrema along the second dim of `v` as `[…, n, width]`, where `n` is at most [`SHORT`] and `width` at most
/// [`FEW`]. Neither `v` nor the lines are empty.
pub(super) struct BestInShortLines<'a, T, const LARGEST: bool> {
    pub v: &'a [T],
    pub n: usize,
    pub width: usize,
    pub out: &'a mut [i64],
}

impl<T: Placed, const LARGEST: bool> WideLoop for BestInShortLines<'_, T, LARGEST> {
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
                best.update::<LARGEST>(row, T::Place::new(k));
            }
            out.iter_mut().zip(&best.places).for_each(|(o, &p)| *o = p.get() as i64);
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

/// The number of elements whose keys are made at once: they stay in the first cache.
const KEYS: usize = 2048;

/// The positions of the extrema in lines of `n` elements, at most [`SHORT`], whose keys have at most 17 bits with the sign. The greatest key
/// wins. A key and a place fit one integer, so that the maximum of these integers has the place, too.
pub(super) struct BestKeyInShortLines<'a, T, F> {
    pub v: &'a [T],
    pub n: usize,
    pub key: F,
    pub out: &'a mut [i64],
}

/// The bits of a place.
const PLACE_BITS: u32 = 8;

impl<T: Copy, F: Fn(T) -> i32> WideLoop for BestKeyInShortLines<'_, T, F> {
    #[inline(always)]
    fn run(self) {
        let n = self.n;
        let lines = (KEYS / n).max(1);
        // Counted from the end, so that the first of equal elements wins.
        let places: Vec<i32> = (0..lines * n).map(|i| (n - 1 - i % n) as i32).collect();
        let mut keys = vec![0; lines * n];
        for (out, v) in self.out.chunks_mut(lines).zip(self.v.chunks(lines * n)) {
            for ((key, &x), place) in keys.iter_mut().zip(v).zip(&places) {
                *key = (self.key)(x) << PLACE_BITS | place;
            }
            for (o, line) in out.iter_mut().zip(keys.chunks_exact(n)) {
                let mut best = i32::MIN;
                for &key in line {
                    best = best.max(key);
                }
                *o = n as i64 - 1 - (best & ((1 << PLACE_BITS) - 1)) as i64;
            }
        }
    }
}

/// The positions of the extrema of columns that [`are_few_long_columns`].
pub(super) struct BestInFewColumns<'a, T, const LARGEST: bool> {
    /// Rows of as many elements as `out` has.
    pub v: &'a [T],
    pub out: &'a mut [i64],
}

impl<T: Placed, const LARGEST: bool> WideLoop for BestInFewColumns<'_, T, LARGEST> {
    #[inline(always)]
    fn run(self) {
        let width = self.out.len();
        let group = LANES / width;
        let step = group * width;
        let Some(first) = self.v.first_chunk::<LANES>() else {
            let columns = [(self.v[0], 0); FEW];
            return self.finish(columns, 0);
        };
        let (mut columns, mut done) = ([(first[0], 0); FEW], 0);
        while let Some(first) = self.v[done * step..].first_chunk::<LANES>() {
            // Lanes after the last row of a group repeat the next group's, and do not count.
            let (mut best, mut groups) = (BestLanes::new(first), 1);
            while groups < T::Place::MOST
                && let Some(row) = self.v[(done + groups) * step..].first_chunk::<LANES>()
            {
                best.update::<LARGEST>(row, T::Place::new(groups));
                groups += 1;
            }
            for (c, column) in columns.iter_mut().enumerate().take(width) {
                let found = best.first_of_column::<LARGEST>(c, width, done);
                *column = match done {
                    0 => found,
                    _ => better_place::<T, LARGEST>(*column, found),
                };
            }
            done += groups;
        }
        self.finish(columns, done * group);
    }
}

impl<T: Placed, const LARGEST: bool> BestInFewColumns<'_, T, LARGEST> {
    /// Writes the positions, after the rows from `from` on were compared with the extrema before them.
    #[inline(always)]
    fn finish(self, mut columns: [(T, usize); FEW], from: usize) {
        let width = self.out.len();
        for (k, row) in self.v.chunks_exact(width).enumerate().skip(from) {
            for (column, &x) in columns.iter_mut().zip(row) {
                if k == 0 || x.beats::<LARGEST>(column.0) {
                    *column = (x, k);
                }
            }
        }
        self.out.iter_mut().zip(columns).for_each(|(o, c)| *o = c.1 as i64);
    }
}

/// The better of two elements with their places; the first of equals.
#[inline(always)]
fn better_place<T: Placed, const LARGEST: bool>(a: (T, usize), b: (T, usize)) -> (T, usize) {
    let (first, second) = if a.1 < b.1 { (a, b) } else { (b, a) };
    if second.0.beats::<LARGEST>(first.0) {
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

    fn one_by_one<const LARGEST: bool>(v: &[f32], n: usize, width: usize) -> Vec<i64> {
        let line = |l: usize| {
            let at = |k: usize| v[(l / width * n + k) * width + l % width];
            let better = |best, k| at(k).beats::<LARGEST>(at(best));
            (1..n).fold(0, |best, k| if better(best, k) { k } else { best }) as i64
        };
        (0..v.len() / n).map(line).collect()
    }

    fn check_short_lines<const LARGEST: bool>(v: &[f32], n: usize, width: usize) {
        let mut out = vec![-1; v.len() / n];
        run_wide(BestInShortLines::<_, LARGEST> {
            v,
            n,
            width,
            out: &mut out,
        });
        assert_eq!(out, one_by_one::<LARGEST>(v, n, width), "{n} {width}");
    }

    fn check_few_columns<const LARGEST: bool>(v: &[f32], n: usize, width: usize) {
        let mut out = vec![-1; width];
        run_wide(BestInFewColumns::<_, LARGEST> { v, out: &mut out });
        assert_eq!(out, one_by_one::<LARGEST>(v, n, width), "{n} {width}");
    }

    #[test]
    fn short_lines_have_the_extrema_of_single_elements() {
        for (outer, n, width) in [(200, 7, 1), (1, 2, 1), (65, 64, 1), (50, 5, 7), (9, 3, 32), (64, 1, 1)] {
            for seed in 1..=4 {
                let v = elements(outer * n * width, seed);
                check_short_lines::<true>(&v, n, width);
                check_short_lines::<false>(&v, n, width);
            }
        }
    }

    #[test]
    fn short_lines_of_keys_have_the_extrema_of_single_elements() {
        for n in [1, 2, 7, 33, 64] {
            let v: Vec<i16> = elements(n * 500, 2).iter().map(|x| *x as i16 - 3).collect();
            let wide: Vec<f32> = v.iter().map(|&x| x.into()).collect();
            for largest in [true, false] {
                let mut out = vec![-1; 500];
                run_wide(BestKeyInShortLines {
                    v: &v,
                    n,
                    key: |x: i16| i32::from(if largest { x } else { !x }),
                    out: &mut out,
                });
                let want = match largest {
                    true => one_by_one::<true>(&wide, n, 1),
                    false => one_by_one::<false>(&wide, n, 1),
                };
                assert_eq!(out, want, "{n}");
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
            for seed in 1..=4 {
                let v = elements(n * width, seed);
                check_few_columns::<true>(&v, n, width);
                check_few_columns::<false>(&v, n, width);
            }
        }
        let mut out = [-1; 3];
        run_wide(BestInFewColumns::<_, true> {
            v: &[1, 5, 2, 3, 5, 9],
            out: &mut out,
        });
        assert_eq!(out, [1, 0, 1]);
    }
}
