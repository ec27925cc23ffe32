//! Evaluates one node over a block of elements.

use super::{EvalError, Lane};
use crate::scalar::functions::{self, wrap_int};
use crate::scalar::{Binary, Compare, Unary, lower_case};
use crate::tensor::{Scalar, round_to_bf16, round_to_f16, widen_f16};
use crate::types::DType;

fn map_into<T: Copy, U>(x: &[T], out: &mut Vec<U>, f: impl Fn(T) -> U) {
    out.clear();
    out.extend(x.iter().map(|&v| f(v)));
}

fn zip_map_into<T: Copy, U>(x: &[T], y: &[T], out: &mut Vec<U>, f: impl Fn(T, T) -> U) {
    out.clear();
    out.extend(x.iter().zip(y).map(|(&a, &b)| f(a, b)));
}

pub(super) fn eval_unary(op: Unary, dtype: DType, x: &Lane, out: &mut Lane) -> Result<(), EvalError> {
    let none = || EvalError::Undefined(lower_case(op), dtype);
    match (op, x) {
        (Unary::IsNan, Lane::F64(x)) => map_into(x, out.bool_mut(), f64::is_nan),
        (Unary::IsInf, Lane::F64(x)) => map_into(x, out.bool_mut(), f64::is_infinite),
        (Unary::SignBit, Lane::F64(x)) => map_into(x, out.bool_mut(), f64::is_sign_negative),
        (Unary::IsNan, Lane::F32(x)) => map_into(x, out.bool_mut(), f32::is_nan),
        (Unary::IsInf, Lane::F32(x)) => map_into(x, out.bool_mut(), f32::is_infinite),
        (Unary::SignBit, Lane::F32(x)) => map_into(x, out.bool_mut(), f32::is_sign_negative),
        (Unary::SignBit, Lane::Int(x)) => map_into(x, out.bool_mut(), |v| v < 0),
        (Unary::IsNan | Unary::IsInf, Lane::Int(x)) => map_into(x, out.bool_mut(), |_| false),
        (Unary::IsNan | Unary::IsInf | Unary::SignBit, Lane::Bool(x)) => map_into(x, out.bool_mut(), |_| false),
        (_, Lane::F64(x)) => map_into(x, out.f64_mut(), functions::of_f64(op).ok_or_else(none)?),
        (_, Lane::F32(x)) => map_into(x, out.f32_mut(), functions::of_f32(op).ok_or_else(none)?),
        (_, Lane::Int(x)) => {
            let f = functions::of_int(op).ok_or_else(none)?;
            map_into(x, out.int_mut(), |v| wrap_int(dtype, f(v)));
        }
        (_, Lane::Bool(x)) => map_into(x, out.bool_mut(), functions::of_bool(op).ok_or_else(none)?),
    }
    Ok(())
}

pub(super) fn eval_binary(op: Binary, dtype: DType, x: &Lane, y: &Lane, out: &mut Lane) -> Result<(), EvalError> {
    let none = || EvalError::Undefined(lower_case(op), dtype);
    match (op, x, y) {
        // The most common operations have loops of their own, which the compiler can vectorise.
        (Binary::Add, Lane::F32(x), Lane::F32(y)) => zip_map_into(x, y, out.f32_mut(), |a, b| a + b),
        (Binary::Sub, Lane::F32(x), Lane::F32(y)) => zip_map_into(x, y, out.f32_mut(), |a, b| a - b),
        (Binary::Mul, Lane::F32(x), Lane::F32(y)) => zip_map_into(x, y, out.f32_mut(), |a, b| a * b),
        (_, Lane::F64(x), Lane::F64(y)) => {
            zip_map_into(x, y, out.f64_mut(), functions::of_two_f64(op).ok_or_else(none)?)
        }
        (_, Lane::F32(x), Lane::F32(y)) => {
            zip_map_into(x, y, out.f32_mut(), functions::of_two_f32(op).ok_or_else(none)?)
        }
        (_, Lane::Bool(x), Lane::Bool(y)) => {
            zip_map_into(x, y, out.bool_mut(), functions::of_two_bools(op).ok_or_else(none)?)
        }
        (_, Lane::Int(x), Lane::Int(y)) => {
            if functions::needs_nonzero_divisor(op) && y.contains(&0) {
                return Err(EvalError::ZeroDivision);
            }
            let f = functions::of_two_ints(op).ok_or_else(none)?;
            let bits = dtype.size() as i64 * 8;
            zip_map_into(x, y, out.int_mut(), |a, b| wrap_int(dtype, f(a, b, bits)));
        }
        _ => panic!("operands of {op:?} of different dtypes"),
    }
    Ok(())
}

pub(super) fn eval_compare(op: Compare, x: &Lane, y: &Lane, out: &mut Vec<bool>) {
    fn compare_elements<T: PartialOrd + Copy>(op: Compare, x: &[T], y: &[T], out: &mut Vec<bool>) {
        match op {
            Compare::Eq => zip_map_into(x, y, out, |a, b| a == b),
            Compare::Ne => zip_map_into(x, y, out, |a, b| a != b),
            Compare::Lt => zip_map_into(x, y, out, |a, b| a < b),
            Compare::Le => zip_map_into(x, y, out, |a, b| a <= b),
            Compare::Gt => zip_map_into(x, y, out, |a, b| a > b),
            Compare::Ge => zip_map_into(x, y, out, |a, b| a >= b),
        }
    }
    match (x, y) {
        (Lane::F64(x), Lane::F64(y)) => compare_elements(op, x, y, out),
        (Lane::F32(x), Lane::F32(y)) => compare_elements(op, x, y, out),
        (Lane::Int(x), Lane::Int(y)) => compare_elements(op, x, y, out),
        (Lane::Bool(x), Lane::Bool(y)) => compare_elements(op, x, y, out),
        _ => panic!("operands of {op:?} of different dtypes"),
    }
}

pub(super) fn eval_fma(dtype: DType, x: &Lane, y: &Lane, z: &Lane, out: &mut Lane) -> Result<(), EvalError> {
    fn fma_elements<T: Copy>(x: &[T], y: &[T], z: &[T], out: &mut Vec<T>, f: impl Fn(T, T, T) -> T) {
        out.clear();
        out.extend(x.iter().zip(y).zip(z).map(|((&a, &b), &c)| f(a, b, c)));
    }
    match (x, y, z) {
        (Lane::F64(x), Lane::F64(y), Lane::F64(z)) => fma_elements(x, y, z, out.f64_mut(), f64::mul_add),
        (Lane::F32(x), Lane::F32(y), Lane::F32(z)) => fma_elements(x, y, z, out.f32_mut(), f32::mul_add),
        (Lane::Int(x), Lane::Int(y), Lane::Int(z)) => fma_elements(x, y, z, out.int_mut(), |a, b, c| {
            wrap_int(dtype, a.wrapping_mul(b).wrapping_add(c))
        }),
        _ => return Err(EvalError::Undefined("fma".into(), dtype)),
    }
    Ok(())
}

pub(super) fn eval_select(c: &Lane, x: &Lane, y: &Lane, out: &mut Lane) {
    fn select_elements<T: Copy>(c: &[bool], x: &[T], y: &[T], out: &mut Vec<T>) {
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
        (Lane::F64(x), Lane::F64(y)) => select_elements(c, x, y, out.f64_mut()),
        (Lane::F32(x), Lane::F32(y)) => select_elements(c, x, y, out.f32_mut()),
        (Lane::Int(x), Lane::Int(y)) => select_elements(c, x, y, out.int_mut()),
        (Lane::Bool(x), Lane::Bool(y)) => select_elements(c, x, y, out.bool_mut()),
        _ => panic!("alternatives of different dtypes"),
    }
}

/// The same conversions as [`Scalar::cast`].
pub(super) fn eval_cast(to: DType, x: &Lane, out: &mut Lane) {
    match to {
        DType::F64 => match x {
            Lane::F64(x) => map_into(x, out.f64_mut(), |v| v),
            Lane::F32(x) => map_into(x, out.f64_mut(), |v| v as f64),
            Lane::Int(x) => map_into(x, out.f64_mut(), |v| v as f64),
            Lane::Bool(x) => map_into(x, out.f64_mut(), |v| v as u8 as f64),
        },
        DType::F32 => cast_f32(x, out.f32_mut(), |v| v),
        DType::F16 => cast_f32(x, out.f32_mut(), |v| widen_f16(round_to_f16(v))),
        DType::BF16 => cast_f32(x, out.f32_mut(), |v| round_to_bf16(v).to_f32()),
        DType::B8 => match x {
            Lane::F64(x) => map_into(x, out.bool_mut(), |v| v != 0.0),
            Lane::F32(x) => map_into(x, out.bool_mut(), |v| v != 0.0),
            Lane::Int(x) => map_into(x, out.bool_mut(), |v| v != 0),
            Lane::Bool(x) => map_into(x, out.bool_mut(), |v| v),
        },
        _ => match x {
            Lane::F64(x) => map_into(x, out.int_mut(), |v| Scalar::F64(v).cast(to).to_i64()),
            Lane::F32(x) => map_into(x, out.int_mut(), |v| Scalar::F32(v).cast(to).to_i64()),
            Lane::Int(x) => map_into(x, out.int_mut(), |v| wrap_int(to, v)),
            Lane::Bool(x) => map_into(x, out.int_mut(), |v| v as i64),
        },
    }
}

fn cast_f32(x: &Lane, out: &mut Vec<f32>, f: impl Fn(f32) -> f32) {
    match x {
        Lane::F64(x) => map_into(x, out, |v| f(v as f32)),
        Lane::F32(x) => map_into(x, out, f),
        Lane::Int(x) => map_into(x, out, |v| f(v as f32)),
        Lane::Bool(x) => map_into(x, out, |v| f(v as u8 as f32)),
    }
}
