//! Reduces a graph that fails to a small one that fails in the same way.
//!
//! The caller tells whether a graph fails: compiled code differs from the interpreter, the compiler panics, a command of the
//! user's succeeds. [`reduce`] tries smaller graphs and keeps each that still fails, until no step makes it smaller:
//!
//! * fewer results, and operands of the results in their place ([`structure`]);
//! * values that become inputs, so that whatever computes them is not needed; calls that are replaced by an operand;
//! * smaller sizes and simpler elements ([`values`]).
//!
//! This is delta debugging (Zeller and Hildebrandt 2002) with steps that know graphs.

mod structure;
#[cfg(test)]
mod tests;
mod values;

use super::inputs::bind::{Value, type_of};
use super::session::Session;
use crate::graph::{Graph, GraphModule, NodeId, print};
use crate::interp::{Env, Interpreter};
use crate::op::random;
use crate::types::Val;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A graph with inputs on which it fails.
#[derive(Clone, Debug)]
pub struct Failing {
    /// The module.
    pub module: GraphModule,
    /// A value for each placeholder of the entry graph.
    pub inputs: Vec<Value>,
}

/// Tells whether a graph fails on its inputs.
pub(super) type FailureTest<'a> = &'a mut dyn FnMut(&Failing) -> bool;

/// The result of [`reduce`].
#[derive(Clone, Debug)]
pub struct Reduced {
    /// The smallest graph that was found.
    pub failing: Failing,
    /// The number of graphs that were tried.
    pub attempts: usize,
}

/// Reduces a graph for which `fails` returns true. Tries at most `max_attempts` graphs.
pub fn reduce(failing: Failing, max_attempts: usize, fails: FailureTest<'_>) -> Reduced {
    let mut reducer = Reducer {
        best: failing,
        fails,
        attempts: 0,
        max_attempts,
        passed: HashSet::new(),
    };
    reducer.pin_types();
    loop {
        let before = reducer.size();
        reducer.reduce_results();
        reducer.cut_operands();
        reducer.bypass_calls();
        reducer.drop_arguments();
        reducer.shrink_sizes();
        reducer.simplify_elements();
        if reducer.size() == before || reducer.is_exhausted() {
            break;
        }
    }
    Reduced {
        failing: reducer.best,
        attempts: reducer.attempts,
    }
}

/// The search.
struct Reducer<'a> {
    /// The smallest graph that fails.
    best: Failing,
    fails: FailureTest<'a>,
    attempts: usize,
    max_attempts: usize,
    /// Hashes of graphs that do not fail. The last round of steps finds most of them again.
    passed: HashSet<u64>,
}

impl Failing {
    fn graph(&self) -> Option<&Graph> {
        self.module.entry()
    }

    /// Erases unused calls, inputs, graphs and attributes.
    fn clean(&mut self) {
        self.module.eliminate_dead_code();
        let Some(graph) = self.module.entry_mut() else { return };
        let placeholders = graph.placeholders();
        let mut inputs = std::mem::take(&mut self.inputs).into_iter();
        for p in placeholders {
            let value = inputs.next();
            if graph[p].users().len() > 0 || graph.erase_node(p).is_err() {
                self.inputs.extend(value);
            }
        }
        // The entry graph stays in its place even if it is not called `main`.
        let entry = self.module.entry_name().cloned().zip(self.module.entry().cloned());
        if let Some((name, graph)) = entry {
            self.module = self.module.lift(&name, graph);
        }
    }

    /// Gives the nodes their types for these inputs, which are part of the graph's text. False if the graph has none.
    fn infer_types(&mut self) -> bool {
        let types: Vec<_> = self.inputs.iter().map(type_of).collect();
        Session::new().check(&mut self.module, &types).is_ok()
    }

    /// A hash of the graph's text and of the inputs. The values of weights never change.
    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        print(&self.module).hash(&mut hasher);
        for t in self.inputs.iter().flat_map(|v| v.leaves()) {
            t.ty().to_string().hash(&mut hasher);
            (0..t.numel()).for_each(|i| t.get(i).bits().hash(&mut hasher));
        }
        hasher.finish()
    }

    /// The values of the entry graph's nodes, up to the node at which the interpreter fails.
    fn values(&self) -> Env {
        let mut module = self.module.clone();
        let types: Vec<_> = self.inputs.iter().map(type_of).collect();
        // The failure may be a panic, of the checks or of the interpreter.
        let checks = catch_unwind(AssertUnwindSafe(|| Session::new().check(&mut module, &types).is_ok()));
        if !matches!(checks, Ok(true)) {
            return Env::default();
        }
        random::seed(0);
        let mut interpreter = Interpreter::new(&module);
        interpreter.keep_values();
        let inputs = self.inputs.iter().map(|v| v.map(|t| t.deep_copy())).collect();
        // The values before the failure are what makes it small: they become inputs.
        let _ = catch_unwind(AssertUnwindSafe(|| interpreter.run(inputs).is_ok()));
        interpreter.env().clone()
    }
}

impl Reducer<'_> {
    fn is_exhausted(&self) -> bool {
        self.attempts >= self.max_attempts
    }

    /// The number of nodes, then of elements, and of elements that are not 0.
    fn size(&self) -> (usize, usize, usize) {
        let nodes = self.best.module.graphs.values().map(|g| g.len()).sum();
        let tensors = || self.best.inputs.iter().flat_map(|v| v.leaves());
        let elements = tensors().map(|t| t.numel()).sum();
        let set = |t: &crate::tensor::Tensor| (0..t.numel()).filter(|&i| t.get(i).to_f64() != 0.0).count();
        (nodes, elements, tensors().map(set).sum())
    }

    /// Keeps the result of `change` if it still fails. `change` returns `None` if it does not apply.
    fn attempt(&mut self, change: impl FnOnce(&mut Failing) -> Option<()>) -> bool {
        let mut smaller = self.best.clone();
        if self.is_exhausted() || change(&mut smaller).is_none() {
            return false;
        }
        smaller.clean();
        if !smaller.infer_types() {
            return false;
        }
        let hash = smaller.hash();
        if self.passed.contains(&hash) {
            return false;
        }
        self.attempts += 1;
        let fails = (self.fails)(&smaller);
        if fails {
            self.best = smaller;
        } else {
            self.passed.insert(hash);
        }
        fails
    }

    /// Declares the inputs' own types, with fixed sizes, unless the failure needs other sizes.
    fn pin_types(&mut self) {
        self.attempt(|f| {
            let types: Vec<_> = f.inputs.iter().map(type_of).collect();
            let graph = f.module.entry_mut()?;
            for (p, ty) in graph.placeholders().into_iter().zip(types) {
                if matches!(ty, Val::Leaf(_)) {
                    let meta = graph.meta_mut(p);
                    (meta.ty, meta.declared) = (Some(ty), true);
                }
            }
            Some(())
        });
    }

    /// The calls of the entry graph, in order.
    fn calls(&self) -> Vec<NodeId> {
        let Some(graph) = self.best.graph() else { return vec![] };
        graph.iter().filter(|&n| graph[n].op().is_call()).collect()
    }
}
