//! Window functions, and other tensors created from numbers.

use crate::op::emit::{ints_val, list_val};
use crate::op::rows::linalg::composites::power_columns;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};
use std::f64::consts::TAU;

pub(super) fn rows() -> Vec<Op> {
    let mut v = cosine_window_rows();
    v.extend(sampled_window_rows());
    v.extend(other_rows());
    v.extend(unravel_rows());
    v.push(
        Op::composite(
            "fft_fftfreq(int n, float d=1., *, ScalarType? dtype=None) -> Tensor",
            |b, c| fft_frequencies(b, c, false),
        )
        .doc("the frequencies of a discrete Fourier transform of n samples")
        .spelled("aten.@ torch.fft.fftfreq"),
    );
    v.push(
        Op::composite(
            "fft_rfftfreq(int n, float d=1., *, ScalarType? dtype=None) -> Tensor",
            |b, c| fft_frequencies(b, c, true),
        )
        .doc("the non-negative frequencies of a discrete Fourier transform of n real samples")
        .spelled("aten.@ torch.fft.rfftfreq"),
    );
    v
}

/// The row of a window function: `$more` are its own parameters after `periodic`. Each overload lacks some of the last
/// parameters.
macro_rules! window {
    ($n:literal, $more:literal, $doc:literal, $f:expr, $($overload:literal => $given:literal),*) => {
        Op::composite((concat!($n, "_window"), concat!($n, "_window(int window_length, bool periodic=True", $more, ", *, ScalarType? dtype=None) -> Tensor")),
            $f,
        )
        .doc($doc)
        .spelled(concat!("torch.", $n, "_window"))
        $(.form(
            concat!("aten.", $n, "_window.", $overload),
            concat!($n, "_window(int window_length", $given, ", *, ScalarType? dtype=None) -> Tensor"),
        ))*
    };
}

/// The frequencies of a discrete Fourier transform: `0, 1, …, -2, -1`, or only the non-negative half of it, divided by
/// `n * d`.
fn fft_frequencies(b: &mut dyn Build, c: &Call<Traced>, half: bool) -> OpResult<Val<Traced>> {
    let (n, d) = (c.int("n")?, c.f64("d")?);
    if n < 1 {
        return Err(OpError::arg(
            "n",
            format!("the number of samples must be positive, got {n}"),
        ));
    }
    let dtype = c.opt_dtype("dtype").unwrap_or(DType::F32);
    let ends = if half { [0, n / 2 + 1] } else { [0, (n - 1) / 2 + 1] };
    let mut k = b.arange(Val::int(ends[0]), Val::int(ends[1]))?;
    if !half {
        let negative = b.arange(Val::int(-(n / 2)), Val::int(0))?;
        k = b.cat(&[k, negative], 0)?;
    }
    let k = b.to_dtype(&k, dtype)?;
    b.mul(&k, Val::Float(1.0 / (n as f64 * d))).map(Val::Leaf)
}

fn cosine_window_rows() -> Vec<Op> {
    vec![
        window!("hann", "", "(1 - cos) / 2", |b, c| cosine_window(b, c, &[0.5, 0.5]), "default" => "", "periodic" => ", bool periodic"),
        window!(
            "hamming",
            ", float alpha=0.54, float beta=0.46",
            "alpha - beta cos",
            |b, c| cosine_window(b, c, &[c.f64("alpha")?, c.f64("beta")?]),
            "default" => "",
            "periodic" => ", bool periodic",
            "periodic_alpha" => ", bool periodic, float alpha",
            "periodic_alpha_beta" => ", bool periodic, float alpha, float beta"
        ),
        window!(
            "blackman",
            "",
            "0.42 - 0.5 cos + 0.08 cos of twice the angle",
            |b, c| cosine_window(b, c, &[0.42, 0.5, 0.08]),
            "default" => "",
            "periodic" => ", bool periodic"
        ),
    ]
}

/// Windows that are functions of the position from 0 to 1.
fn sampled_window_rows() -> Vec<Op> {
    vec![
        window!("bartlett", "", "a triangle", |b, c| sample_window(b, c, &|b, t| {
            // 1 - |2 t - 1|
            let t = b.mul(t, Val::Float(2.0))?;
            let t = b.sub(&t, Val::Float(1.0))?;
            let t = b.abs(&t)?;
            b.rsub(t, Val::Float(1.0))
        }), "default" => "", "periodic" => ", bool periodic"),
        window!(
            "kaiser",
            ", float beta=12.0",
            "i0(beta sqrt(1 - (2 t - 1) ** 2)) / i0(beta)",
            |b, c| {
                let beta = c.f64("beta")?;
                sample_window(b, c, &|b, t| {
                    let t = b.mul(t, Val::Float(2.0))?;
                    let t = b.sub(&t, Val::Float(1.0))?;
                    let t = b.square(&t)?;
                    let t = b.rsub(t, Val::Float(1.0))?;
                    let t = b.op(OpId::Clamp, [t.into(), Val::int(0)])?;
                    let t = b.sqrt(&t)?;
                    let t = b.mul(&t, Val::Float(beta))?;
                    let (t, whole) = (b.i0(&t)?, b.full(&[], Val::Float(beta), DType::F64)?);
                    let whole = b.i0(&whole)?;
                    b.div(&t, &whole)
                })
            },
            "default" => "",
            "periodic" => ", bool periodic",
            "beta" => ", bool periodic, float beta"
        ),
    ]
}

fn other_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "vander(Tensor x, int? N=None, bool increasing=False) -> Tensor",
            |b, c| {
                let x = c.leaf("x")?;
                let [size] = x.shape()? else {
                    return Err(OpError::shape("torch.vander: x must be a one-dimensional tensor."));
                };
                let columns = c.opt_int("N")?.map_or(size.clone(), Dim::Const);
                if columns.as_const().is_some_and(|n| n < 0) {
                    return Err(OpError::arg("N", "torch.vander: N must be non-negative."));
                }
                let wide = power_columns(b, x, &columns.add(&Dim::Const(1)))?;
                let out = b.slice(&wide, 1, Dim::Const(0), columns, 1)?;
                match c.bool("increasing")? {
                    true => Ok(out.into()),
                    false => b.flip(out, ints_val(&[1])).map(Val::Leaf),
                }
            },
        )
        .doc("the powers of every element of a vector as columns, in decreasing order by default")
        .spelled("aten.@ torch.@"),
        Op::composite("lu(Tensor A, bool pivot=True, bool get_infos=False) -> Any", |b, c| {
            let v = b.call_many(OpId::LinalgLuFactorEx, [c.get("A").clone(), c.get("pivot").clone()])?;
            let wanted = if c.bool("get_infos")? { 3 } else { 2 };
            Ok(Val::Tuple(v[..wanted].iter().map(Val::from).collect()))
        })
        .doc("linalg_lu_factor, and the positions of zero pivots on request")
        .spelled("torch.@ torch.functional.@ Tensor.@"),
    ]
}

fn unravel_rows() -> Vec<Op> {
    vec![
        Op::composite("unravel_index(Tensor indices, Any shape) -> Tensor[]", |b, c| {
            let sizes = c.dims("shape")?;
            let mut out = vec![];
            let mut rest = c.leaf("indices")?.clone();
            for n in sizes.iter().rev() {
                let n = Val::Int(n.clone());
                out.push(b.remainder(&rest, n.clone())?);
                rest = b.floor_divide(&rest, n)?;
            }
            out.reverse();
            Ok(Val::Tuple(list_val(&out).items().unwrap_or_default().to_vec()))
        })
        .doc("row-major indices converted to one index per dim")
        .spelled("torch.@ torch.functional.@"),
    ]
}

/// Samples `f` at positions from 0 to 1, in f64, and rounds once. A window of one point is 1.
fn sample_window(
    b: &mut dyn Build,
    c: &Call<Traced>,
    f: &dyn Fn(&mut dyn Build, &Traced) -> OpResult<Traced>,
) -> OpResult<Val<Traced>> {
    let n = c.int("window_length")?;
    let dtype = c.opt_dtype("dtype").unwrap_or(DType::F32);
    if n < 0 {
        return Err(OpError::arg(
            "window_length",
            format!(
                "{} requires non-negative window_length, got window_length={n}",
                c.op.name
            ),
        ));
    }
    if !dtype.is_float() {
        return Err(OpError::dtype(format!("{} expects floating point dtypes", c.op.name)));
    }
    if n < 2 {
        return b.full(&[Dim::Const(n)], Val::Float(1.0), dtype).map(Val::Leaf);
    }
    let last = if c.bool("periodic")? { n } else { n - 1 };
    let places = b.arange(Val::int(0), Val::int(n))?;
    let places = b.to_dtype(&places, DType::F64)?;
    let places = b.div(&places, Val::Float(last as f64))?;
    let out = f(b, &places)?;
    b.to_dtype(&out, dtype).map(Val::Leaf)
}

/// `w0 - w1 cos(2 pi t) + w2 cos(4 pi t)`.
fn cosine_window(b: &mut dyn Build, c: &Call<Traced>, weights: &[f64]) -> OpResult<Val<Traced>> {
    sample_window(b, c, &|b, t| {
        let mut sum: Option<Traced> = None;
        // The cosine of the first term is 1.
        let (first, others) = match weights {
            [first, others @ ..] if !others.is_empty() => (*first, others),
            _ => (0.0, weights),
        };
        let skipped = weights.len() - others.len();
        for (k, w) in (skipped..).zip(others) {
            let angle = b.mul(t, Val::Float(TAU * k as f64))?;
            let cos = b.cos(&angle)?;
            let sign = if k % 2 == 1 { -1.0 } else { 1.0 };
            let term = b.mul(&cos, Val::Float(sign * w))?;
            sum = Some(match sum {
                Some(s) => b.add(&s, &term)?,
                None if skipped > 0 => b.add(&term, Val::Float(first))?,
                None => term,
            });
        }
        sum.ok_or_else(|| OpError::arg("window_length", "a window has terms"))
    })
}
