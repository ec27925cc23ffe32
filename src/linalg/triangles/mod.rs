//! Equations with a triangular matrix.
//!
//! Up to [`FEW`] right-hand sides are solved as [`lines`]: the time goes into reading the triangle, once. More are solved in blocks of
//! rows, whose products with the rows that are already solved are matrix products (LAPACK's `trtrs`, BLAS's `trsm`).

pub(super) mod lines;

use self::lines::{Triangle, solve_lines};
use super::blocks::{BLOCK, blocks};
use super::matrix::Matrix;
use super::real::Real;
use super::threads::{read_strip, run_columns, strip_width, write_strip};
use crate::tensor::{Factor, add_product, wide_function};
use std::ops::Range;

/// The largest number of right-hand sides that are solved as lines.
pub(super) const FEW: usize = 16;

/// Solves `A X = B` in place of `b`. A is the upper or lower triangle of `a`; its diagonal counts as 1 if `unit`.
pub(super) fn solve_triangle<T: Real>(a: &Matrix<T>, b: &mut Matrix<T>, upper: bool, unit: bool) {
    let n = a.rows;
    if b.columns <= FEW {
        let transposed = false;
        let mut lines = b.transposed();
        solve_lines(
            &a.v,
            &mut lines.v,
            n,
            Triangle {
                upper,
                transposed,
                unit,
            },
        );
        *b = lines.transposed();
        return;
    }
    let columns = b.columns;
    let (width, work) = (strip_width(columns, STRIP), (n * n / 2).saturating_mul(columns));
    run_columns(&mut b.v, columns, 0..columns, (width, work), |range, mut part| {
        let mut strip = read_strip(&mut part, 0..n, range.len());
        solve_strip(a, &mut strip, 0, upper, unit);
        write_strip(&mut part, 0, &strip);
    });
}

/// The largest number of columns that are solved together, if there are more.
const STRIP: usize = 128;

/// Solves for the rows from `first` on, those before which are zeros if A is a lower triangle.
fn solve_strip<T: Real>(a: &Matrix<T>, b: &mut Matrix<T>, first: usize, upper: bool, unit: bool) {
    let n = a.rows;
    let solve_rows = |b: &mut Matrix<T>, rows: Range<usize>| {
        let known = if upper { rows.end..n } else { first..rows.start };
        b.subtract_known(a, rows.clone(), known, 0..b.columns);
        solve_block(a, b, rows, upper, unit);
    };
    match upper {
        true => blocks(n).rev().for_each(|rows| solve_rows(b, rows)),
        false => blocks(n)
            .filter(|rows| rows.end > first)
            .for_each(|rows| solve_rows(b, rows)),
    }
}

/// Replaces the identity `eye` by the inverse of the product of the triangles of `a`. The diagonal of the lower one counts as 1.
pub(super) fn invert_factors<T: Real>(a: &Matrix<T>, eye: &mut Matrix<T>) {
    let n = a.rows;
    let (width, work) = (strip_width(n, STRIP), n * n * n);
    run_columns(&mut eye.v, n, 0..n, (width, work), |range, mut part| {
        let mut strip = read_strip(&mut part, 0..n, range.len());
        // The columns of the lower triangle's inverse begin on the diagonal.
        solve_strip(a, &mut strip, range.start / BLOCK * BLOCK, false, true);
        solve_strip(a, &mut strip, 0, true, false);
        write_strip(&mut part, 0, &strip);
    });
}

impl<T: Real> Matrix<T> {
    /// Subtracts a product from some columns of `rows`: that of `left[rows, known]` and the rows `known` of this matrix.
    pub(super) fn subtract_known(
        &mut self,
        left: &Matrix<T>,
        rows: Range<usize>,
        known: Range<usize>,
        columns: Range<usize>,
    ) {
        let n = self.columns;
        let (split, known_first) = (rows.start.max(known.start) * n, known.start < rows.start);
        let (head, tail) = self.v.split_at_mut(split);
        let (out, below, known_start) = match known_first {
            true => (tail, &*head, known.start),
            false => (head, &*tail, 0),
        };
        let sizes = [rows.len(), columns.len(), known.len()];
        let factor = Factor::at(&left.v, left.columns, rows.start, known.start);
        let start = if known_first { 0 } else { rows.start * n };
        let right = Factor::at(below, n, known_start, columns.start);
        add_product(sizes, -T::ONE, factor, right, (out, start + columns.start, n));
    }
}

wide_function! {
    /// Solves for some rows after the products with all others have been subtracted.
    fn solve_block = solve_block_body<T: Real>(a: &Matrix<T>, b: &mut Matrix<T>, rows: Range<usize>, upper: bool, unit: bool)
}

#[inline(always)]
fn solve_block_body<T: Real>(a: &Matrix<T>, b: &mut Matrix<T>, rows: Range<usize>, upper: bool, unit: bool) {
    for step in 0..rows.len() {
        let i = if upper { rows.end - 1 - step } else { rows.start + step };
        let known = if upper { i + 1..rows.end } else { rows.start..i };
        b.subtract_products(i, known.clone(), &a.row(i)[known], 0..b.columns);
        if !unit {
            let pivot = a.at(i, i);
            let row = &mut b.v[i * b.columns..(i + 1) * b.columns];
            row.iter_mut().for_each(|x| *x /= pivot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::testing::{assert_close, wave};

    #[test]
    fn solutions_satisfy_their_equations() {
        for n in [3, 64, 150] {
            let a = Matrix::from_fn(n, n, |i, j| {
                wave(n, n).at(i, j) / 40.0 / n as f64 + (i == j) as u8 as f64
            });
            for (upper, unit) in [(false, false), (false, true), (true, false), (true, true)] {
                let inside = |i: usize, j: usize| if upper { i < j } else { i > j };
                let triangle = Matrix::from_fn(n, n, |i, j| match i == j {
                    true if unit => 1.0,
                    true => a.at(i, i),
                    false => inside(i, j) as u8 as f64 * a.at(i, j),
                });
                let b = wave(n, 5);
                let mut x = b.clone();
                solve_triangle(&a, &mut x, upper, unit);
                assert_close(&triangle.times(&x), &b, 1e-9);
            }
        }
    }
}
