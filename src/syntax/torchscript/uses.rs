//! Collects the nodes that statements use.

use crate::syntax::ast::{Op, Stmt, Value, ValueKind};
use indexmap::IndexSet;
use std::collections::HashSet;
use std::sync::Arc;

/// Visits the nodes in a value.
pub(super) fn node_names(v: &Value, f: &mut dyn FnMut(&Arc<str>)) {
    match &v.kind {
        ValueKind::Node(n) => f(n),
        ValueKind::List(x) | ValueKind::Tuple(x) => x.iter().for_each(|v| node_names(v, f)),
        ValueKind::Dict(x) => x.iter().for_each(|(k, v)| {
            node_names(k, f);
            node_names(v, f);
        }),
        ValueKind::Slice(x) | ValueKind::Range(x) => x.iter().for_each(|v| node_names(v, f)),
        _ => {}
    }
}

/// Visits the nodes in a statement.
pub(super) fn visit_uses(s: &Stmt, f: &mut dyn FnMut(&Arc<str>)) {
    match &s.op {
        Op::Call { args, .. } => {
            let keyword = args.keyword.iter().map(|(_, v)| v);
            args.positional.iter().chain(keyword).for_each(|v| node_names(v, f));
        }
        Op::Output { value } => node_names(value, f),
        Op::Placeholder { .. } | Op::GetAttr { .. } => {}
    }
}

/// The names that statements use but do not define, in order of first use.
pub(super) fn free_names<'s>(stmts: impl Iterator<Item = &'s Stmt> + Clone, inputs: &[Arc<str>]) -> Vec<Arc<str>> {
    let defined: HashSet<&Arc<str>> = stmts
        .clone()
        .filter_map(|s| s.name.as_ref().map(|n| &n.text))
        .chain(inputs)
        .collect();
    let mut free = IndexSet::new();
    for s in stmts {
        visit_uses(s, &mut |n| {
            if !defined.contains(n) {
                free.insert(n.clone());
            }
        });
    }
    free.into_iter().collect()
}
