//! Lets pointwise ops overwrite an operand that is not read afterwards.
//!
//! This is the inverse of `functionalize`, for graphs that run op by op under PyTorch: `relu(x)` needs no new memory if
//! this is the last use of `x`. A node becomes in-place if its operand was computed by this graph (inputs, parameters
//! and constants belong to the caller), has the result's type, shares no memory with another operand, and has no alias
//! that is used later. fxc's own code does not need this pass: the memory plan gives a result the memory of an operand
//! that dies there.
//!
#![doc = include_str!("../examples/reinplace.md")]

use crate::diag::Diagnostic;
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::op::{self, Form, Meaning, Op};
use crate::pass::build::full_args;
use crate::pass::{PassContext, canonical_op, each_graph};
use crate::types::{Type, Val};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    each_graph(module, |_, graph| {
        let mut changed = 0;
        let place: HashMap<NodeId, usize> = graph.iter().enumerate().map(|(i, n)| (n, i)).collect();
        // Nodes that own their memory: they allocate it, or overwrite memory that this graph allocated.
        let mut owners: HashSet<NodeId> = HashSet::new();
        for n in graph.ids() {
            let Some(op) = canonical_op(graph, n) else { continue };
            match inplace_spelling(graph, n, op, &place, &owners) {
                Some(path) => {
                    graph.set_target(n, Opcode::CallFunction, &path);
                    owners.insert(n);
                    changed += 1;
                }
                None if is_fresh(op) => {
                    owners.insert(n);
                }
                None => {}
            }
        }
        Ok(changed)
    })
}

/// Whether the result always has new memory.
fn is_fresh(op: &Op) -> bool {
    let computed = matches!(
        op.meaning,
        Meaning::Pointwise(_) | Meaning::Reduce(_) | Meaning::Contract(_)
    );
    !op.aliases && (computed || op.facts.new_memory)
}

/// The in-place spelling, if the node may use it.
fn inplace_spelling(
    graph: &Graph,
    n: NodeId,
    op: &'static Op,
    place: &HashMap<NodeId, usize>,
    owners: &HashSet<NodeId>,
) -> Option<String> {
    if !matches!(op.meaning, Meaning::Pointwise(_)) {
        return None;
    }
    let path = in_place(graph, n, op)?;
    let x = *graph[n].args().first()?.as_leaf()?;
    let ty = graph[n]
        .meta
        .ty
        .as_ref()
        .filter(|t| t.leaves().iter().all(|t| t.has_known_sizes()));
    let same = ty.is_some() && graph[x].meta.ty.as_ref() == ty;
    if !same || !owners.contains(&x) || full_args(op, graph, n).is_err() {
        return None;
    }
    let shared = possible_aliases(graph, x)?;
    let over = |u: NodeId| place.get(&u) <= place.get(&n) && graph[u].op() != Opcode::Output;
    let ended = shared.iter().all(|&m| graph[m].users().all(over));
    let others = graph[n].inputs().into_iter().filter(|&i| i != x);
    let twice = graph[n].args()[1..].iter().any(|a| a.leaves().contains(&&x));
    (ended && !twice && !others.into_iter().any(|i| shared.contains(&i))).then_some(path)
}

/// The overload that writes to the first parameter, among those that accept the node's arguments: `div_.Tensor_mode` needs a
/// rounding mode, `div_.Tensor` takes none.
fn in_place(graph: &Graph, n: NodeId, op: &'static Op) -> Option<String> {
    let typed = |v: &Arg| -> Type {
        match v.try_map(&mut |&i| Ok::<Type, Infallible>(graph[i].meta.ty.clone().unwrap_or(Val::Unknown))) {
            Ok(ty) => ty,
        }
    };
    let args: Vec<Type> = graph[n].args().iter().map(typed).collect();
    let kwargs: Vec<(&str, Type)> = graph[n].kwargs().iter().map(|(k, v)| (&**k, typed(v))).collect();
    let kwargs: Vec<(&str, &Type)> = kwargs.iter().map(|(k, t)| (*k, t)).collect();
    let accepts = |p: &&str| op::resolve(p, &args, &kwargs).is_ok_and(|s| s.op == op && s.inplace);
    let forms = op
        .forms
        .iter()
        .filter(|f| f.inplace && f.fixed.is_empty() && has_same_order(op, f));
    let mut paths = forms.flat_map(Form::paths).filter(|p| p.starts_with("aten."));
    paths.find(accepts).map(|p| format!("torch.ops.{p}"))
}

/// Whether the form's parameters are the first ones of the row, so that arguments mean the same by position.
fn has_same_order(op: &Op, form: &Form) -> bool {
    let (row, own) = (&op.schema.params, &form.schema_of(op).params);
    own.len() <= row.len() && own.iter().zip(row).all(|(a, b)| a.name == b.name)
}

/// The nodes that may share `x`'s memory; `None` if that is unknown.
fn possible_aliases(graph: &Graph, x: NodeId) -> Option<HashSet<NodeId>> {
    let mut out = HashSet::from([x]);
    let mut todo = vec![x];
    while let Some(m) = todo.pop() {
        for u in graph[m].users() {
            let first = graph[u].args().first() == Some(&Val::Leaf(m));
            let shares = match canonical_op(graph, u) {
                Some(op) if is_fresh(op) => false,
                // A view, a list of views, or an op that may return its operand.
                Some(_) => true,
                None if graph[u].op() == Opcode::Output => false,
                // Made in-place by this pass: the result is the first operand.
                None if graph[u].target().starts_with("torch.ops.aten.") => first,
                None => return None,
            };
            if shares && out.insert(u) {
                todo.push(u);
            }
        }
    }
    Some(out)
}
