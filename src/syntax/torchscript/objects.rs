//! Lists and dicts that a script creates and mutates. Lowering tracks their contents, so each use gets the current
//! value.

use super::dicts::{change_dict, entries_from_pairs};
use super::lists::{find_literal, repeat_list, slice_list, sort_literals};
use super::lower::{BoundValue, ScriptLowerer, function_call};
use super::tree::{Node, Typed};
use crate::syntax::ast::{Value, ValueKind};

/// The maximum number of list items that an unknown value is compared with.
const MAX_COMPARED: usize = 16;

/// The operators that mutate a list or dict.
const CHANGES: [&str; 13] = [
    "_set_item",
    "add_",
    "append",
    "clear",
    "Delete",
    "extend",
    "insert",
    "pop",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
];

/// The contents of an object.
#[derive(Clone)]
pub(super) enum Items {
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// A list that is a runtime value.
    Whole(Value),
}

#[derive(Clone)]
struct Object {
    items: Items,
    /// The number of graphs that enclosed its creation.
    level: usize,
}

/// All lists and dicts of a script, by index.
#[derive(Clone, Default)]
pub(super) struct Objects {
    all: Vec<Object>,
    /// The number of graphs around the current position. Objects of an outer graph cannot be mutated.
    pub level: usize,
}

impl Objects {
    /// Adds an object.
    pub(super) fn add(&mut self, items: Items) -> usize {
        let level = self.level;
        self.all.push(Object { items, level });
        self.all.len() - 1
    }

    /// The object as a value.
    pub(super) fn value(&self, id: usize) -> ValueKind {
        match &self.all[id].items {
            Items::List(v) => ValueKind::List(v.clone()),
            Items::Dict(v) => ValueKind::Dict(v.clone()),
            Items::Whole(v) => v.kind.clone(),
        }
    }

    /// The object, mutable; `None` if it was created outside of the current graph.
    fn items_mut(&mut self, id: usize) -> Option<&mut Items> {
        let o = &mut self.all[id];
        (o.level >= self.level).then_some(&mut o.items)
    }

    /// An item of a list with known length.
    pub(super) fn item(&self, id: usize, index: &ValueKind) -> Option<Value> {
        match &self.all[id].items {
            Items::List(v) => Some(v[resolve_index(index, v.len())?].clone()),
            _ => None,
        }
    }

    /// Replaces an item; `None` if the object cannot be mutated here.
    pub(super) fn set_item(&mut self, id: usize, index: &ValueKind, item: Value) -> Option<()> {
        match self.items_mut(id)? {
            Items::List(v) => {
                let i = resolve_index(index, v.len())?;
                v[i] = item;
                Some(())
            }
            _ => None,
        }
    }

    /// Whether the object is an empty list of the enclosing graph.
    pub(super) fn is_empty_outside(&self, id: usize) -> bool {
        let o = &self.all[id];
        o.level + 1 == self.level && matches!(&o.items, Items::List(v) if v.is_empty())
    }

    /// Replaces a list with a runtime value.
    pub(super) fn set_whole(&mut self, id: usize, value: Value) {
        self.all[id].items = Items::Whole(value);
    }
}

/// The slice, repetition or sorted copy of a list; `None` if it is not known.
fn derived_list(op: &str, items: &[Value], rest: &[Value]) -> Option<Vec<Value>> {
    match op {
        "slice" => slice_list(items, rest),
        "mul" => repeat_list(items, &rest.first()?.kind),
        _ => sort_literals(items),
    }
}

impl ScriptLowerer<'_> {
    /// `prim::ListConstruct` and `prim::DictConstruct`.
    pub(super) fn construct_object(&mut self, n: &Node) {
        let values: Vec<Value> = n.args.iter().map(|a| self.operand_value(a)).collect();
        let items = match &*n.op {
            "prim::ListConstruct" => Items::List(values),
            _ => Items::Dict(values.chunks_exact(2).map(|p| (p[0].clone(), p[1].clone())).collect()),
        };
        self.bind_object(n, items);
    }

    pub(super) fn bind_object(&mut self, n: &Node, items: Items) {
        let id = self.objects.add(items);
        for o in &n.outputs {
            self.env.insert(o.name.clone(), BoundValue::Object(id));
        }
    }

    /// The items of a list with known length.
    fn known_list(&self, v: &Typed) -> Option<Vec<Value>> {
        let kind = match self.env.get(&v.name)? {
            BoundValue::Object(id) => self.objects.value(*id),
            BoundValue::Value(v, _) => v.kind.clone(),
            BoundValue::Module(_) => return None,
        };
        match kind {
            ValueKind::List(v) | ValueKind::Tuple(v) => Some(v),
            _ => None,
        }
    }

    /// Applies a node to a known list or dict. Returns false if the node is not such an operation.
    pub(super) fn on_object(&mut self, n: &Node) -> bool {
        let Some(first) = n.args.first() else {
            let is_dict = &*n.op == "aten::dict";
            if is_dict {
                self.bind_object(n, Items::Dict(vec![]));
            }
            return is_dict;
        };
        let object = match self.env.get(&first.name) {
            Some(BoundValue::Object(id)) => Some(*id),
            _ => None,
        };
        let rest: Vec<Value> = n.args[1..].iter().map(|a| self.operand_value(a)).collect();
        let op = n.op.strip_prefix("aten::").unwrap_or(&n.op);
        if let Some(id) = object
            && CHANGES.contains(&op)
        {
            return self.change_object(n, id, op, rest);
        }
        if let Some(items) = self.known_list(first) {
            return self.read_list(n, op, items, &rest);
        }
        match object.map(|id| self.objects.value(id)) {
            Some(ValueKind::Dict(items)) => self.read_dict(n, op, items, &rest),
            _ => false,
        }
    }

    fn read_list(&mut self, n: &Node, op: &str, mut items: Vec<Value>, rest: &[Value]) -> bool {
        let index = rest.first().and_then(|i| resolve_index(&i.kind, items.len()));
        let other = n.args.get(1).and_then(|a| self.known_list(a));
        match (op, other) {
            ("len", _) => self.bind_all(n, ValueKind::Int(items.len() as i64), true),
            ("__getitem__" | "prim::TupleIndex", _) => match index {
                Some(i) => self.bind_item(n, items.swap_remove(i)),
                None => return false,
            },
            ("add", Some(other)) => {
                items.extend(other);
                self.bind_object(n, Items::List(items));
            }
            ("list" | "copy", _) => self.bind_object(n, Items::List(items)),
            ("dict", _) => match entries_from_pairs(&items) {
                Some(pairs) => self.bind_object(n, Items::Dict(pairs)),
                None => return false,
            },
            ("index", _) => match rest.first().and_then(|v| find_literal(&items, v)) {
                Some(i) => self.bind_all(n, ValueKind::Int(i as i64), true),
                None => return false,
            },
            ("slice" | "mul" | "sorted", _) => match derived_list(op, &items, rest) {
                Some(items) => self.bind_object(n, Items::List(items)),
                None => return false,
            },
            ("__contains__", _) => match (rest.first(), rest.first().and_then(|v| eval_contains(&items, v))) {
                (_, Some(contains)) => self.bind_all(n, ValueKind::Bool(contains), true),
                (Some(v), None) if items.len() <= MAX_COMPARED => self.any_equal(n, v, &items),
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    /// Whether an unknown number equals one of the items: `v == a | v == b`.
    fn any_equal(&mut self, n: &Node, v: &Value, items: &[Value]) {
        let mut result: Option<Value> = None;
        for item in items {
            let op = function_call("operator.eq", vec![v.clone(), item.clone()], n.span);
            let mut same = Value::new(ValueKind::Node(self.push_stmt(op, "", "eq", None, n)), n.span);
            if let Some(before) = result {
                let op = function_call("operator.or_", vec![before, same], n.span);
                same = Value::new(ValueKind::Node(self.push_stmt(op, "", "or_", None, n)), n.span);
            }
            result = Some(same);
        }
        let none = ValueKind::Bool(false);
        self.bind_all(n, result.map_or(none, |v| v.kind), true);
    }

    pub(super) fn bind_item(&mut self, n: &Node, item: Value) {
        for o in &n.outputs {
            self.bind(o, item.kind.clone(), o.ty.is_number());
        }
    }

    fn change_object(&mut self, n: &Node, id: usize, op: &str, rest: Vec<Value>) -> bool {
        if op == "append" && self.collect_item(id, rest.first()) {
            return true;
        }
        let other = n.args.get(1).and_then(|a| self.known_list(a));
        let update = match n.args.get(1).map(|a| self.operand_value(a).kind) {
            Some(ValueKind::Dict(v)) if op == "update" => Some(v),
            _ => None,
        };
        let changed = match self.objects.items_mut(id) {
            Some(Items::List(v)) => change_list(v, op, &rest, other),
            Some(Items::Dict(v)) => change_dict(v, op, &rest, update),
            Some(Items::Whole(_)) => None,
            None => {
                let reason =
                    "a list or dict of the enclosing graph is changed in a block that runs an unknown number of times";
                self.report_unreadable(n, reason);
                return true;
            }
        };
        match changed {
            None => self.report_unreadable(n, "the changed list or dict is not known before the graph runs"),
            Some(Some(item)) => self.bind_item(n, item),
            Some(None) => {
                for o in &n.outputs {
                    self.env.insert(o.name.clone(), BoundValue::Object(id));
                }
            }
        }
        true
    }
}

/// Applies `op` to a list, if its effect is known. Returns the item that it removes, if any.
fn change_list(v: &mut Vec<Value>, op: &str, rest: &[Value], other: Option<Vec<Value>>) -> Option<Option<Value>> {
    let index = |len: usize| rest.first().and_then(|i| resolve_index(&i.kind, len));
    match op {
        "append" => v.push(rest.first()?.clone()),
        "extend" | "add_" => v.extend(other?),
        "clear" => v.clear(),
        "reverse" => v.reverse(),
        "pop" => {
            let i = match rest.is_empty() {
                true => v.len().checked_sub(1),
                false => index(v.len()),
            };
            return i.map(|i| Some(v.remove(i)));
        }
        "Delete" => {
            v.remove(index(v.len())?);
        }
        "remove" => {
            v.remove(find_literal(v, rest.first()?)?);
        }
        "sort" => {
            *v = sort_literals(v)?;
            match rest.first().map(|r| &r.kind) {
                Some(ValueKind::Bool(true)) => v.reverse(),
                None | Some(ValueKind::Bool(false)) => {}
                _ => return None,
            }
        }
        "insert" => {
            let (i, x) = (index(v.len() + 1)?, rest.get(1)?);
            v.insert(i, x.clone());
        }
        "_set_item" => {
            let (i, x) = (index(v.len())?, rest.get(1)?);
            v[i] = x.clone();
        }
        _ => return None,
    }
    Some(None)
}

/// Resolves a Python index into `len` items.
fn resolve_index(v: &ValueKind, len: usize) -> Option<usize> {
    let ValueKind::Int(i) = v else { return None };
    let i = if *i < 0 { i.checked_add(len as i64)? } else { *i };
    usize::try_from(i).ok().filter(|&i| i < len)
}

/// Whether a value can be compared with others here.
pub(super) fn is_literal(v: &ValueKind) -> bool {
    matches!(
        v,
        ValueKind::Int(_) | ValueKind::Str(_) | ValueKind::Bool(_) | ValueKind::None | ValueKind::Float(_)
    )
}

/// Whether two literals are equal, if that is known.
pub(super) fn eval_equal(a: &ValueKind, b: &ValueKind) -> Option<bool> {
    Some(match (a, b) {
        (ValueKind::Int(a), ValueKind::Int(b)) => a == b,
        (ValueKind::Bool(a), ValueKind::Bool(b)) => a == b,
        (ValueKind::Float(a), ValueKind::Float(b)) => a == b,
        (ValueKind::Int(i), ValueKind::Float(x)) | (ValueKind::Float(x), ValueKind::Int(i)) => *i as f64 == *x,
        (ValueKind::Str(a), ValueKind::Str(b)) => a == b,
        (ValueKind::None, ValueKind::None) => true,
        (ValueKind::List(a) | ValueKind::Tuple(a), ValueKind::List(b) | ValueKind::Tuple(b)) => {
            let same = a.iter().zip(b).map(|(a, b)| eval_equal(&a.kind, &b.kind));
            a.len() == b.len() && same.collect::<Option<Vec<bool>>>()?.into_iter().all(|s| s)
        }
        (a, b) if is_literal(a) && is_literal(b) => false,
        _ => return None,
    })
}

/// Whether two literals are bit-identical: 0.0 is not -0.0 here, and NaN is NaN.
pub(super) fn is_identical(a: &ValueKind, b: &ValueKind) -> bool {
    match (a, b) {
        (ValueKind::Float(a), ValueKind::Float(b)) => a.to_bits() == b.to_bits(),
        (ValueKind::Int(_), ValueKind::Float(_)) | (ValueKind::Float(_), ValueKind::Int(_)) => false,
        (ValueKind::List(a), ValueKind::List(b)) | (ValueKind::Tuple(a), ValueKind::Tuple(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_identical(&a.kind, &b.kind))
        }
        _ => eval_equal(a, b) == Some(true),
    }
}

fn eval_contains(items: &[Value], v: &Value) -> Option<bool> {
    let same = items.iter().map(|i| eval_equal(&i.kind, &v.kind));
    Some(same.collect::<Option<Vec<bool>>>()?.into_iter().any(|s| s))
}
