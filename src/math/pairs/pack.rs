//! Packing of the operands: panels of B, and rows of A.

mod rows;

use super::COLS;
use crate::math::pack::pack_panel;
use crate::math::scratch;
use half::bf16;

pub(in crate::math) use rows::{narrow_row, pack_row, pack_rows, packed_row, widen_row};

/// The elements of an operand, before packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::math) enum Source {
    /// bf16.
    Narrow(*const u16),
    /// f32, to be rounded.
    Wide(*const f32),
    /// Bytes.
    Bytes(*const u8),
}

impl Source {
    /// The elements of a bf16 (`wide` is false) or f32 operand.
    pub(in crate::math) fn new(p: *const u8, wide: bool) -> Source {
        match wide {
            true => Source::Wide(p.cast()),
            false => Source::Narrow(p.cast()),
        }
    }

    /// The elements from index `n` on.
    pub(in crate::math) fn skip(self, n: usize) -> Source {
        match self {
            Source::Narrow(p) => Source::Narrow(p.wrapping_add(n)),
            Source::Wide(p) => Source::Wide(p.wrapping_add(n)),
            Source::Bytes(p) => Source::Bytes(p.wrapping_add(n)),
        }
    }

    /// The address of the first element.
    pub(in crate::math) fn address(self) -> *const u8 {
        match self {
            Source::Narrow(p) => p.cast(),
            Source::Wide(p) => p.cast(),
            Source::Bytes(p) => p,
        }
    }

    /// Elements of the same kind at another address.
    fn moved_to(self, p: *const u8) -> Source {
        match self {
            Source::Narrow(_) => Source::Narrow(p.cast()),
            Source::Wide(_) => Source::Wide(p.cast()),
            Source::Bytes(_) => Source::Bytes(p),
        }
    }

    /// The size of an element, in bytes.
    fn size(self) -> usize {
        match self {
            Source::Narrow(_) => 2,
            Source::Wide(_) => 4,
            Source::Bytes(_) => 1,
        }
    }

    /// Element `i`.
    ///
    /// # Safety
    /// The element is readable.
    #[inline(always)]
    pub(in crate::math) unsafe fn value(self, i: usize) -> f32 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self {
                Source::Narrow(p) => bf16::from_bits(*p.add(i)).to_f32(),
                Source::Wide(p) => *p.add(i),
                Source::Bytes(p) => *p.add(i) as f32,
            }
        }
    }

    /// Copies `n` elements, `step` apart, as bf16.
    ///
    /// # Safety
    /// The elements are readable; `dst` is writable for `n`.
    #[inline]
    pub(in crate::math) unsafe fn copy_bits(self, step: usize, n: usize, dst: *mut u16) {
        for i in 0..n {
            // SAFETY: guaranteed by the caller.
            unsafe { *dst.add(i) = self.bits(i * step) };
        }
    }

    /// The bits of element `i`, rounded to bf16.
    ///
    /// # Safety
    /// The element is readable.
    #[inline(always)]
    unsafe fn bits(self, i: usize) -> u16 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self {
                Source::Narrow(p) => *p.add(i),
                Source::Wide(p) => bf16::from_f32(*p.add(i)).to_bits(),
                Source::Bytes(p) => bf16::from_f32(*p.add(i) as f32).to_bits(),
            }
        }
    }
}

/// Packs a panel: [`pack_pairs`] or [`pack_bytes`].
///
/// # Safety
/// As for these.
pub(in crate::math) unsafe fn pack_panel_of(
    src: Source,
    strides: [usize; 2],
    cols: usize,
    depth: [usize; 2],
    dst: *mut u16,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match src {
            Source::Bytes(p) => pack_bytes(p, strides, cols, depth, dst.cast()),
            src => pack_pairs(src, strides, cols, depth, dst),
        }
    }
}

/// Packs `cols` columns of `depth` product indices as a panel, with zeros for the missing columns and for the product
/// indices up to `run`, which is even. `[k, col]` are the strides between product indices and between columns.
///
/// # Safety
/// The source is readable for the columns. `dst` is writable for `COLS * run` elements and aligned to 4 bytes.
pub(in crate::math) unsafe fn pack_pairs(
    src: Source,
    [k, col]: [usize; 2],
    cols: usize,
    [depth, run]: [usize; 2],
    dst: *mut u16,
) {
    let pairs = depth / 2;
    // SAFETY: the pairs and the rest lie in the source and the panel.
    unsafe {
        match src {
            // Pairs are elements of 32 bits, and a column consists of them.
            Source::Narrow(p) if k == 1 && col.is_multiple_of(2) && p.cast::<f32>().is_aligned() => {
                pack_panel(p.cast(), col / 2, 1, cols, COLS, pairs, dst.cast());
            }
            Source::Narrow(p) if k == 1 && pairs >= LONG => align_pairs(p, [col, cols], pairs, dst.cast()),
            Source::Narrow(p) if k == 1 => copy_pairs(p, [col, cols], pairs, dst.cast()),
            Source::Narrow(p) if col == 1 => {
                for i in 0..pairs {
                    let (even, odd) = (p.add(2 * i * k), p.add((2 * i + 1) * k));
                    interleave(even, odd, cols, dst.add(2 * i * COLS));
                }
            }
            _ => {
                for i in 0..pairs {
                    for c in 0..COLS {
                        let element = |i| if c < cols { src.bits(i * k + c * col) } else { 0 };
                        let to = dst.add(2 * (i * COLS + c));
                        (*to, *to.add(1)) = (element(2 * i), element(2 * i + 1));
                    }
                }
            }
        }
        let rest = dst.add(2 * pairs * COLS);
        rest.write_bytes(0, (run - 2 * pairs) * COLS);
        if depth % 2 == 1 {
            for c in 0..cols {
                *rest.add(2 * c) = src.bits((depth - 1) * k + c * col);
            }
        }
    }
}

/// [`pack_pairs`] for bytes: groups of four, with zeros up to `run` product indices, a multiple of four.
///
/// # Safety
/// The source is readable for the columns. `dst` is writable for `COLS * run` bytes and aligned to 4 bytes.
pub(in crate::math) unsafe fn pack_bytes(
    src: *const u8,
    [k, col]: [usize; 2],
    cols: usize,
    [depth, run]: [usize; 2],
    dst: *mut u8,
) {
    let (whole, groups) = (depth / 4, run / 4);
    // Groups are elements of 32 bits, and a column consists of them.
    let in_groups = k == 1 && col.is_multiple_of(4) && src.cast::<f32>().is_aligned();
    let first = if in_groups { whole } else { 0 };
    // SAFETY: the caller provides the columns and the panel.
    unsafe {
        if in_groups {
            pack_panel(src.cast(), col / 4, 1, cols, COLS, whole, dst.cast());
        }
        for group in first..groups {
            let mut bytes = [[0u8; 4]; COLS];
            for i in 0..depth.saturating_sub(4 * group).min(4) {
                let row = src.wrapping_add((4 * group + i) * k);
                for (c, bytes) in bytes.iter_mut().enumerate().take(cols) {
                    bytes[i] = *row.add(c * col);
                }
            }
            dst.add(4 * group * COLS).cast::<[[u8; 4]; COLS]>().write(bytes);
        }
    }
}

/// The minimum number of pairs in a column that is worth copying to an aligned address.
const LONG: usize = 32;

/// [`copy_pairs`] for long columns, which are first copied to where they can be transposed.
///
/// # Safety
/// As for [`copy_pairs`].
unsafe fn align_pairs(src: *const u16, [col, cols]: [usize; 2], pairs: usize, dst: *mut f32) {
    let row = packed_row(4 * pairs.next_multiple_of(16)) / 4;
    let mut aligned = scratch::take_buffer(cols * row);
    let to = aligned.as_mut_ptr();
    // SAFETY: guaranteed by the caller; the buffer has the columns.
    unsafe {
        for c in 0..cols {
            std::ptr::copy_nonoverlapping(src.add(c * col), to.add(c * row).cast::<u16>(), 2 * pairs);
        }
        pack_panel(to, row, 1, cols, COLS, pairs, dst);
    }
}

/// Packs columns of pairs at any addresses, `col` elements apart, and zeros for the missing columns.
///
/// # Safety
/// The columns have `2 * pairs` elements; `dst` has room for a panel of as many.
unsafe fn copy_pairs(src: *const u16, [col, cols]: [usize; 2], pairs: usize, dst: *mut u32) {
    for i in 0..pairs {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let row = dst.add(i * COLS);
            for c in 0..cols {
                *row.add(c) = src.add(c * col + 2 * i).cast::<u32>().read_unaligned();
            }
            row.add(cols).write_bytes(0, COLS - cols);
        }
    }
}

/// Writes one row of pairs: elements of two rows in turn, then zeros.
///
/// # Safety
/// Both rows have `cols` elements; `dst` has room for [`COLS`] pairs.
#[inline(always)]
unsafe fn interleave(even: *const u16, odd: *const u16, cols: usize, dst: *mut u16) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if cols == COLS {
            let (even, odd) = (even.cast::<[u16; COLS]>(), odd.cast::<[u16; COLS]>());
            let (even, odd) = (even.read_unaligned(), odd.read_unaligned());
            let row: [u32; COLS] = std::array::from_fn(|c| even[c] as u32 | (odd[c] as u32) << 16);
            dst.cast::<[u32; COLS]>().write_unaligned(row);
            return;
        }
        for c in 0..cols {
            *dst.cast::<[u16; 2]>().add(c) = [*even.add(c), *odd.add(c)];
        }
        dst.add(2 * cols).write_bytes(0, 2 * (COLS - cols));
    }
}
