//! Inlines calls of graphs of the same file.
//!
//! Graphs that nothing names any more are dropped; those given to an op by name (`@then_graph`) stay.
//!
#![doc = include_str!("examples/inline.md")]

use super::Context;
use super::build::replace_with_value;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::infer::{graph_callee, graph_inputs};
use crate::types::Val;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The nodes a graph may grow to.
const MAX_NODES: usize = 4_000_000;

/// Inlines every call of a graph.
pub fn run(module: &mut GraphModule, _cx: &mut Context) -> Result<usize, Diagnostic> {
    let mut changed = 0;
    for name in callees_first(module)? {
        let mut graph = std::mem::take(&mut module.graphs[&name]);
        let result = inline_all(module, &name, &mut graph);
        module.graphs[&name] = graph;
        changed += result?;
    }
    drop_unused(module);
    Ok(changed)
}

fn calls(module: &GraphModule, name: &str, graph: &Graph) -> Vec<(NodeId, Arc<str>)> {
    graph
        .iter()
        .filter_map(|n| graph_callee(module, name, graph, n).map(|c| (n, c)))
        .collect()
}

/// The graphs, each behind those it calls.
fn callees_first(module: &GraphModule) -> Result<Vec<Arc<str>>, Diagnostic> {
    let mut order = vec![];
    let mut state: HashMap<Arc<str>, bool> = HashMap::new();
    for root in module.graphs.keys() {
        // Depth first, with a stack of its own: the graphs may call each other to any depth.
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
            let callees: HashSet<Arc<str>> = calls(module, &name, &module.graphs[&name])
                .into_iter()
                .map(|(_, c)| c)
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

fn inline_all(module: &GraphModule, name: &str, graph: &mut Graph) -> Result<usize, Diagnostic> {
    let calls = calls(module, name, graph);
    for (n, callee) in &calls {
        let body = &module.graphs[callee];
        if graph.len().saturating_add(body.len()) > MAX_NODES {
            let title = format!("inlining `{callee}` makes a graph of more than {MAX_NODES} nodes");
            return Err(Diagnostic::new(Code::E0601, title).at_opt(graph[*n].meta.span, ""));
        }
        inline_one(graph, *n, body).map_err(|e| {
            Diagnostic::new(Code::E0203, format!("arguments do not fit the graph `{callee}`: {e}"))
                .at_opt(graph[*n].meta.span, "")
        })?;
    }
    Ok(calls.len())
}

fn inline_one(graph: &mut Graph, call: NodeId, body: &Graph) -> Result<(), String> {
    let inputs = graph_inputs(body, graph[call].args(), graph[call].kwargs())?;
    let mut map: HashMap<NodeId, Arg> = body.placeholders().into_iter().zip(inputs).collect();
    let result = graph
        .inserting_before(Some(call), |g| g.graph_copy(body, &mut map))
        .and_then(|r| r)
        .map_err(|e| e.0)?
        .unwrap_or(Val::None);
    let (name, loc): (Arc<str>, _) = (graph[call].name().into(), graph[call].meta.loc.clone());
    for from in body.iter().filter(|&n| body[n].op() != Opcode::Placeholder) {
        if let Some(Val::Leaf(new)) = map.get(&from) {
            let meta = graph.meta_mut(*new);
            meta.provenance.push(name.clone());
            meta.loc = meta.loc.take().or_else(|| loc.clone());
        }
    }
    replace_with_value(graph, call, &result);
    graph.erase_node(call).map_err(|e| e.0)
}

/// Drops graphs that are neither the entry nor named by one that stays.
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
