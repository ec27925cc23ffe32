//! Python's functions of lists: folded if the items are known, else lowered to nodes.

use super::known::bool_value;
use super::lower::{ScriptLowerer, function_call};
use super::objects::eval_equal;
use super::tree::Node;
use crate::source::Span;
use crate::syntax::ast::{Value, ValueKind};
use std::cmp::Ordering;

/// The maximum length of a list built from an item count.
const MAX_MADE: usize = 1024;

impl ScriptLowerer<'_> {
    /// `sum`, `any`, `all`, `min` or `max` of items that are not all known.
    pub(super) fn over_items(&mut self, n: &Node, op: &str, items: Vec<Value>) -> Option<Value> {
        let mut items = items;
        let (path, empty) = match op {
            "sum" => ("operator.add", Some(ValueKind::Int(0))),
            "any" => ("operator.or_", Some(ValueKind::Bool(false))),
            "all" => ("operator.and_", Some(ValueKind::Bool(true))),
            "min" => ("builtins.min", None),
            _ => ("builtins.max", None),
        };
        if let ("any" | "all", Some(neutral)) = (op, &empty) {
            items.retain(|v| truth_value(&v.kind) != truth_value(neutral));
            if items.iter().any(|v| truth_value(&v.kind).is_some()) {
                return Some(bool_value(op == "any", n.span));
            }
            let zero = Value::new(ValueKind::Int(0), n.span);
            items = items
                .into_iter()
                .map(|v| self.emit_arithmetic(n, "operator.ne", vec![v, zero.clone()]))
                .collect();
        }
        let folded = items
            .into_iter()
            .reduce(|sum, item| self.emit_arithmetic(n, path, vec![sum, item]));
        folded.or(empty.map(|kind| Value::new(kind, n.span)))
    }

    /// A runtime value as a list: sizes are tuples in the graph.
    pub(super) fn as_list(&mut self, n: &Node, v: Value, convert: bool) -> Value {
        if !convert || !matches!(v.kind, ValueKind::Node(_)) {
            return v;
        }
        let op = function_call("builtins.list", vec![v], n.span);
        Value::new(ValueKind::Node(self.push_stmt(op, "", "list", None, n)), n.span)
    }
}

/// Whether Python considers a literal to be true.
fn truth_value(v: &ValueKind) -> Option<bool> {
    match v {
        ValueKind::Bool(b) => Some(*b),
        ValueKind::Int(i) => Some(*i != 0),
        ValueKind::Float(x) => Some(*x != 0.0),
        _ => None,
    }
}

/// `all` or `any` of literals, if the known ones determine the result.
pub(super) fn eval_quantifier(op: &str, values: &[Value]) -> Option<ValueKind> {
    let decides = op == "any";
    if values.iter().any(|v| truth_value(&v.kind) == Some(decides)) {
        return Some(ValueKind::Bool(decides));
    }
    let known = values.iter().all(|v| truth_value(&v.kind).is_some());
    known.then_some(ValueKind::Bool(!decides))
}

/// Compares two literals, if they are ordered.
fn compare_literals(a: &ValueKind, b: &ValueKind) -> Option<Ordering> {
    use ValueKind::{Float, Int, Str};
    match (a, b) {
        (Int(a), Int(b)) => Some(a.cmp(b)),
        (Str(a), Str(b)) => Some(a.cmp(b)),
        (Float(a), Float(b)) => a.partial_cmp(b),
        (Int(a), Float(b)) => (*a as f64).partial_cmp(b),
        (Float(a), Int(b)) => a.partial_cmp(&(*b as f64)),
        _ => None,
    }
}

/// The minimum or maximum of literals; the first of equal ones.
pub(super) fn find_extreme<'v>(op: &str, mut values: impl Iterator<Item = &'v ValueKind>) -> Option<ValueKind> {
    let better = if op == "min" { Ordering::Less } else { Ordering::Greater };
    let first = values.next()?;
    let extreme = values.try_fold(first, |best, v| {
        Some(if compare_literals(v, best)? == better { v } else { best })
    });
    extreme.filter(|v| compare_literals(v, v).is_some()).cloned()
}

/// The list `0, 1, …` with `count` items.
pub(super) fn range_list(count: i64, span: Span) -> Option<ValueKind> {
    let count = usize::try_from(count.max(0)).ok().filter(|c| *c <= MAX_MADE)?;
    let items = (0..count as i64).map(|i| Value::new(ValueKind::Int(i), span));
    Some(ValueKind::List(items.collect()))
}

/// Sorts literals in ascending order.
pub(super) fn sort_literals(items: &[Value]) -> Option<Vec<Value>> {
    let first = items.first().map(|v| &v.kind);
    if !items
        .iter()
        .all(|v| first.and_then(|f| compare_literals(f, &v.kind)).is_some())
    {
        return None;
    }
    let mut sorted = items.to_vec();
    sorted.sort_by(|a, b| compare_literals(&a.kind, &b.kind).unwrap_or(Ordering::Equal));
    Some(sorted)
}

/// `list[start:end:step]`, if the bounds are known.
pub(super) fn slice_list(items: &[Value], bounds: &[Value]) -> Option<Vec<Value>> {
    let len = i64::try_from(items.len()).ok()?;
    let bound = |i: usize, none: i64| match bounds.get(i).map(|v| &v.kind) {
        None | Some(ValueKind::None) => Some(none),
        Some(ValueKind::Int(i)) => Some(*i),
        _ => None,
    };
    let place = |i: i64| {
        if i < 0 {
            i.saturating_add(len).max(0)
        } else {
            i.min(len)
        }
    };
    let (from, to, step) = (place(bound(0, 0)?), place(bound(1, len)?), bound(2, 1)?);
    let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
    let step = usize::try_from(step).ok().filter(|s| *s > 0)?;
    Some(
        items
            .get(from..to)
            .unwrap_or_default()
            .iter()
            .step_by(step)
            .cloned()
            .collect(),
    )
}

/// `list * count`.
pub(super) fn repeat_list(items: &[Value], count: &ValueKind) -> Option<Vec<Value>> {
    let ValueKind::Int(count) = count else { return None };
    let count = usize::try_from((*count).max(0)).ok()?;
    let len = items.len().checked_mul(count).filter(|m| *m <= MAX_MADE)?;
    Some(items.iter().cycle().take(len).cloned().collect())
}

/// The index of a literal among literals, if it is certain.
pub(super) fn find_literal(items: &[Value], v: &Value) -> Option<usize> {
    for (i, item) in items.iter().enumerate() {
        if eval_equal(&item.kind, &v.kind)? {
            return Some(i);
        }
    }
    None
}
