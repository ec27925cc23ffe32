//! Packing of rows of A.

use super::Source;
use crate::math::isa::per_isa;
use crate::math::pairs::PairKernels;
use crate::math::scratch;
use crate::math::simd::Bf16;
use crate::tensor::transpose_tile;
use half::bf16;

/// The stride of packed rows of `bytes` bytes, in bytes: a multiple of 64, but not of 512, so that rows do not share sets of
/// the L1 cache.
pub(in crate::math) fn packed_row(bytes: usize) -> usize {
    match bytes.is_multiple_of(512) {
        true => bytes + 64,
        false => bytes,
    }
}

/// Copies `n` elements, `k` apart, to a row of A, and adds zeros up to `run` elements.
///
/// # Safety
/// The source is readable for the elements, and `dst` writable for `run` elements of the kernels' rows.
#[inline]
pub(in crate::math) unsafe fn pack_row(
    kernels: &PairKernels,
    src: Source,
    k: usize,
    n: usize,
    run: usize,
    dst: *mut u8,
) {
    let wide = kernels.widens_rows();
    // SAFETY: guaranteed by the caller.
    unsafe {
        match src {
            Source::Narrow(p) if k == 1 && !wide => std::ptr::copy_nonoverlapping(p, dst.cast::<u16>(), n),
            Source::Narrow(p) if k == 1 => widen_row(kernels.isa)(p, n, dst.cast()),
            Source::Wide(p) if k == 1 && !wide => narrow_row(kernels.isa)(p, n, dst.cast()),
            Source::Bytes(p) if k == 1 => std::ptr::copy_nonoverlapping(p, dst, n),
            Source::Bytes(p) => (0..n).for_each(|i| *dst.add(i) = *p.add(i * k)),
            _ if wide => {
                for i in 0..n {
                    *dst.cast::<f32>().add(i) = bf16::from_bits(src.bits(i * k)).to_f32();
                }
            }
            _ => {
                for i in 0..n {
                    *dst.cast::<u16>().add(i) = src.bits(i * k);
                }
            }
        }
        let size = kernels.row_element();
        dst.add(n * size).write_bytes(0, (run - n) * size);
    }
}

/// The number of columns that are transposed at once, if their elements are converted afterwards.
const COLUMNS: usize = 32;

/// [`pack_row`] for `rows` rows. `[row, k]` are the strides between rows and between their elements, in elements. Rows of the result are
/// `to_row` bytes apart.
///
/// Rows that lie side by side, as those of a transposed matrix, are transposed in blocks: element by element, each would take a miss of
/// the cache.
///
/// # Safety
/// As for [`pack_row`], for all rows.
pub(in crate::math) unsafe fn pack_rows(
    kernels: &PairKernels,
    src: Source,
    [row, k]: [usize; 2],
    rows: usize,
    [n, run]: [usize; 2],
    (dst, to_row): (*mut u8, usize),
) {
    // SAFETY: guaranteed by the caller; the buffer holds the columns.
    unsafe {
        if row != 1 || k == 1 || rows == 1 {
            for r in 0..rows {
                pack_row(kernels, src.skip(r * row), k, n, run, dst.add(r * to_row));
            }
            return;
        }
        let (size, to_size) = (src.size(), kernels.row_element());
        let line = (k * size) as isize;
        let is_copied = matches!(src, Source::Bytes(_)) || matches!(src, Source::Narrow(_)) && !kernels.widens_rows();
        if is_copied {
            transpose_tile(size)(src.address(), line, dst, to_row as isize, rows, n);
            for r in 0..rows {
                dst.add(r * to_row + n * to_size).write_bytes(0, (run - n) * to_size);
            }
            return;
        }
        let width = packed_row((n * size).next_multiple_of(64));
        let mut columns = scratch::take_buffer(COLUMNS * width / 4);
        let packed = columns.as_mut_ptr().cast::<u8>();
        for first in (0..rows).step_by(COLUMNS) {
            let count = COLUMNS.min(rows - first);
            transpose_tile(size)(src.skip(first).address(), line, packed, width as isize, count, n);
            for r in 0..count {
                let from = src.moved_to(packed.add(r * width));
                pack_row(kernels, from, 1, n, run, dst.add((first + r) * to_row));
            }
        }
    }
}

#[inline(always)]
unsafe fn widen_body<S: Bf16>(src: *const u16, n: usize, dst: *mut f32) {
    let whole = n / S::LANES * S::LANES;
    // SAFETY: the caller provides `n` elements of both.
    unsafe {
        for i in (0..whole).step_by(S::LANES) {
            S::store(dst.add(i), S::load_bf16(src.add(i)));
        }
        if whole < n {
            S::store_first(dst.add(whole), n - whole, S::load_bf16_first(src.add(whole), n - whole));
        }
    }
}

#[inline(always)]
unsafe fn narrow_body<S: Bf16>(src: *const f32, n: usize, dst: *mut u16) {
    let whole = n / S::LANES * S::LANES;
    // SAFETY: the caller provides `n` elements of both.
    unsafe {
        for i in (0..whole).step_by(S::LANES) {
            S::store_bf16(dst.add(i), S::load(src.add(i)));
        }
        if whole < n {
            S::store_bf16_first(dst.add(whole), n - whole, S::load_first(src.add(whole), n - whole));
        }
    }
}

per_isa! {
    /// Widens `n` elements.
    pub(in crate::math) fn widen_row = widen_body(src: *const u16, n: usize, dst: *mut f32)
}

per_isa! {
    /// Rounds `n` elements.
    pub(in crate::math) fn narrow_row = narrow_body(src: *const f32, n: usize, dst: *mut u16)
}
