//! Rows of matrices as vectors: what the factorisations spend their time in.

use super::matrix::Matrix;
use super::real::Real;
use std::ops::Range;

/// `y += f * x`.
#[inline(always)]
pub(super) fn add_scaled<T: Real>(y: &mut [T], f: T, x: &[T]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += f * *x);
}

/// Ends the body of a loop over elements of which a vector has one per lane. Without it, the compiler handles several elements at once,
/// gathered from memory, instead of all lanes of one.
#[inline(always)]
pub(super) fn end_of_element() {
    std::hint::black_box(());
}

/// The columns whose sums stay in registers while rows are added to them.
const COLUMNS: usize = 32;

/// Subtracts from `y` the product of each factor and its row, one row after another. The rows begin `stride` elements apart.
#[inline(always)]
pub(super) fn subtract_rows<T: Real>(y: &mut [T], factors: &[T], rows: &[T], stride: usize) {
    combine_rows(y, factors, rows, stride, |y, x| y - x);
}

/// Adds to `y` the product of each factor and its row, one row after another. The rows begin `stride` elements apart.
#[inline(always)]
pub(super) fn add_rows<T: Real>(y: &mut [T], factors: &[T], rows: &[T], stride: usize) {
    combine_rows(y, factors, rows, stride, |y, x| y + x);
}

/// Combines `y` with the product of each factor and its row: `y = combine(y, factor * row)`.
#[inline(always)]
fn combine_rows<T: Real>(y: &mut [T], factors: &[T], rows: &[T], stride: usize, combine: impl Fn(T, T) -> T + Copy) {
    const HALF: usize = COLUMNS / 2;
    const LEAST: usize = COLUMNS / 4;
    let (mut start, end) = (0, y.len());
    while T::NARROW && end - start >= 2 * COLUMNS {
        combine_lanes::<T, { 2 * COLUMNS }>(&mut y[start..], factors, &rows[start..], stride, 0, combine);
        start += 2 * COLUMNS;
    }
    while end - start >= COLUMNS {
        combine_lanes::<T, COLUMNS>(&mut y[start..], factors, &rows[start..], stride, 0, combine);
        start += COLUMNS;
    }
    if end - start >= HALF {
        combine_lanes::<T, HALF>(&mut y[start..], factors, &rows[start..], stride, 0, combine);
        start += HALF;
    }
    // The last columns are computed together with some before them, which are known.
    if end >= HALF && start < end {
        let first = end - HALF;
        combine_lanes::<T, HALF>(&mut y[first..], factors, &rows[first..], stride, start - first, combine);
        return;
    }
    if end - start >= LEAST {
        combine_lanes::<T, LEAST>(&mut y[start..], factors, &rows[start..], stride, 0, combine);
        start += LEAST;
    }
    for j in start..end {
        combine_lanes::<T, 1>(&mut y[j..], factors, &rows[j..], stride, 0, combine);
    }
}

/// [`combine_rows`] for the first `N` columns, of which the first `known` are left as they are.
#[inline(always)]
fn combine_lanes<T: Real, const N: usize>(
    y: &mut [T],
    factors: &[T],
    rows: &[T],
    stride: usize,
    known: usize,
    combine: impl Fn(T, T) -> T,
) {
    let mut sums = [T::ZERO; N];
    sums.copy_from_slice(&y[..N]);
    for (k, f) in factors.iter().enumerate() {
        let row = &rows[k * stride..][..N];
        for j in 0..N {
            sums[j] = combine(sums[j], *f * row[j]);
        }
    }
    match known {
        0 => y[..N].copy_from_slice(&sums),
        _ => y[known..N].copy_from_slice(&sums[known..]),
    }
}

/// The number of partial sums of an inner product in a vector of f64.
pub(super) const LANES: usize = 8;

/// The sum of partial sums.
#[inline(always)]
pub(super) fn add_lanes<T: Real>(s: [T; LANES]) -> T {
    let [a, b, c, d] = [s[0] + s[4], s[1] + s[5], s[2] + s[6], s[3] + s[7]];
    (a + c) + (b + d)
}

/// The inner product, in partial sums.
#[inline(always)]
pub(super) fn dot<T: Real>(x: &[T], y: &[T]) -> T {
    let n = x.len().min(y.len());
    inner_products([&x[..n]], &y[..n])[0]
}

/// The inner products of rows and a vector of the same length, in partial sums.
#[inline(always)]
pub(super) fn inner_products<T: Real, const ROWS: usize>(rows: [&[T]; ROWS], x: &[T]) -> [T; ROWS] {
    let (mut sums, mut done) = ([[T::ZERO; LANES]; ROWS], 0);
    // Four vectors of sums at a time hide the latency of additions.
    while ROWS * 4 * LANES <= 8 * LANES && x.len() - done >= 4 * LANES {
        (sums, done) = add_products::<T, ROWS, { 4 * LANES }>(rows, x, done, sums);
    }
    while T::NARROW && x.len() - done >= 2 * LANES {
        (sums, done) = add_products::<T, ROWS, { 2 * LANES }>(rows, x, done, sums);
    }
    while x.len() - done >= LANES {
        (sums, done) = add_products::<T, ROWS, LANES>(rows, x, done, sums);
    }
    let mut out = [T::ZERO; ROWS];
    for r in 0..ROWS {
        out[r] = add_lanes(sums[r]);
        for j in done..x.len() {
            out[r] += rows[r][j] * x[j];
        }
    }
    out
}

/// Adds to `sums` as many groups of `N` products as there are, from `start` on, and returns the sums and the end.
#[inline(always)]
fn add_products<T: Real, const ROWS: usize, const N: usize>(
    rows: [&[T]; ROWS],
    x: &[T],
    start: usize,
    sums: [[T; LANES]; ROWS],
) -> ([[T; LANES]; ROWS], usize) {
    let (mut parts, mut j) = ([[T::ZERO; N]; ROWS], start);
    while j + N <= x.len() {
        let x = load::<T, N>(&x[j..j + N]);
        for r in 0..ROWS {
            let row = load::<T, N>(&rows[r][j..j + N]);
            for l in 0..N {
                parts[r][l] += row[l] * x[l];
            }
        }
        j += N;
    }
    let mut out = sums;
    for r in 0..ROWS {
        for l in 0..N {
            out[r][l % LANES] += parts[r][l];
        }
    }
    (out, j)
}

/// A slice of `N` elements as an array, which the compiler keeps in registers.
#[inline(always)]
pub(super) fn load<T: Real, const N: usize>(x: &[T]) -> [T; N] {
    let mut out = [T::ZERO; N];
    out.copy_from_slice(x);
    out
}

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
    // The squares of f32 may have overflowed, or be inexact.
    let sum = x.iter().fold(0.0, |sum: f64, x| {
        let x: f64 = (*x).into();
        sum + x * x
    });
    sum.sqrt()
}

/// [`reflection`] for vectors of a matrix whose elements are about one: a rest whose squares would underflow counts as zero, because the
/// reflection would not be orthogonal.
#[inline(always)]
pub(super) fn scaled_reflection<T: Real>(x: &mut [T]) -> (T, T) {
    if let [_, rest @ ..] = x
        && dot(rest, rest) < T::NOTHING
    {
        rest.fill(T::ZERO);
    }
    reflection(x)
}

/// Applies the reflection `v`, `tau` from the left to some columns of the rows from `row` on. `sums` is scratch memory.
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

/// The largest magnitude of an element, as a power of two; 1 for zeros.
pub(super) fn magnitude<T: Real>(v: &[T]) -> f64 {
    let most = v.iter().fold(T::ZERO, |m, x| if x.abs() > m { x.abs() } else { m });
    power_of_two(most.into())
}

/// The power of two at or below a number that is not negative, among those whose reciprocals are normal numbers too; 1 for zero.
pub(super) fn power_of_two(x: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff << 52;
    // The largest and smallest results are 2^1000 and 2^-1000.
    let (most, least) = (f64::from_bits(2023 << 52), f64::from_bits(23 << 52));
    match x > 0.0 {
        true => f64::from_bits(x.clamp(least, most).to_bits() & EXPONENT),
        false => 1.0,
    }
}

/// Divides the elements by a power of two, in f64.
pub(super) fn divide_all<T: Real>(v: &mut [T], scale: f64) {
    v.iter_mut().for_each(|x| *x = T::nearest((*x).into() / scale));
}
