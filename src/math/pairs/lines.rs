//! Products of bf16 with a B whose rows, its *lines*, are contiguous. Lines are read where they are, two at a time, and their
//! elements become pairs in registers. That costs two instructions for each pair of vectors and tile of A, and saves packing B
//! and a buffer for sums: it pays if few tiles read a line, or if there are few product indices.
//!
//! Lines can be anywhere: the rows of a matrix, or the shifted rows of an image, whose products with the taps of a kernel are a
//! convolution.

use super::PairKernels;
use crate::math::tile::Tiles;
use crate::target::PairUnit;

/// The maximum number of rows of A in a tile.
pub(in crate::math) const TILE: usize = 12;
/// The number of lines after the one that is multiplied from which elements are prefetched.
const AHEAD: usize = 16;
/// The maximum number of product indices for which all columns of a tile of rows are computed before the next tile's: the result
/// is then written in long pieces.
pub(in crate::math) const SHALLOW: usize = 32;
/// The columns of two vectors of sums.
pub(in crate::math) const COLS: usize = 32;
/// The columns that a tile of few rows computes at once.
const MOST_COLS: usize = 4 * COLS;

/// A product: rows of A times columns of lines. Strides are in elements.
pub(in crate::math) struct LineJob<'a> {
    /// Row 0 of A, contiguous along the product index.
    pub a: *const u16,
    pub a_row: usize,
    pub rows: usize,
    /// Column 0 of a line with offset 0.
    pub b: *const u16,
    pub lines: &'a Lines,
    pub cols: usize,
    pub c: *mut u16,
    pub c_row: usize,
    /// The first element of the addend, and its strides between rows and columns. The latter is 0 or 1.
    pub addend: Option<(*const u16, [usize; 2])>,
    pub alpha: f32,
    pub beta: f32,
    /// The bounds to clamp to, if any. NaN stays NaN.
    pub clamp: Option<(f32, f32)>,
}

#[cfg(target_arch = "x86_64")]
impl LineJob<'_> {
    /// Whether sums begin with the addend, rather than with zero.
    #[inline(always)]
    fn starts_with_addend(&self) -> bool {
        self.addend.is_some() && self.alpha == 1.0 && self.beta == 1.0
    }

    /// Whether sums are only rounded.
    #[inline(always)]
    fn ends_with_sums(&self) -> bool {
        (self.addend.is_none() || self.beta == 1.0) && self.alpha == 1.0 && self.clamp.is_none()
    }
}

/// The offsets of lines.
pub(in crate::math) struct Lines {
    /// One for each product index, and [`AHEAD`] more to prefetch.
    offsets: Vec<usize>,
    count: usize,
}

impl Lines {
    /// The lines at these offsets, of which there must be at least one.
    pub(in crate::math) fn new(mut offsets: Vec<usize>) -> Lines {
        let count = offsets.len();
        for i in 0..AHEAD {
            // After the last line, the first ones of the next columns follow.
            offsets.push(offsets[i].wrapping_add(MOST_COLS));
        }
        Lines { offsets, count }
    }

    /// The number of lines, which is that of product indices.
    pub(in crate::math) fn count(&self) -> usize {
        self.count
    }
}

/// Whether the machine has the instructions.
pub(in crate::math) fn are_available(kernels: &PairKernels) -> bool {
    // Vectors that interleave bytes interleave words.
    cfg!(target_arch = "x86_64") && kernels.unit != PairUnit::Widening && kernels.has_quads && !kernels.are_bytes()
}

/// Computes a product.
///
/// # Safety
/// The operands are valid, and [`are_available`] holds.
#[cfg(target_arch = "x86_64")]
pub(in crate::math) unsafe fn multiply(j: &LineJob) {
    let tiles = Tiles::new(j.rows, TILE);
    // SAFETY: guaranteed by the caller; the tiles lie in the product.
    unsafe {
        if j.lines.count <= SHALLOW || tiles.count() == 1 {
            for t in 0..tiles.count() {
                x86::multiply_tile(j, [tiles.start(t), tiles.start(t + 1)], [0, j.cols]);
            }
            return;
        }
        // The elements of some columns of the lines are read again for each tile while they are in cache.
        let mut col = 0;
        while col < j.cols {
            let end = if j.cols - col < 2 * MOST_COLS {
                j.cols
            } else {
                col + MOST_COLS
            };
            for t in 0..tiles.count() {
                x86::multiply_tile(j, [tiles.start(t), tiles.start(t + 1)], [col, end]);
            }
            col = end;
        }
    }
}

/// There are no such instructions: see [`are_available`].
///
/// # Safety
/// Always safe.
#[cfg(not(target_arch = "x86_64"))]
pub(in crate::math) unsafe fn multiply(_: &LineJob) {
    unreachable!("no plan uses lines on this architecture");
}

#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;
