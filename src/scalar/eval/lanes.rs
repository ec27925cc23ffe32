//! One node over a block of elements.

use super::{EvalError, Lane};
use crate::scalar::math::{self, f32_binary, f32_unary, f64_binary, f64_unary};
use crate::scalar::{Binary, Compare, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use half::{bf16, f16};
use std::fmt;

fn undefined<T>(op: impl fmt::Debug, dtype: DType) -> Result<T, EvalError> {
    Err(EvalError::Undefined(format!("{op:?}").to_lowercase(), dtype))
}

fn map<T: Copy, U>(x: &[T], out: &mut Vec<U>, f: impl Fn(T) -> U) {
    out.clear();
    out.extend(x.iter().map(|&v| f(v)));
}

fn map2<T: Copy, U>(x: &[T], y: &[T], out: &mut Vec<U>, f: impl Fn(T, T) -> U) {
    out.clear();
    out.extend(x.iter().zip(y).map(|(&a, &b)| f(a, b)));
}

pub(super) fn unary(op: Unary, dtype: DType, x: &Lane, out: &mut Lane) -> Result<(), EvalError> {
    match x {
        Lane::F64(x) => match op {
            Unary::IsNan => map(x, out.bool(), f64::is_nan),
            Unary::IsInf => map(x, out.bool(), f64::is_infinite),
            Unary::SignBit => map(x, out.bool(), f64::is_sign_negative),
            Unary::Neg => map(x, out.f64(), |v| -v),
            _ => match f64_unary(op) {
                Some(f) => map(x, out.f64(), f),
                None => return undefined(op, dtype),
            },
        },
        Lane::F32(x) => match op {
            Unary::IsNan => map(x, out.bool(), f32::is_nan),
            Unary::IsInf => map(x, out.bool(), f32::is_infinite),
            Unary::SignBit => map(x, out.bool(), f32::is_sign_negative),
            Unary::Neg => map(x, out.f32(), |v| -v),
            Unary::Abs => map(x, out.f32(), f32::abs),
            Unary::Recip => map(x, out.f32(), |v| 1.0 / v),
            Unary::Rsqrt => map(x, out.f32(), |v| 1.0 / v.sqrt()),
            _ => match f32_unary(op) {
                Some(f) => map(x, out.f32(), f),
                None => return undefined(op, dtype),
            },
        },
        Lane::Int(x) => match op {
            Unary::IsNan | Unary::IsInf => map(x, out.bool(), |_| false),
            Unary::SignBit => map(x, out.bool(), |v| v < 0),
            _ => {
                let f: fn(i64) -> i64 = match op {
                    Unary::Neg => i64::wrapping_neg,
                    Unary::Abs => i64::wrapping_abs,
                    Unary::Sign => i64::signum,
                    Unary::BitNot => |v| !v,
                    Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => |v| v,
                    _ => return undefined(op, dtype),
                };
                map(x, out.int(), |v| wrap(dtype, f(v)));
            }
        },
        Lane::Bool(x) => match op {
            Unary::Not | Unary::BitNot => map(x, out.bool(), |v| !v),
            Unary::IsNan | Unary::IsInf | Unary::SignBit => map(x, out.bool(), |_| false),
            Unary::Abs | Unary::Sign => map(x, out.bool(), |v| v),
            _ => return undefined(op, dtype),
        },
    }
    Ok(())
}

/// `v` wrapped to the width of the integer type `dtype`.
fn wrap(dtype: DType, v: i64) -> i64 {
    match dtype {
        DType::I32 => v as i32 as i64,
        DType::I16 => v as i16 as i64,
        DType::I8 => v as i8 as i64,
        DType::U8 => v as u8 as i64,
        _ => v,
    }
}

pub(super) fn binary(op: Binary, dtype: DType, x: &Lane, y: &Lane, out: &mut Lane) -> Result<(), EvalError> {
    match (x, y) {
        (Lane::F64(x), Lane::F64(y)) => match (op, f64_binary(op)) {
            (Binary::Add, _) => map2(x, y, out.f64(), |a, b| a + b),
            (Binary::Sub, _) => map2(x, y, out.f64(), |a, b| a - b),
            (Binary::Mul, _) => map2(x, y, out.f64(), |a, b| a * b),
            (_, Some(f)) => map2(x, y, out.f64(), f),
            _ => return undefined(op, dtype),
        },
        (Lane::F32(x), Lane::F32(y)) => match (op, f32_binary(op)) {
            (Binary::Add, _) => map2(x, y, out.f32(), |a, b| a + b),
            (Binary::Sub, _) => map2(x, y, out.f32(), |a, b| a - b),
            (Binary::Mul, _) => map2(x, y, out.f32(), |a, b| a * b),
            (Binary::Div, _) => map2(x, y, out.f32(), |a, b| a / b),
            (_, Some(f)) => map2(x, y, out.f32(), f),
            _ => return undefined(op, dtype),
        },
        (Lane::Int(x), Lane::Int(y)) => {
            let divides = matches!(op, Binary::FloorDiv | Binary::TruncDiv | Binary::Mod | Binary::Fmod);
            if divides && y.contains(&0) {
                return Err(EvalError::ZeroDivision);
            }
            let Some(f) = int_binary(op) else {
                return undefined(op, dtype);
            };
            let bits = dtype.size() as i64 * 8;
            match op {
                Binary::Shl => map2(x, y, out.int(), |a, n| wrap(dtype, shl(a, n, bits))),
                Binary::Shr => map2(x, y, out.int(), |a, n| shr(a, n, bits)),
                _ => map2(x, y, out.int(), |a, b| wrap(dtype, f(a, b))),
            }
        }
        (Lane::Bool(x), Lane::Bool(y)) => {
            use Binary::*;
            let f: fn(bool, bool) -> bool = match op {
                Add | Max | Or => |a, b| a || b,
                Mul | Min | And => |a, b| a && b,
                Xor => |a, b| a != b,
                _ => return undefined(op, dtype),
            };
            map2(x, y, out.bool(), f);
        }
        _ => panic!("operands of {op:?} of different dtypes"),
    }
    Ok(())
}

fn int_binary(op: Binary) -> Option<fn(i64, i64) -> i64> {
    Some(match op {
        Binary::Add => i64::wrapping_add,
        Binary::Sub => i64::wrapping_sub,
        Binary::Mul => i64::wrapping_mul,
        Binary::FloorDiv => |a, b| {
            let q = a.wrapping_div(b);
            q - (a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)) as i64
        },
        Binary::TruncDiv => i64::wrapping_div,
        Binary::Mod => |a, b| {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        },
        Binary::Fmod => i64::wrapping_rem,
        Binary::Pow => pow_int,
        Binary::Max | Binary::Fmax => i64::max,
        Binary::Min | Binary::Fmin => i64::min,
        Binary::And => |a, b| a & b,
        Binary::Or => |a, b| a | b,
        Binary::Xor => |a, b| a ^ b,
        Binary::Gcd => math::gcd,
        // Need the width; the caller has it.
        Binary::Shl | Binary::Shr => |a, _| a,
        Binary::Div | Binary::Atan2 | Binary::Copysign | Binary::Hypot | Binary::Nextafter | Binary::Zeta => {
            return None;
        }
    })
}

fn shl(a: i64, n: i64, bits: i64) -> i64 {
    if (0..bits).contains(&n) { a << n } else { 0 }
}

fn shr(a: i64, n: i64, bits: i64) -> i64 {
    a >> if (0..bits).contains(&n) { n } else { 63 }
}

/// torch's `powi`: wraps; a negative exponent gives 0 but for the bases 1 and -1.
fn pow_int(base: i64, exp: i64) -> i64 {
    if exp < 0 {
        return match base {
            1 => 1,
            -1 if exp % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut base, mut exp, mut out) = (base, exp, 1i64);
    while exp > 0 {
        if exp & 1 == 1 {
            out = out.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exp >>= 1;
    }
    out
}

pub(super) fn compare(op: Compare, x: &Lane, y: &Lane, out: &mut Vec<bool>) {
    fn go<T: PartialOrd + Copy>(op: Compare, x: &[T], y: &[T], out: &mut Vec<bool>) {
        match op {
            Compare::Eq => map2(x, y, out, |a, b| a == b),
            Compare::Ne => map2(x, y, out, |a, b| a != b),
            Compare::Lt => map2(x, y, out, |a, b| a < b),
            Compare::Le => map2(x, y, out, |a, b| a <= b),
            Compare::Gt => map2(x, y, out, |a, b| a > b),
            Compare::Ge => map2(x, y, out, |a, b| a >= b),
        }
    }
    match (x, y) {
        (Lane::F64(x), Lane::F64(y)) => go(op, x, y, out),
        (Lane::F32(x), Lane::F32(y)) => go(op, x, y, out),
        (Lane::Int(x), Lane::Int(y)) => go(op, x, y, out),
        (Lane::Bool(x), Lane::Bool(y)) => go(op, x, y, out),
        _ => panic!("operands of {op:?} of different dtypes"),
    }
}

pub(super) fn fma(dtype: DType, x: &Lane, y: &Lane, z: &Lane, out: &mut Lane) -> Result<(), EvalError> {
    fn go<T: Copy>(x: &[T], y: &[T], z: &[T], out: &mut Vec<T>, f: impl Fn(T, T, T) -> T) {
        out.clear();
        out.extend(x.iter().zip(y).zip(z).map(|((&a, &b), &c)| f(a, b, c)));
    }
    match (x, y, z) {
        (Lane::F64(x), Lane::F64(y), Lane::F64(z)) => go(x, y, z, out.f64(), f64::mul_add),
        (Lane::F32(x), Lane::F32(y), Lane::F32(z)) => go(x, y, z, out.f32(), f32::mul_add),
        (Lane::Int(x), Lane::Int(y), Lane::Int(z)) => go(x, y, z, out.int(), |a, b, c| {
            wrap(dtype, a.wrapping_mul(b).wrapping_add(c))
        }),
        _ => return undefined("fma", dtype),
    }
    Ok(())
}

pub(super) fn select(c: &Lane, x: &Lane, y: &Lane, out: &mut Lane) {
    fn go<T: Copy>(c: &[bool], x: &[T], y: &[T], out: &mut Vec<T>) {
        out.clear();
        out.extend(
            c.iter()
                .zip(x.iter().zip(y))
                .map(|(&c, (&a, &b))| if c { a } else { b }),
        );
    }
    let Lane::Bool(c) = c else {
        panic!("a condition that is not b8")
    };
    match (x, y) {
        (Lane::F64(x), Lane::F64(y)) => go(c, x, y, out.f64()),
        (Lane::F32(x), Lane::F32(y)) => go(c, x, y, out.f32()),
        (Lane::Int(x), Lane::Int(y)) => go(c, x, y, out.int()),
        (Lane::Bool(x), Lane::Bool(y)) => go(c, x, y, out.bool()),
        _ => panic!("alternatives of different dtypes"),
    }
}

/// The same conversions as [`Scalar::cast`].
pub(super) fn cast(to: DType, x: &Lane, out: &mut Lane) {
    match to {
        DType::F64 => match x {
            Lane::F64(x) => map(x, out.f64(), |v| v),
            Lane::F32(x) => map(x, out.f64(), |v| v as f64),
            Lane::Int(x) => map(x, out.f64(), |v| v as f64),
            Lane::Bool(x) => map(x, out.f64(), |v| v as u8 as f64),
        },
        DType::F32 => cast_f32(x, out.f32(), |v| v),
        DType::F16 => cast_f32(x, out.f32(), |v| f16::from_f32(v).to_f32()),
        DType::BF16 => cast_f32(x, out.f32(), |v| bf16::from_f32(v).to_f32()),
        DType::B8 => match x {
            Lane::F64(x) => map(x, out.bool(), |v| v != 0.0),
            Lane::F32(x) => map(x, out.bool(), |v| v != 0.0),
            Lane::Int(x) => map(x, out.bool(), |v| v != 0),
            Lane::Bool(x) => map(x, out.bool(), |v| v),
        },
        _ => match x {
            Lane::F64(x) => map(x, out.int(), |v| Scalar::F64(v).cast(to).to_i64()),
            Lane::F32(x) => map(x, out.int(), |v| Scalar::F32(v).cast(to).to_i64()),
            Lane::Int(x) => map(x, out.int(), |v| wrap(to, v)),
            Lane::Bool(x) => map(x, out.int(), |v| v as i64),
        },
    }
}

fn cast_f32(x: &Lane, out: &mut Vec<f32>, f: impl Fn(f32) -> f32) {
    match x {
        Lane::F64(x) => map(x, out, |v| f(v as f32)),
        Lane::F32(x) => map(x, out, f),
        Lane::Int(x) => map(x, out, |v| f(v as f32)),
        Lane::Bool(x) => map(x, out, |v| f(v as u8 as f32)),
    }
}
