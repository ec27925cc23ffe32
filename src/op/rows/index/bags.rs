//! The loops of embedding bags.

use crate::op::rows::dense::Number;
use crate::op::rows::fill::units_per_part;
use crate::parallel::Pool;
use crate::tensor::{
    Element, Tensor, ViewMut, WideLoop, add_f16s, round_to_bf16, round_to_f16, round_to_f16s, run_wide, widen_bf16,
    widen_f16,
};
use half::{bf16, f16};

/// The columns whose sums stay in registers while rows are added to them.
const COLUMNS: usize = 64;

/// The sum of some rows of a table, times weights if there are any, divided by a number if there is one.
pub(super) struct SumRows<'a, T, A> {
    table: &'a [T],
    rows: &'a [usize],
    /// One for each row.
    weights: Option<&'a [A]>,
    divisor: Option<A>,
    out: &'a mut [T],
}

/// An element of a table, and the number with which its sums are computed.
pub(super) trait TableElement: Element {
    type Sum: Number;
    fn widen(self) -> Self::Sum;
    fn narrow(x: Self::Sum) -> Self;
    /// Sums rows.
    fn sum(rows: SumRows<'_, Self, Self::Sum>) {
        run_wide(rows);
    }
}

macro_rules! table_elements {
    ($($t:ty, $sum:ty, $widen:expr, $narrow:expr $(, $sum_rows:expr)?;)*) => { $(impl TableElement for $t {
        type Sum = $sum;
        #[inline(always)]
        fn widen(self) -> $sum { $widen(self) }
        #[inline(always)]
        fn narrow(x: $sum) -> $t { $narrow(x) }
        $(fn sum(rows: SumRows<'_, $t, $sum>) { $sum_rows(rows) })?
    })* };
}
table_elements! {
    f32, f32, |x| x, |x| x;
    f64, f64, |x| x, |x| x;
    i64, i64, |x| x, |x| x;
    bf16, f32, widen_bf16, round_to_bf16;
    f16, f32, widen_f16, round_to_f16, sum_f16_rows;
}

impl<T: TableElement> SumRows<'_, T, T::Sum> {
    /// Sums `N` columns from `at` on.
    #[inline(always)]
    fn sum_columns<const N: usize>(&mut self, at: usize) {
        let (dim, mut sums) = (self.out.len(), [T::Sum::default(); N]);
        for (k, &row) in self.rows.iter().enumerate() {
            let row = &self.table[row * dim + at..][..N];
            match self.weights {
                Some(w) => (0..N).for_each(|j| sums[j] = sums[j].add(row[j].widen().mul(w[k]))),
                None => (0..N).for_each(|j| sums[j] = sums[j].add(row[j].widen())),
            }
        }
        if let Some(n) = self.divisor {
            sums.iter_mut().for_each(|v| *v = v.div(n));
        }
        let out = &mut self.out[at..at + N];
        (0..N).for_each(|j| out[j] = T::narrow(sums[j]));
    }
}

impl<T: TableElement> WideLoop for SumRows<'_, T, T::Sum> {
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

/// Sums rows of f16 in blocks that are converted by instructions, which loops over single elements do not use.
fn sum_f16_rows(r: SumRows<'_, f16, f32>) {
    const BLOCK: usize = 8 * COLUMNS;
    let (dim, mut sums) = (r.out.len(), [0.0; BLOCK]);
    for (at, out) in (0..dim).step_by(BLOCK).zip(r.out.chunks_mut(BLOCK)) {
        let sums = &mut sums[..out.len()];
        sums.fill(0.0);
        for (k, &row) in r.rows.iter().enumerate() {
            add_f16s(&r.table[row * dim + at..][..out.len()], r.weights.map(|w| w[k]), sums);
        }
        if let Some(n) = r.divisor {
            sums.iter_mut().for_each(|v| *v /= n);
        }
        round_to_f16s(sums, out);
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

    /// Computes all bags of a table. `max` gets the rows of maxima.
    pub(super) fn run<T: TableElement>(
        &self,
        table: &Tensor,
        weights: Option<&Tensor>,
        out: &mut ViewMut<'_>,
        max: &mut [i64],
        pool: &Pool,
    ) {
        let (table, weights) = (table.as_slice::<T>(), weights.map(|w| w.as_slice::<T::Sum>()));
        let (dim, out) = (self.dim, out.as_mut_slice::<T>());
        if out.is_empty() {
            return max.fill(0);
        }
        if self.mode == MAXIMUM {
            let bags = out.chunks_exact_mut(dim).zip(max.chunks_exact_mut(dim));
            return bags
                .enumerate()
                .for_each(|(k, (out, places))| self.largest(k, table, out, places));
        }
        self.run_sums(table, weights, out, pool);
    }

    /// The sums or means of all bags.
    fn run_sums<T: TableElement>(&self, table: &[T], weights: Option<&[T::Sum]>, out: &mut [T], pool: &Pool) {
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
                T::sum(SumRows {
                    table,
                    rows: &rows,
                    weights: weights.map(|_| &*factors),
                    divisor: (self.mode == MEAN && rows.len() > 1).then(|| T::Sum::from_f64(rows.len() as f64)),
                    out,
                });
            }
        });
    }

    /// The maximum of a bag, and the rows that have it.
    fn largest<T: TableElement>(&self, bag: usize, table: &[T], out: &mut [T], places: &mut [i64]) {
        places.fill(0);
        let mut none = true;
        for (_, row) in self.taken(bag) {
            for (d, &v) in table[row * self.dim..][..self.dim].iter().enumerate() {
                if none || v.widen() > out[d].widen() {
                    (out[d], places[d]) = (v, row as i64);
                }
            }
            none = false;
        }
        if none {
            out.fill(T::narrow(T::Sum::default()));
        }
    }
}
