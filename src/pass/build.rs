//! Builds canonical nodes: a [`GraphBuilder`] that decompositions write to, and helpers that replace nodes by values.

use crate::graph::{Arg, Graph, Meta, NodeId, Opcode};
use crate::op::emit::call_of;
use crate::op::{Build, Call, Meaning, Op, OpError, OpId, OpResult, Sizes, Traced, lift_literal};
use crate::types::{Type, Val};
use cranelift_entity::EntityRef;
use std::sync::Arc;

/// Positional and keyword arguments of a node.
pub type NodeArguments = (Vec<Arg>, Vec<(Arc<str>, Arg)>);

/// Turns a list with one argument per parameter into the canonical form: the schema's order, trailing defaults dropped,
/// keyword-only arguments by name unless they equal their default.
pub fn canonical_args(op: &Op, args: Vec<Arg>) -> NodeArguments {
    let (mut positional, mut kwargs) = (vec![], vec![]);
    let mut keep = 0;
    for (p, v) in op.schema.params.iter().zip(args) {
        let default = match &p.default {
            Some(d) => same_bits(&lift_literal(d), &v),
            None => v.is_none() && matches!(p.ty, crate::op::ParamType::Optional(_)),
        };
        if !p.keyword_only {
            positional.push(v);
            if !default {
                keep = positional.len();
            }
        } else if !default {
            kwargs.push((p.name.as_str().into(), v));
        }
    }
    positional.truncate(keep);
    (positional, kwargs)
}

/// The arguments of a canonical node, one per parameter.
pub fn full_args(op: &'static Op, graph: &Graph, n: NodeId) -> OpResult<Vec<Arg>> {
    let mut args = call_of(op, graph[n].args().to_vec()).args;
    for (k, v) in graph[n].kwargs() {
        let i = op
            .schema
            .index_of(k)
            .ok_or_else(|| OpError::arg(k, format!("`{}` has no parameter `{k}`", op.name)))?;
        args[i] = v.clone();
    }
    Ok(args)
}

/// Whether two arguments are equal bit for bit: 1, 1.0 and True differ, and so do 0.0 and -0.0.
fn same_bits(a: &Arg, b: &Arg) -> bool {
    let (mut x, mut y) = (String::new(), String::new());
    write_key(a, &mut x);
    write_key(b, &mut y);
    x == y
}

/// Whether two lists of arguments are equal bit for bit.
pub fn same_all(a: &[Arg], b: &[Arg]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_bits(a, b))
}

/// Appends a key to `out`. Two arguments have the same key exactly if they are equal bit for bit.
pub fn write_key(a: &Arg, out: &mut String) {
    use std::fmt::Write;
    let mut seq = |tag: char, v: &[Arg]| {
        out.push(tag);
        v.iter().for_each(|x| write_key(x, out));
        out.push(')');
    };
    let ok = match a {
        Val::List(v) => return seq('[', v),
        Val::Tuple(v) => return seq('(', v),
        Val::Slice(v) => return seq('s', &v[..]),
        Val::Range(v) => return seq('r', &v[..]),
        Val::Dict(v) => {
            out.push('{');
            for (k, x) in v {
                write_key(k, out);
                write_key(x, out);
            }
            out.push(')');
            return;
        }
        Val::Leaf(n) => write!(out, "%{} ", n.index()),
        Val::Float(x) => write!(out, "f{:x} ", x.to_bits()),
        Val::Complex(x, y) => write!(out, "c{:x},{:x} ", x.to_bits(), y.to_bits()),
        // Length first, so that the text cannot be confused with what follows it.
        Val::Str(s) | Val::Device(s) | Val::TorchName(s) | Val::Graph(s) | Val::Opaque(s) => {
            write!(out, "{}{}:{s}", a.kind_name(), s.len())
        }
        Val::Int(d) => write!(out, "i{d} "),
        Val::Bool(b) => write!(out, "b{b} "),
        Val::DType(d) => write!(out, "d{d} "),
        Val::None | Val::Ellipsis | Val::Unknown => write!(out, "{} ", a.kind_name()),
        Val::Any(k) => write!(out, "any{k:?} "),
    };
    debug_assert!(ok.is_ok(), "writing to a string");
}

/// The metadata of new nodes: source location and provenance, from the node they replace.
#[derive(Clone, Debug, Default)]
pub struct NodeOrigin {
    place: Meta,
    provenance: Vec<Arc<str>>,
}

impl NodeOrigin {
    /// The origin of nodes with which `pass` replaces node `n`.
    pub fn from_node(graph: &Graph, n: NodeId, pass: &str) -> NodeOrigin {
        let meta = &graph[n].meta;
        let mut provenance = meta.provenance.clone();
        let name: Arc<str> = graph[n].name().into();
        if provenance.last() != Some(&name) {
            provenance.push(name);
        }
        provenance.push(pass.into());
        let mut place = Meta::default();
        place.take_place_of(meta);
        NodeOrigin { place, provenance }
    }

    /// Gives a new node its type and this origin.
    pub fn mark(&self, graph: &mut Graph, n: NodeId, ty: Type) {
        let meta = graph.meta_mut(n);
        meta.ty = Some(ty);
        meta.take_place_of(&self.place);
        meta.provenance = self.provenance.clone();
    }
}

/// Writes the nodes of a decomposition to a graph at its insertion point.
pub struct GraphBuilder<'g> {
    /// The graph.
    pub graph: &'g mut Graph,
    source: NodeOrigin,
    /// Whether to keep a composite op rather than decompose it.
    keep: fn(&Op) -> bool,
}

impl<'g> GraphBuilder<'g> {
    /// A builder of nodes with the origin `source`. Composite ops for which `keep` returns true are not decomposed.
    pub fn new(graph: &'g mut Graph, source: NodeOrigin, keep: fn(&Op) -> bool) -> GraphBuilder<'g> {
        GraphBuilder { graph, source, keep }
    }

    /// The node as a value to build with.
    pub fn traced(&self, n: NodeId) -> Option<Traced> {
        match &self.graph[n].meta.ty {
            Some(Val::Leaf(ty)) => Some(Traced {
                id: n.index() as u32,
                ty: ty.clone(),
            }),
            _ => None,
        }
    }

    /// The argument as a value to build with. A node that is not a tensor becomes the value that inference has found
    /// for it.
    pub fn trace(&self, arg: &Arg) -> Val<Traced> {
        let r: Result<Val<Traced>, std::convert::Infallible> = arg.try_map(&mut |&n| {
            Ok(match self.traced(n) {
                Some(t) => Val::Leaf(t),
                None => self.trace_items(n),
            })
        });
        match r {
            Ok(v) => v,
        }
    }

    fn trace_items(&self, n: NodeId) -> Val<Traced> {
        let ty = self.graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
        if ty.leaves().is_empty() {
            ty.map(|_| unreachable!("no leaves"))
        } else {
            Val::Unknown
        }
    }

    /// A built value as an argument.
    pub fn to_arg(v: &Val<Traced>) -> Arg {
        v.map(|t| NodeId::new(t.id as usize))
    }

    /// Adds the node of a canonical call.
    pub fn node(&mut self, call: &Call<Traced>, ty: Type) -> NodeId {
        let (args, kwargs) = canonical_args(call.op, call.args.iter().map(Self::to_arg).collect());
        let n = self
            .graph
            .create_node(Opcode::CallFunction, call.op.name, args, kwargs, None);
        self.source.mark(self.graph, n, ty);
        n
    }

    /// The value of a node of this type: the node itself, or a structure of `item_of` nodes.
    fn node_value(&mut self, n: NodeId, ty: &Type) -> Val<Traced> {
        match ty {
            Val::Leaf(t) => Val::Leaf(Traced {
                id: n.index() as u32,
                ty: t.clone(),
            }),
            Val::List(v) => Val::List(self.item_values(n, v)),
            Val::Tuple(v) => Val::Tuple(self.item_values(n, v)),
            t => t.map(|_| unreachable!("scalars contain no tensors")),
        }
    }

    /// The items of a node that returns several values, as new nodes.
    pub fn items(&mut self, n: NodeId) -> Arg {
        let ty = self.graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
        Self::to_arg(&self.node_value(n, &ty))
    }

    fn item_values(&mut self, n: NodeId, types: &[Type]) -> Vec<Val<Traced>> {
        let mut out = vec![];
        for (i, t) in types.iter().enumerate() {
            let args = vec![Val::Leaf(n), Val::int(i as i64)];
            let item = self.graph.call_op(OpId::ItemOf, args);
            self.source.mark(self.graph, item, t.clone());
            out.push(self.node_value(item, t));
        }
        out
    }
}

impl Build for GraphBuilder<'_> {
    fn call_row(&mut self, op: &'static Op, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>> {
        let call = call_of(op, args);
        if let Meaning::Decompose(f) = call.op.meaning
            && !(self.keep)(call.op)
        {
            return f(self, &call);
        }
        let ty = call
            .op
            .result_type(&call.map(|t| t.ty.clone()), &mut Sizes::default())?;
        if ty.leaves().is_empty() && ty != Val::Unknown {
            return Ok(ty.map(|_| unreachable!("no leaves")));
        }
        let n = self.node(&call, ty.clone());
        Ok(self.node_value(n, &ty))
    }
}

/// Makes the users of `old` use `value` instead. A user that takes an item of `old` is replaced by that item and
/// erased.
pub fn replace_with_value(graph: &mut Graph, old: NodeId, value: &Arg) {
    let users: Vec<NodeId> = graph[old].users().collect();
    for u in users {
        if let Some(i) = item_index(graph, u, old)
            && let Some(item) = item_at(value, i)
        {
            let item = item.clone();
            replace_with_value(graph, u, &item);
            if graph[u].users().len() == 0 {
                // It has no users any more, so erasing it cannot fail.
                let _ = graph.erase_node(u);
            }
            continue;
        }
        graph.map_args(u, |n| if n == old { value.clone() } else { Val::Leaf(n) });
    }
}

/// The index, if `user` is `item_of(of, index)` in any spelling.
pub fn item_index(graph: &Graph, user: NodeId, sequence: NodeId) -> Option<i64> {
    let node = &graph[user];
    let is_item = matches!(node.target(), "operator.getitem" | "_operator.getitem") || node.calls(OpId::ItemOf);
    match node.args() {
        [Val::Leaf(n), i] if is_item && *n == sequence && node.op() == Opcode::CallFunction => i.as_int(),
        _ => None,
    }
}

fn item_at(value: &Arg, i: i64) -> Option<&Arg> {
    let items = value.items()?;
    let i = if i < 0 { i.checked_add(items.len() as i64)? } else { i };
    items.get(usize::try_from(i).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_numbers_apart() {
        let args: Vec<Arg> = vec![
            Val::int(1),
            Val::Float(1.0),
            Val::Bool(true),
            Val::Float(0.0),
            Val::Float(-0.0),
            Val::str("1"),
            Val::List(vec![Val::int(1)]),
            Val::Tuple(vec![Val::int(1)]),
        ];
        for (i, a) in args.iter().enumerate() {
            for (j, b) in args.iter().enumerate() {
                assert_eq!(same_bits(a, b), i == j, "{a:?} and {b:?}");
            }
        }
        assert!(same_bits(&Val::Float(f64::NAN), &Val::Float(f64::NAN)));
    }
}
