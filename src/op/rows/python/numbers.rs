//! Python's functions of numbers: extrema, conversions, sums.

use super::host;
use crate::op::{Call, Op, OpError, OpId, OpResult};
use crate::types::{Dim, TensorType, Type, Val, write_str};

pub(super) fn extremum_rows() -> Vec<Op> {
    vec![
        host("sym_max(Any a, Any b) -> Any", |c, _| extremum_type(c, true))
            .doc("the larger of two numbers")
            .spelled("torch.@ builtins.max"),
        host("sym_min(Any a, Any b) -> Any", |c, _| extremum_type(c, false))
            .doc("the smaller of two numbers")
            .spelled("torch.@ builtins.min"),
        host("max_of_several(Any a, Any b, Any c) -> Any", |c, _| {
            extremum_of_three(c, true)
        })
        .doc("the largest of three numbers")
        .spelled("builtins.max"),
        host("min_of_several(Any a, Any b, Any c) -> Any", |c, _| {
            extremum_of_three(c, false)
        })
        .doc("the smallest of three numbers")
        .spelled("builtins.min"),
    ]
}

/// Conversions between kinds of numbers, and choices by a condition.
pub(super) fn conversion_rows() -> Vec<Op> {
    vec![
        host("sym_int(Any a) -> int", |c, _| to_int(c.get("a")))
            .doc("a number truncated to an int")
            .spelled("torch.@ builtins.int math.trunc"),
        host("sym_float(Any a) -> float", |c, _| {
            Ok(match c.get("a") {
                Val::Str(s) => Val::Float(float_of(s)?),
                v => v.as_f64().map_or(Val::Any(crate::types::ScalarKind::Float), Val::Float),
            })
        })
        .doc("a number as a float")
        .spelled("torch.@ builtins.float"),
        host("sym_bool(Any a) -> bool", |c, _| {
            Ok(truth_value(c.get("a")).map_or(Val::Any(crate::types::ScalarKind::Bool), Val::Bool))
        })
        .doc("whether a number is nonzero")
        .spelled("builtins.bool"),
        host("sym_not(Any a) -> bool", |c, _| {
            Ok(truth_value(c.get("a")).map_or(Val::Any(crate::types::ScalarKind::Bool), |t| Val::Bool(!t)))
        })
        .doc("logical not of a number")
        .spelled("torch.@ operator.not_"),
        host("sym_ite(Any b, Any t, Any f) -> Any", |c, _| {
            Ok(match c.get("b").as_int() {
                Some(0) => c.get("f").clone(),
                Some(_) => c.get("t").clone(),
                None => Val::Unknown,
            })
        })
        .doc("one of two numbers, selected by a condition")
        .spelled("torch.@"),
    ]
}

pub(super) fn math_rows() -> Vec<Op> {
    vec![
        host("math_floor(Any a) -> int", |c, _| round_to_int(c.get("a"), f64::floor))
            .doc("a number rounded down, as an int")
            .spelled("math.floor"),
        host("math_ceil(Any a) -> int", |c, _| round_to_int(c.get("a"), f64::ceil))
            .doc("a number rounded up, as an int")
            .spelled("math.ceil"),
        host("math_round(Any a) -> int", |c, _| {
            round_to_int(c.get("a"), f64::round_ties_even)
        })
        .doc("a number rounded to the nearest int, half to even")
        .spelled("builtins.round"),
    ]
}

/// Products, sums and roots of numbers.
pub(super) fn aggregate_rows() -> Vec<Op> {
    vec![
        host("math_prod(Any items) -> Any", |c, _| {
            let items = c
                .get("items")
                .items()
                .ok_or_else(|| OpError::arg("items", "math.prod() expects a sequence"))?;
            let numbers: Option<Vec<f64>> = items.iter().map(Val::as_f64).collect();
            if let Some(numbers) = numbers.filter(|_| items.iter().any(|v| matches!(v, Val::Float(_)))) {
                return Ok(Val::Float(numbers.iter().product()));
            }
            Ok(Val::Int(items.iter().fold(Dim::Const(1), |p, v| match v {
                Val::Int(d) => p.mul(d),
                _ => Dim::Unknown,
            })))
        })
        .doc("the product of numbers")
        .spelled("math.prod"),
        host("sym_sum(Any args) -> Any", |c, _| {
            let items = c
                .get("args")
                .items()
                .ok_or_else(|| OpError::arg("args", "sym_sum() expects a sequence of numbers"))?;
            items.iter().try_fold(Val::int(0), |sum, v| {
                let sum = crate::op::number::eval_op(OpId::Add, &[sum, v.clone()]);
                sum.unwrap_or_else(|| Err(OpError::arg("args", "sym_sum() expects numbers")))
            })
        })
        .doc("the sum of numbers")
        .spelled("torch.sym_sum"),
        host("math_sqrt(Any a) -> float", |c, _| match c.get("a").as_f64() {
            Some(x) if x < 0.0 => Err(OpError::value("math domain error")),
            Some(x) => Ok(Val::Float(x.sqrt())),
            None => Ok(Val::Any(crate::types::ScalarKind::Float)),
        })
        .doc("square root of a number")
        .spelled("math.sqrt torch._sym_sqrt torch.sym_sqrt"),
    ]
}

fn extremum_type(c: &Call<TensorType>, max: bool) -> OpResult<Type> {
    Ok(pick_extremum(c.get("a"), c.get("b"), max))
}

fn extremum_of_three(c: &Call<TensorType>, max: bool) -> OpResult<Type> {
    Ok(pick_extremum(
        &pick_extremum(c.get("a"), c.get("b"), max),
        c.get("c"),
        max,
    ))
}

fn pick_extremum(a: &Type, b: &Type, max: bool) -> Type {
    if let (Val::Int(x), Val::Int(y)) = (a, b) {
        return Val::Int(if max { x.max_of(y) } else { x.min_of(y) });
    }
    match (a.as_f64(), b.as_f64()) {
        // Python keeps the first of equal values.
        (Some(x), Some(y)) if (max && y > x) || (!max && y < x) => b.clone(),
        (Some(_), Some(_)) => a.clone(),
        _ => Val::Unknown,
    }
}

/// Parses a string as Python's `float` does.
fn float_of(text: &str) -> OpResult<f64> {
    let plain = text.trim().replace('_', "").to_ascii_lowercase();
    let letters = plain.trim_start_matches(['+', '-']);
    let words =
        !letters.starts_with(|c: char| c.is_ascii_alphabetic()) || ["inf", "infinity", "nan"].contains(&letters);
    let fail = || OpError::value(format!("could not convert string to float: {}", write_str(text)));
    plain.parse().ok().filter(|_| words).ok_or_else(fail)
}

/// A value's truth in Python, if it is known.
pub(in crate::op::rows) fn truth_value(v: &Type) -> Option<bool> {
    Some(match v {
        Val::None => false,
        Val::Str(s) => !s.is_empty(),
        Val::List(v) | Val::Tuple(v) => !v.is_empty(),
        Val::Dict(v) => !v.is_empty(),
        Val::Complex(re, im) => *re != 0.0 || *im != 0.0,
        // Python objects are true by default.
        Val::DType(_) | Val::Device(_) | Val::TorchName(_) | Val::Ellipsis | Val::Graph(_) | Val::Slice(_) => true,
        v => v.as_f64()? != 0.0,
    })
}

fn to_int(v: &Type) -> OpResult<Type> {
    match v {
        Val::Int(d) => Ok(Val::Int(d.clone())),
        Val::Str(s) => {
            let fail = || OpError::value(format!("invalid literal for int() with base 10: {}", write_str(s)));
            s.trim().replace('_', "").parse().map(Val::int).map_err(|_| fail())
        }
        v => round_to_int(v, f64::trunc),
    }
}

fn round_to_int(v: &Type, f: fn(f64) -> f64) -> OpResult<Type> {
    match v {
        Val::Int(d) => Ok(Val::Int(d.clone())),
        v => match v.as_f64().map(f) {
            Some(x) if x.abs() < 9.2e18 => Ok(Val::int(x as i64)),
            Some(x) => Err(OpError::value(format!("cannot convert float {x} to integer"))),
            None => Ok(Val::Int(Dim::Unknown)),
        },
    }
}
