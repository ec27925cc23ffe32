//! A single matrix.

use super::real::Real;
use super::vectors::subtract_rows;
use std::ops::Range;

/// A row-major matrix.
#[derive(Clone)]
pub(crate) struct Matrix<T = f64> {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The elements in row-major order.
    pub v: Vec<T>,
}

impl<T: Real> Matrix<T> {
    pub(crate) fn at(&self, i: usize, j: usize) -> T {
        self.v[i * self.columns + j]
    }

    pub(crate) fn set(&mut self, i: usize, j: usize, x: T) {
        self.v[i * self.columns + j] = x;
    }

    pub(crate) fn eye(n: usize) -> Matrix<T> {
        let mut out = Matrix::zeros(n, n);
        out.v.iter_mut().step_by(n + 1).for_each(|x| *x = T::ONE);
        out
    }

    pub(crate) fn zeros(rows: usize, columns: usize) -> Matrix<T> {
        let v = vec![T::ZERO; rows * columns];
        Matrix { rows, columns, v }
    }

    pub(crate) fn from_fn(rows: usize, columns: usize, f: impl Fn(usize, usize) -> T) -> Matrix<T> {
        let mut v = Vec::with_capacity(rows * columns);
        for i in 0..rows {
            v.extend((0..columns).map(|j| f(i, j)));
        }
        Matrix { rows, columns, v }
    }

    pub(crate) fn transposed(&self) -> Matrix<T> {
        const TILE: usize = 8;
        let mut out = Matrix::zeros(self.columns, self.rows);
        for (i0, j0) in (0..self.rows)
            .step_by(TILE)
            .flat_map(|i| (0..self.columns).step_by(TILE).map(move |j| (i, j)))
        {
            for j in j0..self.columns.min(j0 + TILE) {
                let line = &mut out.v[j * self.rows..][i0..self.rows.min(i0 + TILE)];
                let column = self.v[i0 * self.columns + j..].iter().step_by(self.columns);
                line.iter_mut().zip(column).for_each(|(o, x)| *o = *x);
            }
        }
        out
    }

    pub(crate) fn row(&self, i: usize) -> &[T] {
        &self.v[i * self.columns..(i + 1) * self.columns]
    }

    /// Appends the elements of column `j` from row `from` on to `out`. Not inlined: as part of AVX-512 code, LLVM would read them by
    /// gathers, which take longer.
    #[inline(never)]
    pub(super) fn append_column(&self, j: usize, from: usize, out: &mut Vec<T>) {
        let rows = self.v[(from * self.columns).min(self.v.len())..].chunks_exact(self.columns);
        out.extend(rows.map(|row| row[j]));
    }

    /// Writes column `j` from row `from` on. Not inlined for the reason of [`append_column`](Self::append_column).
    #[inline(never)]
    pub(super) fn set_column(&mut self, j: usize, from: usize, column: &[T]) {
        let rows = self.v[from * self.columns..].chunks_exact_mut(self.columns);
        for (row, x) in rows.zip(column) {
            row[j] = *x;
        }
    }

    /// Whether all elements are finite.
    pub(crate) fn is_finite(&self) -> bool {
        self.v.iter().all(|x| x.is_finite())
    }

    /// Rows `p` and `q` for writing, where `p < q`.
    #[inline(always)]
    pub(crate) fn two_rows(&mut self, p: usize, q: usize) -> (&mut [T], &mut [T]) {
        let n = self.columns;
        let (head, tail) = self.v.split_at_mut(q * n);
        (&mut head[p * n..][..n], &mut tail[..n])
    }

    /// Swaps two rows.
    pub(crate) fn swap_rows(&mut self, p: usize, k: usize) {
        if p != k {
            let (x, y) = self.two_rows(p.min(k), p.max(k));
            x.swap_with_slice(y);
        }
    }

    /// Subtracts `f` times row `k` from row `i`.
    pub(crate) fn subtract_row(&mut self, i: usize, k: usize, f: T) {
        self.subtract_products(i, k..k + 1, &[f], 0..self.columns);
    }

    /// Subtracts the rows `known`, each times its factor, from row `i` in some columns. `known` does not contain `i`.
    #[inline(always)]
    pub(crate) fn subtract_products(&mut self, i: usize, known: Range<usize>, factors: &[T], columns: Range<usize>) {
        if known.is_empty() || columns.is_empty() {
            return;
        }
        let n = self.columns;
        let (y, rows) = match i > known.start {
            true => {
                let (head, tail) = self.v.split_at_mut(i * n);
                (&mut tail[columns.clone()], &head[known.start * n + columns.start..])
            }
            false => {
                let (head, tail) = self.v.split_at_mut(known.start * n);
                (&mut head[i * n..][columns.clone()], &tail[columns.start..])
            }
        };
        subtract_rows(y, &factors[..known.len()], rows, n);
    }
}
