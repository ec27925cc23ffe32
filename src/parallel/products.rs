//! Matrix products with columns that threads share.

use super::{Columns, Pool, SharedPtr};
use crate::tensor::{Factor, Product};
use std::marker::PhantomData;
use std::ops::Range;

impl<T: Product + Default> Columns<'_, T> {
    /// Whether `rows` are rows of these columns.
    fn has(&self, rows: &Range<usize>) -> bool {
        rows.start <= rows.end && rows.end <= self.rows
    }

    /// Replaces `out` by the product of `a`, which has `m` rows, and some rows of these columns. Panics if a slice is too short.
    pub(crate) fn multiply_rows(&self, a: Factor<'_, T>, m: usize, rows: Range<usize>, out: &mut [T]) {
        let sizes = [m, self.width, rows.len()];
        if m == 0 || self.width == 0 {
            return;
        }
        assert!(
            self.has(&rows) && (rows.is_empty() || a.holds(m, rows.len())) && out.len() / self.width >= m,
            "parts of a matrix product"
        );
        if rows.is_empty() {
            out.fill(T::default());
            return;
        }
        // SAFETY: all parts are within the columns, which nobody else has, and the slices.
        unsafe {
            let right = self.first.add(rows.start * self.stride).cast_const();
            let left = a.v.as_ptr().add(a.start);
            let out = (out.as_mut_ptr(), self.width);
            T::product(sizes, (left, a.strides), (right, [self.stride, 1]), out, None);
        }
    }

    /// Adds `factor` times the product of two matrices to some rows of these columns. Panics if a slice is too short.
    pub(crate) fn add_product(&mut self, rows: Range<usize>, factor: T, a: Factor<'_, T>, k: usize, b: Factor<'_, T>) {
        let sizes = [rows.len(), self.width, k];
        if sizes.contains(&0) {
            return;
        }
        assert!(
            self.has(&rows) && a.holds(rows.len(), k) && b.holds(k, self.width),
            "parts of a matrix product"
        );
        // SAFETY: all parts are within the columns, which nobody else has, and the slices.
        unsafe {
            let (left, right) = (a.v.as_ptr().add(a.start), b.v.as_ptr().add(b.start));
            let out = (self.first.add(rows.start * self.stride), self.stride);
            T::product(sizes, (left, a.strides), (right, b.strides), out, Some(factor));
        }
    }
}

impl Pool {
    /// [`Pool::run_columns`] for some of the columns.
    pub(crate) fn run_columns_of<T: Send>(
        &self,
        matrix: &mut [T],
        stride: usize,
        columns: Range<usize>,
        width: usize,
        f: impl Fn(Range<usize>, Columns<'_, T>) + Sync,
    ) {
        let (rows, first) = (matrix.len() / stride.max(1), SharedPtr(matrix.as_mut_ptr()));
        if rows == 0 || columns.is_empty() {
            return;
        }
        assert!(columns.end <= stride, "columns of a matrix");
        self.run(columns.len().div_ceil(width), |i| {
            let start = columns.start + i * width;
            let range = start..columns.end.min(start + width);
            let part = Columns {
                // In the first row of the slice, which is borrowed for the run. Parts have different columns.
                first: first.at(start),
                rows,
                stride,
                width: range.len(),
                matrix: PhantomData,
            };
            f(range, part);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_with_columns_are_products() {
        let (m, n, k) = (4, 11, 3);
        let left: Vec<f64> = (0..m * k).map(|i| (i % 5) as f64 - 2.0).collect();
        let mut matrix: Vec<f64> = (0..(m + k) * n).map(|i| (i % 7) as f64).collect();
        let before = matrix.clone();
        Pool::new(3).run_columns_of(&mut matrix, n, 2..n, 4, |range, mut columns| {
            let (a, mut known) = (Factor::at(&left, k, 0, 0), vec![9.0; k * range.len()]);
            let eye: Vec<f64> = (0..k * k).map(|i| (i % (k + 1) == 0) as u8 as f64).collect();
            columns.multiply_rows(Factor::at(&eye, k, 0, 0), k, m..m + k, &mut known);
            columns.add_product(0..m, -2.0, a, k, Factor::at(&known, range.len(), 0, 0));
        });
        for (i, got) in matrix.iter().enumerate() {
            let (row, column) = (i / n, i % n);
            let term = |p: usize| left[row * k + p] * before[(m + p) * n + column];
            let change = if row < m && column >= 2 {
                (0..k).map(term).sum()
            } else {
                0.0
            };
            assert_eq!(*got, before[i] - 2.0 * change, "{i}");
        }
    }

    #[test]
    #[should_panic(expected = "parts of a matrix product")]
    fn rows_are_checked() {
        Pool::new(1).run_columns_of(&mut [0.0f32; 8], 4, 1..4, 2, |_, mut columns| {
            columns.add_product(
                1..3,
                1.0,
                Factor::at(&[1.0; 9], 3, 0, 0),
                1,
                Factor::at(&[1.0; 9], 3, 0, 0),
            );
        });
    }
}
