//! The rows of the op table, by family.

mod activation;
mod adaptive;
mod affine;
mod arith;
mod assembly;
mod attention;
mod batch_norm;
mod class_losses;
mod compare;
mod control;
mod conv;
mod convert;
mod creation;
mod dense;
mod detection;
mod distance;
mod distributions;
mod dropout;
mod einsum;
mod embedding_bag;
mod factorize;
mod fold;
mod gather;
mod getitem;
mod gradient;
mod grid;
mod histogram;
mod index;
mod joining;
mod linalg;
mod linalg_composites;
mod linalg_factors;
mod linalg_norms;
mod linalg_spectra;
mod lines;
mod losses;
mod margin_losses;
mod matmul;
mod matrix;
mod moments;
mod multihead;
mod norms;
mod padding;
mod parts;
mod pool;
mod pool_window;
mod products;
mod python;
mod random;
mod rearrange;
mod reduce;
mod resample;
mod resample_bytes;
mod rnn;
mod rnn_steps;
mod runs;
mod scan;
mod scatter;
mod select;
mod select_by_value;
mod sequence_losses;
mod slices;
mod softmax;
mod sort;
mod special;
mod spectra;
mod spell;
mod splits;
mod statistics;
mod transformer;
mod unary;
mod unpool;
mod views;
mod vision;
mod windows;

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
        linalg_norms::rows(),
        moments::rows(),
        scan::rows(),
        random::rows(),
        distributions::rows(),
        detection::rows(),
        views::rows(),
        affine::rows(),
        slices::rows(),
        splits::rows(),
        matmul::rows(),
        products::rows(),
        control::rows(),
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
        vision::rows(),
        multihead::rows(),
        transformer::rows(),
        distance::rows(),
        fold::rows(),
        grid::rows(),
        rnn::rows(),
        einsum::rows(),
        embedding_bag::rows(),
        resample::rows(),
        rearrange::rows(),
        sort::rows(),
        sort::searches(),
        select_by_value::rows(),
        vec![select_by_value::by_max()],
        assembly::rows(),
        losses::rows(),
        adaptive::rows(),
        class_losses::rows(),
        margin_losses::rows(),
        sequence_losses::rows(),
        linalg::rows(),
        linalg_composites::rows(),
        linalg_factors::rows(),
        linalg_spectra::rows(),
        statistics::rows(),
        special::rows(),
        gradient::rows(),
        histogram::rows(),
        parts::rows(),
        runs::rows(),
        unpool::rows(),
        windows::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
