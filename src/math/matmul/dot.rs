//! A few rows times an unpacked matrix. B is read once and in order, which is optimal when it must come from memory.
//! Contiguous columns are computed as dot products, contiguous rows as sums of rows.

use crate::math::isa::per_isa;
use crate::math::simd::Simd;

/// The maximum number of rows for which dot products beat packing B.
pub(crate) const ROWS: usize = 8;

/// `C[i, j] = dot(A[i, :], B[:, j])` for some rows and columns. Strides are in elements.
pub(crate) struct DotJob {
    /// Row 0 of A, contiguous along the product index.
    pub a: *const f32,
    /// The stride between rows of A.
    pub a_row: usize,
    /// The number of rows.
    pub rows: usize,
    /// Column 0 of B, contiguous along the product index.
    pub b: *const f32,
    /// The stride between columns of B.
    pub b_col: usize,
    /// The number of columns.
    pub cols: usize,
    /// The product size.
    pub k: usize,
    /// The result.
    pub c: *mut f32,
    /// The stride between rows of the result; columns are contiguous.
    pub c_row: usize,
}

#[inline(always)]
unsafe fn kernel_body<S: Simd>(j: &DotJob) {
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        let mut col = 0;
        while col < j.cols {
            let cols = if j.cols - col >= 4 { 4 } else { 1 };
            let mut row = 0;
            while row < j.rows {
                let rows = if j.rows - row >= 2 { 2 } else { 1 };
                match (rows, cols) {
                    (2, 4) => dot_tile::<S, 2, 4>(j, row, col),
                    (1, 4) => dot_tile::<S, 1, 4>(j, row, col),
                    (2, _) => dot_tile::<S, 2, 1>(j, row, col),
                    _ => dot_tile::<S, 1, 1>(j, row, col),
                }
                row += rows;
            }
            col += cols;
        }
    }
}

#[inline(always)]
unsafe fn dot_tile<S: Simd, const R: usize, const C: usize>(j: &DotJob, row: usize, col: usize) {
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        // Two sums per result, so that even one row keeps eight multiply-adds in flight.
        let mut acc = [[[S::splat(0.0); 2]; C]; R];
        let (a, b) = (j.a.add(row * j.a_row), j.b.add(col * j.b_col));
        let mut k = 0;
        while k + 2 * S::LANES <= j.k {
            for h in 0..2 {
                let i = k + h * S::LANES;
                let mut av = [S::splat(0.0); R];
                for r in 0..R {
                    av[r] = S::load(a.add(r * j.a_row + i));
                }
                for c in 0..C {
                    let y = S::load(b.add(c * j.b_col + i));
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
                    acc[r][c][0] = S::fma(S::load_first(a.add(r * j.a_row + k), n), y, acc[r][c][0]);
                }
            }
            k += n;
        }
        for r in 0..R {
            store_sums::<S, C>(&acc[r], j.c.add((row + r) * j.c_row + col));
        }
    }
}

/// Stores the sums of a row of results.
///
/// # Safety
/// `c` points to `C` elements.
#[inline(always)]
unsafe fn store_sums<S: Simd, const C: usize>(acc: &[[S::V; 2]; C], c: *mut f32) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if C == 4 {
            let mut sums = [S::splat(0.0); 4];
            for i in 0..4 {
                sums[i] = S::add(acc[i % C][0], acc[i % C][1]);
            }
            return c.cast::<[f32; 4]>().write_unaligned(S::sum_lanes_of_four(sums));
        }
        for i in 0..C {
            *c.add(i) = S::sum_lanes(S::add(acc[i][0], acc[i][1]));
        }
    }
}

/// The maximum number of rows for which rows of an unpacked row-major B are added up one by one.
pub(crate) const AXPY_ROWS: usize = 4;

/// The number of columns whose sums stay in the L1 cache while rows of B are added to them.
const AXPY_COLS: usize = 4096;

/// A few rows times a row-major matrix: `C[i, :] += A[i, k] * B[k, :]`, four product indices at a time, so that B is
/// read along its rows. Here `b` is row 0 of B, contiguous along the columns, and `b_col` is the stride between rows.
#[inline(always)]
unsafe fn axpy_body<S: Simd>(j: &DotJob) {
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        for col in (0..j.cols).step_by(AXPY_COLS) {
            for row in 0..j.rows {
                let some = DotJob {
                    a: j.a.add(row * j.a_row),
                    b: j.b.add(col),
                    cols: (j.cols - col).min(AXPY_COLS),
                    c: j.c.add(row * j.c_row + col),
                    ..*j
                };
                axpy_columns::<S>(&some);
            }
        }
    }
}

/// The first row of the job.
#[inline(always)]
unsafe fn axpy_columns<S: Simd>(j: &DotJob) {
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        let mut k = 0;
        while k < j.k {
            match j.k - k {
                1 => axpy_rows::<S, 1>(j, j.a.add(k), k, j.c),
                2 => axpy_rows::<S, 2>(j, j.a.add(k), k, j.c),
                3 => axpy_rows::<S, 3>(j, j.a.add(k), k, j.c),
                _ => axpy_rows::<S, 4>(j, j.a.add(k), k, j.c),
            }
            k += 4;
        }
    }
}

/// Adds `K` rows of B, from row `k` on, to one row of C. Overwrites the row if `k` is 0.
#[inline(always)]
unsafe fn axpy_rows<S: Simd, const K: usize>(j: &DotJob, a: *const f32, k: usize, c: *mut f32) {
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        let mut f = [S::splat(0.0); K];
        for i in 0..K {
            f[i] = S::splat(*a.add(i));
        }
        let b = j.b.add(k * j.b_col);
        let mut col = 0;
        while col < j.cols {
            let n = (j.cols - col).min(S::LANES);
            let whole = n == S::LANES;
            let p = c.add(col);
            let mut acc = match (k, whole) {
                (0, _) => S::splat(0.0),
                (_, true) => S::load(p),
                (_, false) => S::load_first(p, n),
            };
            for i in 0..K {
                let y = b.add(i * j.b_col + col);
                acc = S::fma(f[i], if whole { S::load(y) } else { S::load_first(y, n) }, acc);
            }
            if whole {
                S::store(p, acc);
            } else {
                S::store_first(p, n, acc);
            }
            col += n;
        }
    }
}

per_isa! {
    /// The kernel that adds rows.
    pub(crate) fn axpy = axpy_body(j: &DotJob)
}

per_isa! {
    /// The kernel of one level.
    pub(crate) fn kernel = kernel_body(j: &DotJob)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Isa;

    #[test]
    fn four_columns_are_summed_in_the_order_of_one() {
        for isa in Isa::available() {
            let (k, b_col) = (53, 60);
            let a: Vec<f32> = (0..k).map(|i| (i as f32 * 0.7).sin()).collect();
            let b: Vec<f32> = (0..4 * b_col).map(|i| (i as f32 * 1.3).cos()).collect();
            let product = |col: usize, cols: usize| {
                let mut c = [0f32; 4];
                let job = DotJob {
                    a: a.as_ptr(),
                    a_row: k,
                    rows: 1,
                    b: b[col * b_col..].as_ptr(),
                    b_col,
                    cols,
                    k,
                    c: c.as_mut_ptr(),
                    c_row: 4,
                };
                // SAFETY: the arrays hold the rows and columns; the machine supports the level.
                unsafe { kernel(isa)(&job) };
                c
            };
            let together = product(0, 4);
            let single = [0, 1, 2, 3].map(|col| product(col, 1)[0]);
            assert_eq!(together.map(f32::to_bits), single.map(f32::to_bits), "{isa}");
        }
    }
}
