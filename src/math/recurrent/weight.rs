//! Weights of recurrent layers, packed in the order in which steps read them.

use crate::math::contract::{Constant, PlanError};
use crate::tensor::AlignedBytes;
use std::sync::Arc;

/// Multiply-adds of a step below which it stays on one thread.
const ALONE: usize = 60_000;

/// A weight as steps read it: `[block][column][group][unit]`, units beyond the last as zeros.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    /// Gates.
    pub groups: usize,
    /// Rows of each gate.
    pub units: usize,
    /// Columns: the size of the state that is multiplied.
    pub columns: usize,
    /// Units of a block.
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

    /// A constant weight, packed once for all who read it so.
    pub(super) fn pack_constant(&self, constant: Constant) -> Result<Arc<AlignedBytes>, PlanError> {
        let need = self.groups * self.units * self.columns * 4;
        if constant.len() < need {
            let got = constant.len();
            return Err(PlanError::Constant { need, got });
        }
        let key = [4, self.groups, self.units, self.columns, self.block];
        Ok(constant.get_or_pack(&key, |bytes| {
            let w = crate::math::matmul::packed::to_aligned_f32(bytes);
            let mut packed = AlignedBytes::zeroed(self.len() * 4);
            // SAFETY: the weight has its extent, the destination the length of the packed one.
            unsafe { self.pack(w.as_ptr(), packed.bytes_mut().as_mut_ptr().cast()) };
            packed
        }))
    }

    /// On how many threads `batch` rows are multiplied.
    pub(super) fn chunk_count(&self, batch: usize, threads: usize) -> usize {
        let macs = batch * self.groups * self.units * self.columns;
        if macs < ALONE { 1 } else { threads.min(self.blocks()) }
    }
}
