//! Loops over rows of matrices side by side.

use super::Lanes;
use crate::linalg::LANES;
use crate::linalg::vectors::end_of_element;

/// `y - f x` in every lane.
#[inline(always)]
pub(super) fn subtract_product(y: &mut Lanes, f: &Lanes, x: &Lanes) {
    for l in 0..LANES {
        y[l] -= f[l] * x[l];
    }
}

#[inline(always)]
pub(super) fn divide(y: &mut Lanes, x: &Lanes) {
    for l in 0..LANES {
        y[l] /= x[l];
    }
}

/// Subtracts from `row` the product of each factor and its row of `known`.
#[inline(always)]
pub(super) fn subtract_rows(row: &mut [Lanes], factors: &[Lanes], known: &[Lanes]) {
    if let [x] = row {
        for (f, k) in factors.iter().zip(known) {
            subtract_product(x, f, k);
        }
        return;
    }
    let r = row.len().max(1);
    for (f, k) in factors.iter().zip(known.chunks_exact(r)) {
        for (y, x) in row.iter_mut().zip(k) {
            subtract_product(y, f, x);
            end_of_element();
        }
    }
}

/// The inner products of vectors.
#[inline(always)]
pub(super) fn dot(x: &[Lanes], y: &[Lanes]) -> Lanes {
    let mut sum = [0.0; LANES];
    for (x, y) in x.iter().zip(y) {
        for l in 0..LANES {
            sum[l] += x[l] * y[l];
        }
    }
    sum
}
