//! Finds the nodes at which two ways of running a graph disagree: torch's `net_min_base` minimizer.
//!
//! [`minimize`] runs parts of a graph in both ways on the same values, which the interpreter computes, and compares the
//! results. [`Traverse`] selects the parts. [`bisect`](super::bisect) does the same for passes and compiled code, on
//! the command line.

use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, GraphModule, NodeId, transform};
use crate::interp::{Interpreter, RuntimeValue};
use crate::types::Val;
use std::collections::HashMap;
use std::ops::Range;

/// How a graph is divided into parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traverse {
    /// Each call by itself. Finds all that disagree.
    Sequential,
    /// Bisection: a part that disagrees is halved until it is a single call.
    Binary,
    /// All calls up to one, which is advanced until the results disagree. Finds that call.
    Accumulate,
    /// Bisection of the end, then of the start. Finds the smallest run of calls whose results disagree.
    Block,
    /// The runs between these calls, which are not checked.
    Skip(Vec<NodeId>),
    /// Only the calls from the first to the last of these.
    Defined(Vec<NodeId>),
}

/// Runs a module's entry graph.
pub type Runner<'a> = &'a mut dyn FnMut(&GraphModule, &[RuntimeValue]) -> Result<RuntimeValue, Diagnostic>;

/// Whether two results agree.
pub type Agree<'a> = &'a dyn Fn(&RuntimeValue, &RuntimeValue) -> bool;

struct Minimizer<'a, 'b> {
    module: &'a GraphModule,
    graph: &'a Graph,
    calls: Vec<NodeId>,
    values: HashMap<NodeId, RuntimeValue>,
    run_a: Runner<'b>,
    run_b: Runner<'b>,
    agree: Agree<'b>,
}

/// Returns the calls of the entry graph at which `run_a` and `run_b` disagree, in order. Empty if no checked part
/// disagrees.
///
/// # Errors
/// Whatever running the whole graph reports. A part that one of the two cannot run counts as a disagreement.
pub fn minimize(
    module: &GraphModule,
    inputs: Vec<RuntimeValue>,
    traverse: &Traverse,
    run_a: Runner<'_>,
    run_b: Runner<'_>,
    agree: Agree<'_>,
) -> Result<Vec<NodeId>, Diagnostic> {
    let graph = module
        .entry()
        .ok_or_else(|| Diagnostic::new(Code::E0104, "the file contains no graph to run"))?;
    let mut interpreter = Interpreter::new(module);
    interpreter.keep_values();
    interpreter.run(inputs)?;
    let mut m = Minimizer {
        module,
        graph,
        calls: graph.iter().filter(|&n| graph[n].op().is_call()).collect(),
        values: interpreter.env().clone(),
        run_a,
        run_b,
        agree,
    };
    let ranges = m.search(traverse);
    Ok(ranges.into_iter().flatten().map(|i| m.calls[i]).collect())
}

impl Minimizer<'_, '_> {
    /// Finds the calls that disagree.
    fn search(&mut self, traverse: &Traverse) -> Vec<Range<usize>> {
        let all = 0..self.calls.len();
        match traverse {
            Traverse::Sequential => all.map(|i| i..i + 1).filter(|r| self.differs(r)).collect(),
            Traverse::Binary => self.search_binary(all),
            Traverse::Accumulate => {
                let end = (1..self.calls.len() + 1).find(|&end| self.differs(&(0..end)));
                end.map(|end| end - 1..end).into_iter().collect()
            }
            Traverse::Block => self.search_block(all).into_iter().collect(),
            Traverse::Skip(skipped) => self.search_between(skipped),
            Traverse::Defined(nodes) => {
                let places = || nodes.iter().filter_map(|n| self.calls.iter().position(|c| c == n));
                let range = places().min().zip(places().max()).map(|(a, b)| a..b + 1);
                range.into_iter().filter(|r| self.differs(r)).collect()
            }
        }
    }

    /// Whether the two ways disagree on these calls.
    fn differs(&mut self, part: &Range<usize>) -> bool {
        let inside = &self.calls[part.clone()];
        let tensors = |n: &NodeId| self.values.get(n).is_some_and(|v| matches!(v, Val::Leaf(_)));
        let outside = |n: &NodeId| self.graph[*n].users().any(|u| !inside.contains(&u));
        let outputs: Vec<NodeId> = inside.iter().copied().filter(|n| outside(n) && tensors(n)).collect();
        if outputs.is_empty() {
            return false;
        }
        let mut inputs: Vec<NodeId> = vec![];
        for i in inside.iter().flat_map(|&n| self.graph[n].inputs()) {
            let read = self.graph[i].op() == crate::graph::Opcode::GetAttr;
            if !read && !inside.contains(&i) && !inputs.contains(&i) {
                inputs.push(i);
            }
        }
        let Ok(graph) = transform::extract(self.graph, &inputs, &outputs) else {
            return false;
        };
        let part = self.module.lift("part", graph);
        let values: Option<Vec<RuntimeValue>> = inputs.iter().map(|i| self.values.get(i).cloned()).collect();
        let Some(values) = values else { return false };
        match ((self.run_a)(&part, &values), (self.run_b)(&part, &values)) {
            (Ok(a), Ok(b)) => !(self.agree)(&a, &b),
            (a, b) => a.is_ok() != b.is_ok(),
        }
    }

    /// Finds the calls that disagree by bisection.
    fn search_binary(&mut self, part: Range<usize>) -> Vec<Range<usize>> {
        let mut out = vec![];
        let mut todo = vec![part];
        while let Some(part) = todo.pop() {
            if part.is_empty() || !self.differs(&part) {
                continue;
            }
            if part.len() == 1 {
                out.push(part);
                continue;
            }
            let mid = part.start + part.len() / 2;
            let halves = [part.start..mid, mid..part.end];
            let before = todo.len();
            for half in halves.iter().rev() {
                if self.differs(half) {
                    todo.push(half.clone());
                }
            }
            if todo.len() == before {
                // They disagree only together.
                out.push(part);
            }
        }
        out
    }

    /// Finds the smallest run of calls whose results disagree: first its end with the start fixed, then its start.
    fn search_block(&mut self, part: Range<usize>) -> Option<Range<usize>> {
        if part.is_empty() || !self.differs(&part) {
            return None;
        }
        let (mut low, mut high) = (part.start + 1, part.end);
        while low < high {
            let mid = (low + high) / 2;
            match self.differs(&(part.start..mid)) {
                true => high = mid,
                false => low = mid + 1,
            }
        }
        let end = high;
        let (mut low, mut high) = (part.start, end - 1);
        while low < high {
            let mid = (low + high).div_ceil(2);
            match self.differs(&(mid..end)) {
                true => low = mid,
                false => high = mid - 1,
            }
        }
        Some(low..end)
    }

    /// Finds the runs between skipped calls that disagree.
    fn search_between(&mut self, skipped: &[NodeId]) -> Vec<Range<usize>> {
        let mut out = vec![];
        let mut start = 0;
        for i in 0..=self.calls.len() {
            let ends = self.calls.get(i).is_none_or(|n| skipped.contains(n));
            if ends {
                let part = start..i;
                if !part.is_empty() && self.differs(&part) {
                    out.push(part);
                }
                start = i + 1;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::{self, Hooked, Hooks, RunningNode};
    use crate::tensor::Tensor;

    /// A backend that computes `sin` and `sqrt` wrongly.
    struct Wrong;
    impl Hooks for Wrong {
        fn call_method(&mut self, at: RunningNode<'_>) -> Hooked {
            Ok(matches!(at.target(), "sin" | "sqrt").then(|| at.args[0].clone()))
        }
    }

    fn found(traverse: impl Fn(&Graph) -> Traverse) -> Vec<String> {
        let g = Graph::trace(&["x"], |_, p| {
            let a = p[0].method("exp", ()).method("sin", ()) + 2;
            (a.method("sqrt", ()).method("neg", ()), a.method("cos", ()))
        });
        let m = GraphModule::new("main", g);
        let g = m.entry().unwrap();
        let x = Val::Leaf(Tensor::from_slice(&[2], &[0.5f32, 1.5]));
        let mut good = |m: &GraphModule, v: &[RuntimeValue]| interp::run(m, v.to_vec());
        let mut wrong = |m: &GraphModule, v: &[RuntimeValue]| Interpreter::new(m).run_with(v.to_vec(), &mut Wrong);
        let nodes = minimize(&m, vec![x], &traverse(g), &mut good, &mut wrong, &|a, b| a == b).unwrap();
        nodes.iter().map(|&n| g[n].name().to_string()).collect()
    }

    #[test]
    fn every_way_finds_what_is_wrong() {
        assert_eq!(found(|_| Traverse::Sequential), ["sin", "sqrt"]);
        assert_eq!(found(|_| Traverse::Binary), ["sin", "sqrt"]);
        assert_eq!(found(|_| Traverse::Accumulate), ["sin"]);
        assert_eq!(found(|_| Traverse::Block), ["sin"]);
        let nodes = |g: &Graph, names: &[&str]| names.iter().map(|n| g.find(n).unwrap()).collect::<Vec<_>>();
        assert_eq!(found(|g| Traverse::Skip(nodes(g, &["sin", "sqrt"]))), [] as [&str; 0]);
        assert_eq!(found(|g| Traverse::Skip(nodes(g, &["add"]))).len(), 5);
        assert_eq!(found(|g| Traverse::Defined(nodes(g, &["neg"]))), [] as [&str; 0]);
        assert_eq!(
            found(|g| Traverse::Defined(nodes(g, &["sqrt", "neg"]))),
            ["sqrt", "neg"]
        );
    }
}
