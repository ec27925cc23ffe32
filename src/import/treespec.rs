//! The nesting of a model's results: torch's pytree specifications (`torch/utils/_pytree.py`, protocol 1).

use super::json::{Bad, get_list, get_member, get_optional, read_items};
use crate::graph::PyTreeParams;
use crate::tensor::files::parse_json;
use crate::types::Val;
use serde_json::Value;

/// Nests `leaves` as the specification `spec` (a JSON text) describes. Named tuples become tuples; data classes and the
/// outputs of transformers become dicts with their field names as keys.
pub(super) fn nest_leaves(spec: &str, leaves: Vec<Val<usize>>) -> Result<Val<usize>, Bad> {
    let spec: Value = parse_json(spec.as_bytes()).map_err(|e| format!("not JSON: {e}"))?;
    let root = match read_items(&spec)? {
        [version, root] if version.as_i64() == Some(1) => root,
        _ => return Err("expected a tree specification of version 1".into()),
    };
    let count = leaves.len();
    let mut leaves = leaves.into_iter();
    let value = build_value(root, &mut leaves)?;
    match leaves.len() {
        0 => Ok(value),
        n => Err(format!("it describes {} values, but there are {count}", count - n).into()),
    }
}

/// The parameters that the specification `spec` of a program's inputs flattens, if any of them is nested: positional
/// and keyword parameters, with `names` as their names in this order.
pub(super) fn parse_called(spec: &str, names: Option<Vec<String>>, inputs: usize) -> Result<Option<PyTreeParams>, Bad> {
    let leaves = (0..inputs).map(Val::Leaf).collect();
    let Val::Tuple(parts) = nest_leaves(spec, leaves)? else {
        return Ok(None);
    };
    let (args, kwargs) = match &parts[..] {
        [Val::Tuple(args), Val::Dict(kwargs)] => (args, &kwargs[..]),
        [Val::Tuple(args), Val::Tuple(none)] if none.is_empty() => (args, &[][..]),
        _ => return Ok(None),
    };
    let is_leaf = |v: &Val<usize>| matches!(v, Val::Leaf(_));
    if args.iter().chain(kwargs.iter().map(|(_, v)| v)).all(is_leaf) {
        return Ok(None);
    }
    let keys = kwargs.iter().filter_map(|(k, _)| match k {
        Val::Str(s) => Some(s.to_string()),
        _ => None,
    });
    let keys: Vec<String> = keys.collect();
    let given = names.filter(|n| n.len() == args.len() + kwargs.len());
    let positional = match given {
        Some(names) => names.into_iter().take(args.len()).collect(),
        None => (0..args.len()).map(|i| format!("arg_{i}")).collect(),
    };
    Ok(Some(PyTreeParams {
        args: positional,
        kwargs: Some(keys),
        inputs,
    }))
}

fn build_value(spec: &Value, leaves: &mut std::vec::IntoIter<Val<usize>>) -> Result<Val<usize>, Bad> {
    let Some(ty) = get_optional(spec, "type") else {
        return leaves
            .next()
            .ok_or_else(|| "it describes more values than there are".into());
    };
    let ty = ty.as_str().ok_or("a type must be a string")?;
    let children = get_list(spec, "children_spec")?;
    let values = children
        .iter()
        .map(|c| build_value(c, leaves))
        .collect::<Result<Vec<Val<usize>>, Bad>>()?;
    match ty {
        "builtins.tuple" | "collections.namedtuple" => Ok(Val::Tuple(values)),
        "builtins.list" | "collections.deque" => Ok(Val::List(values)),
        _ => match context_keys(spec, values.len())? {
            Some(keys) => Ok(Val::Dict(keys.into_iter().zip(values).collect())),
            None => Ok(Val::Tuple(values)),
        },
    }
}

/// The keys in the context of a dict-like type, if their number equals that of the children.
fn context_keys(spec: &Value, count: usize) -> Result<Option<Vec<Val<usize>>>, Bad> {
    let context = match get_optional(spec, "context") {
        // Most contexts are strings that contain JSON; that of a defaultdict is JSON itself.
        Some(Value::String(s)) => parse_json(s.as_bytes()).unwrap_or(Value::Null),
        Some(v) => v.clone(),
        None => Value::Null,
    };
    // A defaultdict has its keys next to its factory. A data class has the fields that are set, then those that are
    // `None`.
    let context = match &context {
        Value::Object(_) => get_member(&context, "dict_context")?,
        Value::Array(v) => match &v[..] {
            [Value::Array(fields), Value::Array(_)] if fields.len() == count => &v[0],
            _ => &context,
        },
        _ => &context,
    };
    let Some(list) = context.as_array().filter(|l| l.len() == count) else {
        return Ok(None);
    };
    Ok(list.iter().map(context_key).collect())
}

fn context_key(v: &Value) -> Option<Val<usize>> {
    match v {
        Value::String(s) => Some(Val::str(s)),
        Value::Bool(b) => Some(Val::Bool(*b)),
        Value::Number(n) => Some(
            n.as_i64()
                .map(Val::int)
                .or_else(|| n.as_f64().map(Val::Float))
                .unwrap_or(Val::None),
        ),
        Value::Null => Some(Val::None),
        // A tuple, which JSON writes as a list.
        Value::Array(v) => v
            .iter()
            .map(context_key)
            .collect::<Option<Vec<Val<usize>>>>()
            .map(Val::Tuple),
        Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: &str = r#"{"type": null, "context": null, "children_spec": []}"#;

    fn nested(root: &str, n: i64) -> Result<String, Bad> {
        let v = nest_leaves(&format!("[1, {root}]"), (0..n as usize).map(Val::Leaf).collect())?;
        Ok(crate::graph::pyrepr::repr(&v, &|i| i.to_string()))
    }

    fn node(ty: &str, context: &str, n: usize) -> String {
        let context = serde_json::to_string(context).unwrap();
        format!(
            r#"{{"type": "{ty}", "context": {context}, "children_spec": [{}]}}"#,
            vec![LEAF; n].join(", ")
        )
    }

    #[test]
    fn containers_of_every_kind() {
        let context = r#"{"default_factory_module": "builtins", "default_factory_name": "int", "dict_context": ["a"]}"#;
        let default =
            format!(r#"{{"type": "collections.defaultdict", "context": {context}, "children_spec": [{LEAF}]}}"#);
        for (spec, n, want) in [
            (LEAF.to_string(), 1, "0"),
            (node("builtins.tuple", "null", 1), 1, "(0,)"),
            (node("builtins.list", "null", 2), 2, "[0, 1]"),
            (node("builtins.dict", r#"["a", 7]"#, 2), 2, "{'a': 0, 7: 1}"),
            (node("collections.OrderedDict", r#"["a"]"#, 1), 1, "{'a': 0}"),
            (node("builtins.dict", "[[1, 2]]", 1), 1, "{(1, 2): 0}"),
            (default, 1, "{'a': 0}"),
            (node("collections.namedtuple", "Point", 2), 2, "(0, 1)"),
            (node("m.Data", r#"[["x", "y"], ["z"]]"#, 2), 2, "{'x': 0, 'y': 1}"),
            (node("transformers.Output", r#"["logits"]"#, 1), 1, "{'logits': 0}"),
        ] {
            assert_eq!(nested(&spec, n).as_deref(), Ok(want));
        }
    }

    #[test]
    fn counts_must_agree() {
        assert!(nested(&node("builtins.tuple", "null", 2), 1).is_err());
        assert!(nested(&node("builtins.tuple", "null", 2), 3).is_err());
        assert!(nest_leaves("[2, {}]", vec![]).is_err());
        assert!(nest_leaves("[1, ", vec![]).is_err());
    }
}
