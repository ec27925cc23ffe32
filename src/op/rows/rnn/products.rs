//! Products of rows with the weights of recurrent networks.

use super::steps::CellReal;
use crate::tensor::{WideLoop, run_wide};

/// The number of partial sums of a dot product, which are lanes of vectors.
const LANES: usize = 8;
/// The number of rows that are multiplied by a row of the weight while it is in registers.
const ROWS: usize = 4;

/// `x @ w.T + bias` for rows of `k` elements.
pub(super) fn project_rows<T: CellReal>(x: &[T], w: &[T], bias: Option<&[T]>, k: usize, out: &mut [T]) {
    run_wide(ProjectRows { x, w, bias, k, out });
}

struct ProjectRows<'a, T> {
    x: &'a [T],
    w: &'a [T],
    bias: Option<&'a [T]>,
    k: usize,
    out: &'a mut [T],
}

impl<T: CellReal> WideLoop for ProjectRows<'_, T> {
    #[inline(always)]
    fn run(self) {
        let k = self.k;
        // A weight without columns does not show its number of rows.
        let n = match self.bias {
            Some(bias) => bias.len(),
            None => self.w.len().checked_div(k).unwrap_or(self.out.len()),
        };
        let rows = self.out.len().checked_div(n).unwrap_or(0);
        for first in (0..rows).step_by(ROWS) {
            let count = ROWS.min(rows - first);
            let row = |r: usize| &self.x[(first + r.min(count - 1)) * k..][..k];
            let x = [row(0), row(1), row(2), row(3)];
            for j in 0..n {
                let w = &self.w[j * k..][..k];
                let bias = self.bias.map_or(T::default(), |b| b[j]);
                let sums = match count {
                    1 => [dot(x[0], w), T::default(), T::default(), T::default()],
                    _ => dots(x, w),
                };
                for (r, sum) in sums.into_iter().enumerate().take(count) {
                    self.out[(first + r) * n + j] = sum + bias;
                }
            }
        }
    }
}

/// The sum of the lanes, and of what is left over.
#[inline(always)]
fn sum_of_lanes<T: CellReal>(acc: [T; LANES], tail: T) -> T {
    let pairs = [acc[0] + acc[4], acc[1] + acc[5], acc[2] + acc[6], acc[3] + acc[7]];
    (pairs[0] + pairs[2]) + (pairs[1] + pairs[3]) + tail
}

/// The sum of the products of what no vector has.
#[inline(always)]
fn dot_of_tails<T: CellReal>(a: &[T], b: &[T]) -> T {
    let mut sum = T::default();
    for i in 0..a.len().min(b.len()) {
        sum = sum + a[i] * b[i];
    }
    sum
}

/// The dot product, in as many partial sums as there are lanes.
#[inline(always)]
fn dot<T: CellReal>(a: &[T], b: &[T]) -> T {
    let mut acc = [T::default(); LANES];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for c in 0..a.len().min(b.len()) {
        for i in 0..LANES {
            acc[i] = acc[i] + a[c][i] * b[c][i];
        }
    }
    sum_of_lanes(acc, dot_of_tails(a_tail, b_tail))
}

/// [`dot`] of several rows with one.
// The sums are separate arrays, because an array of arrays would not be kept in registers.
#[inline(always)]
fn dots<T: CellReal>(x: [&[T]; ROWS], w: &[T]) -> [T; ROWS] {
    let zero = [T::default(); LANES];
    let (mut acc0, mut acc1, mut acc2, mut acc3) = (zero, zero, zero, zero);
    let (w, w_tail) = w.as_chunks::<LANES>();
    let chunks = x.map(|x| &x.as_chunks::<LANES>().0[..w.len()]);
    for c in 0..w.len() {
        for i in 0..LANES {
            acc0[i] = acc0[i] + chunks[0][c][i] * w[c][i];
            acc1[i] = acc1[i] + chunks[1][c][i] * w[c][i];
            acc2[i] = acc2[i] + chunks[2][c][i] * w[c][i];
            acc3[i] = acc3[i] + chunks[3][c][i] * w[c][i];
        }
    }
    let tail = |r: usize| dot_of_tails(x[r].as_chunks::<LANES>().1, w_tail);
    [
        sum_of_lanes(acc0, tail(0)),
        sum_of_lanes(acc1, tail(1)),
        sum_of_lanes(acc2, tail(2)),
        sum_of_lanes(acc3, tail(3)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Products of small integers are exact in any order.
    #[test]
    fn rows_are_multiplied_together_and_alone() {
        for (rows, k, n) in [(1, 9, 3), (4, 16, 2), (7, 21, 5), (3, 0, 4), (2, 3, 0)] {
            let x: Vec<f64> = (0..rows * k).map(|i| (i * 7 % 11) as f64 - 4.0).collect();
            let w: Vec<f64> = (0..n * k).map(|i| (i * 5 % 13) as f64 - 6.0).collect();
            let bias: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let mut out = vec![-1.0; rows * n];
            project_rows(&x, &w, Some(&bias), k, &mut out);
            for (at, got) in out.iter().enumerate() {
                let (r, j) = (at / n, at % n);
                let products = x[r * k..][..k].iter().zip(&w[j * k..][..k]).map(|(a, b)| a * b);
                assert_eq!(*got, products.sum::<f64>() + bias[j], "{rows} {k} {n}");
            }
        }
    }
}
