//! Converts a graph to a form that torch can represent, for torch's printers.
//!
//! FXIR has conveniences that torch.fx lacks: a graph as an argument (`@then_graph`), a graph called by name, and
//! canonical op names (`call_function gelu`). In torch, the first is a `get_attr` node whose attribute is a
//! `GraphModule`, the second is a `call_module`, and the third is an ATen overload.

use crate::graph::{Arg, Graph, GraphModule, Node, NodeId, Opcode};
use crate::op;
use crate::op::spell::{Spelled, spell_call};
use crate::types::Val;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Returns `graph` with fxc's own spellings replaced by torch's. `module` determines which bare names are graphs.
pub(crate) fn torch_form<'a>(graph: &'a Graph, module: Option<&GraphModule>) -> Cow<'a, Graph> {
    let is_graph = |name: &str| module.is_some_and(|m| m.graphs.contains_key(name));
    let foreign = graph.iter().any(|n| {
        let node = &graph[n];
        node.op() == Opcode::CallFunction && torch_target(node).is_none_or(|t| t != node.target())
            || node
                .args()
                .iter()
                .chain(node.kwargs().iter().map(|(_, v)| v))
                .any(names_graph)
    });
    if !foreign {
        return Cow::Borrowed(graph);
    }
    let mut g = graph.clone();
    for n in graph.ids() {
        if graph[n].op() == Opcode::CallFunction {
            let target = graph[n].target();
            if is_graph(target) {
                g.set_target(n, Opcode::CallModule, target);
            } else if let Some(s) = spell_node(graph, n) {
                let opcode = if s.method {
                    Opcode::CallMethod
                } else {
                    Opcode::CallFunction
                };
                // torch's text names Python's own functions without their module.
                let target = s.target.strip_prefix("builtins.").unwrap_or(&s.target);
                g.set_target(n, opcode, target);
                g.set_args(n, s.args);
                g.set_kwargs(n, s.kwargs.into_iter().map(|(k, v)| (k.into(), v)).collect());
            } else if let Some(t) = torch_target(&graph[n]) {
                g.set_target(n, Opcode::CallFunction, &t);
            }
        }
    }
    lift_graph_arguments(&mut g, module);
    Cow::Owned(g)
}

/// The torch spelling of a canonical call: the ATen overload that accepts its arguments or, if these are or may be
/// Python numbers, Python's own function: `eq(%flag, True)` is `operator.eq(%flag, True)`.
fn spell_node(graph: &Graph, n: NodeId) -> Option<Spelled<NodeId>> {
    let node = &graph[n];
    let op = op::by_name(node.target()).filter(|op| has_parameters(op, node))?;
    let mut args = op::emit::call_of(op, node.args().to_vec()).args;
    for (k, v) in node.kwargs() {
        args[op.schema.index_of(k)?] = v.clone();
    }
    spell_call(op, &args, &|n| graph[*n].meta.ty.clone())
}

/// torch's full path of the function that a node calls: `aten.add.Tensor` is `torch.ops.aten.add.Tensor`, `_operator.add` is
/// `operator.add`, `F.gelu` is `torch.nn.functional.gelu`, fxc's `gelu` is `torch.ops.aten.gelu.default`. `None` for a bare
/// name that is not an op of the table.
pub(crate) fn torch_target(node: &Node) -> Option<Cow<'_, str>> {
    let target = node.target();
    if target.starts_with("aten.") || target.starts_with("prims.") {
        return Some(format!("torch.ops.{target}").into());
    }
    if let Some(name) = target.strip_prefix("_operator.") {
        return Some(format!("operator.{name}").into());
    }
    if target.starts_with("F.") || target.starts_with("nn.functional.") {
        return Some(op::canonical_path(target, false).into());
    }
    if target.contains(['.', '<', ' ']) {
        return Some(target.into());
    }
    let Some(op) = op::by_name(target).filter(|op| has_parameters(op, node)) else {
        let full = op::imported_path(target)?;
        return Some(match full.strip_prefix("Tensor.") {
            Some(method) => format!("torch.Tensor.{method}").into(),
            None => full.into(),
        });
    };
    let forms = op
        .forms
        .iter()
        .filter(|f| f.schema.is_none() && !f.inplace && f.fixed.is_empty());
    let mut paths = forms.flat_map(|f| f.paths());
    let path = paths
        .clone()
        .find(|p| p.starts_with("aten."))
        .or_else(|| paths.find(|p| p.starts_with("torch.") || p.starts_with("operator.") || p.starts_with("math.")));
    path.map(|p| match p.strip_prefix("aten.") {
        Some(_) => format!("torch.ops.{p}").into(),
        None => p.into(),
    })
}

/// Whether the op has a parameter for each argument of the node. `max(%x, 1)` is not the canonical `max` but
/// `torch.max`.
fn has_parameters(op: &op::Op, node: &Node) -> bool {
    let named = |name: &str| op.schema.index_of(name).is_some() || op::imported_path(node.target()).is_none();
    node.args().len() <= op.schema.params.len() && node.kwargs().iter().all(|(k, _)| named(k))
}

fn names_graph(v: &Arg) -> bool {
    match v {
        Val::Graph(_) => true,
        Val::List(v) | Val::Tuple(v) => v.iter().any(names_graph),
        Val::Dict(v) => v.iter().any(|(_, x)| names_graph(x)),
        Val::Slice(v) | Val::Range(v) => v.iter().any(names_graph),
        _ => false,
    }
}

/// Inserts a `get_attr` node before the first use of each graph that is an argument.
fn lift_graph_arguments(g: &mut Graph, module: Option<&GraphModule>) {
    let mut lifted: HashMap<Arc<str>, Arg> = HashMap::new();
    for n in g.ids() {
        let mut names = vec![];
        let node = &g[n];
        for v in node.args().iter().chain(node.kwargs().iter().map(|(_, v)| v)) {
            graph_names(v, &mut names);
        }
        if names.is_empty() {
            continue;
        }
        let (args, kwargs) = (node.args().to_vec(), node.kwargs().to_vec());
        for name in names {
            let known = module.and_then(|m| m.graphs.get(&name));
            let target = known.and_then(|k| k.attribute.clone()).unwrap_or_else(|| name.clone());
            lifted.entry(name).or_insert_with(|| {
                let Ok(id) = g.inserting_before(Some(n), |g| g.get_attr(&target)) else {
                    return Val::None;
                };
                let (loc, frame) = (g[n].meta.loc.clone(), g[n].meta.frame.clone());
                let meta = g.meta_mut(id);
                (meta.loc, meta.frame) = (loc, frame);
                Val::Leaf(id)
            });
        }
        g.set_args(n, args.iter().map(|v| replace_graphs(v, &lifted)).collect());
        g.set_kwargs(
            n,
            kwargs
                .iter()
                .map(|(k, v)| (k.clone(), replace_graphs(v, &lifted)))
                .collect(),
        );
    }
}

/// Collects the names of the graphs in a value, in order.
pub(in crate::graph) fn graph_names(v: &Arg, out: &mut Vec<Arc<str>>) {
    match v {
        Val::Graph(n) => out.push(n.clone()),
        Val::List(v) | Val::Tuple(v) => v.iter().for_each(|x| graph_names(x, out)),
        Val::Dict(v) => v.iter().for_each(|(_, x)| graph_names(x, out)),
        _ => {}
    }
}

fn replace_graphs(v: &Arg, lifted: &HashMap<Arc<str>, Arg>) -> Arg {
    let seq = |v: &[Arg]| v.iter().map(|x| replace_graphs(x, lifted)).collect();
    match v {
        Val::Graph(n) => lifted[n].clone(),
        Val::List(v) => Val::List(seq(v)),
        Val::Tuple(v) => Val::Tuple(seq(v)),
        Val::Dict(v) => Val::Dict(v.iter().map(|(k, x)| (k.clone(), replace_graphs(x, lifted))).collect()),
        v => v.clone(),
    }
}
