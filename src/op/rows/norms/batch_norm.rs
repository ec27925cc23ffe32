//! Batch and instance normalisation.

use super::{saved_dtype, standardise, want_float};
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Op, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

/// The rows.
pub fn rows() -> Vec<Op> {
    let mut v = vec![
        batch_norm(),
        no_training(),
        legit(),
        no_stats(),
        instance_norm(),
        unbatched(),
    ];
    v.extend(training_rows());
    v
}

fn batch_norm() -> Op {
    let mut op = Op::composite(
        "batch_norm",
        "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, \
         float? momentum, float eps, bool cudnn_enabled=True, bool verify=False) -> Tensor",
        |b, c| {
            let training = c.bool("training")?;
            if training && c.bool("verify")? {
                verify_batch(c)?;
            }
            normed(b, c, training).map(|n| n.0.into())
        },
    )
    .doc("normalised per channel, with running statistics or those of the batch")
    .form_with(
        "aten.batch_norm.default torch.batch_norm",
        "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float? \
         momentum, float eps, bool cudnn_enabled=True) -> Tensor",
        &[("verify", Val::Bool(false))],
    )
    .form_with(
        "torch.nn.functional.batch_norm",
        "batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, Tensor? bias=None, bool \
         training=False, float? momentum=0.1, float eps=1e-05) -> Tensor",
        &[("verify", Val::Bool(true))],
    );
    for text in [
        "BatchNorm1d(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, *, bias=True) = batch_norm(input, \
         @weight[num_features] if affine, @bias[num_features] if affine and bias, \
         @running_mean[num_features] if track_running_stats, @running_var[num_features] if track_running_stats, training, \
         momentum, eps, True, True)",
        "BatchNorm2d(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, *, bias=True) = batch_norm(input, \
         @weight[num_features] if affine, @bias[num_features] if affine and bias, \
         @running_mean[num_features] if track_running_stats, @running_var[num_features] if track_running_stats, training, \
         momentum, eps, True, True)",
        "BatchNorm3d(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, *, bias=True) = batch_norm(input, \
         @weight[num_features] if affine, @bias[num_features] if affine and bias, \
         @running_mean[num_features] if track_running_stats, @running_var[num_features] if track_running_stats, training, \
         momentum, eps, True, True)",
        "SyncBatchNorm(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, process_group=None, *, bias=True) = batch_norm(input, \
         @weight[num_features] if affine, @bias[num_features] if affine and bias, \
         @running_mean[num_features] if track_running_stats, @running_var[num_features] if track_running_stats, training, \
         momentum, eps, True, True)",
        "FrozenBatchNorm2d(num_features, eps=1e-05) = batch_norm(input, @weight[num_features], @bias[num_features], \
         @running_mean[num_features], @running_var[num_features], False, \
         None, eps)",
    ] {
        op = op.module(text);
    }
    op
}

fn no_training() -> Op {
    Op::composite(
        "_native_batch_norm_legit_no_training",
        "_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor \
         running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        |b, c| {
            let (out, _) = normed(b, c, false)?;
            // torch gives no statistics here.
            let none = b.full(&[Dim::Const(0)], Val::int(0), out.dtype().compute())?;
            Ok(Val::Tuple(vec![out.into(), (&none).into(), none.into()]))
        },
    )
    .doc("batch_norm with running statistics")
    .spelled("aten._native_batch_norm_legit_no_training.default")
}

/// What torch.nn asks of a batch to train on, and ATen does not: more than one value a channel.
fn verify_batch(c: &Call<Traced>) -> OpResult<()> {
    let shape = c.leaf("input")?.shape()?;
    let others = shape.iter().enumerate().filter(|(d, _)| *d != 1).map(|(_, n)| n);
    let one = others.fold(Dim::Const(1), |p, n| p.mul(n)) == Dim::Const(1);
    if !one {
        return Ok(());
    }
    let title = format!(
        "Expected more than 1 value per channel when training, got input size torch.Size({})",
        list_text(shape)
    );
    Err(OpError::shape(title))
}

/// What torch.nn asks of items to train on, and ATen does not: more than one value a channel.
fn verify_spatial(c: &Call<Traced>) -> OpResult<()> {
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

/// Statistics of the batch as torch saves them, or nothing.
fn with_statistics(b: &mut dyn Build, c: &Call<Traced>, training: bool) -> OpResult<Val<Traced>> {
    let (out, stats) = normed(b, c, training)?;
    let dtype = saved_dtype(c)?;
    let (mean, rstd) = match stats {
        Some((mean, rstd)) => (b.to_dtype(&mean, dtype)?, b.to_dtype(&rstd, dtype)?),
        None => {
            let none = b.full(&[Dim::Const(0)], Val::int(0), dtype)?;
            (none.clone(), none)
        }
    };
    Ok(Val::Tuple(vec![out.into(), mean.into(), rstd.into()]))
}

fn no_stats() -> Op {
    Op::composite(
        "_native_batch_norm_legit_no_stats",
        "_native_batch_norm_legit_no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float \
         eps) -> (Tensor, Tensor, Tensor)",
        |b, c| with_statistics(b, c, true),
    )
    .doc("batch_norm with the statistics of the batch")
    .spelled("aten._native_batch_norm_legit.no_stats")
}

fn legit() -> Op {
    Op::composite(
        "native_batch_norm",
        "native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, \
         float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        |b, c| {
            let training = c.bool("training")?;
            with_statistics(b, c, training)
        },
    )
    .doc("batch_norm with the statistics used")
    .spelled("aten.native_batch_norm.default torch.native_batch_norm aten._native_batch_norm_legit.default")
}

fn training_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "_native_batch_norm_legit_functional",
            "_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor \
             running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
            functional,
        )
        .doc("batch_norm with the statistics used and the new running statistics")
        .spelled("aten._native_batch_norm_legit_functional.default"),
        Op::composite(
            "verified_batch_norm",
            "verified_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool \
             training, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
            |b, c| {
                verify_batch(c)?;
                b.call(OpId::_NativeBatchNormLegitFunctional, c.args.clone())
            },
        )
        .doc("_native_batch_norm_legit_functional of a batch on which torch.nn trains"),
        Op::composite(
            "_batch_norm_with_update_functional",
            "_batch_norm_with_update_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor \
             running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
            |b, c| with_reserve(b, c, OpId::_NativeBatchNormLegitFunctional, true),
        )
        .doc("batch_norm in training, with the statistics used, an empty tensor, and the new running statistics")
        .spelled("aten._batch_norm_with_update_functional.default"),
        Op::composite(
            "_batch_norm_with_update",
            "_batch_norm_with_update(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) running_var, \
             float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
            |b, c| with_reserve(b, c, OpId::NativeBatchNorm, true),
        )
        .doc("batch_norm in training, with the statistics used and an empty tensor; the running statistics are written")
        .spelled("aten._batch_norm_with_update.default"),
        Op::composite(
            "_batch_norm_no_update",
            "_batch_norm_no_update(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, float \
             momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
            |b, c| with_reserve(b, c, OpId::NativeBatchNorm, false),
        )
        .doc("batch_norm in evaluation, with empty tensors for what training saves")
        .spelled("aten._batch_norm_no_update.default"),
        Op::composite(
            "_instance_norm_functional",
            "_instance_norm_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool \
             use_input_stats, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
            instance_functional,
        )
        .doc("instance_norm with the new running statistics"),
        Op::composite(
            "verified_instance_norm",
            "verified_instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool \
             use_input_stats, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
            |b, c| {
                verify_spatial(c)?;
                b.call(OpId::_InstanceNormFunctional, c.args.clone())
            },
        )
        .doc("_instance_norm_functional of items on which torch.nn trains"),
    ]
}

/// What `row` gives, with the memory behind the statistics that cuDNN keeps for the gradient: here none.
fn with_reserve(b: &mut dyn Build, c: &Call<Traced>, row: OpId, training: bool) -> OpResult<Val<Traced>> {
    let mut args = c.args.clone();
    args.insert(5, Val::Bool(training));
    let Val::Tuple(mut out) = b.call(row, args)? else {
        return Err(OpError::arg("input", "batch_norm gives several results"));
    };
    let reserve = b.full(&[Dim::Const(0)], Val::int(0), DType::U8)?;
    out.insert(3, reserve.into());
    Ok(Val::Tuple(out))
}

/// The new running statistics: as [`functional`], with the means over the batch of each item's statistics.
fn instance_functional(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let y = b.call(OpId::InstanceNorm, c.args.clone())?;
    let x = c.leaf("input")?;
    let dims: Vec<usize> = (2..x.rank()?).collect();
    let wide = b.to_dtype(x, x.dtype().compute())?;
    let mean = b.reduce(OpId::Mean, &wide, &dims, false)?;
    let var = b.op(
        OpId::Var,
        [(&wide).into(), dims_list(&dims), Val::int(1), Val::Bool(false)],
    )?;
    let (mean, var) = (
        b.reduce(OpId::Mean, &mean, &[0], false)?,
        b.reduce(OpId::Mean, &var, &[0], false)?,
    );
    let new = running(b, c, mean, var)?;
    Ok(Val::Tuple([vec![y], new].concat()))
}

/// `(1 - momentum) * running + momentum * new` of mean and variance.
fn running(b: &mut dyn Build, c: &Call<Traced>, mean: Traced, var: Traced) -> OpResult<Vec<Val<Traced>>> {
    let m = c.f64("momentum")?;
    let mut out = vec![];
    for (name, new) in [("running_mean", mean), ("running_var", var)] {
        let old = b.binary(OpId::Mul, c.leaf(name)?, Val::Float(1.0 - m))?;
        let new = b.binary(OpId::Mul, &new, Val::Float(m))?;
        let sum = b.binary(OpId::Add, &old, &new)?;
        out.push(b.to_dtype(&sum, c.leaf(name)?.dtype())?.into());
    }
    Ok(out)
}

/// The new running statistics: `(1 - momentum) * running + momentum * batch`, the variance unbiased.
fn functional(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let training = c.bool("training")?;
    let Val::Tuple(mut out) = with_statistics(b, c, training)? else {
        return Err(OpError::arg("input", "batch_norm gives three results"));
    };
    if training {
        let x = c.leaf("input")?;
        let dims: Vec<usize> = (0..x.rank()?).filter(|&d| d != 1).collect();
        let wide = b.to_dtype(x, x.dtype().compute())?;
        let mean = b.reduce(OpId::Mean, &wide, &dims, false)?;
        let var = b.op(
            OpId::Var,
            [(&wide).into(), dims_list(&dims), Val::int(1), Val::Bool(false)],
        )?;
        out.extend(running(b, c, mean, var)?);
    } else {
        out.extend([c.get("running_mean").clone(), c.get("running_var").clone()]);
    }
    Ok(Val::Tuple(out))
}

fn dims_list(dims: &[usize]) -> Val<Traced> {
    Val::List(dims.iter().map(|&d| Val::int(d as i64)).collect())
}

/// A vector along dim 1 of a tensor of `rank`.
fn along_channels(b: &mut dyn Build, v: &Traced, rank: usize, dtype: DType) -> OpResult<Traced> {
    let mut shape = vec![Dim::Const(1); rank];
    if let (Some(slot), [n]) = (shape.get_mut(1), v.shape()?) {
        *slot = n.clone();
    }
    let v = b.to_dtype(v, dtype)?;
    b.reshape(&v, &shape)
}

type Stats = Option<(Traced, Traced)>;

/// The result, and the statistics of the batch (mean and `1 / sqrt(var + eps)`) if those were used.
fn normed(b: &mut dyn Build, c: &Call<Traced>, training: bool) -> OpResult<(Traced, Stats)> {
    let x = c.leaf("input")?;
    want_float(x, "batch_norm")?;
    let rank = x.rank()?;
    if rank < 2 {
        // Of nothing, torch gives nothing, whatever its rank.
        if x.ty.numel() == Dim::Const(0) {
            return Ok((x.clone(), None));
        }
        return Err(OpError::shape(format!(
            "batch_norm: expected at least 2D input (got {rank}D input)"
        )));
    }
    check_channels(c, &x.shape()?[1])?;
    let has = |name: &str| c.op.schema.index_of(name).and_then(|i| c.args[i].as_leaf());
    let stats = has("running_mean").zip(has("running_var"));
    if training || stats.is_none() {
        return batch_stats(b, c);
    }
    let (Some((mean, var)), eps) = (stats, c.f64("eps")?) else {
        unreachable!("checked above")
    };
    let compute = x.dtype().compute();
    // As torch's kernel: one factor and one addend per channel.
    let var = b.to_dtype(var, compute)?;
    let var = b.binary(OpId::Add, &var, Val::Float(eps))?;
    let mut factor = b.unary(OpId::Rsqrt, &var)?;
    if let Some(w) = c.opt_leaf("weight") {
        let w = b.to_dtype(w, compute)?;
        factor = b.binary(OpId::Mul, &factor, &w)?;
    }
    let mean = b.to_dtype(mean, compute)?;
    let shift = b.binary(OpId::Mul, &mean, &factor)?;
    let shift = match c.opt_leaf("bias") {
        Some(bias) => {
            let bias = b.to_dtype(bias, compute)?;
            b.binary(OpId::Sub, &bias, &shift)?
        }
        None => b.unary(OpId::Neg, &shift)?,
    };
    let (factor, shift) = (
        along_channels(b, &factor, rank, compute)?,
        along_channels(b, &shift, rank, compute)?,
    );
    let wide = b.to_dtype(x, compute)?;
    let y = b.binary(OpId::Mul, &wide, &factor)?;
    let y = b.binary(OpId::Add, &y, &shift)?;
    Ok((b.to_dtype(&y, x.dtype())?, None))
}

fn check_channels(c: &Call<Traced>, channels: &Dim) -> OpResult<()> {
    for name in ["running_mean", "running_var", "weight", "bias"] {
        let Some(t) = c.op.schema.index_of(name).and_then(|i| c.args[i].as_leaf()) else {
            continue;
        };
        let n = t.ty.numel();
        if n.sub(channels).as_const().is_some_and(|d| d != 0) {
            return Err(OpError::shape(format!(
                "{name} should contain {channels} elements not {n}"
            )));
        }
    }
    Ok(())
}

fn batch_stats(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<(Traced, Stats)> {
    let x = c.leaf("input")?;
    let (rank, compute) = (x.rank()?, x.dtype().compute());
    let dims: Vec<usize> = (0..rank).filter(|&d| d != 1).collect();
    let wide = b.to_dtype(x, compute)?;
    let n = standardise(b, &wide, &dims, c.f64("eps")?)?;
    let mut y = n.out;
    for (op, name) in [(OpId::Mul, "weight"), (OpId::Add, "bias")] {
        if let Some(t) = c.opt_leaf(name) {
            let t = along_channels(b, t, rank, compute)?;
            y = b.binary(op, &y, &t)?;
        }
    }
    let channels = [x.shape()?[1].clone()];
    let (mean, rstd) = (b.reshape(&n.mean, &channels)?, b.reshape(&n.rstd, &channels)?);
    Ok((b.to_dtype(&y, x.dtype())?, Some((mean, rstd))))
}

fn instance_norm() -> Op {
    let mut op = Op::composite(
        "instance_norm",
        "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool \
         use_input_stats, float momentum, float eps, bool cudnn_enabled=True, bool verify=False) -> Tensor",
        |b, c| {
            if c.bool("use_input_stats")? && c.bool("verify")? {
                verify_spatial(c)?;
            }
            instance(b, c)
        },
    )
    .doc("normalised per channel of each item of the batch")
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
    for text in [
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
    ] {
        op = op.module(text);
    }
    op
}

/// The row behind the module classes: an input of `unbatched_rank` has no batch dim.
fn unbatched() -> Op {
    Op::composite(
        "instance_norm_unbatched",
        "instance_norm_unbatched(Tensor input, int unbatched_rank, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? \
         running_var, bool running, float? momentum, float eps) -> Tensor",
        |b, c| {
            let x = c.leaf("input")?;
            let alone = x.rank()? as i64 == c.int("unbatched_rank")?;
            let input = if alone { b.unsqueeze(x, 0)? } else { x.clone() };
            let mut args = c.args.clone();
            args.remove(1);
            args[0] = input.into();
            args[5] = Val::Bool(!c.bool("running")?);
            if c.is_none("momentum") {
                args[6] = Val::Float(0.0);
            }
            args.extend([Val::Bool(true), Val::Bool(true)]);
            let y = b.op(OpId::InstanceNorm, args)?;
            if alone { b.squeeze(&y, 0) } else { Ok(y) }.map(Val::Leaf)
        },
    )
    .doc("instance_norm of an input that may have no batch dim")
}

fn instance(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
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
    let compute = x.dtype().compute();
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
