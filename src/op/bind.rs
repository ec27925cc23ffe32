//! Binds arguments to parameters, as torch's Python argument parser does.
//!
//! A [`Binding`] says for each parameter where its value comes from. It is computed once, from the arguments' *types* (which
//! select the overload). It can then be applied to the same arguments in any form: nodes, types or tensors.

use super::schema::{Literal, NoLeaf, Param, ParamType, Schema};
use crate::diag::nearest;
use crate::types::{ScalarKind, Type, Val};

/// Where a parameter's value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamOrigin {
    /// Positional argument `n`.
    Positional(usize),
    /// All positional arguments from `n` on, as a list: `x.view(-1, 10)`.
    Rest(usize),
    /// Keyword argument `n`, in source order.
    Keyword(usize),
    /// Not given; the default is used.
    Default(Literal),
}

/// Where each parameter's value comes from, in parameter order.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    origins: Vec<ParamOrigin>,
    /// The parameter types, needed to expand single items into lists of a fixed length and to turn tuples into lists.
    types: Vec<ParamType>,
}

/// The reason why arguments do not fit a schema.
#[derive(Clone, Debug, PartialEq)]
pub enum BindError {
    /// A parameter without a value.
    Missing(String),
    /// Too many positional arguments.
    TooMany {
        /// How many were given.
        given: usize,
        /// The maximum.
        max: usize,
    },
    /// An unknown keyword.
    UnknownKeyword {
        /// The name given.
        name: String,
        /// The parameter probably meant.
        nearest: Option<String>,
    },
    /// A parameter given both by position and by name.
    Twice(String),
    /// A value of the wrong type.
    WrongType {
        /// The parameter.
        param: String,
        /// Its declared type.
        expected: ParamType,
        /// The kind of value given.
        found: &'static str,
        /// The origin of the value.
        origin: ParamOrigin,
    },
}

/// Which deviations from a parameter's type are accepted. torch's overloads are first tried exactly as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Leniency {
    /// A `Tensor` parameter also takes a Python number (pointwise ops).
    pub numbers_as_tensors: bool,
    /// A number parameter also takes a 0-dim tensor.
    pub tensors_as_numbers: bool,
    /// torch's own signature accepts the arguments: numbers of any kind are converted, and a single number is accepted
    /// for a list.
    pub converted: bool,
}

/// Keywords that all factory functions of torch take and that are ignored here: fxc has one device, one layout and one
/// random stream.
const IGNORED: &[&str] = &[
    "layout",
    "device",
    "pin_memory",
    "requires_grad",
    "memory_format",
    "generator",
    "names",
];

impl Binding {
    /// Binds arguments of these types to `schema`.
    pub fn new(
        schema: &Schema,
        args: &[Type],
        kwargs: &[(&str, &Type)],
        lenient: Leniency,
    ) -> Result<Binding, BindError> {
        let mut origins: Vec<Option<ParamOrigin>> = vec![None; schema.params.len()];
        bind_positional(schema, args, lenient, &mut origins)?;
        bind_keywords(schema, kwargs, &mut origins)?;
        Self::check_types(schema, origins, args, kwargs, lenient)
    }

    fn check_types(
        schema: &Schema,
        origins: Vec<Option<ParamOrigin>>,
        args: &[Type],
        kwargs: &[(&str, &Type)],
        lenient: Leniency,
    ) -> Result<Binding, BindError> {
        let mut out = Vec::with_capacity(origins.len());
        for (param, origin) in schema.params.iter().zip(origins) {
            let origin = match (origin, &param.default) {
                (Some(o), _) => o,
                (None, Some(d)) => ParamOrigin::Default(d.clone()),
                (None, None) => match &param.ty {
                    ParamType::Optional(_) => ParamOrigin::Default(Val::None),
                    _ => return Err(BindError::Missing(param.name.clone())),
                },
            };
            let bad = match &origin {
                ParamOrigin::Positional(i) => rejected_kind(param, &args[*i], lenient),
                ParamOrigin::Keyword(i) => rejected_kind(param, kwargs[*i].1, lenient),
                ParamOrigin::Rest(_) | ParamOrigin::Default(_) => None,
            };
            if let Some(found) = bad {
                return Err(BindError::WrongType {
                    param: param.name.clone(),
                    expected: param.ty.clone(),
                    found,
                    origin,
                });
            }
            out.push(origin);
        }
        Ok(Binding {
            origins: out,
            types: schema.params.iter().map(|p| p.ty.clone()).collect(),
        })
    }

    /// The tensor parameters for which numbers are given, each with the error to report if the op does not take numbers
    /// there.
    pub fn numbers_for_tensors(
        &self,
        schema: &Schema,
        args: &[Type],
        kwargs: &[(&str, &Type)],
    ) -> Vec<(usize, BindError)> {
        let given = self.origins.iter().zip(&self.types).enumerate();
        let numbers = given.filter_map(|(i, (origin, ty))| {
            let v = match origin {
                ParamOrigin::Positional(at) => &args[*at],
                ParamOrigin::Keyword(at) => kwargs[*at].1,
                ParamOrigin::Rest(_) | ParamOrigin::Default(_) => return None,
            };
            let tensor = match ty {
                ParamType::Optional(t) => **t == ParamType::Tensor,
                t => *t == ParamType::Tensor,
            };
            let e = || BindError::WrongType {
                param: schema.params[i].name.clone(),
                expected: ty.clone(),
                found: v.kind_name(),
                origin: origin.clone(),
            };
            (tensor && is_number(v)).then(|| (i, e()))
        });
        numbers.collect()
    }

    /// Where each parameter's value comes from.
    pub fn origins(&self) -> &[ParamOrigin] {
        &self.origins
    }

    /// The parameters' values, in parameter order. Tuples given for lists become lists, and one item given for a list
    /// of a fixed length is repeated. `whole` tells which leaves stand for whole lists; these are not wrapped into a
    /// list.
    pub fn apply<U: Clone>(
        &self,
        args: &[Val<U>],
        kwargs: &[(&str, &Val<U>)],
        whole: &dyn Fn(&U) -> bool,
    ) -> Vec<Val<U>> {
        self.origins
            .iter()
            .zip(&self.types)
            .map(|(o, ty)| {
                let v = match o {
                    ParamOrigin::Positional(i) => args[*i].clone(),
                    ParamOrigin::Rest(i) => Val::List(args[*i..].to_vec()),
                    ParamOrigin::Keyword(i) => kwargs[*i].1.clone(),
                    ParamOrigin::Default(d) => lift_literal(d),
                };
                match &v {
                    Val::Leaf(l) if whole(l) => v,
                    _ => normalise_arg(v, ty),
                }
            })
            .collect()
    }
}

/// A default as a value with any leaf type.
pub fn lift_literal<U>(d: &Literal) -> Val<U> {
    d.map(|x: &NoLeaf| match *x {})
}

fn normalise_arg<U: Clone>(v: Val<U>, ty: &ParamType) -> Val<U> {
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
fn truth_value<U>(v: &Val<U>) -> Option<bool> {
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

/// Python's parameter names for torch's own.
const ALIASES: &[(&str, &str)] = &[
    ("from", "a"),
    ("to", "b"),
    ("input", "self"),
    ("self", "input"),
    ("x", "self"),
    ("a", "self"),
    ("x1", "self"),
    ("x2", "other"),
    ("self", "a"),
    ("other", "b"),
    ("exponent", "other"),
    ("exponent", "exp"),
    ("self", "base"),
    ("input", "A"),
    ("self", "A"),
    ("input2", "tau"),
    ("axis0", "dim0"),
    ("axis1", "dim1"),
    ("element", "elements"),
    ("test_element", "test_elements"),
    ("axis", "dim"),
    ("keepdims", "keepdim"),
    ("tensor", "self"),
    ("dims", "dim"),
    ("dims", "dims_self"),
    ("dim", "dims"),
    ("training", "train"),
    ("p", "ord"),
    ("size", "shape"),
    ("other", "tensor"),
    ("matrices", "tensors"),
    ("self", "condition"),
    ("assert_msg", "message"),
    ("pad", "padding"),
    ("split_size_or_sections", "split_size"),
    ("split_size_or_sections", "split_sizes"),
    ("split_size", "split_sizes"),
    ("tensor_indices_or_sections", "sections"),
    ("tensor_indices_or_sections", "indices"),
    ("indices_or_sections", "sections"),
    ("indices_or_sections", "indices"),
    ("sections", "indices_or_sections"),
    ("indices", "indices_or_sections"),
];

/// Records the origins of the parameters that are given by keyword.
fn bind_keywords(
    schema: &Schema,
    kwargs: &[(&str, &Type)],
    origins: &mut [Option<ParamOrigin>],
) -> Result<(), BindError> {
    for (i, (name, _)) in kwargs.iter().enumerate() {
        let Some(p) = find_param(schema, name) else {
            if IGNORED.contains(name) {
                continue;
            }
            return Err(BindError::UnknownKeyword {
                name: name.to_string(),
                nearest: nearest(name, schema.params.iter().map(|p| &*p.name)).map(str::to_string),
            });
        };
        if origins[p].is_some() {
            return Err(BindError::Twice(schema.params[p].name.clone()));
        }
        origins[p] = Some(ParamOrigin::Keyword(i));
    }
    Ok(())
}

/// The position of the parameter `name`, or of the one that `name` is an alias of.
pub(super) fn find_param(schema: &Schema, name: &str) -> Option<usize> {
    schema.index_of(name).or_else(|| {
        ALIASES
            .iter()
            .filter(|(from, _)| *from == name)
            .find_map(|(_, to)| schema.index_of(to))
    })
}

/// Binds the positional arguments. Some lists may be written as several arguments.
fn bind_positional(
    schema: &Schema,
    args: &[Type],
    lenient: Leniency,
    origins: &mut [Option<ParamOrigin>],
) -> Result<(), BindError> {
    let positional: Vec<usize> = (0..schema.params.len())
        .filter(|&i| !schema.params[i].keyword_only)
        .collect();
    let mut bound = 0;
    for (slot, &p) in positional.iter().enumerate().take(args.len()) {
        if let Some(end) = end_of_list(schema, &positional, slot, args, lenient) {
            origins[p] = Some(ParamOrigin::Rest(slot));
            bound = end;
            break;
        }
        origins[p] = Some(ParamOrigin::Positional(slot));
        bound = slot + 1;
    }
    match bound < args.len() {
        true => Err(BindError::TooMany {
            given: args.len(),
            max: positional.len(),
        }),
        false => Ok(()),
    }
}

/// The end of the arguments from `slot` on if they are the items of a list; `None` if the argument is the value itself.
fn end_of_list(schema: &Schema, positional: &[usize], slot: usize, args: &[Type], lenient: Leniency) -> Option<usize> {
    let (ty, v) = (&schema.params[positional[slot]].ty, &args[slot]);
    // Several tensors for a list of tensors: `torch.einsum("ij,jk", a, b)`.
    if slot + 1 == positional.len() && is_tensor_list(ty) && matches!(v, Val::Leaf(_)) {
        return Some(args.len());
    }
    // A list of ints may be written as several arguments, but only as the first parameter or just after `self`.
    // If there are more arguments than positional parameters, an argument of unknown type counts as an int:
    // `x.reshape(%n, -1)`.
    let unknown = *v == Val::Unknown && args.len() > positional.len();
    if slot > 1 || !is_open_int_list(ty) || !is_int(v) && !unknown {
        return None;
    }
    // A single int for a list without a fixed length: `x.view(6)`.
    if args.len() == slot + 1 {
        return is_open_list(ty).then_some(args.len());
    }
    // After the first item a bool counts as an int: `torch.zeros(3, True)`.
    let is_item = |v: &Type| is_int(v) || *v == Val::Unknown || lenient.converted && is_bool(v);
    let is_list = args[slot..].iter().all(is_item) && !fits_rest(schema, positional, slot, args.len());
    is_list.then_some(args.len())
}

/// Whether the arguments from `slot` on also fit the parameters one by one, because these parameters take ints too.
fn fits_rest(schema: &Schema, positional: &[usize], slot: usize, given: usize) -> bool {
    let rest = &positional[slot..];
    // Calls like `sum(0, True)` never get here, because a bool is not an int. `zeros(2, 3)` and `view(2, 3)` must be
    // read as lists.
    given - slot <= rest.len()
        && rest[1..given - slot]
            .iter()
            .all(|&p| is_int_param(&schema.params[p].ty))
}

fn is_int_param(ty: &ParamType) -> bool {
    match ty {
        ParamType::Int | ParamType::Number | ParamType::Any => true,
        ParamType::Optional(t) => is_int_param(t),
        ParamType::List(t, Some(_)) => is_int_param(t),
        _ => false,
    }
}

/// Whether a parameter takes a list of ints of any length.
fn is_open_int_list(ty: &ParamType) -> bool {
    match ty {
        ParamType::List(t, len) => **t == ParamType::Int && len.is_none(),
        ParamType::Optional(t) => is_open_int_list(t),
        _ => false,
    }
}

fn is_tensor_list(ty: &ParamType) -> bool {
    matches!(ty, ParamType::List(t, _) if **t == ParamType::Tensor)
}

fn is_open_list(ty: &ParamType) -> bool {
    match ty {
        ParamType::List(_, len) => len.is_none(),
        ParamType::Optional(t) => is_open_list(t),
        _ => false,
    }
}

fn is_int(v: &Type) -> bool {
    matches!(v, Val::Int(_) | Val::Any(ScalarKind::Int))
}

fn is_bool(v: &Type) -> bool {
    matches!(v, Val::Bool(_) | Val::Any(ScalarKind::Bool))
}

fn rejected_kind(param: &Param, v: &Type, lenient: Leniency) -> Option<&'static str> {
    (!param_accepts(&param.ty, v, lenient)).then(|| v.kind_name())
}

fn is_number(v: &Type) -> bool {
    matches!(v, Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Complex(..))
        || matches!(v, Val::Any(ScalarKind::Int | ScalarKind::Float | ScalarKind::Bool))
}

/// Whether a parameter of type `ty` accepts a value of type `v`.
pub fn param_accepts(ty: &ParamType, v: &Type, lenient: Leniency) -> bool {
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

#[cfg(test)]
mod tests;
