//! The target of a node's call with its operands and their types: the result of [`resolve_node`](super::resolve_node).

use crate::graph::{Arg, Graph, GraphModule, NodeId};
use crate::op::{self, Call, ParamType, Spelling};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::sync::Arc;

/// A value in a resolved call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operand {
    /// A node's value.
    Node(NodeId),
    /// An item of a node whose value is a list or tuple; several indices select an item of a nested one.
    Item(NodeId, Vec<usize>),
    /// An attribute of the called module (a parameter or buffer), by its path.
    Attr(Arc<str>),
}

/// The target of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Callee {
    /// An op of the table.
    Op(Spelling),
    /// A graph of the same file.
    Graph(Arc<str>),
}

/// A call with its arguments and their types.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Resolved {
    /// The target.
    pub callee: Callee,
    /// Positional arguments; for a module call, those of the op.
    pub args: Vec<Val<Operand>>,
    /// Keyword arguments.
    pub kwargs: Vec<(Arc<str>, Val<Operand>)>,
    /// The types of `args`.
    pub arg_types: Vec<Type>,
    /// The types of `kwargs`.
    pub kwarg_types: Vec<(Arc<str>, Type)>,
    /// The tensors of `out=` and similar arguments, one for each result written. They are not among `kwargs`.
    pub out: Vec<(Operand, Type)>,
}

/// Keyword arguments in the form that spellings take.
pub(super) fn kwarg_refs<T>(kwargs: &[(Arc<str>, Val<T>)]) -> Vec<(&str, &Val<T>)> {
    kwargs.iter().map(|(k, v)| (&**k, v)).collect()
}

impl Resolved {
    /// The op, unless the call is of a graph.
    pub fn op(&self) -> Option<&'static op::Op> {
        match &self.callee {
            Callee::Op(s) => Some(s.op),
            Callee::Graph(_) => None,
        }
    }

    /// The spelling used, if it is one of the table's.
    pub fn path(&self) -> Option<&'static str> {
        match &self.callee {
            Callee::Op(s) => s.path(),
            Callee::Graph(_) => None,
        }
    }

    /// Whether the result is written to the first parameter.
    pub fn is_inplace(&self) -> bool {
        matches!(&self.callee, Callee::Op(s) if s.inplace)
    }

    /// Whether the result has memory of its own although the op may return its operand's memory.
    pub fn copies_result(&self) -> bool {
        matches!(&self.callee, Callee::Op(s) if s.copies)
    }

    /// The operand that the result is written to: the first parameter of an in-place call, or the first of `out`.
    pub fn written(&self) -> Option<Operand> {
        if let Some((o, _)) = self.out.first() {
            return Some(o.clone());
        }
        if !self.is_inplace() {
            return None;
        }
        self.call()?.args.first()?.as_leaf().cloned()
    }

    /// The call with types as arguments, as type rules and meanings take it.
    pub fn types(&self) -> Option<Call<TensorType>> {
        match &self.callee {
            Callee::Op(s) => Some(s.apply(&self.arg_types, &kwarg_refs(&self.kwarg_types))),
            Callee::Graph(_) => None,
        }
    }

    /// The call with operands as arguments. Values that inference knows (sizes, numbers, dtypes) replace their
    /// operands. A node whose value is a list of tensors is replaced by the list of its items, except for parameters of
    /// type `Any`.
    pub fn call(&self) -> Option<Call<Operand>> {
        let Callee::Op(s) = &self.callee else { return None };
        let expanded = |split: bool| {
            let args: Vec<_> = self
                .args
                .iter()
                .zip(&self.arg_types)
                .map(|(a, t)| expand_operand(a, t, split))
                .collect();
            let kwargs: Vec<_> = self
                .kwargs
                .iter()
                .zip(&self.kwarg_types)
                .map(|((k, a), (_, t))| (k.clone(), expand_operand(a, t, split)))
                .collect();
            s.apply(&args, &kwarg_refs(&kwargs))
        };
        let mut call = expanded(true);
        if s.op.schema.params.iter().any(|p| p.ty == ParamType::Any) {
            let whole = expanded(false);
            for ((a, p), w) in call.args.iter_mut().zip(&s.op.schema.params).zip(whole.args) {
                if p.ty == ParamType::Any {
                    *a = w;
                }
            }
        }
        Some(call)
    }

    /// The call with each operand replaced by `f`.
    pub fn apply<T: Clone>(&self, f: &mut dyn FnMut(&Operand) -> Val<T>) -> Option<Call<T>> {
        let Callee::Op(s) = &self.callee else { return None };
        let args: Vec<Val<T>> = self.args.iter().map(|a| map_leaves(a, f)).collect();
        let kwargs: Vec<(Arc<str>, Val<T>)> = self.kwargs.iter().map(|(k, a)| (k.clone(), map_leaves(a, f))).collect();
        Some(s.apply(&args, &kwarg_refs(&kwargs)))
    }
}

/// Maps every leaf to a value.
pub(crate) fn map_leaves<T, U>(v: &Val<T>, f: &mut dyn FnMut(&T) -> Val<U>) -> Val<U> {
    let r: Result<Val<U>, std::convert::Infallible> = v.try_map(&mut |t| Ok(f(t)));
    match r {
        Ok(v) => v,
    }
}

/// Whether a value is fully known: it holds no operand and no unknown part.
pub fn is_value<T>(v: &Val<T>) -> bool {
    match v {
        Val::Leaf(_) | Val::Unknown | Val::Any(_) => false,
        Val::Int(d) => d.as_const().is_some(),
        Val::List(v) | Val::Tuple(v) => v.iter().all(is_value),
        Val::Dict(v) => v.iter().all(|(_, x)| is_value(x)),
        Val::Slice(v) | Val::Range(v) => v.iter().all(is_value),
        _ => true,
    }
}

/// Replaces operands by their known values and, if `split`, lists of tensors by lists of their items.
fn expand_operand(arg: &Val<Operand>, ty: &Type, split: bool) -> Val<Operand> {
    let seq = |v: &[Val<Operand>], t: &[Type]| v.iter().zip(t).map(|(v, t)| expand_operand(v, t, split)).collect();
    match (arg, ty) {
        (Val::Leaf(o), t) => expand_leaf(o, t, split),
        (Val::List(v), Val::List(t)) => Val::List(seq(v, t)),
        (Val::Tuple(v), Val::Tuple(t)) => Val::Tuple(seq(v, t)),
        (Val::Dict(v), Val::Dict(t)) => Val::Dict(
            v.iter()
                .zip(t)
                .map(|((k, v), (_, t))| (k.clone(), expand_operand(v, t, split)))
                .collect(),
        ),
        (Val::Slice(v), Val::Slice(t)) => Val::Slice(Box::new([0, 1, 2].map(|i| expand_operand(&v[i], &t[i], split)))),
        (Val::Range(v), Val::Range(t)) => Val::Range(Box::new([0, 1, 2].map(|i| expand_operand(&v[i], &t[i], split)))),
        _ => arg.clone(),
    }
}

fn expand_leaf(o: &Operand, ty: &Type, split: bool) -> Val<Operand> {
    if is_value(ty) {
        return ty.map(|_| unreachable!("a value contains no tensors"));
    }
    let item = |i: usize| match o {
        Operand::Node(n) => Some(Operand::Item(*n, vec![i])),
        Operand::Item(n, path) => Some(Operand::Item(*n, [&path[..], &[i]].concat())),
        Operand::Attr(_) => None,
    };
    let items = |v: &[Type]| -> Option<Vec<Val<Operand>>> {
        v.iter()
            .enumerate()
            .map(|(i, t)| item(i).map(|o| expand_leaf(&o, t, split)))
            .collect()
    };
    match ty {
        Val::List(v) if split => items(v).map(Val::List),
        Val::Tuple(v) if split => items(v).map(Val::Tuple),
        _ => None,
    }
    .unwrap_or_else(|| Val::Leaf(o.clone()))
}

/// The type of an argument; `ty` returns the types of nodes.
pub(crate) fn arg_type(arg: &Arg, ty: &dyn Fn(NodeId) -> Type) -> Type {
    let r: Result<Type, std::convert::Infallible> = arg.try_map(&mut |&n| Ok(ty(n)));
    match r {
        Ok(t) => t,
    }
}

/// The type of an operand.
pub(crate) fn operand_type(module: &GraphModule, graph: &Graph, o: &Operand) -> Type {
    let node = |n: &NodeId| graph[*n].meta.ty.clone().unwrap_or(Val::Unknown);
    match o {
        Operand::Node(n) => node(n),
        Operand::Item(n, path) => path.iter().fold(node(n), |t, &i| {
            t.items().and_then(|v| v.get(i)).cloned().unwrap_or(Val::Unknown)
        }),
        Operand::Attr(path) => attribute_type(module, path),
    }
}

/// The type of a graph's result, from the types stored in its nodes.
pub fn result_type(graph: &Graph) -> Type {
    let ty = |n: NodeId| graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
    let result = graph.output().and_then(|o| graph[o].args().first());
    result.map_or(Val::None, |a| arg_type(a, &ty))
}

/// The type of the attribute `path`. It is unknown if the attribute has no value, is not declared, and is not implied
/// by a module's declaration.
pub(crate) fn attribute_type(module: &GraphModule, path: &str) -> Type {
    let known = declared_attribute(module, path).or_else(|| module.implied.get(path).cloned());
    known
        .or_else(|| implied_attribute(module, path))
        .unwrap_or(Val::Unknown)
}

/// The type of an attribute from its value or its declaration.
pub(super) fn declared_attribute(module: &GraphModule, path: &str) -> Option<Type> {
    let a = module.attributes.get(path)?;
    a.value.as_ref().map(|v| Val::Leaf(v.ty())).or_else(|| a.ty.clone())
}

/// The type of the weight at `path` that its module's constructor implies.
fn implied_attribute(module: &GraphModule, path: &str) -> Option<Type> {
    let dots = path.rmatch_indices('.').map(|(i, _)| i);
    let (decl, name) = dots
        .into_iter()
        .find_map(|i| Some((module.modules.get(&path[..i])?, &path[i + 1..])))?;
    let sizes = op::modules::attribute_sizes(decl.constructed(), name)?;
    Some(weight_of(DType::F32, &sizes))
}

/// The type of a module's weight. A 0-dim weight is a counter.
pub(super) fn weight_of(dtype: DType, sizes: &[i64]) -> Type {
    tensor_of(if sizes.is_empty() { DType::I64 } else { dtype }, sizes)
}

/// The type of a tensor of known sizes.
fn tensor_of(dtype: DType, sizes: &[i64]) -> Type {
    Val::Leaf(TensorType {
        dtype,
        shape: Some(sizes.iter().map(|&n| Dim::Const(n)).collect()),
    })
}
