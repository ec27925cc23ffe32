//! Evaluates reads and updates of known dicts.

use super::lower::ScriptLowerer;
use super::objects::{Items, eval_equal, is_literal};
use super::tree::Node;
use crate::syntax::ast::{Value, ValueKind};

impl ScriptLowerer<'_> {
    pub(super) fn read_dict(&mut self, n: &Node, op: &str, items: Vec<(Value, Value)>, rest: &[Value]) -> bool {
        let key = rest.first().and_then(|k| find_entry(&items, k));
        match op {
            "len" => self.bind_all(n, ValueKind::Int(items.len() as i64), true),
            "__getitem__" => match key {
                Some(i) => self.bind_item(n, items[i].1.clone()),
                None => return false,
            },
            "__contains__" => self.bind_all(n, ValueKind::Bool(key.is_some()), true),
            "get" => {
                let default = rest.get(1).map_or(ValueKind::None, |v| v.kind.clone());
                let item = key.map_or(Value::new(default, n.span), |i| items[i].1.clone());
                self.bind_item(n, item);
            }
            "items" => {
                let pair = |(k, v): (Value, Value)| Value::new(ValueKind::Tuple(vec![k, v]), n.span);
                self.bind_object(n, Items::List(items.into_iter().map(pair).collect()));
            }
            "keys" => self.bind_object(n, Items::List(items.into_iter().map(|p| p.0).collect())),
            "values" => self.bind_object(n, Items::List(items.into_iter().map(|p| p.1).collect())),
            "copy" | "dict" => self.bind_object(n, Items::Dict(items)),
            _ => return false,
        }
        true
    }
}

/// Applies `op` to a dict, if its effect is known. Returns the item that it removes or finds, if any.
pub(super) fn change_dict(
    v: &mut Vec<(Value, Value)>,
    op: &str,
    rest: &[Value],
    update: Option<Vec<(Value, Value)>>,
) -> Option<Option<Value>> {
    if let Some(update) = update {
        update.into_iter().try_for_each(|(k, x)| set_entry(v, &k, &x))?;
        return Some(None);
    }
    match (op, rest) {
        ("_set_item", [key, x]) => set_entry(v, key, x)?,
        ("clear", []) => v.clear(),
        ("Delete", [key]) => {
            v.remove(find_entry(v, key)?);
        }
        ("pop", [key]) => return Some(Some(v.remove(find_entry(v, key)?).1)),
        ("setdefault", [key, x]) => {
            if let Some(i) = find_entry(v, key) {
                return Some(Some(v[i].1.clone()));
            }
            set_entry(v, key, x)?;
            return Some(Some(x.clone()));
        }
        _ => return None,
    }
    Some(None)
}

fn set_entry(v: &mut Vec<(Value, Value)>, key: &Value, x: &Value) -> Option<()> {
    if !is_literal(&key.kind) {
        return None;
    }
    match find_entry(v, key) {
        Some(i) => v[i].1 = x.clone(),
        None => v.push((key.clone(), x.clone())),
    }
    Some(())
}

/// Converts pairs to keys and values.
pub(super) fn entries_from_pairs(items: &[Value]) -> Option<Vec<(Value, Value)>> {
    let mut entries = vec![];
    for item in items {
        let (ValueKind::List(pair) | ValueKind::Tuple(pair)) = &item.kind else {
            return None;
        };
        let [key, x] = &pair[..] else { return None };
        set_entry(&mut entries, key, x)?;
    }
    Some(entries)
}

fn find_entry(items: &[(Value, Value)], key: &Value) -> Option<usize> {
    items
        .iter()
        .position(|(k, _)| eval_equal(&k.kind, &key.kind) == Some(true))
}
