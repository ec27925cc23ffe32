//! Quantiles, whose ranks are interpolated between sorted elements.

use crate::op::emit::ints_val;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::types::{DType, Dim, Val};

/// The row of a quantile: `q` is a number or a tensor.
macro_rules! quantile {
    ($n:literal, $doc:literal, $f:path) => {
        Op::composite(
            (
                $n,
                concat!(
                    $n,
                    "(Tensor self, Any q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor"
                ),
            ),
            $f,
        )
        .doc($doc)
        .form(
            concat!("aten.", $n, ".default torch.", $n, " Tensor.", $n),
            concat!(
                $n,
                "(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor"
            ),
        )
        .form(
            concat!("aten.", $n, ".scalar torch.", $n, " Tensor.", $n),
            concat!(
                $n,
                "(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor"
            ),
        )
    };
}

pub(super) fn quantile_rows() -> Vec<Op> {
    vec![
        quantile!("quantile", "the quantiles; NaN if any element is NaN", plain_quantile),
        quantile!(
            "nanquantile",
            "the quantiles of the elements that are not NaN",
            nan_quantile
        ),
    ]
}

fn plain_quantile(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    quantile(b, c, false)
}

fn nan_quantile(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    quantile(b, c, true)
}

/// In longer lines, elements of known ranks are selected. Many short ones are sorted together.
const LONG: i64 = 128;

/// Sorts along the last dim, and interpolates at the fraction `q` between the first and the last element.
fn quantile(b: &mut dyn Build, c: &Call<Traced>, ignores_nan: bool) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    if !matches!(x.dtype(), DType::F32 | DType::F64) {
        return Err(OpError::dtype(
            "quantile() input tensor must be either float or double dtype",
        ));
    }
    let dim = match c.opt_int("dim")? {
        Some(d) => Some(wrap_dim(d, x.rank()?)?),
        None => None,
    };
    let rank = x.rank()?;
    let lanes = match dim {
        Some(d) if rank > 0 => {
            let order: Vec<usize> = (0..rank).filter(|&i| i != d).chain([d]).collect();
            b.permute(x, &order)?
        }
        _ => b.ravel(x)?,
    };
    let last = lanes.rank()? - 1;
    let size = lanes.shape()?[last].clone();
    if size == Dim::Const(0) {
        return Err(OpError::shape("quantile() input tensor must be non-empty"));
    }
    let (q, vector) = quantile_fractions(b, c, x.dtype())?;
    let number = c.get("q").as_leaf().is_none();
    if let Some(n) = size.as_const().filter(|n| number && !ignores_nan && *n > LONG) {
        let values = selected_quantile(b, c, &lanes, n)?;
        return arrange_quantiles(b, c, values, dim, rank, vector);
    }
    let sorted = b
        .call_many(OpId::Sort, [(&lanes).into(), Val::int(last as i64)])?
        .swap_remove(0);
    let ranks = quantile_ranks(b, &sorted, &q, last, ignores_nan)?;
    let values = interpolate_at_ranks(b, &sorted, &ranks, last, c.str("interpolation")?)?;
    arrange_quantiles(b, c, values, dim, rank, vector)
}

/// `q` as a vector of dtype `dtype`, and whether it was given as a vector.
fn quantile_fractions(b: &mut dyn Build, c: &Call<Traced>, dtype: DType) -> OpResult<(Traced, bool)> {
    let Some(q) = c.get("q").as_leaf() else {
        let q = c.f64("q")?;
        if !(0.0..=1.0).contains(&q) {
            return Err(OpError::arg(
                "q",
                format!("quantile() q must be in the range [0, 1] but got {q}"),
            ));
        }
        return Ok((b.full(&[Dim::Const(1)], Val::Float(q), dtype)?, false));
    };
    if q.dtype() != dtype {
        return Err(OpError::dtype(
            "quantile() q tensor must be same dtype as the input tensor",
        ));
    }
    match q.rank()? {
        0 => Ok((b.unsqueeze(q, 0)?, false)),
        1 => Ok((q.clone(), true)),
        _ => Err(OpError::shape("quantile() q must be a scalar or 1D tensor")),
    }
}

/// The fractional positions of the quantiles along the last dim.
fn quantile_ranks(b: &mut dyn Build, sorted: &Traced, q: &Traced, last: usize, ignores_nan: bool) -> OpResult<Traced> {
    if ignores_nan {
        let nan = b.isnan(sorted)?;
        let valid = b.logical_not(&nan)?;
        let count = b.op(OpId::Sum, [valid.into(), ints_val(&[last as i64]), Val::Bool(true)])?;
        let count = b.to_dtype(&count, sorted.dtype())?;
        let end = b.sub(&count, Val::int(1))?;
        let ranks = b.mul(q, &end)?;
        return b.op(OpId::Clamp, [ranks.into(), Val::int(0)]);
    }
    let size = sorted.shape()?[last].clone();
    let end = size.sub(&Dim::Const(1));
    let ranks = b.mul(q, Val::Int(end.clone()))?;
    // NaNs are sorted to the end.
    let tail = b.slice(sorted, last, end.clone(), size, 1)?;
    let nan = b.isnan(&tail)?;
    b.r#where(nan, Val::Int(end), ranks)
}

/// The rounding of a rank to that of the element, or of the lower of two.
fn rank_rounding(interpolation: &str) -> OpResult<OpId> {
    match interpolation {
        "linear" | "midpoint" | "lower" => Ok(OpId::Floor),
        "higher" => Ok(OpId::Ceil),
        "nearest" => Ok(OpId::Round),
        _ => Err(OpError::arg(
            "interpolation",
            format!(
                "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
            ),
        )),
    }
}

/// Whether a quantile is between two elements.
fn is_between(interpolation: &str) -> bool {
    matches!(interpolation, "linear" | "midpoint")
}

/// The quantile at a number `q` of lanes of `n` elements, of which at most two are looked for.
fn selected_quantile(b: &mut dyn Build, c: &Call<Traced>, lanes: &Traced, n: i64) -> OpResult<Traced> {
    let (last, dtype, q) = (lanes.rank()? - 1, lanes.dtype(), c.f64("q")?);
    let interpolation = c.str("interpolation")?;
    // In the arithmetic of the dtype.
    let rank = match dtype {
        DType::F32 => f64::from(q as f32 * (n - 1) as f32),
        _ => q * (n - 1) as f64,
    };
    let below = match rank_rounding(interpolation)? {
        OpId::Floor => rank.floor(),
        OpId::Ceil => rank.ceil(),
        _ => rank.round_ties_even(),
    };
    let element = |b: &mut dyn Build, rank: f64| -> OpResult<Traced> {
        let number = Val::int((rank as i64 + 1).clamp(1, n));
        let args = [lanes.into(), number, Val::int(last as i64), Val::Bool(true)];
        Ok(b.call_many(OpId::Kthvalue, args)?.swap_remove(0))
    };
    let mut value = element(b, below)?;
    if is_between(interpolation) {
        let high = match rank.ceil() == below {
            true => value.clone(),
            false => element(b, rank.ceil())?,
        };
        let weight = if interpolation == "linear" { rank - below } else { 0.5 };
        let weight = b.full(&[Dim::Const(1)], Val::Float(weight), dtype)?;
        value = b.lerp(value, high, weight)?;
    }
    let most = b.reduce(OpId::Amax, lanes, &[last], true)?;
    let nan = b.isnan(most)?;
    b.r#where(nan, Val::Float(f64::NAN), value)
}

fn interpolate_at_ranks(
    b: &mut dyn Build,
    sorted: &Traced,
    ranks: &Traced,
    last: usize,
    interpolation: &str,
) -> OpResult<Traced> {
    let gathered = |b: &mut dyn Build, ranks: &Traced| {
        let index = b.to_dtype(ranks, DType::I64)?;
        b.gather(sorted, Val::int(last as i64), index)
    };
    let below = b.unary(rank_rounding(interpolation)?, ranks)?;
    let low = gathered(b, &below)?;
    if !is_between(interpolation) {
        return Ok(low);
    }
    let above = b.ceil(ranks)?;
    let high = gathered(b, &above)?;
    let weight = match interpolation {
        "linear" => b.sub(ranks, &below)?,
        _ => b.full(ranks.shape()?, Val::Float(0.5), ranks.dtype())?,
    };
    b.lerp(low, high, weight)
}

/// Permutes `[rest…, quantiles]` to torch's result: the quantiles come first if `q` is a vector; the reduced dims are
/// kept or removed.
fn arrange_quantiles(
    b: &mut dyn Build,
    c: &Call<Traced>,
    values: Traced,
    dim: Option<usize>,
    rank: usize,
    vector: bool,
) -> OpResult<Val<Traced>> {
    let last = values.rank()? - 1;
    let order: Vec<usize> = [last].into_iter().chain(0..last).collect();
    let mut out = b.permute(&values, &order)?;
    if c.bool("keepdim")? {
        match dim {
            Some(d) if rank > 0 => out = b.unsqueeze(&out, d + 1)?,
            Some(_) => {}
            None => {
                let quantiles = out.shape()?[0].clone();
                let ones = vec![Dim::Const(1); rank];
                out = b.reshape(&out, &[vec![quantiles], ones].concat())?;
            }
        }
    }
    match vector {
        true => Ok(out.into()),
        false => b.squeeze(&out, 0).map(Val::Leaf),
    }
}
