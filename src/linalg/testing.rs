//! What the tests of this stage share.

use super::matrix::Matrix;
use super::real::Real;

/// The largest difference between elements of two matrices, which have the same number of them.
pub(super) fn far<T: Real>(a: &Matrix<T>, b: &Matrix<T>) -> f64 {
    assert_eq!(a.v.len(), b.v.len());
    let size = |(x, y): (&T, &T)| -> f64 { (*x - *y).abs().into() };
    a.v.iter().zip(&b.v).map(size).fold(0.0, f64::max)
}

/// Fails if elements of two matrices differ by more than `near`.
#[track_caller]
pub(super) fn assert_close<T: Real>(a: &Matrix<T>, b: &Matrix<T>, near: f64) {
    let found = far(a, b);
    assert!(found <= near, "{found} is more than {near}");
}

/// A matrix that is not singular.
pub(super) fn wave(rows: usize, columns: usize) -> Matrix {
    Matrix::from_fn(rows, columns, |i, j| {
        ((i * 7 + j * 5 + i * j) % 11) as f64 - 4.0 + 9.0 * ((i * 3) % rows == j) as u8 as f64
    })
}
