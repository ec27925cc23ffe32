//! Resolves a node to the op or graph it calls.
//!
//! [`resolve_node`] is how every stage sees a node as a call of a canonical op: functions, methods and modules, whatever their
//! spelling, become a row of the op table with one argument per parameter.

mod modules;

use self::modules::module_call;
use super::call::has_unknown;
use super::resolved::{Callee, Operand, Resolved, arg_type, kwarg_refs};
use super::{report, unknown};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::op;
use crate::types::{DType, Type, Val};
use std::sync::Arc;

/// The graph of the same file that a node calls, and the number of leading arguments that belong to a wrapper, not to
/// the graph. An example is `wrap_with_set_grad_enabled(False, @graph, …)`, which changes nothing here. A graph does
/// not call itself: in a graph named `softmax`, `softmax` is the op.
pub(crate) fn graph_callee(
    module: &GraphModule,
    caller: &str,
    graph: &Graph,
    node: NodeId,
) -> Option<(Arc<str>, usize)> {
    let n = &graph[node];
    if n.op() != Opcode::CallFunction || n.target() == caller {
        return None;
    }
    if let Some((name, _)) = module.graphs.get_key_value(n.target()) {
        return Some((name.clone(), 0));
    }
    let path = op::canonical_path(n.target(), false);
    if let Some(name) = own_graph(module, &path).filter(|name| &**name != caller) {
        return Some((name, 0));
    }
    let graph_index = match path.strip_prefix("higher_order.")? {
        "wrap_with_set_grad_enabled" => 1,
        // An active region has already been expanded into conversions (see `wrappers`).
        "wrap_with_autocast" => 4,
        "wrap" | "tag_activation_checkpoint" | "wrap_activation_checkpoint" | "invoke_subgraph" => 0,
        _ => return None,
    };
    // `invoke_subgraph(@graph, "identifier", …)` has one more argument before those of the graph.
    let named = n.target().ends_with("invoke_subgraph") as usize;
    match n.args().get(graph_index) {
        Some(Val::Graph(name)) => module
            .graphs
            .get_key_value(name)
            .map(|(k, _)| (k.clone(), graph_index + 1 + named)),
        _ => None,
    }
}

/// The graph of the file that defines a custom op: `graph mylib.accum` defines `torch.ops.mylib.accum.default`.
pub(super) fn own_graph(module: &GraphModule, path: &str) -> Option<Arc<str>> {
    let path = path.strip_prefix("torch.ops.").unwrap_or(path);
    let name = path.strip_suffix(".default").unwrap_or(path);
    let entry = module.graphs.get_key_value(name).filter(|_| name.contains('.'));
    entry.map(|(name, _)| name.clone())
}

/// Resolves a call node by the types stored in the nodes.
pub fn resolve_node(module: &GraphModule, graph: &Graph, node: NodeId) -> Result<Resolved, Diagnostic> {
    let ty = |n: NodeId| graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
    resolve_with(module, "", graph, node, &ty)
}

/// Resolves a call node by the types that `ty` returns. `caller` is the name of `graph`, or empty if unknown.
pub(crate) fn resolve_with(
    module: &GraphModule,
    caller: &str,
    graph: &Graph,
    node: NodeId,
    ty: &dyn Fn(NodeId) -> Type,
) -> Result<Resolved, Diagnostic> {
    resolve_plain(module, caller, graph, node, ty).map_err(|d| match d.code {
        Code::E0201 if d.suggestions.is_empty() => {
            let own_names = unknown::own_names(module);
            unknown::suggest_names(module, graph, node, d, &own_names, &|path| {
                args_fit_op(graph, node, ty, path)
            })
        }
        _ => d,
    })
}

/// Whether the arguments of a node fit an op of the table.
pub(super) fn args_fit_op(graph: &Graph, node: NodeId, ty: &dyn Fn(NodeId) -> Type, path: &str) -> bool {
    let n = &graph[node];
    let args: Vec<_> = n.args().iter().map(|a| arg_type(a, ty)).collect();
    let kwargs: Vec<_> = n.kwargs().iter().map(|(k, v)| (k.clone(), arg_type(v, ty))).collect();
    op::resolve(path, &args, &kwarg_refs(&kwargs)).is_ok()
}

/// [`resolve_with`] without suggestions for unknown names.
pub(super) fn resolve_plain(
    module: &GraphModule,
    caller: &str,
    graph: &Graph,
    node: NodeId,
    ty: &dyn Fn(NodeId) -> Type,
) -> Result<Resolved, Diagnostic> {
    let n = &graph[node];
    let mut call = unresolved_call(graph, node, ty);
    match n.op() {
        Opcode::CallModule => {
            take_out(&mut call, "out");
            module_call(module, graph, node, call)
        }
        Opcode::CallMethod => resolve_op(module, graph, node, &op::canonical_path(n.target(), true), call),
        _ => match graph_callee(module, caller, graph, node) {
            Some((name, skip)) => {
                call.callee = Callee::Graph(name);
                call.args.drain(..skip);
                call.arg_types.drain(..skip);
                Ok(call)
            }
            None => resolve_op(module, graph, node, &op::canonical_path(n.target(), false), call),
        },
    }
}

/// The call of a node with its arguments as written.
fn unresolved_call(graph: &Graph, node: NodeId, ty: &dyn Fn(NodeId) -> Type) -> Resolved {
    let n = &graph[node];
    let operand = |a: &Arg| a.map(|&n| Operand::Node(n));
    Resolved {
        callee: Callee::Graph("".into()),
        args: n.args().iter().map(operand).collect(),
        kwargs: n.kwargs().iter().map(|(k, v)| (k.clone(), operand(v))).collect(),
        arg_types: n.args().iter().map(|a| arg_type(a, ty)).collect(),
        kwarg_types: n.kwargs().iter().map(|(k, v)| (k.clone(), arg_type(v, ty))).collect(),
        out: vec![],
    }
}

/// Resolves a call of the function or method `path`.
fn resolve_op(
    module: &GraphModule,
    graph: &Graph,
    node: NodeId,
    path: &str,
    mut call: Resolved,
) -> Result<Resolved, Diagnostic> {
    let checked = match module.declared_op(path) {
        Some(_) => false,
        None => op::check_signature(path, &call.arg_types, &kwarg_refs(&call.kwarg_types))
            .map_err(|(c, e)| report::bind_error(graph, node, path, c, e))?,
    };
    if path.contains(".tensor_split") {
        constants_as_ints(module, graph, &mut call);
    }
    let writing = op::outs::writing_overload(path).filter(|_| !op::is_spelling(path));
    if checked || writing.is_some() || may_write(module, path) {
        take_out(&mut call, writing.map_or("out", |w| w.names));
    }
    by_position(path, &mut call);
    let path = match writing {
        Some(w) if !call.out.is_empty() => w.packet,
        _ => path,
    };
    let (args, kwargs) = (&call.arg_types, kwarg_refs(&call.kwarg_types));
    let resolved = match module.declared_op(path) {
        Some(op) => op::resolve_among(&[op::Candidate { op, form: None }], args, &kwargs),
        None => op::resolve_checked(path, args, &kwargs, checked),
    };
    match resolved {
        Ok(s) => {
            call.callee = Callee::Op(s);
            Ok(call)
        }
        Err(None) => Err(unknown::unknown_op(graph, node)),
        Err(Some((candidate, e))) => Err(report::bind_error(graph, node, path, candidate, e)),
    }
}

/// Whether the op that a function or method call means depends on unknown types. Such a call keeps its spelling until
/// they are known.
pub(crate) fn is_open(module: &GraphModule, graph: &Graph, node: NodeId) -> bool {
    let n = &graph[node];
    if !matches!(n.op(), Opcode::CallFunction | Opcode::CallMethod) {
        return false;
    }
    let ty = |n: NodeId| graph[n].meta.ty.clone().unwrap_or(Val::Unknown);
    let args: Vec<Type> = n.args().iter().map(|a| arg_type(a, &ty)).collect();
    let kwargs: Vec<(Arc<str>, Type)> = n.kwargs().iter().map(|(k, v)| (k.clone(), arg_type(v, &ty))).collect();
    let mut all = args.iter().chain(kwargs.iter().map(|(_, t)| t));
    let path = op::canonical_path(n.target(), n.op() == Opcode::CallMethod);
    all.any(has_unknown) && module.declared_op(&path).is_none() && op::is_open(&path, &args, &kwarg_refs(&kwargs))
}

/// Whether a function without a torch signature may take `out`: ops that are not torch's may, and of torch's only
/// `chain_matmul`.
fn may_write(module: &GraphModule, path: &str) -> bool {
    const FAMILIES: [&str; 6] = ["torch.", "Tensor.", "aten.", "operator.", "builtins.", "math."];
    let of_torch = FAMILIES.iter().any(|f| path.starts_with(f)) && module.declared_op(path).is_none();
    !of_torch || path.ends_with(".chain_matmul")
}

/// Makes the keyword `other` of a reflected operator (`x.__rsub__(other=y)`) a positional argument, because it is the
/// first operand of the op.
fn by_position(path: &str, resolved: &mut Resolved) {
    if !path.starts_with("Tensor.__r") || resolved.args.len() != 1 {
        return;
    }
    if let Some(i) = resolved.kwargs.iter().position(|(k, _)| &**k == "other") {
        resolved.args.push(resolved.kwargs.remove(i).1);
        resolved.arg_types.push(resolved.kwarg_types.remove(i).1);
    }
}

/// Ops through which graphs of torch.export read a constant.
const COPIES: [&str; 5] = [
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
    "aten.detach.default",
    "aten.detach_.default",
    "aten.alias.default",
];

/// The ints of a constant tensor of rank 0 or 1, in the form of torch.fx arguments.
fn constant_ints<U>(module: &GraphModule, graph: &Graph, node: NodeId) -> Option<Val<U>> {
    let mut n = &graph[node];
    for _ in 0..COPIES.len() {
        if !COPIES.contains(&&*op::canonical_path(n.target(), false)) {
            break;
        }
        n = &graph[*n.args().first()?.as_leaf()?];
    }
    if n.op() != Opcode::GetAttr {
        return None;
    }
    let a = module.attributes.get(n.target())?;
    let value = a
        .value
        .as_ref()
        .filter(|v| v.dtype() == DType::I64 && v.numel() <= MOST_PARTS)?;
    let ints = |i: usize| Val::int(value.get(i).to_i64());
    match value.shape() {
        [] => Some(ints(0)),
        [n] => Some(Val::List((0..*n).map(ints).collect())),
        _ => None,
    }
}

/// The maximum number of parts that a constant may split a tensor into.
const MOST_PARTS: usize = 1 << 16;

/// Replaces constant tensors that say how to split by their values, because the number of results depends on them.
fn constants_as_ints(module: &GraphModule, graph: &Graph, resolved: &mut Resolved) {
    let args = resolved.args.iter_mut().zip(&mut resolved.arg_types).skip(1);
    let kwargs = resolved.kwargs.iter_mut().zip(&mut resolved.kwarg_types);
    let kwargs = kwargs.filter(|((k, _), _)| k.contains("sections"));
    for (v, t) in args.chain(kwargs.map(|((_, v), (_, t))| (v, t))) {
        if let Val::Leaf(Operand::Node(n)) = v
            && let (Some(ints), Some(ty)) = (constant_ints(module, graph, *n), constant_ints(module, graph, *n))
        {
            (*v, *t) = (ints, ty);
        }
    }
}

/// Moves the keyword arguments `names` (`out`, one tensor or several; `values indices`) to `resolved.out` if all are
/// present. Schemas do not list them.
fn take_out(resolved: &mut Resolved, names: &str) {
    let position = |resolved: &Resolved, name: &str| resolved.kwargs.iter().position(|(k, _)| &**k == name);
    let Some(positions) = names
        .split(' ')
        .map(|n| position(resolved, n))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let mut out = vec![];
    for &i in &positions {
        match (&resolved.kwargs[i].1, &resolved.kwarg_types[i].1) {
            (Val::None, _) if positions.len() == 1 => {}
            (Val::Leaf(o), t @ (Val::Leaf(_) | Val::Unknown)) => out.push((o.clone(), t.clone())),
            (v, Val::List(types) | Val::Tuple(types)) => {
                for (v, t) in v.items().unwrap_or_default().iter().zip(types) {
                    let (Val::Leaf(o), Val::Leaf(_) | Val::Unknown) = (v, t) else {
                        return;
                    };
                    out.push((o.clone(), t.clone()));
                }
            }
            _ => return,
        }
    }
    resolved.out = out;
    let mut keep = (0..resolved.kwargs.len()).map(|i| !positions.contains(&i));
    resolved.kwargs.retain(|_| keep.next() == Some(true));
    let mut keep = (0..resolved.kwarg_types.len()).map(|i| !positions.contains(&i));
    resolved.kwarg_types.retain(|_| keep.next() == Some(true));
}
