//! Losses that measure the distance of the input from the target.

use super::{Reduction, loss, parse_reduction, reduce_terms, to_common_dtype, widen_tensors};
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn distance_rows() -> Vec<Op> {
    vec![
        loss!(
            "mse_loss",
            "Tensor self, Tensor target",
            "",
            ", Any size_average=None, Any reduce=None, str reduction='mean'",
            mse_loss,
            "squared differences"
        )
        .module("MSELoss(size_average=None, reduce=None, reduction='mean') = mse_loss($0:input, $1:target, reduction)"),
        loss!(
            "l1_loss",
            "Tensor self, Tensor target",
            "",
            ", Any size_average=None, Any reduce=None, str reduction='mean'",
            l1_loss,
            "absolute differences"
        )
        .module("L1Loss(size_average=None, reduce=None, reduction='mean') = l1_loss($0:input, $1:target, reduction)"),
        loss!(
            "smooth_l1_loss",
            "Tensor self, Tensor target",
            ", float beta=1.0",
            ", Any size_average=None, Any reduce=None, str reduction='mean', float beta=1.0",
            smooth_l1,
            "absolute differences; below beta, squared differences over 2 beta"
        )
        .module("SmoothL1Loss(size_average=None, reduce=None, reduction='mean', beta=1.0) = smooth_l1_loss($0:input, $1:target, reduction, beta)"),
        loss!(
            "huber_loss",
            "Tensor self, Tensor target",
            ", float delta=1.0",
            ", str reduction='mean', float delta=1.0",
            huber_loss,
            "half the squared differences up to delta, linear beyond"
        )
        .module("HuberLoss(reduction='mean', delta=1.0) = huber_loss($0:input, $1:target, reduction, delta)"),
    ]
}

/// Distances with a weight for every element.
pub(super) fn weighted_rows() -> Vec<Op> {
    vec![
        Op::composite("weighted_mse_loss(Tensor self, Tensor target, Any size_average=None, Any reduce=None, str reduction='mean', Tensor? weight=None) \
             -> Tensor",
            |b, c| loss_by_weight(b, c, OpId::MseLoss, true),
        )
        .doc("squared differences times weights; the mean divides by the sum of the weights")
        .spelled("torch.nn.functional.mse_loss"),
        Op::composite("weighted_l1_loss(Tensor self, Tensor target, Any size_average=None, Any reduce=None, str reduction='mean', Tensor? weight=None) \
             -> Tensor",
            |b, c| loss_by_weight(b, c, OpId::L1Loss, true),
        )
        .doc("absolute differences times weights; the mean divides by the sum of the weights")
        .spelled("torch.nn.functional.l1_loss"),
        Op::composite("weighted_huber_loss(Tensor self, Tensor target, str reduction='mean', float delta=1.0, Tensor? weight=None) -> Tensor",
            |b, c| loss_by_weight(b, c, OpId::HuberLoss, false),
        )
        .doc("huber_loss times weights; the mean divides by the number of elements")
        .spelled("torch.nn.functional.huber_loss"),
    ]
}

/// `|self - target|`, and the dtype of the result. `rounds` says for which dtypes torch rounds every step.
fn absolute_difference(b: &mut dyn Build, c: &Call<Traced>, rounds: fn(DType) -> bool) -> OpResult<(Traced, DType)> {
    let operands = [c.leaf("self")?, c.leaf("target")?];
    let (mut t, dtype) = widen_tensors(b, &operands)?;
    if rounds(dtype) {
        (t, _) = to_common_dtype(b, &operands)?;
    }
    let d = b.sub(&t[0], &t[1])?;
    Ok((b.abs(&d)?, dtype))
}

fn mse_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (z, dtype) = absolute_difference(b, c, |_| true)?;
    let terms = b.mul(&z, &z)?;
    reduce_terms(b, c, &terms, dtype)
}

fn l1_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (z, dtype) = absolute_difference(b, c, |_| true)?;
    reduce_terms(b, c, &z, dtype)
}

/// A loss whose terms are multiplied by `weight`, as in `torch.nn.functional`.
fn loss_by_weight(b: &mut dyn Build, c: &Call<Traced>, loss: OpId, over_weights: bool) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let Some(weight) = c.opt_leaf("weight") else {
        let mut args = vec![x.into(), c.get("target").clone(), c.get("reduction").clone()];
        if c.op.schema.index_of("delta").is_some() {
            args.push(c.get("delta").clone());
        }
        return b.call(loss, args);
    };
    let known = |t: &Traced| t.ty.fixed_shape();
    if let (Some(a), Some(w)) = (known(x), known(weight))
        && a != w
    {
        return Err(OpError::shape("Weights and input must have the same size."));
    }
    let mut args = vec![x.into(), c.get("target").clone(), Val::Int(Dim::Const(0))];
    if c.op.schema.index_of("delta").is_some() {
        args.push(c.get("delta").clone());
    }
    let terms = b.op(loss, args)?;
    let terms = b.mul(&terms, weight)?;
    match parse_reduction(c)? {
        Reduction::None => Ok(terms.into()),
        Reduction::Sum => b.call(OpId::Sum, vec![(&terms).into()]),
        Reduction::Mean if over_weights => {
            let (sum, weights) = (b.sum(&terms)?, b.sum(weight)?);
            b.div(&sum, &weights).map(Val::Leaf)
        }
        Reduction::Mean => b.call(OpId::Mean, vec![(&terms).into()]),
    }
}

/// `z² / 2` below `limit`, linear above it. If `over`, both are divided by `limit` (smooth L1), otherwise not (Huber).
fn rounded_corner(b: &mut dyn Build, z: &Traced, limit: f64, over: bool, within: OpId) -> OpResult<Traced> {
    let half = b.mul(z, Val::Float(0.5))?;
    let mut square = b.mul(&half, z)?;
    let mut line = b.sub(z, Val::Float(0.5 * limit))?;
    match over {
        true => square = b.div(&square, Val::Float(limit))?,
        false => line = b.mul(&line, Val::Float(limit))?,
    }
    let inside = b.binary(within, z, Val::Float(limit))?;
    b.r#where(inside, square, line)
}

fn smooth_l1(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let beta = c.f64("beta")?;
    if beta < 0.0 {
        return Err(OpError::arg(
            "beta",
            "smooth_l1_loss does not support negative values for beta.",
        ));
    }
    let (z, dtype) = absolute_difference(b, c, |d| d == DType::F16)?;
    let terms = match beta == 0.0 {
        true => z,
        false => rounded_corner(b, &z, beta, true, OpId::Lt)?,
    };
    reduce_terms(b, c, &terms, dtype)
}

fn huber_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let delta = c.f64("delta")?;
    if delta <= 0.0 {
        return Err(OpError::arg(
            "delta",
            "huber_loss does not support non-positive values for delta.",
        ));
    }
    let (z, dtype) = absolute_difference(b, c, |d| d == DType::BF16)?;
    let terms = rounded_corner(b, &z, delta, false, OpId::Le)?;
    reduce_terms(b, c, &terms, dtype)
}
