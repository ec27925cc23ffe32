//! Formats names and values for remarks.

use crate::graph::{Graph, NodeId};
use crate::infer::{self, Operand};
use crate::types::Val;

/// A name with its sigil: `%x`, `$a`.
pub(super) fn signed_name(name: &str) -> String {
    if name.starts_with(['$', '*']) {
        name.to_string()
    } else {
        format!("%{name}")
    }
}

/// Formats a value for a message.
pub(in crate::rewrite) fn show_value(graph: &Graph, v: &Val<Operand>) -> String {
    match v {
        Val::Leaf(Operand::Node(n)) => format!("`%{}`", graph[*n].name()),
        Val::Leaf(Operand::Item(n, path)) => format!("item {path:?} of `%{}`", graph[*n].name()),
        Val::Leaf(Operand::Attr(path)) => format!("`{path}`"),
        Val::List(items) | Val::Tuple(items) => {
            let items: Vec<String> = items.iter().take(8).map(|v| show_value(graph, v)).collect();
            format!("[{}]", items.join(", "))
        }
        Val::Int(d) => d.to_string(),
        Val::Float(x) => crate::types::write_float(*x),
        Val::Bool(b) => if *b { "True" } else { "False" }.into(),
        Val::Str(s) => format!("{s:?}"),
        Val::DType(d) => d.to_string(),
        v => v.kind_name().to_string(),
    }
}

/// Formats a literal of a pattern for a message.
pub(super) fn shown_literal(arg: &Val<NodeId>) -> String {
    match infer::literal_value::<Operand>(arg) {
        Some(v) => show_value(&Graph::new(), &v),
        None => crate::diag::words::with_article(arg.kind_name()),
    }
}
