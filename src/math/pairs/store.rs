//! From a block's sums to the result: scale, addend, activation, and one rounding. Sums of bytes are the result.

#[cfg(target_arch = "x86_64")]
mod affine;
#[cfg(target_arch = "x86_64")]
mod columns;

use super::pack::Source;
use super::{COLS, PairKernels, SumRows};
use crate::math::contract::ColumnAffine;
use crate::math::isa::per_isa;
use crate::math::simd::{Bf16, prefetch};
use crate::target::PairUnit;

/// Where the elements of a part of a result are stored.
#[derive(Clone, Copy)]
pub(in crate::math) struct Destination {
    /// Where the element in row and column 0 would be.
    first: *mut u8,
    /// The stride between rows, in elements.
    pub row: usize,
}

impl Destination {
    /// The result itself.
    pub(in crate::math) fn result(first: *mut u8, row: usize) -> Destination {
        Destination { first, row }
    }

    /// Working memory for sums of bytes. `first` is the row and column of its first element.
    pub(in crate::math) fn waiting_sums(sums: *mut f32, [r, col]: [usize; 2], row: usize) -> Destination {
        Destination {
            first: sums.wrapping_sub(r * row + col).cast(),
            row,
        }
    }

    /// The rows of sums of bytes from `[row, column]` on.
    pub(in crate::math) fn sum_rows(&self, at: [usize; 2]) -> SumRows {
        SumRows {
            first: self.at(at, size_of::<f32>()).cast(),
            row: self.row,
        }
    }

    /// The address of an element of `size` bytes.
    pub(in crate::math) fn at(&self, [r, col]: [usize; 2], size: usize) -> *mut u8 {
        self.first.wrapping_add((r * self.row + col) * size)
    }
}

/// `c = clamp(alpha * sums + beta * addend)` on one block.
#[derive(Clone, Copy)]
pub(in crate::math) struct StoreJob {
    /// Rows of [`COLS`] sums.
    pub sums: *const f32,
    pub rows: usize,
    pub cols: usize,
    /// The first element of the result.
    pub c: *mut u8,
    /// The stride between rows of the result, in elements.
    pub c_row: usize,
    /// Whether the result is f32 rather than bf16.
    pub wide: bool,
    /// The first element of the addend, and its strides between rows and columns.
    pub addend: Option<(Source, [usize; 2])>,
    pub alpha: f32,
    pub beta: f32,
    /// The bounds to clamp to, if any. NaN stays NaN.
    pub clamp: Option<(f32, f32)>,
    /// Applied to the elements before they are stored. Requires [`applies_affine`], and an addend with one value per column.
    pub affine: Option<ColumnAffine>,
}

/// Whether a [`StoreJob`] with these kernels can compute a [`ColumnAffine`].
pub(in crate::math) fn applies_affine(kernels: &PairKernels, wide: bool) -> bool {
    kernels.rounds_blocks() && !wide
}

impl StoreJob {
    /// Stores the block.
    ///
    /// # Safety
    /// The sums, the addend and the result have these rows and columns. The machine has the unit.
    #[inline]
    pub(in crate::math) unsafe fn run(&self, kernels: &PairKernels) {
        let column = |a: &(Source, [usize; 2])| a.1[0] == 0 && self.beta == 1.0;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if kernels.are_bytes() {
                return self.copy_sums();
            }
            if self.alpha != 1.0 || !self.addend.as_ref().is_none_or(column) {
                return store_scaled(kernels.isa)(self);
            }
            #[cfg(target_arch = "x86_64")]
            if let Some(a) = &self.affine {
                return affine::store(self, a);
            }
            match kernels.unit {
                #[cfg(target_arch = "x86_64")]
                PairUnit::Tiles | PairUnit::Dots if matches!(self.cols, HALF | COLS) && !self.wide => {
                    store_narrow(self)
                }
                _ => store_rows(kernels.isa)(self),
            }
        }
    }

    /// Prefetches what [`StoreJob::run`] will access. Rows may be far apart, so the processor does not foresee them.
    #[inline]
    pub(in crate::math) fn prefetch(&self) {
        let size = if self.wide { 4 } else { 2 };
        for r in 0..self.rows {
            prefetch(self.c.wrapping_add(r * self.c_row * size));
        }
        let Some(a) = self.affine.filter(|a| !a.addend.is_null()) else {
            return;
        };
        for r in 0..self.rows {
            prefetch(a.addend.wrapping_add(r * self.c_row).cast());
        }
    }

    /// Copies the sums, of 4 bytes, to the result.
    ///
    /// # Safety
    /// As for [`StoreJob::run`].
    unsafe fn copy_sums(&self) {
        for r in 0..self.rows {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let (from, to) = (self.sums.add(r * COLS), self.c.cast::<f32>().add(r * self.c_row));
                match self.cols {
                    // The length is known, so these are moves of vectors.
                    COLS => to
                        .cast::<[f32; COLS]>()
                        .write_unaligned(from.cast::<[f32; COLS]>().read()),
                    n => std::ptr::copy_nonoverlapping(from, to, n),
                }
            }
        }
    }

    fn bounds(&self) -> (f32, f32) {
        self.clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY))
    }
}

/// The columns of half a panel, which are one vector.
#[cfg(target_arch = "x86_64")]
const HALF: usize = COLS / 2;

/// Whole and half panels of a bf16 result, with the processor's own rounding.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
unsafe fn store_narrow(j: &StoreJob) {
    use std::arch::x86_64::*;
    let (lo, hi) = j.bounds();
    // SAFETY: the caller provides the rows. All 512-bit vectors have the same representation.
    unsafe {
        let bias = columns::load_addend(j);
        let (lo, hi) = (_mm512_set1_ps(lo), _mm512_set1_ps(hi));
        for r in 0..j.rows {
            let sums = j.sums.add(r * COLS);
            let mut y = [_mm512_loadu_ps(sums), _mm512_loadu_ps(sums.add(16))];
            for v in 0..2 {
                y[v] = _mm512_add_ps(y[v], bias[v]);
                if j.clamp.is_some() {
                    y[v] = _mm512_min_ps(hi, _mm512_max_ps(lo, y[v]));
                }
            }
            let c = j.c.add(2 * r * j.c_row);
            if j.cols == HALF {
                let y = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(y[0]));
                _mm256_storeu_si256(c.cast(), y);
                continue;
            }
            let y = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(y[1], y[0]));
            _mm512_storeu_si512(c.cast(), y);
        }
    }
}

#[inline(always)]
unsafe fn store_rows_body<S: Bf16>(j: &StoreJob) {
    let (lo, hi) = j.bounds();
    let mut bias = [0f32; COLS];
    // SAFETY: the caller provides the rows.
    unsafe {
        let (lo, hi) = (S::splat(lo), S::splat(hi));
        if let Some((x, [_, column])) = j.addend {
            load_addend::<S>(x, column, j.cols, &mut bias);
        }
        for r in 0..j.rows {
            for col in (0..j.cols).step_by(S::LANES) {
                let y = S::add(S::load(j.sums.add(r * COLS + col)), S::load(bias.as_ptr().add(col)));
                store_vector::<S>(j, r, col, S::min(hi, S::max(lo, y)));
            }
        }
    }
}

/// Any factors and strides.
#[inline(always)]
unsafe fn store_scaled_body<S: Bf16>(j: &StoreJob) {
    let (lo, hi) = j.bounds();
    // SAFETY: the caller provides the rows.
    unsafe {
        let (lo, hi) = (S::splat(lo), S::splat(hi));
        for r in 0..j.rows {
            let mut addend = [0f32; COLS];
            if let Some((x, [row, column])) = j.addend {
                load_addend::<S>(x.skip(r * row), column, j.cols, &mut addend);
            }
            for col in (0..j.cols).step_by(S::LANES) {
                let y = S::mul(S::splat(j.alpha), S::load(j.sums.add(r * COLS + col)));
                let y = S::add(y, S::mul(S::splat(j.beta), S::load(addend.as_ptr().add(col))));
                store_vector::<S>(j, r, col, S::min(hi, S::max(lo, y)));
            }
        }
    }
}

/// Reads one row of the addend, whose columns are `column` elements apart.
#[inline(always)]
unsafe fn load_addend<S: Bf16>(x: Source, column: usize, cols: usize, addend: &mut [f32; COLS]) {
    // SAFETY: the caller provides the columns.
    unsafe {
        match (x, column) {
            (_, 0) => addend.fill(x.value(0)),
            (Source::Wide(p), 1) => std::ptr::copy_nonoverlapping(p, addend.as_mut_ptr(), cols),
            (Source::Narrow(p), 1) => {
                for col in (0..cols).step_by(S::LANES) {
                    let n = (cols - col).min(S::LANES);
                    let x = match n == S::LANES {
                        true => S::load_bf16(p.add(col)),
                        false => S::load_bf16_first(p.add(col), n),
                    };
                    S::store(addend.as_mut_ptr().add(col), x);
                }
            }
            _ => {
                for (c, a) in addend.iter_mut().enumerate().take(cols) {
                    *a = x.value(c * column);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn store_vector<S: Bf16>(j: &StoreJob, r: usize, col: usize, y: S::V) {
    let (at, n) = (r * j.c_row + col, (j.cols - col).min(S::LANES));
    // SAFETY: the caller provides the columns from `col` on.
    unsafe {
        match (j.wide, n == S::LANES) {
            (true, true) => S::store(j.c.cast::<f32>().add(at), y),
            (true, false) => S::store_first(j.c.cast::<f32>().add(at), n, y),
            (false, true) => S::store_bf16(j.c.cast::<u16>().add(at), y),
            (false, false) => S::store_bf16_first(j.c.cast::<u16>().add(at), n, y),
        }
    }
}

per_isa! {
    /// Sums plus one bias for each column.
    fn store_rows = store_rows_body(j: &StoreJob)
}

per_isa! {
    fn store_scaled = store_scaled_body(j: &StoreJob)
}
