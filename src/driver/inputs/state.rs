//! The state of a model: restores buffers that calls have changed.

use super::bind::{Given, Provided, Value, type_of};
use super::fill::filled_tensor;
use super::fit::unsupported_array;
use super::literal;
use crate::diag::{Code, Diagnostic, Diagnostics, nearest};
use crate::graph::{Attribute, AttributeKind, GraphModule, Mutation, Opcode};
use crate::tensor::{Tensor, byte_len, is_available};
use crate::types::{TensorType, Val};

/// The prefix of a buffer's name.
const BUFFER: &str = "buffer.";
/// The prefix of an input's name.
const INPUT: &str = "input.";

/// The name of a changed buffer or input in files: `buffer.running_mean`.
pub(crate) fn mutation_label(m: &Mutation) -> String {
    match m {
        Mutation::Buffer(path) => format!("{BUFFER}{path}"),
        Mutation::Input(name) => format!("{INPUT}{name}"),
    }
}

/// The target of an array in a state file. A buffer may be named with or without `buffer.`; results are skipped.
pub(crate) fn name_in_state(name: &str) -> Option<String> {
    let labelled = name.starts_with(BUFFER) || name.starts_with(INPUT);
    match name.strip_prefix("output.") {
        Some(n) if n.bytes().all(|b| b.is_ascii_digit()) => None,
        _ if labelled => Some(name.to_string()),
        _ => Some(format!("{BUFFER}{name}")),
    }
}

/// Whether the name of a value says that it is a buffer's.
pub(crate) fn is_buffer_label(name: &str) -> bool {
    name.starts_with(BUFFER)
}

/// Takes the values for buffers (`buffer.NAME`) out of `provided` and assigns them to the buffers. A value for an input
/// of the same name stays. Returns the buffers that were assigned, with names as from [`mutation_label`].
pub(crate) fn restore_buffers(
    module: &mut GraphModule,
    provided: &mut Vec<Provided>,
) -> (Vec<(String, Tensor)>, Diagnostics) {
    let (mut restored, mut out) = (vec![], Diagnostics::new());
    let mut rest = vec![];
    for p in std::mem::take(provided) {
        let path = p.name.strip_prefix(BUFFER).filter(|_| !is_input(module, &p.name));
        let Some(path) = path.map(str::to_string) else {
            rest.push(p);
            continue;
        };
        if !has_attribute(module, &path) {
            match p.must_match {
                true => out.push(unknown_buffer(module, &path)),
                false => rest.push(p),
            }
            continue;
        }
        if restored.iter().any(|(name, _)| *name == p.name) {
            let title = format!("`{}` is given twice, the second time by {}", p.name, p.origin);
            out.push(Diagnostic::new(Code::E0510, title));
            continue;
        }
        match buffer_value(module, &path, &p) {
            Ok(t) => {
                restored.push((p.name, t.clone()));
                set_attribute(module, &path, t);
            }
            Err(d) => out.push(d),
        }
    }
    *provided = rest;
    (restored, out)
}

/// The value that a program assigns to a buffer, if there is such a buffer and the type matches.
pub(crate) fn accept_value(module: &GraphModule, path: &str, given: Tensor) -> Result<Tensor, Diagnostic> {
    if !has_attribute(module, path) {
        return Err(unknown_buffer(module, path));
    }
    let provided = Provided {
        name: path.into(),
        given: Given::Value(Val::Leaf(given)),
        origin: "the program".into(),
        must_match: true,
    };
    buffer_value(module, path, &provided)
}

fn is_input(module: &GraphModule, name: &str) -> bool {
    let graph = module.entry();
    graph.is_some_and(|g| g.placeholders().iter().any(|&n| g[n].target() == name))
}

/// Whether the module has this attribute, or reads it.
fn has_attribute(module: &GraphModule, path: &str) -> bool {
    let reads = |g: &crate::graph::Graph| !g.find_nodes(Opcode::GetAttr, Some(path)).is_empty();
    module.attributes.contains_key(path) || module.graphs.values().any(reads)
}

fn unknown_buffer(module: &GraphModule, path: &str) -> Diagnostic {
    let d = Diagnostic::new(Code::E0505, format!("the graph has no buffer `{path}`"));
    match nearest(path, module.attributes.keys().map(|k| &**k)) {
        Some(near) => d.help(format!("there is a buffer with a similar name: `{near}`")),
        None => d,
    }
}

/// Sets the value of an attribute.
pub(crate) fn set_attribute(module: &mut GraphModule, path: &str, t: Tensor) {
    let made = || Attribute {
        kind: AttributeKind::Buffer,
        ty: Some(Val::Leaf(t.ty())),
        value: None,
        span: None,
    };
    module.attributes.entry(path.into()).or_insert_with(made).value = Some(t.clone());
}

/// The given value, if it has the buffer's type.
fn buffer_value(module: &GraphModule, path: &str, p: &Provided) -> Result<Tensor, Diagnostic> {
    let attribute = module.attributes.get(path);
    let declared = attribute.and_then(|a| a.ty.as_ref()?.as_leaf().cloned());
    let known = attribute.and_then(|a| a.value.as_ref()).map(Tensor::ty);
    let ty = known.or(declared);
    let t = provided_tensor(p, ty.as_ref())?;
    let fits = |ty: &TensorType| ty.dtype == t.dtype() && ty.fixed_shape().is_none_or(|s| s == t.shape());
    match ty {
        Some(ty) if !fits(&ty) => {
            let title = format!("buffer `{path}` must be {ty}, but {} provides {}", p.origin, t.ty());
            Err(Diagnostic::new(Code::E0406, title).help("restore a state that was saved from this model"))
        }
        _ => Ok(t),
    }
}

fn provided_tensor(p: &Provided, ty: Option<&TensorType>) -> Result<Tensor, Diagnostic> {
    let unknown = || {
        let title = format!("the type of `{}` is unknown, so it cannot be generated", p.name);
        Diagnostic::new(Code::E0304, title).help(format!("specify its type: `{}:f32[2, 3]=…`", p.name))
    };
    let written = |v: &Value, ty: &TensorType| {
        let shape = ty.fixed_shape().ok_or_else(unknown)?;
        literal::to_tensor(v, ty.dtype, Some(&shape)).map_err(|why| {
            let title = format!("`{}` must be {ty}, but {} provides {}", p.name, p.origin, type_of(v));
            Diagnostic::new(Code::E0503, title).note(why)
        })
    };
    match &p.given {
        Given::Value(Val::Leaf(t)) => Ok(t.clone()),
        Given::Value(v) => written(v, ty.ok_or_else(unknown)?),
        Given::Typed(v, Val::Leaf(ty)) => written(v, ty),
        Given::File(array) => array.read(),
        Given::Unsupported(ty) => Err(unsupported_array(&p.name, ty, &p.origin)),
        Given::Fill(fill, given) => {
            let ty = given.as_ref().or(ty).ok_or_else(unknown)?;
            let shape = ty.fixed_shape().ok_or_else(unknown)?;
            match ty.dtype.is_held() && byte_len(ty.dtype, &shape).is_some_and(is_available) {
                true => Ok(filled_tensor(ty.dtype, &shape, *fill)),
                false => Err(Diagnostic::new(
                    Code::E0504,
                    format!("`{}` cannot be allocated: {ty}", p.name),
                )),
            }
        }
        _ => {
            let title = format!("`{}` is a buffer, so its value must be a tensor", p.name);
            Err(Diagnostic::new(Code::E0503, title))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_file_of_state() {
        let named = |n: &str| name_in_state(n);
        assert_eq!(
            named("buffer.bn.running_mean").as_deref(),
            Some("buffer.bn.running_mean")
        );
        assert_eq!(named("bn.running_mean").as_deref(), Some("buffer.bn.running_mean"));
        assert_eq!(named("input.cache").as_deref(), Some("input.cache"));
        assert_eq!(named("output.0"), None);
        assert_eq!(named("output.weight").as_deref(), Some("buffer.output.weight"));
    }
}
