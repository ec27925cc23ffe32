//! From what a user gives to the inputs of a graph: by name, checked against the declared types, sizes solved.

use super::assign::leaves_with_paths;
use super::fill::Fill;
use super::sizes;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::driver::files::FileArray;
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::op::{self, ParamType};
use crate::source::Span;
use crate::tensor::Tensor;
use crate::types::{TensorType, Type, Val};
use std::collections::BTreeMap;

/// A run-time value, as the interpreter takes it.
pub type Value = Val<Tensor>;

/// The value of each symbolic size that is known.
pub type Dims = BTreeMap<String, i64>;

/// Where a value comes from that is given by itself, for messages.
pub const COMMAND_LINE: &str = "the command line";

/// What is given for an input.
#[derive(Clone, Debug)]
pub enum Given {
    /// A value.
    Value(Value),
    /// A value written out, of this type: `x:i64[2]=[1, 2]`.
    Typed(Value, Type),
    /// A word that is not a value by itself: a string, for an input that takes one.
    Word(String),
    /// An array of a file. Its elements are read if its type is what the graph declares, so that no memory is taken for others.
    File(FileArray),
    /// An array of a file whose elements, of this type, fxc does not compute with.
    Unsupported(String),
    /// A tensor to be made, of this type or else of the one that the graph declares.
    Fill(Fill, Option<TensorType>),
    /// No value, but the type that one will have: see [`declare`](super::types::declare_types).
    Type(Type),
    /// One after the other in as many calls: see [`Sequence`](super::sequence::Sequence).
    Each(Vec<Provided>),
}

/// Something given by name.
#[derive(Clone, Debug)]
pub struct Provided {
    /// The placeholder it is for, by its target or its node's name.
    pub name: String,
    /// What.
    pub given: Given,
    /// Where it came from, for messages: `images.npz`, `the command line`.
    pub origin: String,
    /// Whether it is an error if no placeholder has the name (a file may hold more than a graph needs).
    pub must_match: bool,
}

/// The inputs of a graph.
#[derive(Clone, Debug, Default)]
pub struct BoundInputs {
    /// One value per placeholder, in order.
    pub values: Vec<Value>,
    /// Their types, with all sizes known.
    pub types: Vec<Type>,
    /// The sizes they bind.
    pub dims: Dims,
}

/// Matches what is given to the placeholders of the module's entry graph. `dims` are the sizes that the user gave. All
/// that does not fit is reported.
pub fn bind_inputs(module: &GraphModule, provided: Vec<Provided>, dims: Dims) -> (Option<BoundInputs>, Diagnostics) {
    let Some(graph) = module.entry() else {
        return (None, Diagnostics::new());
    };
    let mut b = InputBinder::new(module, graph, dims);
    b.check_dims();
    // A type is not a value: `types::declare` has seen to it.
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

/// The names by which the items of an input of type `ty` are given; its own name if it has none.
pub fn item_names(name: &str, ty: Option<&Type>) -> Vec<String> {
    let Some(ty) = ty else { return vec![name.to_string()] };
    let full = |path: Vec<String>| [&[name.to_string()], &path[..]].concat().join(".");
    leaves_with_paths(ty).into_iter().map(|(path, _)| full(path)).collect()
}

/// The tensors of an input's value, by the names of the items that they are.
pub fn named_tensors<'a>(name: &str, v: &'a Value) -> Vec<(String, &'a Tensor)> {
    let of = |(path, v): (Vec<String>, &'a Value)| match v {
        Val::Leaf(t) => Some(([&[name.to_string()], &path[..]].concat().join("."), t)),
        _ => None,
    };
    leaves_with_paths(v).into_iter().filter_map(of).collect()
}

/// The type of a value.
pub fn type_of(v: &Value) -> Type {
    v.map(Tensor::ty)
}

pub(super) struct InputBinder<'a> {
    pub(super) module: &'a GraphModule,
    pub(super) graph: &'a Graph,
    pub(super) placeholders: Vec<NodeId>,
    pub(super) dims: Dims,
    pub(super) out: Diagnostics,
}

/// A value that a graph takes: an input, or an item of one.
#[derive(Clone, Debug)]
pub(super) struct InputPlace {
    /// What the user calls it: `x`, `cache.0`.
    pub name: String,
    /// Its type, if it is declared.
    pub ty: Option<Type>,
    /// The value that the exporter fixed.
    pub constant: Option<Value>,
    /// Where it is declared.
    pub span: Option<Span>,
    /// Whether an op takes a tensor here, though the graph declares no type: a list of numbers is one then.
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
    /// The placeholder that `name` means, by its target or else by its node's name.
    pub(super) fn placeholder_index(&self, name: &str) -> Option<usize> {
        let by = |is: &dyn Fn(NodeId) -> bool| self.placeholders.iter().position(|&n| is(n));
        by(&|n| self.graph[n].target() == name).or_else(|| by(&|n| self.graph[n].name() == name))
    }

    /// An input as a whole.
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

    /// `--dim` names sizes that exist and values within their ranges.
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

    /// The sizes meet the conditions that the program was traced under.
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
                "the graph holds only for sizes with `{guard}`, but {}",
                sizes.join(" and ")
            );
            let note = "a tracer follows one branch of each condition on sizes; where the other holds, PyTorch computes something else";
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
            let title = format!("size `{name}` is {value}, outside of its range {range}");
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

/// Whether something that reads `n` takes a tensor there.
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
