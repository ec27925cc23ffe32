//! The normalised form of a node that patterns are compared with: its callee, and its arguments in canonical order.

use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::infer::{self, Callee as Resolves, Operand};
use crate::op::Op;
use crate::types::Val;
use cranelift_entity::SecondaryMap;
use std::rc::Rc;
use std::sync::Arc;

/// The callee of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ViewCallee {
    /// An op of the op table, and whether the result is written to its first argument.
    Op(&'static Op, bool),
    /// A callee that is not in the op table: a graph of the file, or a user's function.
    Other(Opcode, Arc<str>),
}

impl ViewCallee {
    /// A key that is equal only for equal callees.
    pub(super) fn key(&self) -> Arc<str> {
        match self {
            ViewCallee::Op(op, false) => op.name.into(),
            ViewCallee::Op(op, true) => format!("{} (in place)", op.name).into(),
            ViewCallee::Other(op, target) => format!("{op} {target}").into(),
        }
    }
}

/// A node's callee and arguments: one argument per parameter for an op of the table, else as written.
#[derive(Clone, Debug)]
pub(super) struct CallView<T> {
    /// The callee.
    pub callee: ViewCallee,
    /// Positional arguments.
    pub args: Vec<Val<T>>,
    /// Keyword arguments; empty for an op of the table.
    pub kwargs: Vec<(Arc<str>, Val<T>)>,
    /// Whether the node writes to memory.
    pub writes: bool,
}

/// The views of nodes, created on demand.
#[derive(Default)]
pub(super) struct Views {
    known: SecondaryMap<NodeId, Option<Option<Rc<CallView<Operand>>>>>,
}

impl Views {
    /// The view of a call; `None` for any other node.
    pub(super) fn get(
        &mut self,
        module: &GraphModule,
        caller: &str,
        graph: &Graph,
        n: NodeId,
    ) -> Option<Rc<CallView<Operand>>> {
        if self.known[n].is_none() {
            self.known[n] = Some(view_call(module, caller, graph, n).map(Rc::new));
        }
        self.known[n].clone().flatten()
    }

    /// Drops the view of a changed node.
    pub(super) fn forget(&mut self, n: NodeId) {
        self.known[n] = None;
    }
}

fn view_call(module: &GraphModule, caller: &str, graph: &Graph, n: NodeId) -> Option<CallView<Operand>> {
    let node = &graph[n];
    if !node.op().is_call() {
        return None;
    }
    let ty = |n: NodeId| graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
    if let Ok(resolved) = infer::resolve_with(module, caller, graph, n, &ty)
        && let Resolves::Op(spelling) = &resolved.callee
        && let Some(call) = resolved.call()
    {
        return Some(CallView {
            callee: ViewCallee::Op(spelling.op, resolved.is_inplace()),
            args: call.args,
            kwargs: vec![],
            writes: resolved.written().is_some(),
        });
    }
    let operand = |a: &crate::graph::Arg| a.map(|&n| Operand::Node(n));
    Some(CallView {
        callee: ViewCallee::Other(node.op(), node.target().into()),
        args: node.args().iter().map(operand).collect(),
        kwargs: node.kwargs().iter().map(|(k, v)| (k.clone(), operand(v))).collect(),
        writes: node.op() == Opcode::CallMethod && node.target().ends_with('_'),
    })
}

/// Whether two values are bit-identical: 1, 1.0 and True differ, 0.0 and -0.0 differ, and NaN equals NaN.
pub(crate) fn is_same_value<T: PartialEq>(a: &Val<T>, b: &Val<T>) -> bool {
    let bits = |x: &f64, y: &f64| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    let seq = |a: &[Val<T>], b: &[Val<T>]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_value(a, b));
    match (a, b) {
        (Val::Float(x), Val::Float(y)) => bits(x, y),
        (Val::Complex(a, b), Val::Complex(c, d)) => bits(a, c) && bits(b, d),
        (Val::List(a), Val::List(b)) | (Val::Tuple(a), Val::Tuple(b)) => seq(a, b),
        (Val::Slice(a), Val::Slice(b)) | (Val::Range(a), Val::Range(b)) => seq(&a[..], &b[..]),
        (Val::Dict(a), Val::Dict(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|((k, x), (l, y))| is_same_value(k, l) && is_same_value(x, y))
        }
        _ => a == b,
    }
}
