//! Finds inputs and attributes whose types are incomplete, and says how to complete them.

use crate::diag::Diagnostic;
use crate::graph::{Graph, NodeId, Opcode};
use crate::types::{Type, Val};

/// An input or attribute whose type is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Untyped {
    /// Its node.
    pub node: NodeId,
    /// What is unknown.
    pub open: OpenPart,
}

/// The unknown part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenPart {
    /// The whole type.
    Type,
    /// Sizes of the tensor, or of the tensors that it contains.
    Sizes,
    /// The value of a Python number.
    Number,
}

/// The used inputs and attributes of a typed graph whose types are incomplete, in graph order.
pub fn find_untyped(graph: &Graph) -> Vec<Untyped> {
    let source = |n: &NodeId| matches!(graph[*n].op(), Opcode::Placeholder | Opcode::GetAttr);
    let used = |n: &NodeId| graph[*n].users().next().is_some();
    let open = |n: NodeId| {
        let ty = graph[n].meta.ty.as_ref();
        let open = ty.map_or(Some(OpenPart::Type), open_part)?;
        Some(Untyped { node: n, open })
    };
    graph.iter().filter(source).filter(used).filter_map(open).collect()
}

fn open_part(ty: &Type) -> Option<OpenPart> {
    match ty {
        Val::Unknown => Some(OpenPart::Type),
        Val::Any(_) => Some(OpenPart::Number),
        Val::Leaf(t) if t.fixed_shape().is_none() => Some(OpenPart::Sizes),
        Val::Int(d) if d.as_const().is_none() => Some(OpenPart::Number),
        Val::List(v) | Val::Tuple(v) => v.iter().find_map(open_part),
        Val::Dict(v) => v.iter().find_map(|(_, x)| open_part(x)),
        _ => None,
    }
}

/// What is missing, as a clause: "`%x` has no type".
pub fn what_is_missing(graph: &Graph, missing: &[Untyped]) -> String {
    let Some(first) = missing.first() else {
        return String::new();
    };
    let name = format!("`%{}`", graph[first.node].name());
    let others = missing.iter().skip(1).filter(|u| u.open == first.open).count();
    let (names, many) = match others {
        0 => (name, false),
        1 => (format!("{name} and 1 other"), true),
        n => (format!("{name} and {n} others"), true),
    };
    match (first.open, many) {
        (OpenPart::Type, false) => format!("{names} has no type"),
        (OpenPart::Type, true) => format!("{names} have no types"),
        (OpenPart::Sizes, _) => format!("the sizes of {names} are unknown"),
        (OpenPart::Number, false) => format!("the value of {names} is unknown"),
        (OpenPart::Number, true) => format!("the values of {names} are unknown"),
    }
}

/// Labels the places where types or values are missing, and adds how to give them.
pub fn explain_missing(graph: &Graph, missing: &[Untyped], mut d: Diagnostic) -> Diagnostic {
    const SHOWN: usize = 4;
    for (i, u) in missing.iter().take(SHOWN).enumerate() {
        let text = match u.open {
            OpenPart::Type => "its type is missing",
            OpenPart::Sizes => "its sizes are unknown",
            OpenPart::Number => "its value is unknown",
        };
        d = match graph[u.node].meta.span {
            Some(s) if i == 0 => d.at(s, text),
            Some(s) => d.see(s, text),
            None => d,
        };
    }
    match missing.first() {
        Some(u) => d.help(how_to_give(graph, *u)),
        None => d,
    }
}

/// How to give the missing type or value: "write `%x : f32[…]`, or pass `x:f32[…]`".
pub fn how_to_give(graph: &Graph, u: Untyped) -> String {
    let node = &graph[u.node];
    let (name, target) = (node.name(), node.target());
    match (node.op(), u.open) {
        (Opcode::GetAttr, _) => {
            format!(
                "write `param {target} : f32[…]`, or name the file that contains it: `weights \"FILE.safetensors\"`"
            )
        }
        (_, OpenPart::Number) => format!("pass its value: `{target}=3`"),
        _ => format!("write `%{name} : f32[…]`, or pass `{target}:f32[…]`"),
    }
}
