//! Constants written in a file: conversion to tensors and back.

use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::source::Span;
use crate::syntax::ast::{UnaryOp, Value, ValueKind};
use crate::tensor::{Scalar, Tensor, byte_len};
use crate::types::{DType, TensorType};

/// Constants with more elements than this are not written in the text; the weights file stores them.
pub const INLINE_ELEMENTS: usize = 64;

/// The tensor of type `ty` that `value` describes. Reports a mismatch and returns `None`.
pub(super) fn read_tensor(value: &Value, ty: &TensorType, span: Span, d: &mut Diagnostics) -> Option<Tensor> {
    let Some(shape) = ty.fixed_shape() else {
        let e = unfit_constant(
            "a constant's sizes must be known numbers",
            span,
            "a symbolic or unknown size",
        );
        d.push(e);
        return None;
    };
    if !ty.dtype.is_computed() {
        let title = format!("fxc does not support computation with {}", ty.dtype);
        d.push(unfit_constant(&title, span, "unsupported dtype for a constant"));
        return None;
    }
    if byte_len(ty.dtype, &shape).is_none() {
        d.push(unfit_constant(
            "the constant is too large",
            span,
            "its size in bytes overflows",
        ));
        return None;
    }
    let mut elements = vec![];
    let before = d.len();
    collect_elements(value, &shape, ty.dtype, &mut elements, d);
    // An empty tensor has no elements to compare; a mismatch of lists has been reported.
    (d.len() == before).then(|| Tensor::from_scalars(ty.dtype, &shape, &elements))
}

fn unfit_constant(title: &str, span: Span, text: &str) -> Diagnostic {
    Diagnostic::new(Code::E0112, title).at(span, text)
}

fn collect_elements(v: &Value, shape: &[usize], dtype: DType, out: &mut Vec<Scalar>, d: &mut Diagnostics) {
    match (&v.kind, shape) {
        (ValueKind::List(items), [n, rest @ ..]) if items.len() == *n => {
            items.iter().for_each(|x| collect_elements(x, rest, dtype, out, d));
        }
        (ValueKind::List(items), [n, ..]) => {
            let title = format!(
                "found {}, but the type requires {n}",
                crate::diag::words::count(items.len(), "element")
            );
            d.push(unfit_constant(&title, v.span, "this list"));
        }
        (ValueKind::List(_), []) => d.push(unfit_constant(
            "the constant has more dimensions than its type",
            v.span,
            "a list",
        )),
        (_, [n, ..]) => {
            let title = "the constant has fewer dimensions than its type";
            d.push(unfit_constant(title, v.span, "one element").help(format!("expected a list of {n}")));
        }
        (kind, []) => match to_element(kind, dtype) {
            Some(s) => out.push(s),
            None => {
                let title = format!("this is not a valid element of type {dtype}");
                d.push(unfit_constant(&title, v.span, "not exactly representable"));
            }
        },
    }
}

/// Converts an element to `dtype` if possible: floats are rounded, integers must be in range, bools are `True`,
/// `False`, 0 or 1.
fn to_element(kind: &ValueKind, dtype: DType) -> Option<Scalar> {
    match kind {
        ValueKind::Bool(b) => Some(Scalar::Bool(*b).cast(dtype)),
        ValueKind::Unary(UnaryOp::Neg, v) if matches!(v.kind, ValueKind::Int(0)) => to_element(&v.kind, dtype),
        ValueKind::Int(i) if dtype == DType::B8 => (0..=1).contains(i).then_some(Scalar::Bool(*i == 1)),
        ValueKind::Int(i) if dtype.is_int() => {
            let s = Scalar::from_i64(dtype, *i);
            (s.to_i64() == *i).then_some(s)
        }
        ValueKind::Int(i) => Some(Scalar::Int(DType::I64, *i).cast(dtype)),
        ValueKind::Float(x) if dtype.is_float() => Some(Scalar::from_f64(dtype, *x)),
        _ => None,
    }
}

/// The tensor as a value from which [`read_tensor`] restores it bit for bit (except NaN payloads); `None` if it should
/// be stored instead.
pub(super) fn write_tensor(t: &Tensor) -> Option<Value> {
    // An empty dimension hides the sizes of those inside it, but the type has them.
    if t.numel() > INLINE_ELEMENTS || !t.dtype().is_computed() || t.rank() > 8 {
        return None;
    }
    let lists = t.shape().iter().take_while(|&&n| n > 0);
    if t.numel() == 0 && lists.fold(1usize, |n, d| n.saturating_mul(*d)) > INLINE_ELEMENTS {
        return None;
    }
    let mut next = 0;
    Some(nested_value(t, t.shape(), &mut next))
}

fn nested_value(t: &Tensor, shape: &[usize], next: &mut usize) -> Value {
    let kind = match shape {
        [] => {
            let s = t.get(*next);
            *next += 1;
            match s {
                Scalar::Bool(b) => ValueKind::Bool(b),
                Scalar::Int(_, i) => ValueKind::Int(i),
                s => ValueKind::Float(s.to_f64()),
            }
        }
        [n, rest @ ..] => ValueKind::List((0..*n).map(|_| nested_value(t, rest, next)).collect()),
    };
    Value::new(kind, Span::default())
}
