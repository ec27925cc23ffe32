//! The rules by which torch's dispatcher accepts Python values, for ATen overloads called as
//! `torch.ops.aten.add.Tensor`.

use super::{
    GivenArgs, Misfit, is_bool, is_int, is_name_of_type, is_number, is_real, missing_param_error, one_element,
    surplus_keyword, wrong_type,
};
use crate::op::bind::{BindError, ParamOrigin};
use crate::op::schema::{ParamType, Schema};
use crate::types::{DType, Type, Val};

/// Checks the arguments against the overload.
pub(super) fn check_fit(schema: &Schema, given: GivenArgs<'_>, numbers: bool) -> Result<(), Misfit> {
    let most = schema.params.iter().filter(|p| !p.keyword_only).count();
    let misfit = |fitting, error| Misfit { fitting, error };
    if given.args.len() > most {
        let given = given.args.len();
        return Err(misfit(0, BindError::TooMany { given, max: most }));
    }
    let mut used = vec![false; given.kwargs.len()];
    let mut taken = 0;
    for (i, param) in schema.params.iter().enumerate() {
        let by_position = given.args.get(i).filter(|_| !param.keyword_only);
        let (v, origin) = match by_position {
            Some(v) => (v, ParamOrigin::Positional(i)),
            None => match given.kwargs.iter().position(|(k, _)| *k == param.name) {
                Some(k) => {
                    used[k] = true;
                    (given.kwargs[k].1, ParamOrigin::Keyword(k))
                }
                None if param.default.is_some() => continue,
                None => {
                    let error = missing_param_error(schema, given, param, |k| schema.index_of(k).is_some());
                    return Err(misfit(taken, error));
                }
            },
        };
        if !dispatcher_accepts(&param.ty, param.symbolic, v, numbers) {
            return Err(misfit(taken + 1, wrong_type(param, v, origin)));
        }
        taken += 2;
    }
    match surplus_keyword(schema, given, &used) {
        Some(e) => Err(misfit(taken, e)),
        None => Ok(()),
    }
}

/// Whether the dispatcher accepts `v` for a parameter of type `ty`.
fn dispatcher_accepts(ty: &ParamType, symbolic: bool, v: &Type, numbers: bool) -> bool {
    use ParamType as P;
    match (ty, v) {
        (_, Val::Unknown) | (P::Any, _) | (P::Optional(_), Val::None) => true,
        (P::Optional(t), _) => dispatcher_accepts(t, symbolic, v, numbers),
        (P::Tensor, Val::Leaf(_)) => true,
        (P::Tensor, _) => numbers && is_number(v),
        (P::Number, _) => is_number(v),
        (P::Float, _) => is_real(v) || one_element(v).is_some(),
        (P::Int, _) => is_int(v) || is_bool(v) || one_element(v).is_some(),
        // Values that have a truth value in Python.
        (P::Bool, _) => v.is_none() || is_number(v) || one_element(v).is_some(),
        (P::List(t, _), Val::List(items) | Val::Tuple(items)) => items.iter().all(|v| item_accepts(t, symbolic, v)),
        // A single number stands for a list of a fixed length, unless the list's items may be symbolic.
        (P::List(t, Some(_)), _) if !symbolic => match **t {
            P::Int => is_int(v) || is_bool(v),
            P::Float => is_real(v),
            _ => false,
        },
        _ => is_name_of_type(ty, v),
    }
}

fn item_accepts(ty: &ParamType, symbolic: bool, v: &Type) -> bool {
    let index = |v: &Type| one_element(v).is_some_and(|t| !t.dtype.is_float() && t.dtype != DType::B8);
    match (ty, v) {
        (ParamType::Int, Val::Leaf(_)) if symbolic => index(v),
        _ => dispatcher_accepts(ty, false, v, false),
    }
}
