//! Operations that map graphs to graphs: copying with a hook for every node ([`Transformer`]), extracting a part
//! ([`extract`]), and comparing two graphs ([`diff`]).

use super::EditResult;
use crate::graph::fxir::print::print_node;
use crate::graph::{Arg, Graph, GraphError, Node, NodeId, Opcode};
use crate::types::Val;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A node with its arguments in terms of the new graph.
pub struct Copied<'a> {
    /// The node of the old graph.
    pub node: &'a Node,
    /// Positional arguments.
    pub args: Vec<Arg>,
    /// Keyword arguments.
    pub kwargs: Vec<(Arc<str>, Arg)>,
    old: (&'a Graph, NodeId),
}

/// Copies a graph with one method for each opcode, which can emit something else (torch's `Transformer`). The returned
/// argument replaces the node in the rest of the copy. By default, a node is copied with its name, type and location.
pub trait Transformer {
    /// A parameter of the graph.
    fn placeholder(&mut self, new: &mut Graph, n: Copied<'_>) -> EditResult<Arg> {
        copy_node(new, n)
    }

    /// A parameter, buffer or constant.
    fn get_attr(&mut self, new: &mut Graph, n: Copied<'_>) -> EditResult<Arg> {
        copy_node(new, n)
    }

    /// A call of a function.
    fn call_function(&mut self, new: &mut Graph, n: Copied<'_>) -> EditResult<Arg> {
        copy_node(new, n)
    }

    /// A call of a method.
    fn call_method(&mut self, new: &mut Graph, n: Copied<'_>) -> EditResult<Arg> {
        copy_node(new, n)
    }

    /// A call of a module.
    fn call_module(&mut self, new: &mut Graph, n: Copied<'_>) -> EditResult<Arg> {
        copy_node(new, n)
    }

    /// The result.
    fn output(&mut self, new: &mut Graph, n: Copied<'_>) -> EditResult<Arg> {
        copy_node(new, n)
    }
}

/// Copies the node unchanged.
pub fn copy_node(new: &mut Graph, n: Copied<'_>) -> EditResult<Arg> {
    let id = new.create_node(n.node.op(), n.node.target(), n.args, n.kwargs, Some(n.node.name()));
    *new.meta_mut(id) = n.node.meta.clone();
    new.copy_text(n.old.0, n.old.1, id);
    Ok(Val::Leaf(id))
}

/// Returns the graph that `t` makes of `graph`.
///
/// # Errors
/// A node is used before it is defined, or `t` fails.
pub fn transform(graph: &Graph, t: &mut dyn Transformer) -> EditResult<Graph> {
    let mut new = graph.empty_like();
    let mut map: HashMap<NodeId, Arg> = HashMap::new();
    for n in graph.iter() {
        let node = &graph[n];
        let value = |a: &Arg| -> EditResult<Arg> {
            a.try_map(&mut |i| {
                let undefined = || {
                    GraphError(format!(
                        "Node {} referenced nonexistent value {}!",
                        node.name(),
                        graph[*i].name()
                    ))
                };
                map.get(i).cloned().ok_or_else(undefined)
            })
        };
        let args = node.args().iter().map(value).collect::<EditResult<Vec<_>>>()?;
        let kwargs = node.kwargs().iter().map(|(k, a)| Ok((k.clone(), value(a)?)));
        let kwargs = kwargs.collect::<EditResult<Vec<_>>>()?;
        let copied = Copied {
            node,
            args,
            kwargs,
            old: (graph, n),
        };
        let result = match node.op() {
            Opcode::Placeholder => t.placeholder(&mut new, copied)?,
            Opcode::GetAttr => t.get_attr(&mut new, copied)?,
            Opcode::CallFunction => t.call_function(&mut new, copied)?,
            Opcode::CallMethod => t.call_method(&mut new, copied)?,
            Opcode::CallModule => t.call_module(&mut new, copied)?,
            Opcode::Output => t.output(&mut new, copied)?,
        };
        map.insert(n, result);
    }
    Ok(new)
}

/// Extracts the part of a graph that computes `outputs` from `inputs` (torch's `extract_subgraph`): a graph with a
/// placeholder for each input, named after it. Attributes are copied too.
///
/// # Errors
/// The part needs a placeholder that is not in `inputs`.
pub fn extract(graph: &Graph, inputs: &[NodeId], outputs: &[NodeId]) -> EditResult<Graph> {
    let mut needed: HashSet<NodeId> = HashSet::new();
    let mut todo: Vec<NodeId> = outputs.to_vec();
    while let Some(n) = todo.pop() {
        if inputs.contains(&n) || !needed.insert(n) {
            continue;
        }
        if graph[n].op() == Opcode::Placeholder {
            return Err(GraphError(format!(
                "`%{}` is used but is neither an input nor part of the subgraph",
                graph[n].name()
            )));
        }
        todo.extend(graph[n].inputs());
    }
    let mut new = Graph::new();
    let mut map: HashMap<NodeId, Arg> = HashMap::new();
    for &i in inputs {
        let p = new.placeholder(graph[i].name(), None);
        let ty = graph[i].meta.ty.clone();
        let meta = new.meta_mut(p);
        meta.declared = ty.is_some();
        meta.ty = ty;
        map.insert(i, Val::Leaf(p));
    }
    for n in graph.iter().filter(|n| needed.contains(n)) {
        let copied = new.node_copy(graph, n, |i| map.get(&i).cloned().unwrap_or(Val::Unknown));
        map.insert(n, Val::Leaf(copied));
    }
    let results: Vec<Arg> = outputs.iter().filter_map(|o| map.get(o).cloned()).collect();
    new.set_output(match &results[..] {
        [single] => single.clone(),
        _ => Val::Tuple(results),
    });
    Ok(new)
}

/// A difference between two graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Only the first graph has it.
    Removed(String),
    /// Only the second graph has it.
    Added(String),
    /// Both graphs have a node of this name, and the nodes differ.
    Changed {
        /// The node of the first graph.
        before: String,
        /// The node of the second graph.
        after: String,
    },
}

/// Compares nodes by name and returns the differences as FXIR lines: nodes of `a` in order, then those that only `b`
/// has.
pub fn diff(a: &Graph, b: &Graph) -> Vec<Change> {
    let lines = |g: &Graph| -> Vec<(String, String)> {
        g.iter()
            .map(|n| (g[n].name().to_string(), print_node(g, n).trim().to_string()))
            .collect()
    };
    let (before, after) = (lines(a), lines(b));
    let by_name: HashMap<&str, &str> = after.iter().map(|(n, l)| (n.as_str(), l.as_str())).collect();
    let known: HashSet<&str> = before.iter().map(|(n, _)| n.as_str()).collect();
    let mut out = vec![];
    for (name, line) in &before {
        match by_name.get(name.as_str()) {
            None => out.push(Change::Removed(line.clone())),
            Some(now) if *now != line => out.push(Change::Changed {
                before: line.clone(),
                after: now.to_string(),
            }),
            Some(_) => {}
        }
    }
    let new = after.iter().filter(|(n, _)| !known.contains(n.as_str()));
    out.extend(new.map(|(_, l)| Change::Added(l.clone())));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        Graph::trace(&["x", "y"], |t, p| {
            let sum = &p[0] + &p[1];
            let relu = t.function("torch.relu", (&sum,), &[]);
            (relu.method("exp", ()), sum)
        })
    }

    struct NoRelu;
    impl Transformer for NoRelu {
        fn call_function(&mut self, new: &mut Graph, mut n: Copied<'_>) -> EditResult<Arg> {
            match n.node.target() {
                "torch.relu" => Ok(n.args.swap_remove(0)),
                _ => copy_node(new, n),
            }
        }
    }

    #[test]
    fn transforming_copies_what_is_not_overridden() {
        let before = graph();
        let after = transform(&before, &mut NoRelu).unwrap();
        let names: Vec<&str> = after.iter().map(|n| after[n].name()).collect();
        assert_eq!(names, ["x", "y", "add", "exp", "output"]);
        let changes = diff(&before, &after);
        assert!(
            matches!(&changes[0], Change::Removed(l) if l.contains("relu")),
            "{changes:?}"
        );
        assert!(matches!(&changes[1], Change::Changed { .. }), "{changes:?}");
        assert_eq!(changes.len(), 2);
        assert!(diff(&before, &before).is_empty());
    }

    #[test]
    fn parts_are_taken_out_between_their_ends() {
        let g = graph();
        let find = |n: &str| g.find(n).unwrap();
        let part = extract(&g, &[find("add")], &[find("exp")]).unwrap();
        let names: Vec<&str> = part.iter().map(|n| part[n].name()).collect();
        assert_eq!(names, ["add", "relu", "exp", "output"]);
        let e = extract(&g, &[find("x")], &[find("exp")]).unwrap_err();
        assert_eq!(e.0, "`%y` is used but is neither an input nor part of the subgraph");
    }
}
