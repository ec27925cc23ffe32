//! Long sums in blocks.
//!
//! Each addition to an f32 sum adds a rounding error relative to that sum: 20000 sequential additions lose 8e-6 of it.
//! Summing a few blocks, which are sums of blocks themselves, loses about as little as torch's cascade. The last sum has
//! the largest errors, because those of its terms cancel, so it has the fewest terms.

use super::vars::Vars;
use super::{LoopDim, Scheduler};
use crate::kernel::{KernelBuilder, ReduceOp, Value};
use crate::lower::ir::ValueId;
use crate::types::DType;

/// Shorter sums are sequential.
const SHORT: usize = 32;
/// The blocks of these sums are sequential.
const TWO_LEVELS: usize = 128;
/// The number of elements of a block that the lanes of a vector sum together.
const VECTOR_BLOCK: usize = 1 << 16;

impl Scheduler<'_> {
    /// The block length for summing the first loop of a row, unless that is short. In a vector loop the lanes share the
    /// row.
    pub(super) fn block_len(&self, k: &KernelBuilder, row: &[LoopDim], inits: &[(ReduceOp, Value)]) -> Option<usize> {
        let sums = inits
            .iter()
            .any(|&(op, v)| op == ReduceOp::Add && k.dtype(v) == DType::F32);
        let vector = row.len() == 1 && !self.columns;
        let n = row[0].extent;
        match vector {
            _ if !sums => None,
            true => (n >= 4 * VECTOR_BLOCK).then_some(VECTOR_BLOCK),
            false => (n >= SHORT).then(|| n / block_count(n)),
        }
    }

    /// [`Self::reduce_nest`] with the first loop split into blocks of `len`.
    pub(super) fn reduce_blocks(
        &mut self,
        k: &mut KernelBuilder,
        vars: &Vars,
        row: &[LoopDim],
        len: usize,
        inits: &[(ReduceOp, Value)],
        stage: usize,
        reduces: &[ValueId],
        stores: &[ValueId],
    ) -> Vec<Value> {
        let (blocks, rest) = (row[0].extent / len, row[0].extent % len);
        let mut row = row.to_vec();
        row[0].extent = len;
        let reductions: Vec<(ReduceOp, [Value; 1])> = inits.iter().map(|&(op, v)| (op, [v])).collect();
        let reductions: Vec<(ReduceOp, &[Value])> = reductions.iter().map(|(op, v)| (*op, &v[..])).collect();
        let sums = k.reduce(blocks, false, &reductions, |k, b| {
            let inner = identity_inits(k, inits);
            let vars = vars.with_part(row[0].last, 0, len, b);
            self.reduce_nest(k, &vars, &row, &inner, stage, reduces, stores)
        });
        if rest == 0 {
            return sums;
        }
        let vars = vars.with_offset(row[0].last, blocks * len);
        row[0].extent = rest;
        // The rest also starts from the identity, not from the sum so far.
        let begun: Vec<(ReduceOp, [Value; 1])> = inits.iter().zip(sums).map(|(&(op, _), v)| (op, [v])).collect();
        let begun: Vec<(ReduceOp, &[Value])> = begun.iter().map(|(op, v)| (*op, &v[..])).collect();
        k.reduce(1, false, &begun, |k, _| {
            let inner = identity_inits(k, inits);
            self.reduce_nest(k, &vars, &row, &inner, stage, reduces, stores)
        })
    }
}

/// The number of blocks of a sum of `n` terms. Blocks without a rest need less code.
fn block_count(n: usize) -> usize {
    let least = if n < TWO_LEVELS { 4 } else { 8 };
    let exact = (least..2 * least).find(|count| n.is_multiple_of(*count));
    exact.unwrap_or(least)
}

/// The initial values of the inner loops of these reductions.
pub(super) fn identity_inits(k: &mut KernelBuilder, inits: &[(ReduceOp, Value)]) -> Vec<(ReduceOp, Value)> {
    let identity = |&(op, v): &(ReduceOp, Value)| {
        let dtype = k.dtype(v);
        (op, k.constant(op.identity(dtype)))
    };
    inits.iter().map(identity).collect()
}
