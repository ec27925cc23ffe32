//! Ranges and evenly spaced numbers.

use crate::op::pointwise::{call_dtypes, not_implemented, number_of, pointwise_row};
use crate::op::{Call, DtypeRule as D, ExprText, Op, OpError, OpResult, ShapeRule};
use crate::scalar::UntypedNumber;
use crate::types::{DType, Dim, TensorType, Type, Val};

/// A row whose shape follows from its arguments.
fn range_row(
    name: &'static str,
    schema: &'static str,
    dtypes: D,
    shape: fn(&Call<TensorType>) -> OpResult<Vec<Dim>>,
    text: ExprText,
) -> Op {
    pointwise_row((name, schema), dtypes, ShapeRule::By(shape), text)
}

pub(super) fn arange_rows() -> Vec<Op> {
    vec![
        range_row(
            "arange",
            "arange(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None) -> Tensor",
            D::GivenByValue,
            arange_size,
            ExprText::By(|c| match call_dtypes(c)?.common {
                DType::B8 => Err(not_implemented("arange_cpu", DType::B8)),
                d if d.is_float() => Ok("start + f64(i0) * step"),
                // Indices as they are take no time, so that fusion computes them again instead of reading them.
                _ => Ok(match (c.get("start").as_int(), c.get("step").as_int()) {
                    (Some(0), Some(1)) => "compute(i0)",
                    (_, Some(1)) => "start + compute(i0)",
                    _ => "start + compute(i0) * step",
                }),
            }),
        )
        .doc("start, start + step, … up to, but excluding, end; i64 if all are ints, else f32")
        .spelled("aten.@.start_step torch.@")
        .form(
            "aten.arange.start",
            "arange(Scalar start, Scalar end, *, ScalarType? dtype=None) -> Tensor",
        )
        .form_with(
            "aten.arange.default torch.arange",
            "arange(Scalar end, *, ScalarType? dtype=None) -> Tensor",
            &[("start", Val::Int(Dim::Const(0)))],
        ),
    ]
}

/// Evenly spaced numbers, and their powers.
pub(super) fn spaced_rows() -> Vec<Op> {
    vec![
        range_row(
            "linspace",
            "linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            steps_size,
            ExprText::By(|c| steps_text(c, ["f64(start)", LINSPACE])),
        )
        .doc("`steps` evenly spaced numbers from start to end")
        .spelled("aten.@ torch.@"),
        range_row(
            "logspace",
            "logspace(Scalar start, Scalar end, int steps, float base=10., *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            steps_size,
            ExprText::By(|c| steps_text(c, ["base ** f64(start)", LOGSPACE])),
        )
        .doc("base ** linspace(start, end, steps)")
        .spelled("aten.@ torch.@"),
    ]
}

/// Computed from both ends towards the middle, as in torch, so that both ends are exact.
const LINSPACE: &str = "d = (end - start) / (steps - 1); where(i0 < steps // 2, start + f64(i0) * d, end - f64(steps \
                        - 1 - i0) * d)";

const LOGSPACE: &str = "d = (end - start) / (steps - 1); base ** where(i0 < steps // 2, start + f64(i0) * d, end - \
                        f64(steps - 1 - i0) * d)";

/// The expression: the first text for at most one step, the second for several.
fn steps_text(c: &Call<TensorType>, text: [&'static str; 2]) -> OpResult<&'static str> {
    let (d, steps) = (call_dtypes(c)?.common, c.int("steps")?);
    match steps {
        0 | 1 => Ok(text[0]),
        _ if d == DType::B8 => Err(not_implemented(&format!("{}_cpu", c.op.name), d)),
        _ => Ok(text[1]),
    }
}

fn steps_size(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    for name in ["start", "end"] {
        if c.opt_leaf(name).is_some() {
            return Err(OpError::arg(
                name,
                format!("`{name}` of `{}` must be a number, not a tensor", c.op.name),
            ));
        }
    }
    match c.int("steps")? {
        n if n < 0 => Err(OpError::arg("steps", "number of steps must be non-negative")),
        n => Ok(vec![Dim::Const(n)]),
    }
}

fn arange_size(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    let (start, end, step) = (c.get("start"), c.get("end"), c.get("step"));
    let numbers = (number_of(start), number_of(end), number_of(step));
    if let (_, _, Some(step)) = numbers
        && step.to_f64() == 0.0
    {
        return Err(OpError::arg("step", "step must be nonzero"));
    }
    if let (Some(start), Some(end), Some(step)) = numbers {
        return Ok(vec![Dim::Const(range_length(start, end, step)?)]);
    }
    // Symbolic ends require integers and a known positive step.
    let dim = |v: &Type| match v {
        Val::Int(d) => d.clone(),
        Val::Bool(b) => Dim::Const(*b as i64),
        _ => Dim::Unknown,
    };
    let length = dim(end).sub(&dim(start));
    Ok(vec![match dim(step) {
        Dim::Const(1) => length,
        Dim::Const(s) if s > 0 => length.add(&Dim::Const(s - 1)).floordiv(&Dim::Const(s)),
        _ => Dim::Unknown,
    }])
}

/// The number of elements of a range of numbers.
fn range_length(start: UntypedNumber, end: UntypedNumber, step: UntypedNumber) -> OpResult<i64> {
    let (x, y, d) = (start.to_f64(), end.to_f64(), step.to_f64());
    if !(x.is_finite() && y.is_finite() && d.is_finite()) {
        return Err(OpError::arg("end", format!("unsupported range: {x} -> {y}")));
    }
    if (d > 0.0 && x > y) || (d < 0.0 && x < y) {
        return Err(OpError::arg(
            "end",
            "upper bound and lower bound inconsistent with step sign",
        ));
    }
    let exact = match (start, end, step) {
        (UntypedNumber::Int(a), UntypedNumber::Int(b), UntypedNumber::Int(s)) => {
            let n = (b as i128 - a as i128 + s as i128 - (s as i128).signum()) / s as i128;
            i64::try_from(n).ok()
        }
        _ => Some(((y - x) / d).ceil()).filter(|n| *n < 9e18).map(|n| n as i64),
    };
    exact.ok_or_else(|| OpError::arg("end", "the range is too long"))
}
