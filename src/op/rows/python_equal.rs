//! Python's `==` and `!=` on values other than tensors and numbers: sizes, dtypes, strings, lists. `eq` and `ne`
//! compare tensors and numbers.

use crate::op::number;
use crate::op::{Call, Meaning, Op, OpId, OpResult};
use crate::types::{ScalarKind, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        with_forms(
            Op::new(
                "equal_values(Any a, Any b) -> bool",
                |c, _| of_two(c, false),
                Meaning::Host,
            )
            .doc("whether two Python values are equal; at least one is neither a tensor nor a number"),
            "operator.eq",
        ),
        with_forms(
            Op::new(
                "different_values(Any a, Any b) -> bool",
                |c, _| of_two(c, true),
                Meaning::Host,
            )
            .doc("whether two Python values differ; at least one is neither a tensor nor a number"),
            "operator.ne",
        ),
    ]
}

/// Adds forms for operands of which the first or the second is neither a tensor nor a number.
fn with_forms(row: Op, path: &'static str) -> Op {
    let schemas = [
        "eq(str? a, Any b) -> bool",
        "eq(ScalarType a, Any b) -> bool",
        "eq(Device a, Any b) -> bool",
        "eq(Layout a, Any b) -> bool",
        "eq(Any[] a, Any b) -> bool",
        "eq(Any a, str? b) -> bool",
        "eq(Any a, ScalarType b) -> bool",
        "eq(Any a, Device b) -> bool",
        "eq(Any a, Layout b) -> bool",
        "eq(Any a, Any[] b) -> bool",
    ];
    schemas.into_iter().fold(row, |row, schema| row.form(path, schema))
}

fn of_two(c: &Call<TensorType>, negated: bool) -> OpResult<Type> {
    Ok(match are_equal(c.get("a"), c.get("b")) {
        Some(is) => Val::Bool(is != negated),
        None => Val::Any(ScalarKind::Bool),
    })
}

/// The result of Python's `==`; `None` if it is unknown. A tensor is unequal to any value that it cannot be compared
/// with.
fn are_equal(a: &Type, b: &Type) -> Option<bool> {
    match (a, b) {
        (Val::Unknown | Val::Any(_), _) | (_, Val::Unknown | Val::Any(_)) => None,
        (Val::List(x), Val::List(y)) | (Val::Tuple(x), Val::Tuple(y)) => all_equal(x, y),
        _ if is_number(a) && is_number(b) => match number::eval_op(OpId::Eq, &[a.clone(), b.clone()]) {
            Some(Ok(Val::Bool(is))) => Some(is),
            _ => None,
        },
        (Val::Leaf(_), _) | (_, Val::Leaf(_)) => Some(false),
        _ => Some(a == b),
    }
}

fn all_equal(x: &[Type], y: &[Type]) -> Option<bool> {
    if x.len() != y.len() {
        return Some(false);
    }
    let mut known = true;
    for (x, y) in x.iter().zip(y) {
        match are_equal(x, y) {
            Some(true) => {}
            Some(false) => return Some(false),
            None => known = false,
        }
    }
    known.then_some(true)
}

fn is_number(v: &Type) -> bool {
    matches!(v, Val::Int(_) | Val::Float(_) | Val::Bool(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{DType, Dim};

    #[test]
    fn values_are_compared_as_python_does() {
        let size = |d: Dim| Val::Int(d);
        let n = || size(Dim::var("N"));
        let list = |items: &[Type]| Val::List(items.to_vec());
        for (a, b, want) in [
            (Val::DType(DType::F32), Val::DType(DType::F32), Some(true)),
            (Val::DType(DType::F32), Val::DType(DType::F16), Some(false)),
            (Val::str("sum"), Val::None, Some(false)),
            (list(&[n(), Val::int(3)]), list(&[n(), Val::Float(3.0)]), Some(true)),
            (list(&[n()]), list(&[Val::int(4)]), None),
            (
                list(&[n(), Val::int(1)]),
                list(&[Val::int(4), Val::int(2)]),
                Some(false),
            ),
            (list(&[]), Val::Tuple(vec![]), Some(false)),
            (Val::Bool(true), Val::int(1), Some(true)),
        ] {
            assert_eq!(are_equal(&a, &b), want, "{a} == {b}");
        }
    }
}
