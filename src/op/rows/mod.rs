//! The rows of the op table, by family.

mod arrange;
mod attention;
mod control;
mod conv;
mod creation;
mod dense;
mod gradient;
mod index;
mod linalg;
mod lines;
mod losses;
mod matmul;
mod norms;
mod pointwise;
mod pool;
mod python;
mod random;
mod reduce;
mod rnn;
mod spell;
mod views;
mod vision;

use super::Op;

/// Every row.
pub fn all() -> Vec<Op> {
    [
        pointwise::arith::rows(),
        pointwise::unary::rows(),
        pointwise::activation::rows(),
        pointwise::compare::rows(),
        pointwise::select::rows(),
        pointwise::numbers::rows(),
        pointwise::quantized::rows(),
        creation::rows(),
        reduce::rows(),
        linalg::norms::rows(),
        reduce::moments::rows(),
        reduce::scan::rows(),
        random::rows(),
        random::distributions::rows(),
        random::gumbel::rows(),
        vision::detection::rows(),
        vision::rois::rows(),
        vision::regions::rows(),
        views::rows(),
        views::affine::rows(),
        views::slices::rows(),
        views::splits::rows(),
        matmul::rows(),
        matmul::products::rows(),
        matmul::grouped::rows(),
        control::rows(),
        conv::rows(),
        conv::tbc::rows(),
        pointwise::convert::rows(),
        views::getitem::rows(),
        python::rows(),
        python::symbolic(),
        index::gather::rows(),
        index::rows(),
        index::scatter::rows(),
        arrange::joining::rows(),
        arrange::padding::rows(),
        vec![arrange::padding::pad_all()],
        pool::rows(),
        norms::softmax::rows(),
        norms::rows(),
        vec![norms::batch_norm::unbatched()],
        attention::rows(),
        random::dropout::rows(),
        vision::rows(),
        attention::multihead::rows(),
        attention::transformer::rows(),
        matmul::distance::rows(),
        conv::fold::rows(),
        vision::grid::rows(),
        rnn::rows(),
        matmul::einsum::rows(),
        index::embedding_bag::rows(),
        vision::resample::rows(),
        arrange::rearrange::rows(),
        index::sort::rows(),
        index::sort::searches(),
        index::by_value::rows(),
        vec![index::by_value::by_max()],
        arrange::assembly::rows(),
        losses::rows(),
        losses::adaptive::rows(),
        losses::classes::rows(),
        losses::margins::rows(),
        losses::sequences::rows(),
        linalg::rows(),
        linalg::composites::rows(),
        linalg::factors::rows(),
        linalg::spectra::rows(),
        reduce::statistics::rows(),
        pointwise::special::rows(),
        gradient::rows(),
        reduce::histogram::rows(),
        arrange::parts::rows(),
        reduce::runs::rows(),
        pool::unpool::rows(),
        creation::windows::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
