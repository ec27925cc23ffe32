//! Loops over rows of matrices. The factorisations spend most of their time here.
//!
//! Sums are split into partial sums in a fixed order, so results depend neither on the processor nor on the number of threads.

use super::LANES;
use super::real::Real;

/// `y += f * x`.
#[inline(always)]
pub(super) fn add_scaled<T: Real>(y: &mut [T], f: T, x: &[T]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += f * *x);
}

/// Ends the body of a loop over elements that have one number per lane. The inner loop over lanes is the one that should become vector
/// code. Without this barrier, LLVM vectorises the outer loop instead and gathers its elements from memory.
#[inline(always)]
pub(super) fn end_of_element() {
    std::hint::black_box(());
}

/// The number of columns whose sums stay in registers while rows are added to them.
const COLUMNS: usize = 32;

/// Subtracts `factors[k]` times row `k` from `y`, for one `k` after another. The rows begin `stride` elements apart.
#[inline(always)]
pub(super) fn subtract_rows<T: Real>(y: &mut [T], factors: &[T], rows: &[T], stride: usize) {
    combine_rows(y, factors, rows, stride, |y, x| y - x);
}

/// Adds `factors[k]` times row `k` to `y`, for one `k` after another. The rows begin `stride` elements apart.
#[inline(always)]
pub(super) fn add_rows<T: Real>(y: &mut [T], factors: &[T], rows: &[T], stride: usize) {
    combine_rows(y, factors, rows, stride, |y, x| y + x);
}

/// `y = combine(y, factors[k] * row k)` for one `k` after another.
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
    // A vector may overlap columns that are done. Their results are dropped.
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

/// [`combine_rows`] for the first `N` columns. The first `known` of them are not written.
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

/// The sum of the partial sums of an inner product.
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

/// The inner products of a vector with rows of its length, in partial sums.
#[inline(always)]
pub(super) fn inner_products<T: Real, const ROWS: usize>(rows: [&[T]; ROWS], x: &[T]) -> [T; ROWS] {
    let (mut sums, mut done) = ([[T::ZERO; LANES]; ROWS], 0);
    // Four independent vectors of sums hide the latency of additions.
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

/// Adds all whole groups of `N` products from `start` on to `sums`. Returns the sums and the first element after the groups.
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

/// A slice of `N` elements as an array. The compiler keeps arrays in registers.
#[inline(always)]
pub(super) fn load<T: Real, const N: usize>(x: &[T]) -> [T; N] {
    let mut out = [T::ZERO; N];
    out.copy_from_slice(x);
    out
}
