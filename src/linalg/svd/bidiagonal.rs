//! Householder's reduction of a matrix to a bidiagonal one. For some reflections from both sides, the rest of the matrix is only read; then
//! it is updated with all of them by a matrix product (LAPACK's `labrd` and `gebrd`).

use crate::linalg::householder::scaled_reflection;
use crate::linalg::matrix::Matrix;
use crate::linalg::real::Real;
use crate::linalg::threads::add_product_by_rows;
use crate::linalg::vectors::{add_rows, dot, inner_products, subtract_rows};
use crate::tensor::{Factor, wide_function};
use std::ops::Range;

/// The number of reflections from each side before an update.
const PANEL: usize = 32;

/// The number of rows that are multiplied at once.
const ROWS: usize = 4;

/// The diagonal of a bidiagonal matrix, the elements above it with a 0 at the end, and the factors of the reflections that lead to it.
pub(super) struct Bidiagonal<T> {
    pub diagonal: Vec<f64>,
    pub above: Vec<f64>,
    pub left: Vec<T>,
    pub right: Vec<T>,
}

/// What has to be subtracted from the rest of the matrix: the sum of the products of each line of `down`, as a column, and that line of
/// `across`. The first half of the lines of `down` are the vectors of reflections from the left, and the second half of the lines of
/// `across` those of reflections from the right.
struct Update<T> {
    down: Vec<T>,
    across: Vec<T>,
    /// The number of reflections from each side: fewer than [`PANEL`] for small matrices, of which there may be many.
    lines: usize,
    /// Scratch memory: factors of lines.
    factors: [T; 2 * PANEL],
}

/// Makes a matrix bidiagonal that has no more columns than rows. The vectors of the reflections stay in the matrix, below its diagonal and
/// right of it.
pub(super) fn bidiagonal<T: Real>(a: &mut Matrix<T>) -> Bidiagonal<T> {
    let (m, n) = (a.rows, a.columns);
    let mut out = Bidiagonal {
        diagonal: vec![0.0; n],
        above: vec![0.0; n],
        left: vec![T::ZERO; n],
        right: vec![T::ZERO; n],
    };
    let lines = n.min(PANEL);
    let mut update = Update {
        down: vec![T::ZERO; 2 * lines * m],
        across: vec![T::ZERO; 2 * lines * n],
        lines,
        factors: [T::ZERO; 2 * PANEL],
    };
    for start in (0..n).step_by(PANEL) {
        let end = n.min(start + PANEL);
        reduce_panel(a, start..end, &mut update, &mut out);
        if end < n {
            let (down, across) = (
                Factor::at(&update.down, m, 0, end),
                Factor::at(&update.across, n, 0, end),
            );
            let sizes = [m - end, n - end, 2 * lines];
            add_product_by_rows(sizes, -T::ONE, down.transposed(), across, (&mut a.v, end * n + end, n));
        }
    }
    out
}

wide_function! {
    /// Reduces some rows and columns.
    fn reduce_panel = reduce_panel_body<T: Real>(a: &mut Matrix<T>, panel: Range<usize>, update: &mut Update<T>, out: &mut Bidiagonal<T>)
}

#[inline(always)]
fn reduce_panel_body<T: Real>(a: &mut Matrix<T>, panel: Range<usize>, update: &mut Update<T>, out: &mut Bidiagonal<T>) {
    for k in panel.clone() {
        let j = k - panel.start;
        let (tau, beta) = reflect_column(a, k, j, update);
        (out.left[k], out.diagonal[k]) = (tau, beta.into());
        if k + 1 == a.columns {
            break;
        }
        multiply_column(a, k, j, tau, update);
        let (tau, beta) = reflect_row(a, k, j, update);
        (out.right[k], out.above[k]) = (tau, beta.into());
        multiply_row(a, k, j, tau, update);
    }
}

/// Updates column `k` and turns it into a reflection.
#[inline(always)]
fn reflect_column<T: Real>(a: &mut Matrix<T>, k: usize, j: usize, update: &mut Update<T>) -> (T, T) {
    let (m, n) = (a.rows, a.columns);
    let (known, rest) = update.down.split_at_mut(j * m);
    let (column, rest) = rest.split_at_mut(m);
    let column = &mut column[k..];
    for (i, x) in column.iter_mut().enumerate() {
        *x = a.v[(k + i) * n + k];
    }
    if j > 0 {
        for p in 0..j {
            update.factors[p] = update.across[p * n + k];
            update.factors[PANEL + p] = update.across[(update.lines + p) * n + k];
        }
        subtract_rows(column, &update.factors[..j], &known[k..], m);
        let others = &rest[(update.lines - 1 - j) * m..];
        subtract_rows(column, &update.factors[PANEL..][..j], &others[k..], m);
    }
    let (tau, beta) = scaled_reflection(column);
    for (i, x) in column.iter().enumerate() {
        a.v[(k + i) * n + k] = *x;
    }
    (tau, beta)
}

/// Writes the line of `across` for the reflection of column `k`: the product of its vector and the updated matrix.
#[inline(always)]
fn multiply_column<T: Real>(a: &Matrix<T>, k: usize, j: usize, tau: T, update: &mut Update<T>) {
    let (m, n) = (a.rows, a.columns);
    let v = &update.down[j * m + k..(j + 1) * m];
    for p in 0..j {
        update.factors[p] = dot(&update.down[p * m + k..(p + 1) * m], v);
        update.factors[PANEL + p] = dot(&update.down[(update.lines + p) * m + k..(update.lines + p + 1) * m], v);
    }
    let (known, rest) = update.across.split_at_mut(j * n);
    let (line, rest) = rest.split_at_mut(n);
    let line = &mut line[k + 1..];
    line.fill(T::ZERO);
    add_rows(line, v, &a.v[k * n + k + 1..], n);
    if j > 0 {
        subtract_rows(line, &update.factors[..j], &known[k + 1..], n);
        let others = &rest[(update.lines - 1 - j) * n..];
        subtract_rows(line, &update.factors[PANEL..][..j], &others[k + 1..], n);
    }
    line.iter_mut().for_each(|x| *x *= tau);
}

/// Updates row `k` and turns it into a reflection.
#[inline(always)]
fn reflect_row<T: Real>(a: &mut Matrix<T>, k: usize, j: usize, update: &mut Update<T>) -> (T, T) {
    let (m, n) = (a.rows, a.columns);
    for p in 0..=j {
        update.factors[p] = update.down[p * m + k];
        update.factors[PANEL + p] = update.down[(update.lines + p) * m + k];
    }
    let row = &mut a.v[k * n + k + 1..(k + 1) * n];
    subtract_rows(row, &update.factors[..j + 1], &update.across[k + 1..], n);
    if j > 0 {
        let others = &update.across[update.lines * n + k + 1..];
        subtract_rows(row, &update.factors[PANEL..][..j], others, n);
    }
    let (tau, beta) = scaled_reflection(row);
    let at = (update.lines + j) * n;
    update.across[at + k + 1..at + n].copy_from_slice(row);
    (tau, beta)
}

/// Writes the line of `down` for the reflection of row `k`: the product of the updated matrix and its vector.
#[inline(always)]
fn multiply_row<T: Real>(a: &Matrix<T>, k: usize, j: usize, tau: T, update: &mut Update<T>) {
    let (m, n) = (a.rows, a.columns);
    let (lines, rest) = update.across.split_at(update.lines * n);
    let u = &rest[j * n + k + 1..(j + 1) * n];
    for p in 0..=j {
        update.factors[p] = dot(&lines[p * n + k + 1..(p + 1) * n], u);
        update.factors[PANEL + p] = dot(&rest[p * n + k + 1..(p + 1) * n], u);
    }
    let (vectors, others) = update.down.split_at_mut(update.lines * m);
    let (known, line) = others.split_at_mut(j * m);
    let line = &mut line[k + 1..m];
    let rows = &a.v[(k + 1) * n..];
    let together = line.len() / ROWS * ROWS;
    for i in (0..together).step_by(ROWS) {
        let part: [&[T]; ROWS] = std::array::from_fn(|r| &rows[(i + r) * n + k + 1..(i + r + 1) * n]);
        line[i..i + ROWS].copy_from_slice(&inner_products(part, u));
    }
    for i in together..line.len() {
        line[i] = dot(&rows[i * n + k + 1..(i + 1) * n], u);
    }
    subtract_rows(line, &update.factors[..j + 1], &vectors[k + 1..], m);
    if j > 0 {
        subtract_rows(line, &update.factors[PANEL..][..j], &known[k + 1..], m);
    }
    line.iter_mut().for_each(|x| *x *= tau);
}
