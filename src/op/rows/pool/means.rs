//! The means of windows, plane by plane.

use super::lanes::LANES;
use super::planes::Divisor;
use super::window::{Planes, PoolWindow};
use crate::op::rows::dense::Number;
use crate::tensor::WideLoop;

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
        if p.is_small() {
            planes.for_each(|(x, out)| mean_in_order(p, divisor, x, out));
        } else if p.has_long_windows() {
            let mut sums = vec![[T::default(); LANES]; p.windows[2].len()];
            for (x, out) in planes {
                mean_of_long(p, divisor, x, &mut sums, out);
            }
        } else {
            let mut band = vec![T::default(); p.size[2]];
            for (x, out) in planes {
                mean_of_band(p, divisor, x, &mut band, out);
            }
        }
    }
}

/// The means of the windows of a small plane. Each sum is in the order of the elements, as in planes that are pooled in lanes. Sums of a
/// row of windows take turns, because additions of one wait for each other.
fn mean_in_order<T: Number>(p: &Planes, divisor: Divisor, x: &[T], out: &mut [T]) {
    let [_, h, w] = p.size;
    let columns = &p.windows[2];
    for ((depth, height), out) in p.rows().zip(out.chunks_exact_mut(columns.len())) {
        out.fill(T::default());
        for i in depth.start..depth.end {
            for j in height.start..height.end {
                let row = &x[(i * h + j) * w..][..w];
                for (sum, c) in out.iter_mut().zip(columns) {
                    let part = row.get(c.start..c.end).unwrap_or_default();
                    *sum = part.iter().fold(*sum, |sum, v| sum.add(*v));
                }
            }
        }
        for (mean, width) in out.iter_mut().zip(columns) {
            *mean = divisor.divide(*mean, [depth, height, width]);
        }
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
            *mean = divisor.divide(sum_of_lanes(*sums), [depth, height, width]);
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
fn mean_of_band<T: Number>(p: &Planes, divisor: Divisor, x: &[T], band: &mut [T], out: &mut [T]) {
    let [_, h, w] = p.size;
    let columns = &p.windows[2];
    for ((depth, height), out) in p.rows().zip(out.chunks_exact_mut(columns.len())) {
        let is_line = depth.end == depth.start + 1 && height.end == height.start + 1;
        if is_line {
            let line = &x[(depth.start * h + height.start) * w..][..w];
            mean_of_line(divisor, line, [depth, height], columns, out);
            continue;
        }
        band.fill(T::default());
        for i in depth.start..depth.end {
            for j in height.start..height.end {
                add_row(&x[(i * h + j) * w..][..w], band);
            }
        }
        mean_of_line(divisor, band, [depth, height], columns, out);
    }
}

/// The means of windows whose sums of columns are the elements of `line`.
#[inline(always)]
fn mean_of_line<T: Number>(
    divisor: Divisor,
    line: &[T],
    [depth, height]: [&PoolWindow; 2],
    columns: &[PoolWindow],
    out: &mut [T],
) {
    for (mean, width) in out.iter_mut().zip(columns) {
        let sum = sum_in_order(line.get(width.start..width.end).unwrap_or_default());
        *mean = divisor.divide(sum, [depth, height, width]);
    }
}

#[inline(always)]
fn add_row<T: Number>(row: &[T], band: &mut [T]) {
    let band = &mut band[..row.len()];
    for k in 0..row.len() {
        band[k] = band[k].add(row[k]);
    }
}

#[inline(always)]
fn sum_in_order<T: Number>(v: &[T]) -> T {
    v.iter().fold(T::default(), |sum, v| sum.add(*v))
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
        ] {
            let x: Vec<f32> = (0..2 * h * w).map(|i| (i * 7 % 23) as f32 - 9.0).collect();
            let rows = out.min(h);
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
}
