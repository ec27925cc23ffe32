//! Singular values and vectors: Householder's reduction to a [`mod@bidiagonal`] matrix, and the [`implicit_qr`] algorithm or the
//! eigenvectors of its square ([`gram`]). A single small matrix is rotated by [`jacobi`].

mod bidiagonal;
mod gram;
pub(super) mod implicit_qr;
pub(super) mod jacobi;
mod least_squares;

pub(crate) use self::least_squares::LeastSquares;

use self::bidiagonal::{Bidiagonal, bidiagonal};
use self::gram::gram_svd;
use self::implicit_qr::{Vectors, diagonalise, diagonalise_vectors};
use self::jacobi::jacobi_svd;
use super::bands::{Band, append_descending, diagonalise_all};
use super::batch::{Matrices, Results};
use super::eigen;
use super::lanes;
use super::matrix::Matrix;
use super::qr::{apply_reflections, apply_reflections_of_rows, basis_of_rows};
use super::real::{Real, in_dtype};
use super::rotations::RotatedRows;
use super::scale::{divide_all, magnitude};
use super::threads::{in_parts, work_of};
use crate::linalg::LANES;
use std::ops::Range;

/// The singular values of matrices of finite numbers in descending order.
pub(crate) fn singular_values(all: &Matrices) -> Vec<f64> {
    match lanes::spectra::suits(all) {
        true => lanes::spectra::singular_values(all),
        false => in_dtype!(all, T => singular_values_in::<T>(all)),
    }
}

fn singular_values_in<T: Real>(all: &Matrices) -> Vec<f64> {
    let bidiagonal_of = |i: usize| {
        let mut m = Matrix::<T>::zeros(0, 0);
        match all.rows < all.columns {
            true => all.read_transposed(i, &mut m),
            false => all.read(i, &mut m),
        }
        scaled_bidiagonal(m)
    };
    let work = work_of(all.rows, all.columns).saturating_mul(4);
    let mut bands: Vec<Band> = in_parts(all.count, 1, work, |range| range.map(bidiagonal_of).collect());
    let one = if T::NARROW { diagonalise_squares } else { diagonalise };
    diagonalise_all(&mut bands, one, lanes::implicit_qr::diagonalise);
    let mut out = vec![];
    for band in bands {
        append_descending(band.diagonal.into_iter(), band.scale, &mut out);
    }
    out
}

/// The singular values of a bidiagonal matrix B in any order, in place of its diagonal, as roots of the eigenvalues of B^T B, whose steps
/// take half as long. Their errors, up to the root of f64's precision times the largest value, are below those of a matrix of f32.
fn diagonalise_squares(s: &mut [f64], e: &mut [f64]) {
    let mut before = 0.0;
    for (x, beside) in s.iter_mut().zip(&mut *e) {
        let (diagonal, above) = (*x, *beside);
        (*x, *beside) = (diagonal * diagonal + before * before, diagonal * above);
        before = above;
    }
    eigen::ql::diagonalise(s, e);
    s.iter_mut().for_each(|x| *x = x.max(0.0).sqrt());
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

/// Jacobi rotations are faster for fewer columns than this.
pub(super) const FEW_COLUMNS: usize = 16;

/// U, the singular values, and V.
pub(super) type Svd<T> = (Matrix<T>, Vec<f64>, Matrix<T>);

/// U, the singular values in descending order, and the transpose of V for matrices of finite numbers. U and V are square if `full`.
pub(crate) fn singular_vectors(all: &Matrices, full: bool) -> (Results, Vec<f64>, Results) {
    if lanes::suits(all.count, all.rows, all.columns) {
        return pack_svd(all, full, LANES, |range| {
            let groups = lanes::groups(range.clone());
            groups.flat_map(move |first| lanes::spectra::svd_of_group(all, first))
        });
    }
    match all.are_narrow() && all.rows.min(all.columns) >= FEW_COLUMNS {
        true => pack_svd::<f32, _>(all, full, 1, |range| range.map(|i| large_svd(&all.matrix(i)))),
        false => pack_svd::<f64, _>(all, full, 1, |range| range.map(|i| svd_of(&all.matrix(i)))),
    }
}

/// The results that `each` yields for ranges of matrices, which begin at multiples of `step`.
fn pack_svd<T: Real, I: Iterator<Item = Svd<T>>>(
    all: &Matrices,
    full: bool,
    step: usize,
    each: impl Fn(Range<usize>) -> I + Sync,
) -> (Results, Vec<f64>, Results) {
    // Rotations take many times as long as a factorisation.
    let work = work_of(all.rows, all.columns).saturating_mul(16);
    let (left, values, right) = in_parts(all.count, step, work, |range| {
        let (mut left, mut values, mut right) = (vec![], vec![], vec![]);
        for (mut u, s, mut v) in each(range) {
            if full {
                let k = s.len();
                (u, v) = (complete_basis(u, k, all.rows), complete_basis(v, k, all.columns));
            }
            left.extend(u.v);
            values.extend(s);
            right.extend(v.transposed().v);
        }
        (left, values, right)
    });
    (T::results(left), values, T::results(right))
}

/// U `[m, k]`, the singular values in descending order, and V `[n, k]`, k = min(m, n).
pub(super) fn svd_of(m: &Matrix) -> Svd<f64> {
    match m.rows.min(m.columns) < FEW_COLUMNS || !m.is_finite() {
        true => jacobi_svd(m),
        false => large_svd(m),
    }
}

/// [`svd_of`] for matrices of many columns and finite numbers.
pub(super) fn large_svd<T: Real>(m: &Matrix<T>) -> Svd<T> {
    if m.rows < m.columns {
        let (u, s, v) = large_svd(&m.transposed());
        return (v, s, u);
    }
    let (mut a, scale) = (m.clone(), magnitude(&m.v));
    divide_all(&mut a.v, scale);
    let b = bidiagonal(&mut a);
    let (left, mut values, right) = match gram_svd(&b) {
        Some((u, values, mut right)) => {
            apply_reflections_of_rows(&a, &b.right, &mut right);
            (left_vectors(&a, &b.left, &u), values, right)
        }
        None => rotated_svd(&a, b),
    };
    values.iter_mut().for_each(|x| *x *= scale);
    (left, values, right)
}

/// The product of the reflections from the left and these rows with zeros below them.
fn left_vectors<T: Real>(a: &Matrix<T>, taus: &[T], rows: &Matrix<T>) -> Matrix<T> {
    let mut out = Matrix::zeros(a.rows, rows.columns);
    out.v[..rows.v.len()].copy_from_slice(&rows.v);
    apply_reflections(a, taus, &mut out, false);
    out
}

/// The singular values and vectors of a matrix by rotations of its bidiagonal form. `a` has the vectors of the reflections that lead to it.
fn rotated_svd<T: Real>(a: &Matrix<T>, b: Bidiagonal<T>) -> Svd<T> {
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

/// Extends the first `known` columns of `m`, which are orthonormal, to `count` orthonormal columns.
pub(super) fn complete_basis<T: Real>(m: Matrix<T>, known: usize, count: usize) -> Matrix<T> {
    if known == count && m.columns == count {
        return m;
    }
    let mut out = Matrix::from_fn(m.rows, count, |i, j| if j < known { m.at(i, j) } else { T::ZERO });
    let mut axes = 0..m.rows;
    for j in known..count {
        for axis in axes.by_ref() {
            let mut x: Vec<f64> = (0..m.rows).map(|i| (i == axis) as u8 as f64).collect();
            // Orthogonalise twice: the first pass leaves rounding errors.
            for k in (0..j).chain(0..j) {
                let at = |i: usize| -> f64 { out.at(i, k).into() };
                let dot: f64 = (0..m.rows).map(|i| x[i] * at(i)).sum();
                (0..m.rows).for_each(|i| x[i] -= dot * at(i));
            }
            let length = x.iter().map(|x| x * x).sum::<f64>().sqrt();
            if length > 1e-3 {
                (0..m.rows).for_each(|i| out.set(i, j, T::nearest(x[i] / length)));
                break;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::testing::far;

    fn values_of(m: &Matrix, diagonalise: fn(&mut [f64], &mut [f64])) -> Vec<f64> {
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
                    let (got, want) = (values_of(&m, diagonalise), jacobi_svd(&m).1);
                    let most = want.first().copied().unwrap_or(0.0);
                    assert_eq!(got.len(), want.len());
                    for (x, y) in got.iter().zip(&want) {
                        assert!(
                            (x - y).abs() <= 1e-13 * most,
                            "{rows} {columns} {modulus}: {got:?} {want:?}"
                        );
                    }
                    for (x, y) in values_of(&m, diagonalise_squares).iter().zip(&want) {
                        assert!((x - y).abs() <= 3e-8 * most, "{rows} {columns} {modulus}: {x} {y}");
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
            assert!(
                far(&scaled.times(&v.transposed()), &m) <= 5e-6 * s[0],
                "{rows} {columns}"
            );
            for q in [&u, &v] {
                assert!(far(&q.transposed().times(q), &Matrix::eye(s.len())) < 2e-5);
            }
        }
    }
}
