//! The side effects of a node: a stricter version of torch's `Node.is_impure`.
//!
//! torch treats in-place methods (`x.add_(1)`), `torch.relu_`, `operator.iadd`, `out=` and `inplace=True` as pure, so
//! its dead code elimination deletes them. Here they have effects.

use super::torch::form::graph_names;
use super::{Arg, Graph, GraphModule, Node, NodeId, Opcode};
pub use crate::op::Effect;
use crate::op::{self, Op, Schema, modules};
use crate::types::Val;

/// Functions that change a setting and that the op table does not have (`torch/fx/node.py`,
/// `_side_effectful_functions`).
const SETTINGS: &[&str] = &[
    "torch._C._set_grad_enabled",
    "torch.amp.autocast_mode._enter_autocast",
    "torch.amp.autocast_mode._exit_autocast",
    "torch.amp._enter_autocast",
    "torch.amp._exit_autocast",
    "torch.autograd.grad_mode._enter_inference_mode",
    "torch.autograd.grad_mode._exit_inference_mode",
    "profiler._record_function_enter",
    "profiler._record_function_enter_new",
    "profiler._record_function_exit",
];

/// Declares that a function has side effects, so that its calls are never removed, merged or reordered, from now on and
/// in every graph (torch's `has_side_effect`). `target` is the function in any spelling; a method is written
/// `torch.Tensor.name`.
///
/// ```
/// use fxc::graph::{Graph, purity};
///
/// purity::has_side_effect("mylib.log");
/// let mut graph = Graph::trace(&["x"], |t, p| {
///     t.function("mylib.log", (&p[0],), &[]);
///     t.function("mylib.count", (&p[0],), &[]);
///     &p[0] + 1
/// });
/// graph.eliminate_dead_code(None);
/// let calls: Vec<&str> = graph.iter().filter(|&n| graph[n].op().is_call()).map(|n| graph[n].target()).collect();
/// assert_eq!(calls, ["mylib.log", "operator.add"]);
/// ```
pub fn has_side_effect(target: &str) {
    let path = op::canonical_path(target, false);
    let rows = op::candidates(&path).into_iter().map(|c| c.op.name.to_string());
    op::custom::add_effects(rows.chain([path.clone()]).collect());
}

/// Whether the user registered a function as having side effects.
fn is_registered(target: &str, is_method: bool) -> bool {
    op::custom::has_effect(|| op::canonical_path(target, is_method))
}

/// Whether dead code elimination must keep the node even if it has no users. `module` has the declarations of the
/// modules that `call_module` nodes name.
pub fn is_impure(graph: &Graph, n: NodeId, module: Option<&GraphModule>) -> bool {
    node_effect(graph, n, module) != Effect::Pure
}

/// The side effect of the node.
pub fn node_effect(graph: &Graph, n: NodeId, module: Option<&GraphModule>) -> Effect {
    let node = &graph[n];
    if is_registered_call(node) {
        return Effect::External;
    }
    match node.op() {
        Opcode::Placeholder | Opcode::Output => Effect::Interface,
        Opcode::GetAttr => Effect::Pure,
        Opcode::CallModule => module_effect(node, module),
        Opcode::CallMethod if is_mutating_name(node.target()) => Effect::Mutates,
        Opcode::CallMethod if matches!(node.target(), "__setitem__" | "__delitem__") => Effect::Mutates,
        Opcode::CallMethod if in_place_dunder(node.target()) => Effect::Mutates,
        Opcode::CallMethod => table_effect(node, true),
        Opcode::CallFunction => function_effect(node, module),
    }
}

/// Whether the node calls a function or method that the user registered as having side effects.
fn is_registered_call(node: &Node) -> bool {
    let method = node.op() == Opcode::CallMethod;
    (method || node.op() == Opcode::CallFunction) && is_registered(node.target(), method)
}

fn function_effect(node: &Node, module: Option<&GraphModule>) -> Effect {
    let target = node.target();
    if let Some(graph) = module.and_then(|m| m.graphs.get(target)) {
        // A graph of the file has the effects of its nodes. Cyclic calls are not allowed, but they have not been ruled
        // out here, so only one level is examined and deeper calls count as effects.
        return called_graph_effect(graph, module);
    }
    let path = op::canonical_path(target, false);
    let (packet, name) = packet_and_name(&path);
    if let Some(op) = path.strip_prefix("operator.") {
        let in_place = matches!(op, "setitem" | "delitem") || in_place_dunder(&format!("__{op}__"));
        return if in_place { Effect::Mutates } else { Effect::Pure };
    }
    let writes = |v: Option<&Arg>| v.is_some_and(|v| !v.is_none());
    if !out_arguments(node, &path).is_empty() || writes(node.kwarg("out")) || is_mutating_name(name) {
        return Effect::Mutates;
    }
    if names_impure_graph(node, module) {
        return Effect::External;
    }
    if SETTINGS.contains(&packet) || SETTINGS.contains(&target) {
        return Effect::External;
    }
    table_effect(node, false)
}

/// Whether an argument is a graph (`@then_graph`) with side effects.
fn names_impure_graph(node: &Node, module: Option<&GraphModule>) -> bool {
    let Some(m) = module else { return false };
    let mut names = vec![];
    node.args()
        .iter()
        .chain(node.kwargs().iter().map(|(_, v)| v))
        .for_each(|v| graph_names(v, &mut names));
    let pure = |g: &Graph| called_graph_effect(g, module) == Effect::Pure;
    !names.iter().all(|name| m.graphs.get(name).is_none_or(pure))
}

/// The keyword arguments that an overload such as `aten.topk.values` writes to.
fn out_arguments<'a>(node: &'a Node, path: &str) -> Vec<&'a Arg> {
    let names = op::outs::writing_overload(path).map_or("", |w| w.names).split(' ');
    names.filter_map(|n| node.kwarg(n)).filter(|v| !v.is_none()).collect()
}

/// `aten.add_.Tensor` is `("aten.add_", "add_")`, `torch.relu_` is `("torch.relu_", "relu_")`.
fn packet_and_name(path: &str) -> (&str, &str) {
    let packet = match path.split_once('.') {
        Some((space, rest)) if matches!(space, "aten" | "prims" | "profiler" | "inductor") => {
            let end = rest.find('.').map_or(path.len(), |i| space.len() + 1 + i);
            &path[..end]
        }
        _ => path,
    };
    (packet, packet.rsplit('.').next().unwrap_or(packet))
}

/// torch's convention: a name with one trailing underscore writes to its first argument. `__and__` does not, nor do
/// names that only avoid a keyword.
fn is_mutating_name(name: &str) -> bool {
    name.ends_with('_') && !name.ends_with("__") && !matches!(name, "and_" | "or_" | "not_" | "is_")
}

/// Whether the name is that of an in-place dunder method: `__iadd__` and so on.
fn in_place_dunder(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "iadd",
        "iand",
        "iconcat",
        "ifloordiv",
        "ilshift",
        "imatmul",
        "imod",
        "imul",
        "ior",
        "ipow",
        "irshift",
        "isub",
        "itruediv",
        "ixor",
    ];
    name.strip_prefix("__")
        .and_then(|n| n.strip_suffix("__"))
        .is_some_and(|n| NAMES.contains(&n))
}

/// The effect according to the op table: that of the op, of arguments that its schema marks as written to, and of
/// `inplace=True`.
fn table_effect(node: &Node, is_method: bool) -> Effect {
    let path = op::canonical_path(node.target(), is_method);
    let readings = op::candidates(&path);
    if readings.is_empty() {
        // An overload that is missing from the table has the effect of the other overloads.
        let others = op::candidates(packet_and_name(&path).0);
        let mut effects = others.iter().map(|c| row_effect(c.op, c.schema(), node));
        return effects.find(|e| *e != Effect::Pure).unwrap_or(Effect::Pure);
    }
    let mut result = Effect::Pure;
    for c in readings {
        let schema = c.schema();
        let argument = |name: &str| named_arg(schema, node, name);
        if c.form.is_some_and(|f| f.inplace) || schema.params.iter().any(|p| p.mutated) {
            return Effect::Mutates;
        }
        if argument("inplace").is_some_and(is_true) || argument("out").is_some_and(|v| !v.is_none()) {
            return Effect::Mutates;
        }
        match row_effect(c.op, schema, node) {
            Effect::Pure => {}
            e => result = e,
        }
    }
    result
}

/// The argument that a node passes for a parameter.
fn named_arg<'n>(schema: &Schema, node: &'n Node, name: &str) -> Option<&'n Arg> {
    let by_position = schema.index_of(name).and_then(|i| node.args().get(i));
    by_position.or_else(|| node.kwarg(name))
}

/// The effect of an op when it is called by one of its schemas.
fn row_effect(op: &Op, schema: &Schema, node: &Node) -> Effect {
    op.effect_where(|name| match named_arg(schema, node, name) {
        Some(v) => v.as_f64(),
        None => schema.params[schema.index_of(name)?].default.as_ref()?.as_f64(),
    })
}

/// The side effect of the canonical call `n` of `op`.
pub fn canonical_effect(op: &Op, graph: &Graph, n: NodeId, module: &GraphModule) -> Effect {
    if op.control().is_some() {
        // It has the effects of the graphs that it calls.
        return node_effect(graph, n, Some(module));
    }
    match is_registered_call(&graph[n]) {
        true => Effect::External,
        false => row_effect(op, &op.schema, &graph[n]),
    }
}

fn is_true<T>(v: &Val<T>) -> bool {
    v.as_int().is_some_and(|i| i != 0)
}

fn module_effect(node: &Node, module: Option<&GraphModule>) -> Effect {
    let Some(m) = module else { return Effect::Pure };
    if let Some(graph) = m.graphs.get(node.target()) {
        return called_graph_effect(graph, module);
    }
    if modules::is_guards(node.target()) {
        return Effect::External;
    }
    let Some(decl) = m.modules.get(node.target()) else {
        return Effect::Pure;
    };
    let by_name = decl.kwargs.iter().find(|(k, _)| &**k == "inplace").map(|(_, v)| v);
    let by_position = || {
        let params = modules::constructor_params(&decl.class)?;
        decl.args.get(params.iter().position(|(p, _)| *p == "inplace")?)
    };
    match by_name.or_else(by_position) {
        Some(v) if is_true(v) => Effect::Mutates,
        _ => Effect::Pure,
    }
}

fn called_graph_effect(graph: &Graph, module: Option<&GraphModule>) -> Effect {
    for n in graph.iter() {
        let node = &graph[n];
        let mut names = vec![];
        node.args().iter().for_each(|v| graph_names(v, &mut names));
        let calls_graph = !names.is_empty()
            || matches!(node.op(), Opcode::CallFunction | Opcode::CallModule)
                && module.is_some_and(|m| m.graphs.contains_key(node.target()));
        let e = if calls_graph {
            Effect::External
        } else {
            node_effect(graph, n, module)
        };
        if !matches!(e, Effect::Pure | Effect::Interface) {
            return e;
        }
    }
    Effect::Pure
}

/// The argument that a node writes to, if it does: the tensor that `add_`, `setitem`, `relu(inplace=True)` or `out=`
/// changes.
pub fn mutated_arg(graph: &Graph, n: NodeId, module: Option<&GraphModule>) -> Option<NodeId> {
    if node_effect(graph, n, module) != Effect::Mutates {
        return None;
    }
    let node = &graph[n];
    let path = op::canonical_path(node.target(), false);
    let out = node.kwarg("out").filter(|v| !v.is_none());
    let target: &Arg = out
        .or_else(|| out_arguments(node, &path).first().copied())
        .or_else(|| node.args().first())
        .or_else(|| node.kwargs().first().map(|(_, v)| v))?;
    target.as_leaf().copied()
}

#[cfg(test)]
mod tests {
    use super::super::ModuleDecl;
    use super::*;

    fn of(op: Opcode, target: &str, kwargs: &[(&str, Arg)]) -> Effect {
        let mut g = Graph::new();
        let x = g.placeholder("x", None);
        let kwargs = kwargs.iter().map(|(k, v)| ((*k).into(), v.clone())).collect();
        let n = g.create_node(op, target, vec![Val::Leaf(x)], kwargs, None);
        node_effect(&g, n, None)
    }

    #[test]
    fn torchs_effects_and_those_it_misses() {
        use Effect::*;
        use Opcode::*;
        for (op, target, want) in [
            (CallMethod, "add_", Mutates),
            (CallMethod, "__iadd__", Mutates),
            (CallMethod, "__and__", Pure),
            (CallMethod, "relu", Pure),
            (CallFunction, "torch.relu_", Mutates),
            (CallFunction, "torch.ops.aten.add_.Tensor", Mutates),
            (CallFunction, "torch.ops.aten.add.Tensor", Pure),
            (CallFunction, "operator.iadd", Mutates),
            (CallFunction, "operator.setitem", Mutates),
            (CallFunction, "operator.and_", Pure),
            (CallFunction, "operator.invert", Pure),
            (CallFunction, "torch.rand_like", Random),
            (CallFunction, "torch.ops.aten.bernoulli.p", Random),
            (CallFunction, "torch._assert", External),
            (CallFunction, "torch.ops.aten._assert_async.msg", External),
            (CallFunction, "torch.ops.aten.sym_constrain_range.default", External),
            (GetAttr, "w", Pure),
        ] {
            assert_eq!(of(op, target, &[]), want, "{target}");
        }
        assert_eq!(
            of(CallFunction, "torch.add", &[("out", Val::Leaf(NodeId::from_u32(0)))]),
            Mutates
        );
        assert_eq!(of(CallFunction, "torch.add", &[("out", Val::None)]), Pure);
    }

    #[test]
    fn modules_that_work_in_place() {
        let mut g = Graph::new();
        let x = g.placeholder("x", None);
        let n = g.call_module("act", vec![Val::Leaf(x)], vec![]);
        let mut m = GraphModule::new("m", Graph::new());
        let mut decl = ModuleDecl {
            class: "ReLU".into(),
            args: vec![],
            kwargs: vec![],
            span: None,
            places: None,
        };
        m.modules.insert("act".into(), decl.clone());
        assert_eq!(node_effect(&g, n, Some(&m)), Effect::Pure);
        decl.kwargs.push(("inplace".into(), Val::Bool(true)));
        m.modules.insert("act".into(), decl);
        assert_eq!(mutated_arg(&g, n, Some(&m)), Some(x));
    }
}
