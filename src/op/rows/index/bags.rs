//! The loops of embedding bags.

use crate::op::rows::dense::Number;
use crate::op::rows::fill::units_per_part;
use crate::parallel::Pool;
use crate::tensor::{Element, Tensor, ViewMut, WideLoop, run_wide};

/// The columns whose sums stay in registers while rows are added to them.
const COLUMNS: usize = 64;

/// The sum of some rows of a table, times weights if there are any, divided by a number if there is one.
struct SumRows<'a, T, A, R, W> {
    table: &'a [T],
    rows: &'a [usize],
    /// One for each row.
    weights: Option<&'a [A]>,
    divisor: Option<A>,
    out: &'a mut [T],
    read: R,
    write: W,
}

impl<T: Copy, A: Number, R: Fn(T) -> A, W: Fn(A) -> T> SumRows<'_, T, A, R, W> {
    /// Sums `N` columns from `at` on.
    #[inline(always)]
    fn sum_columns<const N: usize>(&mut self, at: usize) {
        let (dim, mut sums) = (self.out.len(), [A::default(); N]);
        for (k, &row) in self.rows.iter().enumerate() {
            let row = &self.table[row * dim + at..][..N];
            match self.weights {
                Some(w) => (0..N).for_each(|j| sums[j] = sums[j].add((self.read)(row[j]).mul(w[k]))),
                None => (0..N).for_each(|j| sums[j] = sums[j].add((self.read)(row[j]))),
            }
        }
        if let Some(n) = self.divisor {
            sums.iter_mut().for_each(|v| *v = v.div(n));
        }
        let out = &mut self.out[at..at + N];
        (0..N).for_each(|j| out[j] = (self.write)(sums[j]));
    }
}

impl<T: Copy, A: Number, R: Fn(T) -> A, W: Fn(A) -> T> WideLoop for SumRows<'_, T, A, R, W> {
    #[inline(always)]
    fn run(mut self) {
        let (mut at, dim) = (0, self.out.len());
        while dim - at >= COLUMNS {
            self.sum_columns::<COLUMNS>(at);
            at += COLUMNS;
        }
        while dim - at >= COLUMNS / 8 {
            self.sum_columns::<{ COLUMNS / 8 }>(at);
            at += COLUMNS / 8;
        }
        (at..dim).for_each(|j| self.sum_columns::<1>(j));
    }
}

/// The modes that are not a sum.
const MEAN: i64 = 1;
pub(super) const MAXIMUM: i64 = 2;

/// The bags of a call.
pub(super) struct Bags<'a> {
    pub indices: &'a [i64],
    /// The begin and end of each bag in the list of indices.
    pub bounds: &'a [(usize, usize)],
    /// An index that does not count.
    pub padding: Option<i64>,
    /// The length of a row of the table.
    pub dim: usize,
    pub mode: i64,
}

impl Bags<'_> {
    /// The entries of a bag: `(position among the indices, row of the table)`.
    fn taken(&self, bag: usize) -> impl Iterator<Item = (usize, usize)> {
        let (begin, end) = self.bounds[bag];
        let taken = (begin..end).filter(|&p| self.padding != Some(self.indices[p]));
        taken.map(|p| (p, self.indices[p] as usize))
    }

    /// Writes the bag of each index. torch does not record them where it sums directly; `out` is empty then.
    pub(super) fn write_bag_numbers(&self, out: &mut [i64]) {
        if out.is_empty() {
            return;
        }
        out.fill(0);
        for (bag, &(begin, end)) in self.bounds.iter().enumerate() {
            out[begin..end].fill(bag as i64);
        }
    }

    /// Writes the number of entries of each bag. torch counts only if the mean or the gradient needs it.
    pub(super) fn write_counts(&self, out: &mut [i64]) {
        out.fill(0);
        if self.mode != 0 {
            out.iter_mut()
                .enumerate()
                .for_each(|(bag, n)| *n = self.taken(bag).count() as i64);
        }
    }

    /// Computes all bags of a table with elements `T` in the arithmetic of `A`. `max` gets the rows of maxima.
    pub(super) fn run<T: Element, A: Number>(
        &self,
        table: &Tensor,
        weights: Option<&Tensor>,
        read: impl Fn(T) -> A + Copy + Sync,
        write: impl Fn(A) -> T + Copy + Sync,
        out: &mut ViewMut<'_>,
        max: &mut [i64],
        pool: &Pool,
    ) {
        let (table, weights) = (table.as_slice::<T>(), weights.map(|w| w.as_slice::<A>()));
        let (dim, out) = (self.dim, out.as_mut_slice::<T>());
        if out.is_empty() {
            return max.fill(0);
        }
        if self.mode == MAXIMUM {
            let bags = out.chunks_exact_mut(dim).zip(max.chunks_exact_mut(dim));
            return bags
                .enumerate()
                .for_each(|(k, (out, places))| self.largest(k, table, read, write(A::default()), out, places));
        }
        self.run_sums((table, weights), read, write, out, pool);
    }

    /// The sums or means of all bags.
    fn run_sums<T: Element, A: Number>(
        &self,
        (table, weights): (&[T], Option<&[A]>),
        read: impl Fn(T) -> A + Copy + Sync,
        write: impl Fn(A) -> T + Copy + Sync,
        out: &mut [T],
        pool: &Pool,
    ) {
        let dim = self.dim;
        // A bag reads several rows.
        let bags = units_per_part(self.bounds.len(), 8 * dim * size_of::<T>(), pool);
        pool.run_parts(out, bags * dim, |part, out| {
            let (mut rows, mut factors) = (vec![], vec![]);
            for (k, out) in out.chunks_exact_mut(dim).enumerate() {
                rows.clear();
                factors.clear();
                for (p, row) in self.taken(part * bags + k) {
                    rows.push(row);
                    factors.extend(weights.map(|w| w[p]));
                }
                run_wide(SumRows {
                    table,
                    rows: &rows,
                    weights: weights.map(|_| &*factors),
                    divisor: (self.mode == MEAN && rows.len() > 1).then(|| A::from_f64(rows.len() as f64)),
                    out,
                    read,
                    write,
                });
            }
        });
    }

    /// The maximum of a bag, and the rows that have it.
    fn largest<T: Element, A: Number>(
        &self,
        bag: usize,
        table: &[T],
        read: impl Fn(T) -> A + Copy,
        zero: T,
        out: &mut [T],
        places: &mut [i64],
    ) {
        places.fill(0);
        let mut none = true;
        for (_, row) in self.taken(bag) {
            for (d, &v) in table[row * self.dim..][..self.dim].iter().enumerate() {
                if none || read(v) > read(out[d]) {
                    (out[d], places[d]) = (v, row as i64);
                }
            }
            none = false;
        }
        if none {
            out.fill(zero);
        }
    }
}
