//! Which kinds of values a parameter accepts.

use super::Leniency;
use super::normalise::truth_value;
use crate::op::schema::{Param, ParamType};
use crate::types::{ScalarKind, Type, Val};

pub(super) fn is_int_param(ty: &ParamType) -> bool {
    match ty {
        ParamType::Int | ParamType::Number | ParamType::Any => true,
        ParamType::Optional(t) => is_int_param(t),
        ParamType::List(t, Some(_)) => is_int_param(t),
        _ => false,
    }
}

/// Whether a parameter takes a list of ints of any length.
pub(super) fn is_open_int_list(ty: &ParamType) -> bool {
    match ty {
        ParamType::List(t, len) => **t == ParamType::Int && len.is_none(),
        ParamType::Optional(t) => is_open_int_list(t),
        _ => false,
    }
}

pub(super) fn is_tensor_list(ty: &ParamType) -> bool {
    matches!(ty, ParamType::List(t, _) if **t == ParamType::Tensor)
}

pub(super) fn is_open_list(ty: &ParamType) -> bool {
    match ty {
        ParamType::List(_, len) => len.is_none(),
        ParamType::Optional(t) => is_open_list(t),
        _ => false,
    }
}

pub(super) fn is_int(v: &Type) -> bool {
    matches!(v, Val::Int(_) | Val::Any(ScalarKind::Int))
}

pub(super) fn is_bool(v: &Type) -> bool {
    matches!(v, Val::Bool(_) | Val::Any(ScalarKind::Bool))
}

pub(super) fn rejected_kind(param: &Param, v: &Type, lenient: Leniency) -> Option<&'static str> {
    (!param_accepts(&param.ty, v, lenient)).then(|| v.kind_name())
}

pub(super) fn is_number(v: &Type) -> bool {
    matches!(v, Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Complex(..))
        || matches!(v, Val::Any(ScalarKind::Int | ScalarKind::Float | ScalarKind::Bool))
}

/// Whether a parameter of type `ty` accepts a value of type `v`.
pub(super) fn param_accepts(ty: &ParamType, v: &Type, lenient: Leniency) -> bool {
    use ParamType as P;
    let number = is_number(v);
    // A 0-dim tensor converts to a number implicitly, as in torch's parser.
    let zero_dim = lenient.tensors_as_numbers && matches!(v, Val::Leaf(t) if t.rank() == Some(0));
    let fits = match (ty, v) {
        (_, Val::Unknown) | (P::Any, _) => true,
        (P::Optional(_), Val::None) => true,
        (P::Optional(t), _) => param_accepts(t, v, lenient),
        (P::Tensor, Val::Leaf(_)) => true,
        (P::Tensor, _) => lenient.numbers_as_tensors && number,
        (P::Int, Val::Int(_) | Val::Any(ScalarKind::Int)) => true,
        (P::Int, Val::Bool(_) | Val::Any(ScalarKind::Bool)) => lenient.tensors_as_numbers,
        (P::Float, _) | (P::Number, _) => number || zero_dim,
        (P::Bool, Val::Bool(_) | Val::Any(ScalarKind::Bool)) => true,
        (P::Bool, Val::Int(d)) => lenient.tensors_as_numbers && matches!(d.as_const(), Some(0 | 1)),
        (P::Str, Val::Str(_) | Val::Any(ScalarKind::Str)) => true,
        (P::DType, Val::DType(_)) => true,
        (P::Device, Val::Device(_) | Val::Str(_)) => true,
        (P::Layout | P::MemoryFormat, Val::TorchName(_)) => true,
        (P::Generator, Val::Opaque(_)) => true,
        (P::List(t, _), Val::List(items) | Val::Tuple(items)) => items.iter().all(|x| param_accepts(t, x, lenient)),
        (P::List(t, Some(_)), _) => param_accepts(t, v, lenient),
        (P::Int, Val::Leaf(_)) => zero_dim,
        _ => false,
    };
    fits || lenient.converted && can_convert(ty, v)
}

/// Whether torch converts `v` to the parameter's type, for ops that take such values.
fn can_convert(ty: &ParamType, v: &Type) -> bool {
    use ParamType as P;
    let scalar = || is_number(v) || matches!(v, Val::Leaf(_));
    match ty {
        P::Int | P::Float | P::Number => scalar(),
        P::Bool => scalar() || truth_value(v).is_some(),
        P::List(t, _) => match v.items() {
            Some(items) => items.iter().all(|v| can_convert(t, v)),
            None => can_convert(t, v) && !v.is_none(),
        },
        _ => false,
    }
}
