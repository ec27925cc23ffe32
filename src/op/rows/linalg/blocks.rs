//! Parts of matrices, and the triangular solutions and factorisations that spend their time in products of such parts.

use super::lines::{add_scaled, dot};
use super::matrix::Matrix;
use crate::tensor::{wide_function, with_wide_vectors};
use std::ops::Range;

/// The number of rows or columns that are factorised at once. What is left of them is a matrix product.
pub(super) const BLOCK: usize = 64;

/// The blocks of `0..n`.
pub(super) fn blocks(n: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    (0..n.div_ceil(BLOCK)).map(move |i| i * BLOCK..n.min((i + 1) * BLOCK))
}

impl Matrix {
    /// A copy of some rows and columns.
    pub(super) fn part(&self, rows: Range<usize>, columns: Range<usize>) -> Matrix {
        let mut v = Vec::with_capacity(rows.len() * columns.len());
        for i in rows.clone() {
            v.extend_from_slice(&self.v[i * self.columns..][columns.clone()]);
        }
        Matrix {
            rows: rows.len(),
            columns: columns.len(),
            v,
        }
    }

    /// Subtracts `m` from the part that begins at `row` and `column`.
    pub(super) fn subtract_at(&mut self, row: usize, column: usize, m: &Matrix) {
        if m.columns == 0 {
            return;
        }
        let n = self.columns;
        with_wide_vectors(|| {
            for (line, x) in self.v[row * n..].chunks_exact_mut(n).zip(m.v.chunks_exact(m.columns)) {
                line[column..].iter_mut().zip(x).for_each(|(y, x)| *y -= x);
            }
        });
    }
}

/// Solves `A X = B` in place of `b`, where only a triangle of `a` counts, whose diagonal is 1 if `unit`.
pub(super) fn solve_triangle(a: &Matrix, b: &mut Matrix, upper: bool, unit: bool) {
    let n = a.rows;
    let solve_rows = |b: &mut Matrix, rows: Range<usize>| {
        if n > BLOCK {
            let known = if upper { rows.end..n } else { 0..rows.start };
            let values = b.part(known.clone(), 0..b.columns);
            b.subtract_at(rows.start, 0, &a.part(rows.clone(), known).times(&values));
        }
        solve_block(a, b, rows, upper, unit);
    };
    match upper {
        true => blocks(n).rev().for_each(|rows| solve_rows(b, rows)),
        false => blocks(n).for_each(|rows| solve_rows(b, rows)),
    }
}

wide_function! {
    /// Solves for some rows, after what the others contribute has been subtracted.
    fn solve_block = solve_block_body(a: &Matrix, b: &mut Matrix, rows: Range<usize>, upper: bool, unit: bool)
}

#[inline(always)]
fn solve_block_body(a: &Matrix, b: &mut Matrix, rows: Range<usize>, upper: bool, unit: bool) {
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

/// In-place LU factorisation with row pivoting (`getrf`). Returns the 1-based pivot rows, and the 1-based position of
/// the first zero pivot (0 if there is none).
pub(in crate::op::rows) fn lu(a: &mut Matrix) -> (Vec<usize>, usize) {
    let (least, n) = (a.rows.min(a.columns), a.columns);
    let mut found = (vec![], 0);
    if least <= 2 * BLOCK {
        lu_columns(a, 0..least, n, &mut found);
        return found;
    }
    for columns in blocks(least) {
        lu_columns(a, columns.clone(), columns.end, &mut found);
        eliminate_rows(a, columns.clone(), columns.clone(), n);
        let below = a.part(columns.end..a.rows, columns.clone());
        let right = a.part(columns.clone(), columns.end..n);
        a.subtract_at(columns.end, columns.end, &below.times(&right));
    }
    found
}

/// The columns that are eliminated one by one, before those after them are updated with all of them.
const PANEL: usize = 8;

/// Eliminates some columns from those after them that are before `end`.
fn lu_columns(a: &mut Matrix, columns: Range<usize>, end: usize, found: &mut (Vec<usize>, usize)) {
    let mut panel = vec![];
    for start in columns.clone().step_by(PANEL) {
        let now = start..columns.end.min(start + PANEL);
        lu_panel(a, now.clone(), &mut panel, found);
        eliminate_rows(a, now.start..a.rows, now, end);
    }
}

wide_function! {
    /// Subtracts from the rows the products with those of `known`, whose factors are known, in the columns from those to `end`.
    fn eliminate_rows = eliminate_rows_body(a: &mut Matrix, rows: Range<usize>, known: Range<usize>, end: usize)
}

#[inline(always)]
fn eliminate_rows_body(a: &mut Matrix, rows: Range<usize>, known: Range<usize>, end: usize) {
    let mut factors = [0.0; BLOCK];
    for i in rows {
        let before = known.start..known.end.min(i);
        let factors = &mut factors[..before.len()];
        factors.copy_from_slice(&a.row(i)[before.clone()]);
        a.subtract_products(i, before, factors, known.end..end);
    }
}

wide_function! {
    /// Eliminates some columns from each other. They are copied to `panel` column by column, where their elements are neighbours.
    fn lu_panel = lu_panel_body(a: &mut Matrix, columns: Range<usize>, panel: &mut Vec<f64>, found: &mut (Vec<usize>, usize))
}

#[inline(always)]
fn lu_panel_body(
    a: &mut Matrix,
    columns: Range<usize>,
    panel: &mut Vec<f64>,
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
        if column[p] == 0.0 {
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

/// The Cholesky factor of the lower triangle, and the order of the first leading minor that is not positive (0 if there
/// is none).
pub(in crate::op::rows) fn cholesky_of(m: &Matrix) -> (Matrix, usize) {
    let n = m.rows;
    let mut l = m.clone();
    let mut minor = 0;
    for columns in blocks(n) {
        minor = cholesky_columns(&mut l, columns.clone());
        if minor > 0 {
            break;
        }
        let below = l.part(columns.end..n, columns.clone());
        let across = below.transposed();
        for rows in blocks(below.rows) {
            let left = below.part(rows.clone(), 0..below.columns);
            let right = across.part(0..across.rows, 0..rows.end);
            l.subtract_at(columns.end + rows.start, columns.end, &left.times(&right));
        }
    }
    // What comes after the first minor that is not positive is not computed.
    let known = if minor > 0 { minor - 1 } else { n };
    for i in 0..n {
        l.v[i * n + known.min(i + 1)..(i + 1) * n].fill(0.0);
    }
    (l, minor)
}

wide_function! {
    /// The factor's columns, from a lower triangle that the columns before them have been subtracted from. Returns the order of the first
    /// minor that is not positive.
    fn cholesky_columns = cholesky_columns_body(l: &mut Matrix, columns: Range<usize>) -> usize
}

#[inline(always)]
fn cholesky_columns_body(l: &mut Matrix, columns: Range<usize>) -> usize {
    let n = l.columns;
    for j in columns.clone() {
        let (upper, lower) = l.v.split_at_mut((j + 1) * n);
        let row = &mut upper[j * n..];
        let known = columns.start..j;
        let square = row[j] - dot(&row[known.clone()], &row[known.clone()]);
        // NaN does not count as positive.
        if square.is_nan() || square <= 0.0 {
            return j + 1;
        }
        let d = square.sqrt();
        row[j] = d;
        for below in lower.chunks_exact_mut(n) {
            let sum = dot(&below[known.clone()], &row[known.clone()]);
            below[j] = (below[j] - sum) / d;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: &Matrix, b: &Matrix) {
        let far = a.v.iter().zip(&b.v).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(a.v.len() == b.v.len() && far < 1e-9, "{far}");
    }

    fn wave(rows: usize, columns: usize) -> Matrix {
        Matrix::from_fn(rows, columns, |i, j| {
            ((i * 7 + j * 5 + i * j) % 11) as f64 - 4.0 + 9.0 * ((i * 3) % rows == j) as u8 as f64
        })
    }

    #[test]
    fn blocks_of_factors_multiply_back() {
        for (rows, columns) in [(3, 3), (150, 150), (200, 140), (131, 190)] {
            let a = wave(rows, columns);
            let mut f = a.clone();
            let (pivots, _) = lu(&mut f);
            let (p, l, u) = super::super::factorize::lu_parts(&f, &pivots);
            close(&p.times(&l).times(&u), &a);
        }
    }

    #[test]
    fn cholesky_factors_multiply_back() {
        for n in [2, 65, 150] {
            let x = wave(n, n);
            let mut a = x.times(&x.transposed());
            (0..n).for_each(|i| a.set(i, i, a.at(i, i) + n as f64));
            let (l, minor) = cholesky_of(&a);
            assert_eq!(minor, 0);
            close(&l.times(&l.transposed()), &a);
            a.set(n - 1, n - 1, -1.0);
            assert_eq!(cholesky_of(&a).1, n);
        }
    }

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
                close(&triangle.times(&x), &b);
            }
        }
    }
}
