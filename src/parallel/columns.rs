//! Shares of a matrix that threads write at the same time: each has some of its columns.

use super::{Pool, SharedPtr};
use std::marker::PhantomData;

/// Consecutive columns of a matrix.
pub(crate) struct Columns<'a, T> {
    /// The first element of the first row.
    pub(super) first: *mut T,
    pub(super) rows: usize,
    /// The distance of rows.
    pub(super) stride: usize,
    pub(super) width: usize,
    pub(super) matrix: PhantomData<&'a mut [T]>,
}

impl<T> Columns<'_, T> {
    /// The elements of a row. Panics if there is no such row.
    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the row is within the matrix, and nobody else has these columns.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(row * self.stride), self.width) }
    }

    /// An element; `None` if there is no such row or column.
    #[inline(always)]
    pub(crate) fn get(&mut self, row: usize, column: usize) -> Option<&mut T> {
        match row < self.rows {
            true => self.row(row).get_mut(column),
            false => None,
        }
    }
}

impl<'a, T> Columns<'a, T> {
    /// The elements of all rows.
    pub(crate) fn into_rows(self) -> impl Iterator<Item = &'a mut [T]> {
        (0..self.rows).map(move |row| {
            // SAFETY: as in `row`; each row is given away once.
            unsafe { std::slice::from_raw_parts_mut(self.first.add(row * self.stride), self.width) }
        })
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
        let matrix = Shared::new(matrix, stride, width);
        if matrix.rows > 0 {
            self.run(stride.div_ceil(width), |i| f(i, matrix.part(i)));
        }
    }

    /// [`Pool::run_columns`] for the same columns of two matrices of one size. Panics as it does, or if sizes differ.
    pub(crate) fn run_column_pairs<A: Send, B: Send>(
        &self,
        (a, b): (&mut [A], &mut [B]),
        stride: usize,
        width: usize,
        f: impl Fn(usize, Columns<'_, A>, Columns<'_, B>) + Sync,
    ) {
        assert_eq!(a.len(), b.len());
        let (a, b) = (Shared::new(a, stride, width), Shared::new(b, stride, width));
        if a.rows > 0 {
            self.run(stride.div_ceil(width), |i| f(i, a.part(i), b.part(i)));
        }
    }
}

/// A matrix whose parts several threads write.
struct Shared<T> {
    first: SharedPtr<T>,
    rows: usize,
    stride: usize,
    width: usize,
}

impl<T: Send> Shared<T> {
    fn new(matrix: &mut [T], stride: usize, width: usize) -> Shared<T> {
        Shared {
            first: SharedPtr(matrix.as_mut_ptr()),
            rows: matrix.len() / stride,
            stride,
            width,
        }
    }

    /// Part `i`, which is taken once. It begins in the first row of the matrix, which its caller has borrowed for the run.
    fn part(&self, i: usize) -> Columns<'_, T> {
        Columns {
            first: self.first.at(i * self.width),
            rows: self.rows,
            stride: self.stride,
            width: self.width.min(self.stride - i * self.width),
            matrix: PhantomData,
        }
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
    fn elements_and_rows_are_those_of_the_columns() {
        let mut matrix: Vec<usize> = (0..33).collect();
        Pool::new(2).run_columns(&mut matrix, 11, 4, |part, mut columns| {
            let width = if part == 2 { 3 } else { 4 };
            assert_eq!(columns.get(2, 0).copied(), Some(22 + 4 * part));
            assert!(columns.get(3, 0).is_none() && columns.get(0, width).is_none());
            let rows: Vec<&mut [usize]> = columns.into_rows().collect();
            assert!(rows.len() == 3 && rows.iter().all(|r| r.len() == width));
            rows.into_iter().flatten().for_each(|v| *v += 100);
        });
        assert!(matrix.iter().enumerate().all(|(i, v)| *v == i + 100));
    }

    #[test]
    #[should_panic(expected = "row 2 of 2")]
    fn rows_are_checked() {
        Pool::new(1).run_columns(&mut [0u8; 8], 4, 4, |_, mut columns| columns.row(2).fill(1));
    }
}
