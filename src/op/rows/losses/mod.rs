//! Losses: a term for each element, optionally reduced to the mean or the sum.
//!
//! Terms are computed in the compute dtype of torch's kernels and rounded once.

mod adaptive;
mod classes;
mod margins;
mod sequences;

use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val, promote_types};

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

fn distance_rows() -> Vec<Op> {
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
fn weighted_rows() -> Vec<Op> {
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

fn divergence_rows() -> Vec<Op> {
    vec![
        Op::composite("kl_div(Tensor self, Tensor target, Any reduction=1, *, bool log_target=False) -> Tensor",
            kl_div,
        )
        .doc("target (log(target) - self); `batchmean` divides the sum by the batch size")
        .form(
            "aten.kl_div.default",
            "kl_div(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) -> Tensor",
        )
        .form(
            "torch.kl_div",
            "kl_div(Tensor self, Tensor target, int reduction=0, *, bool log_target=False) -> Tensor",
        )
        .form(
            "torch.nn.functional.kl_div",
            "kl_div(Tensor self, Tensor target, Any size_average=None, Any reduce=None, str reduction='mean', bool \
             log_target=False) -> Tensor",
        )
        .module(
            "KLDivLoss(size_average=None, reduce=None, reduction='mean', log_target=False) = kl_div($0:input, $1:target, \
             reduction, log_target=log_target)",
        ),
    ]
}

fn likelihood_rows() -> Vec<Op> {
    vec![
        Op::composite("poisson_nll_loss(Tensor input, Tensor target, bool log_input=True, bool full=False, float eps=1e-08, Any reduction=1) \
             -> Tensor",
            poisson_nll_loss,
        )
        .doc("exp(input) - target input, or input - target log(input + eps)")
        .form(
            "aten.poisson_nll_loss.default torch.poisson_nll_loss",
            "poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) -> Tensor",
        )
        .form(
            "torch.nn.functional.poisson_nll_loss",
            "poisson_nll_loss(Tensor input, Tensor target, bool log_input=True, bool full=False, Any size_average=None, float \
             eps=1e-08, Any reduce=None, str reduction='mean') -> Tensor",
        )
        .module(
            "PoissonNLLLoss(log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, reduction='mean') = \
             poisson_nll_loss($0:log_input, $1:target, log_input, full, eps, reduction)",
        ),
        Op::composite("gaussian_nll_loss(Tensor input, Tensor target, Any var, bool full=False, float eps=1e-06, str reduction='mean') -> \
             Tensor",
            gaussian_nll_loss,
        )
        .doc("(log(var) + (input - target) ** 2 / var) / 2, with var at least eps")
        .spelled("torch.nn.functional.@")
        .module(
            "GaussianNLLLoss(*, full=False, eps=1e-06, reduction='mean') = gaussian_nll_loss($0:input, $1:target, $2:var, full, \
             eps, reduction)",
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

fn kl_div(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (t, dtype) = to_common_dtype(b, &[c.leaf("self")?, c.leaf("target")?])?;
    let (x, target) = (&t[0], &t[1]);
    let terms = if c.bool("log_target")? {
        let d = b.sub(target, x)?;
        let weight = b.exp(target)?;
        b.mul(&weight, &d)?
    } else {
        let (left, right) = (b.xlogy(target, target)?, b.mul(target, x)?);
        b.sub(&left, &right)?
    };
    if c.get("reduction").as_str() != Some("batchmean") {
        return reduce_terms(b, c, &terms, dtype);
    }
    let batch = x.shape()?.first().cloned().unwrap_or(Dim::Const(1));
    let sum = b.sum(terms)?;
    let mean = b.div(&sum, Val::Int(batch))?;
    b.to_dtype(&mean, dtype).map(Val::Leaf)
}

/// A variance may lack the last dim of the input, or have size 1 there.
fn gaussian_nll_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, target) = (c.leaf("input")?, c.leaf("target")?);
    let var = match c.get("var") {
        Val::Leaf(v) if v.rank()? + 1 == x.rank()? => b.unsqueeze(v, v.rank()?)?,
        Val::Leaf(v) => v.clone(),
        v if v.as_f64().is_some_and(|v| v < 0.0) => {
            return Err(OpError::arg("var", "var has negative entry/entries"));
        }
        v => b.full(x.shape()?, v.clone(), x.dtype())?,
    };
    let (own, all) = (var.shape()?, x.shape()?);
    let fits = |(k, (a, b)): (usize, (&Dim, &Dim))| {
        a.sub(b).as_const() == Some(0) || k + 1 == all.len() && *a == Dim::Const(1)
    };
    if own.len() != all.len() || !own.iter().zip(all).enumerate().all(fits) {
        return Err(OpError::shape("var is of incorrect size"));
    }
    let var = b.op(OpId::Clamp, [var.into(), c.get("eps").clone()])?;
    let log = b.log(&var)?;
    let d = b.sub(x, target)?;
    let square = b.square(&d)?;
    let square = b.div(&square, &var)?;
    let sum = b.add(&log, &square)?;
    let mut terms = b.mul(&sum, Val::Float(0.5))?;
    if c.bool("full")? {
        terms = b.add(&terms, Val::Float(0.5 * std::f64::consts::TAU.ln()))?;
    }
    let dtype = terms.dtype();
    reduce_terms(b, c, &terms, dtype)
}

fn poisson_nll_loss(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (t, dtype) = widen_tensors(b, &[c.leaf("input")?, c.leaf("target")?])?;
    let (x, target) = (&t[0], &t[1]);
    let (rate, log) = match c.bool("log_input")? {
        true => (b.exp(x)?, x.clone()),
        false => {
            let shifted = b.add(x, Val::Float(c.f64("eps")?))?;
            (x.clone(), b.log(&shifted)?)
        }
    };
    let product = b.mul(target, &log)?;
    let mut terms = b.sub(&rate, &product)?;
    if c.bool("full")? {
        // Stirling's approximation of `log(target!)`, used where the target is above 1.
        let log = b.log(target)?;
        let first = b.mul(target, &log)?;
        let round = b.mul(target, Val::Float(std::f64::consts::TAU))?;
        let round = b.log(&round)?;
        let round = b.mul(&round, Val::Float(0.5))?;
        let stirling = b.sub(&first, target)?;
        let stirling = b.add(&stirling, &round)?;
        let small = b.le(target, Val::Float(1.0))?;
        let stirling = b.r#where(small, Val::Float(0.0), stirling)?;
        terms = b.add(&terms, &stirling)?;
    }
    reduce_terms(b, c, &terms, dtype)
}
