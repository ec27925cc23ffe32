//! Expands wrappers that change what ops compute into explicit calls.
//!
//! * `wrap_with_autocast("cpu", torch.bfloat16, True, …, @region, …)`: the region gets the conversions of
//!   [`crate::op::autocast`] as calls, and the wrapper calls it with autocast off. A graph that is called under several
//!   settings has a copy for each.
//! * `auto_functionalized(op, …)` and `auto_functionalized_v2`: see [`functional`](super::functional).
//!
//! The module keeps its wrappers, so that it prints as it was read. Inference and the interpreter use an expanded copy whose
//! nodes have the same ids; inlining, the first pass, expands the module itself.

use super::autocast::convert_operands;
use super::functional;
use super::resolve::graph_callee;
use crate::diag::Diagnostic;
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, Node, NodeId, Opcode};
use crate::op;
use crate::types::{DType, Val};
use std::collections::HashMap;
use std::sync::Arc;

/// The conversions inserted in autocast regions: rows of the op table.
pub(crate) const CONVERSIONS: [&str; 3] = ["autocast_to", "autocast_widest", "autocast_contracted"];

/// The module with its wrappers expanded; `None` if it has none.
pub(crate) fn expand_wrappers(module: &GraphModule) -> Result<Option<GraphModule>, Diagnostic> {
    let is_wrapper = |n: &Node| n.op() == Opcode::CallFunction && (is_on(n) || functional::is_call(n));
    let mut graphs = module.graphs.values();
    if !graphs.any(|g| g.iter().any(|n| is_wrapper(&g[n]))) {
        return Ok(None);
    }
    let mut w = AutocastWriter {
        module,
        names: HashMap::new(),
        work: vec![],
        written: HashMap::new(),
    };
    if let Some(entry) = module.entry_name() {
        w.graph_name(entry, None);
    }
    w.run()?;
    for name in module.graphs.keys() {
        if !w.written.contains_key(name) {
            w.graph_name(name, None);
            w.run()?;
        }
    }
    let mut out = module.clone();
    let expanded = module
        .graphs
        .keys()
        .filter_map(|k| Some((k.clone(), w.written.remove(k)?)));
    out.graphs = expanded.collect();
    let mut copies: Vec<_> = w.written.into_iter().collect();
    copies.sort_by(|a, b| a.0.cmp(&b.0));
    out.graphs.extend(copies);
    Ok(Some(out))
}

/// The autocast setting of a call of `wrap_with_autocast` on the CPU: `Some(None)` turns it off. `None` for other
/// devices and other calls, which leave it unchanged.
fn autocast_setting(n: &Node) -> Option<Option<DType>> {
    if n.op() != Opcode::CallFunction || op::canonical_path(n.target(), false) != "higher_order.wrap_with_autocast" {
        return None;
    }
    let [Val::Str(device) | Val::Device(device), dtype, enabled, ..] = n.args() else {
        return None;
    };
    if &**device != "cpu" {
        return None;
    }
    Some(match (enabled, dtype) {
        (Val::Bool(true), Val::DType(d @ (DType::BF16 | DType::F16))) => Some(*d),
        (Val::Bool(true), Val::None) => Some(DType::BF16),
        // torch warns about other dtypes and leaves autocast off.
        _ => None,
    })
}

/// Whether the node calls a region with autocast on.
fn is_on(n: &Node) -> bool {
    matches!(autocast_setting(n), Some(Some(_)))
}

struct AutocastWriter<'m> {
    module: &'m GraphModule,
    /// The name of the copy of each graph for each autocast dtype (`None`: off).
    names: HashMap<(Arc<str>, Option<DType>), Arc<str>>,
    work: Vec<(Arc<str>, Option<DType>)>,
    written: HashMap<Arc<str>, Graph>,
}

impl AutocastWriter<'_> {
    /// The name of the copy of the graph for `mode`. The first mode requested keeps the graph's own name.
    fn graph_name(&mut self, graph: &Arc<str>, mode: Option<DType>) -> Arc<str> {
        let key = (graph.clone(), mode);
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let taken = |n: &str| self.names.values().any(|t| &**t == n);
        let name = match taken(graph) {
            false => graph.clone(),
            true => {
                let suffix = mode.map_or("plain".to_string(), |d| d.to_string());
                let free = |n: &String| !taken(n) && !self.module.graphs.contains_key(&**n);
                let mut candidates = (0..).map(|i| match i {
                    0 => format!("{graph}_{suffix}"),
                    i => format!("{graph}_{suffix}_{i}"),
                });
                candidates.find(free).unwrap_or_default().into()
            }
        };
        self.names.insert(key.clone(), name.clone());
        self.work.push(key);
        name
    }

    fn run(&mut self) -> Result<(), Diagnostic> {
        while let Some((source, mode)) = self.work.pop() {
            let graph = self.write_graph(&source, mode)?;
            let name = self.graph_name(&source, mode);
            self.written.insert(name, graph);
        }
        Ok(())
    }

    fn write_graph(&mut self, source: &Arc<str>, mode: Option<DType>) -> Result<Graph, Diagnostic> {
        let mut graph = self.module.graphs[source].clone();
        for n in graph.ids() {
            if !graph[n].op().is_call() {
                continue;
            }
            let callee = graph_callee(self.module, source, &graph, n);
            let set = autocast_setting(&graph[n]);
            self.rename(&mut graph, n, set.unwrap_or(mode));
            if is_on(&graph[n]) {
                let mut args = graph[n].args().to_vec();
                args[2] = Val::Bool(false);
                graph.set_args(n, args);
            }
            match callee {
                Some((name, 0)) if is_target(&graph[n], &name) => {
                    let name = self.graph_name(&name, mode);
                    graph.set_target(n, Opcode::CallFunction, &name);
                }
                Some(_) => {}
                None if functional::is_call(&graph[n]) => functional::expand_call(self.module, &mut graph, n)?,
                None => {
                    if let Some(dtype) = mode {
                        convert_operands(self.module, &mut graph, n, dtype)?;
                    }
                }
            }
        }
        Ok(graph)
    }

    /// Renames the graphs among the node's arguments to their copies for `mode`.
    fn rename(&mut self, graph: &mut Graph, n: NodeId, mode: Option<DType>) {
        let mut named = false;
        let mut args = graph[n].args().to_vec();
        let mut kwargs = graph[n].kwargs().to_vec();
        for a in args.iter_mut().chain(kwargs.iter_mut().map(|(_, a)| a)) {
            named |= self.rename_in(a, mode);
        }
        if named {
            graph.set_args(n, args);
            graph.set_kwargs(n, kwargs);
        }
    }

    fn rename_in(&mut self, arg: &mut Arg, mode: Option<DType>) -> bool {
        match arg {
            Val::Graph(g) if self.module.graphs.contains_key(g) => {
                *g = self.graph_name(&g.clone(), mode);
                true
            }
            Val::List(v) | Val::Tuple(v) => v.iter_mut().fold(false, |any, a| self.rename_in(a, mode) | any),
            Val::Dict(v) => v.iter_mut().fold(false, |any, (_, a)| self.rename_in(a, mode) | any),
            _ => false,
        }
    }
}

/// Whether the node calls the graph by its target, not by an argument.
fn is_target(n: &Node, name: &Arc<str>) -> bool {
    !n.args().iter().any(|a| matches!(a, Val::Graph(g) if g == name))
}

/// Inserts a call before a node, with the node's source location.
pub(super) fn insert_call(
    graph: &mut Graph,
    before: NodeId,
    target: &str,
    args: Vec<Arg>,
    kwargs: Vec<(Arc<str>, Arg)>,
) -> NodeId {
    let point = graph.insert_point();
    graph.set_insert_point(InsertPoint::Before(before));
    let new = graph.call_function(target, args, kwargs);
    graph.set_insert_point(point);
    let place = graph[before].meta.clone();
    let meta = graph.meta_mut(new);
    meta.take_place_of(&place);
    meta.span = place.span;
    new
}
