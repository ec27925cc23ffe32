//! Instance normalisation.

use super::batch_norm::{along_channels, check_channels};
use super::statistics::{dims_list, update_running};
use super::{standardise, want_float};
use crate::op::rows::spell::list_text;
use crate::op::running::RunningStats;
use crate::op::{Build, Call, Op, OpError, OpId, OpResult, Traced};
use crate::types::{Dim, Val};

/// The modules for 1, 2 and 3 spatial dims.
const MODULES: [&str; 3] = [
    "InstanceNorm1d(num_features, eps=1e-05, momentum=0.1, affine=False, track_running_stats=False, *, bias=True) = \
     instance_norm_unbatched(input, 2, @weight[num_features] if affine, @bias[num_features] if affine and bias, \
     @running_mean[num_features] if track_running_stats, @running_var[num_features] \
     if track_running_stats, ?track_running_stats and not training, momentum, eps)",
    "InstanceNorm2d(num_features, eps=1e-05, momentum=0.1, affine=False, track_running_stats=False, *, bias=True) = \
     instance_norm_unbatched(input, 3, @weight[num_features] if affine, @bias[num_features] if affine and bias, \
     @running_mean[num_features] if track_running_stats, @running_var[num_features] \
     if track_running_stats, ?track_running_stats and not training, momentum, eps)",
    "InstanceNorm3d(num_features, eps=1e-05, momentum=0.1, affine=False, track_running_stats=False, *, bias=True) = \
     instance_norm_unbatched(input, 4, @weight[num_features] if affine, @bias[num_features] if affine and bias, \
     @running_mean[num_features] if track_running_stats, @running_var[num_features] \
     if track_running_stats, ?track_running_stats and not training, momentum, eps)",
];

pub(super) fn instance_norm() -> Op {
    let op = Op::composite(
        "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool \
         use_input_stats, float momentum, float eps, bool cudnn_enabled=True, bool verify=False) -> Tensor",
        |b, c| {
            if c.bool("use_input_stats")? && c.bool("verify")? {
                verify_spatial(c)?;
            }
            normalise_instances(b, c)
        },
    )
    .updates_running(RunningStats {
        form: OpId::_InstanceNormFunctional,
        verified: Some(OpId::VerifiedInstanceNorm),
        tracked: None,
        training: Some("use_input_stats"),
    })
    .doc("normalisation per channel of each item in the batch")
    .form_with(
        "aten.instance_norm.default torch.instance_norm",
        "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool \
         use_input_stats, float momentum, float eps, bool cudnn_enabled=True) -> Tensor",
        &[("verify", Val::Bool(false))],
    )
    .form_with(
        "torch.nn.functional.instance_norm",
        "instance_norm(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, Tensor? \
         bias=None, bool use_input_stats=True, float momentum=0.1, float eps=1e-05) -> Tensor",
        &[("verify", Val::Bool(true))],
    );
    MODULES.into_iter().fold(op, Op::module)
}

/// The check of torch.nn, which ATen lacks, that training items have more than one value per channel.
pub(super) fn verify_spatial(c: &Call<Traced>) -> OpResult<()> {
    let shape = c.leaf("input")?.shape()?;
    let spatial = shape.iter().skip(2).fold(Dim::Const(1), |p, n| p.mul(n));
    match spatial == Dim::Const(1) {
        false => Ok(()),
        true => Err(OpError::shape(format!(
            "Expected more than 1 spatial element when training, got input size torch.Size({})",
            list_text(shape)
        ))),
    }
}

/// The row behind the module classes. An input of rank `unbatched_rank` has no batch dim.
pub(super) fn unbatched_instance_norm() -> Op {
    Op::composite("instance_norm_unbatched(Tensor input, int unbatched_rank, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? \
         running_var, bool running, float? momentum, float eps) -> Tensor",
        |b, c| {
            let x = c.leaf("input")?;
            let unbatched = x.rank()? as i64 == c.int("unbatched_rank")?;
            let input = if unbatched { b.unsqueeze(x, 0)? } else { x.clone() };
            let mut args = c.args.clone();
            args.remove(1);
            args[0] = input.into();
            args[5] = Val::Bool(!c.bool("running")?);
            if c.is_none("momentum") {
                args[6] = Val::Float(0.0);
            }
            args.extend([Val::Bool(true), Val::Bool(true)]);
            let y = b.op(OpId::InstanceNorm, args)?;
            if unbatched { b.squeeze(&y, 0) } else { Ok(y) }.map(Val::Leaf)
        },
    )
    .doc("instance_norm for an input with an optional batch dim")
}

fn normalise_instances(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("input")?;
    want_float(x, "instance_norm")?;
    let rank = x.rank()?;
    if rank < 3 {
        return Err(OpError::shape(format!(
            "Expected at least 3D input (got {rank}D input)"
        )));
    }
    if !c.bool("use_input_stats")? {
        let g = |n: &str| c.get(n).clone();
        let args = vec![
            g("input"),
            g("weight"),
            g("bias"),
            g("running_mean"),
            g("running_var"),
            Val::Bool(false),
            g("momentum"),
            g("eps"),
        ];
        return b.call(OpId::BatchNorm, args);
    }
    check_channels(c, &x.shape()?[1])?;
    let compute = x.dtype().compute_dtype();
    let wide = b.to_dtype(x, compute)?;
    let dims: Vec<usize> = (2..rank).collect();
    let mut y = standardise(b, &wide, &dims, c.f64("eps")?)?.out;
    for (op, name) in [(OpId::Mul, "weight"), (OpId::Add, "bias")] {
        if let Some(t) = c.opt_leaf(name) {
            let t = along_channels(b, t, rank, compute)?;
            y = b.binary(op, &y, &t)?;
        }
    }
    b.to_dtype(&y, x.dtype()).map(Val::Leaf)
}

/// The result and the new running statistics, as in
/// [`functional_batch_norm`](super::statistics::functional_batch_norm), with the statistics of the items averaged over
/// the batch.
pub(super) fn instance_functional(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let y = b.call(OpId::InstanceNorm, c.args.clone())?;
    let x = c.leaf("input")?;
    let dims: Vec<usize> = (2..x.rank()?).collect();
    let wide = b.to_dtype(x, x.dtype().compute_dtype())?;
    let mean = b.reduce(OpId::Mean, &wide, &dims, false)?;
    let var = b.op(
        OpId::Var,
        [(&wide).into(), dims_list(&dims), Val::int(1), Val::Bool(false)],
    )?;
    let (mean, var) = (
        b.reduce(OpId::Mean, &mean, &[0], false)?,
        b.reduce(OpId::Mean, &var, &[0], false)?,
    );
    let new = update_running(b, c, mean, var)?;
    Ok(Val::Tuple([vec![y], new].concat()))
}
