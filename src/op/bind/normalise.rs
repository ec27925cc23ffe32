//! Arguments in the form that rows expect.

use crate::op::schema::{Literal, NoLeaf, ParamType};
use crate::types::Val;

/// A default as a value with any leaf type.
pub(crate) fn lift_literal<U>(d: &Literal) -> Val<U> {
    d.map(|x: &NoLeaf| match *x {})
}

pub(super) fn normalise_arg<U: Clone>(v: Val<U>, ty: &ParamType) -> Val<U> {
    match (ty, v) {
        (ParamType::Int, Val::Bool(b)) => Val::int(b.into()),
        (ParamType::Float, Val::Bool(b)) => Val::Float(f64::from(b)),
        (ParamType::Bool, v) => truth_value(&v).map_or(v, Val::Bool),
        (ParamType::Optional(t), v) => {
            if v.is_none() {
                v
            } else {
                normalise_arg(v, t)
            }
        }
        // For items of any type, the container's kind matters, so a tuple stays a tuple.
        (ParamType::List(t, _), v @ Val::Tuple(_)) if **t == ParamType::Any => v,
        (ParamType::List(t, _), Val::List(items) | Val::Tuple(items)) => {
            Val::List(items.into_iter().map(|v| normalise_item(v, t)).collect())
        }
        (ParamType::List(..), v @ (Val::None | Val::Unknown)) => v,
        (ParamType::List(t, n), v) => Val::List(vec![normalise_item(v, t); n.unwrap_or(1)]),
        (_, v) => v,
    }
}

/// The truth value in Python; `None` if it is known only at run time.
pub(super) fn truth_value<U>(v: &Val<U>) -> Option<bool> {
    match v {
        Val::None => Some(false),
        Val::Str(s) => Some(!s.is_empty()),
        Val::List(items) | Val::Tuple(items) => Some(!items.is_empty()),
        Val::Complex(re, im) => Some(*re != 0.0 || *im != 0.0),
        Val::DType(_) | Val::Device(_) | Val::TorchName(_) | Val::Ellipsis => Some(true),
        v => v.as_f64().map(|x| x != 0.0),
    }
}

/// A list item converted to the item type: a bool given for an int becomes an int.
fn normalise_item<U>(v: Val<U>, ty: &ParamType) -> Val<U> {
    match (ty, v) {
        (ParamType::Int, Val::Bool(b)) => Val::int(b.into()),
        (ParamType::Optional(t), v) => normalise_item(v, t),
        (_, v) => v,
    }
}
