//! The rows of the op table, by family.

mod activation;
mod affine;
mod arith;
mod compare;
mod creation;
mod select;
mod spell;
mod splits;
mod unary;
mod views;

use super::Op;

/// Every row.
pub fn all() -> Vec<Op> {
    [
        arith::rows(),
        unary::rows(),
        activation::rows(),
        compare::rows(),
        select::rows(),
        creation::rows(),
        views::rows(),
        affine::rows(),
        splits::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
