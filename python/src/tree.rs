//! The nesting of a model's arguments: torch's pytree specifications, as stored in archives.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use serde_json::Value;

/// The nesting of a value.
#[derive(Debug)]
pub(crate) enum Tree {
    /// A tensor, a number, None, …
    Leaf,
    Tuple(Vec<Tree>),
    List(Vec<Tree>),
    Dict(Vec<(Key, Tree)>),
    /// An instance of a class that is registered with torch's pytree: a named tuple, a data class, a key-value cache.
    Other(String, Vec<Tree>),
}

/// A key of a dict.
#[derive(Debug)]
pub(crate) enum Key {
    Str(String),
    Int(i64),
}

impl Key {
    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            Key::Str(s) => s.into_pyobject(py)?.into_any(),
            Key::Int(i) => i.into_pyobject(py)?.into_any(),
        })
    }
}

impl Tree {
    /// The tree of a specification (a JSON text of version 1).
    pub(crate) fn parse(spec: &str) -> Option<Tree> {
        let spec: Value = serde_json::from_str(spec).ok()?;
        match spec.as_array()?.as_slice() {
            [version, root] if version.as_i64() == Some(1) => build(root),
            _ => None,
        }
    }

    /// The number of leaves.
    pub(crate) fn leaf_count(&self) -> usize {
        match self {
            Tree::Leaf => 1,
            Tree::Tuple(v) | Tree::List(v) | Tree::Other(_, v) => v.iter().map(Tree::leaf_count).sum(),
            Tree::Dict(v) => v.iter().map(|(_, t)| t.leaf_count()).sum(),
        }
    }

    /// Calls `each` with the leaves of `value`, in order. `place` is the name of the value in messages.
    pub(crate) fn flatten<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        place: &str,
        each: &mut dyn FnMut(&Bound<'py, PyAny>, &str) -> PyResult<()>,
    ) -> PyResult<()> {
        match self {
            Tree::Leaf => each(value, place),
            Tree::Tuple(parts) => {
                let items = value.cast::<PyTuple>().map_err(|_| wrong(value, place, "a tuple"))?;
                flatten_items(parts, &items.iter().collect::<Vec<_>>(), value, place, each)
            }
            Tree::List(parts) => {
                let items = value.cast::<PyList>().map_err(|_| wrong(value, place, "a list"))?;
                flatten_items(parts, &items.iter().collect::<Vec<_>>(), value, place, each)
            }
            Tree::Dict(parts) => flatten_dict(parts, value, place, each),
            Tree::Other(class, parts) => {
                let module = value.py().import(intern!(value.py(), "fxc._tree"))?;
                let items: Vec<Bound<'py, PyAny>> =
                    module.call_method1("children", (value, class, place))?.extract()?;
                flatten_items(parts, &items, value, place, each)
            }
        }
    }
}

fn flatten_items<'py>(
    parts: &[Tree],
    items: &[Bound<'py, PyAny>],
    value: &Bound<'py, PyAny>,
    place: &str,
    each: &mut dyn FnMut(&Bound<'py, PyAny>, &str) -> PyResult<()>,
) -> PyResult<()> {
    if parts.len() != items.len() {
        let (expected, found) = (parts.len(), items.len());
        let class = value.get_type().name()?;
        return Err(PyValueError::new_err(format!(
            "`{place}` is a {class} with {found} items, but the model was exported with {expected}"
        )));
    }
    let mut numbered = parts.iter().zip(items).enumerate();
    numbered.try_for_each(|(i, (part, item))| part.flatten(item, &format!("{place}[{i}]"), each))
}

fn flatten_dict<'py>(
    parts: &[(Key, Tree)],
    value: &Bound<'py, PyAny>,
    place: &str,
    each: &mut dyn FnMut(&Bound<'py, PyAny>, &str) -> PyResult<()>,
) -> PyResult<()> {
    let py = value.py();
    let dict = value.cast::<PyDict>().map_err(|_| wrong(value, place, "a dict"))?;
    for (key, part) in parts {
        let key = key.to_python(py)?;
        let item = dict.get_item(&key)?.ok_or_else(|| {
            let words = format!(
                "`{place}` lacks the key {}, with which the model was exported",
                shown(&key)
            );
            PyValueError::new_err(words)
        })?;
        part.flatten(&item, &format!("{place}[{}]", shown(&key)), each)?;
    }
    if dict.len() > parts.len() {
        let known: Vec<String> = parts
            .iter()
            .filter_map(|(k, _)| Some(shown(&k.to_python(py).ok()?)))
            .collect();
        let extra = dict.keys().iter().map(|k| shown(&k)).find(|k| !known.contains(k));
        let words = format!(
            "`{place}` has an extra key {}, without which the model was exported",
            extra.unwrap_or_default()
        );
        return Err(PyValueError::new_err(words));
    }
    Ok(())
}

fn shown(value: &Bound<'_, PyAny>) -> String {
    value.repr().map_or_else(|_| "?".to_string(), |r| r.to_string())
}

fn wrong(value: &Bound<'_, PyAny>, place: &str, expected: &str) -> PyErr {
    let class = value.get_type();
    let class = class.name().map_or_else(|_| "?".to_string(), |n| n.to_string());
    PyTypeError::new_err(format!("`{place}` must be {expected}, as in the export, not {class}"))
}

/// Whether a specification nests only tuples, lists and dicts.
pub(crate) fn is_plain(spec: &str) -> bool {
    fn all_plain(spec: &Value) -> bool {
        let plain = match spec.get("type").and_then(Value::as_str) {
            None | Some("builtins.tuple" | "builtins.list" | "builtins.dict") => true,
            Some(_) => false,
        };
        let children = spec.get("children_spec").and_then(Value::as_array);
        plain && children.into_iter().flatten().all(all_plain)
    }
    let spec: Value = serde_json::from_str(spec).unwrap_or_default();
    spec.get(1).is_some_and(all_plain)
}

fn build(spec: &Value) -> Option<Tree> {
    let Some(class) = spec.get("type").filter(|t| !t.is_null()) else {
        return Some(Tree::Leaf);
    };
    let class = class.as_str()?;
    let children = spec.get("children_spec")?.as_array()?;
    let parts: Vec<Tree> = children.iter().map(build).collect::<Option<_>>()?;
    match class {
        "builtins.tuple" => Some(Tree::Tuple(parts)),
        "builtins.list" => Some(Tree::List(parts)),
        "builtins.dict" | "collections.OrderedDict" => match keys(spec, parts.len()) {
            Some(keys) => Some(Tree::Dict(keys.into_iter().zip(parts).collect())),
            None => Some(Tree::Other(class.to_string(), parts)),
        },
        _ => Some(Tree::Other(class.to_string(), parts)),
    }
}

/// The keys of a dict, if all are strings and ints.
fn keys(spec: &Value, count: usize) -> Option<Vec<Key>> {
    let context: Value = serde_json::from_str(spec.get("context")?.as_str()?).ok()?;
    let list = context.as_array().filter(|l| l.len() == count)?;
    let key = |v: &Value| match v {
        Value::String(s) => Some(Key::Str(s.clone())),
        Value::Number(n) => n.as_i64().map(Key::Int),
        _ => None,
    };
    list.iter().map(key).collect()
}
