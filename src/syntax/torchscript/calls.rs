//! Calls of modules and functions.

use super::blocks::MAX_WORK;
use super::lower::{BoundValue, ScriptLowerer};
use super::tree::Node;
use crate::syntax::ast::{Args, CallKind, Name, Op, Value, ValueKind};

impl ScriptLowerer<'_> {
    /// A call of a module's `forward`, or of a function.
    pub(super) fn lower_call(&mut self, n: &Node) {
        let Some(callee) = n.args.first() else {
            return self.report_unreadable(n, "the call has no target name");
        };
        let values: Vec<Value> = n.args[1..].iter().map(|a| self.operand_value(a)).collect();
        let (kind, path) = match self.env.get(&callee.name).cloned() {
            Some(BoundValue::Module(path)) => (CallKind::Module, path),
            Some(BoundValue::Value(
                Value {
                    kind: ValueKind::Opaque(path),
                    ..
                },
                _,
            )) => (CallKind::Function, path),
            Some(_) => return self.report_unreadable(n, "only modules and functions can be called"),
            None => return self.report_unreadable(n, "the called function is not defined"),
        };
        let method = n.attrs.first().map(|a| self.string_attr(a));
        if kind == CallKind::Module
            && (!method.is_some_and(|m| m == "forward" || m.starts_with("forward__")) || path.is_empty())
        {
            return self.report_unreadable(
                n,
                "only the method `forward` of a sub-module can be called; print `inlined_graph`",
            );
        }
        match self.sequences.contains_key(&*path) {
            true => self.lower_sequence(n, &path, values),
            false => self.emit_call(n, kind, &path, values, false),
        }
    }

    /// Calls the modules of a `Sequential` in sequence, as torch.fx does.
    fn lower_sequence(&mut self, n: &Node, path: &str, values: Vec<Value>) {
        let mut leaves = vec![];
        let mut open = vec![path];
        // Terminates, because a module's path is longer than that of its parent.
        while let Some(path) = open.pop() {
            match self.sequences.get(path) {
                Some(within) => open.extend(within.iter().rev().map(String::as_str)),
                None => leaves.push(path),
            }
        }
        let Some((last, first)) = leaves.split_last() else {
            let [only] = &values[..] else {
                return self.report_unreadable(n, "an empty `Sequential` takes exactly one input");
            };
            return self.bind_all(n, only.kind.clone(), false);
        };
        self.work += leaves.len();
        if self.work > MAX_WORK {
            return self.report_unreadable(n, "too many modules are called");
        }
        let mut values = values;
        for path in first {
            let op = Op::Call {
                kind: CallKind::Module,
                target: Name::new(*path, n.span),
                args: Args {
                    positional: values,
                    keyword: vec![],
                },
            };
            let name = self.push_stmt(op, &path.replace('.', "_"), "call", None, n);
            values = vec![Value::new(ValueKind::Node(name), n.span)];
        }
        self.emit_call(n, CallKind::Module, last, values, false);
    }
}
