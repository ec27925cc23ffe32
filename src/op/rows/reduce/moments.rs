//! Composite reductions: variances, log-sum-exp, extrema with their positions, norms of differences.

use super::{reduced_dims, reduced_shape};
use crate::op::emit::{dims_val, ints_val};
use crate::op::rows::spell::special;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        variance_rows(),
        exponential_rows(),
        value_index_rows(),
        difference_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A variance row with torch's three overloads.
macro_rules! variance {
    ($n:literal, $out:literal, $f:path, $paths:literal) => {
        Op::composite(($n, concat!(
                $n,
                "(Tensor self, int[1]? dim=None, bool? unbiased=None, bool keepdim=False, Scalar? correction=None) -> ",
                $out
            )),
            $f,
        )
        .form(
            concat!("aten.", $n, ".correction ", $paths),
            concat!(
                $n,
                "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> ",
                $out
            ),
        )
        .form(
            concat!("aten.", $n, ".dim ", $paths),
            concat!(
                $n,
                "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> ",
                $out
            ),
        )
        .form(
            concat!("aten.", $n, ".default ", $paths),
            concat!($n, "(Tensor self, bool unbiased=True) -> ", $out),
        )
    };
}

fn variance_rows() -> Vec<Op> {
    vec![
        variance!("var", "Tensor", var, "torch.var Tensor.var")
            .doc("the variance: the sum of squared distances from the mean, divided by n - correction (by default 1)"),
        variance!("std", "Tensor", std, "torch.std Tensor.std").doc("the square root of the variance"),
        variance!("var_mean", "(Tensor, Tensor)", var_mean, "torch.var_mean").doc("the variance and the mean"),
        variance!("std_mean", "(Tensor, Tensor)", std_mean, "torch.std_mean")
            .doc("the square root of the variance, and the mean"),
    ]
}

/// Variance and mean in the compute dtype, in two passes: the second sums squared distances from the mean.
fn variance_and_mean(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<(Traced, Traced)> {
    let x = c.leaf("self")?;
    if !x.dtype().is_float() {
        let who = if c.op.schema.results == 2 {
            c.op.name
        } else {
            "std and var"
        };
        return Err(OpError::dtype(format!(
            "{who} only support floating point and complex dtypes"
        )));
    }
    let dims = reduced_dims(c, x.rank()?, false)?;
    let x = b.to_dtype(x, x.dtype().compute_dtype())?;
    let count = dims.iter().fold(Dim::Const(1), |n, &d| {
        n.mul(&x.shape().map_or(Dim::Unknown, |s| s[d].clone()))
    });
    let all: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
    // For a 0-dim tensor the list is empty, which means all dims; the result is the same.
    let over = |b: &mut dyn Build, op: OpId, x: &Traced| b.op(op, [x.into(), ints_val(&all), Val::Bool(true)]);
    let mean = over(b, OpId::Mean, &x)?;
    let distance = b.sub(&x, &mean)?;
    let square = b.mul(&distance, &distance)?;
    let sum = over(b, OpId::Sum, &square)?;
    let var = b.div(&sum, degrees_of_freedom(c, count)?)?;
    let keepdim = c.bool("keepdim")?;
    let shape = reduced_shape(x.shape()?, &dims, keepdim);
    let finish = |b: &mut dyn Build, t: Traced| match keepdim {
        true => Ok(t),
        false => b.view(&t, dims_val(&shape)),
    };
    Ok((finish(b, var)?, finish(b, mean)?))
}

/// `max(n - correction, 0)`.
fn degrees_of_freedom(c: &Call<Traced>, count: Dim) -> OpResult<Val<Traced>> {
    let correction = match (c.get("unbiased"), c.get("correction")) {
        (Val::Bool(u), Val::None) => *u as i64 as f64,
        (_, Val::None) => 1.0,
        _ => c.f64("correction")?,
    };
    Ok(match count.as_const() {
        Some(n) => Val::Float((n as f64 - correction).max(0.0)),
        None if correction.fract() == 0.0 => Val::Int(count.sub(&Dim::Const(correction as i64))),
        None => {
            return Err(OpError::arg(
                "correction",
                "must be an integer if the count is symbolic",
            ));
        }
    })
}

fn var(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (var, _) = variance_and_mean(b, c)?;
    Ok(b.to_dtype(&var, c.leaf("self")?.dtype())?.into())
}

fn std(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (var, _) = variance_and_mean(b, c)?;
    let std = b.sqrt(&var)?;
    Ok(b.to_dtype(&std, c.leaf("self")?.dtype())?.into())
}

fn var_mean(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (var, mean) = variance_and_mean(b, c)?;
    let d = c.leaf("self")?.dtype();
    Ok(Val::Tuple(vec![
        b.to_dtype(&var, d)?.into(),
        b.to_dtype(&mean, d)?.into(),
    ]))
}

fn std_mean(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (var, mean) = variance_and_mean(b, c)?;
    let (std, d) = (b.sqrt(&var)?, c.leaf("self")?.dtype());
    Ok(Val::Tuple(vec![
        b.to_dtype(&std, d)?.into(),
        b.to_dtype(&mean, d)?.into(),
    ]))
}

fn exponential_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
            logsumexp,
        )
        .doc("log(sum(exp(self))), computed stably with the maximum subtracted")
        .spelled("aten.@ torch.@ Tensor.@")
        .spelled(special!("logsumexp")),
        Op::composite(
            "nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            |b, c| {
                let x = c.leaf("self")?;
                let d = c.opt_dtype("dtype").unwrap_or(x.dtype());
                if !d.is_float() {
                    return Err(OpError::dtype(format!(
                        "nanmean(): expected input to have floating point or complex dtype but got {}",
                        d.scalar_type_name()
                    )));
                }
                let args = |x: &Traced| [x.into(), c.get("dim").clone(), c.get("keepdim").clone()];
                // torch rounds the sum before it divides, so it may overflow in 16-bit types.
                let given = b.to_dtype(x, d)?;
                let sum = b.op(OpId::Nansum, args(&given))?;
                let nan = b.isnan(x)?;
                let there = b.logical_not(&nan)?;
                let count = b.op(OpId::Sum, args(&there))?;
                let mean = b.div(&sum, &count)?;
                Ok(b.to_dtype(&mean, d)?.into())
            },
        )
        .doc("the mean of the elements that are not NaN")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn logsumexp(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let result = x.dtype().to_float();
    let dims = reduced_dims(c, x.rank()?, false)?;
    let x = b.to_dtype(x, result.compute_dtype())?;
    let keepdim = c.bool("keepdim")?;
    let shape = reduced_shape(x.shape()?, &dims, keepdim);
    let empty = dims.iter().any(|&d| x.shape().is_ok_and(|s| s[d] == Dim::Const(0)));
    let all: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
    let over = |b: &mut dyn Build, op: OpId, x: &Traced| b.op(op, [x.into(), ints_val(&all), Val::Bool(true)]);
    let out = if empty {
        let sum = over(b, OpId::Sum, &x)?;
        b.log(&sum)?
    } else {
        let max = over(b, OpId::Amax, &x)?;
        // An infinite maximum would lead to inf - inf.
        let infinite = b.isinf(&max)?;
        let max = b.masked_fill(&max, &infinite, Val::int(0))?;
        let rest = b.sub(&x, &max)?;
        let e = b.exp(&rest)?;
        let sum = over(b, OpId::Sum, &e)?;
        let log = b.log(&sum)?;
        b.add(&log, &max)?
    };
    let out = b.to_dtype(&out, result)?;
    Ok(match keepdim {
        true => out.into(),
        false => b.view(&out, dims_val(&shape))?.into(),
    })
}

/// Values are computed by `amax` or `amin`, indices by `argmax` or `argmin`.
fn value_index_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "max_dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
            |b, c| value_and_index(b, c, [OpId::Amax, OpId::Argmax]),
        )
        .doc("the maximum along a dim, and the index of its first occurrence")
        .spelled("aten.max.dim torch.max Tensor.max"),
        Op::composite(
            "min_dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
            |b, c| value_and_index(b, c, [OpId::Amin, OpId::Argmin]),
        )
        .doc("the minimum along a dim, and the index of its first occurrence")
        .spelled("aten.min.dim torch.min Tensor.min"),
        Op::composite(
            "aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
            |b, c| {
                let dims = match c.opt_int("dim")? {
                    Some(d) => ints_val(&[d]),
                    None => ints_val(&[]),
                };
                let x = c.leaf("self")?;
                let mut reduced = |op: OpId| b.op(op, [x.into(), dims.clone(), c.get("keepdim").clone()]);
                Ok(Val::Tuple(vec![
                    reduced(OpId::Amin)?.into(),
                    reduced(OpId::Amax)?.into(),
                ]))
            },
        )
        .doc("the minimum and the maximum")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn value_and_index(b: &mut dyn Build, c: &Call<Traced>, [value, index]: [OpId; 2]) -> OpResult<Val<Traced>> {
    let (x, dim, keepdim) = (c.leaf("self")?, c.int("dim")?, c.get("keepdim"));
    let axis = crate::op::wrap_dim(dim, x.rank()?)?;
    if x.shape()?.get(axis) == Some(&Dim::Const(0)) {
        let name = c.op.name.trim_end_matches("_dim");
        return Err(OpError::shape(format!(
            "{name}(): Expected reduction dim {axis} to have non-zero size."
        )));
    }
    let values = b.op(value, [x.into(), ints_val(&[dim]), keepdim.clone()])?;
    // `argmax` rejects bools, but `max` accepts them.
    let x = match x.dtype() {
        DType::B8 => b.to_dtype(x, DType::U8)?,
        _ => x.clone(),
    };
    let indices = b.op(index, [(&x).into(), Val::int(dim), keepdim.clone()])?;
    Ok(Val::Tuple(vec![values.into(), indices.into()]))
}

fn difference_rows() -> Vec<Op> {
    vec![
        Op::composite("dist(Tensor self, Tensor other, Scalar p=2) -> Tensor", |b, c| {
            let d = b.sub(c.leaf("self")?, c.leaf("other")?)?;
            b.call(OpId::LinalgVectorNorm, vec![(&d).into(), c.get("p").clone()])
        })
        .doc("the p-norm of self - other")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite(
            "diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
            diff,
        )
        .doc("the n-th difference of neighbouring elements along a dim")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn diff(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, n) = (c.leaf("self")?, c.int("n")?);
    let rank = x.rank()?;
    if rank == 0 {
        return Err(OpError::shape("diff expects input to be at least one-dimensional"));
    }
    if n < 0 {
        return Err(OpError::arg("n", format!("order must be non-negative but got {n}")));
    }
    let dim = crate::op::wrap_dim(c.int("dim")?, rank)?;
    if n == 0 {
        return b.clone(x).map(Val::Leaf);
    }
    let parts = [c.opt_leaf("prepend"), Some(x), c.opt_leaf("append")];
    let parts: Vec<Traced> = parts.into_iter().flatten().cloned().collect();
    let mut x = if parts.len() > 1 {
        b.cat(&parts, dim)?
    } else {
        x.clone()
    };
    let op = if x.dtype() == DType::B8 {
        OpId::LogicalXor
    } else {
        OpId::Sub
    };
    for _ in 0..n {
        let size = x.shape()?[dim].clone();
        if size == Dim::Const(0) {
            break;
        }
        let last = size.sub(&Dim::Const(1));
        let later = b.slice(&x, dim, Dim::Const(1), size, 1)?;
        let earlier = b.slice(&x, dim, Dim::Const(0), last, 1)?;
        x = b.binary(op, &later, &earlier)?;
    }
    Ok((&x).into())
}
