//! The means of windows of integers in short rows. Integers may be summed in any order.

use super::means::SHORTEST;
use super::planes::Divisor;
use super::window::{Planes, PoolWindow};
use crate::op::rows::dense::Number;
use crate::types::DType;

impl Planes {
    /// Whether windows of small planes are summed one by one: integers in short rows, and no element is in several windows.
    pub(super) fn may_sum_windows(&self) -> bool {
        let elements = |d: usize| {
            self.windows[d]
                .iter()
                .map(|w| w.end.saturating_sub(w.start))
                .sum::<usize>()
        };
        let is_apart = || (0..3).all(|d| elements(d) <= self.size[d]);
        self.pool.dtype == DType::I64 && self.is_small() && self.size[2] < SHORTEST && is_apart()
    }

    /// A window, if all windows have the same number of elements, and the same including padding.
    fn only_window(&self) -> Option<[&PoolWindow; 3]> {
        let sizes = |w: &PoolWindow| (w.present(), w.full);
        let [depths, heights, widths] = self.windows.each_ref().map(|all| {
            let first = all.first()?;
            all.iter().all(|w| sizes(w) == sizes(first)).then_some(first)
        });
        Some([depths?, heights?, widths?])
    }
}

/// The means of windows in short rows, each summed by itself, in any order.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "loops over indices become vector code more often"
)]
pub(super) fn mean_of_windows<T: Number>(p: &Planes, divisor: Divisor, x: &[T], out: &mut [T]) {
    let only = p.only_window();
    for (x, out) in x.chunks_exact(p.plane()).zip(out.chunks_exact_mut(p.out_plane())) {
        let n = p.windows[2].len();
        for ((depth, height), out) in p.rows().zip(out.chunks_exact_mut(n)) {
            for k in 0..n {
                let window = [depth, height, &p.windows[2][k]];
                let mut sum = [sum_of_window(x, p.size, window)];
                if only.is_none() {
                    divisor.divide_all(&mut sum, window);
                }
                [out[k]] = sum;
            }
        }
    }
    // Many sums are divided at once.
    if let Some(window) = only {
        divisor.divide_all(out, window);
    }
}

/// The sum of a window's elements, in any order.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "loops over indices become vector code more often"
)]
fn sum_of_window<T: Number>(x: &[T], [_, h, w]: [usize; 3], [depth, height, width]: [&PoolWindow; 3]) -> T {
    let mut sum = T::default();
    for i in depth.start..depth.end {
        if width.present() as usize == w && height.start < height.end {
            // Rows follow each other.
            sum = sum.add(sum_of_slice(&x[(i * h + height.start) * w..(i * h + height.end) * w]));
            continue;
        }
        for j in height.start..height.end {
            let row = &x[(i * h + j) * w..][width.start..width.end];
            for k in 0..row.len() {
                sum = sum.add(row[k]);
            }
        }
    }
    sum
}

/// The sum of elements, in any order.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "loops over indices become vector code more often"
)]
fn sum_of_slice<T: Number>(x: &[T]) -> T {
    const N: usize = 8;
    let (chunks, rest) = x.as_chunks::<N>();
    let mut sums = [T::default(); N];
    for i in 0..chunks.len() {
        for k in 0..N {
            sums[k] = sums[k].add(chunks[i][k]);
        }
    }
    let mut sum = T::default();
    for k in 0..rest.len() {
        sum = sum.add(rest[k]);
    }
    let halves = [0, 1, 2, 3].map(|k| sums[k].add(sums[k + 4]));
    sum.add(halves[0].add(halves[2]).add(halves[1].add(halves[3])))
}
