//! Group normalisation.

use super::{Normed, scale_shift, standardise, standardise_unconverted, want_float};
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Op, OpError, OpResult, Traced};
use crate::types::Dim;

pub(super) fn group_rows() -> Vec<Op> {
    vec![
        Op::composite("group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool \
             cudnn_enabled=True) -> Tensor",
            |b, c| {
                let shape = c.leaf("input")?.shape()?.to_vec();
                group_norm(b, c, &shape, c.int("num_groups")?).map(|n| n.out.into())
            },
        )
        .new_memory()
        .doc("normalisation over groups of channels and all following dims")
        .spelled("aten.@ torch.@ torch.nn.functional.@")
        .module(
            "GroupNorm(num_groups, num_channels, eps=1e-05, affine=True, *, bias=True) = group_norm(input, num_groups, \
             @weight[num_channels] if \
             affine, @bias[num_channels] if affine and bias, eps)",
        ),
        Op::composite("native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float \
             eps) -> (Tensor, Tensor, Tensor)",
            |b, c| {
                let shape = ["N", "C", "HxW"].map(|n| c.dims(n).map(|d| d[0].clone()));
                let shape = shape.into_iter().collect::<OpResult<Vec<_>>>()?;
                let mut n = group_norm(b, c, &shape, c.int("group")?)?;
                let own = c.leaf("input")?.shape()?.to_vec();
                n.out = b.reshape(&n.out, &own)?;
                n.into_saved(b, c)
            },
        )
        .doc("group_norm, the mean, and 1 / sqrt(var + eps)")
        .spelled("aten.@ torch.@"),
    ]
}

/// Checks the sizes of a group normalisation as torch does.
fn check_group_norm(c: &Call<Traced>, shape: &[Dim], channels: &Dim, groups: i64) -> OpResult<()> {
    if groups <= 0 {
        return Err(OpError::shape(format!(
            "Expected num groups to be greater than 0, got {groups}"
        )));
    }
    if channels.as_const() == Some(0) {
        return Err(OpError::shape(
            "Expected number of channels to be greater than 0, got 0",
        ));
    }
    if shape[2..].iter().any(|d| d.as_const() == Some(0)) {
        return Err(OpError::shape("Expected HxW to be greater than 0, got 0"));
    }
    if channels.as_const().is_some_and(|c| c % groups != 0) {
        return Err(OpError::shape(format!(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape {} and \
             num_groups={groups}",
            list_text(shape)
        )));
    }
    for name in ["weight", "bias"] {
        if let Some(w) = c.opt_leaf(name) {
            let ok = matches!(w.shape()?, [k] if k.sub(channels).as_const().is_none_or(|d| d == 0));
            if !ok {
                return Err(OpError::shape(format!(
                    "Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of shape {} \
                     and input of shape {}",
                    list_text(w.shape()?),
                    list_text(shape)
                )));
            }
        }
    }
    Ok(())
}

/// Normalises `[N, C, …]` over each group of channels and all later dims. The statistics have shape `[N, groups]`.
fn group_norm(b: &mut dyn Build, c: &Call<Traced>, shape: &[Dim], groups: i64) -> OpResult<Normed> {
    let x = c.leaf("input")?;
    want_float(x, "GroupNormKernelImpl")?;
    let [n, channels, ..] = shape else {
        return Err(OpError::shape(format!(
            "Expected at least 2 dimensions for input tensor but received {}",
            shape.len()
        )));
    };
    check_group_norm(c, shape, channels, groups)?;
    let dtype = x.dtype();
    let rest = shape[2..].iter().fold(channels.clone(), |p, d| p.mul(d));
    let wide = b.to_dtype(x, dtype.compute_dtype())?;
    // One group needs no other shape, which would prevent channels-last layout.
    let mut out = if groups == 1 && shape.len() > 2 && x.shape()? == shape {
        let dims: Vec<_> = (1..shape.len()).collect();
        match wide.dtype() == dtype {
            true => standardise_unconverted(b, &wide, &dims, c.f64("eps")?)?,
            false => standardise(b, &wide, &dims, c.f64("eps")?)?,
        }
    } else {
        let g = Dim::Const(groups);
        let grouped = b.reshape(&wide, &[n.clone(), g.clone(), rest.floordiv(&g)])?;
        standardise(b, &grouped, &[2], c.f64("eps")?)?
    };
    let y = b.reshape(&out.out, shape)?;
    let mut per_channel = vec![Dim::Const(1); shape.len()];
    per_channel[1] = channels.clone();
    let along = |b: &mut dyn Build, name: &str| c.opt_leaf(name).map(|w| b.reshape(w, &per_channel)).transpose();
    let (w, s) = (along(b, "weight")?, along(b, "bias")?);
    let y = scale_shift(b, y, w.as_ref(), s.as_ref())?;
    out.out = b.to_dtype(&y, dtype)?;
    out.mean = b.squeeze(&out.mean, 2)?;
    out.rstd = b.squeeze(&out.rstd, 2)?;
    Ok(out)
}
