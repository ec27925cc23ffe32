//! Products of Householder reflections, in blocks: `1 - V T V^T` is the product of the reflections whose vectors are the columns of `V`
//! (Schreiber and Van Loan 1989).

use super::blocks::{BLOCK, blocks};
use super::lines::{reflect_rows, reflection};
use super::matrix::Matrix;
use crate::tensor::{wide_function, with_wide_vectors};
use std::ops::Range;

/// In-place Householder QR (`geqrf`): R is stored above and on the diagonal, the reflection vectors (whose first
/// element is 1) below it. Returns the factors of the reflections.
pub(in crate::op::rows) fn householder_qr(a: &mut Matrix) -> Vec<f64> {
    let (least, n) = (a.rows.min(a.columns), a.columns);
    let mut taus = vec![];
    if least <= 2 * BLOCK {
        reflect_columns(a, 0..least, n, &mut taus);
        return taus;
    }
    for columns in blocks(least) {
        reflect_columns(a, columns.clone(), columns.end, &mut taus);
        let block = Reflections::new(a, &taus, columns.clone());
        block.apply(a, columns.start, columns.end..n, true);
    }
    taus
}

wide_function! {
    /// Reflects some columns, and those after them that are before `end`.
    fn reflect_columns = reflect_columns_body(a: &mut Matrix, columns: Range<usize>, end: usize, taus: &mut Vec<f64>)
}

#[inline(always)]
fn reflect_columns_body(a: &mut Matrix, columns: Range<usize>, end: usize, taus: &mut Vec<f64>) {
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
pub(in crate::op::rows) fn apply_reflections(vectors: &Matrix, taus: &[f64], c: &mut Matrix, transposed: bool) {
    let n = taus.len().min(vectors.columns).min(c.rows);
    if n <= BLOCK {
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
        true => blocks(n).for_each(apply_columns),
        false => blocks(n).rev().for_each(apply_columns),
    }
}

wide_function! {
    /// Multiplies by one reflection after the other.
    fn apply_each = apply_each_body(vectors: &Matrix, taus: &[f64], c: &mut Matrix, transposed: bool)
}

#[inline(always)]
fn apply_each_body(vectors: &Matrix, taus: &[f64], c: &mut Matrix, transposed: bool) {
    let (mut v, mut sums) = (vec![], vec![]);
    for i in 0..taus.len() {
        let k = if transposed { i } else { taus.len() - 1 - i };
        v.clear();
        v.push(1.0);
        v.extend((k + 1..c.rows).map(|i| vectors.at(i, k)));
        reflect_rows(c, k, 0..c.columns, &v, taus[k], &mut sums);
    }
}

/// The transposed product of the reflections whose vectors are right of the diagonal of a square part, from its first row on.
pub(super) fn basis_of_rows(a: &Matrix, taus: &[f64]) -> Matrix {
    let n = a.columns;
    let Some(last) = n.checked_sub(1) else {
        return Matrix::zeros(0, 0);
    };
    // They leave the first coordinate unchanged.
    let vectors = Matrix::from_fn(last, last, |i, k| a.at(k, i + 1));
    let mut inner = Matrix::eye(last);
    apply_reflections(&vectors, &taus[..last], &mut inner, false);
    Matrix::from_fn(n, n, |i, j| match (i, j) {
        (0, _) | (_, 0) => (i == j) as u8 as f64,
        _ => inner.at(j - 1, i - 1),
    })
}

/// The number of columns that are multiplied at once.
const STRIP: usize = 96;

/// The product of some neighbouring reflections.
struct Reflections {
    /// A reflection's vector per column.
    vectors: Matrix,
    across: Matrix,
    /// The upper triangle `T`.
    factors: Matrix,
}

impl Reflections {
    fn new(a: &Matrix, taus: &[f64], columns: Range<usize>) -> Reflections {
        let (k, n) = (columns.start, columns.len());
        let vectors = Matrix::from_fn(a.rows - k, n, |i, j| match i.cmp(&j) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => 1.0,
            std::cmp::Ordering::Greater => a.at(k + i, k + j),
        });
        let across = vectors.transposed();
        let products = across.times(&vectors);
        let mut factors = Matrix::zeros(n, n);
        for j in 0..n {
            let tau = taus[k + j];
            for i in 0..j {
                let sum: f64 = (i..j).map(|p| factors.at(i, p) * products.at(p, j)).sum();
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
        self.vectors.v.iter().chain(&self.factors.v).all(|x| x.is_finite())
    }

    /// Multiplies some columns of the rows of `c` from `row` on from the left by the product, or by its transpose. A few columns at a time
    /// stay in a near cache.
    fn apply(&self, c: &mut Matrix, row: usize, columns: Range<usize>, transposed: bool) {
        let n = c.columns;
        let across = match transposed {
            true => self.factors.transposed().times(&self.across),
            false => self.factors.times(&self.across),
        };
        for start in columns.clone().step_by(STRIP) {
            let strip = start..columns.end.min(start + STRIP);
            let part = c.part(row..c.rows, strip.clone());
            let product = self.vectors.times(&across.times(&part));
            with_wide_vectors(|| {
                for (i, line) in product.v.chunks_exact(strip.len()).enumerate() {
                    let out = &mut c.v[(row + i) * n..][strip.clone()];
                    out.iter_mut().zip(line).for_each(|(y, x)| *y -= x);
                }
            });
        }
    }
}

impl Matrix {
    /// The number of columns before the first that has an element other than zero in the rows from `row` on.
    fn zero_columns(&self, row: usize) -> usize {
        let n = self.columns;
        let rows = self.v[row * n..].chunks_exact(n.max(1));
        rows.fold(n, |least, row| {
            row[..least].iter().position(|x| *x != 0.0).unwrap_or(least)
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
