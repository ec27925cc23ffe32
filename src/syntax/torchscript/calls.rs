//! Calls of modules and functions.

use super::blocks::MAX_WORK;
use super::lower::{Bound, Lower};
use super::tree::Node;
use crate::syntax::ast::{Args, CallKind, Name, Op, Value, ValueKind};

impl Lower<'_> {
    /// A module's `forward`, or a function.
    pub(super) fn called(&mut self, n: &Node) {
        let Some(callee) = n.args.first() else {
            return self.unreadable(n, "a call names what it calls");
        };
        let values: Vec<Value> = n.args[1..].iter().map(|a| self.value(a)).collect();
        let (kind, path) = match self.env.get(&callee.name).cloned() {
            Some(Bound::Module(path)) => (CallKind::Module, path),
            Some(Bound::Value(
                Value {
                    kind: ValueKind::Opaque(path),
                    ..
                },
                _,
            )) => (CallKind::Function, path),
            Some(_) => return self.unreadable(n, "only modules and functions are called"),
            None => return self.unreadable(n, "what is called is not defined"),
        };
        let method = n.attrs.first().map(|a| self.string(a));
        if kind == CallKind::Module
            && (!method.is_some_and(|m| m == "forward" || m.starts_with("forward__")) || path.is_empty())
        {
            return self.unreadable(
                n,
                "only the method `forward` of a sub-module can be called; print `inlined_graph`",
            );
        }
        match self.sequences.contains_key(&*path) {
            true => self.sequence(n, &path, values),
            false => self.call(n, kind, &path, values, false),
        }
    }

    /// The modules of a `Sequential` one after the other, as torch.fx calls them.
    fn sequence(&mut self, n: &Node, path: &str, values: Vec<Value>) {
        let mut leaves = vec![];
        let mut open = vec![path];
        // A module's path is longer than that of the one around it, so this ends.
        while let Some(path) = open.pop() {
            match self.sequences.get(path) {
                Some(within) => open.extend(within.iter().rev().map(String::as_str)),
                None => leaves.push(path),
            }
        }
        let Some((last, first)) = leaves.split_last() else {
            let [only] = &values[..] else {
                return self.unreadable(n, "an empty `Sequential` gives its one input");
            };
            return self.bind_all(n, only.kind.clone(), false);
        };
        self.work += leaves.len();
        if self.work > MAX_WORK {
            return self.unreadable(n, "the modules that are called are too many");
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
            let name = self.push(op, &path.replace('.', "_"), "call", None, n);
            values = vec![Value::new(ValueKind::Node(name), n.span)];
        }
        self.call(n, CallKind::Module, last, values, false);
    }
}
