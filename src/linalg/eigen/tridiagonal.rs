//! Householder's reduction of a symmetric matrix to a tridiagonal one. For some reflections, the rest of the matrix is only read; then it
//! is updated with all of them by a matrix product (LAPACK's `latrd` and `sytrd`).

use crate::linalg::LANES;
use crate::linalg::blocks::BLOCK;
use crate::linalg::householder::scaled_reflection;
use crate::linalg::matrix::Matrix;
use crate::linalg::real::Real;
use crate::linalg::threads::run_row_blocks;
use crate::linalg::vectors::{add_lanes, add_scaled, dot, load, subtract_rows};
use crate::tensor::{Factor, add_product, wide_function};
use std::ops::Range;

/// The number of reflections before an update.
const PANEL: usize = 32;

/// The number of rows that are multiplied at once.
const ROWS: usize = 4;

/// A tridiagonal matrix: its diagonal, the elements below it (with a 0 at the end), and the factors of the reflections that lead to it.
pub(super) struct Tridiagonal<T> {
    pub diagonal: Vec<f64>,
    pub below: Vec<f64>,
    pub taus: Vec<T>,
}

/// Reduces `a`, of which only the upper triangle counts. The vectors of the reflections replace its rows right of the diagonal.
pub(super) fn tridiagonal<T: Real>(a: &mut Matrix<T>) -> Tridiagonal<T> {
    let n = a.rows;
    let mut out = Tridiagonal {
        diagonal: vec![0.0; n],
        below: vec![0.0; n],
        taus: vec![T::ZERO; n],
    };
    let lines = PANEL.min(n);
    let (mut v, mut w) = (vec![T::ZERO; lines * n], vec![T::ZERO; lines * n]);
    for start in (0..n).step_by(PANEL) {
        let end = n.min(start + PANEL);
        reduce_rows(a, start..end, &mut v, &mut w, &mut out);
        if end < n {
            update_rest(a, end, &v, &w);
        }
    }
    out
}

wide_function! {
    /// Reduces some rows. For every row, `v` gets the vector of its reflection as a line, and `w` the vector for which the reflection
    /// subtracts `v w^T + w v^T` from the matrix.
    fn reduce_rows = reduce_rows_body<T: Real>(a: &mut Matrix<T>, rows: Range<usize>, v: &mut [T], w: &mut [T], out: &mut Tridiagonal<T>)
}

#[inline(always)]
fn reduce_rows_body<T: Real>(
    a: &mut Matrix<T>,
    rows: Range<usize>,
    v: &mut [T],
    w: &mut [T],
    out: &mut Tridiagonal<T>,
) {
    let n = a.columns;
    let (mut by_v, mut by_w) = ([T::ZERO; PANEL], [T::ZERO; PANEL]);
    for k in rows.clone() {
        let j = k - rows.start;
        for p in 0..j {
            (by_v[p], by_w[p]) = (v[p * n + k], w[p * n + k]);
        }
        let row = &mut a.v[k * n + k..(k + 1) * n];
        subtract_rows(row, &by_v[..j], &w[k..], n);
        subtract_rows(row, &by_w[..j], &v[k..], n);
        out.diagonal[k] = row[0].into();
        if k + 1 == n {
            break;
        }
        let (tau, beta) = scaled_reflection(&mut row[1..]);
        (out.taus[k], out.below[k]) = (tau, beta.into());
        let (known_v, line) = v.split_at_mut(j * n);
        line[k + 1..n].copy_from_slice(&row[1..]);
        let u = &line[k + 1..n];
        let (known_w, line_w) = w.split_at_mut(j * n);
        line_w[k + 1..n].fill(T::ZERO);
        symmetric_product(a, k + 1, &line[..n], &mut line_w[..n]);
        let y = &mut line_w[k + 1..n];
        if j > 0 {
            products_of_lines(known_w, n, u, &mut by_w[..j]);
            products_of_lines(known_v, n, u, &mut by_v[..j]);
            subtract_rows(y, &by_w[..j], &known_v[k + 1..], n);
            subtract_rows(y, &by_v[..j], &known_w[k + 1..], n);
        }
        scale_line(y, tau, u);
    }
}

/// Turns the product `y` of the matrix and `u` into the line of `w`: `tau y - (tau / 2) (tau y . u) u`.
#[inline(always)]
fn scale_line<T: Real>(y: &mut [T], tau: T, u: &[T]) {
    y.iter_mut().for_each(|x| *x *= tau);
    let half = tau * T::nearest(0.5) * dot(y, u);
    add_scaled(y, -half, u);
}

/// The inner products of `u` with the last `u.len()` elements of lines of `n` elements.
#[inline(always)]
fn products_of_lines<T: Real>(lines: &[T], n: usize, u: &[T], out: &mut [T]) {
    for (p, x) in out.iter_mut().enumerate() {
        *x = dot(&lines[(p + 1) * n - u.len()..(p + 1) * n], u);
    }
}

/// Adds to `y` the product of the symmetric matrix after row and column `from` and `u`.
#[inline(always)]
fn symmetric_product<T: Real>(a: &Matrix<T>, from: usize, u: &[T], y: &mut [T]) {
    let n = a.columns;
    let mut i = from;
    while i < n {
        let end = n.min(i + ROWS);
        multiply_corner(a, i..end, u, y);
        if end < n {
            let sums = add_products(a, i, &u[i..], &mut y[end..]);
            for r in 0..ROWS {
                y[i + r] += sums[r];
            }
        }
        i = end;
    }
}

/// The part of [`symmetric_product`] for a block on the diagonal.
#[inline(always)]
fn multiply_corner<T: Real>(a: &Matrix<T>, rows: Range<usize>, u: &[T], y: &mut [T]) {
    let (n, size) = (a.columns, rows.len());
    let (u, y) = (&u[rows.clone()], &mut y[rows.clone()]);
    for r in 0..size {
        let row = &a.v[(rows.start + r) * n + rows.start..][..size];
        let mut sum = row[r] * u[r];
        for c in r + 1..size {
            sum += row[c] * u[c];
            y[c] += row[c] * u[r];
        }
        y[r] += sum;
    }
}

/// Adds to `y` the products of the first elements of `u` and the rows from row `i` on, after their diagonal block, and returns the inner
/// products of these rows with `u`, in one pass.
#[inline(always)]
fn add_products<T: Real>(a: &Matrix<T>, i: usize, u: &[T], y: &mut [T]) -> [T; ROWS] {
    let (n, length) = (a.columns, y.len());
    let rows: [&[T]; ROWS] = std::array::from_fn(|r| &a.v[(i + r) * n + i + ROWS..][..length]);
    let (first, u) = u.split_at(ROWS);
    let (u, mut sums, mut done) = (&u[..length], [[T::ZERO; LANES]; ROWS], 0);
    if T::NARROW {
        done = add_groups::<T, { 2 * LANES }>(rows, first, u, y, 0, &mut sums);
    }
    done = add_groups::<T, LANES>(rows, first, u, y, done, &mut sums);
    let mut out = [T::ZERO; ROWS];
    for r in 0..ROWS {
        out[r] = add_lanes(sums[r]);
    }
    for j in done..length {
        let mut t = y[j];
        for r in 0..ROWS {
            out[r] += rows[r][j] * u[j];
            t += first[r] * rows[r][j];
        }
        y[j] = t;
    }
    out
}

/// Adds the products of all whole groups of `N` columns from `start` on. Returns the first column after them.
#[inline(always)]
fn add_groups<T: Real, const N: usize>(
    rows: [&[T]; ROWS],
    first: &[T],
    u: &[T],
    y: &mut [T],
    start: usize,
    sums: &mut [[T; LANES]; ROWS],
) -> usize {
    let (mut parts, mut j) = ([[T::ZERO; N]; ROWS], start);
    while j + N <= u.len() {
        let (x, mut t) = (load::<T, N>(&u[j..j + N]), load::<T, N>(&y[j..j + N]));
        for r in 0..ROWS {
            let row = load::<T, N>(&rows[r][j..j + N]);
            for l in 0..N {
                parts[r][l] += row[l] * x[l];
            }
            for l in 0..N {
                t[l] += first[r] * row[l];
            }
        }
        y[j..j + N].copy_from_slice(&t);
        j += N;
    }
    for r in 0..ROWS {
        for l in 0..N {
            sums[r][l % LANES] += parts[r][l];
        }
    }
    j
}

/// Subtracts `v w^T + w v^T` from the upper triangle of the rows from `end` on.
fn update_rest<T: Real>(a: &mut Matrix<T>, end: usize, v: &[T], w: &[T]) {
    let n = a.columns;
    run_row_blocks(&mut a.v[end * n..], n, BLOCK, |first, rows| {
        let from = end + first;
        for (left, right) in [(v, w), (w, v)] {
            let (left, right) = (Factor::at(left, n, 0, from), Factor::at(right, n, 0, from));
            let sizes = [rows.len() / n, n - from, PANEL];
            add_product(sizes, -T::ONE, left.transposed(), right, (rows, from, n));
        }
    });
}
