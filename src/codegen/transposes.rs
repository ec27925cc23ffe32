//! Loop nests that copy a transposed tile.
//!
//! Two loops that read along one dim and write along the other would load each lane by itself. Such a nest becomes a call of
//! [`transpose_tile`](crate::tensor::transpose_tile), which transposes blocks in registers.

use super::analysis::transposed_copy;
use super::state::FunctionLowering;
use crate::code::transpose_symbol;
use crate::kernel::{Buf, Index, Loop};
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};

impl FunctionLowering<'_> {
    /// Lowers a nest that is a transposed copy; false if it is something else.
    pub(super) fn lower_transposed_copy(&mut self, l: &Loop) -> bool {
        let Some(copy) = transposed_copy(self.k, l).filter(|_| self.lane.is_none()) else {
            return false;
        };
        let ((from, source), (to, result)) = (copy.source, copy.result);
        let size = self.k.buffer(from).dtype.size() as i64;
        let [rows, columns] = [copy.row, copy.column].map(|v| self.k.extent(v) as i64);
        if rows == 0 || columns == 0 {
            return true;
        }
        let line = source.affine.stride(copy.column) * size;
        let mut row = result.affine.stride(copy.row) * size;
        // The variables of both loops count as 0 while they are not open.
        let (mut src, mut dst) = (self.address_of(from, source), self.address_of(to, result));
        if source.affine.stride(copy.row) < 0 {
            // Read forwards, and write the rows from the last to the first.
            src = self.e.b.ins().iadd_imm_s(src, -(rows - 1) * size);
            dst = self.e.b.ins().iadd_imm_s(dst, (rows - 1) * row);
            row = -row;
        }
        let [line, row, rows, columns] = [line, row, rows, columns].map(|n| self.e.b.ins().iconst(I64, n));
        self.e
            .call_routine(&transpose_symbol(size as usize), &[src, line, dst, row, rows, columns]);
        true
    }

    fn address_of(&mut self, b: Buf, i: &Index) -> Value {
        let (base, offset) = self.access_address(b, i);
        self.e.b.ins().iadd_imm_s(base, i64::from(offset))
    }
}
