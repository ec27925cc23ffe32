//! Singular values of a single small matrix by rotations of pairs of columns (Hestenes 1958), in f64.

use super::{Svd, complete_basis};
use crate::linalg::matrix::Matrix;
use crate::linalg::scale::magnitude;
use crate::linalg::vectors::dot;
use crate::tensor::wide_function;

/// The maximum number of rounds. Far fewer are common.
pub(in crate::linalg) const SWEEPS: usize = 60;

/// U `[m, k]`, the singular values in descending order, and V `[n, k]`, k = min(m, n). One-sided rotations make the columns orthogonal.
/// Their lengths are then the singular values.
pub(super) fn jacobi_svd(m: &Matrix) -> Svd<f64> {
    if m.rows < m.columns {
        let (u, s, v) = jacobi_svd(&m.transposed());
        return (v, s, u);
    }
    // Squares of unscaled numbers could overflow.
    let scale = magnitude(&m.v);
    // Columns are rotated as rows, whose elements are neighbours.
    let (mut a, mut v) = (m.transposed(), Matrix::eye(m.columns));
    a.v.iter_mut().for_each(|x| *x /= scale);
    for _ in 0..SWEEPS {
        if !rotate_pairs(&mut a, &mut v) {
            break;
        }
    }
    let lengths: Vec<f64> = (0..a.rows)
        .map(|j| a.row(j).iter().map(|x| x * x).sum::<f64>().sqrt())
        .collect();
    let mut order: Vec<usize> = (0..a.rows).collect();
    order.sort_by(|&i, &j| lengths[j].total_cmp(&lengths[i]));
    let values: Vec<f64> = order.iter().map(|&j| lengths[j]).collect();
    let right = Matrix::from_fn(v.rows, v.columns, |i, j| v.at(order[j], i));
    let tiny = values.first().copied().unwrap_or(0.0) * f64::EPSILON * m.rows as f64;
    let known = values.iter().take_while(|s| **s > tiny || s.is_nan()).count();
    let left = Matrix::from_fn(m.rows, m.columns, |i, j| match j < known {
        true => a.at(order[j], i) / values[j],
        false => 0.0,
    });
    let values = values.iter().map(|x| x * scale).collect();
    (complete_basis(left, known, m.columns), values, right)
}

wide_function! {
    /// Rotates each pair of rows of `m`, and those of `v` with them, so that those of `m` become orthogonal. Returns false if all already
    /// were.
    fn rotate_pairs = rotate_pairs_body(m: &mut Matrix, v: &mut Matrix) -> bool
}

#[inline(always)]
fn rotate_pairs_body(m: &mut Matrix, v: &mut Matrix) -> bool {
    let mut turned = false;
    for p in 0..m.rows {
        for q in p + 1..m.rows {
            let (x, y) = m.two_rows(p, q);
            let (a, b, g) = (dot(x, x), dot(y, y), dot(x, y));
            if g == 0.0 || g.is_nan() || g.abs() <= 1e-16 * (a * b).sqrt() {
                continue;
            }
            let (cos, sin) = rotation_angle(a, b, g);
            turn_rows(x, y, cos, sin);
            let (x, y) = v.two_rows(p, q);
            turn_rows(x, y, cos, sin);
            turned = true;
        }
    }
    turned
}

/// Cosine and sine of the rotation that diagonalises `[[a, g], [g, b]]`.
fn rotation_angle(a: f64, b: f64, g: f64) -> (f64, f64) {
    let ratio = (b - a) / (2.0 * g);
    let t = 1f64.copysign(ratio) / (ratio.abs() + ratio.hypot(1.0));
    let cos = 1.0 / t.hypot(1.0);
    (cos, cos * t)
}

#[inline(always)]
fn turn_rows(x: &mut [f64], y: &mut [f64], cos: f64, sin: f64) {
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (cos * *x - sin * *y, sin * *x + cos * *y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::testing::assert_close;

    fn diagonal(v: &[f64]) -> Matrix {
        Matrix::from_fn(v.len(), v.len(), |i, j| if i == j { v[i] } else { 0.0 })
    }

    #[test]
    fn singular_vectors_multiply_back() {
        // The matrix has rank 2, so the last vectors come from completing the basis.
        let a = Matrix::from_fn(3, 4, |i, j| (i + 1) as f64 * (j as f64 - 1.5) + (i * i) as f64);
        for m in [a.clone(), a.transposed()] {
            let (u, s, v) = jacobi_svd(&m);
            assert_close(&u.times(&diagonal(&s)).times(&v.transposed()), &m, 1e-12);
            assert_close(&u.transposed().times(&u), &Matrix::eye(3), 1e-12);
            assert!(s[2] < 1e-12 && s[0] > s[1]);
        }
        assert_eq!(jacobi_svd(&diagonal(&[3.0, -4.0])).1, [4.0, 3.0]);
    }
}
