//! The eigenvalues of tridiagonal matrices by implicit QL steps (Martin, Reinsch and Wilkinson 1968; Dubrulle 1970).

use crate::linalg::real::Real;
use crate::linalg::rotations::RotatedRows;
use crate::tensor::wide_function;

/// The maximum number of steps per eigenvalue. Two are common.
pub(in crate::linalg) const STEPS: usize = 60;

/// What counts as zero beside elements of about one. It is far below their rounding errors, and no product of four such numbers underflows:
/// otherwise rotations of the remainder of a matrix of low rank would not be orthogonal.
pub(in crate::linalg) const TINY: f64 = 1e-30;

/// What counts as zero beside elements of 1 in eigenvalues that are rounded to f32: less than a thousandth of their last place.
const NARROW_EPSILON: f64 = 1.0 / (1u64 << 34) as f64;

/// The eigenvalues of a tridiagonal matrix in any order, in place of its diagonal.
pub(in crate::linalg) fn diagonalise(d: &mut [f64], e: &mut [f64]) {
    find_eigenvalues(d, e, f64::EPSILON);
}

/// [`diagonalise`] for eigenvalues that are rounded to f32, which takes fewer steps.
pub(in crate::linalg) fn diagonalise_narrow(d: &mut [f64], e: &mut [f64]) {
    find_eigenvalues(d, e, NARROW_EPSILON);
}

wide_function! {
    /// The eigenvalues of a tridiagonal matrix, where elements below the diagonal are zero if they are smaller than `epsilon` times those
    /// beside them.
    fn find_eigenvalues = root_free_ql(d: &mut [f64], e: &mut [f64], epsilon: f64)
}

wide_function! {
    /// The eigenvalues of a tridiagonal matrix in any order, in place of its diagonal; the rows of `vectors` are rotated with it.
    pub(super) fn diagonalise_vectors = implicit_ql<T: Real>(d: &mut [f64], e: &mut [f64], vectors: &mut RotatedRows<T>)
}

/// The eigenvalues of a tridiagonal matrix, in place of its diagonal, without the square root of each rotation (Pal, Walker and Kahan;
/// LAPACK's `sterf`).
#[inline(always)]
fn root_free_ql(d: &mut [f64], e: &mut [f64], epsilon: f64) {
    let n = d.len();
    e.iter_mut().for_each(|x| *x *= *x);
    for l in 0..n {
        for _ in 0..STEPS {
            let bound = |m: usize| TINY + epsilon * (d[m].abs() + d[m + 1].abs());
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
    let shift = d[l] - root / (ratio + (ratio * ratio + 1.0).sqrt().copysign(ratio));
    let (mut cos, mut sin, mut gamma) = (1.0, 0.0, d[m] - shift);
    let mut p = gamma * gamma;
    for i in (l..m).rev() {
        let square = e[i];
        let r = p + square;
        if i + 1 < m {
            e[i + 1] = sin * r;
        }
        let before = (cos, gamma);
        // The reciprocal of the cosine is computed independently of it, so that neither division waits for the other.
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
        // The squares of smaller numbers are inexact.
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
