//! The means of windows, plane by plane.

use super::lanes::LANES;
use super::planes::Divisor;
use super::row_windows::{RowWindows, add_row};
use super::sums::mean_of_windows;
use super::window::{Planes, PoolWindow};
use crate::op::rows::dense::Number;
use crate::tensor::WideLoop;
use crate::types::DType;

/// The means of consecutive planes.
pub(super) struct MeanPlanes<'a, T> {
    pub planes: &'a Planes,
    pub divisor: Divisor,
    pub x: &'a [T],
    pub out: &'a mut [T],
}

impl<T: Number> WideLoop for MeanPlanes<'_, T> {
    #[inline(always)]
    fn run(self) {
        let (p, divisor) = (self.planes, self.divisor);
        let planes = self.x.chunks_exact(p.plane());
        let planes = planes.zip(self.out.chunks_exact_mut(p.out_plane()));
        if p.may_sum_windows() {
            return mean_of_windows(p, divisor, self.x, self.out);
        }
        let windows = RowWindows::new(&p.windows[2], divisor);
        if p.is_small() && !p.may_sum_columns() {
            for (x, out) in planes {
                mean_in_order(p, divisor, x, &windows, out);
            }
        } else if p.has_long_windows() {
            let mut sums = vec![[T::default(); LANES]; p.windows[2].len()];
            for (x, out) in planes {
                mean_of_long(p, divisor, x, &mut sums, out);
            }
        } else {
            let mut band = vec![T::default(); p.size[2]];
            for (x, out) in planes {
                mean_of_band(p, divisor, x, (&windows, &mut band), out);
            }
        }
    }
}

/// The shortest rows whose columns are added in vectors.
pub(super) const SHORTEST: usize = 12;

impl Planes {
    /// Whether columns are summed first even in small planes. Integers may be added in any order.
    pub(super) fn may_sum_columns(&self) -> bool {
        self.pool.dtype == DType::I64 && self.size[2] >= SHORTEST
    }
}

/// The means of the windows of a small plane. Each sum is in the order of the elements, as in planes that are pooled in lanes. Sums of a
/// row of windows take turns, because additions of one wait for each other.
#[inline(always)]
fn mean_in_order<T: Number>(p: &Planes, divisor: Divisor, x: &[T], windows: &RowWindows<T>, out: &mut [T]) {
    let [_, h, w] = p.size;
    for ((depth, height), out) in p.rows().zip(out.chunks_exact_mut(p.windows[2].len())) {
        out.fill(T::default());
        for i in depth.start..depth.end {
            for j in height.start..height.end {
                windows.add(&x[(i * h + j) * w..][..w], out);
            }
        }
        windows.divide(divisor, [depth, height], out);
    }
}

/// The means of windows whose rows are long: each window has as many sums as a vector has lanes, whatever the vectors of the machine.
#[inline(always)]
fn mean_of_long<T: Number>(p: &Planes, divisor: Divisor, x: &[T], sums: &mut [[T; LANES]], out: &mut [T]) {
    let [_, h, w] = p.size;
    let columns = &p.windows[2];
    for ((depth, height), out) in p.rows().zip(out.chunks_exact_mut(columns.len())) {
        sums.fill([T::default(); LANES]);
        for i in depth.start..depth.end {
            for j in height.start..height.end {
                let row = &x[(i * h + j) * w..][..w];
                for (sums, c) in sums.iter_mut().zip(columns) {
                    add_long(&row[c.start..c.end], sums);
                }
            }
        }
        for ((mean, sums), width) in out.iter_mut().zip(&*sums).zip(columns) {
            let mut sum = [sum_of_lanes(*sums)];
            divisor.divide_all(&mut sum, [depth, height, width]);
            [*mean] = sum;
        }
    }
}

/// Adds at least [`LANES`] elements to the sums.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "loops over indices become vector code more often"
)]
fn add_long<T: Number>(row: &[T], sums: &mut [T; LANES]) {
    let (pairs, rest) = row.as_chunks::<{ 2 * LANES }>();
    // Two sums for each lane, because additions of one wait for each other.
    let (mut even, mut odd) = (*sums, [T::default(); LANES]);
    for i in 0..pairs.len() {
        for k in 0..LANES {
            even[k] = even[k].add(pairs[i][k]);
            odd[k] = odd[k].add(pairs[i][LANES + k]);
        }
    }
    if let Some(v) = rest.first_chunk::<LANES>() {
        for k in 0..LANES {
            even[k] = even[k].add(v[k]);
        }
    }
    // The last elements are the end of a vector whose other lanes have been added.
    let left = rest.len() % LANES;
    if let Some(v) = row.last_chunk::<LANES>() {
        for k in 0..LANES {
            let new = if k + left >= LANES { v[k] } else { T::default() };
            odd[k] = odd[k].add(new);
        }
    }
    for k in 0..LANES {
        sums[k] = even[k].add(odd[k]);
    }
}

/// The sum of all lanes, by halves.
#[inline(always)]
fn sum_of_lanes<T: Number>(mut sums: [T; LANES]) -> T {
    let mut n = LANES / 2;
    while n > 0 {
        for k in 0..n {
            sums[k] = sums[k].add(sums[k + n]);
        }
        n /= 2;
    }
    sums[0]
}

/// The means of windows of a large plane: sums of columns first, which are vector code, then sums of these.
#[inline(always)]
fn mean_of_band<T: Number>(
    p: &Planes,
    divisor: Divisor,
    x: &[T],
    (windows, band): (&RowWindows<T>, &mut [T]),
    out: &mut [T],
) {
    let ([_, h, w], n) = (p.size, p.windows[2].len());
    let mut before = None;
    for (r, (depth, height)) in p.rows().enumerate() {
        let (done, rest) = out.split_at_mut(r * n);
        let out = &mut rest[..n];
        let rows = [depth.start, depth.end, height.start, height.end];
        // Pools that enlarge have rows of windows over the same rows of elements.
        if before == Some(rows) {
            out.copy_from_slice(&done[(r - 1) * n..]);
            continue;
        }
        before = Some(rows);
        out.fill(T::default());
        let is_line = depth.end == depth.start + 1 && height.end == height.start + 1;
        if is_line {
            windows.add(&x[(depth.start * h + height.start) * w..][..w], out);
        } else {
            sum_columns(x, [h, w], [depth, height], band);
            windows.add(band, out);
        }
        windows.divide(divisor, [depth, height], out);
    }
}

/// The most elements whose columns are summed one vector after the other; others do not stay in the cache.
const CACHED: usize = 4096;

/// The sums of the columns of some rows.
#[inline(always)]
fn sum_columns<T: Number>(x: &[T], [h, w]: [usize; 2], rows: [&PoolWindow; 2], band: &mut [T]) {
    const N: usize = 16;
    let [depth, height] = rows;
    let count = (depth.present() * height.present()) as usize;
    match w {
        N.. if count.saturating_mul(w) <= CACHED => sum_column_vectors::<T, N>(x, [h, w], rows, band),
        8..N => sum_column_vectors::<T, 8>(x, [h, w], rows, band),
        _ => {
            band.fill(T::default());
            for i in depth.start..depth.end {
                for j in height.start..height.end {
                    add_row(&x[(i * h + j) * w..][..w], band);
                }
            }
        }
    }
}

/// [`sum_columns`] with sums in a vector of `N` columns, of which there are at least as many.
#[inline(always)]
fn sum_column_vectors<T: Number, const N: usize>(
    x: &[T],
    [h, w]: [usize; 2],
    [depth, height]: [&PoolWindow; 2],
    band: &mut [T],
) {
    for first in (0..w).step_by(N) {
        // The last vector begins earlier if there are not so many columns left.
        let first = first.min(w - N);
        let mut sums = [T::default(); N];
        for i in depth.start..depth.end {
            for j in height.start..height.end {
                let row = &x[(i * h + j) * w + first..][..N];
                for k in 0..N {
                    sums[k] = sums[k].add(row[k]);
                }
            }
        }
        band[first..first + N].copy_from_slice(&sums);
    }
}

#[cfg(test)]
mod tests {
    use crate::op::rows::fill::fill_new;
    use crate::op::{Call, Meaning, by_name};
    use crate::tensor::Tensor;
    use crate::types::Val;

    /// Sums of small integers are exact in any order, so that all ways to compute them give the same means.
    #[test]
    fn means_of_large_and_small_planes_are_quotients_of_exact_sums() {
        for (h, w, out) in [
            (1, 48, 3),
            (1, 700, 7),
            (61, 67, 2),
            (50, 49, 3),
            (48, 50, 20),
            (3, 40, 40),
            (70, 33, 1),
            (50, 60, 120),
            (50, 60, 99),
            (3, 1000, 1700),
        ] {
            let x: Vec<f32> = (0..2 * h * w).map(|i| (i * 7 % 23) as f32 - 9.0).collect();
            let rows = if out > w { h * out / w } else { out.min(h) };
            let call = Call {
                op: by_name("adaptive_avg_pool2d").expect("a row"),
                args: vec![
                    Val::Leaf(Tensor::from_slice(&[2, h, w], &x)),
                    Val::List(vec![Val::int(rows as i64), Val::int(out as i64)]),
                ],
            };
            let Meaning::Fill(fill) = call.op.meaning else {
                panic!("not a fill")
            };
            let got = fill_new(&call, fill).expect("a result");
            let got = got.leaves()[0].as_slice::<f32>().to_vec();
            let within = |i: usize, n: usize, out: usize| i * n / out..((i + 1) * n).div_ceil(out);
            for (at, got) in got.into_iter().enumerate() {
                let (plane, j, k) = (at / (rows * out), at / out % rows, at % out);
                let (ys, xs) = (within(j, h, rows), within(k, w, out));
                let sum: f32 = ys
                    .clone()
                    .flat_map(|y| xs.clone().map(move |z| (plane * h + y) * w + z))
                    .map(|i| x[i])
                    .sum();
                assert_eq!(got, sum / ys.len() as f32 / xs.len() as f32, "{h} x {w} to {out}: {at}");
            }
        }
    }

    /// The windows of a pool: kernel, stride and padding of two dims.
    type Windows = [[usize; 2]; 3];

    fn average(x: Tensor, windows: &Windows, ceil: bool, counts: bool) -> Tensor {
        let mut args = vec![Val::Leaf(x)];
        args.extend(windows.map(|n| Val::List(n.map(|n| Val::int(n as i64)).to_vec())));
        args.extend([Val::Bool(ceil), Val::Bool(counts), Val::None]);
        let op = by_name("avg_pool2d").expect("a row");
        let Meaning::Fill(fill) = op.meaning else {
            panic!("not a fill")
        };
        let got = fill_new(&Call { op, args }, fill).expect("a result");
        got.leaves()[0].clone()
    }

    /// The mean of the window at a place of the result, from the definition.
    fn mean_at(
        plane: &[i64],
        size: [usize; 2],
        place: [usize; 2],
        [kernel, stride, padding]: &Windows,
        counts: bool,
    ) -> i64 {
        let begin = [0, 1].map(|d| (place[d] * stride[d]) as i64 - padding[d] as i64);
        let end = [0, 1].map(|d| (begin[d] + kernel[d] as i64).min((size[d] + padding[d]) as i64));
        let [rows, columns] = [0, 1].map(|d| begin[d].max(0) as usize..end[d].min(size[d] as i64) as usize);
        let n = match counts {
            true => (end[0] - begin[0]) * (end[1] - begin[1]),
            false => (rows.len() * columns.len()) as i64,
        };
        let elements = rows.flat_map(|y| &plane[y * size[1]..][columns.clone()]);
        elements.fold(0i64, |s, v| s.wrapping_add(*v)) / n
    }

    /// Strides of 1 and more, padding on both sides, windows beyond the end, and sums that no float has.
    #[test]
    fn means_of_integers_are_truncated_quotients() {
        for (h, w, windows, ceil) in [
            (5, 9, [[3, 3], [1, 1], [1, 1]], false),
            (6, 700, [[2, 3], [2, 2], [0, 1]], true),
            (70, 40, [[4, 5], [3, 1], [2, 2]], true),
            (64, 64, [[7, 7], [7, 7], [0, 0]], false),
            (7, 7, [[7, 7], [7, 7], [0, 0]], false),
            (6, 11, [[2, 3], [2, 3], [0, 0]], false),
            (5, 9, [[2, 4], [2, 4], [1, 2]], false),
            (14, 14, [[7, 7], [7, 7], [0, 0]], false),
        ] {
            for (counts, large) in [(true, 0), (false, i64::MAX / 100)] {
                let x: Vec<i64> = (0..17 * h * w).map(|i| (i * 7 % 23) as i64 - 11 + large).collect();
                let got = average(Tensor::from_slice(&[17, h, w], &x), &windows, ceil, counts);
                let (oh, ow) = (got.shape()[1], got.shape()[2]);
                for (at, got) in got.as_slice::<i64>().iter().enumerate() {
                    let plane = &x[at / (oh * ow) * h * w..];
                    let want = mean_at(plane, [h, w], [at / ow % oh, at % ow], &windows, counts);
                    assert_eq!(*got, want, "{h} x {w}, {windows:?}: {at}");
                }
            }
        }
    }
}
