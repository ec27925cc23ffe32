//! Classification losses: the log-probability of the target class, scaled by class weights.

use super::{Reduction, parse_reduction, reduce_terms};
use crate::op::IndexLimit;
use crate::op::emit::ints_val;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    [nll_rows(), nll_forward_rows(), cross_entropy_rows()]
        .into_iter()
        .flatten()
        .collect()
}

/// Negative log-likelihoods.
fn nll_rows() -> Vec<Op> {
    vec![
        Op::composite("nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, Any reduction=1, SymInt ignore_index=-100) -> Tensor",
            |b, c| {
                let (x, target) = (c.leaf("self")?.clone(), c.leaf("target")?.clone());
                nll_loss(b, c, &x, &target)
            },
        )
        .doc("the negative log-likelihood: -self at the target class, weighted by class")
        .index_limits(&[("target", IndexLimit::Classes("self"))])
        .form(
            "aten.nll_loss_nd.default aten.nll_loss.default aten.nll_loss2d.default",
            "nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100) -> Tensor",
        )
        .form(
            "torch.nn.functional.nll_loss",
            "nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, Any size_average=None, SymInt ignore_index=-100, Any \
             reduce=None, str reduction='mean') -> Tensor",
        )
        .module(
            "NLLLoss(weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean') = nll_loss_nd($0:input, \
             $1:target, @weight?, reduction, ignore_index)",
        ),
    ]
}

fn nll_forward_rows() -> Vec<Op> {
    vec![
        Op::composite("nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index) -> (Tensor, Tensor)",
            |b, c| {
                let (x, target) = (c.leaf("self")?, c.leaf("target")?);
                // A single sample has a 0-dim target.
                let alone = x.rank()? == 1;
                let (loss, weight) = nll_with_weight(b, c, x, target)?;
                let dtype = x.dtype();
                let weight = match parse_reduction(c)? {
                    // With reduction `none`, torch returns 0 for the sum of weights, except for a single sample.
                    Reduction::None if !alone => b.full(&[], Val::int(0), dtype)?,
                    _ => b.to_dtype(&weight, dtype)?,
                };
                Ok(Val::Tuple(vec![loss, weight.into()]))
            },
        )
        .doc("nll_loss_nd, and the sum of the weights")
        .index_limits(&[("target", IndexLimit::Classes("self"))])
        .spelled("aten.@ aten.nll_loss2d_forward.default"),
    ]
}

fn cross_entropy_rows() -> Vec<Op> {
    vec![
        Op::composite("cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, Any reduction=1, SymInt ignore_index=-100, float \
             label_smoothing=0.0) -> Tensor",
            cross_entropy,
        )
        .doc("nll_loss of log_softmax, with target classes or class probabilities")
        .index_limits(&[("target", IndexLimit::Classes("self"))])
        .form(
            "aten.cross_entropy_loss.default",
            "cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100, float \
             label_smoothing=0.0) -> Tensor",
        )
        .form(
            "torch.nn.functional.cross_entropy",
            "cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, Any size_average=None, SymInt \
             ignore_index=-100, Any reduce=None, str reduction='mean', float label_smoothing=0.0) -> Tensor",
        )
        .module(
            "CrossEntropyLoss(weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', \
             label_smoothing=0.0) = cross_entropy_loss($0:input, $1:target, @weight?, reduction, ignore_index, label_smoothing)",
        ),
    ]
}

/// The class weights, reshaped to lie along the class dim of a tensor of rank `rank`.
fn class_weights(b: &mut dyn Build, c: &Call<Traced>, rank: usize, dtype: DType) -> OpResult<Option<Traced>> {
    let Some(w) = c.opt_leaf("weight") else {
        return Ok(None);
    };
    let mut shape = vec![Dim::Const(1); rank];
    shape[rank.min(2) - 1] = w.ty.numel();
    let w = b.to_dtype(w, dtype)?;
    b.reshape(&w, &shape).map(Some)
}

/// `-x[…, target, …]` times the class weight. The mean divides by the sum of these weights. Ignored targets do not
/// count.
fn nll_loss(b: &mut dyn Build, c: &Call<Traced>, x: &Traced, target: &Traced) -> OpResult<Val<Traced>> {
    nll_with_weight(b, c, x, target).map(|(loss, _)| loss)
}

/// The loss, and the sum of the weights of the targets that are not ignored.
fn nll_with_weight(
    b: &mut dyn Build,
    c: &Call<Traced>,
    x: &Traced,
    target: &Traced,
) -> OpResult<(Val<Traced>, Traced)> {
    let dtype = x.dtype();
    let (terms, weight) = nll_terms(b, c, x, target)?;
    let all = b.sum(weight)?;
    if parse_reduction(c)? != Reduction::Mean {
        return Ok((reduce_terms(b, c, &terms, dtype)?, all));
    }
    let sum = b.sum(terms)?;
    let mean = b.div(&sum, &all)?;
    Ok((b.to_dtype(&mean, dtype)?.into(), all))
}

/// The loss of each target, and its weight. Both are 0 for targets that are ignored.
fn nll_terms(b: &mut dyn Build, c: &Call<Traced>, x: &Traced, target: &Traced) -> OpResult<(Traced, Traced)> {
    let rank = x.rank()?;
    if rank == 0 || target.rank()? + 1 != rank {
        return Err(OpError::shape(format!(
            "Expected target of {} dims for an input of {rank}, but got {}",
            rank.saturating_sub(1),
            target.rank()?
        )));
    }
    let (dim, wide) = (rank.min(2) - 1, x.dtype().compute_dtype());
    let target = b.to_dtype(target, DType::I64)?;
    let counted = b.ne(&target, c.get("ignore_index").clone())?;
    let index = b.r#where(&counted, &target, Val::int(0))?;
    let index = b.unsqueeze(&index, dim)?;
    let pick = |b: &mut dyn Build, t: &Traced| -> OpResult<Traced> {
        let v = b.gather(t, Val::int(dim as i64), &index)?;
        b.squeeze(&v, dim)
    };
    // Only what is read is converted.
    let value = pick(b, x)?;
    let value = b.to_dtype(&value, wide)?;
    let weight = match c.opt_leaf("weight") {
        Some(w) => {
            check_weights(w, &x.shape()?[dim])?;
            weights_of(b, w, &index, value.shape()?, wide)?
        }
        None => b.full(value.shape()?, Val::int(1), wide)?,
    };
    let weight = b.r#where(&counted, weight, Val::int(0))?;
    let product = b.mul(&value, &weight)?;
    let product = b.neg(&product)?;
    Ok((b.r#where(counted, product, Val::int(0))?, weight))
}

/// Returns an error unless there is a weight for each class.
fn check_weights(w: &Traced, classes: &Dim) -> OpResult<()> {
    match w.ty.numel().sub(classes).as_const() {
        None | Some(0) => Ok(()),
        Some(_) => Err(OpError::shape(format!(
            "weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of {} elements",
            w.ty.numel()
        ))),
    }
}

/// The weights of the classes that `index` holds, with `shape`. Each is read from the vector of weights: copies of it for each sample would
/// be as large as the input.
fn weights_of(b: &mut dyn Build, w: &Traced, index: &Traced, shape: &[Dim], dtype: DType) -> OpResult<Traced> {
    let (w, index) = (b.ravel(w)?, b.ravel(index)?);
    let picked = b.index_select(&w, Val::int(0), &index)?;
    let picked = b.to_dtype(&picked, dtype)?;
    b.reshape(&picked, shape)
}

fn cross_entropy(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, target) = (c.leaf("self")?, c.leaf("target")?);
    let rank = x.rank()?;
    let dim = if rank == 1 { 0 } else { wrap_dim(1, rank)? };
    let smoothing = c.f64("label_smoothing")?;
    // torch treats negative values as 0.
    if smoothing > 1.0 {
        return Err(OpError::arg(
            "label_smoothing",
            format!("label_smoothing must be between 0.0 and 1.0. Got: {smoothing}"),
        ));
    }
    let dtype = x.dtype();
    let x = b.to_dtype(x, dtype.compute_dtype())?;
    let log = b.log_softmax(&x, Val::int(dim as i64))?;
    let out = if target.dtype().is_float() {
        against_probabilities(b, c, &log, target, dim, smoothing)?
    } else if smoothing > 0.0 {
        label_smoothing_loss(b, c, &log, target, dim, smoothing)?
    } else {
        match nll_loss(b, c, &log, target)? {
            Val::Leaf(t) => t,
            v => return Ok(v),
        }
    };
    b.to_dtype(&out, dtype).map(Val::Leaf)
}

/// The loss for targets that are probabilities. The mean is over all dims except the classes.
fn against_probabilities(
    b: &mut dyn Build,
    c: &Call<Traced>,
    log: &Traced,
    target: &Traced,
    dim: usize,
    smoothing: f64,
) -> OpResult<Traced> {
    let classes = log.shape()?[dim].clone();
    let mut target = b.to_dtype(target, log.dtype())?;
    if smoothing > 0.0 {
        let Some(n) = classes.as_const() else {
            return Err(OpError::shape("label_smoothing requires a known number of classes"));
        };
        target = b.mul(&target, Val::Float(1.0 - smoothing))?;
        target = b.add(&target, Val::Float(smoothing / n as f64))?;
    }
    let mut terms = b.mul(log, &target)?;
    if let Some(w) = class_weights(b, c, log.rank()?, log.dtype())? {
        terms = b.mul(&terms, &w)?;
    }
    let terms = b.op(OpId::Sum, [terms.into(), ints_val(&[dim as i64])])?;
    let terms = b.neg(&terms)?;
    reduce_terms(b, c, &terms, log.dtype())?
        .as_leaf()
        .cloned()
        .ok_or_else(|| OpError::arg("reduction", "a loss is a tensor"))
}

/// `(1 - smoothing) nll + smoothing / classes * (sum over all classes)`. Both terms are scaled by class weights.
fn label_smoothing_loss(
    b: &mut dyn Build,
    c: &Call<Traced>,
    log: &Traced,
    target: &Traced,
    dim: usize,
    smoothing: f64,
) -> OpResult<Traced> {
    let Some(classes) = log.shape()?[dim].as_const() else {
        return Err(OpError::shape("label_smoothing requires a known number of classes"));
    };
    let nll = nll_loss(b, c, log, target)?;
    let mut all = b.neg(log)?;
    let weights = class_weights(b, c, log.rank()?, log.dtype())?;
    if let Some(w) = &weights {
        all = b.mul(&all, w)?;
    }
    let all = b.op(OpId::Sum, [all.into(), ints_val(&[dim as i64])])?;
    let counted = b.ne(target, c.get("ignore_index").clone())?;
    let all = b.r#where(&counted, all, Val::int(0))?;
    let all = match parse_reduction(c)? {
        Reduction::None => all,
        Reduction::Sum => b.sum(all)?,
        Reduction::Mean => {
            let sum = b.sum(all)?;
            let count = kept_weight(b, &counted, target, weights.as_ref(), log.dtype())?;
            b.div(&sum, &count)?
        }
    };
    let all = b.mul(&all, Val::Float(smoothing / classes as f64))?;
    let nll = b.mul(nll, Val::Float(1.0 - smoothing))?;
    b.add(&nll, &all)
}

/// The divisor of the mean: the sum of the weights of the targets that are not ignored.
fn kept_weight(
    b: &mut dyn Build,
    counted: &Traced,
    target: &Traced,
    weights: Option<&Traced>,
    dtype: DType,
) -> OpResult<Traced> {
    let Some(w) = weights else {
        let ones = b.to_dtype(counted, dtype)?;
        return b.sum(ones);
    };
    let target = b.to_dtype(target, DType::I64)?;
    let index = b.r#where(counted, &target, Val::int(0))?;
    let picked = weights_of(b, w, &index, target.shape()?, dtype)?;
    let picked = b.r#where(counted, picked, Val::int(0))?;
    b.sum(picked)
}
