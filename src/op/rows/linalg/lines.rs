//! Rows of matrices as vectors: what the factorisations spend their time in.

use super::matrix::Matrix;
use std::ops::Range;

/// `y += f * x`.
#[inline(always)]
pub(super) fn add_scaled(y: &mut [f64], f: f64, x: &[f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += f * x);
}

/// The columns whose sums stay in registers while rows are added to them.
const COLUMNS: usize = 32;

/// Subtracts from `y` the product of each factor and its row, one row after another. The rows begin `stride` elements apart.
#[inline(always)]
pub(super) fn subtract_rows(y: &mut [f64], factors: &[f64], rows: &[f64], stride: usize) {
    combine_rows(y, factors, rows, stride, |y, x| y - x);
}

/// Combines `y` with the product of each factor and its row: `y = combine(y, factor * row)`.
#[inline(always)]
fn combine_rows(y: &mut [f64], factors: &[f64], rows: &[f64], stride: usize, combine: impl Fn(f64, f64) -> f64 + Copy) {
    let (mut start, end) = (0, y.len());
    while end - start >= COLUMNS {
        combine_lanes::<COLUMNS>(&mut y[start..], factors, &rows[start..], stride, combine);
        start += COLUMNS;
    }
    while end - start >= COLUMNS / 4 {
        combine_lanes::<{ COLUMNS / 4 }>(&mut y[start..], factors, &rows[start..], stride, combine);
        start += COLUMNS / 4;
    }
    for j in start..end {
        combine_lanes::<1>(&mut y[j..], factors, &rows[j..], stride, combine);
    }
}

/// [`combine_rows`] for the first `N` columns.
#[inline(always)]
fn combine_lanes<const N: usize>(
    y: &mut [f64],
    factors: &[f64],
    rows: &[f64],
    stride: usize,
    combine: impl Fn(f64, f64) -> f64,
) {
    let mut sums = [0.0; N];
    sums.copy_from_slice(&y[..N]);
    for (k, f) in factors.iter().enumerate() {
        let row = &rows[k * stride..][..N];
        for j in 0..N {
            sums[j] = combine(sums[j], f * row[j]);
        }
    }
    y[..N].copy_from_slice(&sums);
}

/// The number of partial sums of an inner product.
pub(super) const LANES: usize = 8;

/// The sum of partial sums.
#[inline(always)]
pub(super) fn add_lanes(sums: [f64; LANES]) -> f64 {
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

/// The inner product, summed in [`LANES`] partial sums.
#[inline(always)]
pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (x, y) = (&x[..x.len().min(y.len())], &y[..x.len().min(y.len())]);
    let (a, b) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a.zip(b) {
        for i in 0..LANES {
            sums[i] += x[i] * y[i];
        }
    }
    add_lanes(sums) + rest
}

/// Turns a vector into a Householder reflection `1 - tau v v^T` that maps it to `[beta, 0, …]` (LAPACK's `larfg`). The
/// first element of `v` is 1. Returns tau and beta.
#[inline(always)]
pub(super) fn reflection(x: &mut [f64]) -> (f64, f64) {
    let Some((first, rest)) = x.split_first_mut() else {
        return (0.0, 0.0);
    };
    let below = dot(rest, rest).sqrt();
    let alpha = std::mem::replace(first, 1.0);
    if below == 0.0 {
        return (0.0, alpha);
    }
    let beta = -alpha.hypot(below).copysign(alpha);
    rest.iter_mut().for_each(|x| *x /= alpha - beta);
    ((beta - alpha) / beta, beta)
}

/// [`reflection`] for vectors of a matrix whose elements are about one: a rest whose squares would underflow counts as zero, because the
/// reflection would not be orthogonal.
#[inline(always)]
pub(super) fn scaled_reflection(x: &mut [f64]) -> (f64, f64) {
    const NOTHING: f64 = 1e-280;
    if let [_, rest @ ..] = x
        && dot(rest, rest) < NOTHING
    {
        rest.fill(0.0);
    }
    reflection(x)
}

/// Applies the reflection `v`, `tau` from the left to some columns of the rows from `row` on. `sums` is scratch memory.
#[inline(always)]
pub(super) fn reflect_rows(
    a: &mut Matrix,
    row: usize,
    columns: Range<usize>,
    v: &[f64],
    tau: f64,
    sums: &mut Vec<f64>,
) {
    if tau == 0.0 || columns.is_empty() {
        return;
    }
    let n = a.columns;
    sums.clear();
    sums.resize(columns.len(), 0.0);
    combine_rows(sums, v, &a.v[row * n + columns.start..], n, |y, x| y + x);
    for (i, x) in v.iter().enumerate() {
        add_scaled(&mut a.v[(row + i) * n..][columns.clone()], -tau * x, sums);
    }
}

/// The largest magnitude of an element, as a power of two; 1 for zeros.
pub(super) fn magnitude(v: &[f64]) -> f64 {
    let most = v.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    if most > 0.0 {
        2f64.powi(most.log2().floor().clamp(-1000.0, 1000.0) as i32)
    } else {
        1.0
    }
}
