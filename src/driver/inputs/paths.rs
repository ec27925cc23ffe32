//! Paths of the items of nested inputs.

use super::bind::Value;
use crate::types::{Type, Val};

/// The parts of a name: three words for both `cache.keys[0]` and `cache["keys"][0]`.
pub(super) fn name_parts(name: &str) -> Vec<String> {
    let words = name.split(['.', '[', ']', '"', '\'']).filter(|w| !w.is_empty());
    words.map(str::to_string).collect()
}

/// The name that torch's exporter gives a flattened input with this path.
pub(super) fn join_path(path: &[String]) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    path.join("_").chars().map(letter).collect()
}

pub(super) fn is_same_path(a: &[String], b: &[String]) -> bool {
    a == b || join_path(a) == join_path(b)
}

/// Whether values of this type have items.
pub(super) fn is_nested<T>(ty: &Val<T>) -> bool {
    matches!(ty, Val::List(_) | Val::Tuple(_) | Val::Dict(_))
}

/// The items of a nested value with their names.
pub(super) fn named_items<T>(v: &Val<T>) -> Vec<(String, &Val<T>)> {
    match v {
        Val::List(v) | Val::Tuple(v) => v.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        Val::Dict(v) => v.iter().map(|(k, v)| (key_text(k), v)).collect(),
        _ => vec![],
    }
}

fn key_text<T>(k: &Val<T>) -> String {
    match (k.as_str(), k.as_int()) {
        (Some(s), _) => s.to_string(),
        (_, Some(i)) => i.to_string(),
        _ => String::new(),
    }
}

/// The leaves of a value or type with their paths.
pub(super) fn leaves_with_paths<T>(v: &Val<T>) -> Vec<(Vec<String>, &Val<T>)> {
    let mut out = vec![];
    let mut open: Vec<(Vec<String>, &Val<T>)> = vec![(vec![], v)];
    while let Some((path, ty)) = open.pop() {
        if !is_nested(ty) {
            out.push((path, ty));
            continue;
        }
        for (name, item) in named_items(ty).into_iter().rev() {
            open.push(([&path[..], &[name]].concat(), item));
        }
    }
    out
}

/// A value with the structure of `ty`. `next` returns the values of the leaves in order.
pub(super) fn rebuild_value(ty: &Type, next: &mut dyn FnMut() -> Option<Value>) -> Option<Value> {
    let mut all = |v: &[Type]| v.iter().map(|t| rebuild_value(t, next)).collect::<Option<Vec<_>>>();
    match ty {
        Val::List(v) => Some(Val::List(all(v)?)),
        Val::Tuple(v) => Some(Val::Tuple(all(v)?)),
        Val::Dict(v) => {
            let name = |k: &Type| k.try_map(&mut |_| Err(())).ok();
            let pairs = v.iter().map(|(k, t)| Some((name(k)?, rebuild_value(t, next)?)));
            Some(Val::Dict(pairs.collect::<Option<Vec<_>>>()?))
        }
        _ => next(),
    }
}

/// The structure of an input without a declared one, as its paths imply: lists where the names count from 0, otherwise
/// dicts.
pub(super) fn infer_structure(paths: &[&[String]]) -> Type {
    if paths.iter().any(|p| p.is_empty()) {
        return Val::Unknown;
    }
    let mut names: Vec<&String> = vec![];
    for p in paths {
        if !names.contains(&&p[0]) {
            names.push(&p[0]);
        }
    }
    let below = |name: &String| {
        let rest: Vec<&[String]> = paths.iter().filter(|p| p[0] == *name).map(|p| &p[1..]).collect();
        infer_structure(&rest)
    };
    let counted = (0..names.len()).all(|i| names.contains(&&i.to_string()));
    match counted {
        true => Val::List((0..names.len()).map(|i| below(&i.to_string())).collect()),
        false => Val::Dict(names.iter().map(|n| (Val::str(n), below(n))).collect()),
    }
}
