//! Python's operators on Python numbers, including symbolic sizes: `operator.floordiv(s0, 2)` in a traced graph.

use super::{OpError, OpId, OpResult};
use crate::scalar::math::f64_binary;
use crate::scalar::{Binary, Compare};
use crate::types::{Dim, ScalarKind, TensorType, Type, Val};
use std::cmp::Ordering;

/// The result of the row `op` on plain numbers; `None` if Python has no such operator or an argument is not a number.
pub(crate) fn eval_op(op: OpId, args: &[Type]) -> Option<OpResult<Type>> {
    let (x, y) = (args.first()?, args.get(1));
    let is_number = |v: &Type| number_kind(v).is_some();
    if !is_number(x) {
        return None;
    }
    if let Some(r) = eval_unary(op, x) {
        return Some(r);
    }
    let y = y.filter(|v| is_number(v))?;
    if let Some(c) = comparison_of(op) {
        return Some(Ok(eval_compare(c, x, y)));
    }
    if let Some(alpha) = args
        .get(2)
        .filter(|v| matches!(op, OpId::Add | OpId::Sub) && v.as_f64() != Some(1.0))
    {
        let scaled = eval_arithmetic(Binary::Mul, y, alpha, Dim::mul);
        return Some(scaled.and_then(|y| eval_op(op, &[x.clone(), y]).unwrap_or(Ok(Val::Unknown))));
    }
    eval_binary(op, x, y, args.get(2).and_then(Val::as_str))
}

/// The result of a binary operator. `rounding` is the rounding mode of a division.
fn eval_binary(op: OpId, x: &Type, y: &Type, rounding: Option<&str>) -> Option<OpResult<Type>> {
    Some(match op {
        OpId::Add => eval_arithmetic(Binary::Add, x, y, Dim::add),
        OpId::Sub => eval_arithmetic(Binary::Sub, x, y, Dim::sub),
        OpId::Mul => eval_arithmetic(Binary::Mul, x, y, Dim::mul),
        OpId::Div => match rounding {
            Some("floor") => eval_division(Binary::FloorDiv, x, y, Dim::floordiv),
            Some("trunc") => eval_division(Binary::TruncDiv, x, y, div_trunc),
            _ => true_division(x, y),
        },
        OpId::FloorDivide => eval_division(Binary::FloorDiv, x, y, Dim::floordiv),
        OpId::Remainder => eval_division(Binary::Mod, x, y, Dim::modulo),
        OpId::Pow => eval_power(x, y),
        OpId::BitwiseAnd => eval_bitwise(x, y, |a, b| Some(a & b)),
        OpId::BitwiseOr => eval_bitwise(x, y, |a, b| Some(a | b)),
        OpId::BitwiseXor => eval_bitwise(x, y, |a, b| Some(a ^ b)),
        OpId::BitwiseLeftShift => eval_bitwise(x, y, |a, b| {
            let n = u32::try_from(b).ok().filter(|n| *n < 63)?;
            a.checked_mul(1 << n)
        }),
        OpId::BitwiseRightShift => eval_bitwise(x, y, |a, b| Some(a >> b.clamp(0, 63))),
        _ => return None,
    })
}

fn number_kind(v: &Val<TensorType>) -> Option<ScalarKind> {
    match v {
        Val::Bool(_) => Some(ScalarKind::Bool),
        Val::Int(_) => Some(ScalarKind::Int),
        Val::Float(_) => Some(ScalarKind::Float),
        Val::Any(k @ (ScalarKind::Bool | ScalarKind::Int | ScalarKind::Float)) => Some(*k),
        _ => None,
    }
}

/// The integer (bools count as 0 and 1), which may be unknown; `None` for a float.
fn as_dim(v: &Type) -> Option<Dim> {
    match v {
        Val::Int(d) => Some(d.clone()),
        Val::Bool(b) => Some(Dim::Const(*b as i64)),
        Val::Any(ScalarKind::Int | ScalarKind::Bool) => Some(Dim::Unknown),
        _ => None,
    }
}

fn int_type(d: Dim) -> Type {
    match d {
        Dim::Unknown => Val::Any(ScalarKind::Int),
        d => Val::Int(d),
    }
}

fn eval_unary(op: OpId, x: &Type) -> Option<OpResult<Type>> {
    let out = match (op, x) {
        (OpId::Neg, Val::Float(f)) => Val::Float(-f),
        (OpId::Abs, Val::Float(f)) => Val::Float(f.abs()),
        (OpId::Neg | OpId::Positive | OpId::Abs | OpId::BitwiseNot, Val::Any(ScalarKind::Bool)) => {
            Val::Any(ScalarKind::Int)
        }
        (OpId::Neg | OpId::Positive | OpId::Abs, Val::Any(k)) => Val::Any(*k),
        (OpId::Positive, Val::Float(_)) => x.clone(),
        (OpId::BitwiseNot, Val::Float(_) | Val::Any(ScalarKind::Float)) => {
            return Some(Err(OpError::dtype("bad operand type for unary ~: 'float'")));
        }
        (OpId::Neg, _) => int_type(as_dim(x)?.neg()),
        (OpId::Positive, _) => int_type(as_dim(x)?),
        (OpId::Abs, _) => int_type(
            as_dim(x)?
                .as_const()
                .and_then(i64::checked_abs)
                .map_or(Dim::Unknown, Dim::Const),
        ),
        (OpId::BitwiseNot, _) => int_type(Dim::Const(-1).sub(&as_dim(x)?)),
        (OpId::LogicalNot, _) => match truth_value(x) {
            Some(b) => Val::Bool(!b),
            None => Val::Any(ScalarKind::Bool),
        },
        _ => return None,
    };
    Some(Ok(out))
}

fn truth_value(v: &Type) -> Option<bool> {
    match v {
        Val::Float(f) => Some(*f != 0.0),
        v => as_dim(v)?.as_const().map(|c| c != 0),
    }
}

fn eval_arithmetic(op: Binary, x: &Type, y: &Type, on_ints: fn(&Dim, &Dim) -> Dim) -> OpResult<Type> {
    if let (Some(a), Some(b)) = (as_dim(x), as_dim(y)) {
        return Ok(int_type(on_ints(&a, &b)));
    }
    Ok(match (x.as_f64(), y.as_f64(), f64_binary(op)) {
        (Some(a), Some(b), Some(f)) => Val::Float(f(a, b)),
        _ => Val::Any(ScalarKind::Float),
    })
}

fn eval_division(op: Binary, x: &Type, y: &Type, on_ints: fn(&Dim, &Dim) -> Dim) -> OpResult<Type> {
    if y.as_f64() == Some(0.0) {
        return Err(OpError::value("ZeroDivisionError: division by zero"));
    }
    eval_arithmetic(op, x, y, on_ints)
}

/// Division of sizes rounded towards zero, if they are known.
fn div_trunc(a: &Dim, b: &Dim) -> Dim {
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
        _ => Val::Any(ScalarKind::Float),
    })
}

/// Powers with larger exponents are left to run time.
const MAX_SYMBOLIC_POWER: i64 = 16;

fn eval_power(x: &Type, y: &Type) -> OpResult<Type> {
    match (as_dim(x), y.as_int()) {
        (Some(Dim::Const(a)), Some(n)) if n >= 0 => {
            let p = u32::try_from(n).ok().and_then(|n| a.checked_pow(n));
            Ok(int_type(p.map_or(Dim::Unknown, Dim::Const)))
        }
        (Some(a), Some(n)) if (0..=MAX_SYMBOLIC_POWER).contains(&n) => {
            Ok(int_type((0..n).fold(Dim::Const(1), |p, _| p.mul(&a))))
        }
        _ => match (x.as_f64(), y.as_f64()) {
            (Some(0.0), Some(b)) if b < 0.0 => Err(OpError::value(
                "ZeroDivisionError: 0.0 cannot be raised to a negative power",
            )),
            (Some(a), Some(b)) if a < 0.0 && b.fract() != 0.0 => {
                Err(OpError::dtype("a fractional power of a negative number is complex"))
            }
            (Some(a), Some(b)) => Ok(Val::Float(a.powf(b))),
            _ if as_dim(x).is_some() && as_dim(y).is_some() => Ok(Val::Any(ScalarKind::Int)),
            _ => Ok(Val::Any(ScalarKind::Float)),
        },
    }
}

fn eval_bitwise(x: &Type, y: &Type, f: fn(i64, i64) -> Option<i64>) -> OpResult<Type> {
    let (Some(a), Some(b)) = (as_dim(x), as_dim(y)) else {
        return Err(OpError::dtype("unsupported operand types: bitwise operators take ints"));
    };
    let bools = number_kind(x) == Some(ScalarKind::Bool) && number_kind(y) == Some(ScalarKind::Bool);
    Ok(match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => match f(a, b) {
            Some(r) if bools => Val::Bool(r != 0),
            r => int_type(r.map_or(Dim::Unknown, Dim::Const)),
        },
        _ => Val::Any(if bools { ScalarKind::Bool } else { ScalarKind::Int }),
    })
}

fn comparison_of(op: OpId) -> Option<Compare> {
    Some(match op {
        OpId::Eq => Compare::Eq,
        OpId::Ne => Compare::Ne,
        OpId::Lt => Compare::Lt,
        OpId::Le => Compare::Le,
        OpId::Gt => Compare::Gt,
        OpId::Ge => Compare::Ge,
        _ => return None,
    })
}

/// Also decides comparisons of symbolic sizes that differ by a constant.
fn eval_compare(op: Compare, x: &Type, y: &Type) -> Type {
    let order: Option<Option<Ordering>> = match (as_dim(x), as_dim(y)) {
        (Some(a), Some(b)) => a.sub(&b).as_const().map(|d| Some(d.cmp(&0))),
        _ => x.as_f64().zip(y.as_f64()).map(|(a, b)| a.partial_cmp(&b)),
    };
    let Some(order) = order else {
        return Val::Any(ScalarKind::Bool);
    };
    Val::Bool(op.holds(order))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(op: OpId, x: Type, y: Type) -> Type {
        eval_op(op, &[x, y]).expect("an operator").expect("a value")
    }

    #[test]
    fn computes_as_python_does() {
        let n = || Val::Int(Dim::var("N"));
        assert_eq!(run(OpId::Add, Val::int(2), Val::Float(0.5)), Val::Float(2.5));
        assert_eq!(run(OpId::FloorDivide, Val::int(-7), Val::int(2)), Val::int(-4));
        assert_eq!(
            run(OpId::FloorDivide, Val::Float(1.0), Val::Float(0.1)),
            Val::Float(9.0)
        );
        assert_eq!(run(OpId::Remainder, Val::int(-7), Val::int(3)), Val::int(2));
        assert_eq!(run(OpId::Div, Val::int(6), Val::int(4)), Val::Float(1.5));
        let mode = |m: &str| eval_op(OpId::Div, &[Val::int(-7), Val::int(2), Val::str(m)]);
        assert_eq!(
            (mode("floor"), mode("trunc")),
            (Some(Ok(Val::int(-4))), Some(Ok(Val::int(-3))))
        );
        assert_eq!(
            eval_op(OpId::Add, &[Val::int(1), Val::int(2), Val::int(3)]),
            Some(Ok(Val::int(7)))
        );
        assert_eq!(run(OpId::Pow, Val::int(2), Val::int(-1)), Val::Float(0.5));
        assert_eq!(run(OpId::Pow, n(), Val::int(2)).to_string(), "int");
        assert_eq!(
            run(OpId::Mul, n(), Val::int(2)),
            Val::Int(Dim::var("N").mul(&Dim::Const(2)))
        );
        assert_eq!(run(OpId::Eq, n(), n()), Val::Bool(true));
        assert_eq!(run(OpId::Eq, n(), Val::int(4)), Val::Any(ScalarKind::Bool));
        assert_eq!(run(OpId::Lt, n(), run(OpId::Add, n(), Val::int(1))), Val::Bool(true));
        assert_eq!(
            run(OpId::BitwiseAnd, Val::Bool(true), Val::Bool(false)),
            Val::Bool(false)
        );
        assert!(eval_op(OpId::FloorDivide, &[Val::int(1), Val::int(0)]).is_some_and(|r| r.is_err()));
        assert!(eval_op(OpId::Gelu, &[Val::int(1)]).is_none());
    }
}
