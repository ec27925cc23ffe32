//! The singular values of bidiagonal matrices by implicit QR steps (Golub and Kahan 1965; Golub and Reinsch 1970; the tests for splitting
//! are LINPACK's `dsvdc`).

use crate::linalg::real::Real;
use crate::linalg::rotations::RotatedRows;
use crate::tensor::wide_function;

/// The maximum number of steps per singular value. Two are common.
pub(in crate::linalg) const STEPS: usize = 75;

/// What counts as zero beside elements of about one. It is far below their rounding errors, and no product of four such numbers underflows:
/// otherwise steps on the remainder of a matrix of low rank would not converge.
pub(in crate::linalg) const TINY: f64 = 1e-30;

wide_function! {
    /// The singular values of a bidiagonal matrix in any order, with any signs, in place of its diagonal; `vectors` follow the rotations.
    pub(super) fn diagonalise_vectors = implicit_qr<F: RotationFollower>(s: &mut [f64], e: &mut [f64], vectors: &mut F)
}

/// The singular values of a bidiagonal matrix in any order, with any signs, in place of its diagonal.
pub(in crate::linalg) fn diagonalise(s: &mut [f64], e: &mut [f64]) {
    diagonalise_vectors(s, e, &mut ());
}

/// Vectors that are rotated with a bidiagonal matrix.
pub(super) trait RotationFollower {
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
pub(super) struct Vectors<T> {
    pub(super) left: RotatedRows<T>,
    pub(super) right: RotatedRows<T>,
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
    // The squares of smaller numbers are inexact.
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

/// Rotates away the last column above the diagonal, whose last element is 0.
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

/// Rotates away the row right of element `k` of the diagonal, which is 0.
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

/// One step. The shift comes from the last 2 x 2 block.
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
