//! Eigenvalues of symmetric matrices: Householder's reduction to a tridiagonal matrix, and the implicit QL algorithm
//! (Martin, Reinsch and Wilkinson 1968; Dubrulle 1970).

use super::bands::{Band, append_ascending, diagonalise_all};
use super::divided::{Eigen, tridiagonal_eigen};
use super::interleaved_symmetric;
use super::lines::{divide_all, magnitude};
use super::matrix::Matrix;
use super::real::Real;
use super::reflections::{apply_reflections_of_rows, basis_of_rows};
use super::rotations::RotatedRows;
use super::tridiagonal::{Tridiagonal, tridiagonal};
use crate::tensor::wide_function;

/// The maximum number of steps per eigenvalue. Two are common.
pub(super) const STEPS: usize = 60;

/// What counts as zero next to elements of a magnitude of about one: far below their rounding errors, and so large that no product of four
/// such numbers underflows. Else rotations of what is left of a matrix of low rank would not be orthogonal.
pub(super) const TINY: f64 = 1e-30;

/// The tridiagonal form of a symmetric matrix of finite numbers. Only the upper triangle counts, and is overwritten.
pub(super) fn tridiagonal_band<T: Real>(a: &mut Matrix<T>) -> Band {
    let (t, scale) = scaled_tridiagonal(a);
    Band {
        diagonal: t.diagonal,
        beside: t.below,
        scale,
    }
}

/// The eigenvalues of tridiagonal matrices, each in ascending order.
pub(super) fn eigenvalues_of_bands(mut bands: Vec<Band>) -> Vec<f64> {
    diagonalise_all(&mut bands, diagonalise, interleaved_symmetric::diagonalise);
    let mut out = vec![];
    for band in bands {
        append_ascending(band.diagonal.into_iter(), band.scale, &mut out);
    }
    out
}

/// Above this number of columns, tridiagonal matrices are divided.
const UNDIVIDED: usize = 32;

/// The eigenvalues of a symmetric matrix of finite numbers in ascending order, and its eigenvectors as columns. Only the upper triangle
/// counts, and is overwritten.
pub(in crate::op::rows) fn symmetric_eigen<T: Real>(a: &mut Matrix<T>) -> (Vec<f64>, Matrix<T>) {
    let (mut t, scale) = scaled_tridiagonal(a);
    let (mut values, vectors) = match a.rows > UNDIVIDED {
        true => {
            let found = tridiagonal_eigen::<T>(&mut t.diagonal, &mut t.below);
            let mut vectors = found.vectors.transposed();
            apply_reflections_of_rows(a, &t.taus, &mut vectors);
            (found.values, vectors)
        }
        false => rotated_eigen(&mut t.diagonal, &mut t.below, &basis_of_rows(a, &t.taus)),
    };
    values.iter_mut().for_each(|x| *x *= scale);
    (values, vectors)
}

/// The eigenvalues of a tridiagonal matrix in ascending order, and the rows of a basis as columns, rotated to eigenvectors.
fn rotated_eigen<T: Real>(d: &mut [f64], e: &mut [f64], basis: &Matrix<T>) -> (Vec<f64>, Matrix<T>) {
    let mut vectors = RotatedRows::new(basis);
    diagonalise_vectors(d, e, &mut vectors);
    let mut order: Vec<usize> = (0..d.len()).collect();
    order.sort_by(|&i, &j| d[i].total_cmp(&d[j]));
    (order.iter().map(|&i| d[i]).collect(), vectors.finish(&order))
}

/// The eigenvalues of a tridiagonal matrix, and its eigenvectors, by rotations.
pub(super) fn undivided_eigen<T: Real>(d: &mut [f64], e: &mut [f64]) -> Eigen<T> {
    let (values, vectors) = rotated_eigen(d, e, &Matrix::eye(d.len()));
    Eigen {
        values,
        vectors: vectors.transposed(),
    }
}

/// The tridiagonal matrix for `a` divided by a power of two, and that power.
fn scaled_tridiagonal<T: Real>(a: &mut Matrix<T>) -> (Tridiagonal<T>, f64) {
    let scale = magnitude(&a.v);
    divide_all(&mut a.v, scale);
    (tridiagonal(a), scale)
}

wide_function! {
    /// The eigenvalues of a tridiagonal matrix in any order, in place of its diagonal.
    pub(super) fn diagonalise = root_free_ql(d: &mut [f64], e: &mut [f64])
}

wide_function! {
    fn diagonalise_vectors = implicit_ql<T: Real>(d: &mut [f64], e: &mut [f64], vectors: &mut RotatedRows<T>)
}

/// The eigenvalues of a tridiagonal matrix, in place of its diagonal, without the square root of each rotation (Pal, Walker and Kahan;
/// LAPACK's `sterf`).
#[inline(always)]
fn root_free_ql(d: &mut [f64], e: &mut [f64]) {
    let n = d.len();
    e.iter_mut().for_each(|x| *x *= *x);
    for l in 0..n {
        for _ in 0..STEPS {
            let bound = |m: usize| TINY + f64::EPSILON * (d[m].abs() + d[m + 1].abs());
            let small = |m: &usize| *m + 1 == n || e[*m] <= bound(*m) * bound(*m);
            let m = (l..n).find(small).unwrap_or(n - 1);
            if m == l {
                break;
            }
            root_free_step(d, e, l, m);
        }
    }
}

/// One step with Wilkinson's shift on the block `l..=m`, where `e` has the squares of the elements below the diagonal.
#[inline(always)]
fn root_free_step(d: &mut [f64], e: &mut [f64], l: usize, m: usize) {
    let root = e[l].sqrt();
    let ratio = (d[l + 1] - d[l]) / (2.0 * root);
    let shift = d[l] - root / (ratio + ratio.hypot(1.0).copysign(ratio));
    let (mut cos, mut sin, mut gamma) = (1.0, 0.0, d[m] - shift);
    let mut p = gamma * gamma;
    for i in (l..m).rev() {
        let square = e[i];
        let r = p + square;
        if i + 1 < m {
            e[i + 1] = sin * r;
        }
        let before = (cos, gamma);
        // The reciprocal of the cosine does not wait for it.
        let inverse = r / p;
        (cos, sin) = (p / r, square / r);
        gamma = cos * (d[i] - shift) - sin * before.1;
        d[i + 1] = before.1 + (d[i] - gamma);
        p = if cos == 0.0 || !inverse.is_finite() {
            before.0 * square
        } else {
            gamma * gamma * inverse
        };
    }
    e[l] = sin * p;
    d[l] = shift + gamma;
}

/// Diagonalises a tridiagonal matrix; the rows of `vectors` are rotated with it.
#[inline(always)]
fn implicit_ql<T: Real>(d: &mut [f64], e: &mut [f64], vectors: &mut RotatedRows<T>) {
    let n = d.len();
    for l in 0..n {
        for _ in 0..STEPS {
            let small = |m: &usize| *m + 1 == n || e[*m].abs() <= TINY + f64::EPSILON * (d[*m].abs() + d[*m + 1].abs());
            let m = (l..n).find(small).unwrap_or(n - 1);
            if m == l {
                break;
            }
            ql_step(d, e, vectors, l, m);
        }
    }
}

/// One step with Wilkinson's shift on the block `l..=m`.
#[inline(always)]
fn ql_step<T: Real>(d: &mut [f64], e: &mut [f64], vectors: &mut RotatedRows<T>, l: usize, m: usize) {
    let ratio = (d[l + 1] - d[l]) / (2.0 * e[l]);
    let mut g = d[m] - d[l] + e[l] / (ratio + ratio.hypot(1.0).copysign(ratio));
    let (mut sin, mut cos, mut p) = (1.0, 1.0, 0.0);
    for i in (l..m).rev() {
        let (f, b) = (sin * e[i], cos * e[i]);
        let r = (f * f + g * g).sqrt();
        e[i + 1] = r;
        // The squares of smaller numbers are not exact.
        if r < 1e-140 {
            // The matrix splits here.
            d[i + 1] -= p;
            e[m] = 0.0;
            return;
        }
        (sin, cos) = (f / r, g / r);
        g = d[i + 1] - p;
        let r = (d[i] - g) * sin + 2.0 * cos * b;
        p = sin * r;
        d[i + 1] = g + p;
        g = cos * r - b;
        vectors.rotate(i, i + 1, cos, -sin);
    }
    d[l] -= p;
    e[l] = g;
    e[m] = 0.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(a: &Matrix, b: &Matrix) -> f64 {
        a.v.iter().zip(&b.v).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn eigenvectors_multiply_back() {
        // Sizes around the lanes of sums; multiples of the identity, repeated eigenvalues, and very different scales.
        for (n, scale) in [
            (0, 1.0),
            (1, 1.0),
            (2, 1.0),
            (7, 1e200),
            (8, 1e-200),
            (33, 1.0),
            (150, 1.0),
        ] {
            let wave = |i: usize, j: usize| ((i * j + i + j) % 5) as f64 * scale;
            let low_rank = |i: usize, j: usize| (((i * j + i + j) % 7) as f64 - 1.0) * scale;
            let equal = |i: usize, j: usize| ((i == j) as u8 as f64 + (i / 3 == j / 3) as u8 as f64) * scale;
            for a in [
                Matrix::from_fn(n, n, wave),
                Matrix::from_fn(n, n, low_rank),
                Matrix::from_fn(n, n, equal),
                Matrix::zeros(n, n),
            ] {
                let (values, v) = symmetric_eigen(&mut a.clone());
                let scaled = Matrix::from_fn(n, n, |i, j| v.at(i, j) * values[j]);
                assert!(far(&scaled.times(&v.transposed()), &a) <= 1e-12 * scale, "{n}");
                assert!(far(&v.transposed().times(&v), &Matrix::eye(n)) < 1e-13, "{n}");
                assert!(values.is_sorted());
                let alone = eigenvalues_of_bands(vec![tridiagonal_band(&mut a.clone())]);
                assert!(
                    alone.iter().zip(&values).all(|(x, y)| (x - y).abs() <= 1e-12 * scale),
                    "{n}"
                );
            }
        }
    }

    /// In f32, after so many rotations that rounded cosines would make the vectors longer.
    #[test]
    fn narrow_eigenvectors_multiply_back() {
        for n in [25, 100] {
            let a = Matrix::from_fn(n, n, |i, j| ((i * j + i + j) % 7) as f64 - 1.0);
            let mut narrow = Matrix::from_fn(n, n, |i, j| a.at(i, j) as f32);
            let (values, v) = symmetric_eigen(&mut narrow);
            let v = Matrix::from_fn(n, n, |i, j| f64::from(v.at(i, j)));
            let scaled = Matrix::from_fn(n, n, |i, j| v.at(i, j) * values[j]);
            assert!(far(&scaled.times(&v.transposed()), &a) <= 1e-4, "{n}");
            assert!(far(&v.transposed().times(&v), &Matrix::eye(n)) < 4e-6, "{n}");
        }
    }
}
