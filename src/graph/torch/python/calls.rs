//! Calls and their arguments as Python expressions.

use super::PythonWriter;
use crate::graph::torch::names::format_target;
use crate::graph::torch::pyrepr::{self, Style};
use crate::graph::{Arg, Node, NodeId};
use crate::types::Val;

impl PythonWriter<'_> {
    pub(super) fn function_call(&mut self, n: NodeId, colon: &str) -> String {
        let node = &self.graph[n];
        if let Some(op) = node.target().strip_prefix("operator.")
            && let Some(text) = self.operator_statement(n, op, colon)
        {
            return text;
        }
        let (global, path) = self.names.function(node.target());
        let is_getattr = path == "getattr";
        if let (true, [base, Val::Str(attr)], []) = (is_getattr, node.args(), node.kwargs())
            && pyrepr::is_identifier(attr)
            && !pyrepr::is_keyword(attr)
        {
            let name = self.node_name(n);
            let base = self.base_text(base);
            return format!("{name}{colon} = {base}.{attr}");
        }
        if self.names.is_wrapped(&path) && !self.wrapped.contains(&global) {
            self.wrapped.push(global.clone());
        }
        let args = self.argument_list(node, 0);
        let name = self.node_name(n);
        format!("{name}{colon} = {global}({args})")
    }

    /// The statement for an `operator` function, if it can be written infix.
    fn operator_statement(&mut self, n: NodeId, op: &str, colon: &str) -> Option<String> {
        let node = &self.graph[n];
        if !node.kwargs().is_empty() {
            return None;
        }
        let find = |table: &[(&str, &'static str)]| table.iter().find(|(k, _)| *k == op).map(|(_, v)| *v);
        if let (Some(sign), [a]) = (find(PREFIX), node.args()) {
            let name = self.node_name(n);
            return Some(format!("{name}{colon} = {sign}{}", self.operand_text(a, false)));
        }
        if let ("getitem", [a, i]) = (op, node.args()) {
            let name = self.node_name(n);
            return Some(format!(
                "{name}{colon} = {}[{}]",
                self.operand_text(a, false),
                self.value_text(i)
            ));
        }
        if let ("setitem", [a, i, v]) = (op, node.args()) {
            let (base, index, value) = (self.operand_text(a, false), self.value_text(i), self.value_text(v));
            let name = self.node_name(n);
            let result = if node.users().len() == 0 { &base } else { "None" };
            return Some(format!("{base}[{index}] = {value};  {name}{colon} = {result}"));
        }
        let [a, b] = node.args() else { return None };
        if let Some(sign) = find(INFIX) {
            let name = self.node_name(n);
            let (a, b) = (self.operand_text(a, sign == "**"), self.operand_text(b, false));
            return Some(format!("{name}{colon} = {a} {sign} {b}"));
        }
        let sign = find(INPLACE)?;
        let target = *a.as_leaf()?;
        if self.may_rebind_number(target, n) {
            return None;
        }
        let (a, b) = (self.operand_text(a, false), self.value_text(b));
        let name = self.node_name(n);
        Some(format!("{a} {sign} {b};  {name}{colon} = {a}"))
    }

    /// Whether `target` may be a Python number that is read after `n`. `a += b` would change the value for that reader.
    fn may_rebind_number(&self, target: NodeId, n: NodeId) -> bool {
        let freed_here = self.last_uses.get(&n).is_some_and(|l| l.contains(&target));
        !freed_here && !matches!(self.graph[target].meta.ty, Some(Val::Leaf(_)))
    }

    pub(super) fn value_text(&mut self, v: &Arg) -> String {
        for n in v.leaves() {
            self.names.node(*n, self.graph[*n].name());
        }
        self.names.note_names(v);
        let names = &self.names;
        pyrepr::write_val(v, Style::Code, &|n, _| names.known_name(*n).to_string())
    }

    /// The text of an operand. `power` says that `**` follows, which binds tighter than a sign.
    fn operand_text(&mut self, v: &Arg, power: bool) -> String {
        let text = self.value_text(v);
        let symbolic = matches!(v, Val::Int(d) if d.as_const().is_none() && d.as_var().is_none());
        if symbolic || (power && text.starts_with('-')) {
            return format!("({text})");
        }
        text
    }

    /// The text of a value before a dot.
    pub(super) fn base_text(&mut self, v: &Arg) -> String {
        let text = self.value_text(v);
        match v {
            Val::Int(_) => format!("({text})"),
            Val::Float(_) if text.starts_with('-') => format!("({text})"),
            _ => text,
        }
    }

    pub(super) fn attribute_text(&mut self, base: &str, path: &str) -> String {
        let text = format_target(base, path);
        if text.contains("getattr(") {
            self.names.require_name("getattr");
        }
        text
    }

    pub(super) fn argument_list(&mut self, node: &Node, skip: usize) -> String {
        let mut out: Vec<String> = node.args().iter().skip(skip).map(|v| self.value_text(v)).collect();
        let mut odd = vec![];
        for (k, v) in node.kwargs() {
            let v = self.value_text(v);
            if pyrepr::is_identifier(k) && !pyrepr::is_keyword(k) {
                out.push(format!("{k} = {v}"));
            } else {
                odd.push(format!("{}: {v}", pyrepr::quote(k)));
            }
        }
        if !odd.is_empty() {
            out.push(format!("**{{{}}}", odd.join(", ")));
        }
        out.join(", ")
    }
}

/// Operators written infix, with the number of operands (`magic_methods` of torch).
const INFIX: &[(&str, &str)] = &[
    ("eq", "=="),
    ("ne", "!="),
    ("lt", "<"),
    ("gt", ">"),
    ("le", "<="),
    ("ge", ">="),
    ("add", "+"),
    ("sub", "-"),
    ("mul", "*"),
    ("floordiv", "//"),
    ("truediv", "/"),
    ("div", "/"),
    ("mod", "%"),
    ("pow", "**"),
    ("lshift", "<<"),
    ("rshift", ">>"),
    ("and_", "&"),
    ("or_", "|"),
    ("xor", "^"),
    ("matmul", "@"),
];

const PREFIX: &[(&str, &str)] = &[("pos", "+"), ("neg", "-"), ("invert", "~")];

const INPLACE: &[(&str, &str)] = &[
    ("iadd", "+="),
    ("iand", "&="),
    ("ifloordiv", "//="),
    ("ilshift", "<<="),
    ("imod", "%="),
    ("imul", "*="),
    ("imatmul", "@="),
    ("ior", "|="),
    ("ipow", "**="),
    ("irshift", ">>="),
    ("isub", "-="),
    ("itruediv", "/="),
    ("ixor", "^="),
];
