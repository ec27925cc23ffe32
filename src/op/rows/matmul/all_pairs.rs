//! Distances between all pairs of rows.

use super::distance::last_dim_norm;
use super::pdist;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite(
            "cdist(Tensor x1, Tensor x2, float p=2.0, Any compute_mode=None) -> Tensor",
            cdist,
        )
        .doc("the p-norm distances between all rows of two matrices")
        .spelled("aten.@ aten._cdist_forward.default torch.@ torch.functional.@"),
        Op::composite("_euclidean_dist(Tensor x1, Tensor x2) -> Tensor", euclidean_dist)
            .doc("the Euclidean distances between all rows of two matrices, by one matrix product")
            .spelled("aten.@ torch.@"),
        Op::composite("_pdist_forward(Tensor self, float p=2.0) -> Tensor", |b, c| {
            let x = c.leaf("self")?;
            // A single row has no pairs, so the result is empty.
            match x.shape()?.first() {
                Some(Dim::Const(0 | 1)) => b.full(&[Dim::Const(0)], Val::int(0), x.dtype()).map(Val::Leaf),
                _ => b.call(OpId::Pdist, c.args.clone()),
            }
        })
        .doc("the p-norm distances between all pairs of rows, for inputs that are known to have pairs")
        .spelled("aten.@"),
        pdist::row(),
    ]
}

/// `|x|² - 2xy + |y|²` as one matrix product, as in torch.
fn euclidean_dist(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("x1")?, c.leaf("x2")?);
    let norms = |b: &mut dyn Build, t: &Traced| {
        let squares = b.mul(t, t)?;
        let last = t
            .rank()?
            .checked_sub(1)
            .ok_or_else(|| OpError::shape("_euclidean_dist: X has no rows"))?;
        let norms = b.reduce(OpId::Sum, &squares, &[last], true)?;
        let ones = b.full(norms.shape()?, Val::int(1), norms.dtype())?;
        OpResult::Ok((norms, ones, last))
    };
    let (x_norms, x_ones, last) = norms(b, x)?;
    let (y_norms, y_ones, y_last) = norms(b, y)?;
    if y_last == 0 {
        return Err(OpError::shape("_euclidean_dist: X2 has no rows"));
    }
    let scaled = b.mul(x, Val::int(-2))?;
    let left = b.cat(&[scaled, x_norms, x_ones], last)?;
    let right = b.cat(&[y.clone(), y_ones, y_norms], y_last)?;
    let right = b.transpose(&right, y_last - 1, y_last)?;
    let squares = b.matmul(&left, &right)?;
    let squares = b.op(OpId::Clamp, [squares.into(), Val::int(0)])?;
    b.sqrt(&squares).map(Val::Leaf)
}

fn cdist(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, y) = (c.leaf("x1")?, c.leaf("x2")?);
    for (name, t) in [("X1", x), ("X2", y)] {
        if t.rank()? < 2 {
            return Err(OpError::shape(format!(
                "cdist only supports at least 2D tensors, {name} got: {}D",
                t.rank()?
            )));
        }
    }
    let (m, n) = (x.shape()?.last().cloned(), y.shape()?.last().cloned());
    if let (Some(m), Some(n)) = (&m, &n)
        && m.sub(n).as_const().is_some_and(|d| d != 0)
    {
        return Err(OpError::shape(format!(
            "X1 and X2 must have the same number of columns. X1: {m} X2: {n}"
        )));
    }
    if is_distance_product(c, x, y)? {
        return b.op(OpId::_EuclideanDist, [x.into(), y.into()]).map(Val::Leaf);
    }
    let (rx, ry) = (x.rank()?, y.rank()?);
    let computes = matches!(x.dtype(), DType::F32 | DType::F64) && x.dtype() == y.dtype();
    if let Some(columns @ 1..=FEW_COLUMNS) = m.as_ref().and_then(Dim::as_const)
        && let Some(p) = c.get("p").as_f64().filter(|p| p.is_finite() && computes)
    {
        return distances_by_column(b, (x, y), columns, p).map(Val::Leaf);
    }
    let (x, y) = (b.unsqueeze(x, rx - 1)?, b.unsqueeze(y, ry - 2)?);
    let d = b.sub(&x, &y)?;
    norms_of_differences(b, &d, c.get("p")).map(Val::Leaf)
}

/// The norms of differences along the last dim.
fn norms_of_differences(b: &mut dyn Build, d: &Traced, p: &Val<Traced>) -> OpResult<Traced> {
    let last = d.rank()? - 1;
    match p.as_f64() {
        // Unlike a norm, which counts NaN as one more difference.
        Some(0.0) => {
            let terms = power_of_magnitude(b, d, 0.0)?;
            b.reduce(OpId::Sum, &terms, &[last], false)
        }
        // As in torch, NaN differences are ignored, and the maximum over no columns is 0.
        Some(f64::INFINITY) => {
            let (nan, size) = (b.isnan(d)?, b.abs(d)?);
            let size = b.r#where(nan, Val::int(0), size)?;
            if size.shape()?[last] == Dim::Const(0) {
                return b.full(&size.shape()?[..last], Val::int(0), size.dtype());
            }
            b.reduce(OpId::Amax, &size, &[last], false)
        }
        _ => last_dim_norm(b, d, p, false),
    }
}

/// Up to this number of columns, the loop over the columns is unrolled, so that the loop over the second matrix's rows is vector code.
const FEW_COLUMNS: i64 = 8;

/// The distances of rows of few columns: sums of the powers of the differences in each column.
fn distances_by_column(b: &mut dyn Build, (x, y): (&Traced, &Traced), columns: i64, p: f64) -> OpResult<Traced> {
    let (rx, ry) = (x.rank()?, y.rank()?);
    let y = b.transpose(y, ry - 2, ry - 1)?;
    // Neighbours in memory, because they are read together.
    let y = b.clone(&y)?;
    let mut sum = None::<Traced>;
    for k in 0..columns {
        let xk = b.slice(x, rx - 1, Dim::Const(k), Dim::Const(k + 1), 1)?;
        let yk = b.slice(&y, ry - 2, Dim::Const(k), Dim::Const(k + 1), 1)?;
        let d = b.sub(&xk, &yk)?;
        let term = power_of_magnitude(b, &d, p)?;
        sum = Some(match &sum {
            Some(sum) => b.add(sum, &term)?,
            None => term,
        });
    }
    let sum = sum.ok_or_else(|| OpError::shape("cdist: rows without columns"))?;
    match p {
        0.0 | 1.0 => Ok(sum),
        2.0 => b.sqrt(&sum),
        _ => b.pow(&sum, Val::Float(1.0 / p)),
    }
}

/// `|d|` to the power `p`; for the power 0, 1 unless `d` is 0 or NaN.
fn power_of_magnitude(b: &mut dyn Build, d: &Traced, p: f64) -> OpResult<Traced> {
    if p == 0.0 {
        let size = b.abs(d)?;
        let whole = b.ceil(&size)?;
        return b.op(OpId::Clamp, [whole.into(), Val::None, Val::int(1)]);
    }
    if p == 2.0 {
        return b.mul(d, d);
    }
    let size = b.abs(d)?;
    match p {
        1.0 => Ok(size),
        3.0 => {
            let square = b.mul(&size, &size)?;
            b.mul(&square, &size)
        }
        _ => b.pow(&size, Val::Float(p)),
    }
}

/// The number of rows above which torch computes Euclidean distances by a matrix product.
const DISTANCE_ROWS: i64 = 25;

/// Whether torch computes the distances by a matrix product, which rounds differently: `compute_mode` may forbid or demand it, and by
/// default the number of rows decides.
fn is_distance_product(c: &Call<Traced>, x: &Traced, y: &Traced) -> OpResult<bool> {
    let (xs, ys) = (x.shape()?, y.shape()?);
    let is_large = |shape: &[Dim]| shape[shape.len() - 2].as_const().is_some_and(|n| n > DISTANCE_ROWS);
    let has_columns = xs.last().and_then(Dim::as_const).is_some_and(|n| n > 0);
    let mode = c.get("compute_mode");
    let wanted = match (mode.as_str(), mode.as_int()) {
        (Some("use_mm_for_euclid_dist"), _) | (_, Some(1)) => true,
        (Some("donot_use_mm_for_euclid_dist"), _) | (_, Some(2)) => false,
        _ => is_large(xs) || is_large(ys),
    };
    Ok(wanted && has_columns && x.dtype() == y.dtype() && c.get("p").as_f64() == Some(2.0))
}
