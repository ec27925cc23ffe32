//! Cholesky factorisation in blocks of columns (LAPACK's `potrf`).

use super::LANES;
use super::batch::{Matrices, Results};
use super::blocks::{BLOCK, blocks};
use super::lanes::{self, Interleaved};
use super::matrix::Matrix;
use super::real::{Real, in_dtype};
use super::threads::{is_single, parts_of, room, run_columns, run_row_blocks, write_strip};
use super::vectors::subtract_rows;
use crate::tensor::{Factor, add_product, wide_function};
use std::ops::Range;

/// The lower or upper factor of every matrix, of which only that triangle counts, and the order of its first leading minor that is not
/// positive (0 if there is none).
pub(crate) fn factors_of_all(all: &Matrices, upper: bool) -> (Results, Vec<usize>) {
    in_dtype!(all, T => factors_in::<T>(all, upper))
}

fn factors_in<T: Real>(matrices: &Matrices, upper: bool) -> (Results, Vec<usize>) {
    let side_by_side = lanes::suits(matrices.count, matrices.rows, matrices.columns);
    let (all, minors) = parts_of(matrices, side_by_side, |range| match side_by_side {
        true => side_by_side_factors::<T>(matrices, range, upper),
        false => single_factors::<T>(matrices, range, upper),
    });
    (T::results(all), minors)
}

fn side_by_side_factors<T: Real>(matrices: &Matrices, range: Range<usize>, upper: bool) -> (Vec<T>, Vec<usize>) {
    let mut all = Vec::with_capacity(room(&range, matrices.count) * matrices.rows * matrices.columns);
    let (mut m, mut minors) = (Interleaved::zeros(0, 0), vec![]);
    for first in lanes::groups(range.clone()) {
        let count = (range.end - first).min(LANES);
        matrices.interleave(lanes::places(first, matrices.count), upper, &mut m);
        minors.extend_from_slice(&lanes::cholesky::cholesky(&mut m)[..count]);
        m.append(count, upper, &mut all);
    }
    (all, minors)
}

fn single_factors<T: Real>(matrices: &Matrices, range: Range<usize>, upper: bool) -> (Vec<T>, Vec<usize>) {
    let mut all = Vec::with_capacity(room(&range, matrices.count) * matrices.rows * matrices.columns);
    let (mut m, mut minors) = (Matrix::<T>::zeros(0, 0), vec![]);
    for i in range {
        match upper {
            true => matrices.read_transposed(i, &mut m),
            false => matrices.read(i, &mut m),
        }
        minors.push(cholesky(&mut m));
        match upper {
            true => all.append(&mut m.transposed().v),
            false => all.extend_from_slice(&m.v),
        }
    }
    (all, minors)
}

/// Replaces the lower triangle by its Cholesky factor, and the upper one by zeros. Returns the order of the first leading minor that is not
/// positive (0 if there is none).
pub(super) fn cholesky<T: Real>(l: &mut Matrix<T>) -> usize {
    let n = l.rows;
    let (mut minor, mut corner, mut panel) = (0, vec![], vec![]);
    for columns in blocks(n) {
        minor = cholesky_corner(l, columns.clone(), &mut corner);
        // The columns before a minor that is not positive are computed in all rows.
        let done = columns.start..if minor > 0 { minor - 1 } else { columns.end };
        let block = Block {
            columns: done,
            rows: columns.end..n,
            height: (n - columns.end).next_multiple_of(WIDTH),
            corner: (&corner, columns.len().next_multiple_of(WIDTH)),
        };
        panel.clear();
        panel.resize(block.columns.len() * block.height, T::ZERO);
        solve_below(l, &block, &mut panel);
        subtract_squares(l, &block, &panel);
        if minor > 0 {
            break;
        }
    }
    // What comes after the first minor that is not positive is not computed.
    let known = if minor > 0 { minor - 1 } else { n };
    for i in 0..n {
        l.v[i * n + known.min(i + 1)..(i + 1) * n].fill(T::ZERO);
    }
    minor
}

/// Some columns of the factor, and the rows below their corner.
struct Block<'a, T> {
    columns: Range<usize>,
    rows: Range<usize>,
    /// The distance of the columns in the panel, of which each is a row.
    height: usize,
    /// The columns of the corner as rows, and their distance.
    corner: (&'a [T], usize),
}

/// Computes the rows of the factor below the corner of some columns. `panel`, which has zeros, gets these columns as rows, so that their
/// elements are neighbours.
fn solve_below<T: Real>(l: &Matrix<T>, block: &Block<'_, T>, panel: &mut [T]) {
    let (width, height) = (block.columns.len(), block.height);
    if width == 0 || height == 0 {
        return;
    }
    if is_single() {
        return solve_rows(l, block, block.rows.clone(), panel);
    }
    let work = height * width * width / 2;
    run_columns(panel, height, 0..height, (STRIP, work), |range, mut strip| {
        let start = block.rows.start;
        let rows = start + range.start..l.rows.min(start + range.end);
        let mut part = Matrix::zeros(width, range.len());
        solve_rows(l, block, rows, &mut part.v);
        write_strip(&mut strip, 0, &part);
    });
}

/// Writes the columns that are the rows of `panel`, and subtracts the product of them and their transpose from the lower triangle after
/// them.
fn subtract_squares<T: Real>(l: &mut Matrix<T>, block: &Block<'_, T>, panel: &[T]) {
    let (n, width, height) = (l.rows, block.columns.len(), block.height);
    if width == 0 || height == 0 {
        return;
    }
    run_row_blocks(&mut l.v[block.rows.start * n..], n, BLOCK, |first, rows| {
        let count = rows.len() / n;
        for (i, row) in rows.chunks_exact_mut(n).enumerate() {
            let row = &mut row[block.columns.clone()];
            for j in 0..width {
                row[j] = panel[j * height + first + i];
            }
        }
        let (down, across) = (Factor::at(panel, height, 0, first), Factor::at(panel, height, 0, 0));
        let sizes = [count, first + count, width];
        add_product(sizes, -T::ONE, down.transposed(), across, (rows, block.rows.start, n));
    });
}

/// The number of rows that are solved together.
const STRIP: usize = 64;

/// Columns begin at multiples of this many elements, and so do their ends, so that they consist of whole vectors.
const WIDTH: usize = 16;

wide_function! {
    /// The corner of some columns of the factor, after the products with the columns before them have been subtracted. Returns the order
    /// of the first minor that is not positive. `panel` gets the corner's columns as rows, so that their elements are neighbours.
    fn cholesky_corner = cholesky_corner_body<T: Real>(l: &mut Matrix<T>, columns: Range<usize>, panel: &mut Vec<T>) -> usize
}

#[inline(always)]
fn cholesky_corner_body<T: Real>(l: &mut Matrix<T>, columns: Range<usize>, panel: &mut Vec<T>) -> usize {
    let (n, start, width) = (l.columns, columns.start, columns.len());
    let height = width.next_multiple_of(WIDTH);
    panel.clear();
    panel.resize(width * height, T::ZERO);
    for i in columns.clone() {
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
    for i in columns {
        let known = &mut l.v[i * n + start..][..width.min(i + 1 - start)];
        for j in 0..known.len() {
            known[j] = panel[j * height + i - start];
        }
    }
    minor
}

wide_function! {
    /// Some rows of the factor below its corner, as columns of `out`, which has zeros.
    fn solve_rows = solve_rows_body<T: Real>(l: &Matrix<T>, block: &Block<'_, T>, rows: Range<usize>, out: &mut [T])
}

#[inline(always)]
fn solve_rows_body<T: Real>(l: &Matrix<T>, block: &Block<'_, T>, rows: Range<usize>, out: &mut [T]) {
    let (n, width, (corner, height)) = (l.columns, block.columns.len(), block.corner);
    let count = out.len() / width;
    for (i, row) in rows.enumerate() {
        let known = &l.v[row * n + block.columns.start..][..width];
        for j in 0..width {
            out[j * count + i] = known[j];
        }
    }
    let mut factors = [T::ZERO; BLOCK];
    for j in 0..width {
        let (known, rest) = out.split_at_mut(j * count);
        (0..j).for_each(|k| factors[k] = corner[k * height + j]);
        let column = &mut rest[..count];
        if j > 0 {
            subtract_rows(column, &factors[..j], known, count);
        }
        let d = corner[j * height + j];
        for x in column.iter_mut() {
            *x /= d;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::lu::lu;
    use crate::linalg::testing::{assert_close, wave};

    #[test]
    fn cholesky_factors_multiply_back() {
        for n in [2, 65, 150] {
            let x = wave(n, n);
            let mut a = x.times(&x.transposed());
            (0..n).for_each(|i| a.set(i, i, a.at(i, i) + n as f64));
            let mut l = a.clone();
            assert_eq!(cholesky(&mut l), 0);
            assert_close(&l.times(&l.transposed()), &a, 1e-9);
            let whole = a.clone();
            a.set(n - 1, n - 1, -1.0);
            assert_eq!(cholesky(&mut a), n);
            // A minor that is not positive leaves the columns before it, also in the rows below.
            let order = 1 + n / 3;
            let mut a = whole;
            a.set(order - 1, order - 1, -1.0);
            assert_eq!(cholesky(&mut a), order);
            let same = |i: usize, j: usize| (a.at(i, j) - l.at(i, j) * (j + 1 < order) as u8 as f64).abs() < 1e-9;
            assert!((0..n).all(|i| i + 1 == order || (0..n).all(|j| same(i, j))), "{n}");
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
