//! Writes graphs as JSON for Model Explorer: a collection of graphs in its own format.
//!
//! `{"label", "graphs": [{"id", "nodes": [{"id", "label", "namespace", "subgraphIds", "attrs", "incomingEdges",
//! "outputsMetadata", "inputsMetadata"}], "groupNodeAttributes"}]}`. A node's namespace is the module in which it was
//! traced, or the step of the compiled program that computes it, so that the drawing can be expanded layer by layer.
//! The entry graph comes first.

use crate::graph::svg::Groups;
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode, pyrepr};
use crate::infer::{self, Callee};
use crate::types::{Type, Val};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// The collection. `groups` are the groups of the entry graph's nodes; without them, nodes are grouped by module.
pub(crate) fn from_module(m: &GraphModule, groups: &Groups) -> Value {
    let entry = m.entry_name();
    let mut names: Vec<&Arc<str>> = m.graphs.keys().collect();
    names.sort_by_key(|n| Some(*n) != entry);
    let none = Groups::new();
    let graphs: Vec<Value> = names
        .into_iter()
        .map(|name| {
            let groups = if Some(name) == entry { groups } else { &none };
            graph_object(m, name, &m.graphs[name], groups)
        })
        .collect();
    json!({"label": m.name, "graphs": graphs})
}

fn graph_object(m: &GraphModule, name: &str, g: &Graph, groups: &Groups) -> Value {
    let mut attributes: Map<String, Value> = Map::new();
    for n in g.iter() {
        for frame in g[n].meta.modules.iter().filter(|_| groups.is_empty()) {
            let about = json!({"path": &*frame.path, "class": &*frame.class});
            attributes.insert(namespace_of(&frame.path), about);
        }
    }
    let nodes: Vec<Value> = g.iter().map(|n| node_object(m, name, g, n, groups)).collect();
    json!({"id": name, "nodes": nodes, "groupNodeAttributes": attributes})
}

/// A module's path as a namespace: `layer1/0/conv1`.
fn namespace_of(path: &str) -> String {
    path.replace('.', "/")
}

fn node_object(m: &GraphModule, graph: &str, g: &Graph, n: NodeId, groups: &Groups) -> Value {
    let node = &g[n];
    let namespace = match groups.get(&n) {
        Some(group) => group.to_string(),
        None if groups.is_empty() => node
            .meta
            .modules
            .last()
            .map(|f| namespace_of(&f.path))
            .unwrap_or_default(),
        None => String::new(),
    };
    let (edges, inputs) = incoming_edges(m, g, n);
    json!({
        "id": node.name(),
        "label": if node.op() == Opcode::Output { "output" } else { node.target() },
        "namespace": namespace,
        "subgraphIds": called_graphs(m, graph, g, n),
        "attrs": node_attrs(g, n),
        "incomingEdges": edges,
        "inputsMetadata": inputs,
        "outputsMetadata": output_types(node.name(), node.meta.ty.as_ref()),
    })
}

fn key_value(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value})
}

/// The attributes of a node in the side panel.
fn node_attrs(g: &Graph, n: NodeId) -> Vec<Value> {
    let node = &g[n];
    let mut out = vec![key_value("op", node.op().name())];
    let name = |i: &NodeId| format!("%{}", g[*i].name());
    for (i, a) in node
        .args()
        .iter()
        .enumerate()
        .filter(|(_, a)| !matches!(a, Val::Leaf(_)))
    {
        out.push(key_value(&format!("args[{i}]"), &pyrepr::repr(a, &name)));
    }
    for (k, a) in node.kwargs().iter().filter(|(_, a)| !matches!(a, Val::Leaf(_))) {
        out.push(key_value(k, &pyrepr::repr(a, &name)));
    }
    if let Some(t) = &node.meta.ty {
        out.push(key_value("type", &t.to_string()));
    }
    if let Some(l) = &node.meta.loc {
        out.push(key_value("source", &format!("{}:{} in {}", l.file, l.line, l.function)));
    }
    if !node.meta.provenance.is_empty() {
        out.push(key_value("from", &node.meta.provenance.join(", ")));
    }
    out
}

/// The edges to a node, one for each use of a value, and the names of these.
fn incoming_edges(m: &GraphModule, g: &Graph, n: NodeId) -> (Vec<Value>, Vec<Value>) {
    let names = parameter_names(m, g, n);
    let (mut edges, mut inputs) = (vec![], vec![]);
    let mut add = |name: &str, a: &Arg| {
        for from in a.leaves() {
            let id = edges.len().to_string();
            edges.push(json!({
                "sourceNodeId": g[*from].name(),
                "sourceNodeOutputId": "0",
                "targetNodeInputId": id,
            }));
            inputs.push(json!({"id": id, "attrs": [key_value("__tensor_tag", name)]}));
        }
    };
    for (i, a) in g[n].args().iter().enumerate() {
        let name = names.get(&i).cloned().unwrap_or_else(|| format!("args[{i}]"));
        add(&name, a);
    }
    for (k, a) in g[n].kwargs() {
        add(k, a);
    }
    (edges, inputs)
}

/// The names of the parameters by argument position.
pub(in crate::driver) fn parameter_names(m: &GraphModule, g: &Graph, n: NodeId) -> HashMap<usize, String> {
    let node = &g[n];
    let resolved = (node.op() != Opcode::CallModule && node.op().is_call())
        .then(|| infer::resolve_node(m, g, n).ok())
        .flatten();
    let Some(resolved) = resolved else {
        return HashMap::new();
    };
    let Callee::Op(spelling) = &resolved.callee else {
        return HashMap::new();
    };
    // The spelling determines the parameter of each argument, so bind the positions.
    let positions: Vec<Val<usize>> = (0..node.args().len()).map(Val::Leaf).collect();
    let named: Vec<(&str, Val<usize>)> = resolved.kwargs.iter().map(|(k, _)| (&**k, Val::None)).collect();
    let named: Vec<(&str, &Val<usize>)> = named.iter().map(|(k, v)| (*k, v)).collect();
    let call = spelling.apply(&positions, &named);
    let params = call.op.schema.params.iter().zip(&call.args);
    params
        .flat_map(|(p, a)| {
            a.leaves()
                .into_iter()
                .map(|&i| (i, p.name.to_string()))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The graphs that a node calls.
fn called_graphs(m: &GraphModule, graph: &str, g: &Graph, n: NodeId) -> Vec<String> {
    let node = &g[n];
    let mut out: Vec<String> = vec![];
    if node.op() == Opcode::CallFunction && node.target() != graph && m.graphs.contains_key(node.target()) {
        out.push(node.target().to_string());
    }
    let args = node.args().iter().chain(node.kwargs().iter().map(|(_, a)| a));
    for a in args {
        if let Val::Graph(name) = a {
            out.push(name.to_string());
        }
    }
    out
}

/// The types of a node's results.
fn output_types(name: &str, ty: Option<&Type>) -> Vec<Value> {
    let leaves = ty.map(|t| t.leaves()).unwrap_or_default();
    let shown = leaves.into_iter().enumerate();
    shown
        .map(|(i, t)| {
            let attrs = [
                key_value("__tensor_tag", name),
                key_value("tensor_shape", &t.to_string()),
            ];
            json!({"id": i.to_string(), "attrs": attrs})
        })
        .collect()
}
