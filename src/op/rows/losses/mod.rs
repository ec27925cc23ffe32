//! Losses: a term for each element, optionally reduced to the mean or the sum.
//!
//! Terms are computed in the compute dtype of torch's kernels and rounded once.

mod adaptive;
mod alignments;
mod classes;
mod distances;
mod likelihoods;
mod margins;
mod sequences;

use self::distances::{distance_rows, weighted_rows};
use self::likelihoods::{divergence_rows, likelihood_rows};
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Val, promote_types};

pub(super) fn rows() -> Vec<Op> {
    [
        distance_rows(),
        weighted_rows(),
        cross_entropies(),
        divergence_rows(),
        likelihood_rows(),
        classes::rows(),
        adaptive::rows(),
        margins::rows(),
        sequences::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The row of a loss, from its parameters before and after the reduction, in the forms of ATen and of
/// torch.nn.functional.
macro_rules! loss {
    ($n:literal, $before:literal, $after:literal, $functional:literal, $f:path, $doc:literal) => {
        Op::composite(
            (
                $n,
                concat!($n, "(", $before, ", Any reduction=1", $after, ") -> Tensor"),
            ),
            $f,
        )
        .doc($doc)
        .form(
            concat!("aten.", $n, ".default"),
            concat!($n, "(", $before, ", int reduction=1", $after, ") -> Tensor"),
        )
        .form(
            concat!("torch.nn.functional.", $n),
            concat!($n, "(", $before, $functional, ") -> Tensor"),
        )
    };
}

pub(in crate::op::rows) use loss;

fn cross_entropies() -> Vec<Op> {
    vec![
        loss!(
            "binary_cross_entropy",
            "Tensor self, Tensor target, Tensor? weight=None",
            "",
            ", Any size_average=None, Any reduce=None, str reduction='mean'",
            bce_loss,
            "-(target log(self) + (1 - target) log(1 - self)), with logarithms clamped to at least -100"
        )
        .module("BCELoss(weight=None, size_average=None, reduce=None, reduction='mean') = binary_cross_entropy($0:input, $1:target, @weight?, reduction)"),
        Op::composite("binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, Any \
             reduction=1) -> Tensor",
            bce_logits,
        )
        .doc("binary_cross_entropy of the sigmoid")
        .form(
            "aten.binary_cross_entropy_with_logits.default",
            "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int \
             reduction=1) -> Tensor",
        )
        .form(
            "torch.binary_cross_entropy_with_logits",
            "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int \
             reduction=0) -> Tensor",
        )
        .form(
            "torch.nn.functional.binary_cross_entropy_with_logits",
            "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Any size_average=None, Any \
             reduce=None, str reduction='mean', Tensor? pos_weight=None) -> Tensor",
        )
        .module(
            "BCEWithLogitsLoss(weight=None, size_average=None, reduce=None, reduction='mean', pos_weight=None) = \
             binary_cross_entropy_with_logits($0:input, $1:target, @weight?, @pos_weight?, reduction)",
        ),
    ]
}

/// How terms are reduced.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::op::rows) enum Reduction {
    /// One result per term.
    None,
    /// The mean of all terms.
    Mean,
    /// The sum of all terms.
    Sum,
}

pub(in crate::op::rows) fn parse_reduction(c: &Call<Traced>) -> OpResult<Reduction> {
    let v = c.get("reduction");
    match (v.as_int(), v.as_str()) {
        (Some(0), _) | (_, Some("none")) => Ok(Reduction::None),
        (Some(1), _) | (_, Some("mean")) => Ok(Reduction::Mean),
        (Some(2), _) | (_, Some("sum")) => Ok(Reduction::Sum),
        (_, Some(s)) => Err(OpError::arg(
            "reduction",
            format!("{s} is not a valid value for reduction"),
        )),
        _ => Err(OpError::arg(
            "reduction",
            "reduction must be 0 (none), 1 (mean) or 2 (sum)",
        )),
    }
}

/// Reduces the terms, and rounds the result if `dtype` is a float. Otherwise the result keeps the dtype it was computed
/// in.
pub(in crate::op::rows) fn reduce_terms(
    b: &mut dyn Build,
    c: &Call<Traced>,
    terms: &Traced,
    dtype: DType,
) -> OpResult<Val<Traced>> {
    let out = match parse_reduction(c)? {
        Reduction::None => terms.clone(),
        Reduction::Mean => b.mean(terms)?,
        Reduction::Sum => b.sum(terms)?,
    };
    match dtype.is_float() {
        true => b.to_dtype(&out, dtype).map(Val::Leaf),
        false => Ok(out.into()),
    }
}

/// Converts the tensors to the compute dtype of their common dtype. Also returns the common dtype.
pub(in crate::op::rows) fn widen_tensors(b: &mut dyn Build, tensors: &[&Traced]) -> OpResult<(Vec<Traced>, DType)> {
    let first = tensors[0].dtype();
    let common = tensors.iter().try_fold(first, |d, t| promote_types(d, t.dtype()));
    let dtype = common.ok_or_else(|| OpError::dtype("the operands' dtypes have no common dtype"))?;
    let all: OpResult<Vec<Traced>> = tensors.iter().map(|t| b.to_dtype(t, dtype.compute_dtype())).collect();
    Ok((all?, dtype))
}

/// Converts the tensors to their common dtype, for losses where torch rounds every step to it. Also returns the common
/// dtype.
fn to_common_dtype(b: &mut dyn Build, tensors: &[&Traced]) -> OpResult<(Vec<Traced>, DType)> {
    let (wide, dtype) = widen_tensors(b, tensors)?;
    if !dtype.is_float() {
        return Ok((wide, dtype));
    }
    let all: OpResult<Vec<Traced>> = wide.iter().map(|t| b.to_dtype(t, dtype)).collect();
    Ok((all?, dtype))
}

fn bce_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (t, dtype) = widen_tensors(b, &[c.leaf("self")?, c.leaf("target")?])?;
    let (x, target) = (&t[0], &t[1]);
    let floor = Val::Float(-100.0);
    let negated = b.neg(x)?;
    let other = b.log1p(&negated)?;
    let other = b.op(OpId::Clamp, [other.into(), floor.clone()])?;
    let log = b.log(x)?;
    let log = b.op(OpId::Clamp, [log.into(), floor])?;
    let rest = b.sub(target, Val::Float(1.0))?;
    let (left, right) = (b.mul(&rest, &other)?, b.mul(target, &log)?);
    let terms = b.sub(&left, &right)?;
    let terms = apply_weight(b, c, terms)?;
    reduce_terms(b, c, &terms, dtype)
}

/// Multiplies the terms by the parameter `weight`, if it is given.
pub(in crate::op::rows) fn apply_weight(b: &mut dyn Build, c: &Call<Traced>, terms: Traced) -> OpResult<Traced> {
    match c.opt_leaf("weight") {
        Some(w) => {
            let w = b.to_dtype(w, terms.dtype())?;
            b.mul(&terms, &w)
        }
        None => Ok(terms),
    }
}

/// `(1 - target) self + (1 + (pos_weight - 1) target) (log(1 + exp(-|self|)) + max(-self, 0))`.
fn bce_logits(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (t, dtype) = to_common_dtype(b, &[c.leaf("self")?, c.leaf("target")?])?;
    let (x, target) = (&t[0], &t[1]);
    let rest = b.rsub(target, Val::Float(1.0))?;
    let linear = b.mul(&rest, x)?;
    let log = b.log_sigmoid(x)?;
    let mut log = b.neg(&log)?;
    if let Some(w) = c.opt_leaf("pos_weight") {
        let w = b.to_dtype(w, log.dtype())?;
        let w = b.sub(&w, Val::Float(1.0))?;
        let w = b.mul(&w, target)?;
        let w = b.add(&w, Val::Float(1.0))?;
        log = b.mul(&log, &w)?;
    }
    let terms = b.add(&linear, &log)?;
    let terms = apply_weight(b, c, terms)?;
    reduce_terms(b, c, &terms, dtype)
}
