//! Weights of recurrent layers, packed in the order in which steps read them.

use crate::math::contract::{Constant, PlanError};
use crate::tensor::AlignedBytes;
use half::bf16;
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
        let (depth, n, groups) = (self.depth(), self.block, self.groups);
        for b in 0..self.blocks() {
            for g in 0..groups {
                let count = n.min(self.units - b * n);
                // SAFETY: rows `g * units + b * n ..` of the weight; the gate's columns of the block.
                unsafe {
                    let src = w.add((g * self.units + b * n) * self.columns);
                    let dst = to.add(b * depth * groups * n + g * n);
                    for k in 0..depth {
                        for u in 0..n {
                            let word = if u < count {
                                self.word(src.add(u * self.columns), k)
                            } else {
                                0.0
                            };
                            *dst.add(k * groups * n + u) = word;
                        }
                    }
                }
            }
        }
    }

    /// Word `k` of a packed row of the weight.
    ///
    /// # Safety
    /// The row has all columns.
    #[inline(always)]
    unsafe fn word(&self, row: *const f32, k: usize) -> f32 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if !self.in_pairs {
                return *row.add(k);
            }
            let element = |i: usize| {
                if i < self.columns {
                    bf16::from_f32(*row.add(i))
                } else {
                    bf16::ZERO
                }
            };
            let [low, high] = [2 * k, 2 * k + 1].map(|i| u32::from(element(i).to_bits()));
            f32::from_bits(low | high << 16)
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
