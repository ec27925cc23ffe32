//! Dot products of bf16: a few rows of A with columns of B, both contiguous along the product index. Neither is packed, because few rows
//! read a column again.

use super::{COLS, PairKernels, SumRows};
use crate::target::PairUnit;

/// The dot products of some rows and at most [`COLS`] columns. Strides are in elements.
pub(in crate::math) struct DotJob {
    pub a: *const u16,
    pub a_row: usize,
    pub rows: usize,
    pub b: *const u16,
    pub b_col: usize,
    pub cols: usize,
    /// The number of product indices.
    pub k: usize,
    /// Rows of [`COLS`] sums, of which whole groups of four are written.
    pub sums: *mut f32,
}

/// Whether the machine has the instructions.
pub(in crate::math) fn are_available(kernels: &PairKernels) -> bool {
    // Vectors that interleave bytes load some of their words.
    cfg!(target_arch = "x86_64") && kernels.unit != PairUnit::Widening && kernels.has_quads && !kernels.are_bytes()
}

/// Computes the sums.
///
/// # Safety
/// The operands are valid, and [`are_available`] holds.
#[cfg(target_arch = "x86_64")]
pub(in crate::math) unsafe fn multiply(j: &DotJob) {
    // SAFETY: guaranteed by the caller.
    unsafe { x86::multiply(j) }
}

/// There are no such instructions: see [`are_available`].
///
/// # Safety
/// Always safe.
#[cfg(not(target_arch = "x86_64"))]
pub(in crate::math) unsafe fn multiply(_: &DotJob) {
    unreachable!("no plan uses dot products on this architecture");
}

impl DotJob {
    /// Where the sums are.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "there are no such instructions")
    )]
    fn sum_rows(&self) -> SumRows {
        SumRows {
            first: self.sums,
            row: COLS,
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::DotJob;
    use crate::math::simd::{Avx512, Simd};
    use std::arch::x86_64::*;

    /// The number of elements in a vector.
    const LANES: usize = 32;
    /// The number of columns of a tile.
    const TOGETHER: usize = 4;

    /// See [`super::multiply`].
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
    pub(super) unsafe fn multiply(j: &DotJob) {
        for col in (0..j.cols).step_by(TOGETHER) {
            // The last columns that are missing are read again.
            let column = |c: usize| j.b.wrapping_add((col + c).min(j.cols - 1) * j.b_col);
            let columns = [column(0), column(1), column(2), column(3)];
            let mut row = 0;
            while row < j.rows {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    if j.rows - row >= 2 {
                        multiply_tile::<2>(j, row, col, columns);
                        row += 2;
                    } else {
                        multiply_tile::<1>(j, row, col, columns);
                        row += 1;
                    }
                }
            }
        }
    }

    /// `R` rows from `row` on times four columns.
    #[inline(always)]
    unsafe fn multiply_tile<const R: usize>(j: &DotJob, row: usize, col: usize, columns: [*const u16; TOGETHER]) {
        // SAFETY: the caller provides the rows and columns.
        unsafe {
            let a = j.a.add(row * j.a_row);
            let mut acc = [[_mm512_setzero_ps(); TOGETHER]; R];
            // A row has a second sum for each column, so that its multiply-adds need not wait for each other.
            let mut more = [_mm512_setzero_ps(); TOGETHER];
            let mut k = 0;
            while k + 2 * LANES <= j.k {
                add_products::<R>(j, a.add(k), columns, k, u32::MAX, &mut acc);
                match R {
                    1 => {
                        let x = load(a.add(k + LANES), u32::MAX);
                        for c in 0..TOGETHER {
                            more[c] = _mm512_dpbf16_ps(more[c], x, load(columns[c].add(k + LANES), u32::MAX));
                        }
                    }
                    _ => add_products::<R>(j, a.add(k + LANES), columns, k + LANES, u32::MAX, &mut acc),
                }
                k += 2 * LANES;
            }
            while k < j.k {
                let mask = u32::MAX >> (LANES - (j.k - k).min(LANES));
                add_products::<R>(j, a.add(k), columns, k, mask, &mut acc);
                k += LANES;
            }
            for c in 0..TOGETHER {
                acc[0][c] = _mm512_add_ps(acc[0][c], more[c]);
            }
            for r in 0..R {
                let to = j.sum_rows().at(row + r, col);
                to.cast::<[f32; TOGETHER]>()
                    .write_unaligned(Avx512::sum_lanes_of_four(acc[r]));
            }
        }
    }

    /// Adds the products of up to [`LANES`] product indices from `k` on, at which `a` is.
    #[inline(always)]
    unsafe fn add_products<const R: usize>(
        j: &DotJob,
        a: *const u16,
        columns: [*const u16; TOGETHER],
        k: usize,
        mask: u32,
        acc: &mut [[__m512; TOGETHER]; R],
    ) {
        // SAFETY: the caller provides the elements of the mask.
        unsafe {
            let mut x = [load(a, mask); R];
            for r in 1..R {
                x[r] = load(a.add(r * j.a_row), mask);
            }
            for c in 0..TOGETHER {
                let y = load(columns[c].add(k), mask);
                for r in 0..R {
                    acc[r][c] = _mm512_dpbf16_ps(acc[r][c], x[r], y);
                }
            }
        }
    }

    /// The elements of the mask, and zeros.
    #[inline(always)]
    unsafe fn load(p: *const u16, mask: u32) -> __m512bh {
        // SAFETY: the caller provides the elements. All 512-bit vectors have the same representation.
        unsafe {
            let v = match mask {
                u32::MAX => _mm512_loadu_si512(p.cast()),
                _ => _mm512_maskz_loadu_epi16(mask, p.cast()),
            };
            std::mem::transmute::<__m512i, __m512bh>(v)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;
    use half::bf16;

    #[test]
    fn sums_are_those_of_products_of_every_size() {
        if !are_available(&PairKernels::for_target(Target::native())) {
            return;
        }
        let element = |i: usize| bf16::from_f32((i * 7 % 13) as f32 - 6.0);
        for (rows, cols, k) in [(1, 1, 1), (1, 4, 64), (2, 5, 33), (3, 32, 100), (8, 7, 130), (1, 9, 31)] {
            let (a_row, b_col) = (k + 3, k + 1);
            let a: Vec<bf16> = (0..(rows - 1) * a_row + k).map(element).collect();
            let b: Vec<bf16> = (0..(cols - 1) * b_col + k).map(|i| element(i + 5)).collect();
            let mut sums = vec![f32::NAN; rows * COLS];
            let job = DotJob {
                a: a.as_ptr().cast(),
                a_row,
                rows,
                b: b.as_ptr().cast(),
                b_col,
                cols,
                k,
                sums: sums.as_mut_ptr(),
            };
            // SAFETY: the vectors have the rows and columns; the machine has the instructions.
            unsafe { multiply(&job) };
            for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
                // Integers this small are exact.
                let term = |i: usize| a[r * a_row + i].to_f32() * b[c * b_col + i].to_f32();
                let want: f32 = (0..k).map(term).sum();
                assert_eq!(sums[r * COLS + c], want, "{rows} {cols} {k} at {r} {c}");
            }
        }
    }
}
