//! Python numbers: conversions, and ATen's arithmetic on them. Traced scripts also compute sizes as tensors with one
//! element; here these are numbers.

use super::known::eval_arithmetic;
use super::literal::on_numbers;
use super::lower::{BoundValue, ScriptLowerer, function_call};
use super::objects::eval_equal;
use super::tree::{Block, Node};
use crate::syntax::ast::{CallKind, Value, ValueKind};

/// The maximum length of lists that are compared or added item by item.
const MAX_ITEMS: usize = 64;

impl ScriptLowerer<'_> {
    /// Converts a number, or a tensor with one element, to a Python number.
    pub(super) fn lower_number(&mut self, n: &Node) {
        let (Some(out), Some(from)) = (n.outputs.first(), n.args.first()) else {
            return self.report_unreadable(n, "an operand is missing");
        };
        let value = self.operand_value(from);
        let target = match &*out.ty.name {
            "float" => "float",
            "bool" => "bool",
            _ => "int",
        };
        if !self.is_number(from) {
            self.emit_call(
                n,
                CallKind::Function,
                &format!("builtins.{target}"),
                vec![value.clone()],
                true,
            );
            if let (Some(BoundValue::Value(v, _)), "bool") = (self.env.get(&out.name), target)
                && let ValueKind::Node(name) = &v.kind
            {
                self.truths.insert(name.clone(), value);
            }
            return;
        }
        let was = self.types.get(&from.name).map(|t| t.name.clone());
        match (&*out.ty.name, was.as_deref()) {
            // Converts an integer to a float; multiplying by one keeps the value.
            ("float", Some("int" | "bool" | "Int" | "Long")) => {
                let one = Value::new(ValueKind::Float(1.0), n.span);
                self.emit_call(n, CallKind::Function, "operator.mul", vec![value, one], true);
            }
            ("bool", Some("int" | "float" | "Int" | "Long" | "Float" | "Double")) => {
                let zero = Value::new(ValueKind::Int(0), n.span);
                self.emit_call(n, CallKind::Function, "operator.ne", vec![value, zero], true);
            }
            ("float" | "bool", _) | (_, Some("int" | "bool" | "Int" | "Long")) => self.lower_alias(n),
            _ => self.emit_call(n, CallKind::Function, "math.trunc", vec![value], true),
        }
    }

    /// Lowers ATen's operator `op` if every operand is a number. Returns false if Python's `operator` does not have it.
    pub(super) fn on_numbers(&mut self, n: &Node, op: &str, values: &[Value]) -> bool {
        // `rsub(a, b, alpha)` is `b - alpha * a`.
        let (op, values) = match (op, values) {
            ("rsub", [a, b, rest @ ..]) => ("sub", [&[b.clone(), a.clone()], rest].concat()),
            _ => (op, values.to_vec()),
        };
        let Some(operator) = on_numbers(op) else { return false };
        let (operands, extra) = match (operator, &values[..]) {
            ("neg" | "not_", [a, ..]) => (vec![a.clone()], None),
            (_, [a, b, rest @ ..]) => (vec![a.clone(), b.clone()], rest.first().map(|v| v.kind.clone())),
            _ => return false,
        };
        match (operator, extra) {
            // Multiplies the second operand by `alpha`.
            ("add" | "sub", Some(alpha)) if !matches!(alpha, ValueKind::Int(1)) => {
                let [a, b] = [&operands[0], &operands[1]].map(Clone::clone);
                let alpha = Value::new(alpha, n.span);
                let scaled = self.emit_arithmetic(n, "operator.mul", vec![b, alpha]);
                self.emit_call(
                    n,
                    CallKind::Function,
                    &format!("operator.{operator}"),
                    vec![a, scaled],
                    true,
                );
            }
            ("truediv", Some(ValueKind::Str(mode))) if &*mode == "floor" => {
                self.emit_call(n, CallKind::Function, "operator.floordiv", operands, true);
            }
            ("truediv", Some(ValueKind::Str(mode))) if &*mode == "trunc" => {
                let quotient = self.emit_arithmetic(n, "operator.truediv", operands);
                self.emit_call(n, CallKind::Function, "math.trunc", vec![quotient], true);
            }
            ("truediv", Some(ValueKind::Str(_))) => return false,
            _ => self.emit_call(n, CallKind::Function, &format!("operator.{operator}"), operands, true),
        }
        true
    }

    /// Lowers the trip count of `range(low, high, step)` or its value in an iteration. Returns false if the sign of the
    /// step is not known.
    pub(super) fn lower_range(&mut self, n: &Node, op: &str, values: &[Value]) -> bool {
        let [a, b, step] = values else { return false };
        if op == "__derive_index" {
            let distance = self.emit_arithmetic(n, "operator.mul", vec![a.clone(), step.clone()]);
            let number = self.emit_arithmetic(n, "operator.add", vec![b.clone(), distance]);
            self.bind_all(n, number.kind, true);
            return true;
        }
        let int = |i: i64| Value::new(ValueKind::Int(i), n.span);
        let (low, high, step) = match step.kind {
            ValueKind::Int(s) if s > 0 => (a, b, s),
            ValueKind::Int(s) if s < 0 && s > i64::MIN => (b, a, -s),
            _ => return false,
        };
        let distance = self.emit_arithmetic(n, "operator.sub", vec![high.clone(), low.clone()]);
        let above = self.emit_arithmetic(n, "operator.add", vec![distance, int(step - 1)]);
        let turns = self.emit_arithmetic(n, "operator.floordiv", vec![above, int(step)]);
        match turns.kind {
            ValueKind::Int(turns) => self.bind_all(n, ValueKind::Int(turns.max(0)), true),
            _ => self.emit_call(n, CallKind::Function, "builtins.max", vec![turns, int(0)], true),
        }
        true
    }

    /// Lowers comparison and addition of lists of numbers if the items of one list are known. Returns false otherwise.
    pub(super) fn on_lists(&mut self, n: &Node, op: &str, values: &[Value]) -> bool {
        let bools = n.outputs.first().is_some_and(|o| &*o.ty.name == "bool");
        let lists = n.outputs.first().is_some_and(|o| &*o.ty.name == "List");
        match (op, values) {
            ("sum" | "any" | "all" | "min" | "max", [list]) => {
                let Some(items) = known_items(list) else { return false };
                let Some(value) = self.over_items(n, op, items) else {
                    return false;
                };
                self.bind_all(n, value.kind, true);
            }
            ("add" | "mul", [a, b]) if lists => {
                let operands = [a, b].map(|v| self.as_list(n, v.clone(), op == "add")).to_vec();
                let operator = format!("operator.{op}");
                self.emit_call(n, CallKind::Function, &operator, operands, false);
            }
            ("list", [list]) if lists => {
                self.emit_call(n, CallKind::Function, "builtins.list", vec![list.clone()], false);
            }
            ("slice", [list, bounds @ ..]) if lists => {
                let none = || Value::new(ValueKind::None, n.span);
                let bounds = [0, 1, 2].map(|i| bounds.get(i).cloned().unwrap_or_else(none));
                let slice = Value::new(ValueKind::Slice(Box::new(bounds)), n.span);
                let operands = vec![list.clone(), slice];
                self.emit_call(n, CallKind::Function, "operator.getitem", operands, false);
            }
            ("eq" | "ne", [a, b]) if bools => self.compare_lists(n, op, a, b),
            _ => return false,
        }
        true
    }

    /// Compares two lists item by item, if the items of one are known.
    fn compare_lists(&mut self, n: &Node, op: &str, a: &Value, b: &Value) {
        let (a, b) = match (known_items(a), known_items(b)) {
            (Some(a), Some(b)) => (a, b),
            (Some(known), None) => (self.items_of(n, b, known.len()), known),
            (None, Some(known)) => (self.items_of(n, a, known.len()), known),
            (None, None) => {
                let operator = format!("operator.{op}");
                return self.emit_call(n, CallKind::Function, &operator, vec![a.clone(), b.clone()], true);
            }
        };
        let same = self.same_items(n, a, b);
        match op {
            "eq" => self.bind_all(n, same.kind, true),
            _ => self.emit_call(n, CallKind::Function, "operator.not_", vec![same], true),
        }
    }

    /// The items of a runtime list of this length.
    fn items_of(&mut self, n: &Node, list: &Value, len: usize) -> Vec<Value> {
        let item = |i: usize| Value::new(ValueKind::Int(i as i64), n.span);
        (0..len)
            .map(|i| self.emit_arithmetic(n, "operator.getitem", vec![list.clone(), item(i)]))
            .collect()
    }

    fn same_items(&mut self, n: &Node, a: Vec<Value>, b: Vec<Value>) -> Value {
        let make_value = |kind| Value::new(kind, n.span);
        if a.len() != b.len() {
            return make_value(ValueKind::Bool(false));
        }
        let mut all = None;
        for (a, b) in a.into_iter().zip(b) {
            let same = match eval_equal(&a.kind, &b.kind) {
                Some(true) => continue,
                Some(false) => return make_value(ValueKind::Bool(false)),
                None => self.emit_arithmetic(n, "operator.eq", vec![a, b]),
            };
            all = Some(match all {
                None => same,
                Some(before) => self.emit_arithmetic(n, "operator.and_", vec![before, same]),
            });
        }
        all.unwrap_or_else(|| make_value(ValueKind::Bool(true)))
    }

    /// Lowers a branch that only replaces numbers in known lists: the items become `old + (new - old) * condition`.
    /// Returns false without any effect for any other branch.
    pub(super) fn branch_on_items(&mut self, n: &Node, condition: &Value, yes: &Block, no: &Block) -> bool {
        let simple = |b: &Block| {
            b.nodes
                .iter()
                .all(|n| matches!(&*n.op, "prim::Constant" | "aten::_set_item"))
        };
        if !n.outputs.is_empty() || !simple(yes) || !simple(no) || yes.nodes.is_empty() && no.nodes.is_empty() {
            return false;
        }
        let save = self.checkpoint();
        for (block, taken) in [(yes, true), (no, false)] {
            for inner in &block.nodes {
                let done = match &*inner.op {
                    "prim::Constant" => {
                        self.lower_node(inner);
                        true
                    }
                    _ => self.set_item_if(inner, condition, taken).is_some(),
                };
                if !done {
                    self.rollback(save);
                    return false;
                }
            }
        }
        true
    }

    /// `list[i] = new` if the condition equals `taken`.
    fn set_item_if(&mut self, n: &Node, condition: &Value, taken: bool) -> Option<()> {
        let [list, index, new] = &n.args[..] else { return None };
        let Some(BoundValue::Object(id)) = self.env.get(&list.name).cloned() else {
            return None;
        };
        // With floats, this arithmetic would round.
        let integer = self.is_number(new) && self.types.get(&new.name).is_some_and(|t| &*t.name == "int");
        let (index, new) = (self.operand_value(index), self.operand_value(new));
        let old = self.objects.item(id, &index.kind)?;
        if !integer || !matches!(old.kind, ValueKind::Int(_)) {
            return None;
        }
        let (no, yes) = if taken { (old, new) } else { (new, old) };
        let item = match (&no.kind, &yes.kind) {
            (ValueKind::Int(a), ValueKind::Int(b)) if a == b => no,
            _ => {
                let step = self.emit_arithmetic(n, "operator.sub", vec![yes, no.clone()]);
                let step = self.emit_arithmetic(n, "operator.mul", vec![step, condition.clone()]);
                self.emit_arithmetic(n, "operator.add", vec![no, step])
            }
        };
        self.objects.set_item(id, &index.kind, item)
    }

    /// An intermediate result of the node: a separate node, unless it can be folded.
    pub(super) fn emit_arithmetic(&mut self, n: &Node, path: &str, operands: Vec<Value>) -> Value {
        let kinds: Vec<ValueKind> = operands.iter().map(|v| v.kind.clone()).collect();
        let known = path
            .strip_prefix("operator.")
            .and_then(|op| eval_arithmetic(op, &kinds));
        if let Some(kind) = known {
            return Value::new(kind, n.span);
        }
        let short = path.rsplit('.').next().unwrap_or(path).to_string();
        let name = self.push_stmt(function_call(path, operands, n.span), "", &short, None, n);
        Value::new(ValueKind::Node(name), n.span)
    }
}

/// The items of a list, if they are known and not too many.
fn known_items(v: &Value) -> Option<Vec<Value>> {
    match &v.kind {
        ValueKind::List(items) if items.len() <= MAX_ITEMS => Some(items.clone()),
        _ => None,
    }
}
