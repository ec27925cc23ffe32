//! Kernels of several rows and row step 1, for several rows of output at once. Each vector of input is loaded once for all
//! rows of output that it contributes to, as in the kernels of fixed size; the number of taps is not fixed here.

use super::{PlaneJob, load_stepped, store_clamped};
use crate::math::isa::per_isa;
use crate::math::simd::Simd;

/// The smallest number of rows of output at once, and of rows of a kernel.
pub(super) const ROWS: usize = 4;
/// The largest number of rows of output at once.
const MOST: usize = 8;

/// A kernel with column step `ST`. The weights of a column are adjacent.
#[inline(always)]
unsafe fn kernel_body<S: Simd, const ST: usize>(j: &PlaneJob) {
    let rows = j.out[0];
    let mut row = 0;
    while row < rows {
        let many = row + MOST <= rows && j.kernel[0] >= MOST;
        // The last rows are computed together with some before them, again.
        row = if many { row } else { row.min(rows - ROWS) };
        // SAFETY: the rows lie in the plane.
        unsafe {
            if many {
                convolve_rows::<S, ST, MOST>(j, row);
            } else {
                convolve_rows::<S, ST, ROWS>(j, row);
            }
        }
        row += if many { MOST } else { ROWS };
    }
}

/// Computes `T` rows.
#[inline(always)]
unsafe fn convolve_rows<S: Simd, const ST: usize, const T: usize>(j: &PlaneJob, row: usize) {
    let mut col = 0;
    while col < j.out[1] {
        // SAFETY: the columns lie in the plane.
        unsafe {
            if j.out[1] - col <= S::Half::LANES {
                convolve_vector::<S::Half, ST, T>(j, row, col);
                col += S::Half::LANES;
            } else {
                convolve_vector::<S, ST, T>(j, row, col);
                col += S::LANES;
            }
        }
    }
}

/// Computes a vector of each of `T` rows, column after column of the kernel. The sums of all rows are in the same order.
#[inline(always)]
unsafe fn convolve_vector<S: Simd, const ST: usize, const T: usize>(j: &PlaneJob, row: usize, col: usize) {
    // SAFETY: the caller provides rows and columns of the plane.
    unsafe {
        let mut acc = [S::splat(j.bias); T];
        let x = j.x.add(row * j.x_row + col * ST);
        let height = j.kernel[0];
        for b in 0..j.kernel[1] {
            let mut x = x.add(b * j.dilation[1]);
            let mut w = j.weight.add(b * height);
            // Unrolled by macros: the compiler would keep the sums in memory.
            macro_rules! add_to {
                ($in:expr, $w:expr, $($t:literal)*) => {{
                    let v = load_stepped::<S, ST>(x);
                    $( if $t < T && $in($t) {
                        acc[$t] = S::fma(v, S::splat(*$w.wrapping_sub($t)), acc[$t]);
                    } )*
                    x = x.wrapping_add(j.x_row);
                }};
            }
            macro_rules! edge {
                ($in:expr, $w:expr, $($i:literal)*) => { $(
                    if $i + 1 < T {
                        add_to!(|t: usize| $in($i, t), $w.wrapping_add($i), 0 1 2 3 4 5 6 7);
                    }
                )* };
            }
            // The input rows above the last row of output, then those under all of them, then those below the first.
            edge!(|i: usize, t: usize| t <= i, w, 0 1 2 3 4 5 6);
            w = w.add(T - 1);
            for _ in T - 1..height {
                add_to!(|_: usize| true, w, 0 1 2 3 4 5 6 7);
                w = w.add(1);
            }
            edge!(|i: usize, t: usize| t > i, w, 0 1 2 3 4 5 6);
        }
        for t in 0..T {
            store_clamped::<S>(j, row + t, col, acc[t]);
        }
    }
}

per_isa! {
    /// See [`kernel_body`].
    pub(super) fn kernel = kernel_body<ST: usize>(j: &PlaneJob)
}
