//! Householder's reduction of a symmetric matrix to a tridiagonal one. Some reflections at a time, the rest of the matrix is only read, and
//! then updated with all of them by a matrix product (LAPACK's `latrd` and `sytrd`).

use super::blocks::blocks;
use super::lines::{LANES, add_lanes, add_scaled, dot, scaled_reflection, subtract_rows};
use super::matrix::Matrix;
use crate::tensor::{matmul_f64, wide_function};
use std::ops::Range;

/// The number of reflections before an update.
const PANEL: usize = 32;
/// The number of rows that are multiplied at once.
const ROWS: usize = 4;

/// A tridiagonal matrix: its diagonal, the elements below it (with a 0 at the end), and the factors of the reflections that lead to it.
pub(super) struct Tridiagonal {
    pub diagonal: Vec<f64>,
    pub below: Vec<f64>,
    pub taus: Vec<f64>,
}

/// Reduces `a`, of which only the upper triangle counts. The vectors of the reflections replace its rows right of the diagonal.
pub(super) fn tridiagonal(a: &mut Matrix) -> Tridiagonal {
    let n = a.rows;
    let mut out = Tridiagonal {
        diagonal: vec![0.0; n],
        below: vec![0.0; n],
        taus: vec![0.0; n],
    };
    let lines = PANEL.min(n);
    let (mut v, mut w) = (vec![0.0; lines * n], vec![0.0; lines * n]);
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
    /// Reduces some rows. The line of `v` for a row gets the reflection's vector, and that of `w` what makes `v w^T + w v^T` the difference
    /// to the matrix after it.
    fn reduce_rows = reduce_rows_body(a: &mut Matrix, rows: Range<usize>, v: &mut [f64], w: &mut [f64], out: &mut Tridiagonal)
}

#[inline(always)]
fn reduce_rows_body(a: &mut Matrix, rows: Range<usize>, v: &mut [f64], w: &mut [f64], out: &mut Tridiagonal) {
    let n = a.columns;
    let (mut by_v, mut by_w) = ([0.0; PANEL], [0.0; PANEL]);
    for k in rows.clone() {
        let j = k - rows.start;
        for p in 0..j {
            (by_v[p], by_w[p]) = (v[p * n + k], w[p * n + k]);
        }
        let row = &mut a.v[k * n + k..(k + 1) * n];
        if j > 0 {
            subtract_rows(row, &by_v[..j], &w[k..], n);
            subtract_rows(row, &by_w[..j], &v[k..], n);
        }
        out.diagonal[k] = row[0];
        if k + 1 == n {
            break;
        }
        let (tau, beta) = scaled_reflection(&mut row[1..]);
        (out.taus[k], out.below[k]) = (tau, beta);
        let (known_v, line) = v.split_at_mut(j * n);
        line[k + 1..n].copy_from_slice(&row[1..]);
        let u = &line[k + 1..n];
        let (known_w, line_w) = w.split_at_mut(j * n);
        line_w[k + 1..n].fill(0.0);
        symmetric_product(a, k + 1, &line[..n], &mut line_w[..n]);
        let y = &mut line_w[k + 1..n];
        for p in 0..j {
            by_w[p] = dot(&known_w[p * n + k + 1..(p + 1) * n], u);
            by_v[p] = dot(&known_v[p * n + k + 1..(p + 1) * n], u);
        }
        if j > 0 {
            subtract_rows(y, &by_w[..j], &known_v[k + 1..], n);
            subtract_rows(y, &by_v[..j], &known_w[k + 1..], n);
        }
        y.iter_mut().for_each(|x| *x *= tau);
        let half = tau / 2.0 * dot(y, u);
        add_scaled(y, -half, u);
    }
}

/// Adds to `y` the product of the symmetric matrix after row and column `from` and `u`.
#[inline(always)]
fn symmetric_product(a: &Matrix, from: usize, u: &[f64], y: &mut [f64]) {
    let n = a.columns;
    let mut i = from;
    while i < n {
        let end = n.min(i + ROWS);
        for r in i..end {
            for c in r..end {
                let x = a.v[r * n + c];
                y[r] += x * u[c];
                if c > r {
                    y[c] += x * u[r];
                }
            }
        }
        if end < n {
            let sums = add_products(a, i, &u[i..], &mut y[end..]);
            for r in 0..ROWS {
                y[i + r] += sums[r];
            }
        }
        i = end;
    }
}

/// Adds to `y` the products of the first elements of `u` and the rows from row `i` on, after their diagonal block, and returns the inner
/// products of these rows with `u`, in one pass.
#[inline(always)]
fn add_products(a: &Matrix, i: usize, u: &[f64], y: &mut [f64]) -> [f64; ROWS] {
    let (n, length) = (a.columns, y.len());
    let rows: [&[f64]; ROWS] = std::array::from_fn(|r| &a.v[(i + r) * n + i + ROWS..][..length]);
    let (first, u) = u.split_at(ROWS);
    let u = &u[..length];
    let mut sums = [[0.0; LANES]; ROWS];
    let together = length / LANES * LANES;
    let mut j = 0;
    while j < together {
        let (x, y) = (&u[j..j + LANES], &mut y[j..j + LANES]);
        for r in 0..ROWS {
            let row = &rows[r][j..j + LANES];
            for l in 0..LANES {
                sums[r][l] += row[l] * x[l];
                y[l] += first[r] * row[l];
            }
        }
        j += LANES;
    }
    let mut out = [0.0; ROWS];
    for r in 0..ROWS {
        out[r] = add_lanes(sums[r]);
        for j in together..length {
            out[r] += rows[r][j] * u[j];
            y[j] += first[r] * rows[r][j];
        }
    }
    out
}

/// Subtracts `v w^T + w v^T` from the upper triangle of the rows from `end` on.
fn update_rest(a: &mut Matrix, end: usize, v: &[f64], w: &[f64]) {
    let n = a.columns;
    for rows in blocks(n - end) {
        let (from, to) = (end + rows.start, end + rows.end);
        let mut right = Vec::with_capacity(2 * PANEL * (n - from));
        for lines in [w, v] {
            for line in lines.chunks_exact(n) {
                right.extend_from_slice(&line[from..]);
            }
        }
        let left = Matrix::from_fn(to - from, 2 * PANEL, |i, p| match p < PANEL {
            true => v[p * n + from + i],
            false => w[(p - PANEL) * n + from + i],
        });
        let mut product = Matrix::zeros(to - from, n - from);
        matmul_f64(to - from, 2 * PANEL, n - from, &left.v, &right, &mut product.v);
        a.subtract_at(from, from, &product);
    }
}
