//! A canonical call in torch's words: the inverse of resolving a spelling.

use super::bind::find_param;
use super::{Form, Op, ParamType, Schema, lift};
use crate::types::Val;

/// A call as torch spells it.
#[derive(Clone, Debug)]
pub struct Spelled<T> {
    /// The path: `torch.ops.aten.add.Tensor`, `torch.where`, or a method's name.
    pub target: String,
    /// Whether it is a method of the first argument.
    pub method: bool,
    /// Arguments by position.
    pub args: Vec<Val<T>>,
    /// Arguments by name.
    pub kwargs: Vec<(String, Val<T>)>,
}

/// Ops whose ATen overloads take numbers for tensors (torch's `should_allow_numbers_as_tensors`).
const NUMBERS: [&str; 8] = [
    "aten.add.Tensor",
    "aten.sub.Tensor",
    "aten.mul.Tensor",
    "aten.div.Tensor",
    "aten.div.Tensor_mode",
    "aten.rsub.Tensor",
    "aten.floor_divide.default",
    "aten.remainder.Tensor",
];

/// `op` with one argument per parameter of its row, in the first of its spellings that torch has and that can say it: ATen's
/// overloads first, then functions of the torch module, of `operator`, methods.
pub fn spell<T: Clone + PartialEq>(op: &'static Op, args: &[Val<T>]) -> Option<Spelled<T>> {
    const ORDER: [&str; 5] = ["aten.", "torch.", "operator.", "prims.", "Tensor."];
    ORDER.iter().find_map(|family| {
        let forms = op.forms.iter().filter(|f| !f.inplace);
        forms
            .flat_map(|f| f.paths.iter().filter(|p| p.starts_with(family)).map(move |p| (f, *p)))
            .find_map(|(form, path)| in_form(op, form, path, args))
    })
}

fn in_form<T: Clone + PartialEq>(op: &'static Op, form: &Form, path: &str, args: &[Val<T>]) -> Option<Spelled<T>> {
    // `aten.add` and `torch.Tensor` classes name no overload.
    if path.starts_with("aten.") && path.matches('.').count() < 2 {
        return None;
    }
    let schema = form.schema.as_ref().unwrap_or(&op.schema);
    let mut values = values(op, form, schema, args)?;
    // Convolutions have overloads of their own for padding that is a word; the functions of the torch module take both.
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
    if overload && !tensors_fit(schema, path, &values) {
        return None;
    }
    let mut out = Spelled {
        target: match (method, overload) {
            // A view that torch refuses where the memory is not laid out for it; here a view is what its elements are.
            _ if path == "aten.view.default" => "torch.ops.aten.reshape.default".to_string(),
            (true, _) => path["Tensor.".len()..].to_string(),
            (_, true) => format!("torch.ops.{path}"),
            _ => path.to_string(),
        },
        method,
        args: vec![],
        kwargs: vec![],
    };
    let mut keep = 0;
    for (p, v) in schema.params.iter().zip(values) {
        let default = match &p.default {
            Some(d) => lift::<T>(d) == v,
            None => v.is_none() && matches!(p.ty, ParamType::Optional(_)),
        };
        // Most overloads have it by name only, and none refuses it so.
        let by_name = p.keyword_only || (overload && p.name == "dtype");
        if !by_name {
            out.args.push(v);
            if !default {
                keep = out.args.len();
            }
        } else if !default {
            out.kwargs.push((p.name.clone(), v));
        }
    }
    out.args.truncate(keep);
    Some(out)
}

/// Whether torch's overload takes these values, brought to what it takes: rows have one schema for overloads that differ in
/// small ways.
fn as_torch_has_it<T: Clone>(path: &str, schema: &Schema, values: &mut [Val<T>]) -> bool {
    match path {
        "aten.squeeze.dim" | "aten.any.dim" | "aten.all.dim" => {
            let Some(i) = schema.index_of("dim") else { return true };
            if let Val::List(v) = &values[i] {
                let [one] = &v[..] else { return false };
                values[i] = one.clone();
            }
            !values[i].is_none()
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

/// One value per parameter of the form; `None` if the form cannot say a value of the row.
fn values<T: Clone + PartialEq>(op: &Op, form: &Form, schema: &Schema, args: &[Val<T>]) -> Option<Vec<Val<T>>> {
    let mut out: Vec<Option<Val<T>>> = vec![None; schema.params.len()];
    for (p, v) in op.schema.params.iter().zip(args) {
        if let Some((_, fixed)) = form.fixed.iter().find(|(n, _)| *n == p.name) {
            if lift::<T>(fixed) != *v {
                return None;
            }
            continue;
        }
        match find_param(schema, &p.name) {
            Some(i) => out[i] = Some(v.clone()),
            None => {
                let default = p.default.as_ref().map_or(Val::None, lift);
                if default != *v {
                    return None;
                }
            }
        }
    }
    let given = schema.params.iter().zip(out);
    given
        .map(|(p, v)| match (v, &p.default, &p.ty) {
            (Some(v), _, _) => Some(v),
            (None, Some(d), _) => Some(lift(d)),
            (None, None, ParamType::Optional(_)) => Some(Val::None),
            _ => None,
        })
        .collect()
}

/// Whether tensor parameters have tensors, which ATen's overloads ask for.
fn tensors_fit<T>(schema: &Schema, path: &str, values: &[Val<T>]) -> bool {
    let number = |v: &Val<T>| matches!(v, Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Complex(..));
    schema.params.iter().zip(values).enumerate().all(|(i, (p, v))| {
        let tensor = match &p.ty {
            ParamType::Tensor => true,
            ParamType::Optional(t) => **t == ParamType::Tensor,
            _ => false,
        };
        !tensor || !number(v) || (i > 0 && NUMBERS.contains(&path))
    })
}
