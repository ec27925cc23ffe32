//! LU factorisation with row pivoting, and what follows from it.

mod batch;

pub(crate) use self::batch::{determinants, factors_of_all, inverses, signs_and_logarithms};

use super::blocks::{BLOCK, blocks};
use super::matrix::Matrix;
use super::real::Real;
use super::triangles::{invert_unit_lower, solve_triangle};
use super::vectors::add_scaled;
use crate::tensor::{subtract_within, wide_function};
use std::ops::Range;

/// In-place LU factorisation with row pivoting (`getrf`). Returns the 1-based pivot rows, and the 1-based position of
/// the first zero pivot (0 if there is none).
pub(super) fn lu<T: Real>(a: &mut Matrix<T>) -> (Vec<usize>, usize) {
    let (least, n) = (a.rows.min(a.columns), a.columns);
    let mut found = (vec![], 0);
    if least <= 2 * BLOCK {
        lu_columns(a, 0..least, n, &mut found);
        return found;
    }
    for columns in blocks(least) {
        lu_columns(a, columns.clone(), columns.end, &mut found);
        eliminate_rows(a, columns.clone(), columns.clone(), n);
        subtract_within(&mut a.v, n, columns.end..a.rows, columns.end..n, columns);
    }
    found
}

/// The number of columns that are eliminated one by one before the columns after them are updated.
const PANEL: usize = 8;

/// Factorises some columns, and updates those from there to `end`.
fn lu_columns<T: Real>(a: &mut Matrix<T>, columns: Range<usize>, end: usize, found: &mut (Vec<usize>, usize)) {
    let mut panel = vec![];
    for start in columns.clone().step_by(PANEL) {
        let now = start..columns.end.min(start + PANEL);
        lu_panel(a, now.clone(), &mut panel, found);
        eliminate_rows(a, now.start..a.rows, now, end);
    }
}

wide_function! {
    /// Subtracts the rows `known`, times the factors that the columns `known` have for them, from `rows` in the columns up to `end`.
    fn eliminate_rows = eliminate_rows_body<T: Real>(a: &mut Matrix<T>, rows: Range<usize>, known: Range<usize>, end: usize)
}

#[inline(always)]
fn eliminate_rows_body<T: Real>(a: &mut Matrix<T>, rows: Range<usize>, known: Range<usize>, end: usize) {
    let mut factors = [T::ZERO; BLOCK];
    for i in rows {
        let before = known.start..known.end.min(i);
        let factors = &mut factors[..before.len()];
        factors.copy_from_slice(&a.row(i)[before.clone()]);
        a.subtract_products(i, before, factors, known.end..end);
    }
}

wide_function! {
    /// Factorises some columns. They are copied to `panel`, where the elements of a column are neighbours.
    fn lu_panel = lu_panel_body<T: Real>(a: &mut Matrix<T>, columns: Range<usize>, panel: &mut Vec<T>, found: &mut (Vec<usize>, usize))
}

#[inline(always)]
fn lu_panel_body<T: Real>(
    a: &mut Matrix<T>,
    columns: Range<usize>,
    panel: &mut Vec<T>,
    (pivots, singular): &mut (Vec<usize>, usize),
) {
    let (first, height, n) = (columns.start, a.rows - columns.start, a.columns);
    panel.clear();
    for j in columns.clone() {
        panel.extend((first..a.rows).map(|i| a.v[i * n + j]));
    }
    for k in 0..columns.len() {
        let column = &panel[k * height..(k + 1) * height];
        let larger = |p: usize, i: usize| if column[i].abs() > column[p].abs() { i } else { p };
        let p = (k..height).fold(k, larger);
        pivots.push(first + p + 1);
        if column[p] == T::ZERO {
            *singular = if *singular == 0 { first + k + 1 } else { *singular };
            continue;
        }
        a.swap_rows(first + p, first + k);
        panel.chunks_exact_mut(height).for_each(|c| c.swap(p, k));
        let (done, later) = panel.split_at_mut((k + 1) * height);
        let (pivot, below) = (done[k * height + k], &mut done[k * height + k + 1..]);
        below.iter_mut().for_each(|x| *x /= pivot);
        for column in later.chunks_exact_mut(height) {
            let f = column[k];
            add_scaled(&mut column[k + 1..], -f, below);
        }
    }
    for (j, column) in columns.zip(panel.chunks_exact(height)) {
        column
            .iter()
            .enumerate()
            .for_each(|(i, x)| a.v[(first + i) * n + j] = *x);
    }
}

/// Solves `A X = B` in place of `b`, and replaces `a` by its factors. Returns the 1-based position of the first zero
/// pivot (0 if there is none).
pub(super) fn solve_in_place<T: Real>(a: &mut Matrix<T>, b: &mut Matrix<T>) -> usize {
    let (pivots, singular) = lu(a);
    solve_factored(a, &pivots, b);
    singular
}

/// Solves `A X = B` in place of `b` with the result of [`lu`] for A (`getrs`).
pub(super) fn solve_factored<T: Real>(factors: &Matrix<T>, pivots: &[usize], b: &mut Matrix<T>) {
    pivots.iter().enumerate().for_each(|(k, p)| b.swap_rows(k, p - 1));
    solve_triangle(factors, b, false, true);
    solve_triangle(factors, b, true, false);
}

/// Solves `A^T X = B` in place of `b`, where `factors` are the transposed factors of A: `U^T L^T P^T X = B`.
pub(super) fn solve_transposed<T: Real>(factors: &Matrix<T>, pivots: &[usize], b: &mut Matrix<T>) {
    solve_triangle(factors, b, false, false);
    solve_triangle(factors, b, true, true);
    pivots.iter().enumerate().rev().for_each(|(k, p)| b.swap_rows(k, p - 1));
}

/// The inverse of a matrix from the result of [`lu`] for it.
pub(super) fn inverse_of<T: Real>(factors: &Matrix<T>, pivots: &[usize]) -> Matrix<T> {
    let n = factors.rows;
    let mut x = Matrix::eye(n);
    if n <= BLOCK || !factors.is_finite() {
        solve_factored(factors, pivots, &mut x);
        return x;
    }
    // The inverse of L is a lower triangle. The pivots swap the columns of the result instead of the rows of the identity.
    invert_unit_lower(factors, &mut x);
    solve_triangle(factors, &mut x, true, false);
    let (mut order, mut line) = (vec![], vec![T::ZERO; n]);
    row_order(n, pivots, &mut order);
    for row in x.v.chunks_exact_mut(n) {
        order.iter().zip(row.iter()).for_each(|(&j, x)| line[j] = *x);
        row.copy_from_slice(&line);
    }
    x
}

/// The sign of the permutation that the pivots of [`lu`] describe.
pub(super) fn pivot_sign(pivots: &[usize]) -> f64 {
    let swaps = pivots.iter().enumerate().filter(|(k, p)| **p != k + 1).count();
    if swaps % 2 == 0 { 1.0 } else { -1.0 }
}

/// Replaces `order` by the rows of the factorised matrix in the order of its factors' rows.
pub(crate) fn row_order(rows: usize, pivots: &[usize], order: &mut Vec<usize>) {
    order.clear();
    order.extend(0..rows);
    for (i, p) in pivots.iter().enumerate() {
        order.swap(i, p - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::testing::{assert_close, wave};

    #[test]
    fn blocks_of_factors_multiply_back() {
        for (rows, columns) in [(3, 3), (150, 150), (200, 140), (131, 190)] {
            let a = wave(rows, columns);
            let mut f = a.clone();
            let (pivots, _) = lu(&mut f);
            let k = rows.min(columns);
            let l = Matrix::from_fn(rows, k, |i, j| match i.cmp(&j) {
                std::cmp::Ordering::Greater => f.at(i, j),
                order => order.is_eq() as u8 as f64,
            });
            let u = Matrix::from_fn(k, columns, |i, j| if i <= j { f.at(i, j) } else { 0.0 });
            let mut order = vec![];
            row_order(rows, &pivots, &mut order);
            assert_close(
                &l.times(&u),
                &Matrix::from_fn(rows, columns, |i, j| a.at(order[i], j)),
                1e-9,
            );
        }
    }

    #[test]
    fn equations_are_solved() {
        for n in [0, 1, 2, 9, 20] {
            let a = Matrix::from_fn(n, n, |i, j| {
                ((i * 7 + j * 5 + i * j) % 11) as f64 - 4.0 + 30.0 * (i == j) as u8 as f64
            });
            let x = Matrix::from_fn(n, 3, |i, j| (i + 3 * j) as f64);
            let mut b = a.times(&x);
            assert_eq!(solve_in_place(&mut a.clone(), &mut b), 0);
            assert_close(&b, &x, 1e-9);
        }
        let a = Matrix::from_fn(150, 150, |i, j| {
            ((i * 7 + j * 5 + i * j) % 11) as f64 + 300.0 * ((i + 1) % 150 == j) as u8 as f64
        });
        let mut f = a.clone();
        let pivots = lu(&mut f).0;
        assert_close(&inverse_of(&f, &pivots).times(&a), &Matrix::eye(150), 1e-12);
        let matrix = |v: [f64; 4]| Matrix::from_fn(2, 2, |i, j| v[2 * i + j]);
        let mut right = Matrix::eye(2);
        let mut m = matrix([0.0, 2.0, 4.0, 6.0]);
        assert_eq!(solve_in_place(&mut m, &mut right), 0);
        assert_eq!(right.v, [-0.75, 0.25, 0.5, 0.0]);
        let mut m = matrix([0.0, 2.0, 4.0, 6.0]);
        assert_eq!(pivot_sign(&lu(&mut m).0), -1.0);
        assert_eq!(
            solve_in_place(&mut matrix([1.0, 2.0, 2.0, 4.0]), &mut Matrix::eye(2)),
            2
        );
    }
}
