//! Finds the cause of a wrong result: the first pass after which the interpreter's result differs, or the first node
//! that compiled code computes differently.

use super::compare::{Difference, Tolerance, compare};
use crate::diag::Diagnostic;
use crate::driver::inputs::bind::BoundInputs;
use crate::driver::interpret::{UntilCancelled, interpret};
use crate::driver::run::{executable_inputs, named_results, user_result};
use crate::driver::session::{Reported, Session, Staged};
use crate::graph::{self, Graph, GraphModule, NodeId};
use crate::interp::{self, Hooked, Hooks, RunningNode, RuntimeValue};
use crate::op::random;
use crate::pass::{self, Pass, PassOptions};
use crate::tensor::Tensor;
use crate::types::Val;
use std::collections::HashMap;

/// The cause of a wrong result.
#[derive(Clone, Debug)]
pub struct Blame {
    /// The pass or node.
    pub name: String,
    /// The result or node whose value differs.
    pub value: String,
    /// The difference.
    pub difference: Difference,
}

/// Runs `passes` one by one over a checked module, and the interpreter after each. Returns `None` if no result changes.
pub fn find_bad_pass(
    session: &mut Session,
    mut module: GraphModule,
    passes: &[&'static Pass],
    options: &PassOptions,
    bound: &BoundInputs,
    tolerance: Tolerance,
) -> Staged<Option<Blame>> {
    let want = interpreted_results(session, &module, bound)?;
    for p in passes {
        session.check_cancelled()?;
        if let Err(findings) = pass::run_pass(p, &mut module, options) {
            session.diagnostics.extend(findings);
            return Err(Reported);
        }
        let results = interpreted_results(session, &module, bound)?;
        for ((name, w), (_, g)) in want.iter().zip(&results) {
            let difference = compare(g, w, tolerance);
            if !difference.agrees() {
                return Ok(Some(Blame {
                    name: p.name.to_string(),
                    value: name.clone(),
                    difference,
                }));
            }
        }
    }
    Ok(None)
}

fn interpreted_results(
    session: &mut Session,
    module: &GraphModule,
    bound: &BoundInputs,
) -> Staged<Vec<(String, Tensor)>> {
    // Make every run draw the same random numbers.
    random::seed(0);
    let result = interpret(session, module, bound.values.clone())?;
    Ok(match module.entry() {
        Some(g) => named_results(&user_result(g, result)),
        None => vec![],
    })
}

fn report_error(session: &mut Session, d: Diagnostic) -> Reported {
    session.report(d);
    Reported
}

/// Records the value of every node of the entry graph.
struct NodeValues {
    tensors: HashMap<NodeId, Tensor>,
    depth_of: Option<usize>,
    cancel: UntilCancelled,
}

impl Hooks for NodeValues {
    fn run_node(&mut self, _node: RunningNode<'_>) -> Hooked {
        self.cancel.check()
    }

    fn after_node(&mut self, graph: &Graph, node: NodeId, result: &RuntimeValue) -> Result<(), Diagnostic> {
        // Passes have inlined every call, so only the entry graph runs.
        let bound = *self.depth_of.get_or_insert(graph.id_bound());
        if let Val::Leaf(t) = result
            && graph.id_bound() == bound
        {
            self.tensors.insert(node, t.clone());
        }
        Ok(())
    }
}

/// The result of [`find_bad_node`].
#[derive(Clone, Debug)]
pub enum BisectOutcome {
    /// The compiled results equal the interpreter's.
    Agree {
        /// The number of nodes that were compiled as results.
        nodes: usize,
    },
    /// The first node that compiled code computes differently, with the graph up to it compiled.
    Differ(Blame),
}

/// Compiles the optimised graph up to one node at a time and compares the node's value with the interpreter's, by
/// bisection where results differ. With `every`, checks all nodes, which also finds a difference that later nodes hide.
pub fn find_bad_node(
    session: &mut Session,
    module: &GraphModule,
    bound: &BoundInputs,
    tolerance: Tolerance,
    every: bool,
) -> Staged<BisectOutcome> {
    let mut values = NodeValues {
        tensors: HashMap::new(),
        depth_of: None,
        cancel: UntilCancelled(session.cancel.clone()),
    };
    random::seed(0);
    let run = interp::Interpreter::new(module).run_with(bound.values.clone(), &mut values);
    run.map_err(|d| report_error(session, d))?;
    let Some(graph) = module.entry() else {
        return Err(Reported);
    };
    let candidates: Vec<NodeId> = graph
        .iter()
        .filter(|n| graph[*n].op().is_call() && values.tensors.contains_key(n))
        .collect();
    let count = candidates.len();
    let mut blame = |i: usize| blame_node(session, module, candidates[i], &values.tensors, bound, tolerance);
    if !every {
        return bisect_nodes(count, blame);
    }
    for i in 0..count {
        if let Some(blame) = blame(i)? {
            return Ok(BisectOutcome::Differ(blame));
        }
    }
    Ok(BisectOutcome::Agree { nodes: count })
}

/// Finds the first of `count` nodes that differs. A difference propagates to what is computed from it, so if the last
/// node agrees, all do.
fn bisect_nodes(count: usize, mut blame: impl FnMut(usize) -> Staged<Option<Blame>>) -> Staged<BisectOutcome> {
    let Some(mut hi) = count.checked_sub(1) else {
        return Ok(BisectOutcome::Agree { nodes: 0 });
    };
    let Some(mut culprit) = blame(hi)? else {
        return Ok(BisectOutcome::Agree { nodes: 1 });
    };
    let mut lo = 0;
    while lo < hi {
        let middle = lo + (hi - lo) / 2;
        match blame(middle)? {
            Some(b) => {
                culprit = b;
                hi = middle;
            }
            None => lo = middle + 1,
        }
    }
    Ok(BisectOutcome::Differ(culprit))
}

/// Makes node `n` the only result of the graph, and erases the calls that it does not need.
fn keep_only_result(graph: &mut Graph, n: NodeId) {
    if let Some(out) = graph.output() {
        graph.set_args(out, vec![Val::Leaf(n)]);
    }
    graph.mutations.clear();
    for m in graph.ids().into_iter().rev() {
        let draws = graph.is_before(m, n) && graph::is_impure(graph, m, None);
        if graph[m].op().is_call() && graph[m].users().len() == 0 && !draws {
            // It came after the node, so it has no users left.
            let _ = graph.erase_node(m);
        }
    }
}

/// Compares node `n` with the interpreter, compiling only what `n` needs.
fn blame_node(
    session: &mut Session,
    module: &GraphModule,
    n: NodeId,
    want: &HashMap<NodeId, Tensor>,
    bound: &BoundInputs,
    tolerance: Tolerance,
) -> Staged<Option<Blame>> {
    let mut module = module.clone();
    keep_only_result(module.entry_mut().ok_or(Reported)?, n);
    let program = session.lower(&module, &bound.dims)?;
    let mut executable = session.compile(program, 1, false)?;
    let Some(graph) = module.entry() else {
        return Err(Reported);
    };
    let inputs = executable_inputs(&executable, graph, bound).map_err(|d| report_error(session, d))?;
    random::seed(0);
    let result = executable.run(&inputs).map_err(|d| report_error(session, *d))?;
    let (Some(actual), Some(want)) = (result.as_leaf(), want.get(&n)) else {
        return Ok(None);
    };
    let difference = compare(actual, want, tolerance);
    let name = graph[n].name().to_string();
    Ok((!difference.agrees()).then(|| Blame {
        value: graph[n].target().to_string(),
        name,
        difference,
    }))
}
