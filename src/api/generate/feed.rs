//! The inputs of one call: tokens, positions, masks and caches as tensors.

use super::signature::{InputInfo, ModelInputs};
use crate::api::input::Input;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;

impl ModelInputs {
    /// The inputs of a call with these tokens, which come after `past` others.
    pub(super) fn inputs(&self, tokens: &[i64], past: usize, caches: &[Tensor]) -> Vec<Input<'static>> {
        let named = |i: &InputInfo, t: Tensor| Input::from((i.name.clone(), t));
        let mut inputs = vec![named(&self.tokens, integers(&self.tokens, tokens))];
        let positions: Vec<i64> = (0..tokens.len()).map(|i| (past + i) as i64).collect();
        inputs.extend(self.positions.iter().map(|i| named(i, positions_for(i, &positions))));
        let mask = |i: &InputInfo| named(i, mask_for(i, tokens.len(), past));
        inputs.extend(self.masks.iter().map(mask));
        let caches = self.caches.iter().zip(caches);
        inputs.extend(caches.map(|(i, t)| named(i, t.clone())));
        inputs
    }

    /// The caches before the first token: zeros, with no positions if their number grows.
    pub(super) fn empty_caches(&self) -> Vec<Tensor> {
        let empty = |i: &InputInfo| {
            let growing = i.shape.len() - 2;
            let size = |(d, n): (usize, &Option<usize>)| n.unwrap_or(usize::from(d != growing));
            let shape: Vec<usize> = i.shape.iter().enumerate().map(size).collect();
            Tensor::zeros(i.dtype, &shape)
        };
        self.caches.iter().map(empty).collect()
    }
}

/// Integers along the last dim of an input; other dims have size 1.
fn integers(input: &InputInfo, values: &[i64]) -> Tensor {
    let mut shape = vec![1; input.shape.len()];
    if let Some(last) = shape.last_mut() {
        *last = values.len();
    }
    Tensor::from_slice(&shape, values).to(input.dtype)
}

/// The positions, or the first one for an input with one element.
fn positions_for(input: &InputInfo, positions: &[i64]) -> Tensor {
    let takes_one = input.shape.is_empty() || input.size_from_end(0) == Some(1);
    integers(input, if takes_one { &positions[..1] } else { positions })
}

/// A mask over all positions so far: for all tokens of the call, or a row for each (rank 3 and 4). Masks of a fixed size
/// also cover the positions that are not used yet.
fn mask_for(input: &InputInfo, count: usize, past: usize) -> Tensor {
    let positions = input.size_from_end(0).unwrap_or(past + count);
    let rank = input.shape.len();
    let rows = if rank > 2 { count } else { 1 };
    let first_row = if rank > 2 { past + 1 } else { past + count };
    let visible = |row: usize, position: usize| position < first_row + row;
    let mut shape = vec![1; rank];
    if let Some(last) = shape.last_mut() {
        *last = positions;
    }
    if rank > 2 {
        shape[rank - 2] = rows;
    }
    let [hidden, shown] = mask_values(input.dtype);
    let mut mask = Tensor::zeros(input.dtype, &shape);
    for row in 0..rows {
        for position in 0..positions {
            let value = if visible(row, position) { shown } else { hidden };
            mask.set(row * positions + position, value);
        }
    }
    mask
}

/// The values of a mask: hidden, visible. A float is added to scores, others say whether a position may be attended to.
fn mask_values(dtype: DType) -> [Scalar; 2] {
    match dtype.is_float() {
        true => [Scalar::from_f64(dtype, f64::NEG_INFINITY), Scalar::from_f64(dtype, 0.0)],
        false => [Scalar::from_i64(dtype, 0), Scalar::from_i64(dtype, 1)],
    }
}
