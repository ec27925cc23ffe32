//! Singular values and vectors: Householder's reduction to a bidiagonal matrix, and the implicit QR algorithm (Golub and Kahan 1965;
//! Golub and Reinsch 1970; the tests for splitting are LINPACK's `dsvdc`).

use super::bands::{Band, append_descending, diagonalise_all};
use super::eigen::jacobi_svd;
use super::interleaved_bidiagonal;
use super::lines::{divide_all, magnitude};
use super::matrix::Matrix;
use super::real::Real;
use super::reduction::{Bidiagonal, bidiagonal};
use super::reflections::{apply_reflections, apply_reflections_of_rows, basis_of_rows};
use super::rotations::RotatedRows;
use super::squared::squared_svd;
use super::transfer::Matrices;
use crate::tensor::wide_function;

/// The maximum number of steps per singular value. Two are common.
pub(super) const STEPS: usize = 75;
/// What counts as zero next to elements of a magnitude of about one: far below their rounding errors, and so large that no product of four
/// such numbers underflows. Else steps on what is left of a matrix of low rank would not converge.
pub(super) const TINY: f64 = 1e-30;

/// The singular values of matrices of finite numbers in descending order.
pub(super) fn singular_values_of_all<T: Real>(all: &Matrices) -> Vec<f64> {
    let bidiagonal_of = |i: usize| {
        let mut m = Matrix::<T>::zeros(0, 0);
        match all.rows < all.columns {
            true => all.read_transposed(i, &mut m),
            false => all.read(i, &mut m),
        }
        scaled_bidiagonal(m)
    };
    let mut bands: Vec<Band> = (0..all.count).map(bidiagonal_of).collect();
    diagonalise_all(&mut bands, diagonalise, interleaved_bidiagonal::diagonalise);
    let mut out = vec![];
    for band in bands {
        append_descending(band.diagonal.into_iter(), band.scale, &mut out);
    }
    out
}

/// The bidiagonal form of a matrix that has no more columns than rows.
fn scaled_bidiagonal<T: Real>(mut a: Matrix<T>) -> Band {
    let scale = magnitude(&a.v);
    divide_all(&mut a.v, scale);
    let Bidiagonal { diagonal, above, .. } = bidiagonal(&mut a);
    Band {
        diagonal,
        beside: above,
        scale,
    }
}

/// Below this number of columns, rotations of pairs (Jacobi) are faster.
pub(super) const FEW_COLUMNS: usize = 16;

/// Singular values in descending order, with U `[m, k]` and V `[n, k]`, k = min(m, n).
pub(in crate::op::rows) fn svd_of(m: &Matrix) -> (Matrix, Vec<f64>, Matrix) {
    match m.rows.min(m.columns) < FEW_COLUMNS || !m.is_finite() {
        true => jacobi_svd(m),
        false => large_svd(m),
    }
}

/// [`svd_of`] for matrices of many columns and finite numbers.
pub(in crate::op::rows) fn large_svd<T: Real>(m: &Matrix<T>) -> (Matrix<T>, Vec<f64>, Matrix<T>) {
    if m.rows < m.columns {
        let (u, s, v) = large_svd(&m.transposed());
        return (v, s, u);
    }
    let (mut a, scale) = (m.clone(), magnitude(&m.v));
    divide_all(&mut a.v, scale);
    let b = bidiagonal(&mut a);
    let (left, mut values, right) = match squared_svd(&b) {
        Some((u, values, mut right)) => {
            apply_reflections_of_rows(&a, &b.right, &mut right);
            (left_vectors(&a, &b.left, &u), values, right)
        }
        None => rotated_svd(&a, b),
    };
    values.iter_mut().for_each(|x| *x *= scale);
    (left, values, right)
}

/// The reflections from the left times these rows, with zeros below them.
fn left_vectors<T: Real>(a: &Matrix<T>, taus: &[T], rows: &Matrix<T>) -> Matrix<T> {
    let mut out = Matrix::zeros(a.rows, rows.columns);
    out.v[..rows.v.len()].copy_from_slice(&rows.v);
    apply_reflections(a, taus, &mut out, false);
    out
}

/// The singular values and vectors of a bidiagonal matrix by rotations; `a` has the vectors of the reflections that lead to it.
fn rotated_svd<T: Real>(a: &Matrix<T>, b: Bidiagonal<T>) -> (Matrix<T>, Vec<f64>, Matrix<T>) {
    let Bidiagonal {
        mut diagonal,
        mut above,
        left,
        right,
    } = b;
    let columns = left_vectors(a, &left, &Matrix::eye(a.columns));
    let mut vectors = Vectors {
        left: RotatedRows::new(&columns.transposed()),
        right: RotatedRows::new(&basis_of_rows(a, &right)),
    };
    diagonalise_vectors(&mut diagonal, &mut above, &mut vectors);
    let mut order: Vec<usize> = (0..diagonal.len()).collect();
    order.sort_by(|&i, &j| diagonal[j].abs().total_cmp(&diagonal[i].abs()));
    let (left, mut right) = (vectors.left.finish(&order), vectors.right.finish(&order));
    for row in right.v.chunks_exact_mut(order.len().max(1)) {
        for (x, &j) in row.iter_mut().zip(&order) {
            *x = if diagonal[j].is_sign_negative() { -*x } else { *x };
        }
    }
    (left, order.iter().map(|&j| diagonal[j].abs()).collect(), right)
}

wide_function! {
    fn diagonalise_vectors = implicit_qr<F: RotationFollower>(s: &mut [f64], e: &mut [f64], vectors: &mut F)
}

/// The singular values of a bidiagonal matrix in any order, with any signs, in place of its diagonal.
pub(super) fn diagonalise(s: &mut [f64], e: &mut [f64]) {
    diagonalise_vectors(s, e, &mut ());
}

/// What follows the rotations of a bidiagonal matrix.
trait RotationFollower {
    /// Rotates columns `x` and `y` of U.
    fn left(&mut self, x: usize, y: usize, cos: f64, sin: f64);
    /// Rotates columns `x` and `y` of V.
    fn right(&mut self, x: usize, y: usize, cos: f64, sin: f64);
}

impl RotationFollower for () {
    #[inline(always)]
    fn left(&mut self, _: usize, _: usize, _: f64, _: f64) {}
    #[inline(always)]
    fn right(&mut self, _: usize, _: usize, _: f64, _: f64) {}
}

/// Singular vectors, as rows.
struct Vectors<T> {
    left: RotatedRows<T>,
    right: RotatedRows<T>,
}

impl<T: Real> RotationFollower for Vectors<T> {
    #[inline(always)]
    fn left(&mut self, x: usize, y: usize, cos: f64, sin: f64) {
        self.left.rotate(x, y, cos, sin);
    }
    #[inline(always)]
    fn right(&mut self, x: usize, y: usize, cos: f64, sin: f64) {
        self.right.rotate(x, y, cos, sin);
    }
}

/// Cosine, sine and length of the rotation that maps `(f, g)` to `(length, 0)`.
#[inline(always)]
fn rotation(f: f64, g: f64) -> (f64, f64, f64) {
    let length = (f * f + g * g).sqrt();
    // The squares of smaller numbers are not exact.
    if length < 1e-140 {
        (1.0, 0.0, 0.0)
    } else {
        (f / length, g / length, length)
    }
}

/// Makes a bidiagonal matrix diagonal.
#[inline(always)]
fn implicit_qr<F: RotationFollower>(s: &mut [f64], e: &mut [f64], vectors: &mut F) {
    let (mut end, mut steps) = (s.len(), STEPS * s.len());
    while end > 1 && steps > 0 {
        steps -= 1;
        // The block that ends here starts after the last zero above the diagonal.
        let negligible = |k: &usize| e[*k].abs() <= TINY + f64::EPSILON * (s[*k].abs() + s[*k + 1].abs());
        let zero = (0..end - 1).rev().find(negligible);
        let from = zero.map_or(0, |k| k + 1);
        if let Some(k) = zero {
            e[k] = 0.0;
        }
        if from == end - 1 {
            end -= 1;
            continue;
        }
        match zero_on_diagonal(s, e, from, end) {
            Some(k) if k == end - 1 => clear_last(s, e, from, end, vectors),
            Some(k) => clear_row(s, e, k, end, vectors),
            None => qr_step(s, e, from, end, vectors),
        }
    }
}

/// The last negligible element of the diagonal in the block; it is set to 0.
#[inline(always)]
fn zero_on_diagonal(s: &mut [f64], e: &[f64], from: usize, end: usize) -> Option<usize> {
    let off_diagonal = |k: usize| {
        let left = if k > from { e[k - 1].abs() } else { 0.0 };
        left + if k + 1 < end { e[k].abs() } else { 0.0 }
    };
    let k = (from..end)
        .rev()
        .find(|&k| s[k].abs() <= TINY + f64::EPSILON * off_diagonal(k))?;
    s[k] = 0.0;
    Some(k)
}

/// The last element of the diagonal is 0: rotates away the column above it.
#[inline(always)]
fn clear_last(s: &mut [f64], e: &mut [f64], from: usize, end: usize, vectors: &mut impl RotationFollower) {
    let mut f = std::mem::take(&mut e[end - 2]);
    for j in (from..end - 1).rev() {
        let (cos, sin, length) = rotation(s[j], f);
        s[j] = length;
        if j > from {
            f = -sin * e[j - 1];
            e[j - 1] *= cos;
        }
        vectors.right(j, end - 1, cos, sin);
    }
}

/// Element `k` of the diagonal is 0: rotates away the row right of it.
#[inline(always)]
fn clear_row(s: &mut [f64], e: &mut [f64], k: usize, end: usize, vectors: &mut impl RotationFollower) {
    let mut f = std::mem::take(&mut e[k]);
    for j in k + 1..end {
        let (cos, sin, length) = rotation(s[j], f);
        s[j] = length;
        f = -sin * e[j];
        e[j] *= cos;
        vectors.left(j, k, cos, sin);
    }
}

/// A step with the shift of the last 2 x 2 block.
#[inline(always)]
fn qr_step(s: &mut [f64], e: &mut [f64], from: usize, end: usize, vectors: &mut impl RotationFollower) {
    let (sp, before, above) = (s[end - 1], s[end - 2], e[end - 2]);
    let b = ((before + sp) * (before - sp) + above * above) / 2.0;
    let c = (sp * above) * (sp * above);
    let root = (b * b + c).sqrt().copysign(b);
    let shift = if b + root == 0.0 { 0.0 } else { c / (b + root) };
    let (mut f, mut g) = ((s[from] + sp) * (s[from] - sp) + shift, s[from] * e[from]);
    for j in from..end - 1 {
        let (cos, sin, length) = rotation(f, g);
        if j > from {
            e[j - 1] = length;
        }
        f = cos * s[j] + sin * e[j];
        e[j] = cos * e[j] - sin * s[j];
        g = sin * s[j + 1];
        s[j + 1] *= cos;
        vectors.right(j, j + 1, cos, sin);
        let (cos, sin, length) = rotation(f, g);
        s[j] = length;
        f = cos * e[j] + sin * s[j + 1];
        s[j + 1] = cos * s[j + 1] - sin * e[j];
        if j + 2 < end {
            g = sin * e[j + 1];
            e[j + 1] *= cos;
        }
        vectors.left(j, j + 1, cos, sin);
    }
    e[end - 2] = f;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn singular_values_of(m: &Matrix) -> Vec<f64> {
        let mut band = scaled_bidiagonal(if m.rows < m.columns { m.transposed() } else { m.clone() });
        diagonalise(&mut band.diagonal, &mut band.beside);
        let mut out = vec![];
        append_descending(band.diagonal.into_iter(), band.scale, &mut out);
        out
    }

    /// Ranks from none to full, zeros on the diagonal, and sizes around the lanes of sums.
    #[test]
    fn singular_values_are_those_of_rotations() {
        for (rows, columns) in [(0, 0), (3, 0), (1, 1), (2, 5), (5, 2), (9, 9), (40, 17), (17, 40)] {
            for modulus in [1, 2, 3, 7, 11] {
                let wave = |i: usize, j: usize| (((i * 7 + j * 5 + i * j) % modulus) as f64 - 1.0) * 1e200;
                let shifted = |i: usize, j: usize| (j == i + 1 || (i == j && !i.is_multiple_of(modulus))) as u8 as f64;
                for m in [
                    Matrix::from_fn(rows, columns, wave),
                    Matrix::from_fn(rows, columns, shifted),
                ] {
                    let (got, want) = (singular_values_of(&m), jacobi_svd(&m).1);
                    let most = want.first().copied().unwrap_or(0.0);
                    assert_eq!(got.len(), want.len());
                    for (x, y) in got.iter().zip(&want) {
                        assert!(
                            (x - y).abs() <= 1e-13 * most,
                            "{rows} {columns} {modulus}: {got:?} {want:?}"
                        );
                    }
                }
            }
        }
    }

    /// The factors are orthogonal, and their product is the matrix, for ranks from none to full.
    #[test]
    fn singular_vectors_multiply_back() {
        for (rows, columns) in [(16, 16), (17, 40), (40, 17), (150, 130)] {
            let near = 1e-14 * rows.max(columns) as f64;
            for modulus in [1, 2, 3, 7, 11] {
                let wave = |i: usize, j: usize| ((i * 7 + j * 5 + i * j) % modulus) as f64 - 1.0;
                let shifted = |i: usize, j: usize| (j == i + 1 || (i == j && !i.is_multiple_of(modulus))) as u8 as f64;
                for m in [
                    Matrix::from_fn(rows, columns, wave),
                    Matrix::from_fn(rows, columns, shifted),
                ] {
                    let (u, s, v) = svd_of(&m);
                    let far =
                        |a: &Matrix, b: &Matrix| a.v.iter().zip(&b.v).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                    let scaled = Matrix::from_fn(u.rows, s.len(), |i, j| u.at(i, j) * s[j]);
                    assert!(
                        far(&scaled.times(&v.transposed()), &m) <= near * s[0],
                        "{rows} {columns} {modulus}"
                    );
                    for q in [&u, &v] {
                        assert!(
                            far(&q.transposed().times(q), &Matrix::eye(s.len())) < near,
                            "{rows} {columns} {modulus}"
                        );
                    }
                    assert!(s.is_sorted_by(|x, y| x >= y) && s.iter().all(|x| *x >= 0.0));
                }
            }
        }
    }

    /// The product of the three factors is the matrix, also where squares of its elements overflow.
    #[test]
    fn factors_of_large_matrices_give_the_matrix() {
        for (rows, columns) in [(5, 5), (9, 4), (4, 9)] {
            let m = Matrix::from_fn(rows, columns, |i, j| ((i * 3 + j * j) as f64 - 4.0) * 1e200);
            let (u, s, v) = jacobi_svd(&m);
            for i in 0..rows {
                for j in 0..columns {
                    let sum: f64 = (0..s.len()).map(|k| u.at(i, k) * s[k] * v.at(j, k)).sum();
                    assert!((sum - m.at(i, j)).abs() <= 1e-13 * s[0], "{rows} {columns}");
                }
            }
        }
    }

    /// Also where what is left of a matrix of rank one nearly underflows.
    #[test]
    fn narrow_singular_vectors_multiply_back() {
        for (rows, columns, modulus) in [(26, 26, 11), (17, 40, 11), (80, 70, 11), (200, 200, 1)] {
            let wave = |i: usize, j: usize| ((i * 7 + j * 5 + i * j) % modulus) as f32 - 1.0;
            let m = Matrix::from_fn(rows, columns, wave);
            let (u, s, v) = large_svd(&m);
            let scaled = Matrix::from_fn(u.rows, s.len(), |i, j| u.at(i, j) * s[j] as f32);
            let far =
                |a: &Matrix<f32>, b: &Matrix<f32>| a.v.iter().zip(&b.v).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
            assert!(
                far(&scaled.times(&v.transposed()), &m) <= 5e-6 * s[0] as f32,
                "{rows} {columns}"
            );
            for q in [&u, &v] {
                assert!(far(&q.transposed().times(q), &Matrix::eye(s.len())) < 2e-5);
            }
        }
    }
}
