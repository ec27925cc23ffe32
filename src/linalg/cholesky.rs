//! Cholesky factorisation in blocks of columns (LAPACK's `potrf`).

use super::LANES;
use super::batch::{Matrices, Results};
use super::blocks::{BLOCK, blocks};
use super::lanes::{self, Interleaved};
use super::matrix::Matrix;
use super::real::{Real, in_dtype};
use super::vectors::subtract_rows;
use crate::tensor::{Factor, add_product, wide_function};
use std::ops::Range;

/// The lower or upper factor of every matrix, of which only that triangle counts, and the order of its first leading minor that is not
/// positive (0 if there is none).
pub(crate) fn factors_of_all(all: &Matrices, upper: bool) -> (Results, Vec<usize>) {
    in_dtype!(all, T => factors_in::<T>(all, upper))
}

fn factors_in<T: Real>(matrices: &Matrices, upper: bool) -> (Results, Vec<usize>) {
    let (mut all, mut minors) = (Vec::with_capacity(matrices.len()), vec![]);
    if lanes::suits(matrices.count, matrices.rows, matrices.columns) {
        let mut m = Interleaved::zeros(0, 0);
        for first in lanes::groups(matrices.count) {
            let count = (matrices.count - first).min(LANES);
            matrices.interleave(lanes::places(first, matrices.count), upper, &mut m);
            minors.extend_from_slice(&lanes::cholesky::cholesky(&mut m)[..count]);
            m.append(count, upper, &mut all);
        }
        return (T::results(all), minors);
    }
    let mut m = Matrix::<T>::zeros(0, 0);
    for i in 0..matrices.count {
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
    (T::results(all), minors)
}

/// Replaces the lower triangle by its Cholesky factor, and the upper one by zeros. Returns the order of the first leading minor that is not
/// positive (0 if there is none).
pub(super) fn cholesky<T: Real>(l: &mut Matrix<T>) -> usize {
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

/// Subtracts the product of some columns of the factor and their transpose from the lower triangle after them. `panel` has these columns as
/// rows.
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

/// Columns begin at multiples of this many elements, and so do their ends, so that they consist of whole vectors.
const WIDTH: usize = 16;

wide_function! {
    /// Some columns of the factor, after the products with the columns before them have been subtracted. Returns the order of the first
    /// minor that is not positive. `panel` gets the columns as rows, so that their elements are neighbours.
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
            a.set(n - 1, n - 1, -1.0);
            assert_eq!(cholesky(&mut a), n);
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
