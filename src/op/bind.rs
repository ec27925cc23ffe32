//! Binds arguments to parameters, as torch's Python argument parser does.
//!
//! A [`Binding`] says for each parameter where its value comes from. It is computed once, from the arguments' *types* (which
//! select the overload). It can then be applied to the same arguments in any form: nodes, types or tensors.

mod kinds;
mod normalise;

use self::kinds::{
    is_bool, is_int, is_int_param, is_number, is_open_int_list, is_open_list, is_tensor_list, rejected_kind,
};
pub(crate) use self::normalise::lift_literal;
use self::normalise::normalise_arg;
use super::schema::{Literal, ParamType, Schema};
use crate::diag::nearest;
use crate::types::{Type, Val};

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
pub(crate) struct Binding {
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
pub(crate) struct Leniency {
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
    pub(crate) fn new(
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
    pub(crate) fn numbers_for_tensors(
        &self,
        schema: &Schema,
        args: &[Type],
        kwargs: &[(&str, &Type)],
    ) -> Vec<(usize, BindError)> {
        let bound = self.origins.iter().zip(&self.types).enumerate();
        let numbers = bound.filter_map(|(i, (origin, ty))| {
            let v = match origin {
                ParamOrigin::Positional(i) => &args[*i],
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
    pub(crate) fn origins(&self) -> &[ParamOrigin] {
        &self.origins
    }

    /// The parameters' values, in parameter order. Tuples given for lists become lists, and one item given for a list
    /// of a fixed length is repeated. `whole` tells which leaves stand for whole lists; these are not wrapped into a
    /// list.
    pub(crate) fn apply<U: Clone>(
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

#[cfg(test)]
mod tests;
