//! Element-wise functions: arithmetic, comparisons, activations, conversions.

mod activation;
mod arith;
pub(super) mod assertions;
mod blockwise;
mod compare;
pub(super) mod convert;
mod numbers;
mod quantized;
mod rrelu;
mod select;
mod special;
mod unary;

use crate::op::Op;

pub(super) fn rows() -> Vec<Op> {
    [
        arith::rows(),
        unary::rows(),
        activation::rows(),
        rrelu::rows(),
        compare::rows(),
        select::rows(),
        numbers::rows(),
        blockwise::rows(),
        quantized::rows(),
        convert::rows(),
        assertions::rows(),
        special::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
