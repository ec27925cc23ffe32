//! Scalar operations on single elements, for the kernel interpreter.

use crate::scalar::functions::{self, wrap_int};
use crate::scalar::{Binary, Compare, EvalError, ScalarOp, Unary, lower_case};
use crate::tensor::Scalar;

/// The value of an operation on scalars.
pub(super) fn apply(op: ScalarOp<Scalar>) -> Result<Scalar, EvalError> {
    match op {
        ScalarOp::Const(s) => Ok(s),
        ScalarOp::Unary(op, x) => eval_unary(op, x),
        ScalarOp::Binary(op, x, y) => eval_binary(op, x, y),
        ScalarOp::Compare(op, x, y) => Ok(Scalar::Bool(eval_compare(op, x, y))),
        ScalarOp::Fma(x, y, z) => eval_fma(x, y, z),
        ScalarOp::Select(c, x, y) => Ok(if c.to_bool() { x } else { y }),
        ScalarOp::Cast(d, x) => Ok(x.cast(d)),
    }
}

/// `op(x)`. Sixteen-bit floats compute in f32 and round.
pub(super) fn eval_unary(op: Unary, x: Scalar) -> Result<Scalar, EvalError> {
    let none = || EvalError::Undefined(lower_case(op), x.dtype());
    match op {
        Unary::IsNan => return Ok(Scalar::Bool(x.to_f64().is_nan())),
        Unary::IsInf => return Ok(Scalar::Bool(x.to_f64().is_infinite())),
        Unary::SignBit => return Ok(Scalar::Bool(sign_bit(x))),
        Unary::Not => return Ok(Scalar::Bool(!x.to_bool())),
        _ => {}
    }
    Ok(match x {
        Scalar::F64(v) => Scalar::F64(functions::of_f64(op).ok_or_else(none)?(v)),
        Scalar::F32(v) => Scalar::F32(functions::of_f32(op).ok_or_else(none)?(v)),
        Scalar::Half(d, v) => Scalar::F32(functions::of_f32(op).ok_or_else(none)?(v)).cast(d),
        Scalar::Bool(v) => Scalar::Bool(functions::of_bool(op).ok_or_else(none)?(v)),
        Scalar::Int(d, v) => Scalar::Int(d, wrap_int(d, functions::of_int(op).ok_or_else(none)?(v))),
    })
}

fn sign_bit(x: Scalar) -> bool {
    match x {
        Scalar::F64(v) => v.is_sign_negative(),
        Scalar::F32(v) | Scalar::Half(_, v) => v.is_sign_negative(),
        Scalar::Int(_, v) => v < 0,
        Scalar::Bool(_) => false,
    }
}

/// `op(a, b)`. Both operands have the same dtype, which is also the result's.
pub(super) fn eval_binary(op: Binary, a: Scalar, b: Scalar) -> Result<Scalar, EvalError> {
    let none = || EvalError::Undefined(lower_case(op), a.dtype());
    Ok(match (a, b) {
        (Scalar::F64(x), Scalar::F64(y)) => Scalar::F64(functions::of_two_f64(op).ok_or_else(none)?(x, y)),
        (Scalar::F32(x), Scalar::F32(y)) => Scalar::F32(functions::of_two_f32(op).ok_or_else(none)?(x, y)),
        (Scalar::Half(d, x), Scalar::Half(_, y)) => {
            Scalar::F32(functions::of_two_f32(op).ok_or_else(none)?(x, y)).cast(d)
        }
        (Scalar::Bool(x), Scalar::Bool(y)) => Scalar::Bool(functions::of_two_bools(op).ok_or_else(none)?(x, y)),
        (Scalar::Int(d, x), Scalar::Int(e, y)) if d == e => {
            if functions::needs_nonzero_divisor(op) && y == 0 {
                return Err(EvalError::ZeroDivision);
            }
            let f = functions::of_two_ints(op).ok_or_else(none)?;
            Scalar::Int(d, wrap_int(d, f(x, y, 8 * d.size() as i64)))
        }
        _ => panic!("operands of {op:?} of different dtypes"),
    })
}

/// `a op b`. Both operands have the same dtype.
pub(super) fn eval_compare(op: Compare, a: Scalar, b: Scalar) -> bool {
    let order = match (a, b) {
        (Scalar::Int(_, x), Scalar::Int(_, y)) => Some(x.cmp(&y)),
        _ => a.to_f64().partial_cmp(&b.to_f64()),
    };
    op.holds(order)
}

/// `a * b + c`, rounded once; integers wrap.
pub(super) fn eval_fma(a: Scalar, b: Scalar, c: Scalar) -> Result<Scalar, EvalError> {
    match (a, b, c) {
        (Scalar::F64(a), Scalar::F64(b), Scalar::F64(c)) => Ok(Scalar::F64(a.mul_add(b, c))),
        (Scalar::F32(a), Scalar::F32(b), Scalar::F32(c)) => Ok(Scalar::F32(a.mul_add(b, c))),
        _ => eval_binary(Binary::Add, eval_binary(Binary::Mul, a, b)?, c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType::{self, *};

    fn int(d: DType, x: i64) -> Scalar {
        Scalar::Int(d, x)
    }

    #[test]
    fn integers_divide_as_torch_does() {
        for (op, a, b, want) in [
            (Binary::FloorDiv, -7, 2, -4),
            (Binary::TruncDiv, -7, 2, -3),
            (Binary::Mod, -7, 3, 2),
            (Binary::Mod, 7, -3, -2),
            (Binary::Fmod, -7, 3, -1),
            (Binary::FloorDiv, i64::MIN, -1, i64::MIN),
            (Binary::Mod, i64::MIN, -1, 0),
            (Binary::Shl, 1, 64, 0),
            (Binary::Shr, -5, 70, -1),
            (Binary::Shr, 5, -1, 0),
        ] {
            assert_eq!(
                eval_binary(op, int(I64, a), int(I64, b)),
                Ok(int(I64, want)),
                "{op:?} {a} {b}"
            );
        }
        assert_eq!(
            eval_binary(Binary::Mod, int(I32, 1), int(I32, 0)),
            Err(EvalError::ZeroDivision)
        );
        assert_eq!(eval_binary(Binary::Mul, int(I8, 100), int(I8, 3)), Ok(int(I8, 44)));
        assert_eq!(eval_unary(Unary::Neg, int(U8, 1)), Ok(int(U8, 255)));
        assert!(matches!(
            eval_unary(Unary::Exp, int(I64, 1)),
            Err(EvalError::Undefined(..))
        ));
    }

    #[test]
    fn floats_divide_as_torch_does() {
        let f = Scalar::F32;
        let b = |op, x, y| match eval_binary(op, f(x), f(y)) {
            Ok(Scalar::F32(v)) => v,
            r => panic!("{r:?}"),
        };
        assert_eq!(b(Binary::FloorDiv, -7.0, 2.0), -4.0);
        assert_eq!(b(Binary::FloorDiv, 1.0, 0.1), 9.0);
        assert_eq!(b(Binary::FloorDiv, 1.0, 0.0), f32::INFINITY);
        assert_eq!(b(Binary::Mod, -1.0, 3.0), 2.0);
        assert!(b(Binary::Max, f32::NAN, 1.0).is_nan() && b(Binary::Max, 1.0, f32::NAN).is_nan());
        assert_eq!(b(Binary::Fmax, f32::NAN, 1.0), 1.0);
        assert_eq!(eval_unary(Unary::Round, f(2.5)), Ok(f(2.0)));
        assert!(!eval_compare(Compare::Le, f(f32::NAN), f(1.0)) && eval_compare(Compare::Ne, f(f32::NAN), f(1.0)));
    }
}
