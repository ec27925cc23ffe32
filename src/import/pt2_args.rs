//! Arguments of nodes in an archive: the union `Argument` of torch's schema.

use super::json::{Bad, get_text, read_bool, read_float, read_int, read_items, read_union};
use super::pt2_graph::{ImportContext, Scope};
use super::pt2_scalars::read_scalar;
use crate::graph::Arg;
use crate::types::Val;
use serde_json::Value;

/// The maximum nesting depth of arguments. The JSON parser also limits the depth, in levels of JSON.
const MAX_DEPTH: usize = 64;

fn read_sequence(v: &Value, mut f: impl FnMut(&Value) -> Result<Arg, Bad>) -> Result<Arg, Bad> {
    read_items(v)?
        .iter()
        .map(&mut f)
        .collect::<Result<Vec<_>, _>>()
        .map(Val::List)
}

impl Scope {
    /// Reads one argument. Adds graphs in it to the module.
    pub(super) fn read_argument(&mut self, v: &Value, cx: &mut ImportContext, depth: usize) -> Result<Arg, Bad> {
        if depth > MAX_DEPTH {
            return Err(Bad::unsupported(format!("arguments nested more than {MAX_DEPTH} deep")));
        }
        let (kind, v) = read_union(v)?;
        if let Some(value) = read_scalar(kind, v)? {
            return Ok(value);
        }
        match kind {
            "as_tensor" => self.read_tensor(v),
            "as_tensors" => read_sequence(v, |v| self.read_tensor(v)),
            "as_nested_tensors" => read_sequence(v, |v| read_sequence(v, |v| self.read_tensor(v))),
            "as_optional_tensor" => self.read_optional_tensor(v),
            "as_optional_tensors" => read_sequence(v, |v| self.read_optional_tensor(v)),
            "as_sym_int" | "as_sym_float" | "as_sym_bool" => self.read_symbolic(v),
            "as_sym_ints" | "as_sym_floats" | "as_sym_bools" => read_sequence(v, |v| self.read_symbolic(v)),
            "as_ints" => read_sequence(v, |v| read_int(v).map(Val::int)),
            "as_floats" => read_sequence(v, |v| read_float(v).map(Val::Float)),
            "as_bools" => read_sequence(v, |v| read_bool(v).map(Val::Bool)),
            "as_strings" => read_sequence(v, |v| Ok(Val::str(v.as_str().ok_or("expected a string")?))),
            "as_int_lists" => read_sequence(v, |v| {
                let ints = read_items(v)?.iter().map(|v| read_int(v).map(Val::int));
                Ok(Val::Tuple(ints.collect::<Result<_, _>>()?))
            }),
            "as_float_lists" => read_sequence(v, |v| read_sequence(v, |v| read_float(v).map(Val::Float))),
            "as_string_to_argument" => {
                let items = v.as_object().ok_or("expected an object")?.iter();
                let pairs = items.map(|(k, v)| Ok((Val::str(k), self.read_argument(v, cx, depth + 1)?)));
                Ok(Val::Dict(pairs.collect::<Result<Vec<_>, Bad>>()?))
            }
            "as_graph" => cx.read_subgraph(v),
            "as_custom_obj" => Err(Bad::unsupported(format!(
                "the custom object `{}`",
                get_text(v, "class_fqn").unwrap_or("of an unknown class")
            ))),
            _ => Err(Bad::unsupported(format!("an argument of kind `{kind}`"))),
        }
    }

    fn read_tensor(&self, v: &Value) -> Result<Arg, Bad> {
        self.node_of_value(get_text(v, "name")?).map(Val::Leaf)
    }

    fn read_optional_tensor(&self, v: &Value) -> Result<Arg, Bad> {
        match read_union(v)? {
            ("as_none", _) => Ok(Val::None),
            (_, v) => self.read_tensor(v),
        }
    }

    /// A symbolic number: the name of a node, or a constant.
    fn read_symbolic(&self, v: &Value) -> Result<Arg, Bad> {
        match read_union(v)? {
            ("as_name", name) => self
                .node_of_value(name.as_str().ok_or("expected a name")?)
                .map(Val::Leaf),
            (kind, v) => read_scalar(kind, v)?.ok_or_else(|| format!("`{kind}` is not a number").into()),
        }
    }
}
