//! Constant folding of numbers that do not have a dtype yet.

use super::UntypedNumber;
use crate::scalar::math::{f64_binary, f64_unary};
use crate::scalar::{Binary, Compare, Unary};

pub(super) fn fold_unary(op: Unary, n: UntypedNumber) -> Option<UntypedNumber> {
    match (op, n) {
        (Unary::Neg, UntypedNumber::Int(i)) => Some(UntypedNumber::Int(i.checked_neg()?)),
        (Unary::Abs, UntypedNumber::Int(i)) => Some(UntypedNumber::Int(i.checked_abs()?)),
        (Unary::BitNot, UntypedNumber::Int(i)) => Some(UntypedNumber::Int(!i)),
        (Unary::BitNot, UntypedNumber::Bool(b)) => Some(UntypedNumber::Bool(!b)),
        (Unary::IsNan, n) => Some(UntypedNumber::Bool(n.to_f64().is_nan())),
        (Unary::IsInf, n) => Some(UntypedNumber::Bool(n.to_f64().is_infinite())),
        (Unary::SignBit, n) => Some(UntypedNumber::Bool(n.to_f64().is_sign_negative())),
        _ => f64_unary(op).map(|f| UntypedNumber::Float(f(n.to_f64()))),
    }
}

pub(super) fn fold_binary(op: Binary, a: UntypedNumber, b: UntypedNumber) -> Option<UntypedNumber> {
    use UntypedNumber::*;
    let exact = match (a, b) {
        (Bool(a), Bool(b)) => match op {
            Binary::And => Some(Bool(a && b)),
            Binary::Or => Some(Bool(a || b)),
            Binary::Xor => Some(Bool(a != b)),
            _ => None,
        },
        (Int(a), Int(b)) => fold_ints(op, a, b).map(Int),
        _ => None,
    };
    exact.or_else(|| f64_binary(op).map(|f| Float(f(a.to_f64(), b.to_f64()))))
}

/// Integer arithmetic that is exact and does not overflow. All other arithmetic is done in f64.
fn fold_ints(op: Binary, a: i64, b: i64) -> Option<i64> {
    match op {
        Binary::Add => a.checked_add(b),
        Binary::Sub => a.checked_sub(b),
        Binary::Mul => a.checked_mul(b),
        Binary::FloorDiv if b > 0 => Some(a.div_euclid(b)),
        Binary::Mod if b > 0 => Some(a.rem_euclid(b)),
        Binary::Pow => a.checked_pow(u32::try_from(b).ok()?),
        Binary::Max => Some(a.max(b)),
        Binary::Min => Some(a.min(b)),
        Binary::And => Some(a & b),
        Binary::Or => Some(a | b),
        Binary::Xor => Some(a ^ b),
        Binary::Shl if (0..63).contains(&b) => a.checked_mul(1 << b),
        Binary::Shr if (0..63).contains(&b) => Some(a >> b),
        _ => None,
    }
}

pub(super) fn fold_compare(op: Compare, a: UntypedNumber, b: UntypedNumber) -> bool {
    let order = match (a, b) {
        (UntypedNumber::Int(a), UntypedNumber::Int(b)) => Some(a.cmp(&b)),
        _ => a.to_f64().partial_cmp(&b.to_f64()),
    };
    op.holds(order)
}
