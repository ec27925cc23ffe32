//! The rows of the op table, by family.

mod arrange;
mod attention;
mod control;
mod conv;
mod creation;
mod dense;
mod fill;
mod gradient;
mod index;
mod linalg;
mod lines;
mod losses;
mod matmul;
mod narrow;
mod norms;
mod order;
mod pointwise;
mod pool;
mod prims;
mod python;
mod python_equal;
mod python_math;
mod python_sequences;
mod random;
mod reduce;
mod rnn;
pub(in crate::op) mod spell;
mod views;
mod vision;
mod wrappers;

pub(crate) use fill::fill_new;

use super::Op;

/// All rows, by family. If several ops share a spelling, they are tried in this order.
pub(crate) fn all_rows() -> Vec<Op> {
    [
        pointwise::rows(),
        creation::rows(),
        random::rows(),
        reduce::rows(),
        views::rows(),
        arrange::rows(),
        index::rows(),
        matmul::rows(),
        linalg::rows(),
        attention::rows(),
        conv::rows(),
        pool::rows(),
        vision::rows(),
        norms::rows(),
        rnn::rows(),
        losses::rows(),
        gradient::rows(),
        control::rows(),
        wrappers::rows(),
        python::rows(),
        python_equal::rows(),
        python_sequences::rows(),
        python_math::rows(),
        prims::rows(),
    ]
    .into_iter()
    .flatten()
    .map(prims::with_prim_spellings)
    .collect()
}
