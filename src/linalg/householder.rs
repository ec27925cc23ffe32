//! Single Householder reflections.

use super::matrix::Matrix;
use super::real::Real;
use super::vectors::{add_rows, add_scaled, dot};
use std::ops::Range;

/// Turns a vector into a Householder reflection `1 - tau v v^T` that maps it to `[beta, 0, …]` (LAPACK's `larfg`). The
/// first element of `v` is 1. Returns tau and beta.
#[inline(always)]
pub(super) fn reflection<T: Real>(x: &mut [T]) -> (T, T) {
    let Some((first, rest)) = x.split_first_mut() else {
        return (T::ZERO, T::ZERO);
    };
    let below: f64 = length(rest);
    let alpha = std::mem::replace(first, T::ONE);
    if below == 0.0 {
        return (T::ZERO, alpha);
    }
    let alpha: f64 = alpha.into();
    let beta = -alpha.hypot(below).copysign(alpha);
    let divisor = T::nearest(alpha - beta);
    rest.iter_mut().for_each(|x| *x /= divisor);
    (T::nearest((beta - alpha) / beta), T::nearest(beta))
}

/// The length of a vector.
#[inline(always)]
fn length<T: Real>(x: &[T]) -> f64 {
    let square: f64 = dot(x, x).into();
    if !T::NARROW || (square > 1e-25 && square.is_finite()) {
        return square.sqrt();
    }
    // The squares overflowed in f32, or are so small that they are inexact.
    let sum = x.iter().fold(0.0, |sum: f64, x| {
        let x: f64 = (*x).into();
        sum + x * x
    });
    sum.sqrt()
}

/// [`reflection`] for vectors of a matrix whose largest elements are about one. If the squares of all elements but the first underflow,
/// these count as zero: the reflection would not be orthogonal otherwise.
#[inline(always)]
pub(super) fn scaled_reflection<T: Real>(x: &mut [T]) -> (T, T) {
    if let [_, rest @ ..] = x
        && dot(rest, rest) < T::NEGLIGIBLE
    {
        rest.fill(T::ZERO);
    }
    reflection(x)
}

/// Applies the reflection with the vector `v` from the left to some columns of the rows from `row` on. `sums` is scratch memory.
#[inline(always)]
pub(super) fn reflect_rows<T: Real>(
    a: &mut Matrix<T>,
    row: usize,
    columns: Range<usize>,
    v: &[T],
    tau: T,
    sums: &mut Vec<T>,
) {
    if tau == T::ZERO || columns.is_empty() {
        return;
    }
    let n = a.columns;
    sums.clear();
    sums.resize(columns.len(), T::ZERO);
    add_rows(sums, v, &a.v[row * n + columns.start..], n);
    for (i, x) in v.iter().enumerate() {
        add_scaled(&mut a.v[(row + i) * n..][columns.clone()], -tau * *x, sums);
    }
}
