//! QR factorisation by Householder reflections (LAPACK's `geqrf`), and products with them (`ormqr`).
//!
//! Reflections are applied in blocks: `1 - V T V^T` is the product of the reflections whose vectors are the columns of `V` (Schreiber and
//! Van Loan 1989).

use super::LANES;
use super::batch::{Matrices, Results};
use super::blocks::ranges;
use super::householder::{reflect_rows, reflection};
use super::lanes::{self, Interleaved, Lanes};
use super::matrix::Matrix;
use super::real::{Real, in_dtype};
use super::threads::{in_parts, parts_of, room, run_columns, strip_width, work_of};
use crate::tensor::{Factor, wide_function};
use std::ops::Range;

/// The factors of every matrix as LAPACK's `geqrf` stores them, and the factors of its reflections.
pub(crate) fn factors_of_all(all: &Matrices) -> (Results, Results) {
    in_dtype!(all, T => factors_in::<T>(all))
}

fn factors_in<T: Real>(matrices: &Matrices) -> (Results, Results) {
    let side_by_side = lanes::suits(matrices.count, matrices.rows, matrices.columns);
    let (all, taus) = parts_of(matrices, side_by_side, |range| {
        let mut all = Vec::with_capacity(room(&range, matrices.count) * matrices.rows * matrices.columns);
        let mut taus = vec![];
        match side_by_side {
            true => {
                let (mut m, mut found) = (Interleaved::zeros(0, 0), vec![]);
                for first in lanes::groups(range.clone()) {
                    let count = (range.end - first).min(LANES);
                    matrices.interleave(lanes::places(first, matrices.count), false, &mut m);
                    lanes::qr::householder_qr(&mut m, &mut found);
                    m.append(count, false, &mut all);
                    (0..count).for_each(|l| taus.extend(found.iter().map(|t| T::nearest(t[l]))));
                }
            }
            false => {
                let mut m = Matrix::<T>::zeros(0, 0);
                for i in range {
                    matrices.read(i, &mut m);
                    taus.extend(householder_qr(&mut m));
                    all.extend_from_slice(&m.v);
                }
            }
        }
        (all, taus)
    });
    (T::results(all), T::results(taus))
}

/// The products of matrices with reflections, of which there are `n` for each: Q from the left or from the right, or its transpose.
pub(crate) fn multiply_all(
    vectors: &Matrices,
    others: &Matrices,
    (taus, n): (&[f64], usize),
    left: bool,
    transposed: bool,
) -> Results {
    let count = vectors.count.min(others.count);
    let sizes = [vectors.rows, vectors.columns, others.rows, others.columns];
    let largest = sizes.into_iter().fold(0, usize::max);
    match lanes::suits(count, largest, largest) {
        true => multiply_side_by_side([vectors, others], (taus, n), left, transposed).into(),
        false => in_dtype!(vectors, T => multiply_each::<T>([vectors, others], (taus, n), left, transposed)),
    }
}

/// The products of matrices with reflections, of which there are `n` for each.
fn multiply_each<T: Real>(
    [vectors, others]: [&Matrices; 2],
    (taus, n): (&[f64], usize),
    left: bool,
    transposed: bool,
) -> Results {
    let taus: Vec<T> = taus.iter().map(|t| T::nearest(*t)).collect();
    let work = work_of(others.rows, others.columns.max(n));
    let all = in_parts(vectors.count.min(others.count), 1, work, |range| {
        let (mut v, mut m, mut all) = (Matrix::<T>::zeros(0, 0), Matrix::zeros(0, 0), vec![]);
        for i in range {
            vectors.read(i, &mut v);
            match left {
                true => others.read(i, &mut m),
                false => others.read_transposed(i, &mut m),
            }
            apply_reflections(&v, &taus[i * n..(i + 1) * n], &mut m, transposed == left);
            match left {
                true => all.extend_from_slice(&m.v),
                false => all.append(&mut m.transposed().v),
            }
        }
        all
    });
    T::results(all)
}

/// The products of small matrices with reflections, of which there are `n` for each.
fn multiply_side_by_side(
    [vectors, others]: [&Matrices; 2],
    (taus, n): (&[f64], usize),
    left: bool,
    transposed: bool,
) -> Vec<f64> {
    let count = vectors.count.min(others.count);
    let work = work_of(others.rows, others.columns.max(n));
    in_parts(count, LANES, work, |range| {
        let (mut v, mut m, mut all) = (Interleaved::zeros(0, 0), Interleaved::zeros(0, 0), vec![]);
        for first in lanes::groups(range.clone()) {
            let places = lanes::places(first, count);
            vectors.interleave(places, false, &mut v);
            others.interleave(places, !left, &mut m);
            let factors: Vec<Lanes> = (0..n).map(|k| places.map(|p| taus[p * n + k])).collect();
            lanes::qr::apply_reflections(&v, &factors, &mut m, transposed == left);
            m.append((range.end - first).min(LANES), !left, &mut all);
        }
        all
    })
}

/// The number of reflections that are applied together.
const BLOCK: usize = 32;

/// In-place Householder QR (`geqrf`): R is stored above and on the diagonal, the reflection vectors (whose first
/// element is 1) below it. Returns the factors of the reflections.
pub(super) fn householder_qr<T: Real>(a: &mut Matrix<T>) -> Vec<T> {
    let (least, n) = (a.rows.min(a.columns), a.columns);
    let mut taus = vec![];
    if least <= 2 * BLOCK {
        reflect_columns(a, 0..least, n, &mut taus);
        return taus;
    }
    for columns in ranges(least, BLOCK) {
        reflect_columns(a, columns.clone(), columns.end, &mut taus);
        let block = Reflections::new(a, &taus, columns.clone());
        block.apply(a, columns.start, columns.end..n, true);
    }
    taus
}

wide_function! {
    /// Reflects some columns, and those after them that are before `end`.
    fn reflect_columns = reflect_columns_body<T: Real>(a: &mut Matrix<T>, columns: Range<usize>, end: usize, taus: &mut Vec<T>)
}

#[inline(always)]
fn reflect_columns_body<T: Real>(a: &mut Matrix<T>, columns: Range<usize>, end: usize, taus: &mut Vec<T>) {
    let (mut column, mut sums) = (vec![], vec![]);
    for k in columns {
        column.clear();
        a.append_column(k, k, &mut column);
        let (tau, beta) = reflection(&mut column);
        taus.push(tau);
        reflect_rows(a, k, k + 1..end, &column, tau, &mut sums);
        column[0] = beta;
        a.set_column(k, k, &column);
    }
}

/// Multiplies `c` from the left by the product of reflections (`ormqr`), or by its transpose.
pub(super) fn apply_reflections<T: Real>(vectors: &Matrix<T>, taus: &[T], c: &mut Matrix<T>, transposed: bool) {
    let n = taus.len().min(vectors.columns).min(c.rows);
    if n <= 2 * BLOCK {
        return apply_each(vectors, &taus[..n], c, transposed);
    }
    let apply_columns = |columns: Range<usize>| {
        let block = Reflections::new(vectors, taus, columns.clone());
        // The first columns of the identity have only zeros in these rows until a reflection reaches them.
        let zeros = if block.is_finite() {
            c.zero_columns(columns.start)
        } else {
            0
        };
        block.apply(c, columns.start, zeros..c.columns, transposed);
    };
    match transposed {
        true => ranges(n, BLOCK).for_each(apply_columns),
        false => ranges(n, BLOCK).rev().for_each(apply_columns),
    }
}

wide_function! {
    /// Multiplies by one reflection after the other.
    fn apply_each = apply_each_body<T: Real>(vectors: &Matrix<T>, taus: &[T], c: &mut Matrix<T>, transposed: bool)
}

#[inline(always)]
fn apply_each_body<T: Real>(vectors: &Matrix<T>, taus: &[T], c: &mut Matrix<T>, transposed: bool) {
    let (mut v, mut sums) = (vec![], vec![]);
    for i in 0..taus.len() {
        let k = if transposed { i } else { taus.len() - 1 - i };
        v.clear();
        v.push(T::ONE);
        vectors.append_column(k, k + 1, &mut v);
        v.truncate(c.rows - k);
        reflect_rows(c, k, 0..c.columns, &v, taus[k], &mut sums);
    }
}

/// The transposed product of reflections whose vectors are the rows of `a` right of its diagonal.
pub(super) fn basis_of_rows<T: Real>(a: &Matrix<T>, taus: &[T]) -> Matrix<T> {
    let n = a.columns;
    let Some(last) = n.checked_sub(1) else {
        return Matrix::zeros(0, 0);
    };
    // The reflections leave the first coordinate unchanged.
    let vectors = Matrix::from_fn(last, last, |i, k| a.at(k, i + 1));
    let mut inner = Matrix::eye(last);
    apply_reflections(&vectors, &taus[..last], &mut inner, false);
    Matrix::from_fn(n, n, |i, j| match (i, j) {
        (0, _) | (_, 0) if i == j => T::ONE,
        (0, _) | (_, 0) => T::ZERO,
        _ => inner.at(j - 1, i - 1),
    })
}

/// Multiplies `c` from the left by the product of reflections whose vectors are the rows of `a` right of its diagonal.
pub(super) fn apply_reflections_of_rows<T: Real>(a: &Matrix<T>, taus: &[T], c: &mut Matrix<T>) {
    let n = a.columns;
    let Some(last) = n.checked_sub(1) else {
        return;
    };
    // The vectors are moved to columns below a diagonal, as `apply_reflections` expects them. They begin in the second column, so the first
    // reflection must change nothing.
    let (across, mut vectors) = (a.transposed(), Matrix::zeros(n, n));
    for (i, row) in vectors.v.chunks_exact_mut(n).enumerate() {
        row[1..].copy_from_slice(&across.row(i)[..last]);
    }
    let taus = [&[T::ZERO], &taus[..last]].concat();
    apply_reflections(&vectors, &taus, c, false);
}

/// The number of columns that are multiplied together. They stay in a near cache.
const STRIP: usize = 96;

/// The product `1 - V T V^T` of some neighbouring reflections.
struct Reflections<T> {
    /// V: a column per reflection.
    vectors: Matrix<T>,
    /// The transpose of V.
    across: Matrix<T>,
    /// The upper triangle `T`.
    factors: Matrix<T>,
}

impl<T: Real> Reflections<T> {
    fn new(a: &Matrix<T>, taus: &[T], columns: Range<usize>) -> Reflections<T> {
        let (k, n) = (columns.start, columns.len());
        let mut vectors = Matrix::zeros(a.rows - k, n);
        for (i, row) in vectors.v.chunks_exact_mut(n).enumerate() {
            let known = i.min(n);
            row[..known].copy_from_slice(&a.row(k + i)[k..k + known]);
            if i < n {
                row[i] = T::ONE;
            }
        }
        let across = vectors.transposed();
        let products = across.times(&vectors);
        let mut factors = Matrix::zeros(n, n);
        for j in 0..n {
            let tau = taus[k + j];
            for i in 0..j {
                let sum = (i..j).fold(T::ZERO, |sum, p| sum + factors.at(i, p) * products.at(p, j));
                factors.set(i, j, -tau * sum);
            }
            factors.set(j, j, tau);
        }
        Reflections {
            vectors,
            across,
            factors,
        }
    }

    /// Whether all elements are finite, so that products with zeros are zeros.
    fn is_finite(&self) -> bool {
        self.vectors.is_finite() && self.factors.is_finite()
    }

    /// Multiplies some columns of the rows of `c` from `row` on from the left by the product, or by its transpose.
    fn apply(&self, c: &mut Matrix<T>, row: usize, columns: Range<usize>, transposed: bool) {
        let n = c.columns;
        let across = match transposed {
            true => self.factors.transposed().times(&self.across),
            false => self.factors.times(&self.across),
        };
        let (height, k) = (self.vectors.rows, across.rows);
        let work = (2 * height * k).saturating_mul(columns.len());
        let width = strip_width(columns.len(), STRIP);
        run_columns(&mut c.v[row * n..], n, columns, (width, work), |range, mut strip| {
            let (width, rows) = (range.len(), 0..height);
            let mut inner = vec![T::ZERO; k * width];
            strip.multiply_rows(Factor::at(&across.v, height, 0, 0), k, rows.clone(), &mut inner);
            let vectors = Factor::at(&self.vectors.v, k, 0, 0);
            strip.add_product(rows, -T::ONE, vectors, k, Factor::at(&inner, width, 0, 0));
        });
    }
}

impl<T: Real> Matrix<T> {
    /// The number of leading columns that have only zeros in the rows from `row` on.
    fn zero_columns(&self, row: usize) -> usize {
        let n = self.columns;
        let rows = self.v[row * n..].chunks_exact(n.max(1));
        rows.fold(n, |least, row| {
            row[..least].iter().position(|x| *x != T::ZERO).unwrap_or(least)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::testing::assert_close;

    #[test]
    fn factors_multiply_back() {
        for (rows, columns) in [(4, 3), (3, 4), (150, 140), (200, 131), (131, 200)] {
            let a = Matrix::from_fn(rows, columns, |i, j| ((i * 7 + j * 5 + i * j) % 11) as f64 - 4.0);
            let mut f = a.clone();
            let taus = householder_qr(&mut f);
            let mut r = Matrix::from_fn(rows, columns, |i, j| if i <= j { f.at(i, j) } else { 0.0 });
            let upper = r.clone();
            apply_reflections(&f, &taus, &mut r, false);
            assert_close(&r, &a, 1e-11);
            apply_reflections(&f, &taus, &mut r, true);
            assert_close(&r, &upper, 1e-11);
        }
    }
}
