//! Inputs and attributes whose types leave something open, and what to do about it.

use crate::diag::Diagnostic;
use crate::graph::{Graph, NodeId, Opcode};
use crate::types::{Type, Val};

/// An input or attribute that the compiler knows too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untyped {
    /// Its node.
    pub node: NodeId,
    /// What is not known.
    pub open: OpenPart,
}

/// What is not known of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenPart {
    /// Its type.
    Type,
    /// Sizes of the tensors that it is or holds.
    Sizes,
    /// The Python number that it is.
    Number,
}

/// The inputs and attributes of a typed graph that something uses and whose types leave something open, in order.
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

/// What is missing, as the end of a sentence: "`%x` has no type".
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
        (OpenPart::Sizes, _) => format!("sizes of {names} are not known"),
        (OpenPart::Number, false) => format!("the value of {names} is not known"),
        (OpenPart::Number, true) => format!("the values of {names} are not known"),
    }
}

/// Shows where types or values are missing, and says how they are given.
pub fn explain_missing(graph: &Graph, missing: &[Untyped], mut d: Diagnostic) -> Diagnostic {
    const SHOWN: usize = 4;
    for (i, u) in missing.iter().take(SHOWN).enumerate() {
        let text = match u.open {
            OpenPart::Type => "it has no type",
            OpenPart::Sizes => "its sizes are not known",
            OpenPart::Number => "its value is not known",
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

/// How a type or value is given: "write `%x : f32[…]`, or pass `x:f32[…]`".
pub fn how_to_give(graph: &Graph, u: Untyped) -> String {
    let node = &graph[u.node];
    let (name, target) = (node.name(), node.target());
    match (node.op(), u.open) {
        (Opcode::GetAttr, _) => {
            format!("write `param {target} : f32[…]`, or name the file that has it: `weights \"FILE.safetensors\"`")
        }
        (_, OpenPart::Number) => format!("pass its value: `{target}=3`"),
        _ => format!("write `%{name} : f32[…]`, or pass `{target}:f32[…]`"),
    }
}
