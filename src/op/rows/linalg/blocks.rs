//! Parts of matrices, and the triangular solutions and factorisations that spend their time in products of such parts.

use super::lines::{add_scaled, subtract_rows};
use super::matrix::Matrix;
use super::triangles::{Triangle, solve_lines};
use crate::tensor::{matmul_f64, wide_function, with_wide_vectors};
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

/// Up to this number of right-hand sides, they are solved as lines.
pub(super) const FEW: usize = 16;

/// Solves `A X = B` in place of `b`, where only a triangle of `a` counts, whose diagonal is 1 if `unit`.
pub(super) fn solve_triangle(a: &Matrix, b: &mut Matrix, upper: bool, unit: bool) {
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
    let solve_rows = |b: &mut Matrix, rows: Range<usize>| {
        if n > BLOCK {
            let known = if upper { rows.end..n } else { 0..rows.start };
            let values = &b.v[known.start * b.columns..known.end * b.columns];
            let left = a.part(rows.clone(), known.clone());
            let mut product = Matrix::zeros(rows.len(), b.columns);
            matmul_f64(rows.len(), known.len(), b.columns, &left.v, values, &mut product.v);
            b.subtract_at(rows.start, 0, &product);
        }
        solve_block(a, b, rows, upper, unit);
    };
    match upper {
        true => blocks(n).rev().for_each(|rows| solve_rows(b, rows)),
        false => blocks(n).for_each(|rows| solve_rows(b, rows)),
    }
}

/// Replaces the identity by the inverse of the lower triangle of `a` with a diagonal of 1.
pub(super) fn invert_unit_lower(a: &Matrix, eye: &mut Matrix) {
    for rows in blocks(a.rows) {
        let known = 0..rows.start;
        let product = a
            .part(rows.clone(), known.clone())
            .times(&eye.part(known.clone(), known));
        eye.subtract_at(rows.start, 0, &product);
        solve_block(a, eye, rows, false, true);
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

/// Replaces the lower triangle by its Cholesky factor, and the upper one by zeros. Returns the order of the first leading minor that is not
/// positive (0 if there is none).
pub(in crate::op::rows) fn cholesky(l: &mut Matrix) -> usize {
    let n = l.rows;
    let (mut minor, mut panel) = (0, vec![]);
    for columns in blocks(n) {
        minor = cholesky_columns(l, columns.clone(), &mut panel);
        if minor > 0 {
            break;
        }
        subtract_squares(l, columns, &panel);
    }
    // What comes after the first minor that is not positive is not computed.
    let known = if minor > 0 { minor - 1 } else { n };
    for i in 0..n {
        l.v[i * n + known.min(i + 1)..(i + 1) * n].fill(0.0);
    }
    minor
}

/// Subtracts from the lower triangle after some columns of the factor what they contribute. `panel` has these columns as rows.
fn subtract_squares(l: &mut Matrix, columns: Range<usize>, panel: &[f64]) {
    let (n, width) = (l.rows, columns.len());
    let below = l.part(columns.end..n, columns.clone());
    let height = panel.len() / width;
    for rows in blocks(below.rows) {
        let mut across = Matrix::zeros(width, rows.len());
        for (line, x) in across.v.chunks_exact_mut(rows.len()).zip(panel.chunks_exact(height)) {
            line.copy_from_slice(&x[width + rows.start..width + rows.end]);
        }
        let mut product = Matrix::zeros(below.rows - rows.start, rows.len());
        let left = &below.v[rows.start * width..];
        matmul_f64(product.rows, width, rows.len(), left, &across.v, &mut product.v);
        l.subtract_at(columns.end + rows.start, columns.end + rows.start, &product);
    }
}

/// Vectors of this many elements fill the registers.
const WIDTH: usize = 8;

wide_function! {
    /// The factor's columns, from a lower triangle that the columns before them have been subtracted from. Returns the order of the first
    /// minor that is not positive. `panel` gets the columns as rows, whose elements are neighbours.
    fn cholesky_columns = cholesky_columns_body(l: &mut Matrix, columns: Range<usize>, panel: &mut Vec<f64>) -> usize
}

#[inline(always)]
fn cholesky_columns_body(l: &mut Matrix, columns: Range<usize>, panel: &mut Vec<f64>) -> usize {
    let (n, start, width) = (l.columns, columns.start, columns.len());
    let height = (n - start).next_multiple_of(WIDTH);
    panel.clear();
    panel.resize(width * height, 0.0);
    for i in start..n {
        let known = &l.v[i * n + start..][..width.min(i + 1 - start)];
        for j in 0..known.len() {
            panel[j * height + i - start] = known[j];
        }
    }
    let (mut factors, mut minor) = ([0.0; BLOCK], 0);
    for j in 0..width {
        let from = j / WIDTH * WIDTH;
        let (known, rest) = panel.split_at_mut(j * height);
        (0..j).for_each(|k| factors[k] = known[k * height + j]);
        let column = &mut rest[from..height];
        if j > 0 {
            subtract_rows(column, &factors[..j], &known[from..], height);
        }
        let square = column[j - from];
        // NaN does not count as positive.
        if square.is_nan() || square <= 0.0 {
            minor = start + j + 1;
            break;
        }
        let d = square.sqrt();
        for x in column.iter_mut() {
            *x /= d;
        }
        column[j - from] = d;
    }
    for i in start..n {
        let known = &mut l.v[i * n + start..][..width.min(i + 1 - start)];
        for j in 0..known.len() {
            known[j] = panel[j * height + i - start];
        }
    }
    minor
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
            let k = rows.min(columns);
            let l = Matrix::from_fn(rows, k, |i, j| match i.cmp(&j) {
                std::cmp::Ordering::Greater => f.at(i, j),
                order => order.is_eq() as u8 as f64,
            });
            let u = Matrix::from_fn(k, columns, |i, j| if i <= j { f.at(i, j) } else { 0.0 });
            let mut order = vec![];
            super::super::factorize::row_order(rows, &pivots, &mut order);
            close(&l.times(&u), &Matrix::from_fn(rows, columns, |i, j| a.at(order[i], j)));
        }
    }

    #[test]
    fn cholesky_factors_multiply_back() {
        for n in [2, 65, 150] {
            let x = wave(n, n);
            let mut a = x.times(&x.transposed());
            (0..n).for_each(|i| a.set(i, i, a.at(i, i) + n as f64));
            let mut l = a.clone();
            assert_eq!(cholesky(&mut l), 0);
            close(&l.times(&l.transposed()), &a);
            a.set(n - 1, n - 1, -1.0);
            assert_eq!(cholesky(&mut a), n);
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
