//! Steps that make the graph smaller: fewer results, values as inputs, fewer calls and arguments.

use super::{Failing, Reducer};
use crate::graph::{Arg, Graph, NodeId, Opcode};
use crate::interp::RuntimeValue;
use crate::types::Val;

/// Values with more elements do not become inputs: they would make the reduced graph unwieldy.
const MAX_INPUT_ELEMENTS: usize = 1 << 22;

impl Reducer<'_> {
    /// Fewer results, then operands of results in their place.
    pub(super) fn reduce_results(&mut self) {
        loop {
            let results = self.results();
            let parts = halves(&results).into_iter().chain(results.iter().map(|&n| vec![n]));
            let parts: Vec<Vec<NodeId>> = parts.filter(|p| p.len() < results.len()).collect();
            let mut smaller = parts.into_iter();
            if smaller.any(|part| self.attempt(|f| set_results(f, &part))) {
                continue;
            }
            let operands = self.operands_of_results();
            let mut earlier = operands.into_iter();
            if !earlier.any(|n| self.attempt(|f| set_results(f, &[n]))) {
                return;
            }
        }
    }

    fn results(&self) -> Vec<NodeId> {
        let graph = self.best.graph();
        graph.and_then(|g| Some(g[g.output()?].inputs())).unwrap_or_default()
    }

    fn operands_of_results(&self) -> Vec<NodeId> {
        let Some(graph) = self.best.graph() else { return vec![] };
        let computed = |n: &NodeId| graph[*n].op().is_call();
        let operands = self.results().into_iter().flat_map(|r| graph[r].inputs());
        operands.filter(computed).collect()
    }

    /// Makes values inputs, half of them at a time, then fewer, so that the calls before them are not needed.
    pub(super) fn cut_operands(&mut self) {
        let mut length = self.calls().len().div_ceil(2);
        while length > 0 {
            let mut at = 0;
            loop {
                let values = self.best.values();
                let sources = self.used_sources();
                let Some(part) = sources.get(at..).filter(|rest| !rest.is_empty()) else {
                    break;
                };
                let part = part[..length.min(part.len())].to_vec();
                let done = self.attempt(|f| {
                    let inputs = part.iter().filter_map(|n| Some((*n, values.get(n)?.clone())));
                    replace_by_inputs(f, &part, inputs.collect())
                });
                if !done {
                    at += length;
                }
                if self.is_exhausted() {
                    return;
                }
            }
            length /= 2;
        }
    }

    /// The calls and attributes whose values other calls use.
    fn used_sources(&self) -> Vec<NodeId> {
        let Some(graph) = self.best.graph() else { return vec![] };
        let is_source = |n: &NodeId| graph[*n].op().is_call() || graph[*n].op() == Opcode::GetAttr;
        graph.iter().filter(is_source).collect()
    }

    /// Replaces calls by one of their operands of the same type, or drops them.
    pub(super) fn bypass_calls(&mut self) {
        for n in self.calls().into_iter().rev() {
            let Some(graph) = self.best.graph().filter(|g| g.is_live(n)) else {
                continue;
            };
            let same = |i: &NodeId| graph[*i].meta.ty.is_some() && graph[*i].meta.ty == graph[n].meta.ty;
            let operands: Vec<NodeId> = graph[n].inputs().into_iter().filter(same).collect();
            let unused = graph[n].users().len() == 0;
            let replaced = operands.into_iter().any(|i| {
                self.attempt(|f| {
                    let graph = f.module.entry_mut()?;
                    graph.replace_all_uses_with(n, i);
                    graph.erase_node(n).ok()
                })
            });
            if !replaced && unused {
                self.attempt(|f| f.module.entry_mut()?.erase_node(n).ok());
            }
        }
    }

    /// Drops keyword arguments, and positional ones from the end.
    pub(super) fn drop_arguments(&mut self) {
        for n in self.calls() {
            let Some(graph) = self.best.graph().filter(|g| g.is_live(n)) else {
                continue;
            };
            for k in (0..graph[n].kwargs().len()).rev() {
                self.attempt(|f| {
                    let graph = f.module.entry_mut()?;
                    let mut kwargs = graph[n].kwargs().to_vec();
                    kwargs.remove(k);
                    graph.set_kwargs(n, kwargs);
                    Some(())
                });
            }
            let shorter = |f: &mut Failing| {
                let graph = f.module.entry_mut()?;
                let args = graph[n].args();
                let args = args[..args.len().checked_sub(1)?].to_vec();
                graph.set_args(n, args);
                Some(())
            };
            while self.attempt(shorter) {}
        }
    }
}

fn halves(nodes: &[NodeId]) -> Vec<Vec<NodeId>> {
    let (a, b) = nodes.split_at(nodes.len() / 2);
    [a, b]
        .into_iter()
        .filter(|h| !h.is_empty())
        .map(<[_]>::to_vec)
        .collect()
}

/// Makes these nodes the only results.
fn set_results(f: &mut Failing, results: &[NodeId]) -> Option<()> {
    let graph = f.module.entry_mut()?;
    let output = graph.output()?;
    let result = match results {
        [single] => Val::Leaf(*single),
        many => Val::Tuple(many.iter().map(|&n| Val::Leaf(n)).collect()),
    };
    let before: Vec<Arg> = graph[output].args().to_vec();
    graph.set_args(output, vec![result]);
    (graph[output].args() != before).then_some(())
}

/// Replaces what others use of `part` by inputs with these values.
fn replace_by_inputs(f: &mut Failing, part: &[NodeId], values: Vec<(NodeId, RuntimeValue)>) -> Option<()> {
    let graph = f.module.entry_mut()?;
    let mut changed = None;
    for (n, value) in values {
        let used = graph[n].users().any(|u| !part.contains(&u));
        let Val::Leaf(tensor) = &value else { continue };
        if !used || tensor.numel() > MAX_INPUT_ELEMENTS {
            continue;
        }
        let name = graph[n].name().to_string();
        let input = add_input(graph, &name);
        let meta = graph.meta_mut(input);
        (meta.ty, meta.declared) = (Some(Val::Leaf(tensor.ty())), true);
        graph.replace_uses_where(n, input, |_, u| !part.contains(&u));
        f.inputs.push(Val::Leaf(tensor.deep_copy()));
        changed = Some(());
    }
    changed
}

/// Adds an input after the others.
fn add_input(graph: &mut Graph, name: &str) -> NodeId {
    let first = graph.iter().find(|&n| graph[n].op() != Opcode::Placeholder);
    let add = |g: &mut Graph| g.placeholder(name, None);
    match first {
        Some(_) => graph
            .inserting_before(first, add)
            .unwrap_or_else(|_| unreachable!("a node of this graph")),
        None => add(graph),
    }
}
