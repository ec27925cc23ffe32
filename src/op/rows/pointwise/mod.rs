//! Functions of elements, each by itself: arithmetic, comparisons, activations, conversions.

pub(super) mod activation;
pub(super) mod arith;
pub(super) mod compare;
pub(super) mod convert;
pub(super) mod numbers;
pub(super) mod quantized;
pub(super) mod select;
pub(super) mod special;
pub(super) mod unary;
