//! Products of bf16 with f32 sums: the blocks that matrix products and convolutions are made of.
//!
//! B is packed in 16 bits in pairs along the product index: `[panel][k / 2][32 columns][2]`, with zeros up to a multiple of
//! [`STEP`] product indices. All units read this form. A stays in rows, whose elements are contiguous along the product
//! index; a row of bf16 already consists of pairs. A block has up to two tiles of rows and one panel of columns. Its sums
//! are f32 in a buffer in the L1 cache, from which [`store`] writes the result with bias, activation and one rounding.
//!
//! | unit | instructions | order of each sum |
//! | --- | --- | --- |
//! | [`PairUnit::Tiles`] | AMX `tdpbf16ps` ([`amx`]) | see [`model::sum_of_tiles`] |
//! | [`PairUnit::Dots`] | `vdpbf16ps` ([`vector`]) | pair after pair, the second element first |
//! | [`PairUnit::Widening`] | multiply-adds of f32 ([`vector`]) | the same |
//!
//! `tdpbf16ps` and `vdpbf16ps` treat denormal elements as zero and flush sums that would be denormal, as they do in
//! torch, whose bf16 products (oneDNN) use the same instructions. Widened elements keep denormals, as torch does on
//! processors without these instructions.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(test)]
mod model;
pub(super) mod pack;
pub(super) mod store;
#[cfg(test)]
pub(super) mod tests;
mod vector;

use super::scratch::{self, Scratch};
use crate::target::{Isa, PairUnit, Target};
use std::fmt;

/// The number of columns in a panel of B.
pub(super) const COLS: usize = 32;
/// Runs of product indices are padded to a multiple of this number, the product indices of one AMX instruction.
pub(super) const STEP: usize = 32;
/// The maximum number of rows in a tile of any unit.
const TILE_ROWS: usize = 16;
/// The number of elements of the buffer for a block's sums.
const SUMS: usize = 2 * TILE_ROWS * COLS;

/// `n` product indices with padding.
pub(super) fn padded_run(n: usize) -> usize {
    n.next_multiple_of(STEP)
}

/// One block: up to two tiles of rows times one panel. Strides are in elements.
pub(super) struct PairJob<'a> {
    /// The first row of each tile, before the segments' offsets. Elements are as [`PairKernels::widens_rows`] says.
    pub a: [*const u8; 2],
    /// The number of rows of each tile, at most [`PairKernels::rows`]. The second may be 0.
    pub rows: [usize; 2],
    /// The stride between rows of A.
    pub a_row: usize,
    /// The offset of each segment of product indices from the first element of a row.
    pub segments: &'a [usize],
    /// The number of product indices in a segment, a multiple of [`STEP`].
    pub run: usize,
    /// The panel of B.
    pub b: *const u16,
    /// The number of columns to compute. The sums of others are undefined.
    pub cols: usize,
    /// Where to prefetch from: see [`prefetched_part`].
    pub next: *const u16,
}

/// The number of elements that a block prefetches in each step.
const PREFETCHED: usize = STEP * COLS / 4;

/// What block `i` of those that multiply panel `b` prefetches of the next panel: a quarter each. AMX multiplies faster
/// than the processor's own prefetcher follows, and the first block of a panel would wait for memory.
#[inline]
pub(super) fn prefetched_part(b: *const u16, len: usize, i: usize, is_last: bool) -> *const u16 {
    match i < 4 && !is_last {
        true => b.wrapping_add(len + i * len / 4),
        // In cache already.
        false => b,
    }
}

/// The kernels of one unit, and what they need of their operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairKernels {
    pub unit: PairUnit,
    pub isa: Isa,
    /// The maximum number of rows of a tile.
    pub rows: usize,
}

impl PairKernels {
    /// The kernels for a target. AMX is used only if the system permits it.
    pub(super) fn for_target(target: Target) -> PairKernels {
        let mut unit = target.pair_unit();
        #[cfg(target_arch = "x86_64")]
        if unit == PairUnit::Tiles && !amx::is_permitted() {
            unit = PairUnit::Dots;
        }
        PairKernels::new(unit, target.isa())
    }

    /// The kernels of a unit. The machine must have it.
    pub(super) fn new(unit: PairUnit, isa: Isa) -> PairKernels {
        let rows = match (unit, isa) {
            (PairUnit::Tiles, _) => TILE_ROWS,
            (_, Isa::Avx512) => 12,
            (_, Isa::Avx2) => 5,
            (_, Isa::Portable) => 4,
        };
        PairKernels { unit, isa, rows }
    }

    /// Whether rows of A are f32 rather than bf16.
    pub(super) fn widens_rows(&self) -> bool {
        self.unit == PairUnit::Widening
    }

    /// The number of bytes of an element of A.
    pub(super) fn row_element(&self) -> usize {
        if self.widens_rows() { 4 } else { 2 }
    }

    /// How many multiply-adds take the time of one of f32, roughly.
    pub(super) fn rate(&self) -> usize {
        match self.unit {
            PairUnit::Tiles => 8,
            PairUnit::Dots => 2,
            PairUnit::Widening => 1,
        }
    }

    /// Whether pairs are multiplied faster than f32. Widened pairs are not.
    pub(super) fn are_faster_than_f32(&self) -> bool {
        self.rate() > 1
    }

    /// The state that a thread needs to compute blocks.
    pub(super) fn begin(&self) -> PairBlocks {
        PairBlocks {
            kernels: *self,
            sums: scratch::take_buffer(SUMS),
            configured: [0; 2],
        }
    }
}

impl fmt::Display for PairKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            PairUnit::Tiles => f.write_str("amx"),
            PairUnit::Dots => f.write_str("avx512bf16"),
            PairUnit::Widening => self.isa.fmt(f),
        }
    }
}

/// Computes blocks on one thread. AMX is configured as long as this exists.
pub(super) struct PairBlocks {
    kernels: PairKernels,
    sums: Scratch,
    /// The rows of the tiles for which AMX is configured.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there is no AMX"))]
    configured: [usize; 2],
}

impl PairBlocks {
    /// Computes a block. Returns the sums: the rows of both tiles, [`COLS`] elements each.
    ///
    /// # Safety
    /// The job's pointers are valid: A for its rows over all segments, B for the panel. The machine has the unit.
    #[inline]
    pub(super) unsafe fn compute(&mut self, job: &PairJob) -> *const f32 {
        let sums = self.sums.as_mut_ptr();
        // SAFETY: guaranteed by the caller; the buffer has the rows.
        unsafe {
            match self.kernels.unit {
                #[cfg(target_arch = "x86_64")]
                PairUnit::Tiles => {
                    if self.configured != job.rows {
                        amx::configure(job.rows);
                        self.configured = job.rows;
                    }
                    amx::run_block(job, sums);
                }
                unit => {
                    let mut done = 0;
                    for (a, rows) in job.a.into_iter().zip(job.rows).filter(|t| t.1 > 0) {
                        vector::tile_kernel(unit, self.kernels.isa, rows)(job, a, sums.add(done * COLS));
                        done += rows;
                    }
                }
            }
        }
        sums
    }
}

impl Drop for PairBlocks {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.configured != [0; 2] {
            // SAFETY: only AMX kernels configure tiles, so the machine has them.
            unsafe { amx::release() };
        }
    }
}
