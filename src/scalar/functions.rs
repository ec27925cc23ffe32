//! The single definition of what each scalar operation computes on each kind of element. The evaluator of expressions
//! applies these functions to blocks, the kernel interpreter to single elements.

use super::math::{self, f32_unary};
use super::{Binary, Unary};
use crate::types::DType;

/// A function of one f32. Algebraic functions compute in f32, the others in f64 with one rounding.
pub(crate) fn of_f32(op: Unary) -> Option<fn(f32) -> f32> {
    Some(match op {
        Unary::Neg => |v| -v,
        Unary::Abs => f32::abs,
        Unary::Recip => |v| 1.0 / v,
        Unary::Rsqrt => |v| 1.0 / v.sqrt(),
        _ => return f32_unary(op),
    })
}

/// A function of one f64.
pub(crate) fn of_f64(op: Unary) -> Option<fn(f64) -> f64> {
    match op {
        Unary::Neg => Some(|v| -v),
        _ => math::f64_unary(op),
    }
}

/// A function of two f32.
pub(crate) fn of_two_f32(op: Binary) -> Option<fn(f32, f32) -> f32> {
    Some(match op {
        Binary::Add => |a, b| a + b,
        Binary::Sub => |a, b| a - b,
        Binary::Mul => |a, b| a * b,
        Binary::Div => |a, b| a / b,
        _ => return math::f32_binary(op),
    })
}

/// A function of two f64.
pub(crate) fn of_two_f64(op: Binary) -> Option<fn(f64, f64) -> f64> {
    Some(match op {
        Binary::Add => |a, b| a + b,
        Binary::Sub => |a, b| a - b,
        Binary::Mul => |a, b| a * b,
        _ => return math::f64_binary(op),
    })
}

/// A function of one integer, before wrapping to its width.
pub(crate) fn of_int(op: Unary) -> Option<fn(i64) -> i64> {
    Some(match op {
        Unary::Neg => i64::wrapping_neg,
        Unary::Abs => i64::wrapping_abs,
        Unary::Sign => i64::signum,
        Unary::BitNot => |v| !v,
        Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => |v| v,
        _ => return None,
    })
}

/// Whether an integer operation is an error if the second operand is 0.
pub(crate) fn needs_nonzero_divisor(op: Binary) -> bool {
    matches!(op, Binary::FloorDiv | Binary::TruncDiv | Binary::Mod | Binary::Fmod)
}

/// A function of two integers, before wrapping to their width, which is the third argument, in bits.
pub(crate) fn of_two_ints(op: Binary) -> Option<fn(i64, i64, i64) -> i64> {
    Some(match op {
        Binary::Add => |a, b, _| a.wrapping_add(b),
        Binary::Sub => |a, b, _| a.wrapping_sub(b),
        Binary::Mul => |a, b, _| a.wrapping_mul(b),
        Binary::FloorDiv => |a, b, _| {
            let q = a.wrapping_div(b);
            q - (a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)) as i64
        },
        Binary::TruncDiv => |a, b, _| a.wrapping_div(b),
        Binary::Mod => |a, b, _| {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        },
        Binary::Fmod => |a, b, _| a.wrapping_rem(b),
        Binary::Pow => |a, b, _| pow_int(a, b),
        Binary::Max | Binary::Fmax => |a, b, _| a.max(b),
        Binary::Min | Binary::Fmin => |a, b, _| a.min(b),
        Binary::And => |a, b, _| a & b,
        Binary::Or => |a, b, _| a | b,
        Binary::Xor => |a, b, _| a ^ b,
        Binary::Gcd => |a, b, _| math::gcd(a, b),
        Binary::Shl => |a, n, bits| if (0..bits).contains(&n) { a << n } else { 0 },
        Binary::Shr => |a, n, bits| a >> if (0..bits).contains(&n) { n } else { 63 },
        Binary::Div | Binary::Atan2 | Binary::Copysign | Binary::Hypot | Binary::Nextafter | Binary::Zeta => {
            return None;
        }
    })
}

/// A function of one bool.
pub(crate) fn of_bool(op: Unary) -> Option<fn(bool) -> bool> {
    Some(match op {
        Unary::Not | Unary::BitNot => |v: bool| !v,
        Unary::Abs | Unary::Sign => |v| v,
        _ => return None,
    })
}

/// A function of two bools.
pub(crate) fn of_two_bools(op: Binary) -> Option<fn(bool, bool) -> bool> {
    use Binary::*;
    Some(match op {
        Add | Max | Fmax | Or => |a, b| a | b,
        Mul | Min | Fmin | And => |a, b| a & b,
        Xor => |a, b| a ^ b,
        // False ** False is True.
        Pow => |a, b| a | !b,
        _ => return None,
    })
}

/// `v` wrapped to the width of the integer type `dtype`.
pub(crate) fn wrap_int(dtype: DType, v: i64) -> i64 {
    match dtype {
        DType::I32 => v as i32 as i64,
        DType::I16 => v as i16 as i64,
        DType::I8 => v as i8 as i64,
        DType::U8 => v as u8 as i64,
        _ => v,
    }
}

/// torch's `powi`. It wraps. A negative exponent gives 0, except for the bases 1 and -1.
pub(crate) fn pow_int(base: i64, exponent: i64) -> i64 {
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
