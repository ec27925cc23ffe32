//! `auto_functionalized` and `auto_functionalized_v2`: calls of an op that writes to its arguments, applied to copies of them.
//!
//! ```text
//! auto_functionalized(op, x=%x, out=%out)
//! auto_functionalized_v2(op, x=%x, _out_base_index=0, _out_size=(3,), _out_stride=(1,), _out_storage_offset=3, _all_bases=[%b])
//! ```
//!
//! The second form lists the underlying tensors (`_all_bases`) and describes each mutated argument as a view of one of them.
//! Both forms return the op's results, or None, followed by the mutated copies. An archive does not contain the op's
//! definition; a graph of the file must define it.

use super::resolve::own_graph;
use super::wrappers::insert_call;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, Node, NodeId, Opcode};
use crate::op;
use crate::types::Val;
use std::sync::Arc;

/// The row that collects the results of an expanded call.
pub(crate) const GATHERED: &str = "gathered";

const PREFIX: &str = "higher_order.auto_functionalized";

/// Whether the node is a call of one of the two wrappers.
pub(super) fn is_call(n: &Node) -> bool {
    n.op() == Opcode::CallFunction && op::canonical_path(n.target(), false).starts_with(PREFIX)
}

/// The op that a wrapper's call names.
pub(super) fn wrapped_op(n: &Node) -> Option<&str> {
    if !is_call(n) {
        return None;
    }
    match n.args().first()? {
        Val::Opaque(path) | Val::TorchName(path) | Val::Str(path) | Val::Graph(path) => Some(path),
        _ => None,
    }
}

/// Expands the call if the file defines the op; otherwise inference reports an unknown op.
pub(super) fn expand_call(module: &GraphModule, graph: &mut Graph, n: NodeId) -> Result<(), Diagnostic> {
    let Some(path) = wrapped_op(&graph[n]) else {
        return Ok(());
    };
    let Some(callee) = own_graph(module, path) else {
        return Ok(());
    };
    let mut call = WrapperCall {
        kwargs: graph[n].kwargs().to_vec(),
        copies: vec![],
    };
    let prepared = match call.take("_all_bases") {
        None => call.of_arguments(graph, n, &written_inputs(&module.graphs[&callee])),
        Some(bases) => call.of_bases(graph, n, &bases),
    };
    prepared.map_err(|reason| {
        let title = format!("invalid call of `{}`: {reason}", graph[n].target());
        Diagnostic::new(Code::E0203, title).at_opt(graph[n].meta.span, "")
    })?;
    let result = insert_call(graph, n, &callee, vec![], call.kwargs);
    let mut items = leading_results(graph, n, &module.graphs[&callee], result);
    items.extend(call.copies);
    graph.set_target(n, Opcode::CallFunction, GATHERED);
    graph.set_kwargs(n, vec![]);
    graph.set_args(n, vec![Val::Tuple(items)]);
    Ok(())
}

/// The leading results of the wrapper: the op's own, or None.
fn leading_results(graph: &mut Graph, n: NodeId, callee: &Graph, result: NodeId) -> Vec<Arg> {
    match callee.iter().next_back().and_then(|o| callee[o].args().first()) {
        Some(Val::Tuple(v)) => (0..v.len())
            .map(|i| {
                let args = vec![Val::Leaf(result), Val::int(i as i64)];
                Val::Leaf(insert_call(graph, n, "operator.getitem", args, vec![]))
            })
            .collect(),
        None | Some(Val::None) => vec![Val::None],
        Some(_) => vec![Val::Leaf(result)],
    }
}

/// A call that is being expanded.
struct WrapperCall {
    kwargs: Vec<(Arc<str>, Arg)>,
    /// The copies that the op writes to.
    copies: Vec<Arg>,
}

impl WrapperCall {
    fn take(&mut self, name: &str) -> Option<Arg> {
        let i = self.kwargs.iter().position(|(k, _)| &**k == name)?;
        Some(self.kwargs.remove(i).1)
    }

    /// Expands the first form: copies the arguments named in `written`.
    fn of_arguments(&mut self, graph: &mut Graph, n: NodeId, written: &[String]) -> Result<(), String> {
        for name in written {
            let argument = self.kwargs.iter_mut().find(|(k, _)| **k == **name);
            let (_, arg) =
                argument.ok_or_else(|| format!("the argument `{name}`, which the op writes to, is missing"))?;
            *arg = arg.map(|&i| insert_clone(graph, n, i));
            self.copies.push(arg.clone());
        }
        Ok(())
    }

    /// Expands the second form: copies the bases and makes the arguments views of the copies.
    fn of_bases(&mut self, graph: &mut Graph, n: NodeId, bases: &Arg) -> Result<(), String> {
        let bases = bases.items().ok_or("`_all_bases` must be a list")?;
        self.copies = bases.iter().map(|b| b.map(|&i| insert_clone(graph, n, i))).collect();
        let lists = self.names_with_suffix("_length");
        for name in &lists {
            let length = self.take(&format!("_{name}_length")).unwrap_or(Val::None);
            let value = match length.as_int() {
                None => Val::None,
                Some(length) => {
                    let views = (0..length).map(|i| self.insert_view(graph, n, &format!("_{name}_{i}")));
                    Val::List(views.collect::<Result<_, _>>()?)
                }
            };
            self.kwargs.push((name.as_str().into(), value));
        }
        for name in self.names_with_suffix("_base_index") {
            let value = self.insert_view(graph, n, &format!("_{name}"))?;
            self.kwargs.push((name.as_str().into(), value));
        }
        Ok(())
    }

    /// The names `x` of all arguments `_x…` that end in `end`.
    fn names_with_suffix(&self, end: &str) -> Vec<String> {
        let name = |k: &str| Some(k.strip_prefix('_')?.strip_suffix(end)?.to_string());
        self.kwargs.iter().filter_map(|(k, _)| name(k)).collect()
    }

    /// Inserts the view that the arguments with this prefix describe.
    fn insert_view(&mut self, graph: &mut Graph, n: NodeId, prefix: &str) -> Result<Arg, String> {
        let mut part = |name: &str| self.take(&format!("{prefix}_{name}"));
        let index = part("base_index").ok_or_else(|| format!("`{prefix}_base_index` is missing"))?;
        if index == Val::None {
            return Ok(Val::None);
        }
        let (alias, offset, dim) = (part("alias"), part("storage_offset"), part("slice_dim"));
        let (size, stride) = (part("size"), part("stride"));
        let (start, end) = (part("slice_start"), part("slice_end"));
        let position = index.as_int().and_then(|i| usize::try_from(i).ok());
        let base = position.and_then(|i| self.copies.get(i));
        let base = base
            .ok_or_else(|| format!("`{prefix}_base_index` is out of range"))?
            .clone();
        Ok(match (alias, (size, stride, offset), (dim, start, end)) {
            (Some(_), ..) => base,
            (_, (Some(size), Some(stride), Some(offset)), _) => {
                let args = vec![base, size, stride, offset];
                Val::Leaf(insert_call(graph, n, "torch.ops.aten.as_strided.default", args, vec![]))
            }
            (_, _, (Some(dim), Some(start), Some(end))) => {
                let args = vec![base, dim, start, end];
                Val::Leaf(insert_call(graph, n, "torch.ops.aten.slice.Tensor", args, vec![]))
            }
            _ => base,
        })
    }
}

fn insert_clone(graph: &mut Graph, n: NodeId, source: NodeId) -> NodeId {
    insert_call(
        graph,
        n,
        "torch.ops.aten.clone.default",
        vec![Val::Leaf(source)],
        vec![],
    )
}

/// The names of the inputs that a graph writes to, in the graph's order. They are the mutable arguments of the op's
/// schema.
fn written_inputs(graph: &Graph) -> Vec<String> {
    let mut written = vec![];
    for n in graph.iter().filter(|&n| writes_in_place(&graph[n])) {
        // Writing to a view of an input writes to the input.
        let mut node = graph[n].args().first().and_then(|a| a.as_leaf().copied());
        while let Some(i) = node {
            if graph[i].op() == Opcode::Placeholder {
                written.push(i);
            }
            let through = is_view(&graph[i]) || writes_in_place(&graph[i]);
            node = graph[i]
                .args()
                .first()
                .filter(|_| through)
                .and_then(|a| a.as_leaf().copied());
        }
    }
    let inputs = graph.placeholders().into_iter().filter(|p| written.contains(p));
    inputs.map(|p| graph[p].target().to_string()).collect()
}

fn op_candidates(n: &Node) -> Vec<op::Candidate> {
    match n.op() {
        Opcode::CallFunction | Opcode::CallMethod => {
            op::candidates(&op::canonical_path(n.target(), n.op() == Opcode::CallMethod))
        }
        _ => vec![],
    }
}

/// Whether the node writes to its first argument.
fn writes_in_place(n: &Node) -> bool {
    op_candidates(n).iter().any(|c| c.form.is_some_and(|f| f.inplace))
}

fn is_view(n: &Node) -> bool {
    op_candidates(n).iter().any(|c| c.op.aliases)
}
