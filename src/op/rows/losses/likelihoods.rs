//! Divergences and negative log-likelihoods.

use super::{reduce_terms, to_common_dtype, widen_tensors};
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{Dim, Val};

pub(super) fn divergence_rows() -> Vec<Op> {
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

pub(super) fn likelihood_rows() -> Vec<Op> {
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
    let (var_shape, shape) = (var.shape()?, x.shape()?);
    let fits = |(k, (a, b)): (usize, (&Dim, &Dim))| {
        a.sub(b).as_const() == Some(0) || k + 1 == shape.len() && *a == Dim::Const(1)
    };
    if var_shape.len() != shape.len() || !var_shape.iter().zip(shape).enumerate().all(fits) {
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
