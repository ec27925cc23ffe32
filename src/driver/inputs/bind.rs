//! Binds what a user provides to the inputs of a graph: by name, checked against the declared types, with sizes solved.

use super::fill::Fill;
use super::paths::leaves_with_paths;
use super::sizes;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::driver::files::FileArray;
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::op::{self, ParamType};
use crate::source::Span;
use crate::tensor::Tensor;
use crate::types::{TensorType, Type, Val};
use std::collections::BTreeMap;

/// A run-time value, as the interpreter uses it.
pub type Value = Val<Tensor>;

/// The values of the known symbolic sizes.
pub type Dims = BTreeMap<String, i64>;

/// The origin, in messages, of values that are given directly.
pub(crate) const COMMAND_LINE: &str = "the command line";

/// The origin, in messages, of the arguments of a program's call.
pub(crate) const CALL: &str = "the call";

/// A value provided for an input.
#[derive(Clone, Debug)]
pub enum Given {
    /// A value.
    Value(Value),
    /// A literal value of this type: `x:i64[2]=[1, 2]`.
    Typed(Value, Type),
    /// A word that is not a literal: a string, for an input that takes one.
    Word(String),
    /// An array in a file. Its elements are only read if its type matches what the graph declares, so that no memory is
    /// allocated for others.
    File(FileArray),
    /// An array in a file with an element type that fxc does not support: the type's name.
    Unsupported(String),
    /// A tensor to generate, of this type or otherwise the one that the graph declares.
    Fill(Fill, Option<TensorType>),
    /// Only the type of the value: see [`declare`](super::types::declare_types).
    Type(Type),
    /// One value per call, for a sequence of calls: see [`CallSequence`](super::sequence::CallSequence).
    Each(Vec<Provided>),
}

/// A value provided for a named input.
#[derive(Clone, Debug)]
pub struct Provided {
    /// The placeholder that it is for: its target or its node's name.
    pub name: String,
    /// The value.
    pub given: Given,
    /// The value's origin, for messages: `images.npz`, `the command line`.
    pub origin: String,
    /// Whether an unknown name is an error. (A file may hold more than a graph needs.)
    pub must_match: bool,
}

/// The inputs of a graph.
#[derive(Clone, Debug, Default)]
pub struct BoundInputs {
    /// One value per placeholder, in order.
    pub values: Vec<Value>,
    /// Their types, with all sizes known.
    pub types: Vec<Type>,
    /// The sizes that they bind.
    pub dims: Dims,
}

/// Matches provided values to the placeholders of the module's entry graph. `dims` are the sizes that the user gave.
/// Reports everything that does not fit.
pub fn bind_inputs(module: &GraphModule, provided: Vec<Provided>, dims: Dims) -> (Option<BoundInputs>, Diagnostics) {
    let Some(graph) = module.entry() else {
        return (None, Diagnostics::new());
    };
    let mut b = InputBinder::new(module, graph, dims);
    b.check_dims();
    // A type is not a value: `types::declare` has handled it.
    let values = provided.into_iter().filter(|p| !matches!(p.given, Given::Type(_)));
    let slots = b.assign(values.collect());
    let values = b.bind_values(slots);
    if values.is_some() {
        b.check_guards();
    }
    match values {
        Some(values) if !b.out.has_errors() => {
            let types = values.iter().map(type_of).collect();
            (
                Some(BoundInputs {
                    values,
                    types,
                    dims: b.dims,
                }),
                b.out,
            )
        }
        _ => (None, b.out),
    }
}

/// The names by which the items of an input of type `ty` are provided; the input's own name if it has no items.
pub(crate) fn item_names(name: &str, ty: Option<&Type>) -> Vec<String> {
    let Some(ty) = ty else { return vec![name.to_string()] };
    let full = |path: Vec<String>| [&[name.to_string()], &path[..]].concat().join(".");
    leaves_with_paths(ty).into_iter().map(|(path, _)| full(path)).collect()
}

/// The tensors of an input's value, by item name.
pub(crate) fn named_tensors<'a>(name: &str, v: &'a Value) -> Vec<(String, &'a Tensor)> {
    let tensor_of = |(path, v): (Vec<String>, &'a Value)| match v {
        Val::Leaf(t) => Some(([&[name.to_string()], &path[..]].concat().join("."), t)),
        _ => None,
    };
    leaves_with_paths(v).into_iter().filter_map(tensor_of).collect()
}

/// The type of a value.
pub(crate) fn type_of(v: &Value) -> Type {
    v.map(Tensor::ty)
}

pub(super) struct InputBinder<'a> {
    pub(super) module: &'a GraphModule,
    pub(super) graph: &'a Graph,
    pub(super) placeholders: Vec<NodeId>,
    pub(super) dims: Dims,
    pub(super) out: Diagnostics,
}

/// A value that a graph takes: an input or an item of one.
#[derive(Clone, Debug)]
pub(super) struct InputPlace {
    /// The user's name for it: `x`, `cache.0`.
    pub name: String,
    /// The declared type, if any.
    pub ty: Option<Type>,
    /// The value that the exporter fixed.
    pub constant: Option<Value>,
    /// Where it is declared.
    pub span: Option<Span>,
    /// Whether an op takes a tensor here although the graph declares no type. If so, a list of numbers becomes a
    /// tensor.
    pub is_tensor: bool,
}

impl<'a> InputBinder<'a> {
    pub(super) fn new(module: &'a GraphModule, graph: &'a Graph, dims: Dims) -> InputBinder<'a> {
        InputBinder {
            module,
            graph,
            placeholders: graph.placeholders(),
            dims,
            out: Diagnostics::new(),
        }
    }
}

impl InputBinder<'_> {
    /// The placeholder with this target or otherwise this node name.
    pub(super) fn placeholder_index(&self, name: &str) -> Option<usize> {
        let by = |is: &dyn Fn(NodeId) -> bool| self.placeholders.iter().position(|&n| is(n));
        by(&|n| self.graph[n].target() == name).or_else(|| by(&|n| self.graph[n].name() == name))
    }

    /// The place of a whole input.
    pub(super) fn input_place(&self, n: NodeId) -> InputPlace {
        let node = &self.graph[n];
        // The inputs of an exported program have no defaults: a value is that of the example that was traced.
        let fixed = self.module.exported.is_some();
        InputPlace {
            name: node.target().to_string(),
            ty: node.meta.ty.clone(),
            constant: node.args().first().filter(|_| fixed).and_then(default_value),
            span: node.meta.span,
            is_tensor: node.meta.ty.as_ref().is_none_or(|t| *t == Val::Unknown) && is_used_as_tensor(self.graph, n),
        }
    }

    /// Checks that `--dim` names existing sizes and gives values within their ranges.
    fn check_dims(&mut self) {
        let known = sizes::input_symbols(self.graph);
        for name in self.dims.keys() {
            if !known.contains_key(name) && !self.module.dims.contains_key(name.as_str()) {
                self.out.push(sizes::unknown_size(name, self.module, &known));
            }
        }
        let dims: Vec<_> = self.dims.iter().map(|(k, &v)| (k.clone(), v)).collect();
        for (name, value) in dims {
            self.check_range(&name, value, "--dim");
        }
    }

    /// Checks that the sizes satisfy the conditions under which the program was traced.
    fn check_guards(&mut self) {
        let size = |v: &str| self.dims.get(v).copied();
        for guard in &self.module.guards {
            if guard.holds(&size) != Some(false) {
                continue;
            }
            let mut names = vec![];
            for d in [&guard.left, &guard.right] {
                d.visit_vars(&mut |v| names.push(v.to_string()));
            }
            names.sort();
            names.dedup();
            let sizes: Vec<String> = names
                .iter()
                .filter_map(|v| Some(format!("{v} is {}", size(v)?)))
                .collect();
            let title = format!(
                "the graph is only valid for sizes with `{guard}`, but {}",
                sizes.join(" and ")
            );
            let note = "tracing recorded one branch of each condition on sizes; for these sizes PyTorch would take the other branch";
            self.out.push(Diagnostic::new(Code::E0504, title).note(note));
        }
    }

    pub(super) fn check_range(&mut self, name: &str, value: i64, origin: &str) -> bool {
        let (min, max, span) = match self.module.dims.get(name) {
            Some(r) => (r.min, r.max, r.span),
            None => (0, None, None),
        };
        let ok = value >= min && max.is_none_or(|m| value <= m);
        if !ok {
            let range = match max {
                Some(m) => format!("{min}..{m}"),
                None => format!("at least {min}"),
            };
            let title = format!("size `{name}` is {value}, outside its range {range}");
            self.out.push(
                Diagnostic::new(Code::E0504, title)
                    .at_opt(span, "declared here")
                    .note(format!("from {origin}")),
            );
        }
        ok
    }
}

pub(super) fn quoted_list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let list: Vec<String> = names.take(12).map(|n| format!("`{n}`")).collect();
    if list.is_empty() {
        "none".to_string()
    } else {
        list.join(", ")
    }
}

pub(super) fn default_value(arg: &Arg) -> Option<Value> {
    arg.try_map(&mut |_: &NodeId| Err(())).ok()
}

/// Whether a user of `n` takes a tensor in its place.
fn is_used_as_tensor(graph: &Graph, n: NodeId) -> bool {
    let is_n = |a: &Val<NodeId>| a.as_leaf() == Some(&n);
    let takes_tensor = |ty: &ParamType| match ty {
        ParamType::Optional(of) => **of == ParamType::Tensor,
        ty => *ty == ParamType::Tensor,
    };
    graph[n].users().any(|u| {
        let user = &graph[u];
        match user.op() {
            Opcode::CallMethod => user.args().first().is_some_and(is_n),
            Opcode::CallModule => true,
            Opcode::CallFunction => {
                let path = op::canonical_path(user.target(), false);
                op::candidates(&path).iter().any(|c| {
                    let mut given = c.schema().params.iter().zip(user.args());
                    given.any(|(param, a)| takes_tensor(&param.ty) && is_n(a))
                })
            }
            _ => false,
        }
    })
}

#[cfg(test)]
#[path = "bind_tests.rs"]
mod tests;
