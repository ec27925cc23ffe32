//! Splits a graph into several: by a function of the nodes, by what a backend supports, or by given sets.
//!
//! These are torch's `split_module` and `fuse_by_partitions`; [`partition`](super::partition) proposes sets. Parts
//! become graphs of the same module, which the original graph calls. Nothing is computed twice, and effects keep their
//! order. Attributes keep their paths, since all graphs share the module's. [`inline`](crate::pass::by_name) merges the
//! parts again.

use crate::graph::{Arg, Graph, GraphError, GraphModule, NodeId, Opcode, is_impure};
use crate::types::{Type, Val};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

/// A part: its nodes and the name of its graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GraphPart {
    /// The name of the new graph.
    pub name: String,
    /// The nodes: calls of the graph that is split.
    pub nodes: Vec<NodeId>,
}

/// Splits the graph `name` by the number that `part_of` gives each call (torch's `split_module`): part `k` becomes the graph
/// `submod_k`. Calls keep the graph's order, and results the names of their nodes.
///
/// ```
/// use fxc::graph::{Graph, GraphModule, print};
/// use fxc::pass::split::split_module;
///
/// let graph = Graph::trace(&["x"], |_, p| p[0].method("exp", ()).method("sum", ()));
/// let mut module = GraphModule::new("main", graph);
/// split_module(&mut module, "main", |graph, n| (graph[n].target() == "sum") as i64).unwrap();
/// assert_eq!(
///     print(&module),
///     "\
/// graph main {
///     %x = placeholder x
///     %submod_0 = call_function submod_0(%x)
///     %submod_1 = call_function submod_1(%submod_0)
///     output %submod_1
/// }
///
/// graph submod_0 {
///     %x = placeholder x
///     %exp = call_method exp(%x)
///     output %exp
/// }
///
/// graph submod_1 {
///     %exp = placeholder exp
///     %sum_1 = call_method sum(%exp)
///     output %sum_1
/// }
/// "
/// );
/// ```
///
/// # Errors
/// Parts that need each other's results (`cycle exists between partitions!`).
pub fn split_module(
    module: &mut GraphModule,
    name: &str,
    part_of: impl Fn(&Graph, NodeId) -> i64,
) -> Result<Vec<Arc<str>>, GraphError> {
    let graph = find_graph(module, name)?;
    let mut parts: BTreeMap<i64, Vec<NodeId>> = BTreeMap::new();
    for n in graph.iter().filter(|&n| graph[n].op().is_call()) {
        parts.entry(part_of(graph, n)).or_default().push(n);
    }
    let parts: Vec<GraphPart> = parts
        .into_iter()
        .map(|(k, nodes)| GraphPart {
            name: format!("submod_{k}"),
            nodes,
        })
        .collect();
    fuse(module, name, &parts)
}

pub(in crate::pass) fn find_graph<'m>(module: &'m GraphModule, name: &str) -> Result<&'m Graph, GraphError> {
    let graph = module.graphs.get(name);
    graph.ok_or_else(|| GraphError(format!("unknown graph `{name}`")))
}

/// Turns each part into a graph that the original graph calls (torch's `fuse_by_partitions`). Returns the names of the
/// new graphs.
///
/// # Errors
/// Parts that depend on each other (`cycle exists between partitions!`), a node that is in two parts or is not a call.
pub fn fuse(module: &mut GraphModule, name: &str, parts: &[GraphPart]) -> Result<Vec<Arc<str>>, GraphError> {
    let graph = find_graph(module, name)?.clone();
    let part = part_of_nodes(&graph, parts)?;
    let names: Vec<Arc<str>> = parts.iter().map(|p| free_name(module, &p.name)).collect();
    let order = order_units(module, &graph, &part)?;
    let mut writer = Fuse {
        graph: &graph,
        part: &part,
        names: &names,
        main: graph.empty_like(),
        map: HashMap::new(),
        made: vec![],
    };
    for unit in order {
        match unit {
            SplitUnit::Node(n) => writer.copy_node(n),
            SplitUnit::Part(p) => writer.extract_part(p, &parts[p].nodes),
        }
    }
    let (main, made) = (writer.main, writer.made);
    for (name, g) in made {
        module.graphs.insert(name, g);
    }
    if let Some(slot) = module.graphs.get_mut(name) {
        *slot = main;
    }
    Ok(names)
}

/// The part of each node that is in one.
fn part_of_nodes(graph: &Graph, parts: &[GraphPart]) -> Result<HashMap<NodeId, usize>, GraphError> {
    let mut part: HashMap<NodeId, usize> = HashMap::new();
    for (i, p) in parts.iter().enumerate() {
        for &n in &p.nodes {
            if !graph.is_live(n) || !graph[n].op().is_call() {
                let title = format!("a node in part `{}` is not a call in this graph", p.name);
                return Err(GraphError(title));
            }
            if part.insert(n, i).is_some() {
                return Err(GraphError(format!("`%{}` is assigned to two parts", graph[n].name())));
            }
        }
    }
    Ok(part)
}

fn free_name(module: &GraphModule, wish: &str) -> Arc<str> {
    let numbered = (1..).map(|i| format!("{wish}_{i}"));
    let mut names = std::iter::once(wish.to_string()).chain(numbered);
    names
        .find(|n| !module.graphs.contains_key(n.as_str()))
        .unwrap_or_default()
        .into()
}

/// What becomes one node of the new graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum SplitUnit {
    Node(NodeId),
    Part(usize),
}

/// Orders the units, keeping the graph's order where possible.
fn order_units(
    module: &GraphModule,
    graph: &Graph,
    part: &HashMap<NodeId, usize>,
) -> Result<Vec<SplitUnit>, GraphError> {
    let unit = |n: NodeId| part.get(&n).map_or(SplitUnit::Node(n), |&p| SplitUnit::Part(p));
    let mut first: HashMap<SplitUnit, usize> = HashMap::new();
    let mut edges: HashSet<(SplitUnit, SplitUnit)> = HashSet::new();
    let mut effect: Option<SplitUnit> = None;
    for (i, n) in graph.iter().enumerate() {
        let u = unit(n);
        first.entry(u).or_insert(i);
        for from in graph[n].inputs().into_iter().map(unit).filter(|f| *f != u) {
            edges.insert((from, u));
        }
        if graph[n].op().is_call() && is_impure(graph, n, Some(module)) {
            if let Some(e) = effect.filter(|e| *e != u) {
                edges.insert((e, u));
            }
            effect = Some(u);
        }
    }
    let count = first.len();
    let out = sort_units(first, edges);
    if out.len() < count {
        return Err(GraphError("cycle exists between partitions!".into()));
    }
    Ok(out)
}

/// Sorts units topologically. Of the units that are ready, the one whose first node comes first in the graph is next.
/// Units on a cycle are left out.
fn sort_units(first: HashMap<SplitUnit, usize>, edges: HashSet<(SplitUnit, SplitUnit)>) -> Vec<SplitUnit> {
    let mut waits: HashMap<SplitUnit, usize> = first.keys().map(|&u| (u, 0)).collect();
    let mut next: HashMap<SplitUnit, Vec<SplitUnit>> = HashMap::new();
    for (a, b) in edges {
        *waits.entry(b).or_default() += 1;
        next.entry(a).or_default().push(b);
    }
    let mut ready: BinaryHeap<Reverse<(usize, SplitUnit)>> = waits
        .iter()
        .filter(|(_, w)| **w == 0)
        .map(|(u, _)| Reverse((first[u], *u)))
        .collect();
    let mut out = vec![];
    while let Some(Reverse((_, u))) = ready.pop() {
        out.push(u);
        for v in next.get(&u).into_iter().flatten() {
            let Some(w) = waits.get_mut(v) else { continue };
            *w -= 1;
            if *w == 0 {
                ready.push(Reverse((first[v], *v)));
            }
        }
    }
    out
}

/// Adds a placeholder to `sub` for the value of node `n` of `graph`.
fn add_placeholder(sub: &mut Graph, graph: &Graph, n: NodeId) -> NodeId {
    let new = sub.placeholder(graph[n].name(), None);
    let meta = sub.meta_mut(new);
    meta.ty = graph[n].meta.ty.clone();
    meta.declared = meta.ty.as_ref().is_some_and(|t| *t != Val::Unknown);
    new
}

fn move_attributes_after_placeholders(graph: &mut Graph) {
    for &a in graph.find_nodes(Opcode::GetAttr, None).iter().rev() {
        if let Some(last) = graph.placeholders().last() {
            graph.move_after(a, *last);
        }
    }
}

/// Writes the new graphs.
struct Fuse<'a> {
    graph: &'a Graph,
    part: &'a HashMap<NodeId, usize>,
    names: &'a [Arc<str>],
    main: Graph,
    /// The values of the old graph in the new one.
    map: HashMap<NodeId, Arg>,
    made: Vec<(Arc<str>, Graph)>,
}

impl Fuse<'_> {
    fn copy_node(&mut self, n: NodeId) {
        let map = &self.map;
        let new = self
            .main
            .node_copy(self.graph, n, |i| map.get(&i).cloned().unwrap_or(Val::Unknown));
        self.map.insert(n, Val::Leaf(new));
    }

    fn extract_part(&mut self, p: usize, nodes: &[NodeId]) {
        let graph = self.graph;
        let mut nodes = nodes.to_vec();
        nodes.sort_by_cached_key(|&n| graph.iter().position(|m| m == n));
        let inside = |n: NodeId| self.part.get(&n) == Some(&p);
        let mut sub = Graph::new();
        let mut map: HashMap<NodeId, Arg> = HashMap::new();
        let mut inputs = vec![];
        for i in nodes.iter().flat_map(|&n| graph[n].inputs()) {
            if inside(i) || map.contains_key(&i) {
                continue;
            }
            let new = match graph[i].op() {
                // Each graph reads the attributes it uses.
                Opcode::GetAttr => sub.node_copy(graph, i, Val::Leaf),
                _ => {
                    inputs.push(i);
                    add_placeholder(&mut sub, graph, i)
                }
            };
            map.insert(i, Val::Leaf(new));
        }
        move_attributes_after_placeholders(&mut sub);
        for &n in &nodes {
            let new = sub.node_copy(graph, n, |i| map.get(&i).cloned().unwrap_or(Val::Unknown));
            map.insert(n, Val::Leaf(new));
        }
        let results: Vec<NodeId> = nodes
            .iter()
            .copied()
            .filter(|&n| graph[n].users().any(|u| !inside(u)))
            .collect();
        let values: Vec<Arg> = results.iter().filter_map(|n| map.get(n).cloned()).collect();
        sub.set_output(match &values[..] {
            [single] => single.clone(),
            _ => Val::Tuple(values),
        });
        self.made.push((self.names[p].clone(), sub));
        self.call_part(p, &inputs, &results);
    }

    fn call_part(&mut self, p: usize, inputs: &[NodeId], results: &[NodeId]) {
        let ty = |n: NodeId| self.graph[n].meta.ty.clone();
        let args = inputs
            .iter()
            .map(|i| self.map.get(i).cloned().unwrap_or(Val::Unknown))
            .collect();
        let call = self.main.call_function(&self.names[p], args, vec![]);
        let types: Option<Vec<Type>> = results.iter().map(|&n| ty(n)).collect();
        self.main.meta_mut(call).ty = match results {
            [single] => ty(*single),
            _ => types.map(Val::Tuple),
        };
        if let [single] = results {
            self.map.insert(*single, Val::Leaf(call));
            return;
        }
        for (i, &n) in results.iter().enumerate() {
            let args = vec![Val::Leaf(call), Val::int(i as i64)];
            let (op, name) = (Opcode::CallFunction, Some(self.graph[n].name()));
            let item = self.main.create_node(op, "operator.getitem", args, vec![], name);
            let meta = self.main.meta_mut(item);
            meta.ty = ty(n);
            meta.take_place_of(&self.graph[n].meta);
            self.map.insert(n, Val::Leaf(item));
        }
    }
}
