//! Splits graphs by tag, by size, and by what depends on constants only (torch's `split_by_tags`,
//! `move_non_tensor_nodes_on_boundary`, `split_const_subgraphs`).

use super::split::{self, GraphPart};
use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphError, GraphModule, NodeId, Opcode, is_impure, torch_print};
use crate::interp;
use crate::types::Val;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Splits the graph `name` by the tag of each call: one graph per tag, called in the order of `tags`.
///
/// ```
/// use fxc::graph::{Graph, GraphModule};
/// use fxc::pass::split_by::split_by_tags;
///
/// let graph = Graph::trace(&["x", "y"], |_, p| p[0].method("exp", ()) + p[1].method("sin", ()));
/// let mut module = GraphModule::new("net", graph);
/// let tag = |graph: &Graph, n| Some(if graph[n].target() == "exp" { "request" } else { "main" }.to_string());
/// split_by_tags(&mut module, "net", &["request", "main"], tag).unwrap();
/// let graph = &module.graphs["net"];
/// let calls = graph.iter().filter(|&n| graph[n].op().is_call()).map(|n| graph[n].target());
/// assert_eq!(calls.collect::<Vec<_>>(), ["request", "main"]);
/// ```
///
/// # Errors
/// A call whose tag is not in `tags`, or precedes the tag of a result that the call needs, in torch's words.
pub fn split_by_tags(
    module: &mut GraphModule,
    name: &str,
    tags: &[&str],
    tag_of: impl Fn(&Graph, NodeId) -> Option<String>,
) -> Result<Vec<Arc<str>>, GraphError> {
    let graph = split::find_graph(module, name)?;
    let mut component: HashMap<NodeId, usize> = HashMap::new();
    for n in graph.iter().filter(|&n| graph[n].op().is_call()) {
        let tag = tag_of(graph, n);
        let stage = tag.and_then(|t| tags.iter().position(|x| *x == t));
        let Some(stage) = stage else {
            let text = torch_print::format_node(graph, n);
            return Err(GraphError(format!("Node does not have tag: {text}")));
        };
        let upstream = graph[n].inputs().iter().filter_map(|i| component.get(i).copied()).max();
        let most = upstream.unwrap_or(0);
        if stage < most {
            return Err(GraphError(format!(
                "Component {} order must be >= max of its upstream components, order={stage} and max={most}",
                tags[stage]
            )));
        }
        component.insert(n, stage);
    }
    let order = graph.ids();
    let parts: Vec<GraphPart> = tags
        .iter()
        .enumerate()
        .map(|(i, tag)| GraphPart {
            name: tag.to_string(),
            nodes: order.iter().copied().filter(|n| component.get(n) == Some(&i)).collect(),
        })
        .filter(|p| !p.nodes.is_empty())
        .collect();
    split::fuse(module, name, &parts)
}

/// Splits the graph `name` into graphs `submod_0`, `submod_1`, … of consecutive calls whose sizes add up to at most
/// `most`. A call that is larger is alone. `size_of` may count calls, bytes of parameters ([`sizes`](super::sizes)), or
/// anything else.
///
/// ```
/// use fxc::graph::{Graph, GraphModule};
/// use fxc::pass::split_by::split_by_size;
///
/// let graph = Graph::trace(&["x"], |_, p| ((&p[0] + 1) * 2 - 3).method("exp", ()).method("sin", ()));
/// let mut module = GraphModule::new("net", graph);
/// let parts = split_by_size(&mut module, "net", 2, |_, _, _| 1).unwrap(); // two calls each
/// assert_eq!(parts.iter().map(|p| module.graphs[p].len()).collect::<Vec<_>>(), [4, 4, 3]);
/// ```
///
/// # Errors
/// There is no graph `name`.
pub fn split_by_size(
    module: &mut GraphModule,
    name: &str,
    most: usize,
    size_of: impl Fn(&GraphModule, &Graph, NodeId) -> usize,
) -> Result<Vec<Arc<str>>, GraphError> {
    let graph = split::find_graph(module, name)?;
    let mut part: HashMap<NodeId, i64> = HashMap::new();
    let (mut part_number, mut sum) = (0, 0usize);
    for n in graph.iter().filter(|&n| graph[n].op().is_call()) {
        let size = size_of(module, graph, n);
        if sum > 0 && sum.saturating_add(size) > most {
            part_number += 1;
            sum = 0;
        }
        sum = sum.saturating_add(size).max(1);
        part.insert(n, part_number);
    }
    split::split_module(module, name, |_, n| part.get(&n).copied().unwrap_or(0))
}

/// Moves calls whose result is not a tensor to the part that uses it, so that sizes need not cross from one backend to
/// another. A chain of such calls moves as a whole. A call stays if a third part, or the graph itself, needs it.
pub fn move_non_tensor_nodes_on_boundary(graph: &Graph, parts: &mut [GraphPart]) {
    let is_tensor = |n: NodeId| matches!(graph[n].meta.ty, Some(Val::Leaf(_)));
    let mut home: HashMap<NodeId, usize> = HashMap::new();
    for (i, p) in parts.iter().enumerate() {
        p.nodes.iter().for_each(|&n| _ = home.insert(n, i));
    }
    // In reverse order, so that a chain of such calls moves together.
    for n in graph.ids().into_iter().rev() {
        let Some(&from) = home.get(&n).filter(|_| !is_tensor(n)) else {
            continue;
        };
        let users: HashSet<Option<usize>> = graph[n].users().map(|u| home.get(&u).copied()).collect();
        let to = match users.iter().copied().collect::<Vec<_>>()[..] {
            [Some(to)] if to != from => to,
            _ => continue,
        };
        home.insert(n, to);
        parts[from].nodes.retain(|&m| m != n);
        parts[to].nodes.push(n);
    }
    let place: HashMap<NodeId, usize> = graph.iter().enumerate().map(|(i, n)| (n, i)).collect();
    for p in parts {
        p.nodes.sort_by_key(|n| place[n]);
    }
}

/// A module in which results that depend only on attributes are attributes themselves, and the graph that computes them
/// (torch's `FoldedGraphModule`).
#[non_exhaustive]
pub struct FoldedModule {
    /// The module. [`FoldedModule::run_folding`] must run before the module's graph does.
    pub module: GraphModule,
    /// The graph that computes the folded results, with the module's attributes; `None` if there is nothing to fold.
    pub constants: Option<GraphModule>,
    /// The attributes that hold its results.
    pub names: Vec<Arc<str>>,
}

/// Splits the graph `name` into what depends only on attributes and the rest. Calls with effects, calls for which
/// `skip` is true, and attributes that the graph writes are not folded.
///
/// ```
/// use fxc::graph::{Graph, GraphModule};
/// use fxc::pass::split_by::split_const_subgraphs;
/// use fxc::Tensor;
///
/// let graph = Graph::trace(&["x"], |t, p| &p[0] * (t.attribute("w") + 1).method("exp", ()));
/// let mut module = GraphModule::new("net", graph);
/// module.add_parameter("w", Tensor::from_slice(&[2], &[0f32, -1.0]));
/// let mut folded = split_const_subgraphs(&module, "net", |_, _| false).unwrap();
/// folded.run_folding().unwrap();
/// let graph = folded.module.entry().unwrap();
/// let targets: Vec<&str> = graph.iter().map(|n| graph[n].target()).collect();
/// assert_eq!(targets, ["x", "_FX_CONST_FOLDED_ATTRS.0", "operator.mul", "output"]);
/// ```
///
/// # Errors
/// There is no graph `name`.
pub fn split_const_subgraphs(
    module: &GraphModule,
    name: &str,
    skip: impl Fn(&Graph, NodeId) -> bool,
) -> Result<FoldedModule, GraphError> {
    const PREFIX: &str = "_FX_CONST_FOLDED_ATTRS";
    let graph = split::find_graph(module, name)?;
    let constant = constant_nodes(module, graph, skip);
    let leaves = |n: &NodeId| {
        let node = &graph[*n];
        node.op().is_call() && constant.contains(n) && node.users().any(|u| !constant.contains(&u))
    };
    let results: Vec<NodeId> = graph.iter().filter(leaves).collect();
    let mut folded = FoldedModule {
        module: module.clone(),
        constants: None,
        names: vec![],
    };
    if results.is_empty() {
        return Ok(folded);
    }
    let part = crate::graph::transform::extract(graph, &[], &results)?;
    folded.constants = Some(module.lift("const_fold", part));
    let Some(graph) = folded.module.graphs.get_mut(name) else {
        return Ok(folded);
    };
    for (i, &n) in results.iter().enumerate() {
        let path = format!("{PREFIX}.{i}");
        let read = graph.inserting_before(Some(n), |g| g.get_attr(&path))?;
        let meta = graph[n].meta.clone();
        *graph.meta_mut(read) = meta;
        graph.replace_all_uses_with(n, read);
        folded.names.push(path.into());
    }
    graph.eliminate_dead_code_with(|_, n| !constant.contains(&n));
    Ok(folded)
}

/// The nodes that depend only on attributes.
fn constant_nodes(module: &GraphModule, graph: &Graph, skip: impl Fn(&Graph, NodeId) -> bool) -> HashSet<NodeId> {
    let mut constant: HashSet<NodeId> = HashSet::new();
    for n in graph.iter() {
        let node = &graph[n];
        let fixed = match node.op() {
            Opcode::GetAttr => !graph.writes_buffer(node.target()),
            Opcode::Placeholder | Opcode::Output => false,
            _ => {
                let inputs = node.inputs();
                let known = !inputs.is_empty() && inputs.iter().all(|i| constant.contains(i));
                known && !is_impure(graph, n, Some(module)) && !skip(graph, n)
            }
        };
        if fixed {
            constant.insert(n);
        }
    }
    constant
}

impl FoldedModule {
    /// Computes the constants and assigns them to the attributes.
    ///
    /// # Errors
    /// Whatever computing them reports; an attribute without a value.
    pub fn run_folding(&mut self) -> Result<(), Diagnostic> {
        let Some(constants) = &self.constants else {
            return Ok(());
        };
        let result = interp::run(constants, vec![])?;
        let values = match result {
            Val::Tuple(v) if self.names.len() > 1 => v,
            v => vec![v],
        };
        for (name, v) in self.names.iter().zip(values) {
            if let Val::Leaf(t) = v {
                self.module.add_buffer(name, t);
            }
        }
        Ok(())
    }
}
