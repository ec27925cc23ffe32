//! The rules of torch's Python argument parser, for its functions and methods and for those written in Python that call
//! them.

use super::{
    GivenArgs, Misfit, is_bool, is_int, is_name_of_type, is_number, is_real, missing_param_error, one_element,
    surplus_keyword, wrong_type, zero_dim,
};
use crate::op::bind::{BindError, ParamOrigin};
use crate::op::schema::{Param, ParamType, Schema};
use crate::types::{DType, TensorType, Type, Val};

/// Alternative parameter names that the parser accepts, for compatibility with numpy.
const NUMPY_NAMES: [(&str, &[&str]); 4] = [
    ("dim", &["axis"]),
    ("keepdim", &["keepdims"]),
    ("input", &["x", "a", "x1"]),
    ("other", &["x2"]),
];

/// Checks the arguments against the signature.
pub(super) fn check_fit(schema: &Schema, given: GivenArgs<'_>, numbers: bool) -> Result<(), Misfit> {
    let first = usize::from(given.method);
    let most = schema.params.iter().filter(|p| !p.keyword_only).count();
    let positional = given.args.len().saturating_sub(first);
    let spread = most == 1 && !given.written && is_int_list(&schema.params[0].ty);
    let misfit = |fitting, error| Misfit { fitting, error };
    if given.args.len() < first {
        return Err(misfit(0, BindError::Missing("self".into())));
    }
    let too_many = || BindError::TooMany {
        given: given.args.len(),
        max: most + first,
    };
    if positional > most && !spread {
        return Err(misfit(0, too_many()));
    }
    let mut used = vec![false; given.kwargs.len()];
    let (mut at, mut taken) = (0, 0);
    for (i, param) in schema.params.iter().enumerate() {
        let (v, origin) = if at < positional {
            if param.keyword_only {
                return Err(misfit(taken, too_many()));
            }
            at += 1;
            (&given.args[first + at - 1], ParamOrigin::Positional(first + at - 1))
        } else {
            match keyword_index(param, given) {
                Some(k) => {
                    used[k] = true;
                    (given.kwargs[k].1, ParamOrigin::Keyword(k))
                }
                None if param.default.is_some() => continue,
                None => {
                    return Err(misfit(
                        taken,
                        missing_param_error(schema, given, param, |k| is_known(schema, k)),
                    ));
                }
            }
        };
        // Functions written in Python test the argument's truth value, which fails for a tensor of several elements.
        let several = given.written
            && param.ty == ParamType::Any
            && param.default.is_some()
            && !param.name.starts_with('_')
            && is_many(v);
        if several {
            let asked = Param {
                ty: ParamType::Bool,
                ..param.clone()
            };
            return Err(misfit(taken + 1, wrong_type(&asked, v, origin)));
        }
        // All positional arguments form one list: `x.view(2, 3)`. A single value of unknown type may itself be the
        // list.
        let all = &given.args[first..];
        let list = || spread && i == 0 && at == 1 && is_index_list(all, param.symbolic);
        if positional > 1 && list() {
            at = positional;
            taken += 2 * positional;
            continue;
        }
        if v.is_none() && takes_none(param) || param_accepts(param, v, numbers) || list() {
            taken += 2;
            continue;
        }
        return Err(misfit(taken + 1, wrong_type(param, v, origin)));
    }
    if at < positional {
        return Err(misfit(taken, too_many()));
    }
    match surplus_keyword(schema, given, &used) {
        Some(e) => Err(misfit(taken, e)),
        None => Ok(()),
    }
}

fn is_many(v: &Type) -> bool {
    v.as_leaf().is_some() && one_element(v).is_none()
}

/// Whether the signature has a parameter with this name or alternative name.
fn is_known(schema: &Schema, name: &str) -> bool {
    let other = NUMPY_NAMES.iter().find(|(_, names)| names.contains(&name));
    schema.index_of(name).or_else(|| schema.index_of(other?.0)).is_some()
}

fn keyword_index(param: &Param, given: GivenArgs<'_>) -> Option<usize> {
    let at = |name: &str| given.kwargs.iter().position(|(k, _)| *k == name);
    let other = NUMPY_NAMES.iter().find(|(n, _)| *n == param.name && !given.written);
    let mut other = other.iter().flat_map(|(_, names)| names.iter());
    at(&param.name).or_else(|| other.find_map(|n| at(n)))
}

fn takes_none(param: &Param) -> bool {
    matches!(param.ty, ParamType::Optional(_)) || param.default == Some(Val::None)
}

fn param_accepts(param: &Param, v: &Type, numbers: bool) -> bool {
    accepts_type(&param.ty, param.symbolic, v, numbers)
}

/// Whether the parser accepts `v` for a parameter of type `ty`.
fn accepts_type(ty: &ParamType, symbolic: bool, v: &Type, numbers: bool) -> bool {
    use ParamType as P;
    match (ty, v) {
        (_, Val::Unknown) | (P::Any, _) => true,
        (P::Optional(t), _) => accepts_type(t, symbolic, v, numbers),
        (P::Tensor, Val::Leaf(_)) => true,
        (P::Tensor, _) => numbers && is_number(v),
        (P::Number, _) => is_number(v) || zero_dim(v).is_some(),
        (P::Float, _) => is_real(v) || zero_dim(v).is_some(),
        (P::Int, _) => is_int(v) || int_tensor(v, symbolic),
        (P::Bool, _) => is_bool(v),
        (P::List(t, _), Val::List(items) | Val::Tuple(items)) => list_of(t, symbolic, items),
        (P::List(t, Some(_)), _) if **t == P::Int => is_int(v) || index_tensor(v, false),
        _ => is_name_of_type(ty, v),
    }
}

/// Whether the items of a list have type `ty`. For ints and floats the parser itself checks only the first item; the
/// others are converted, and a bool can be converted.
fn list_of(ty: &ParamType, symbolic: bool, items: &[Type]) -> bool {
    match ty {
        ParamType::Int => is_index_list(items, symbolic),
        ParamType::Float => items.iter().all(|v| is_real(v) || *v == Val::Unknown),
        ParamType::Optional(t) => items.iter().all(|v| v.is_none() || accepts_type(t, symbolic, v, false)),
        t => items.iter().all(|v| accepts_type(t, symbolic, v, false)),
    }
}

fn is_index_list(items: &[Type], symbolic: bool) -> bool {
    let index = |v: &Type| is_int(v) || *v == Val::Unknown || index_tensor(v, symbolic);
    let rest = |v: &Type| index(v) || is_bool(v);
    items.first().is_none_or(index) && items.iter().skip(1).all(rest)
}

fn is_integral(t: &TensorType) -> bool {
    !t.dtype.is_float() && t.dtype != DType::B8
}

/// Whether a tensor can stand for an int: it has an integer dtype and rank 0, or one element if the parameter may be
/// symbolic.
fn int_tensor(v: &Type, symbolic: bool) -> bool {
    let found = if symbolic { one_element(v) } else { zero_dim(v) };
    found.is_some_and(is_integral)
}

/// Whether a tensor can stand for an item of a list of ints, that is, supports Python's `__index__`.
fn index_tensor(v: &Type, symbolic: bool) -> bool {
    one_element(v).is_some_and(|t| is_integral(t) || !symbolic && t.dtype == DType::B8)
}

fn is_int_list(ty: &ParamType) -> bool {
    match ty {
        ParamType::List(t, _) => **t == ParamType::Int,
        ParamType::Optional(t) => is_int_list(t),
        _ => false,
    }
}
