//! Binds the arguments of a module's constructor to its parameters, and rejects those that torch rejects.

use super::form::{ArgExpr, Need, ParsedForm, TRAINING};
use super::{all_hold, sizes};
use crate::diag::Code;
use crate::diag::words::count;
use crate::op::schema::Literal;
use crate::op::{BindError, OpError, write_literal};
use crate::types::Val;
use std::collections::HashMap;
use std::sync::Arc;

/// Whether modules of this form have weights.
fn has_weights(form: &ParsedForm) -> bool {
    let is_weight = |e: &ArgExpr| matches!(e, ArgExpr::Attr(_) | ArgExpr::RnnWeights | ArgExpr::Each { .. });
    form.args.iter().any(|(_, e)| is_weight(e))
}

/// The value of every constructor parameter.
pub(super) fn constructor_args(
    form: &ParsedForm,
    args: &[Literal],
    kwargs: &[(Arc<str>, Literal)],
) -> Result<HashMap<&'static str, Literal>, OpError> {
    let kwargs = named_args(form, args, kwargs)?;
    let positional = form.params.iter().filter(|p| !p.keyword_only);
    let mut out: HashMap<&'static str, Literal> = positional.zip(args).map(|(p, v)| (p.name, v.clone())).collect();
    for (name, v) in &kwargs {
        let fail = |problem: String| OpError {
            param: Some(name.to_string()),
            ..constructor_error(form, problem)
        };
        let Some(p) = form.params.iter().find(|p| p.name == &**name) else {
            // The device and dtype of weights do not affect the graph.
            if matches!(&**name, "device" | "dtype") && has_weights(form) {
                continue;
            }
            return Err(fail(format!("has no constructor parameter `{name}`")));
        };
        if out.insert(p.name, v.clone()).is_some() {
            return Err(fail(format!("constructor parameter `{name}` is given twice")));
        }
    }
    for p in &form.params {
        if !out.contains_key(p.name) {
            let missing = || constructor_error(form, format!("constructor argument `{}` is missing", p.name));
            out.insert(p.name, p.default.clone().ok_or_else(missing)?);
        }
    }
    if let (Some(size_average), Some(reduce)) = (out.get("size_average"), out.get("reduce"))
        && let Some(v) = legacy_reduction(size_average.as_int(), reduce.as_int())
    {
        out.insert("reduction", v);
    }
    Ok(out)
}

fn constructor_error(form: &ParsedForm, problem: String) -> OpError {
    OpError::new(Code::E0203, format!("`{}`: {problem}", form.name)).help(constructor_signature(form))
}

/// The arguments that are given by name. Those beyond the form's own positional parameters have torch's names: `device`,
/// `dtype`, `bias`.
fn named_args(
    form: &ParsedForm,
    args: &[Literal],
    kwargs: &[(Arc<str>, Literal)],
) -> Result<Vec<(Arc<str>, Literal)>, OpError> {
    let max = form.params.iter().filter(|p| !p.keyword_only).count();
    let positional = args.len().min(max);
    let names = crate::op::signature::constructor_parameters(form.name);
    if args.len() > max.max(names.len()) {
        let problem = format!(
            "takes {}, but {} were given",
            count(max.max(names.len()), "constructor argument"),
            args.len()
        );
        return Err(constructor_error(form, problem));
    }
    let rest = names
        .into_iter()
        .skip(positional)
        .zip(args[positional..].iter().cloned());
    Ok(rest.chain(kwargs.iter().cloned()).collect())
}

/// Returns an error if torch rejects the arguments of a constructor.
pub(super) fn check_values(
    form: &ParsedForm,
    arguments: &HashMap<&'static str, Literal>,
    args: &[Literal],
    kwargs: &[(Arc<str>, Literal)],
) -> Result<(), OpError> {
    check_types(form, args, kwargs)?;
    crate::op::demands::check_module(form.name, arguments)?;
    let attributes = form.args.iter().filter_map(|(_, e)| match e {
        ArgExpr::Attr(a) if !matches!(&a.need, Need::When(c) if !all_hold(c, arguments)) => Some(a),
        _ => None,
    });
    if attributes.clone().next().is_some() {
        check_device(form, args, kwargs)?;
    }
    let shapes = attributes.filter_map(|a| sizes::negative_shape(a.sizes.as_deref()?, arguments));
    match shapes.into_iter().next() {
        None => Ok(()),
        Some(shape) => {
            let least = shape.iter().min().copied().unwrap_or(0);
            let problem = format!("Trying to create tensor with negative dimension {least}: {shape:?}");
            Err(OpError::new(Code::E0202, problem).help(constructor_signature(form)))
        }
    }
}

/// Returns an error if `device`, given by position or by name, is not a device. Only modules with weights check it.
fn check_device(form: &ParsedForm, args: &[Literal], kwargs: &[(Arc<str>, Literal)]) -> Result<(), OpError> {
    let names = crate::op::signature::constructor_parameters(form.name);
    let positional = names.iter().position(|n| &**n == "device").and_then(|i| args.get(i));
    let device = positional.or_else(|| kwargs.iter().find(|(k, _)| &**k == "device").map(|(_, v)| v));
    match device {
        Some(Val::None | Val::Str(_) | Val::Device(_) | Val::Int(_)) | None => Ok(()),
        Some(v) => {
            let title = format!(
                "constructor argument `device` of `{}` must be a device, not {}",
                form.name,
                v.kind_name()
            );
            Err(OpError::arg("device", title).help(constructor_signature(form)))
        }
    }
}

/// Returns an error if torch rejects the kind of a constructor argument. [`constructor_args`] reports other errors.
fn check_types(form: &ParsedForm, args: &[Literal], kwargs: &[(Arc<str>, Literal)]) -> Result<(), OpError> {
    // `training` is a mode, not a constructor argument.
    let checked: Vec<_> = kwargs.iter().filter(|(k, _)| &**k != TRAINING).cloned().collect();
    match crate::op::signature::check_constructor(form.name, args, &checked) {
        Err(BindError::WrongType {
            param, expected, found, ..
        }) => {
            let title = format!(
                "constructor argument `{param}` of `{}` must be {expected}, not {found}",
                form.name
            );
            Err(OpError::arg(&param, title).help(constructor_signature(form)))
        }
        Err(BindError::TooMany { given, max }) => {
            let most = count(max, "constructor argument");
            let title = format!(
                "`{}` takes at most {most} by position, but {given} were given",
                form.name
            );
            Err(OpError::new(Code::E0203, title).help(constructor_signature(form)))
        }
        // Forms omit `device` and `dtype`, and not every class takes both.
        Err(BindError::UnknownKeyword { name, .. }) => {
            let title = format!("`{}` has no constructor parameter `{name}`", form.name);
            let e = OpError::new(Code::E0203, title).help(constructor_signature(form));
            Err(OpError { param: Some(name), ..e })
        }
        _ => Ok(()),
    }
}

/// The reduction that a loss's deprecated arguments `size_average` and `reduce` select; `None` if neither is given.
pub(in crate::op) fn legacy_reduction(size_average: Option<i64>, reduce: Option<i64>) -> Option<Literal> {
    size_average.or(reduce)?;
    Some(Val::str(match (size_average.unwrap_or(1), reduce.unwrap_or(1)) {
        (_, 0) => "none",
        (0, _) => "sum",
        _ => "mean",
    }))
}

fn constructor_signature(form: &ParsedForm) -> String {
    let mut parts: Vec<String> = vec![];
    for p in form.params.iter().filter(|p| p.name != TRAINING) {
        if p.keyword_only && !parts.contains(&"*".to_string()) {
            parts.push("*".into());
        }
        parts.push(match &p.default {
            Some(d) => format!("{}={}", p.name, write_literal(d)),
            None => p.name.into(),
        });
    }
    format!("the constructor is `{}({})`", form.name, parts.join(", "))
}
