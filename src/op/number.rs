//! Python's operators on Python numbers, symbolic sizes among them: `operator.floordiv(s0, 2)` in a traced graph.

use super::{OpError, OpResult};
use crate::scalar::math::f64_binary;
use crate::scalar::{Binary, Compare};
use crate::types::{Dim, Kind, TensorType, Type, Val};
use std::cmp::Ordering;

/// The result of the row `name` on numbers alone; `None` if Python has no such operator or an argument is no number.
pub fn apply(name: &str, args: &[Type]) -> Option<OpResult<Type>> {
    let (x, y) = (args.first()?, args.get(1));
    let is_number = |v: &Type| kind(v).is_some();
    if !is_number(x) {
        return None;
    }
    if let Some(r) = unary(name, x) {
        return Some(r);
    }
    let y = y.filter(|v| is_number(v))?;
    if let Some(op) = comparison(name) {
        return Some(Ok(compare(op, x, y)));
    }
    if let Some(alpha) = args
        .get(2)
        .filter(|v| matches!(name, "add" | "sub") && v.as_f64() != Some(1.0))
    {
        let scaled = arithmetic(Binary::Mul, y, alpha, Dim::mul);
        return Some(scaled.and_then(|y| apply(name, &[x.clone(), y]).unwrap_or(Ok(Val::Unknown))));
    }
    Some(match name {
        "add" => arithmetic(Binary::Add, x, y, Dim::add),
        "sub" => arithmetic(Binary::Sub, x, y, Dim::sub),
        "mul" => arithmetic(Binary::Mul, x, y, Dim::mul),
        "div" => match args.get(2).and_then(Val::as_str) {
            Some("floor") => division(Binary::FloorDiv, x, y, Dim::floordiv),
            Some("trunc") => division(Binary::TruncDiv, x, y, truncated),
            _ => true_division(x, y),
        },
        "floor_divide" => division(Binary::FloorDiv, x, y, Dim::floordiv),
        "remainder" => division(Binary::Mod, x, y, Dim::modulo),
        "pow" => power(x, y),
        "bitwise_and" => bits(x, y, |a, b| Some(a & b)),
        "bitwise_or" => bits(x, y, |a, b| Some(a | b)),
        "bitwise_xor" => bits(x, y, |a, b| Some(a ^ b)),
        "bitwise_left_shift" => bits(x, y, |a, b| {
            let n = u32::try_from(b).ok().filter(|n| *n < 63)?;
            a.checked_mul(1 << n)
        }),
        "bitwise_right_shift" => bits(x, y, |a, b| Some(a >> b.clamp(0, 63))),
        _ => return None,
    })
}

fn kind(v: &Val<TensorType>) -> Option<Kind> {
    match v {
        Val::Bool(_) => Some(Kind::Bool),
        Val::Int(_) => Some(Kind::Int),
        Val::Float(_) => Some(Kind::Float),
        Val::Any(k @ (Kind::Bool | Kind::Int | Kind::Float)) => Some(*k),
        _ => None,
    }
}

/// The integer (bools count as 0 and 1), unknown where it is not known; `None` for a float.
fn as_dim(v: &Type) -> Option<Dim> {
    match v {
        Val::Int(d) => Some(d.clone()),
        Val::Bool(b) => Some(Dim::Const(*b as i64)),
        Val::Any(Kind::Int | Kind::Bool) => Some(Dim::Unknown),
        _ => None,
    }
}

fn int(d: Dim) -> Type {
    match d {
        Dim::Unknown => Val::Any(Kind::Int),
        d => Val::Int(d),
    }
}

fn unary(name: &str, x: &Type) -> Option<OpResult<Type>> {
    let out = match (name, x) {
        ("neg", Val::Float(f)) => Val::Float(-f),
        ("abs", Val::Float(f)) => Val::Float(f.abs()),
        ("neg" | "positive" | "abs" | "bitwise_not", Val::Any(Kind::Bool)) => Val::Any(Kind::Int),
        ("neg" | "positive" | "abs", Val::Any(k)) => Val::Any(*k),
        ("positive", Val::Float(_)) => x.clone(),
        ("bitwise_not", Val::Float(_) | Val::Any(Kind::Float)) => {
            return Some(Err(OpError::dtype("bad operand type for unary ~: 'float'")));
        }
        ("neg", _) => int(as_dim(x)?.neg()),
        ("positive", _) => int(as_dim(x)?),
        ("abs", _) => int(as_dim(x)?
            .as_const()
            .and_then(i64::checked_abs)
            .map_or(Dim::Unknown, Dim::Const)),
        ("bitwise_not", _) => int(Dim::Const(-1).sub(&as_dim(x)?)),
        ("logical_not", _) => match truth(x) {
            Some(b) => Val::Bool(!b),
            None => Val::Any(Kind::Bool),
        },
        _ => return None,
    };
    Some(Ok(out))
}

fn truth(v: &Type) -> Option<bool> {
    match v {
        Val::Float(f) => Some(*f != 0.0),
        v => as_dim(v)?.as_const().map(|c| c != 0),
    }
}

fn arithmetic(op: Binary, x: &Type, y: &Type, on_ints: fn(&Dim, &Dim) -> Dim) -> OpResult<Type> {
    if let (Some(a), Some(b)) = (as_dim(x), as_dim(y)) {
        return Ok(int(on_ints(&a, &b)));
    }
    Ok(match (x.as_f64(), y.as_f64(), f64_binary(op)) {
        (Some(a), Some(b), Some(f)) => Val::Float(f(a, b)),
        _ => Val::Any(Kind::Float),
    })
}

fn division(op: Binary, x: &Type, y: &Type, on_ints: fn(&Dim, &Dim) -> Dim) -> OpResult<Type> {
    if y.as_f64() == Some(0.0) {
        return Err(OpError::value("ZeroDivisionError: division by zero"));
    }
    arithmetic(op, x, y, on_ints)
}

/// Known sizes divided towards zero.
fn truncated(a: &Dim, b: &Dim) -> Dim {
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => a.checked_div(b).map_or(Dim::Unknown, Dim::Const),
        _ => Dim::Unknown,
    }
}

fn true_division(x: &Type, y: &Type) -> OpResult<Type> {
    if y.as_f64() == Some(0.0) {
        return Err(OpError::value("ZeroDivisionError: division by zero"));
    }
    Ok(match (x.as_f64(), y.as_f64()) {
        (Some(a), Some(b)) => Val::Float(a / b),
        _ => Val::Any(Kind::Float),
    })
}

/// Exponents above this are left for run time.
const MAX_SYMBOLIC_POWER: i64 = 16;

fn power(x: &Type, y: &Type) -> OpResult<Type> {
    match (as_dim(x), y.as_int()) {
        (Some(Dim::Const(a)), Some(n)) if n >= 0 => {
            let p = u32::try_from(n).ok().and_then(|n| a.checked_pow(n));
            Ok(int(p.map_or(Dim::Unknown, Dim::Const)))
        }
        (Some(a), Some(n)) if (0..=MAX_SYMBOLIC_POWER).contains(&n) => {
            Ok(int((0..n).fold(Dim::Const(1), |p, _| p.mul(&a))))
        }
        _ => match (x.as_f64(), y.as_f64()) {
            (Some(0.0), Some(b)) if b < 0.0 => Err(OpError::value(
                "ZeroDivisionError: 0.0 cannot be raised to a negative power",
            )),
            (Some(a), Some(b)) if a < 0.0 && b.fract() != 0.0 => {
                Err(OpError::dtype("a negative number to a fractional power is complex"))
            }
            (Some(a), Some(b)) => Ok(Val::Float(a.powf(b))),
            _ if as_dim(x).is_some() && as_dim(y).is_some() => Ok(Val::Any(Kind::Int)),
            _ => Ok(Val::Any(Kind::Float)),
        },
    }
}

fn bits(x: &Type, y: &Type, f: fn(i64, i64) -> Option<i64>) -> OpResult<Type> {
    let (Some(a), Some(b)) = (as_dim(x), as_dim(y)) else {
        return Err(OpError::dtype("unsupported operand types: bitwise operators take ints"));
    };
    let bools = kind(x) == Some(Kind::Bool) && kind(y) == Some(Kind::Bool);
    Ok(match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => match f(a, b) {
            Some(r) if bools => Val::Bool(r != 0),
            r => int(r.map_or(Dim::Unknown, Dim::Const)),
        },
        _ => Val::Any(if bools { Kind::Bool } else { Kind::Int }),
    })
}

fn comparison(name: &str) -> Option<Compare> {
    Some(match name {
        "eq" => Compare::Eq,
        "ne" => Compare::Ne,
        "lt" => Compare::Lt,
        "le" => Compare::Le,
        "gt" => Compare::Gt,
        "ge" => Compare::Ge,
        _ => return None,
    })
}

/// Decided also for symbolic sizes that differ by a constant.
fn compare(op: Compare, x: &Type, y: &Type) -> Type {
    let order: Option<Option<Ordering>> = match (as_dim(x), as_dim(y)) {
        (Some(a), Some(b)) => a.sub(&b).as_const().map(|d| Some(d.cmp(&0))),
        _ => x.as_f64().zip(y.as_f64()).map(|(a, b)| a.partial_cmp(&b)),
    };
    let Some(order) = order else {
        return Val::Any(Kind::Bool);
    };
    Val::Bool(match op {
        Compare::Eq => order.is_some_and(|o| o.is_eq()),
        Compare::Ne => order.is_none_or(|o| o.is_ne()),
        Compare::Lt => order.is_some_and(|o| o.is_lt()),
        Compare::Le => order.is_some_and(|o| o.is_le()),
        Compare::Gt => order.is_some_and(|o| o.is_gt()),
        Compare::Ge => order.is_some_and(|o| o.is_ge()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, x: Type, y: Type) -> Type {
        apply(name, &[x, y]).expect("an operator").expect("a value")
    }

    #[test]
    fn computes_as_python_does() {
        let n = || Val::Int(Dim::var("N"));
        assert_eq!(run("add", Val::int(2), Val::Float(0.5)), Val::Float(2.5));
        assert_eq!(run("floor_divide", Val::int(-7), Val::int(2)), Val::int(-4));
        assert_eq!(run("floor_divide", Val::Float(1.0), Val::Float(0.1)), Val::Float(9.0));
        assert_eq!(run("remainder", Val::int(-7), Val::int(3)), Val::int(2));
        assert_eq!(run("div", Val::int(6), Val::int(4)), Val::Float(1.5));
        let mode = |m: &str| apply("div", &[Val::int(-7), Val::int(2), Val::str(m)]);
        assert_eq!(
            (mode("floor"), mode("trunc")),
            (Some(Ok(Val::int(-4))), Some(Ok(Val::int(-3))))
        );
        assert_eq!(
            apply("add", &[Val::int(1), Val::int(2), Val::int(3)]),
            Some(Ok(Val::int(7)))
        );
        assert_eq!(run("pow", Val::int(2), Val::int(-1)), Val::Float(0.5));
        assert_eq!(run("pow", n(), Val::int(2)).to_string(), "int");
        assert_eq!(
            run("mul", n(), Val::int(2)),
            Val::Int(Dim::var("N").mul(&Dim::Const(2)))
        );
        assert_eq!(run("eq", n(), n()), Val::Bool(true));
        assert_eq!(run("eq", n(), Val::int(4)), Val::Any(Kind::Bool));
        assert_eq!(run("lt", n(), run("add", n(), Val::int(1))), Val::Bool(true));
        assert_eq!(run("bitwise_and", Val::Bool(true), Val::Bool(false)), Val::Bool(false));
        assert!(apply("floor_divide", &[Val::int(1), Val::int(0)]).is_some_and(|r| r.is_err()));
        assert!(apply("gelu", &[Val::int(1)]).is_none());
    }
}
