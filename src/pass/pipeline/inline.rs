//! Inlines calls of graphs of the same file.
//!
//! Wrappers are expanded first: the conversions of autocast and the copies of `auto_functionalized` become calls.
//! Graphs without references are removed. Graphs given to an op by name (`@then_graph`) stay, with one copy per use.
//!
#![doc = include_str!("../examples/inline.md")]

use crate::budget;
use crate::control::Control;
use crate::diag::limits::too_many_nodes;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::infer::{CONVERSIONS, GATHERED, InferOptions, expand_wrappers, graph_callee, graph_inputs, infer};
use crate::op;
use crate::pass::PassContext;
use crate::pass::build::replace_with_value;
use crate::types::Val;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The maximal number of copies of graphs called by name.
const MAX_COPIES: usize = 4096;

/// Inlines every call of a graph.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    let mut changed = 0;
    if let Some(written) = expand_wrappers(module)? {
        *module = written;
        changed += 1;
    }
    changed += take_known_branches(module);
    let order = callees_first(module)?;
    check_expanded_nodes(module, &order)?;
    for name in order {
        let mut graph = std::mem::take(&mut module.graphs[&name]);
        let result = inline_all(module, &name, &mut graph);
        module.graphs[&name] = graph;
        changed += result?;
    }
    drop_unused(module);
    let copied = separate_uses(module)?;
    if changed + copied > 0 {
        infer_again(module)?;
        settle_wrappers(module);
    }
    Ok(changed + copied)
}

/// Replaces the helper calls that wrapper expansion leaves: by plain calls, or by their operand where the value stays
/// as it is.
fn settle_wrappers(module: &mut GraphModule) {
    for graph in module.graphs.values_mut() {
        for n in graph.ids() {
            if graph[n].op() != Opcode::CallFunction {
                continue;
            }
            let Some(first) = graph[n].args().first().cloned() else {
                continue;
            };
            if graph[n].target() == GATHERED {
                replace_with_value(graph, n, &first);
                // It has no users any more, so erasing it cannot fail.
                let _ = graph.erase_node(n);
            } else if CONVERSIONS.contains(&graph[n].target()) {
                settle_conversion(graph, n, &first);
            }
        }
    }
}

fn settle_conversion(graph: &mut Graph, n: NodeId, operand: &Arg) {
    let Some(x) = operand.as_leaf() else { return };
    match (&graph[*x].meta.ty, &graph[n].meta.ty) {
        (Some(from), Some(to)) if from == to => {
            graph.replace_all_uses_with(n, *x);
            let _ = graph.erase_node(n);
        }
        (Some(Val::Leaf(_)), Some(Val::Leaf(to))) => {
            let args = vec![operand.clone(), Val::DType(to.dtype)];
            graph.set_target(n, Opcode::CallFunction, "torch.ops.aten.to.dtype");
            graph.set_args(n, args);
        }
        _ => {}
    }
}

/// Replaces every `cond` with a known predicate by a call of the branch it takes. The predicate may depend on sizes.
fn take_known_branches(module: &mut GraphModule) -> usize {
    let mut taken = 0;
    for graph in module.graphs.values_mut() {
        for n in graph.ids() {
            let Some((name, operands)) = known_branch(graph, n) else {
                continue;
            };
            graph.set_target(n, Opcode::CallFunction, &name);
            graph.set_args(n, operands);
            graph.set_kwargs(n, vec![]);
            taken += 1;
        }
    }
    taken
}

/// The graph that a `cond` with a known predicate calls, and its operands.
fn known_branch(graph: &Graph, n: NodeId) -> Option<(Arc<str>, Vec<Arg>)> {
    let node = &graph[n];
    if node.op() != Opcode::CallFunction {
        return None;
    }
    let candidates = op::candidates(&op::canonical_path(node.target(), false));
    if !candidates.iter().any(|c| c.op.control() == Some(Control::Cond)) {
        return None;
    }
    let arg = |i: usize, name: &str| node.args().get(i).or_else(|| node.kwarg(name));
    let yes = match arg(0, "pred")? {
        Val::Bool(b) => *b,
        Val::Leaf(p) => match &graph[*p].meta.ty {
            Some(Val::Bool(b)) => *b,
            _ => return None,
        },
        _ => return None,
    };
    let branch = if yes { arg(1, "true_fn") } else { arg(2, "false_fn") };
    match (branch?, arg(3, "operands")) {
        (Val::Graph(name), Some(Val::Tuple(v) | Val::List(v))) => Some((name.clone(), v.clone())),
        (Val::Graph(name), None | Some(Val::None)) => Some((name.clone(), vec![])),
        _ => None,
    }
}

/// Gives every use of a graph by name its own copy, since each copy is typed and optimised for its arguments.
fn separate_uses(module: &mut GraphModule) -> Result<usize, Diagnostic> {
    let Some(entry) = module.entry_name().cloned() else {
        return Ok(0);
    };
    if separate_nodes(module, &entry, &mut HashMap::new(), 0) > budget::max_nodes() {
        return Err(too_many_nodes("copying graphs for each use of their names creates"));
    }
    let (mut work, mut used) = (vec![entry], HashSet::new());
    let (mut copies, mut copied) = (0, 0);
    while let Some(name) = work.pop() {
        for n in module.graphs[&name].ids() {
            let node = &module.graphs[&name][n];
            let mut named = vec![];
            let all = node.args().iter().chain(node.kwargs().iter().map(|(_, v)| v));
            all.for_each(|a| graph_names(a, &mut named));
            let mut renamed = vec![];
            for g in named {
                let mut unique = g.clone();
                if !used.insert(g.clone()) {
                    copies += 1;
                    unique = copy_of(module, &g, copies)?;
                    copied += module.graphs[&unique].len();
                    if copied > budget::max_nodes() {
                        return Err(too_many_nodes(&format!("copying `{g}` for each use creates")));
                    }
                    used.insert(unique.clone());
                }
                renamed.push(unique.clone());
                work.push(unique);
            }
            if !renamed.is_empty() {
                rename_graphs_of(&mut module.graphs[&name], n, renamed);
            }
        }
    }
    Ok(copies)
}

/// The number of nodes of a graph and of the graphs that it names, each counted as often as it is named. Not counted are graphs that name
/// themselves and those that are nested very deeply, which [`MAX_COPIES`] bounds.
fn separate_nodes(module: &GraphModule, name: &Arc<str>, known: &mut HashMap<Arc<str>, usize>, depth: usize) -> usize {
    if let Some(&nodes) = known.get(name) {
        return nodes;
    }
    let Some(graph) = module.graphs.get(name).filter(|_| depth < 256) else {
        return 0;
    };
    known.insert(name.clone(), 0);
    let mut named = vec![];
    for n in graph.iter() {
        let args = graph[n].args().iter().chain(graph[n].kwargs().iter().map(|(_, v)| v));
        args.for_each(|a| graph_names(a, &mut named));
    }
    let inner = named.iter().map(|g| separate_nodes(module, g, known, depth + 1));
    let nodes = inner.fold(graph.len(), usize::saturating_add);
    known.insert(name.clone(), nodes);
    nodes
}

/// Replaces the names of graphs in the arguments of node `n`, in order.
fn rename_graphs_of(graph: &mut Graph, n: NodeId, names: Vec<Arc<str>>) {
    let mut next = names.into_iter();
    let node = &graph[n];
    let args = node.args().iter().map(|a| rename_graphs(a, &mut next)).collect();
    let kwargs = node.kwargs().iter();
    let kwargs = kwargs.map(|(k, a)| (k.clone(), rename_graphs(a, &mut next))).collect();
    graph.set_args(n, args);
    graph.set_kwargs(n, kwargs);
}

/// Copies a graph under a new name; `count` numbers the copies.
fn copy_of(module: &mut GraphModule, name: &Arc<str>, count: usize) -> Result<Arc<str>, Diagnostic> {
    let graph = module.graphs.get(name).cloned().unwrap_or_default();
    if count > MAX_COPIES {
        let title = format!("copying `{name}` for each use creates more than {MAX_COPIES} graphs");
        return Err(Diagnostic::new(Code::E0601, title).help("run it with --interpret"));
    }
    let free = (count..)
        .map(|i| Arc::from(format!("{name}_{i}")))
        .find(|n| !module.graphs.contains_key(n));
    let new: Arc<str> = free.unwrap_or_else(|| name.clone());
    module.graphs.insert(new.clone(), graph);
    Ok(new)
}

/// The value with its graph names replaced, in order.
fn rename_graphs(a: &Arg, next: &mut impl Iterator<Item = Arc<str>>) -> Arg {
    match a {
        Val::Graph(g) => Val::Graph(next.next().unwrap_or_else(|| g.clone())),
        Val::List(v) => Val::List(v.iter().map(|x| rename_graphs(x, next)).collect()),
        Val::Tuple(v) => Val::Tuple(v.iter().map(|x| rename_graphs(x, next)).collect()),
        Val::Dict(v) => Val::Dict(v.iter().map(|(k, x)| (k.clone(), rename_graphs(x, next))).collect()),
        v => v.clone(),
    }
}

/// Infers all types again. A body that is now called with other types than those of its first call has other types.
fn infer_again(module: &mut GraphModule) -> Result<(), Diagnostic> {
    let entry = module.entry_name().cloned();
    for (name, graph) in &mut module.graphs {
        for p in graph.placeholders() {
            let meta = graph.meta_mut(p);
            if Some(name) != entry.as_ref() && !meta.declared {
                meta.ty = None;
            }
        }
    }
    let findings = infer(module, &InferOptions::default());
    match findings.into_iter().find(Diagnostic::is_error) {
        Some(d) => Err(d),
        None => Ok(()),
    }
}

/// The calls of graphs: the node, the graph, and how many leading arguments are not passed to the graph.
fn graph_calls(module: &GraphModule, name: &str, graph: &Graph) -> Vec<(NodeId, Arc<str>, usize)> {
    graph
        .iter()
        .filter_map(|n| graph_callee(module, name, graph, n).map(|(c, skip)| (n, c, skip)))
        .collect()
}

/// The graphs in an order in which callees come first.
fn callees_first(module: &GraphModule) -> Result<Vec<Arc<str>>, Diagnostic> {
    let mut order = vec![];
    let mut state: HashMap<Arc<str>, bool> = HashMap::new();
    for root in module.graphs.keys() {
        // Depth-first search with an explicit stack, since call chains may be arbitrarily deep.
        let mut stack = vec![(root.clone(), false)];
        while let Some((name, left)) = stack.pop() {
            if left {
                state.insert(name.clone(), true);
                order.push(name);
                continue;
            }
            match state.get(&name) {
                Some(true) => continue,
                Some(false) => {
                    return Err(Diagnostic::new(Code::E0111, format!("the graph `{name}` calls itself")));
                }
                None => {}
            }
            state.insert(name.clone(), false);
            stack.push((name.clone(), true));
            let callees: HashSet<Arc<str>> = graph_calls(module, &name, &module.graphs[&name])
                .into_iter()
                .map(|(_, c, _)| c)
                .collect();
            for c in callees {
                if state.get(&c) == Some(&false) {
                    return Err(Diagnostic::new(Code::E0111, format!("the graph `{c}` calls itself")));
                }
                if !state.contains_key(&c) {
                    stack.push((c, false));
                }
            }
        }
    }
    Ok(order)
}

/// Returns an error if a graph has too many nodes once the calls in it are inlined. `order` has callees first.
fn check_expanded_nodes(module: &GraphModule, order: &[Arc<str>]) -> Result<(), Diagnostic> {
    let mut expanded: HashMap<&str, usize> = HashMap::new();
    for name in order {
        let graph = &module.graphs[name];
        let mut nodes = graph.len();
        for (n, callee, _) in graph_calls(module, name, graph) {
            nodes = nodes.saturating_add(expanded.get(&*callee).copied().unwrap_or(0));
            if nodes > budget::max_nodes() {
                let d = too_many_nodes(&format!("inlining `{callee}` creates"));
                return Err(d.at_opt(graph[n].meta.span, ""));
            }
        }
        expanded.insert(name, nodes);
    }
    Ok(())
}

fn inline_all(module: &GraphModule, name: &str, graph: &mut Graph) -> Result<usize, Diagnostic> {
    let calls = graph_calls(module, name, graph);
    for (n, callee, skip) in &calls {
        let body = &module.graphs[callee];
        inline_one(graph, *n, *skip, body).map_err(|e| {
            Diagnostic::new(Code::E0203, format!("invalid arguments for the graph `{callee}`: {e}"))
                .at_opt(graph[*n].meta.span, "")
        })?;
    }
    Ok(calls.len())
}

fn inline_one(graph: &mut Graph, call: NodeId, skip: usize, body: &Graph) -> Result<(), String> {
    let inputs = graph_inputs(body, &graph[call].args()[skip..], graph[call].kwargs())?;
    let mut map: HashMap<NodeId, Arg> = body.placeholders().into_iter().zip(inputs).collect();
    let result = graph
        .inserting_before(Some(call), |g| g.graph_copy(body, &mut map))
        .and_then(|r| r)
        .map_err(|e| e.0)?
        .unwrap_or(Val::None);
    let (name, place): (Arc<str>, _) = (graph[call].name().into(), graph[call].meta.clone());
    for from in body.iter().filter(|&n| body[n].op() != Opcode::Placeholder) {
        if let Some(Val::Leaf(new)) = map.get(&from) {
            let meta = graph.meta_mut(*new);
            meta.provenance.push(name.clone());
            if meta.loc.is_none() {
                (meta.loc, meta.frame) = (place.loc.clone(), place.frame.clone());
            }
            if meta.modules.is_empty() {
                meta.modules = place.modules.clone();
            }
        }
    }
    replace_with_value(graph, call, &result);
    graph.erase_node(call).map_err(|e| e.0)
}

/// Removes the graphs that are not reachable from the entry.
fn drop_unused(module: &mut GraphModule) {
    let Some(entry) = module.entry_name().cloned() else {
        return;
    };
    let mut keep: HashSet<Arc<str>> = HashSet::from([entry.clone()]);
    let mut work = vec![entry];
    while let Some(name) = work.pop() {
        let graph = &module.graphs[&name];
        let mut named = vec![];
        for n in graph.iter() {
            let args = graph[n].args().iter().chain(graph[n].kwargs().iter().map(|(_, v)| v));
            args.for_each(|a| graph_names(a, &mut named));
        }
        for g in named {
            if module.graphs.contains_key(&g) && keep.insert(g.clone()) {
                work.push(g);
            }
        }
    }
    module.graphs.retain(|name, _| keep.contains(name));
}

fn graph_names(a: &Arg, out: &mut Vec<Arc<str>>) {
    match a {
        Val::Graph(g) => out.push(g.clone()),
        Val::List(v) | Val::Tuple(v) => v.iter().for_each(|x| graph_names(x, out)),
        Val::Dict(v) => v.iter().for_each(|(_, x)| graph_names(x, out)),
        _ => {}
    }
}
