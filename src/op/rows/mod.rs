//! The rows of the op table, by family.

mod activation;
mod affine;
mod arith;
mod attention;
mod batch_norm;
mod compare;
mod conv;
mod convert;
mod creation;
mod dense;
mod dropout;
mod gather;
mod getitem;
mod index;
mod joining;
mod lines;
mod matmul;
mod moments;
mod norms;
mod padding;
mod pool;
mod pool_window;
mod python;
mod random;
mod reduce;
mod scan;
mod scatter;
mod select;
mod softmax;
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
        reduce::rows(),
        moments::rows(),
        scan::rows(),
        random::rows(),
        views::rows(),
        affine::rows(),
        splits::rows(),
        matmul::rows(),
        matmul::composites(),
        conv::rows(),
        convert::rows(),
        getitem::rows(),
        python::rows(),
        python::symbolic(),
        gather::rows(),
        index::rows(),
        scatter::rows(),
        joining::rows(),
        padding::rows(),
        vec![padding::pad_all()],
        pool::rows(),
        softmax::rows(),
        norms::rows(),
        vec![batch_norm::unbatched()],
        attention::rows(),
        dropout::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
