//! The loops of embedding bags.

use crate::op::rows::dense::Number;
use crate::op::rows::fill::units_per_part;
use crate::parallel::Pool;
use crate::tensor::{Element, Tensor, ViewMut, WideLoop, run_wide};

/// Adds a row of a table to a sum, times a weight if there is one.
struct AddRow<'a, T, A, R> {
    row: &'a [T],
    sum: &'a mut [A],
    weight: Option<A>,
    read: R,
}

impl<T: Copy, A: Number, R: Fn(T) -> A> WideLoop for AddRow<'_, T, A, R> {
    #[inline(always)]
    fn run(self) {
        let (pairs, read) = (self.sum.iter_mut().zip(self.row), self.read);
        match self.weight {
            Some(w) => pairs.for_each(|(s, &v)| *s = s.add(read(v).mul(w))),
            None => pairs.for_each(|(s, &v)| *s = s.add(read(v))),
        }
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
        // A bag reads several rows.
        let bags = units_per_part(self.bounds.len(), 8 * dim * size_of::<T>(), pool);
        pool.run_parts(out, bags * dim, |part, out| {
            let mut sum = vec![A::default(); dim];
            for (k, out) in out.chunks_exact_mut(dim).enumerate() {
                self.sum(part * bags + k, table, weights, read, &mut sum);
                out.iter_mut().zip(&sum).for_each(|(o, &v)| *o = write(v));
            }
        });
    }

    /// The sum or the mean of a bag.
    fn sum<T: Element, A: Number>(
        &self,
        bag: usize,
        table: &[T],
        weights: Option<&[A]>,
        read: impl Fn(T) -> A + Copy,
        sum: &mut [A],
    ) {
        sum.fill(A::default());
        let mut count = 0;
        for (p, row) in self.taken(bag) {
            run_wide(AddRow {
                row: &table[row * self.dim..][..self.dim],
                sum,
                weight: weights.map(|w| w[p]),
                read,
            });
            count += 1;
        }
        if self.mode == MEAN && count > 1 {
            let n = A::from_f64(count as f64);
            sum.iter_mut().for_each(|v| *v = v.div(n));
        }
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
