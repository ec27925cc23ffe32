//! The weights and constructor arguments of a module's parts.

use super::{ArgumentSource, Below, Constructed, has_attribute, sizes};
use crate::diag::Code;
use crate::op::OpError;
use crate::op::modules::classes::{base_name, expect_forms};
use crate::op::modules::constructor::constructor_args;
use crate::op::modules::form::{ArgExpr, ParsedForm, PartAttributes};
use crate::op::modules::sizes::AttributeSizes;
use crate::op::schema::Literal;
use crate::types::Val;
use std::collections::HashMap;
use std::sync::Arc;

/// Lists `weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0`, then those of the reverse direction, then the next
/// layer's.
pub(super) fn rnn_weights(
    class: &str,
    arguments: &HashMap<&str, Literal>,
    sizes: &mut AttributeSizes,
) -> ArgumentSource {
    let int = |name: &str| arguments.get(name).and_then(Val::as_int).unwrap_or(0);
    let mut kinds = vec!["weight_ih", "weight_hh"];
    if int("bias") != 0 {
        kinds.extend(["bias_ih", "bias_hh"]);
    }
    if int("proj_size") > 0 {
        kinds.push("weight_hr");
    }
    let suffixes: &[&str] = if int("bidirectional") != 0 {
        &["", "_reverse"]
    } else {
        &[""]
    };
    let mut list = vec![];
    for layer in 0..int("num_layers").clamp(1, 1024) {
        for suffix in suffixes {
            for k in &kinds {
                let name: Arc<str> = format!("{k}_l{layer}{suffix}").into();
                sizes.extend(sizes::recurrent_shape(class, k, layer, arguments).map(|s| (name.clone(), s)));
                list.push(ArgumentSource::Attr(name));
            }
        }
    }
    ArgumentSource::List(list)
}

/// The number of parts that a constructor argument gives: a number, or the length of a list.
pub(super) fn count_of(v: &Literal) -> usize {
    let n = v.items().map(<[_]>::len);
    n.unwrap_or_else(|| v.as_int().and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
}

/// The maximum number of parts of one kind. More indicates a mistake in the file.
const MOST_PARTS: usize = 1024;

/// The attributes of all parts.
pub(super) fn part_sources(
    count: usize,
    attributes: &PartAttributes,
    arguments: &HashMap<&str, Literal>,
    below: &dyn Below,
    sizes: &mut AttributeSizes,
) -> Result<ArgumentSource, OpError> {
    if count > MOST_PARTS {
        return Err(OpError::new(
            Code::E0203,
            format!("the module has {count} parts; the limit is {MOST_PARTS}"),
        ));
    }
    let mut list = vec![];
    for i in 0..count {
        let numbered = |path: &str| path.replace('*', &i.to_string());
        match attributes {
            PartAttributes::Paths(paths) => list.extend(paths.iter().map(|(path, optional)| {
                let path = numbered(path);
                match *optional && !below.has_attr(&path) {
                    true => ArgumentSource::Value(Val::None),
                    false => ArgumentSource::Attr(path.into()),
                }
            })),
            PartAttributes::OfClass { path, class } => {
                list.extend(class_sources(
                    &expect_forms(class)[0],
                    &numbered(path),
                    arguments,
                    below,
                    sizes,
                )?);
            }
        }
    }
    Ok(ArgumentSource::List(list))
}

/// The attributes of the part at `path`. A part that is not declared separately is constructed from the arguments of the
/// whole.
fn class_sources(
    class: &ParsedForm,
    path: &str,
    arguments: &HashMap<&str, Literal>,
    below: &dyn Below,
    sizes: &mut AttributeSizes,
) -> Result<Vec<ArgumentSource>, OpError> {
    let part_arguments = below.part(path).map(|p| constructor_args(class, p.args, p.kwargs));
    let part_arguments = part_arguments.transpose()?;
    let arguments = part_arguments.as_ref().unwrap_or(arguments);
    let mut list = vec![];
    for (_, e) in &class.args {
        let ArgExpr::Attr(a) = e else { continue };
        let name: Arc<str> = format!("{path}.{}", a.name).into();
        if !has_attribute(a, &name, arguments, below) {
            list.push(ArgumentSource::Value(Val::None));
            continue;
        }
        sizes.extend(sizes::known_shape(a.sizes.as_deref(), arguments).map(|s| (name.clone(), s)));
        list.push(ArgumentSource::Attr(name));
    }
    Ok(list)
}

/// The default of the constructor parameter `param`.
fn default_argument(form: &ParsedForm, param: &str) -> Option<Literal> {
    form.params.iter().find(|p| p.name == param)?.default.clone()
}

/// The constructor argument `param` of the part at `path`, which must be of class `class`. Its siblings under other
/// numbers (`layers.1` for `layers.0`) must be constructed alike, because one op computes them all.
pub(super) fn part_argument(
    form: &ParsedForm,
    path: &str,
    class: &'static str,
    param: &str,
    optional: bool,
    below: &dyn Below,
) -> Result<Literal, OpError> {
    let fail = |problem: String| {
        let help = format!(
            "declare it as `module PATH.{path} = {class}(…)`; torch2fxir.py writes parts of other classes as graphs"
        );
        Err(OpError::new(Code::E0203, format!("`{}`: {problem}", form.name)).help(help))
    };
    let forms = expect_forms(class);
    let Some(part) = below.part(path) else {
        if !optional {
            return fail(format!("its part `{path}` is not declared"));
        }
        let default = default_argument(&forms[0], param);
        let has_weight = below.has_attr(&format!("{path}.weight"));
        return Ok(default.filter(|_| has_weight).unwrap_or(Val::None));
    };
    let arguments = |part: Constructed<'_>| constructor_args(&forms[0], part.args, part.kwargs);
    if base_name(part.class) != class {
        return fail(format!("its part `{path}` is a `{}`, not a `{class}`", part.class));
    }
    let first = arguments(part)?;
    if let Some(stem) = path.strip_suffix('0') {
        for i in 1..MOST_PARTS {
            let Some(other) = below.part(&format!("{stem}{i}")) else {
                break;
            };
            if base_name(other.class) != class || arguments(other)? != first {
                return fail(format!("`{stem}{i}` has different constructor arguments from `{path}`"));
            }
        }
    }
    Ok(first[param].clone())
}
