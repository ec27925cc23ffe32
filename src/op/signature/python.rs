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
    let mut matcher = ArgumentMatcher::new(schema, given, numbers)?;
    for (i, param) in schema.params.iter().enumerate() {
        matcher.match_param(i, param)?;
    }
    if matcher.next < matcher.positional.len() {
        return Err(matcher.misfit(0, matcher.too_many()));
    }
    match surplus_keyword(schema, given, &matcher.used) {
        Some(e) => Err(matcher.misfit(0, e)),
        None => Ok(()),
    }
}

/// Matches the arguments of a call with the parameters of a signature, in the order of the parameters.
struct ArgumentMatcher<'a> {
    schema: &'a Schema,
    given: GivenArgs<'a>,
    /// Whether a `Tensor` parameter takes a number.
    numbers: bool,
    /// The positional arguments after a method's object.
    positional: &'a [Type],
    /// Whether all positional arguments may form one list: `x.view(2, 3)`.
    spread: bool,
    /// The number of positional arguments that are matched.
    next: usize,
    /// Which keywords are matched.
    used: Vec<bool>,
    /// [`Misfit::fitting`] of the parameters so far.
    fitting: usize,
}

impl<'a> ArgumentMatcher<'a> {
    fn new(schema: &'a Schema, given: GivenArgs<'a>, numbers: bool) -> Result<Self, Misfit> {
        let Some(positional) = given.args.get(usize::from(given.method)..) else {
            return Err(Misfit {
                fitting: 0,
                error: BindError::Missing("self".into()),
            });
        };
        let matcher = ArgumentMatcher {
            schema,
            given,
            numbers,
            positional,
            spread: max_positional(schema) == 1 && !given.written && is_int_list(&schema.params[0].ty),
            next: 0,
            used: vec![false; given.kwargs.len()],
            fitting: 0,
        };
        match positional.len() > max_positional(schema) && !matcher.spread {
            true => Err(matcher.misfit(0, matcher.too_many())),
            false => Ok(matcher),
        }
    }

    fn misfit(&self, points: usize, error: BindError) -> Misfit {
        Misfit {
            fitting: self.fitting + points,
            error,
        }
    }

    fn too_many(&self) -> BindError {
        BindError::TooMany {
            given: self.given.args.len(),
            max: max_positional(self.schema) + usize::from(self.given.method),
        }
    }

    /// Matches parameter `i` with the next positional argument, its keyword, or its default.
    fn match_param(&mut self, i: usize, param: &Param) -> Result<(), Misfit> {
        let Some((v, origin)) = self.next_argument(param)? else {
            return Ok(());
        };
        if self.tests_truth(param) && is_many(v) {
            let asked = Param {
                ty: ParamType::Bool,
                ..param.clone()
            };
            return Err(self.misfit(1, wrong_type(&asked, v, origin)));
        }
        // A single value of unknown type may itself be the list.
        let is_list = self.spread && i == 0 && self.next == 1 && is_index_list(self.positional, param.symbolic);
        if self.positional.len() > 1 && is_list {
            self.next = self.positional.len();
            self.fitting += 2 * self.next;
        } else if is_list || v.is_none() && takes_none(param) || param_accepts(param, v, self.numbers) {
            self.fitting += 2;
        } else {
            return Err(self.misfit(1, wrong_type(param, v, origin)));
        }
        Ok(())
    }

    /// The argument for the parameter; `None` if it has its default.
    fn next_argument(&mut self, param: &Param) -> Result<Option<(&'a Type, ParamOrigin)>, Misfit> {
        if let Some(v) = self.positional.get(self.next) {
            if param.keyword_only {
                return Err(self.misfit(0, self.too_many()));
            }
            let index = usize::from(self.given.method) + self.next;
            self.next += 1;
            return Ok(Some((v, ParamOrigin::Positional(index))));
        }
        match keyword_index(param, self.given) {
            Some(k) => {
                self.used[k] = true;
                Ok(Some((self.given.kwargs[k].1, ParamOrigin::Keyword(k))))
            }
            None if param.default.is_some() => Ok(None),
            None => {
                let missing = missing_param_error(self.schema, self.given, param, |k| is_known(self.schema, k));
                Err(self.misfit(0, missing))
            }
        }
    }

    /// Whether the function tests the argument's truth value, which fails for a tensor of several elements. Functions
    /// written in Python do.
    fn tests_truth(&self, param: &Param) -> bool {
        self.given.written && param.ty == ParamType::Any && param.default.is_some() && !param.name.starts_with('_')
    }
}

/// The number of parameters that positional arguments can have.
fn max_positional(schema: &Schema) -> usize {
    schema.params.iter().filter(|p| !p.keyword_only).count()
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
    let position = |name: &str| given.kwargs.iter().position(|(k, _)| *k == name);
    let other = NUMPY_NAMES.iter().find(|(n, _)| *n == param.name && !given.written);
    let mut other = other.iter().flat_map(|(_, names)| names.iter());
    position(&param.name).or_else(|| other.find_map(|n| position(n)))
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
    let tensor = if symbolic { one_element(v) } else { zero_dim(v) };
    tensor.is_some_and(is_integral)
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
