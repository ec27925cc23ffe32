//! Products of bf16 with f32 sums, and of bytes with i32 sums: the blocks that matrix products and convolutions are made of.
//!
//! B is packed in groups of 32 bits along the product index: a pair of bf16, `[panel][k / 2][32 columns][2]`, or four bytes,
//! `[panel][k / 4][32 columns][4]`, with zeros up to a whole step: a group, or the 16 groups that an AMX instruction reads. All
//! units read this form. A stays in rows, whose elements are contiguous along the product index; a row already consists of
//! groups. A block has up to two tiles of rows and one panel of columns. Its sums are in a buffer in the L1 cache, from which
//! [`store`] writes the result with bias, activation and one rounding. Sums of bytes are written to their place at once.
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
//!
//! Products that are not worth packing B have kernels of their own: [`lines`] if the rows of B are contiguous, [`dots`] if its columns
//! are.
//!
//! Products of bytes ([`Factors::Bytes`]) use `tdpbusd` and `tdpbssd`, or `vpdpbusd`. Their sums are exact modulo 2³².

#[cfg(target_arch = "x86_64")]
mod amx;
pub(super) mod dots;
pub(super) mod lines;
#[cfg(test)]
mod model;
pub(super) mod pack;
pub(super) mod store;
#[cfg(test)]
pub(super) mod tests;
mod vector;

use super::contract::ByteInput;
use super::scratch::{self, Scratch};
use crate::target::{Feature, Isa, PairUnit, Target};
use std::fmt;

/// The number of columns in a panel of B.
pub(super) const COLS: usize = 32;
/// The product indices of bf16 in one AMX instruction.
pub(super) const STEP: usize = 32;
/// The groups in one AMX instruction.
const STEP_GROUPS: usize = STEP / 2;
/// The length of a panel of B for one AMX instruction, in words of 16 bits.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there is no AMX"))]
const STEP_WORDS: usize = STEP * COLS;
/// The maximum number of rows in a tile of any unit.
const TILE_ROWS: usize = 16;
/// The number of elements of the buffer for a block's sums.
const SUMS: usize = 2 * TILE_ROWS * COLS;

/// `n` product indices of bf16 with the padding that every unit accepts.
pub(super) fn padded_run(n: usize) -> usize {
    n.next_multiple_of(STEP)
}

/// The elements of both factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factors {
    /// bf16. Sums are f32.
    Bf16,
    /// Bytes: A is of this dtype, and B is i8. Sums are i32.
    Bytes(ByteInput),
}

/// One block: up to two tiles of rows times one panel. Strides are in bytes.
pub(super) struct PairJob<'a> {
    /// The first row of each tile, before the segments' offsets. Elements are as [`PairKernels::row_element`] says.
    pub a: [*const u8; 2],
    /// The number of rows of each tile, at most [`PairKernels::rows`]. The second may be 0.
    pub rows: [usize; 2],
    /// The stride between rows of A.
    pub a_row: usize,
    /// The offset of each segment of product indices from the first element of a row.
    pub segments: &'a [usize],
    /// The number of groups in a segment, which is a whole number of steps ([`PairKernels::step`]).
    pub groups: usize,
    /// The panel of B, in words of 16 bits.
    pub b: *const u16,
    /// The number of columns to compute. The sums of others are undefined.
    pub cols: usize,
    /// Whether to add to the sums that are there. AMX cannot: see [`PairKernels::adds_to_sums`].
    pub adds: bool,
    /// Where to prefetch from: see [`prefetched_part`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there is no AMX"))]
    pub next: *const u16,
}

/// Where the sums of a block are written.
#[derive(Clone, Copy)]
pub(super) struct SumRows {
    /// The sum in row 0 and column 0.
    pub first: *mut f32,
    /// The stride between rows, in elements.
    pub row: usize,
}

impl SumRows {
    /// The address of a sum.
    #[inline(always)]
    pub(super) fn at(self, row: usize, col: usize) -> *mut f32 {
        self.first.wrapping_add(row * self.row + col)
    }
}

/// The maximum number of sums of bytes that wait for a tail in working memory: a quarter of a 2 MB L2 cache.
const WAITING_SUMS: usize = 128 << 10;
/// The same for vectors, which leave time to read a B in the L2 cache once for each block: half of a 32 KB L1 cache.
const NEAR_WAITING_SUMS: usize = 4 << 10;
/// The greatest B for which that holds, in bytes.
const NEAR_PANELS: usize = 512 << 10;

/// The number of words that a block prefetches in each step.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there is no AMX"))]
const PREFETCHED: usize = STEP_WORDS / 4;

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
    pub factors: Factors,
    pub unit: PairUnit,
    /// The unit of the kernels for bytes.
    byte_unit: PairUnit,
    /// Whether vectors multiply groups of four bytes and interleave bytes.
    pub has_quads: bool,
    pub isa: Isa,
    /// The maximum number of rows of a tile.
    pub rows: usize,
}

impl PairKernels {
    /// The kernels for a target. AMX is used only if the system permits it.
    pub(super) fn for_target(target: Target) -> PairKernels {
        let target = match target.has(Feature::AmxTile) && !are_tiles_permitted() {
            true => target.without(Feature::AmxTile),
            false => target,
        };
        PairKernels {
            byte_unit: target.byte_unit(),
            has_quads: target.isa() == Isa::Avx512 && target.has(Feature::Avx512Vnni),
            ..PairKernels::new(target.pair_unit(), target.isa())
        }
    }

    /// The kernels of a unit for bf16. The machine must have it.
    pub(super) fn new(unit: PairUnit, isa: Isa) -> PairKernels {
        let rows = match (unit, isa) {
            (PairUnit::Tiles, _) => TILE_ROWS,
            (_, Isa::Avx512) => 12,
            (_, Isa::Avx2) => 5,
            (_, Isa::Portable) => 4,
        };
        PairKernels {
            factors: Factors::Bf16,
            unit,
            byte_unit: PairUnit::Widening,
            has_quads: false,
            isa,
            rows,
        }
    }

    /// The kernels for bytes with the same features.
    pub(super) fn for_bytes(&self, input: ByteInput) -> PairKernels {
        PairKernels {
            factors: Factors::Bytes(input),
            has_quads: self.has_quads,
            ..PairKernels::new(self.byte_unit, self.isa)
        }
    }

    /// Whether the factors are bytes.
    pub(super) fn are_bytes(&self) -> bool {
        self.factors != Factors::Bf16
    }

    /// The elements of both factors, for reports and as a part of the keys of packed forms. `wide` states whether operands are
    /// f32, to be rounded.
    pub(super) fn describe_factors(&self, wide: bool) -> (&'static str, usize) {
        match (self.are_bytes(), wide) {
            (false, false) => ("bf16", 0),
            (false, true) => ("f32 in bf16", 1),
            (true, _) => ("int8", 2),
        }
    }

    /// Whether rows of A are f32 rather than bf16.
    pub(super) fn widens_rows(&self) -> bool {
        self.unit == PairUnit::Widening && !self.are_bytes()
    }

    /// The number of bytes of an element of A.
    pub(super) fn row_element(&self) -> usize {
        match (self.factors, self.unit) {
            (Factors::Bytes(_), _) => 1,
            (Factors::Bf16, PairUnit::Widening) => 4,
            (Factors::Bf16, _) => 2,
        }
    }

    /// The number of product indices in a group.
    pub(super) fn group(&self) -> usize {
        if self.are_bytes() { 4 } else { 2 }
    }

    /// The number of product indices in a step: runs of product indices are padded to a multiple of it.
    pub(super) fn step(&self) -> usize {
        match self.unit {
            PairUnit::Tiles => STEP_GROUPS * self.group(),
            PairUnit::Dots | PairUnit::Widening => self.group(),
        }
    }

    /// The number of columns that a block computes for `cols` columns.
    pub(super) fn computed_cols(&self, cols: usize) -> usize {
        match self.unit {
            PairUnit::Tiles | PairUnit::Dots => cols.next_multiple_of(COLS / 2),
            PairUnit::Widening => cols.next_multiple_of(COLS),
        }
    }

    /// `n` product indices with padding.
    pub(super) fn padded_run(&self, n: usize) -> usize {
        n.next_multiple_of(self.step())
    }

    /// The length of a panel of B for `run` product indices with padding, in words of 16 bits.
    pub(super) fn panel_words(&self, run: usize) -> usize {
        run / self.group() * 2 * COLS
    }

    /// How many multiply-adds take the time of one of f32, roughly.
    pub(super) fn rate(&self) -> usize {
        match self.unit {
            PairUnit::Tiles => 8 << self.are_bytes() as usize,
            PairUnit::Dots => 2 << self.are_bytes() as usize,
            PairUnit::Widening => 1,
        }
    }

    /// Whether pairs are multiplied faster than f32. Widened pairs are not.
    pub(super) fn are_faster_than_f32(&self) -> bool {
        self.rate() > 1
    }

    /// The maximum number of sums of bytes that wait for a tail, after which all panels, of this many words together, are read again.
    pub(super) fn waiting_sums(&self, panel_words: usize) -> usize {
        match self.unit {
            PairUnit::Tiles => WAITING_SUMS,
            _ if panel_words > NEAR_PANELS / 2 => WAITING_SUMS,
            PairUnit::Dots | PairUnit::Widening => NEAR_WAITING_SUMS,
        }
    }

    /// Whether a block writes exactly `cols` columns, so that it can write them to a result of sums.
    pub(super) fn writes_exactly(&self, cols: usize) -> bool {
        match self.unit {
            PairUnit::Dots => cols.is_multiple_of(COLS / 2),
            PairUnit::Tiles | PairUnit::Widening => cols == COLS,
        }
    }

    /// Whether blocks of 32 sums are rounded to bf16 by the processor.
    pub(super) fn rounds_blocks(&self) -> bool {
        let converts = self.unit != PairUnit::Widening && self.isa == Isa::Avx512;
        cfg!(target_arch = "x86_64") && converts && !self.are_bytes()
    }

    /// Whether blocks can add to the sums that are there.
    pub(super) fn adds_to_sums(&self) -> bool {
        self.unit != PairUnit::Tiles && !self.are_bytes()
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

/// Whether this process may use the tiles of AMX. Elsewhere there are none.
fn are_tiles_permitted() -> bool {
    #[cfg(target_arch = "x86_64")]
    return amx::is_permitted();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl fmt::Display for PairKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            PairUnit::Tiles => f.write_str("amx"),
            PairUnit::Dots if self.are_bytes() => f.write_str("avx512vnni"),
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
    /// Computes a block. Returns the sums: the rows of both tiles, [`COLS`] elements each; those of bytes are i32.
    ///
    /// # Safety
    /// The job's pointers are valid: A for its rows over all segments, B for the panel. The machine has the unit.
    #[inline]
    pub(super) unsafe fn compute(&mut self, job: &PairJob) -> *const f32 {
        let sums = SumRows {
            first: self.sums.as_mut_ptr(),
            row: COLS,
        };
        // SAFETY: guaranteed by the caller; the buffer has the rows.
        unsafe { self.compute_into(job, sums) };
        sums.first
    }

    /// The place of the sums of `rows` rows of [`COLS`] elements, which become zeros.
    pub(super) fn begin_sums(&mut self, rows: usize) -> SumRows {
        self.sums[..rows * COLS].fill(0.0);
        SumRows {
            first: self.sums.as_mut_ptr(),
            row: COLS,
        }
    }

    /// Computes a block into `sums`, which have the rows of both tiles, and [`COLS`] columns unless the kernels write exactly those
    /// of the job ([`PairKernels::writes_exactly`]).
    ///
    /// # Safety
    /// As for [`PairBlocks::compute`].
    #[inline]
    pub(super) unsafe fn compute_into(&mut self, job: &PairJob, mut sums: SumRows) {
        debug_assert!(!job.adds || self.kernels.adds_to_sums());
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.kernels.unit {
                #[cfg(target_arch = "x86_64")]
                PairUnit::Tiles => {
                    if self.configured != job.rows {
                        amx::configure(job.rows);
                        self.configured = job.rows;
                    }
                    amx::run_block(self.kernels.factors, job, sums);
                }
                _ => {
                    for (a, rows) in job.a.into_iter().zip(job.rows).filter(|t| t.1 > 0) {
                        vector::tile_kernel(&self.kernels, rows, job.cols)(job, a, sums);
                        sums.first = sums.at(rows, 0);
                    }
                }
            }
        }
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
