//! LU factorisation with row pivoting, and what follows from it.

mod batch;

pub(crate) use self::batch::{determinants, factors_of_all, inverses, signs_and_logarithms};

use super::blocks::{BLOCK, blocks};
use super::matrix::Matrix;
use super::real::Real;
use super::threads::{
    MOVED, is_single, read_strip, run_columns, run_rows, strip_width, subtract_products, write_strip,
};
use super::triangles::{invert_factors, solve_triangle};
use super::vectors::{add_scaled, subtract_rows};
use crate::parallel::Pool;
use crate::tensor::{Factor, wide_function};
use std::ops::Range;

/// Matrices of fewer elements are factorised by one thread: the parts of a panel are so small that moving them from cache to cache takes
/// longer.
const SHARED: usize = 400 * 400;

/// In-place LU factorisation with row pivoting (`getrf`). Returns the 1-based pivot rows, and the 1-based position of
/// the first zero pivot (0 if there is none).
pub(super) fn lu<T: Real>(a: &mut Matrix<T>) -> (Vec<usize>, usize) {
    match a.v.len() < SHARED && !is_single() {
        true => Pool::alone().lend(|| factorise(a)),
        false => factorise(a),
    }
}

fn factorise<T: Real>(a: &mut Matrix<T>) -> (Vec<usize>, usize) {
    let (least, n) = (a.rows.min(a.columns), a.columns);
    let mut found = (vec![], 0);
    if least <= 2 * BLOCK {
        lu_columns(a, 0..least, n, &mut found);
        return found;
    }
    for columns in blocks(least) {
        lu_columns(a, columns.clone(), columns.end, &mut found);
        solve_across(a, columns.clone());
        let (upper, lower) = a.v.split_at_mut(columns.end * n);
        let across = Factor::at(upper, n, columns.start, columns.end);
        subtract_products(lower, n, columns.end..n, columns, across);
    }
    found
}

/// Solves for the rows `block` of the upper factor in the columns after the block on the diagonal.
fn solve_across<T: Real>(a: &mut Matrix<T>, block: Range<usize>) {
    let (n, width) = (a.columns, block.len());
    if is_single() {
        return eliminate_top(&mut a.v[block.start * n..block.end * n], n, block, n);
    }
    let rest = block.end..n;
    let corner: Vec<T> = (block.clone().flat_map(|i| a.row(i)[block.clone()].iter().copied())).collect();
    let (strip, work) = (strip_width(rest.len(), ACROSS), rest.len() * width * width / 2);
    let rows = &mut a.v[block.start * n..block.end * n];
    run_columns(rows, n, rest, (strip, work), |range, mut part| {
        let mut strip = read_strip(&mut part, 0..width, range.len());
        eliminate_block(&mut strip, &corner);
        write_strip(&mut part, 0, &strip);
    });
}

/// The number of columns that are solved together. With the block on the diagonal, they stay in the first cache.
const ACROSS: usize = 64;

wide_function! {
    /// Subtracts from each row those before it, times the elements of a lower triangle.
    fn eliminate_block = eliminate_block_body<T: Real>(a: &mut Matrix<T>, triangle: &[T])
}

#[inline(always)]
fn eliminate_block_body<T: Real>(a: &mut Matrix<T>, triangle: &[T]) {
    let (width, columns) = (a.rows, a.columns);
    for i in 1..width {
        a.subtract_products(i, 0..i, &triangle[i * width..i * width + i], 0..columns);
    }
}

/// The number of columns that are eliminated one by one before the columns after them are updated.
const PANEL: usize = 8;

/// Factorises some columns, and updates those from there to `end`.
fn lu_columns<T: Real>(a: &mut Matrix<T>, columns: Range<usize>, end: usize, found: &mut (Vec<usize>, usize)) {
    let mut panel = vec![];
    for start in columns.clone().step_by(PANEL) {
        let now = start..columns.end.min(start + PANEL);
        lu_panel(a, now.clone(), &mut panel, found);
        let n = a.columns;
        let (known, rest) = a.v[now.start * n..].split_at_mut(now.len() * n);
        eliminate_top(known, n, now.clone(), end);
        let (known, work) = (&*known, now.len() * (end - now.end) + now.len() * MOVED);
        run_rows(rest, n, work, |_, rows| {
            eliminate_rows(rows, known, n, now.clone(), end)
        });
    }
}

wide_function! {
    /// Subtracts from each of the rows of the columns `known` those before it, times its elements, in the columns up to `end`.
    fn eliminate_top = eliminate_top_body<T: Real>(rows: &mut [T], n: usize, known: Range<usize>, end: usize)
}

#[inline(always)]
fn eliminate_top_body<T: Real>(rows: &mut [T], n: usize, known: Range<usize>, end: usize) {
    for i in 1..known.len() {
        let (before, row) = rows.split_at_mut(i * n);
        let (factors, row) = row[known.start..].split_at_mut(known.len());
        subtract_rows(&mut row[..end - known.end], &factors[..i], &before[known.end..], n);
    }
}

wide_function! {
    /// Subtracts from all rows the rows `before`, times their elements in the columns `known`, in the columns up to `end`.
    fn eliminate_rows = eliminate_rows_body<T: Real>(rows: &mut [T], before: &[T], n: usize, known: Range<usize>, end: usize)
}

#[inline(always)]
fn eliminate_rows_body<T: Real>(rows: &mut [T], before: &[T], n: usize, known: Range<usize>, end: usize) {
    if end == known.end {
        return;
    }
    for row in rows.chunks_exact_mut(n) {
        let (factors, row) = row[known.start..].split_at_mut(known.len());
        subtract_rows(&mut row[..end - known.end], factors, &before[known.end..], n);
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
    invert_factors(factors, &mut x);
    let mut order = vec![];
    row_order(n, pivots, &mut order);
    run_rows(&mut x.v, n, n * MOVED, |_, rows| {
        let mut line = vec![T::ZERO; n];
        for row in rows.chunks_exact_mut(n) {
            order.iter().zip(row.iter()).for_each(|(&j, x)| line[j] = *x);
            row.copy_from_slice(&line);
        }
    });
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
