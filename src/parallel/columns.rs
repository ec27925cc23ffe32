//! Shares of a matrix that threads write at the same time: each has some of its columns.

use super::{Pool, SharedPtr};
use std::marker::PhantomData;

/// Consecutive columns of a matrix.
pub(crate) struct Columns<'a, T> {
    /// The first element of the first row.
    first: *mut T,
    rows: usize,
    /// The distance of rows.
    stride: usize,
    width: usize,
    matrix: PhantomData<&'a mut [T]>,
}

impl<T> Columns<'_, T> {
    /// The elements of a row. Panics if there is no such row.
    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the row is within the matrix, and nobody else has these columns.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(row * self.stride), self.width) }
    }
}

impl Pool {
    /// Calls `f(i, columns)` for each part of `width` columns of a matrix, the last of which may be narrower, as [`Pool::run`] does.
    /// Rows have `stride` elements. Panics if `stride` or `width` is 0.
    pub(crate) fn run_columns<T: Send>(
        &self,
        matrix: &mut [T],
        stride: usize,
        width: usize,
        f: impl Fn(usize, Columns<'_, T>) + Sync,
    ) {
        let (rows, first) = (matrix.len() / stride, SharedPtr(matrix.as_mut_ptr()));
        if rows == 0 {
            return;
        }
        self.run(stride.div_ceil(width), |i| {
            let columns = Columns {
                // In the first row of the slice, which is borrowed for the run. Parts have different columns.
                first: first.at(i * width),
                rows,
                stride,
                width: width.min(stride - i * width),
                matrix: PhantomData,
            };
            f(i, columns);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_all_columns_once() {
        let mut matrix = vec![0usize; 7 * 10 + 3];
        Pool::new(3).run_columns(&mut matrix, 10, 4, |part, mut columns| {
            for row in 0..7 {
                columns.row(row).iter_mut().for_each(|v| *v += 100 * part + row + 1);
            }
        });
        for (i, &v) in matrix.iter().enumerate() {
            let want = if i < 70 { 100 * (i % 10 / 4) + i / 10 + 1 } else { 0 };
            assert_eq!(v, want, "{i}");
        }
        Pool::new(1).run_columns(&mut matrix[..3], 10, 4, |_, _| panic!("no row"));
    }

    #[test]
    #[should_panic(expected = "row 2 of 2")]
    fn rows_are_checked() {
        Pool::new(1).run_columns(&mut [0u8; 8], 4, 4, |_, mut columns| columns.row(2).fill(1));
    }
}
