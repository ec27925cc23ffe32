//! Statistics: quantiles, covariances, areas under curves.

mod quantiles;

use self::quantiles::quantile_rows;
use crate::op::emit::ints_val;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        quantile_rows(),
        vec![super::mode::row()],
        covariance_rows(),
        trapezoid_rows(),
        cumulative_trapezoid_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn covariance_rows() -> Vec<Op> {
    vec![
        Op::new(
            "_non_negative(Tensor self, str message) -> Tensor",
            |c, _| Ok(Val::Leaf(c.leaf("self")?.clone())),
            Meaning::Routine(|c| {
                let x = c.leaf("self")?;
                match (0..x.numel()).any(|i| x.get(i).to_f64() < 0.0) {
                    true => Err(OpError::arg("self", c.str("message")?.to_string())),
                    false => Ok(Val::Leaf(x.clone())),
                }
            }),
        )
        .doc("the tensor itself; raises an error if an element is negative"),
        Op::composite(
            "cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor",
            cov,
        )
        .doc("the covariance matrix of the rows")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite("corrcoef(Tensor self) -> Tensor", corrcoef)
            .doc("the correlation matrix of the rows")
            .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn trapezoid_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "trapezoid(Tensor y, Tensor? x=None, *, Scalar dx=1, int dim=-1) -> Tensor",
            |b, c| trapezoid(b, c).map(Val::Leaf),
        )
        .doc("the area below a curve by the trapezoidal rule")
        .form(
            "aten.trapezoid.x aten.trapz.x torch.trapezoid torch.trapz",
            "trapezoid(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
        )
        .form(
            "aten.trapezoid.dx torch.trapezoid",
            "trapezoid(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor",
        )
        .form(
            "aten.trapz.dx torch.trapz",
            "trapezoid(Tensor y, *, float dx=1, int dim=-1) -> Tensor",
        ),
    ]
}

fn cumulative_trapezoid_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "cumulative_trapezoid(Tensor y, Tensor? x=None, *, Scalar dx=1, int dim=-1) -> Tensor",
            |b, c| {
                let dim = curve_dim(c)?.0;
                let (parts, dim) = (trapezoid_areas(b, c)?, Val::int(dim as i64));
                if c.opt_leaf("x").is_some() {
                    let sums = b.cumsum(parts, dim)?;
                    return b.div(&sums, Val::Float(2.0)).map(Val::Leaf);
                }
                let halves = b.mul(&parts, Val::Float(distance(c)? / 2.0))?;
                b.cumsum(halves, dim).map(Val::Leaf)
            },
        )
        .doc("the cumulative areas below a curve by the trapezoidal rule")
        .form(
            "aten.cumulative_trapezoid.x torch.cumulative_trapezoid",
            "cumulative_trapezoid(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
        )
        .form(
            "aten.cumulative_trapezoid.dx torch.cumulative_trapezoid",
            "cumulative_trapezoid(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor",
        ),
    ]
}

/// `(x - mean) diag(w) (x - mean)^T / norm` with the weights of the observations.
fn cov(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let rows = variable_rows(b, c.leaf("self")?)?;
    let n = rows.shape()?[1].clone();
    let weights = observation_weights(b, c, &n, rows.dtype())?;
    let (mean, norm) = mean_and_norm(b, c, &rows, weights.as_ref())?;
    let norm = b.op(OpId::Clamp, [norm.into(), Val::int(0)])?;
    let centred = b.sub(&rows, &mean)?;
    let right = match &weights {
        Some(w) => b.mul(&centred, w)?,
        None => centred.clone(),
    };
    let right = b.transpose(&right, 0, 1)?;
    let out = b.mm(&centred, &right)?;
    let out = b.div(&out, &norm)?;
    // torch squeezes the result: a single variable has a variance, not a matrix.
    let out = match rows.shape()?[0] == Dim::Const(1) {
        true => b.reshape(&out, &[])?,
        false => out,
    };
    Ok(out.into())
}

/// The observations as floats, a row per variable.
fn variable_rows(b: &mut dyn Build, x: &Traced) -> OpResult<Traced> {
    if x.rank()? > 2 {
        return Err(OpError::shape(format!(
            "cov(): expected input to have two or fewer dimensions but got an input with {} dimensions",
            x.rank()?
        )));
    }
    if x.dtype() == DType::B8 {
        return Err(OpError::dtype("cov(): bool dtype is not supported for input"));
    }
    let rows = match x.rank()? {
        2 => x.clone(),
        _ => b.reshape(x, &[Dim::Const(1), x.ty.numel()])?,
    };
    let dtype = if x.dtype().is_float() { x.dtype() } else { DType::F32 };
    b.to_dtype(&rows, dtype)
}

/// The mean of every variable, and the divisor of [`cov`].
fn mean_and_norm(
    b: &mut dyn Build,
    c: &Call<Traced>,
    rows: &Traced,
    weights: Option<&Traced>,
) -> OpResult<(Traced, Traced)> {
    let Some(w) = weights else {
        let mean = b.reduce(OpId::Mean, rows, &[1], true)?;
        let n = b.full(&[], Val::Int(rows.shape()?[1].clone()), rows.dtype())?;
        return Ok((mean, b.sub(&n, c.get("correction").clone())?));
    };
    let total = b.sum(w)?;
    let product = b.mul(rows, w)?;
    let sum = b.reduce(OpId::Sum, &product, &[1], true)?;
    let norm = weighted_norm(b, c, w, &total)?;
    Ok((b.div(&sum, &total)?, norm))
}

/// The products of the weights of the `n` observations: their frequencies and their importances.
fn observation_weights(b: &mut dyn Build, c: &Call<Traced>, n: &Dim, dtype: DType) -> OpResult<Option<Traced>> {
    let mut weights: Option<Traced> = None;
    for (name, kind) in [("fweights", "integral"), ("aweights", "floating point")] {
        let Some(w) = c.opt_leaf(name) else { continue };
        if w.dtype().is_float() == (name == "fweights") {
            return Err(OpError::dtype(format!("cov(): expected {name} to have {kind} dtype")));
        }
        if w.rank()? > 1 || w.ty.numel().sub(n).as_const().is_some_and(|d| d != 0) {
            return Err(OpError::shape(format!(
                "cov(): expected {name} to have the same numel as there are observations in the input"
            )));
        }
        let w = b._non_negative(w, Val::str(&format!("cov(): {name} cannot be negative")))?;
        let w = match w.dtype().is_float() {
            true => w,
            false => b.to_dtype(&w, dtype)?,
        };
        weights = Some(match weights {
            Some(old) => b.mul(&old, &w)?,
            None => w,
        });
    }
    Ok(weights)
}

/// The divisor of the sums of weighted squares.
fn weighted_norm(b: &mut dyn Build, c: &Call<Traced>, w: &Traced, total: &Traced) -> OpResult<Traced> {
    let correction = c.get("correction").clone();
    let Some(a) = c.opt_leaf("aweights") else {
        return b.sub(total, correction);
    };
    if c.get("correction").as_int() == Some(0) {
        return Ok(total.clone());
    }
    let squares = b.mul(w, a)?;
    let squares = b.sum(squares)?;
    let part = b.div(&squares, total)?;
    let part = b.mul(&part, correction)?;
    b.sub(total, &part)
}

fn corrcoef(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let cov = b.cov(x)?;
    if cov.rank()? == 0 {
        return b.div(&cov, &cov).map(Val::Leaf);
    }
    let variances = b.diagonal(&cov)?;
    let deviations = b.sqrt(&variances)?;
    let column = b.unsqueeze(&deviations, 1)?;
    let out = b.div(&cov, &column)?;
    let out = b.div(&out, &deviations)?;
    b.op(OpId::Clamp, [out.into(), Val::int(-1), Val::int(1)])
        .map(Val::Leaf)
}

/// The dim along which a curve is integrated, and its size.
fn curve_dim(c: &Call<Traced>) -> OpResult<(usize, Dim)> {
    let y = c.leaf("y")?;
    let dim = wrap_dim(c.int("dim")?, y.rank()?)?;
    match y.shape()?.get(dim) {
        Some(size) => Ok((dim, size.clone())),
        None => Err(OpError::shape("trapezoid requires a tensor with dims")),
    }
}

/// The distance between two points of a curve, which torch always takes as a float.
fn distance(c: &Call<Traced>) -> OpResult<f64> {
    let words = "trapezoid: Currently, we only support dx as a real number.";
    c.get("dx").as_f64().ok_or_else(|| OpError::arg("dx", words))
}

/// The area below a curve, by torch's formulas: points at equal distances are summed once, and half of the ends is subtracted.
fn trapezoid(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Traced> {
    let y = c.leaf("y")?;
    let (dim, size) = curve_dim(c)?;
    let along = || ints_val(&[dim as i64]);
    if size == Dim::Const(0) {
        let sum = b.op(OpId::Sum, [y.into(), along()])?;
        return b.to_dtype(&sum, y.dtype());
    }
    if c.opt_leaf("x").is_some() {
        let parts = trapezoid_areas(b, c)?;
        let sum = b.op(OpId::Sum, [parts.into(), along()])?;
        return b.div(&sum, Val::Float(2.0));
    }
    let sum = b.op(OpId::Sum, [y.into(), along()])?;
    let mut end = |place: i64| b.op(OpId::Select, [y.into(), Val::int(dim as i64), Val::int(place)]);
    let (first, last) = (end(0)?, end(-1)?);
    let ends = b.add(&first, &last)?;
    let half = b.mul(&ends, Val::Float(0.5))?;
    let area = b.sub(&sum, &half)?;
    b.mul(&area, Val::Float(distance(c)?))
}

/// Twice the area between each two points of a curve; the distance of the points is a factor if it is given by `x`.
fn trapezoid_areas(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Traced> {
    let y = c.leaf("y")?;
    let (dim, size) = curve_dim(c)?;
    let end = size.sub(&Dim::Const(1));
    let (later, earlier) = (
        b.slice(y, dim, Dim::Const(1), size.clone(), 1)?,
        b.slice(y, dim, Dim::Const(0), end, 1)?,
    );
    let sums = b.add(&later, &earlier)?;
    match c.opt_leaf("x") {
        None => Ok(sums),
        Some(x) => {
            let x = as_long(b, x, y.rank()?, dim, &size)?;
            let steps = b.op(OpId::Diff, [x.into(), Val::int(1), Val::int(dim as i64)])?;
            b.mul(&steps, &sums)
        }
    }
}

/// The positions of a curve's points, with at least as many dims as the curve. A vector lies along `dim`; other shapes
/// are aligned at the last dim.
fn as_long(b: &mut dyn Build, x: &Traced, rank: usize, dim: usize, size: &Dim) -> OpResult<Traced> {
    let sizes = x.shape()?.to_vec();
    let missing = rank.saturating_sub(sizes.len());
    match sizes.as_slice() {
        [n] => {
            if n.sub(size).as_const().is_some_and(|d| d != 0) {
                return Err(OpError::shape(
                    "trapezoid: There must be one `x` value for each sample point",
                ));
            }
            let mut shape = vec![Dim::Const(1); rank];
            shape[dim] = n.clone();
            b.reshape(x, &shape)
        }
        _ if missing > 0 => b.reshape(x, &[vec![Dim::Const(1); missing], sizes].concat()),
        _ => Ok(x.clone()),
    }
}
