//! Converts regions that `torch.vmap` leaves in an exported graph to calls of graphs.
//!
//! ```text
//! %level = _vmap_increment_nesting(7, "error")
//! %a     = _add_batch_dim(%x, 0, %level)              graph vmap { %a = placeholder  …  output (%y,) }
//! %y     = mul(%a, %w)                          ──▶   %map = map_impl(@vmap, [%x], [%w])
//! %z     = _remove_batch_dim(%y, %level, 7, 0)        %z = getitem(%map, 0)
//! %end   = _vmap_decrement_nesting()
//! ```
//!
//! Values inside a region have no batch dim; `map_impl` runs the region for each row. `associative_scan` is traced in
//! this form.

use crate::graph::{Arg, Graph, InsertPoint, NodeId, Opcode};
use crate::types::Val;
use std::collections::HashMap;
use std::sync::Arc;

const PREFIX: &str = "torch._functorch.predispatch.";

/// The role of a node in a region.
fn region_role(graph: &Graph, n: NodeId) -> Option<&str> {
    let node = &graph[n];
    let named = node.op() == Opcode::CallFunction;
    node.target().strip_prefix(PREFIX).filter(|_| named)
}

/// Converts every region to a graph and a call of it, innermost regions first. `name` generates the graphs' names. A
/// malformed region is not converted, and is later reported as unknown ops.
pub(super) fn extract_regions(graph: &mut Graph, mut name: impl FnMut() -> Arc<str>) -> Vec<(Arc<str>, Graph)> {
    for n in graph.ids() {
        if region_role(graph, n) == Some("lazy_load_decompositions") {
            // Its result is never used.
            let _ = graph.erase_node(n);
        }
    }
    let (mut made, mut open) = (vec![], vec![]);
    for n in graph.ids() {
        match region_role(graph, n) {
            Some("_vmap_increment_nesting") => open.push(n),
            Some("_vmap_decrement_nesting") => {
                let Some(begin) = open.pop() else { continue };
                let wish = name();
                match extract_region(graph, begin, n, &wish) {
                    Some(body) => made.push((wish, body)),
                    None => return made,
                }
            }
            _ => {}
        }
    }
    made
}

/// A region under construction.
#[derive(Default)]
struct VmapRegion {
    body: Graph,
    /// The body's node for each node of the graph.
    inside: HashMap<NodeId, NodeId>,
    /// Batched values, and their batch dims.
    rows: Vec<(NodeId, i64)>,
    /// Values from outside of the region.
    extra: Vec<NodeId>,
    /// For each `_remove_batch_dim` node, its operand in the body and the batch dim of its result.
    results: Vec<(NodeId, Arg, i64)>,
}

/// Moves the nodes from `begin` to `end` into a separate graph, the body, and inserts a call of it.
fn extract_region(graph: &mut Graph, begin: NodeId, end: NodeId, name: &Arc<str>) -> Option<Graph> {
    let from_begin = graph.ids().into_iter().skip_while(|n| *n != begin);
    let between: Vec<NodeId> = from_begin.skip(1).take_while(|n| *n != end).collect();
    let mut r = VmapRegion::default();
    r.add_parameters(graph, begin, &between)?;
    r.copy_nodes(graph, &between)?;
    if r.rows.is_empty() || r.results.is_empty() {
        return None;
    }
    let results = r.results.iter().map(|(_, v, _)| v.clone()).collect();
    r.body.set_insert_point(InsertPoint::End);
    r.body.set_output(Val::Tuple(results));
    r.insert_call(graph, end, name);
    for n in between.into_iter().rev().chain([end, begin]) {
        // Its users have been erased before, or use the call now.
        graph.erase_node(n).ok()?;
    }
    Some(r.body)
}

impl VmapRegion {
    /// Adds the body's parameters. Those for rows come first, then those for values from outside of the region.
    fn add_parameters(&mut self, graph: &Graph, begin: NodeId, between: &[NodeId]) -> Option<()> {
        let adds_batch_dim = |n: NodeId| region_role(graph, n) == Some("_add_batch_dim");
        for n in between.iter().copied().filter(|&n| adds_batch_dim(n)) {
            let dim = graph[n].args().get(1)?.as_int()?;
            self.add_parameter(graph, n);
            self.rows.push((*graph[n].args().first()?.as_leaf()?, dim));
        }
        let others = between.iter().copied().filter(|&n| !adds_batch_dim(n));
        let inputs = others.flat_map(|n| graph[n].inputs());
        for i in inputs.filter(|i| *i != begin && !between.contains(i)) {
            if !self.inside.contains_key(&i) {
                self.add_parameter(graph, i);
                self.extra.push(i);
            }
        }
        Some(())
    }

    /// Copies the nodes of the region to the body, except those that add and remove batch dims.
    fn copy_nodes(&mut self, graph: &Graph, between: &[NodeId]) -> Option<()> {
        for &n in between {
            match region_role(graph, n) {
                Some("_add_batch_dim") => {}
                Some("_remove_batch_dim") => {
                    let args = graph[n].args();
                    let value = self.inside.get(args.first()?.as_leaf()?)?;
                    self.results.push((n, Val::Leaf(*value), args.get(3)?.as_int()?));
                }
                Some(_) => return None,
                None => {
                    let inside = |i| self.inside.get(&i).map_or(Val::None, |&i| Val::Leaf(i));
                    let copy = self.body.node_copy(graph, n, inside);
                    self.inside.insert(n, copy);
                }
            }
        }
        Some(())
    }

    /// Gives the body a parameter for the value of `n`.
    fn add_parameter(&mut self, graph: &Graph, n: NodeId) {
        let p = self.body.placeholder(graph[n].name(), None);
        self.body.meta_mut(p).ty = graph[n].meta.ty.clone();
        self.inside.insert(n, p);
    }

    /// Inserts a call of the body before `end`, and replaces the region's results with those of the call.
    fn insert_call(&self, graph: &mut Graph, end: NodeId, name: &Arc<str>) {
        let point = graph.insert_point();
        graph.set_insert_point(InsertPoint::Before(end));
        let moved = |graph: &mut Graph, x: NodeId, from: i64, to: i64| match from == to {
            true => x,
            false => {
                let args = vec![Val::Leaf(x), Val::int(from), Val::int(to)];
                graph.call_function("torch.ops.aten.movedim.int", args, vec![])
            }
        };
        let rows = self
            .rows
            .iter()
            .map(|&(x, dim)| Val::Leaf(moved(graph, x, dim, 0)))
            .collect();
        let extra = self.extra.iter().map(|&x| Val::Leaf(x)).collect();
        let args = vec![Val::Graph(name.clone()), Val::List(rows), Val::List(extra)];
        let call = graph.call_function("torch.ops.higher_order.map_impl", args, vec![]);
        graph.meta_mut(call).loc = graph[end].meta.loc.clone();
        for (i, &(n, _, dim)) in self.results.iter().enumerate() {
            let args = vec![Val::Leaf(call), Val::int(i as i64)];
            let item = graph.call_function("operator.getitem", args, vec![]);
            let result = moved(graph, item, 0, dim);
            graph.meta_mut(result).ty = graph[n].meta.ty.clone();
            graph.replace_all_uses_with(n, result);
        }
        graph.set_insert_point(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;
    use crate::syntax::parse_text;

    #[test]
    fn regions_become_calls() {
        let p = PREFIX;
        let text = format!(
            "graph main {{
                %x : f32[3, 7] = placeholder x
                %w : f32[3] = placeholder w
                %lazy = call_function {p}lazy_load_decompositions()
                %level = call_function {p}_vmap_increment_nesting(7, \"error\")
                %a : f32[3] = call_function {p}_add_batch_dim(%x, 1, 1)
                %y : f32[3] = call_function torch.ops.aten.mul.Tensor(%a, %w)
                %z : f32[7, 3] = call_function {p}_remove_batch_dim(%y, 1, 7, 0)
                %end = call_function {p}_vmap_decrement_nesting()
                output %z
            }}"
        );
        let (file, found) = parse_text(FileId(0), &text);
        assert!(!found.has_errors(), "{found:?}");
        let (mut m, _) = crate::graph::build(&file, "g");
        let mut graph = m.graphs["main"].clone();
        let made = extract_regions(&mut graph, || "vmap".into());
        m.graphs.insert("main".into(), graph);
        m.graphs.extend(made);
        let printed = crate::graph::print(&m);
        for line in [
            "%movedim_int = call_function torch.ops.aten.movedim.int(%x, 1, 0)",
            "%map_impl = call_function torch.ops.higher_order.map_impl(@vmap, [%movedim_int], [%w])",
            "%getitem : f32[7, 3] = call_function operator.getitem(%map_impl, 0)",
            "%y : f32[3] = call_function torch.ops.aten.mul.Tensor(%a, %w)",
        ] {
            assert!(printed.contains(line), "{printed}");
        }
        assert!(!printed.contains(PREFIX), "{printed}");
        let found = crate::infer::infer(&mut m, &Default::default());
        assert!(!found.has_errors(), "{found:?}");
    }
}
