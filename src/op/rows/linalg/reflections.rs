//! Products of Householder reflections, in blocks: `1 - V T V^T` is the product of the reflections whose vectors are the columns of `V`
//! (Schreiber and Van Loan 1989).

use super::blocks::ranges;
use super::lines::{reflect_rows, reflection};
use super::matrix::Matrix;
use super::real::Real;
use crate::tensor::{Factor, add_product, wide_function};
use std::ops::Range;

/// The number of reflections that are applied together.
const BLOCK: usize = 32;

/// In-place Householder QR (`geqrf`): R is stored above and on the diagonal, the reflection vectors (whose first
/// element is 1) below it. Returns the factors of the reflections.
pub(in crate::op::rows) fn householder_qr<T: Real>(a: &mut Matrix<T>) -> Vec<T> {
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
    let n = a.columns;
    let (mut column, mut sums) = (vec![], vec![]);
    for k in columns {
        column.clear();
        column.extend((k..a.rows).map(|i| a.v[i * n + k]));
        let (tau, beta) = reflection(&mut column);
        taus.push(tau);
        reflect_rows(a, k, k + 1..end, &column, tau, &mut sums);
        a.set(k, k, beta);
        (k + 1..a.rows).for_each(|i| a.v[i * n + k] = column[i - k]);
    }
}

/// Multiplies `c` from the left by the product of reflections (`ormqr`), or by its transpose.
pub(in crate::op::rows) fn apply_reflections<T: Real>(
    vectors: &Matrix<T>,
    taus: &[T],
    c: &mut Matrix<T>,
    transposed: bool,
) {
    let n = taus.len().min(vectors.columns).min(c.rows);
    if n <= 2 * BLOCK {
        return apply_each(vectors, &taus[..n], c, transposed);
    }
    let apply_columns = |columns: Range<usize>| {
        let block = Reflections::new(vectors, taus, columns.clone());
        // The first columns of the identity remain zeros below the diagonal until a reflection reaches them.
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
        v.extend((k + 1..c.rows).map(|i| vectors.at(i, k)));
        reflect_rows(c, k, 0..c.columns, &v, taus[k], &mut sums);
    }
}

/// The transposed product of the reflections whose vectors are right of the diagonal of a square part, from its first row on.
pub(super) fn basis_of_rows<T: Real>(a: &Matrix<T>, taus: &[T]) -> Matrix<T> {
    let n = a.columns;
    let Some(last) = n.checked_sub(1) else {
        return Matrix::zeros(0, 0);
    };
    // They leave the first coordinate unchanged.
    let vectors = Matrix::from_fn(last, last, |i, k| a.at(k, i + 1));
    let mut inner = Matrix::eye(last);
    apply_reflections(&vectors, &taus[..last], &mut inner, false);
    Matrix::from_fn(n, n, |i, j| match (i, j) {
        (0, _) | (_, 0) if i == j => T::ONE,
        (0, _) | (_, 0) => T::ZERO,
        _ => inner.at(j - 1, i - 1),
    })
}

/// Multiplies `c` from the left by the product of the reflections whose vectors are right of the diagonal of a square part.
pub(super) fn apply_reflections_of_rows<T: Real>(a: &Matrix<T>, taus: &[T], c: &mut Matrix<T>) {
    let n = a.columns;
    let Some(last) = n.checked_sub(1) else {
        return;
    };
    // As columns, one place to the right, they are below a diagonal; the first reflection changes nothing.
    let (across, mut vectors) = (a.transposed(), Matrix::zeros(n, n));
    for (i, row) in vectors.v.chunks_exact_mut(n).enumerate() {
        row[1..].copy_from_slice(&across.row(i)[..last]);
    }
    let taus = [&[T::ZERO], &taus[..last]].concat();
    apply_reflections(&vectors, &taus, c, false);
}

/// The number of columns that are multiplied at once.
const STRIP: usize = 96;

/// The product of some neighbouring reflections.
struct Reflections<T> {
    /// A reflection's vector per column.
    vectors: Matrix<T>,
    across: Matrix<T>,
    /// The upper triangle `T`.
    factors: Matrix<T>,
}

impl<T: Real> Reflections<T> {
    fn new(a: &Matrix<T>, taus: &[T], columns: Range<usize>) -> Reflections<T> {
        let (k, n) = (columns.start, columns.len());
        let vectors = Matrix::from_fn(a.rows - k, n, |i, j| match i.cmp(&j) {
            std::cmp::Ordering::Less => T::ZERO,
            std::cmp::Ordering::Equal => T::ONE,
            std::cmp::Ordering::Greater => a.at(k + i, k + j),
        });
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

    /// Whether products with zeros are zeros.
    fn is_finite(&self) -> bool {
        self.vectors.is_finite() && self.factors.is_finite()
    }

    /// Multiplies some columns of the rows of `c` from `row` on from the left by the product, or by its transpose. A few columns at a time
    /// stay in a near cache.
    fn apply(&self, c: &mut Matrix<T>, row: usize, columns: Range<usize>, transposed: bool) {
        let n = c.columns;
        let across = match transposed {
            true => self.factors.transposed().times(&self.across),
            false => self.factors.times(&self.across),
        };
        for start in columns.clone().step_by(STRIP) {
            let strip = start..columns.end.min(start + STRIP);
            let sizes = [across.rows, strip.len(), across.columns];
            let mut inner = Matrix::zeros(across.rows, strip.len());
            let left = Factor::at(&across.v, across.columns, 0, 0);
            let part = Factor::at(&c.v, n, row, strip.start);
            add_product(sizes, T::ONE, left, part, (&mut inner.v, 0, strip.len()));
            let sizes = [self.vectors.rows, strip.len(), across.rows];
            let left = Factor::at(&self.vectors.v, across.rows, 0, 0);
            let right = Factor::at(&inner.v, strip.len(), 0, 0);
            add_product(sizes, -T::ONE, left, right, (&mut c.v, row * n + strip.start, n));
        }
    }
}

impl<T: Real> Matrix<T> {
    /// The number of columns before the first that has an element other than zero in the rows from `row` on.
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

    #[test]
    fn factors_multiply_back() {
        for (rows, columns) in [(4, 3), (3, 4), (150, 140), (200, 131), (131, 200)] {
            let a = Matrix::from_fn(rows, columns, |i, j| ((i * 7 + j * 5 + i * j) % 11) as f64 - 4.0);
            let mut f = a.clone();
            let taus = householder_qr(&mut f);
            let mut r = Matrix::from_fn(rows, columns, |i, j| if i <= j { f.at(i, j) } else { 0.0 });
            let upper = r.clone();
            apply_reflections(&f, &taus, &mut r, false);
            let far = |a: &Matrix, b: &Matrix| a.v.iter().zip(&b.v).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            assert!(far(&r, &a) < 1e-11, "{rows} {columns}");
            apply_reflections(&f, &taus, &mut r, true);
            assert!(far(&r, &upper) < 1e-11, "{rows} {columns}");
        }
    }
}
