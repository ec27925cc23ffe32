//! Parts of matrices, and the triangular solutions and factorisations that spend their time in products of such parts.

use super::lines::{add_scaled, subtract_rows};
use super::matrix::Matrix;
use super::real::Real;
use super::triangles::{Triangle, solve_lines};
use crate::tensor::{Factor, add_product, subtract_within, wide_function};
use std::ops::Range;

/// The number of rows or columns that are factorised at once. What is left of them is a matrix product.
pub(super) const BLOCK: usize = 64;

/// The blocks of `0..n`.
pub(super) fn blocks(n: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    ranges(n, BLOCK)
}

/// The neighbouring ranges of `size` numbers that `0..n` consists of.
pub(super) fn ranges(n: usize, size: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    (0..n.div_ceil(size)).map(move |i| i * size..n.min((i + 1) * size))
}

impl<T: Real> Matrix<T> {
    /// Subtracts from some columns of `rows` the product of the columns `known` of these rows of `left`, and the rows `known`.
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

/// Up to this number of right-hand sides, they are solved as lines.
pub(super) const FEW: usize = 16;

/// Solves `A X = B` in place of `b`, where only a triangle of `a` counts, whose diagonal is 1 if `unit`.
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
    let solve_rows = |b: &mut Matrix<T>, rows: Range<usize>| {
        let known = if upper { rows.end..n } else { 0..rows.start };
        b.subtract_known(a, rows.clone(), known, 0..b.columns);
        solve_block(a, b, rows, upper, unit);
    };
    match upper {
        true => blocks(n).rev().for_each(|rows| solve_rows(b, rows)),
        false => blocks(n).for_each(|rows| solve_rows(b, rows)),
    }
}

/// Replaces the identity by the inverse of the lower triangle of `a` with a diagonal of 1.
pub(super) fn invert_unit_lower<T: Real>(a: &Matrix<T>, eye: &mut Matrix<T>) {
    for rows in blocks(a.rows) {
        let known = 0..rows.start;
        eye.subtract_known(a, rows.clone(), known.clone(), known);
        solve_block(a, eye, rows, false, true);
    }
}

wide_function! {
    /// Solves for some rows, after what the others contribute has been subtracted.
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

/// In-place LU factorisation with row pivoting (`getrf`). Returns the 1-based pivot rows, and the 1-based position of
/// the first zero pivot (0 if there is none).
pub(in crate::op::rows) fn lu<T: Real>(a: &mut Matrix<T>) -> (Vec<usize>, usize) {
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

/// The columns that are eliminated one by one, before those after them are updated with all of them.
const PANEL: usize = 8;

/// Eliminates some columns from those after them that are before `end`.
fn lu_columns<T: Real>(a: &mut Matrix<T>, columns: Range<usize>, end: usize, found: &mut (Vec<usize>, usize)) {
    let mut panel = vec![];
    for start in columns.clone().step_by(PANEL) {
        let now = start..columns.end.min(start + PANEL);
        lu_panel(a, now.clone(), &mut panel, found);
        eliminate_rows(a, now.start..a.rows, now, end);
    }
}

wide_function! {
    /// Subtracts from the rows the products with those of `known`, whose factors are known, in the columns from those to `end`.
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
    /// Eliminates some columns from each other. They are copied to `panel` column by column, where their elements are neighbours.
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

/// Replaces the lower triangle by its Cholesky factor, and the upper one by zeros. Returns the order of the first leading minor that is not
/// positive (0 if there is none).
pub(in crate::op::rows) fn cholesky<T: Real>(l: &mut Matrix<T>) -> usize {
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
        l.v[i * n + known.min(i + 1)..(i + 1) * n].fill(T::ZERO);
    }
    minor
}

/// Subtracts from the lower triangle after some columns of the factor what they contribute. `panel` has these columns as rows.
fn subtract_squares<T: Real>(l: &mut Matrix<T>, columns: Range<usize>, panel: &[T]) {
    let (n, width) = (l.rows, columns.len());
    let height = panel.len() / width;
    for rows in blocks(n - columns.end) {
        let across = Factor::at(panel, height, 0, width + rows.start);
        let (from, sizes) = (
            columns.end + rows.start,
            [n - columns.end - rows.start, rows.len(), width],
        );
        add_product(
            sizes,
            -T::ONE,
            across.transposed(),
            across,
            (&mut l.v, from * n + from, n),
        );
    }
}

/// Vectors of this many elements fill the registers.
const WIDTH: usize = 16;

wide_function! {
    /// The factor's columns, from a lower triangle that the columns before them have been subtracted from. Returns the order of the first
    /// minor that is not positive. `panel` gets the columns as rows, whose elements are neighbours.
    fn cholesky_columns = cholesky_columns_body<T: Real>(l: &mut Matrix<T>, columns: Range<usize>, panel: &mut Vec<T>) -> usize
}

#[inline(always)]
fn cholesky_columns_body<T: Real>(l: &mut Matrix<T>, columns: Range<usize>, panel: &mut Vec<T>) -> usize {
    let (n, start, width) = (l.columns, columns.start, columns.len());
    let height = (n - start).next_multiple_of(WIDTH);
    panel.clear();
    panel.resize(width * height, T::ZERO);
    for i in start..n {
        let known = &l.v[i * n + start..][..width.min(i + 1 - start)];
        for j in 0..known.len() {
            panel[j * height + i - start] = known[j];
        }
    }
    let (mut factors, mut minor) = ([T::ZERO; BLOCK], 0);
    for j in 0..width {
        let from = j / WIDTH * WIDTH;
        let (known, rest) = panel.split_at_mut(j * height);
        (0..j).for_each(|k| factors[k] = known[k * height + j]);
        let column = &mut rest[from..height];
        if j > 0 {
            subtract_rows(column, &factors[..j], &known[from..], height);
        }
        let d = column[j - from].sqrt();
        // NaN, also as the root of a negative number, does not count as positive.
        let positive = d > T::ZERO;
        if !positive {
            minor = start + j + 1;
            break;
        }
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

    #[test]
    fn narrow_factors_are_those_of_f64() {
        let n = 150;
        let x = wave(n, n);
        let mut a = x.times(&x.transposed());
        (0..n).for_each(|i| a.set(i, i, a.at(i, i) + n as f64));
        let near = |narrow: &Matrix<f32>, wide: &Matrix| {
            let most = wide.v.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            let far = |(x, y): (&f32, &f64)| (f64::from(*x) - y).abs();
            assert!(narrow.v.iter().zip(&wide.v).map(far).fold(0.0, f64::max) < 1e-4 * most);
        };
        let narrow = Matrix::from_fn(n, n, |i, j| a.at(i, j) as f32);
        let (mut l, mut m) = (narrow.clone(), a.clone());
        assert_eq!((cholesky(&mut l), cholesky(&mut m)), (0, 0));
        near(&l, &m);
        let (mut l, mut m) = (narrow, a);
        assert_eq!(lu(&mut l), lu(&mut m));
        near(&l, &m);
    }
}
