//! Weights of recurrent layers, packed in the order in which steps read them.

use crate::math::contract::{Constant, PlanError};
use crate::math::pairs::pack::narrow_row;
use crate::math::scratch;
use crate::math::transpose::transpose;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use std::sync::Arc;

/// Steps with fewer multiply-adds stay on one thread.
const ALONE: usize = 60_000;

/// A weight as steps read it: `[block][column][group][unit]`, or `[block][pair of columns][group][unit]`. Units and columns after the last are
/// zeros.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    /// The number of gates.
    pub groups: usize,
    /// The number of rows of each gate.
    pub units: usize,
    /// The number of columns: the size of the state that is multiplied.
    pub columns: usize,
    /// The number of units in a block.
    pub block: usize,
    pub isa: Isa,
    /// Whether the elements of two columns are packed as a pair of bf16, in the place of one f32.
    pub in_pairs: bool,
}

impl Matrix {
    pub(super) fn blocks(&self) -> usize {
        self.units.div_ceil(self.block)
    }

    /// The number of f32, or pairs, that steps multiply for each sum.
    pub(super) fn depth(&self) -> usize {
        if self.in_pairs {
            self.columns.div_ceil(2)
        } else {
            self.columns
        }
    }

    /// The length of the packed weight, in words of 32 bits.
    pub(super) fn len(&self) -> usize {
        self.blocks() * self.block * self.groups * self.depth()
    }

    /// Packs the weight.
    ///
    /// # Safety
    /// `w` is readable for `[groups * units, columns]`, `to` writable for the packed length.
    pub(super) unsafe fn pack(&self, w: *const f32, to: *mut f32) {
        let (depth, n) = (self.depth(), self.block);
        let row = self.groups * n;
        let mut words = scratch::take_buffer(if self.in_pairs { n * depth } else { 0 });
        for i in 0..self.blocks() * self.groups {
            let (b, g) = (i / self.groups, i % self.groups);
            let count = n.min(self.units - b * n);
            // SAFETY: rows `g * units + b * n ..` of the weight; the gate's columns of the block.
            unsafe {
                let mut src = w.add((g * self.units + b * n) * self.columns);
                let dst = to.add(b * depth * row + g * n);
                if self.in_pairs {
                    self.round_rows(src, count, words.as_mut_ptr());
                    src = words.as_ptr();
                }
                transpose(src, depth, count, depth, dst, row);
                if count < n {
                    (0..depth).for_each(|k| dst.add(k * row + count).write_bytes(0, n - count));
                }
            }
        }
    }

    /// Rounds rows of the weight or the state to pairs of bf16. Zero makes a pair of the last of an odd number of elements.
    ///
    /// # Safety
    /// `from` is readable for `rows` rows of the columns, and `to` is writable for as many pairs.
    pub(super) unsafe fn round_rows(&self, from: *const f32, rows: usize, to: *mut f32) {
        let (to, row) = (to.cast::<u16>(), 2 * self.depth());
        for r in 0..rows {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let to = to.add(r * row);
                narrow_row(self.isa)(from.add(r * self.columns), self.columns, to);
                to.add(self.columns).write_bytes(0, row - self.columns);
            }
        }
    }

    /// Packs a constant weight, once for all plans that use this form.
    pub(super) fn pack_constant(&self, constant: Constant) -> Result<Arc<AlignedBytes>, PlanError> {
        let need = self.groups * self.units * self.columns * 4;
        if constant.len() < need {
            let got = constant.len();
            return Err(PlanError::Constant { need, got });
        }
        let key = [
            4,
            self.groups,
            self.units,
            self.columns,
            self.block,
            self.in_pairs as usize,
        ];
        Ok(constant.get_or_pack(&key, |bytes| {
            let w = crate::math::matmul::packed::to_aligned_f32(bytes);
            let mut packed = AlignedBytes::zeroed_in_huge_pages(self.len() * 4);
            // SAFETY: the weight has its extent, and the destination has the packed length.
            unsafe { self.pack(w.as_ptr(), packed.bytes_mut().as_mut_ptr().cast()) };
            packed
        }))
    }

    /// The number of threads that multiply `batch` rows.
    pub(super) fn chunk_count(&self, batch: usize, threads: usize) -> usize {
        let macs = batch * self.groups * self.units * self.columns;
        if macs < ALONE { 1 } else { threads.min(self.blocks()) }
    }
}
