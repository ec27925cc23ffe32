//! The running statistics of normalisation in training.

use super::batch_norm::{BatchStats, results_and_stats, verify_batch};
use crate::op::{Build, Call, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

type RunningUpdate<'a> = dyn Fn(&mut dyn Build, Traced, Traced) -> OpResult<Vec<Val<Traced>>> + 'a;

/// Batch normalisation for one more training batch of torch.nn, which also counts batches.
pub(super) fn tracked_batch_norm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    verify_batch(c)?;
    let count = b.add(want_count(c)?, Val::int(1))?;
    let new = |b: &mut dyn Build, mean, var| match c.bool("cumulative")? {
        true => update_cumulative(b, c, &count, mean, var),
        false => update_running(b, c, mean, var),
    };
    let Val::Tuple(mut out) = update_stats(b, c, &new)? else {
        return Err(OpError::arg("input", "batch_norm returns several results"));
    };
    out.push((&count).into());
    Ok(Val::Tuple(out))
}

/// The results and the new running statistics `(1 - momentum) * running + momentum * batch`. The variance is unbiased.
pub(super) fn functional_batch_norm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    update_stats(b, c, &|b, mean, var| update_running(b, c, mean, var))
}

/// The results and the new running statistics. `new` computes them from the mean and the unbiased variance of the
/// batch.
fn update_stats(b: &mut dyn Build, c: &Call<Traced>, new: &RunningUpdate<'_>) -> OpResult<Val<Traced>> {
    let training = c.bool("training")?;
    let (mut out, stats) = results_and_stats(b, c, training)?;
    if training {
        let (mean, var) = unbiased_stats(b, c.leaf("input")?, stats)?;
        out.extend(new(b, mean, var)?);
    } else {
        for name in ["running_mean", "running_var"] {
            out.push(b.clone(c.leaf(name)?)?.into());
        }
    }
    Ok(Val::Tuple(out))
}

/// The mean and the unbiased variance of a batch, from its statistics if its size is known.
fn unbiased_stats(b: &mut dyn Build, x: &Traced, stats: Option<BatchStats>) -> OpResult<(Traced, Traced)> {
    let dims: Vec<usize> = (0..x.rank()?).filter(|&d| d != 1).collect();
    let sizes = dims.iter().map(|&d| x.shape().map(|s| s[d].clone()));
    let count = sizes
        .collect::<OpResult<Vec<Dim>>>()?
        .iter()
        .fold(Dim::Const(1), |n, d| n.mul(d));
    if let (Some(stats), Some(n)) = (stats, count.as_const()) {
        // That of a single value is NaN.
        let factor = n as f64 / (n - 1) as f64;
        let var = b.mul(&stats.var, Val::Float(factor))?;
        return Ok((stats.mean, var));
    }
    let wide = b.to_dtype(x, x.dtype().compute_dtype())?;
    let mean = b.reduce(OpId::Mean, &wide, &dims, false)?;
    let var = b.op(
        OpId::Var,
        [(&wide).into(), dims_list(&dims), Val::int(1), Val::Bool(false)],
    )?;
    Ok((mean, var))
}

/// `(1 - momentum) * running + momentum * new` for mean and variance.
pub(super) fn update_running(
    b: &mut dyn Build,
    c: &Call<Traced>,
    mean: Traced,
    var: Traced,
) -> OpResult<Vec<Val<Traced>>> {
    let m = c.f64("momentum")?;
    let mut out = vec![];
    for (name, new) in [("running_mean", mean), ("running_var", var)] {
        let old = b.mul(c.leaf(name)?, Val::Float(1.0 - m))?;
        let new = b.mul(&new, Val::Float(m))?;
        let sum = b.add(&old, &new)?;
        out.push(b.to_dtype(&sum, c.leaf(name)?.dtype())?.into());
    }
    Ok(out)
}

/// The number of batches so far.
pub(super) fn want_count(c: &Call<Traced>) -> OpResult<&Traced> {
    c.opt_leaf("num_batches_tracked").ok_or_else(|| {
        let title =
            "without a momentum, statistics are averaged over `num_batches_tracked` batches, whose value is unknown";
        OpError::arg("momentum", title)
    })
}

/// The means over `count` batches, computed in f64 as in torch.
fn update_cumulative(
    b: &mut dyn Build,
    c: &Call<Traced>,
    count: &Traced,
    mean: Traced,
    var: Traced,
) -> OpResult<Vec<Val<Traced>>> {
    let count = b.to_dtype(count, DType::F64)?;
    let share = b.reciprocal(&count)?;
    let one = b.full(&[], Val::Float(1.0), DType::F64)?;
    let rest = b.sub(&one, &share)?;
    let mut out = vec![];
    for (name, new) in [("running_mean", mean), ("running_var", var)] {
        let dtype = c.leaf(name)?.dtype();
        let (old, new) = (b.to_dtype(c.leaf(name)?, DType::F64)?, b.to_dtype(&new, DType::F64)?);
        let old = b.mul(&old, &rest)?;
        let new = b.mul(&new, &share)?;
        let sum = b.add(&new, &old)?;
        out.push(b.to_dtype(&sum, dtype)?.into());
    }
    Ok(out)
}

pub(super) fn dims_list(dims: &[usize]) -> Val<Traced> {
    Val::List(dims.iter().map(|&d| Val::int(d as i64)).collect())
}
