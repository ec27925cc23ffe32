//! Batch normalisation, and the training rows of instance normalisation.

use super::instance_norm::{instance_functional, instance_norm, unbatched_instance_norm, verify_spatial};
use super::statistics::{functional_batch_norm, tracked_batch_norm, want_count};
use super::{saved_dtype, standardise, want_float};
use crate::op::rows::spell::list_text;
use crate::op::running::RunningStats;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = vec![
        batch_norm(),
        no_training(),
        native_batch_norm(),
        no_stats(),
        instance_norm(),
        unbatched_instance_norm(),
    ];
    v.extend(functional_rows());
    v.extend(reserve_rows());
    v.extend(instance_rows());
    v
}

/// The module form of a batch normalisation class. `$more` are constructor parameters, `$momentum` and `$cumulative`
/// are arguments, `$when` is the condition of the form.
macro_rules! module_form {
    ($class:literal, $more:literal, $momentum:literal, $cumulative:literal, $when:literal) => {
        concat!(
            $class,
            "(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, ",
            $more,
            "*, bias=True) = batch_norm(input, @weight[num_features] if affine, @bias[num_features] if affine and bias, \
             @running_mean[num_features] if track_running_stats, @running_var[num_features] if track_running_stats, training, ",
            $momentum,
            ", eps, True, True, @num_batches_tracked?[] where track_running_stats and training, ",
            $cumulative,
            ")",
            $when
        )
    };
}

/// Both forms of a class.
macro_rules! module_forms {
    ($class:literal, $more:literal) => {
        [
            module_form!($class, $more, "0.0", "True", " when momentum=None"),
            module_form!($class, $more, "momentum", "False", ""),
        ]
    };
}

fn batch_norm() -> Op {
    let op = Op::composite("batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, \
         float momentum, float eps, bool cudnn_enabled=True, bool verify=False, Tensor? num_batches_tracked=None, \
         bool cumulative=False) -> Tensor",
        |b, c| {
            let training = c.bool("training")?;
            if training && c.bool("verify")? {
                verify_batch(c)?;
            }
            if training && c.bool("cumulative")? && c.opt_leaf("running_mean").is_some() {
                want_count(c)?;
            }
            normalise_batch(b, c, training).map(|n| n.0.into())
        },
    )
    .new_memory()
    .updates_running(RunningStats {
        form: OpId::_NativeBatchNormLegitFunctional,
        verified: Some(OpId::VerifiedBatchNorm),
        tracked: Some(OpId::TrackedBatchNorm),
        training: Some("training"),
    })
    .doc("normalisation per channel by running or batch statistics")
    .form_with(
        "aten.batch_norm.default torch.batch_norm",
        "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float \
         momentum, float eps, bool cudnn_enabled=True) -> Tensor",
        &[("verify", Val::Bool(false))],
    )
    .form_with(
        "torch.nn.functional.batch_norm",
        "batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, Tensor? bias=None, bool \
         training=False, float momentum=0.1, float eps=1e-05) -> Tensor",
        &[("verify", Val::Bool(true))],
    );
    with_batch_norm_modules(op)
}

fn with_batch_norm_modules(op: Op) -> Op {
    let forms = [
        module_forms!("BatchNorm1d", ""),
        module_forms!("BatchNorm2d", ""),
        module_forms!("BatchNorm3d", ""),
        module_forms!("SyncBatchNorm", "process_group=None, "),
    ];
    let op = forms.concat().into_iter().fold(op, Op::module);
    op.module(
        "FrozenBatchNorm2d(num_features, eps=1e-05) = batch_norm(input, @weight[num_features], @bias[num_features], \
         @running_mean[num_features], @running_var[num_features], False, 0.0, eps)",
    )
}

fn no_training() -> Op {
    Op::composite(
        "_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor \
         running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        |b, c| {
            let (out, _) = normalise_batch(b, c, false)?;
            // torch returns empty statistics here.
            let none = b.full(&[Dim::Const(0)], Val::int(0), out.dtype().compute_dtype())?;
            Ok(Val::Tuple(vec![out.into(), (&none).into(), none.into()]))
        },
    )
    .doc("batch_norm with running statistics")
    .spelled("aten.@")
}

/// The check of torch.nn, which ATen lacks, that a training batch has more than one value per channel.
pub(super) fn verify_batch(c: &Call<Traced>) -> OpResult<()> {
    let shape = c.leaf("input")?.shape()?;
    let others = shape.iter().enumerate().filter(|(d, _)| *d != 1).map(|(_, n)| n);
    let single_value = others.fold(Dim::Const(1), |p, n| p.mul(n)) == Dim::Const(1);
    if !single_value {
        return Ok(());
    }
    let title = format!(
        "Expected more than 1 value per channel when training, got input size torch.Size({})",
        list_text(shape)
    );
    Err(OpError::shape(title))
}

/// The result with the batch statistics as torch saves them; they are empty if they were not used.
pub(super) fn with_statistics(b: &mut dyn Build, c: &Call<Traced>, training: bool) -> OpResult<Val<Traced>> {
    Ok(Val::Tuple(results_and_stats(b, c, training)?.0))
}

/// The results of [`with_statistics`], and the statistics if they were used.
pub(super) fn results_and_stats(
    b: &mut dyn Build,
    c: &Call<Traced>,
    training: bool,
) -> OpResult<(Vec<Val<Traced>>, Stats)> {
    let (out, stats) = normalise_batch(b, c, training)?;
    let dtype = saved_dtype(c)?;
    let (mean, rstd) = match &stats {
        Some(s) => (b.to_dtype(&s.mean, dtype)?, b.to_dtype(&s.rstd, dtype)?),
        None => {
            let none = b.full(&[Dim::Const(0)], Val::int(0), dtype)?;
            (none.clone(), none)
        }
    };
    Ok((vec![out.into(), mean.into(), rstd.into()], stats))
}

fn no_stats() -> Op {
    Op::composite("_native_batch_norm_legit_no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float \
         eps) -> (Tensor, Tensor, Tensor)",
        |b, c| with_statistics(b, c, true),
    )
    .doc("batch_norm with batch statistics")
    .spelled("aten._native_batch_norm_legit.no_stats")
}

fn native_batch_norm() -> Op {
    Op::composite("native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, \
         float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        |b, c| {
            let training = c.bool("training")?;
            with_statistics(b, c, training)
        },
    )
    .updates_running(RunningStats {
        form: OpId::_NativeBatchNormLegitFunctional,
        verified: None,
        tracked: None,
        training: Some("training"),
    })
    .doc("batch_norm, and the statistics used")
    .spelled("aten.@ torch.@ aten._native_batch_norm_legit.default")
}

/// Batch norms that return the new running statistics.
fn functional_rows() -> Vec<Op> {
    vec![
        Op::composite("_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor \
             running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
            functional_batch_norm,
        )
        .doc("batch_norm, the statistics used, and the new running statistics")
        .spelled("aten.@"),
        Op::composite("verified_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool \
             training, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
            |b, c| {
                verify_batch(c)?;
                b.call(OpId::_NativeBatchNormLegitFunctional, c.args.clone())
            },
        )
        .doc("_native_batch_norm_legit_functional for a batch that torch.nn has checked"),
        Op::composite("tracked_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool \
             training, float momentum, float eps, Tensor? num_batches_tracked, bool cumulative) -> (Tensor, Tensor, Tensor, \
             Tensor, Tensor, Tensor)",
            tracked_batch_norm,
        )
        .doc("verified_batch_norm with the number of batches, over which cumulative statistics are averaged"),
    ]
}

/// Batch norms with values saved for the gradient.
fn reserve_rows() -> Vec<Op> {
    vec![
        Op::composite("_batch_norm_with_update_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor \
             running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
            |b, c| with_reserve(b, c, OpId::_NativeBatchNormLegitFunctional, true),
        )
        .doc("batch_norm in training: the result, the statistics used, an empty tensor, and the new running statistics")
        .spelled("aten.@"),
        Op::composite("_batch_norm_with_update(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) running_var, \
             float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
            |b, c| with_reserve(b, c, OpId::NativeBatchNorm, true),
        )
        .updates_running(RunningStats {
            form: OpId::_BatchNormWithUpdateFunctional,
            verified: None,
            tracked: None,
            training: None,
        })
        .doc("batch_norm in training: the result, the statistics used, and an empty tensor; updates the running statistics")
        .spelled("aten.@"),
        Op::composite("_batch_norm_no_update(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, float \
             momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
            |b, c| with_reserve(b, c, OpId::NativeBatchNorm, false),
        )
        .doc("batch_norm in evaluation, with empty tensors in place of the values that training saves")
        .spelled("aten.@"),
    ]
}

/// Instance norms that return the new running statistics.
fn instance_rows() -> Vec<Op> {
    vec![
        Op::composite("_instance_norm_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool \
             use_input_stats, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
            instance_functional,
        )
        .doc("instance_norm, and the new running statistics"),
        Op::composite("verified_instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool \
             use_input_stats, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
            |b, c| {
                verify_spatial(c)?;
                b.call(OpId::_InstanceNormFunctional, c.args.clone())
            },
        )
        .doc("_instance_norm_functional for items that torch.nn has checked"),
    ]
}

/// The results of `row`, with the reserve buffer that cuDNN needs for the gradient. Here it is empty.
fn with_reserve(b: &mut dyn Build, c: &Call<Traced>, row: OpId, training: bool) -> OpResult<Val<Traced>> {
    let mut args = c.args.clone();
    args.insert(5, Val::Bool(training));
    let Val::Tuple(mut out) = b.call(row, args)? else {
        return Err(OpError::arg("input", "batch_norm returns several results"));
    };
    let reserve = b.full(&[Dim::Const(0)], Val::int(0), DType::U8)?;
    out.insert(3, reserve.into());
    Ok(Val::Tuple(out))
}

/// A vector, reshaped to lie along dim 1 of a tensor of rank `rank`.
pub(super) fn along_channels(b: &mut dyn Build, v: &Traced, rank: usize, dtype: DType) -> OpResult<Traced> {
    let mut shape = vec![Dim::Const(1); rank];
    if let (Some(slot), [n]) = (shape.get_mut(1), v.shape()?) {
        *slot = n.clone();
    }
    let v = b.to_dtype(v, dtype)?;
    b.reshape(&v, &shape)
}

/// The statistics of a batch, per channel.
pub(super) struct BatchStats {
    pub mean: Traced,
    /// The mean of the squared differences from the mean.
    pub var: Traced,
    /// `1 / sqrt(var + eps)`.
    rstd: Traced,
}

type Stats = Option<BatchStats>;

/// The result, and the batch statistics if they were used.
fn normalise_batch(b: &mut dyn Build, c: &Call<Traced>, training: bool) -> OpResult<(Traced, Stats)> {
    let x = c.leaf("input")?;
    want_float(x, "batch_norm")?;
    let rank = x.rank()?;
    if rank < 2 {
        // torch returns an empty input unchanged, whatever its rank.
        if x.ty.numel() == Dim::Const(0) {
            return Ok((x.clone(), None));
        }
        return Err(OpError::shape(format!(
            "batch_norm: expected at least 2D input (got {rank}D input)"
        )));
    }
    check_channels(c, &x.shape()?[1])?;
    let running = |name: &str| c.op.schema.index_of(name).and_then(|i| c.args[i].as_leaf());
    match running("running_mean").zip(running("running_var")) {
        Some((mean, var)) if !training => Ok((normalise_by_running(b, c, mean, var)?, None)),
        _ => batch_stats(b, c),
    }
}

/// As in torch's kernel, one factor and one addend per channel.
fn normalise_by_running(b: &mut dyn Build, c: &Call<Traced>, mean: &Traced, var: &Traced) -> OpResult<Traced> {
    let (x, eps) = (c.leaf("input")?, c.f64("eps")?);
    let (rank, compute) = (x.rank()?, x.dtype().compute_dtype());
    let var = b.to_dtype(var, compute)?;
    let var = b.add(&var, Val::Float(eps))?;
    let mut factor = b.rsqrt(&var)?;
    if let Some(w) = c.opt_leaf("weight") {
        let w = b.to_dtype(w, compute)?;
        factor = b.mul(&factor, &w)?;
    }
    let mean = b.to_dtype(mean, compute)?;
    let shift = b.mul(&mean, &factor)?;
    let shift = match c.opt_leaf("bias") {
        Some(bias) => {
            let bias = b.to_dtype(bias, compute)?;
            b.sub(&bias, &shift)?
        }
        None => b.neg(&shift)?,
    };
    let factor = along_channels(b, &factor, rank, compute)?;
    let shift = along_channels(b, &shift, rank, compute)?;
    let wide = b.to_dtype(x, compute)?;
    let y = b.mul(&wide, &factor)?;
    let y = b.add(&y, &shift)?;
    b.to_dtype(&y, x.dtype())
}

pub(super) fn check_channels(c: &Call<Traced>, channels: &Dim) -> OpResult<()> {
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
    let (rank, compute) = (x.rank()?, x.dtype().compute_dtype());
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
    let stats = BatchStats {
        mean: b.reshape(&n.mean, &channels)?,
        var: b.reshape(&n.var, &channels)?,
        rstd: b.reshape(&n.rstd, &channels)?,
    };
    Ok((b.to_dtype(&y, x.dtype())?, Some(stats)))
}
