//! Scalar operations on single elements, for the interpreter of kernels.

use crate::scalar::math::{self, f32_binary, f32_unary, f64_binary, f64_unary};
use crate::scalar::{Binary, Compare, Unary};
use crate::tensor::Scalar;
use crate::types::DType;

/// An integer division by zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DivisionByZero;

/// A float function of one f32; algebraic ones in f32, others in f64 and rounded once.
fn unary_f32(op: Unary, x: f32) -> f32 {
    match op {
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Recip => 1.0 / x,
        Unary::Sqrt => x.sqrt(),
        _ => f32_unary(op).map_or(x, |f| f(x)),
    }
}

/// A float function of one f64.
fn unary_f64(op: Unary, x: f64) -> f64 {
    f64_unary(op).map_or(x, |f| f(x))
}

/// A float function of two f32.
fn binary_f32(op: Binary, a: f32, b: f32) -> f32 {
    f32_binary(op).map_or(a, |f| f(a, b))
}

/// A float function of two f64.
fn binary_f64(op: Binary, a: f64, b: f64) -> f64 {
    f64_binary(op).map_or(a, |f| f(a, b))
}

/// `base ** exponent` of integers, wrapping; a negative exponent gives 0 unless the base is 1 or -1, as torch's `powi`.
pub fn pow_int(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut base, mut n) = (1i64, base, exponent);
    while n > 0 {
        if n & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        n >>= 1;
    }
    result
}

/// `op(x)`. Sixteen-bit floats compute in f32 and round; b8 and integers follow [`Unary`]'s definition.
pub fn unary(op: Unary, x: Scalar) -> Scalar {
    match op {
        Unary::IsNan => return Scalar::Bool(x.to_f64().is_nan()),
        Unary::IsInf => return Scalar::Bool(x.to_f64().is_infinite()),
        Unary::SignBit => return Scalar::Bool(sign_bit(x)),
        Unary::Not => return Scalar::Bool(!x.to_bool()),
        _ => {}
    }
    match x {
        Scalar::F64(v) => Scalar::F64(unary_f64(op, v)),
        Scalar::F32(v) => Scalar::F32(unary_f32(op, v)),
        Scalar::Half(d, v) => Scalar::F32(unary_f32(op, v)).cast(d),
        Scalar::Bool(v) => Scalar::Bool(if op == Unary::BitNot { !v } else { v }),
        Scalar::Int(d, v) => Scalar::from_i64(
            d,
            match op {
                Unary::Neg => v.wrapping_neg(),
                Unary::Abs => v.wrapping_abs(),
                Unary::Sign => v.signum(),
                Unary::BitNot => !v,
                Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => v,
                _ => v,
            },
        ),
    }
}

fn sign_bit(x: Scalar) -> bool {
    match x {
        Scalar::F64(v) => v.is_sign_negative(),
        Scalar::F32(v) | Scalar::Half(_, v) => v.is_sign_negative(),
        Scalar::Int(_, v) => v < 0,
        Scalar::Bool(_) => false,
    }
}

/// `op(a, b)`; both have one dtype, which is the result's.
pub fn binary(op: Binary, a: Scalar, b: Scalar) -> Result<Scalar, DivisionByZero> {
    Ok(match (a, b) {
        (Scalar::F64(x), Scalar::F64(y)) => Scalar::F64(binary_f64(op, x, y)),
        (Scalar::F32(x), Scalar::F32(y)) => Scalar::F32(binary_f32(op, x, y)),
        (Scalar::Half(d, x), Scalar::Half(_, y)) => Scalar::F32(binary_f32(op, x, y)).cast(d),
        (Scalar::Bool(x), Scalar::Bool(y)) => Scalar::Bool(binary_bool(op, x, y)),
        _ => {
            let d = a.dtype();
            assert_eq!(d, b.dtype(), "operands of {op:?}");
            Scalar::from_i64(d, binary_int(op, d, a.to_i64(), b.to_i64())?)
        }
    })
}

fn binary_bool(op: Binary, x: bool, y: bool) -> bool {
    match op {
        Binary::Mul | Binary::Min | Binary::Fmin | Binary::And => x & y,
        Binary::Xor => x ^ y,
        // 0 ** 0 is 1.
        Binary::Pow => x | !y,
        _ => x | y,
    }
}

fn binary_int(op: Binary, d: DType, x: i64, y: i64) -> Result<i64, DivisionByZero> {
    let divides = matches!(
        op,
        Binary::Div | Binary::FloorDiv | Binary::TruncDiv | Binary::Mod | Binary::Fmod
    );
    if divides && y == 0 {
        return Err(DivisionByZero);
    }
    let in_width = (0..8 * d.size() as i64).contains(&y);
    Ok(match op {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        Binary::Div | Binary::TruncDiv => x.wrapping_div(y),
        Binary::FloorDiv => {
            let q = x.wrapping_div(y);
            q - (x.wrapping_rem(y) != 0 && (x < 0) != (y < 0)) as i64
        }
        Binary::Fmod => x.wrapping_rem(y),
        Binary::Mod => {
            let r = x.wrapping_rem(y);
            if r != 0 && (r < 0) != (y < 0) { r + y } else { r }
        }
        Binary::Pow => pow_int(x, y),
        Binary::Max | Binary::Fmax => x.max(y),
        Binary::Min | Binary::Fmin => x.min(y),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::Shl if in_width => x << y,
        Binary::Shl => 0,
        Binary::Shr if in_width => x >> y,
        Binary::Shr => x >> 63,
        Binary::Gcd => math::gcd(x, y),
        // Not operations of integers: the verifier rejects them.
        Binary::Atan2 | Binary::Copysign | Binary::Hypot | Binary::Nextafter | Binary::Zeta => x,
    })
}

/// `a op b`; both have one dtype.
pub fn compare(op: Compare, a: Scalar, b: Scalar) -> bool {
    use std::cmp::Ordering::*;
    let order = match (a, b) {
        (Scalar::Int(_, x), Scalar::Int(_, y)) => Some(x.cmp(&y)),
        _ => a.to_f64().partial_cmp(&b.to_f64()),
    };
    match op {
        Compare::Eq => order == Some(Equal),
        Compare::Ne => order != Some(Equal),
        Compare::Lt => order == Some(Less),
        Compare::Le => matches!(order, Some(Less | Equal)),
        Compare::Gt => order == Some(Greater),
        Compare::Ge => matches!(order, Some(Greater | Equal)),
    }
}

/// `a * b + c`, rounded once; integers wrap.
pub fn fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar {
    match (a, b, c) {
        (Scalar::F64(a), Scalar::F64(b), Scalar::F64(c)) => Scalar::F64(a.mul_add(b, c)),
        (Scalar::F32(a), Scalar::F32(b), Scalar::F32(c)) => Scalar::F32(a.mul_add(b, c)),
        _ => {
            let product = binary(Binary::Mul, a, b).expect("a product divides nothing");
            binary(Binary::Add, product, c).expect("a sum divides nothing")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType::*;

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
                binary(op, int(I64, a), int(I64, b)),
                Ok(int(I64, want)),
                "{op:?} {a} {b}"
            );
        }
        assert_eq!(binary(Binary::Mod, int(I32, 1), int(I32, 0)), Err(DivisionByZero));
        assert_eq!(binary(Binary::Mul, int(I8, 100), int(I8, 3)), Ok(int(I8, 44)));
        assert_eq!(unary(Unary::Neg, int(U8, 1)), int(U8, 255));
    }

    #[test]
    fn floats_divide_as_torch_does() {
        let f = Scalar::F32;
        let b = |op, x, y| match binary(op, f(x), f(y)) {
            Ok(Scalar::F32(v)) => v,
            r => panic!("{r:?}"),
        };
        assert_eq!(b(Binary::FloorDiv, -7.0, 2.0), -4.0);
        assert_eq!(b(Binary::FloorDiv, 1.0, 0.1), 9.0);
        assert_eq!(b(Binary::FloorDiv, 1.0, 0.0), f32::INFINITY);
        assert_eq!(b(Binary::Mod, -1.0, 3.0), 2.0);
        assert!(b(Binary::Max, f32::NAN, 1.0).is_nan() && b(Binary::Max, 1.0, f32::NAN).is_nan());
        assert_eq!(b(Binary::Fmax, f32::NAN, 1.0), 1.0);
        assert_eq!(unary(Unary::Round, f(2.5)), f(2.0));
        assert!(!compare(Compare::Le, f(f32::NAN), f(1.0)) && compare(Compare::Ne, f(f32::NAN), f(1.0)));
    }
}
