//! Weights of recurrent layers, packed in the order in which steps read them.

use crate::math::contract::{Constant, PlanError};
use crate::tensor::AlignedBytes;
use std::sync::Arc;

/// Steps with fewer multiply-adds stay on one thread.
const ALONE: usize = 60_000;

/// A weight as steps read it: `[block][column][group][unit]`. Units after the last are zeros.
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
}

impl Matrix {
    pub(super) fn blocks(&self) -> usize {
        self.units.div_ceil(self.block)
    }

    pub(super) fn len(&self) -> usize {
        self.blocks() * self.block * self.groups * self.columns
    }

    /// Packs the weight.
    ///
    /// # Safety
    /// `w` is readable for `[groups * units, columns]`, `to` writable for the packed length.
    pub(super) unsafe fn pack(&self, w: *const f32, to: *mut f32) {
        let (columns, n, groups) = (self.columns, self.block, self.groups);
        for b in 0..self.blocks() {
            for g in 0..groups {
                let count = n.min(self.units - b * n);
                // SAFETY: rows `g * units + b * n ..` of the weight; the gate's columns of the block.
                unsafe {
                    let src = w.add((g * self.units + b * n) * columns);
                    let dst = to.add(b * columns * groups * n + g * n);
                    for k in 0..columns {
                        for u in 0..n {
                            *dst.add(k * groups * n + u) = if u < count { *src.add(u * columns + k) } else { 0.0 };
                        }
                    }
                }
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
        let key = [4, self.groups, self.units, self.columns, self.block];
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
