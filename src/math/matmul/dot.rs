//! A few rows times a transposed matrix that is not packed: `C[i, j] = dot(A[i, :], B[:, j])` with both operands
//! contiguous along the product index. B is read once, in order, which is all there is to win when it has to come from
//! memory.

use crate::math::isa::per_isa;
use crate::math::simd::Simd;

/// The most rows for which dot products beat packing B.
pub const ROWS: usize = 8;

/// The product of some rows and columns. Strides are in elements.
pub struct DotJob {
    /// Row 0 of A, contiguous along the product index.
    pub a: *const f32,
    /// From row to row of A.
    pub a_row: usize,
    /// How many rows.
    pub rows: usize,
    /// Column 0 of B, contiguous along the product index.
    pub b: *const f32,
    /// From column to column of B.
    pub b_col: usize,
    /// How many columns.
    pub cols: usize,
    /// The product size.
    pub k: usize,
    /// The result.
    pub c: *mut f32,
    /// From row to row of the result; columns are contiguous.
    pub c_row: usize,
}

#[inline(always)]
unsafe fn body<S: Simd>(j: &DotJob) {
    // SAFETY: the caller gives operands valid for the job.
    unsafe {
        let mut col = 0;
        while col < j.cols {
            let cols = if j.cols - col >= 4 { 4 } else { 1 };
            let mut row = 0;
            while row < j.rows {
                let rows = if j.rows - row >= 2 { 2 } else { 1 };
                match (rows, cols) {
                    (2, 4) => dots::<S, 2, 4>(j, row, col),
                    (1, 4) => dots::<S, 1, 4>(j, row, col),
                    (2, _) => dots::<S, 2, 1>(j, row, col),
                    _ => dots::<S, 1, 1>(j, row, col),
                }
                row += rows;
            }
            col += cols;
        }
    }
}

#[inline(always)]
unsafe fn dots<S: Simd, const R: usize, const C: usize>(j: &DotJob, row: usize, col: usize) {
    // SAFETY: the caller gives operands valid for the job.
    unsafe {
        // Two sums for each result, so that even one row keeps eight multiply-adds in flight.
        let mut acc = [[[S::splat(0.0); 2]; C]; R];
        let (a, b) = (j.a.add(row * j.a_row), j.b.add(col * j.b_col));
        let mut k = 0;
        while k + 2 * S::LANES <= j.k {
            for h in 0..2 {
                let at = k + h * S::LANES;
                let mut av = [S::splat(0.0); R];
                for r in 0..R {
                    av[r] = S::load(a.add(r * j.a_row + at));
                }
                for c in 0..C {
                    let y = S::load(b.add(c * j.b_col + at));
                    for r in 0..R {
                        acc[r][c][h] = S::fma(av[r], y, acc[r][c][h]);
                    }
                }
            }
            k += 2 * S::LANES;
        }
        while k < j.k {
            let n = (j.k - k).min(S::LANES);
            for c in 0..C {
                let y = S::load_first(b.add(c * j.b_col + k), n);
                for r in 0..R {
                    let x = S::load_first(a.add(r * j.a_row + k), n);
                    acc[r][c][0] = S::fma(x, y, acc[r][c][0]);
                }
            }
            k += n;
        }
        for r in 0..R {
            for c in 0..C {
                *j.c.add((row + r) * j.c_row + col + c) = S::sum(S::add(acc[r][c][0], acc[r][c][1]));
            }
        }
    }
}

per_isa! {
    /// The kernel of one level.
    pub fn kernel = body(j: &DotJob)
}
