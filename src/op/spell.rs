//! Writes a canonical call in torch's spelling: the inverse of resolving a spelling.

use super::bind::find_param;
use super::registry::resolve_checked;
use super::{Form, Op, ParamType, Schema, canonical_path, check_signature, lift_literal, numbers};
use crate::types::{ScalarKind, Type, Val};
use std::convert::Infallible;

/// A call in torch's spelling.
#[derive(Clone, Debug)]
pub(crate) struct Spelled<T> {
    /// The path: `torch.ops.aten.add.Tensor`, `torch.where`, or a method's name.
    pub target: String,
    /// Whether it is a method of the first argument.
    pub method: bool,
    /// Positional arguments.
    pub args: Vec<Val<T>>,
    /// Keyword arguments.
    pub kwargs: Vec<(String, Val<T>)>,
}

/// Ops whose ATen overloads accept numbers for tensors (torch's `should_allow_numbers_as_tensors`).
const NUMBERS: [&str; 7] = [
    "aten.add.Tensor",
    "aten.sub.Tensor",
    "aten.mul.Tensor",
    "aten.div.Tensor",
    "aten.div.Tensor_mode",
    "aten.floor_divide.default",
    "aten.remainder.Tensor",
];

/// The families of spellings for calls on tensors, in order of preference.
const OF_TENSORS: [&str; 7] = [
    "aten.",
    "torch.",
    "operator.",
    "prims.",
    "Tensor.",
    "math.",
    "builtins.",
];

/// The families for calls on Python numbers, or on values that may be numbers, in order of preference. ATen would make
/// tensors of numbers.
const OF_NUMBERS: [&str; 7] = [
    "operator.",
    "math.",
    "builtins.",
    "torch.",
    "Tensor.",
    "aten.",
    "prims.",
];

/// Spells a call of `op`, with one argument per parameter of its row, by the first of its spellings that torch has and
/// that can express the call. ATen's overloads come first, then functions of the torch module, of `operator`, and
/// methods; for numbers the order is reversed. `type_of` returns the type of a leaf, if it is known.
pub(crate) fn spell_call<T: Clone + PartialEq>(
    op: &'static Op,
    args: &[Val<T>],
    type_of: TypeOf<T>,
) -> Option<Spelled<T>> {
    let is_number: IsNumber<T> = &|l| is_number(type_of(l).as_ref());
    let numbers = op.schema.params.iter().zip(args).any(|(p, v)| {
        let takes_both = is_tensor(&p.ty) || p.ty == ParamType::Any;
        takes_both && matches!(v, Val::Leaf(l) if is_number(l) != Some(false))
    });
    let order = if numbers { OF_NUMBERS } else { OF_TENSORS };
    order.iter().find_map(|family| {
        let forms = op.forms.iter().filter(|f| !f.inplace);
        forms
            .flat_map(|f| f.paths().filter(|p| p.starts_with(family)).map(move |p| (f, p)))
            .filter_map(|(form, path)| in_form(op, form, path, args, is_number))
            .find(|spelled| is_accepted(spelled, type_of))
    })
}

/// The type of a leaf; `None` if it is unknown.
pub(crate) type TypeOf<'a, T> = &'a dyn Fn(&T) -> Option<Type>;

/// Whether a leaf is a Python number; `None` if that is unknown.
type IsNumber<'a, T> = &'a dyn Fn(&T) -> Option<bool>;

/// Whether torch's own signature accepts the call, and the arguments meet the spelling's demands. A row has one schema for
/// overloads that differ slightly: torch's `count_nonzero.default` takes one dim, and `count_nonzero.dim_IntList` a list;
/// `linalg.multi_dot` takes at least two tensors, and `chain_matmul` also one.
fn is_accepted<T>(spelled: &Spelled<T>, type_of: TypeOf<T>) -> bool {
    let typed = |v: &Val<T>| -> Type {
        match v.try_map(&mut |l| Ok::<Type, Infallible>(type_of(l).unwrap_or(Val::Unknown))) {
            Ok(ty) => ty,
        }
    };
    let path = canonical_path(&spelled.target, spelled.method);
    let args: Vec<Type> = spelled.args.iter().map(typed).collect();
    let kwargs: Vec<(&str, Type)> = spelled.kwargs.iter().map(|(k, v)| (k.as_str(), typed(v))).collect();
    let kwargs: Vec<(&str, &Type)> = kwargs.iter().map(|(k, t)| (*k, t)).collect();
    let Ok(checked) = check_signature(&path, &args, &kwargs) else {
        return false;
    };
    if args.iter().chain(kwargs.iter().map(|(_, t)| *t)).any(has_unknown) {
        return true;
    }
    match resolve_checked(&path, &args, &kwargs, checked) {
        Ok(spelling) => spelling.check_demands(&args, &kwargs).is_ok(),
        Err(_) => true,
    }
}

fn has_unknown(ty: &Type) -> bool {
    *ty == Val::Unknown || ty.items().is_some_and(|items| items.iter().any(has_unknown))
}

/// Whether values of a type are Python numbers; `None` if the type is unknown.
fn is_number(ty: Option<&Type>) -> Option<bool> {
    match ty? {
        Val::Unknown => None,
        Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Complex(..) => Some(true),
        Val::Any(kind) => Some(*kind != ScalarKind::Str),
        _ => Some(false),
    }
}

fn in_form<T: Clone + PartialEq>(
    op: &'static Op,
    form: &Form,
    path: &str,
    args: &[Val<T>],
    is_number: IsNumber<T>,
) -> Option<Spelled<T>> {
    // `aten.add` and classes like `torch.Tensor` do not name an overload.
    if path.starts_with("aten.") && path.matches('.').count() < 2 {
        return None;
    }
    let schema = form.schema_of(op);
    let mut values = form_values(op, form, schema, args)?;
    // ATen's convolutions have separate overloads for `padding` given as a string; the functions of the torch module
    // take both.
    let word = schema
        .index_of("padding")
        .is_some_and(|i| matches!(values[i], Val::Str(_)));
    if word && path.starts_with("aten.") && !path.ends_with(".padding") {
        return None;
    }
    if !as_torch_has_it(path, schema, &mut values) {
        return None;
    }
    let method = path.starts_with("Tensor.");
    if method && !matches!(values.first(), Some(Val::Leaf(_))) {
        return None;
    }
    let overload = path.starts_with("aten.") || path.starts_with("prims.");
    if !numbers_fit(schema, path, &values, is_number) {
        return None;
    }
    let (args, kwargs) = spell_args(schema, values, overload);
    (takes_keywords(path) || kwargs.is_empty()).then(|| Spelled {
        target: spelled_target(path, overload),
        method,
        args,
        kwargs,
    })
}

/// Whether a function accepts keyword arguments. Python's own functions do not.
fn takes_keywords(path: &str) -> bool {
    !["operator.", "math.", "builtins."].iter().any(|p| path.starts_with(p))
}

/// The target of a call that is spelled `path`. `overload` tells whether that is an overload of the dispatcher.
fn spelled_target(path: &str, overload: bool) -> String {
    // torch's `view` fails for some memory layouts. Here a view is defined by its elements, so `reshape` is the
    // equivalent.
    if path == "aten.view.default" {
        return "torch.ops.aten.reshape.default".to_string();
    }
    match (path.strip_prefix("Tensor."), overload) {
        (Some(method), _) => method.to_string(),
        (None, true) => format!("torch.ops.{path}"),
        (None, false) => path.to_string(),
    }
}

type SpelledArgs<T> = (Vec<Val<T>>, Vec<(String, Val<T>)>);

/// The positional and keyword arguments that give a schema's parameters these values. Defaults are omitted where possible.
fn spell_args<T: Clone + PartialEq>(schema: &Schema, values: Vec<Val<T>>, overload: bool) -> SpelledArgs<T> {
    let (mut args, mut kwargs) = (vec![], vec![]);
    let mut keep = 0;
    for (p, v) in schema.params.iter().zip(values) {
        let default = match &p.default {
            Some(d) => lift_literal::<T>(d) == v,
            None => v.is_none() && matches!(p.ty, ParamType::Optional(_)),
        };
        // Most overloads take `dtype` by keyword only, and all of them accept it as a keyword.
        let by_name = p.keyword_only || (overload && p.name == "dtype");
        if !by_name {
            args.push(v);
            if !default {
                keep = args.len();
            }
        } else if !default {
            kwargs.push((p.name.clone(), v));
        }
    }
    args.truncate(keep);
    (args, kwargs)
}

/// Whether torch's overload accepts these values; adapts them where rows have one schema for overloads that differ
/// slightly.
fn as_torch_has_it<T: Clone>(path: &str, schema: &Schema, values: &mut [Val<T>]) -> bool {
    match path {
        "aten.squeeze.dim" | "aten.any.dim" | "aten.all.dim" => {
            let Some(i) = schema.index_of("dim") else { return true };
            if let Val::List(v) = &values[i] {
                let [single] = &v[..] else { return false };
                values[i] = single.clone();
            }
            !values[i].is_none()
        }
        "aten.sym_size.default" | "aten.sym_stride.default" | "aten.size.default" | "aten.stride.default" => {
            schema.index_of("dim").is_none_or(|i| values[i].is_none())
        }
        "aten.sym_size.int" | "aten.sym_stride.int" | "aten.size.int" | "aten.stride.int" => {
            schema.index_of("dim").is_none_or(|i| !values[i].is_none())
        }
        "aten.squeeze.default" | "aten.any.default" | "aten.all.default" => {
            schema.index_of("dim").is_none_or(|i| values[i].is_none())
        }
        p if p.ends_with(".Tensor_mode") || p.ends_with(".Scalar_mode") => {
            schema.index_of("rounding_mode").is_some_and(|i| !values[i].is_none())
        }
        "aten.div.Tensor" | "aten.div.Scalar" | "aten.divide.Tensor" | "aten.divide.Scalar" => {
            schema.index_of("rounding_mode").is_none_or(|i| values[i].is_none())
        }
        _ => true,
    }
}

/// One value per parameter of the form; `None` if the form cannot express one of the row's values.
fn form_values<T: Clone + PartialEq>(op: &Op, form: &Form, schema: &Schema, args: &[Val<T>]) -> Option<Vec<Val<T>>> {
    let mut out: Vec<Option<Val<T>>> = vec![None; schema.params.len()];
    for (p, v) in op.schema.params.iter().zip(args) {
        if let Some((_, fixed)) = form.fixed.iter().find(|(n, _)| *n == p.name) {
            if lift_literal::<T>(fixed) != *v {
                return None;
            }
            continue;
        }
        match find_param(schema, &p.name) {
            Some(i) => out[i] = Some(v.clone()),
            None => {
                let default = p.default.as_ref().map_or(Val::None, lift_literal);
                if default != *v {
                    return None;
                }
            }
        }
    }
    let bound = schema.params.iter().zip(out);
    bound
        .map(|(p, v)| match (v, &p.default, &p.ty) {
            (Some(v), _, _) => Some(v),
            (None, Some(d), _) => Some(lift_literal(d)),
            (None, None, ParamType::Optional(_)) => Some(Val::None),
            _ => None,
        })
        .collect()
}

fn is_tensor(ty: &ParamType) -> bool {
    match ty {
        ParamType::Optional(t) => **t == ParamType::Tensor,
        t => *t == ParamType::Tensor,
    }
}

/// Whether torch accepts all numbers given for tensors: in few of ATen's overloads, at some positions of functions and
/// methods, everywhere in Python's operators.
fn numbers_fit<T>(schema: &Schema, path: &str, values: &[Val<T>], is_number: IsNumber<T>) -> bool {
    let number = |v: &Val<T>| match v {
        Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Complex(..) => true,
        Val::Leaf(l) => is_number(l) == Some(true),
        _ => false,
    };
    let params = schema.params.iter().zip(values).enumerate();
    let mut numbers = params
        .filter(|(_, (p, v))| is_tensor(&p.ty) && number(v))
        .map(|(i, _)| i);
    if path.starts_with("aten.") || path.starts_with("prims.") {
        return numbers.all(|i| i > 0 && NUMBERS.contains(&path));
    }
    numbers::allows_numbers(
        path,
        numbers.fold(0, |set, i| set | 1u32.checked_shl(i as u32).unwrap_or(0)),
    )
}
