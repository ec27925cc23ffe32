//! Arguments of nodes in an archive: the union `Argument` of torch's schema.

use super::json::{Bad, boolean, float, int, items, text, union};
use super::pt2_graph::{Context, Scope};
use super::pt2_scalars::scalar;
use crate::graph::Arg;
use crate::types::Val;
use serde_json::Value;

/// How deep arguments may nest; the JSON reader has a limit of its own, in levels of JSON.
const MAX_DEPTH: usize = 64;

fn seq(v: &Value, mut f: impl FnMut(&Value) -> Result<Arg, Bad>) -> Result<Arg, Bad> {
    items(v)?
        .iter()
        .map(&mut f)
        .collect::<Result<Vec<_>, _>>()
        .map(Val::List)
}

impl Scope {
    /// One argument. Graphs in it become graphs of the module.
    pub fn argument(&mut self, v: &Value, cx: &mut Context, depth: usize) -> Result<Arg, Bad> {
        if depth > MAX_DEPTH {
            return Err(Bad::unsupported(format!("arguments nested more than {MAX_DEPTH} deep")));
        }
        let (kind, v) = union(v)?;
        if let Some(value) = scalar(kind, v)? {
            return Ok(value);
        }
        match kind {
            "as_tensor" => self.tensor(v),
            "as_tensors" => seq(v, |v| self.tensor(v)),
            "as_nested_tensors" => seq(v, |v| seq(v, |v| self.tensor(v))),
            "as_optional_tensor" => self.optional_tensor(v),
            "as_optional_tensors" => seq(v, |v| self.optional_tensor(v)),
            "as_sym_int" | "as_sym_float" | "as_sym_bool" => self.symbolic(v),
            "as_sym_ints" | "as_sym_floats" | "as_sym_bools" => seq(v, |v| self.symbolic(v)),
            "as_ints" => seq(v, |v| int(v).map(Val::int)),
            "as_floats" => seq(v, |v| float(v).map(Val::Float)),
            "as_bools" => seq(v, |v| boolean(v).map(Val::Bool)),
            "as_strings" => seq(v, |v| Ok(Val::str(v.as_str().ok_or("expected a string")?))),
            "as_int_lists" => seq(v, |v| {
                let ints = items(v)?
                    .iter()
                    .map(|v| int(v).map(Val::int))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(Val::Tuple(ints))
            }),
            "as_float_lists" => seq(v, |v| seq(v, |v| float(v).map(Val::Float))),
            "as_string_to_argument" => {
                let object = v.as_object().ok_or("expected an object")?;
                let pairs = object
                    .iter()
                    .map(|(k, v)| Ok((Val::str(k), self.argument(v, cx, depth + 1)?)));
                Ok(Val::Dict(pairs.collect::<Result<Vec<_>, Bad>>()?))
            }
            "as_graph" => cx.graph(v),
            "as_custom_obj" => Err(Bad::unsupported(format!(
                "the custom object `{}`",
                text(v, "class_fqn").unwrap_or("of an unknown class")
            ))),
            _ => Err(Bad::unsupported(format!("an argument of kind `{kind}`"))),
        }
    }

    fn tensor(&self, v: &Value) -> Result<Arg, Bad> {
        self.value(text(v, "name")?).map(Val::Leaf)
    }

    fn optional_tensor(&self, v: &Value) -> Result<Arg, Bad> {
        match union(v)? {
            ("as_none", _) => Ok(Val::None),
            (_, v) => self.tensor(v),
        }
    }

    /// A symbolic number: the name of a node, or a constant.
    fn symbolic(&self, v: &Value) -> Result<Arg, Bad> {
        match union(v)? {
            ("as_name", name) => self.value(name.as_str().ok_or("expected a name")?).map(Val::Leaf),
            (kind, v) => scalar(kind, v)?.ok_or_else(|| format!("`{kind}` is not a number").into()),
        }
    }
}
