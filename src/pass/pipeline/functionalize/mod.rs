//! Turns writes into values.
//!
//! Values that share memory have a *root* (the value that owns the memory) and a chain of views from the root to each
//! of them. A write gives the root a new value, made by writing the new elements back through the views. A later read
//! of any value of that root applies the value's views to the root's newest value. Where torch's `reshape` copies
//! because no strides can express the result, this pass copies too.
//!
//! `alias` finds where the result of a view is located, `write` rewrites writes, `items` follows the items of tuples.
//! `strided` resolves `as_strided`, which reads the memory itself: it becomes a view of the root, in the order in which
//! torch stores the root's elements.
//!
//! The final values of inputs and buffers that were written become the leading results
//! ([`Graph::mutations`](crate::graph::Graph::mutations)).
//!
#![doc = include_str!("../../examples/functionalize.md")]

mod alias;
mod items;
#[cfg(test)]
mod sharing_tests;
mod strided;
#[cfg(test)]
mod tests;
mod write;

use super::normalize::Normalize;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, Mutation, NodeId, Opcode};
use crate::infer::{self, Resolved};
use crate::op::layout::Layout;
use crate::op::{Call, DrawOrder, Op, OpError, OpResult, Traced, running};
use crate::pass::build::{GraphBuilder, NodeOrigin};
use crate::pass::{PassContext, each_graph};
use crate::types::{TensorType, Type, Val};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    functionalize(module)
}

/// Makes every graph of the module functional. Returns the number of writes.
pub fn functionalize(module: &mut GraphModule) -> Result<usize, Diagnostic> {
    let changed = functionalize_graphs(module)?;
    check_called_graphs(module)?;
    Ok(changed)
}

/// Control flow calls graphs that compute values. As in torch, these write neither to their inputs nor to buffers: their new
/// values would be additional results.
fn check_called_graphs(module: &GraphModule) -> Result<(), Diagnostic> {
    for graph in module.graphs.values() {
        for n in graph.iter() {
            for name in graph[n].args().iter().filter_map(graph_name) {
                if module.graphs.get(name).is_some_and(|g| !g.mutations.is_empty()) {
                    let title =
                        format!("`{name}` writes to its inputs or to buffers, which is not allowed in a called graph");
                    let d = Diagnostic::new(Code::E0202, title).at_opt(graph[n].meta.span, "called here");
                    return Err(d.help("return the new value as a result, and write it in the calling graph"));
                }
            }
        }
    }
    Ok(())
}

fn graph_name(arg: &Arg) -> Option<&str> {
    match arg {
        Val::Graph(name) => Some(name),
        _ => None,
    }
}

fn functionalize_graphs(module: &mut GraphModule) -> Result<usize, Diagnostic> {
    each_graph(module, |module, graph| {
        let survey = CallSurvey::from_graph(module, graph);
        if survey.writes == 0 && !survey.draws {
            return Ok(0);
        }
        let mut pass = Functionalize {
            normalize: Normalize::new(module),
            places: HashMap::new(),
            roots: HashMap::new(),
            attributes: HashMap::new(),
            newest: HashMap::new(),
            items: HashMap::new(),
            layouts: HashMap::new(),
            is_written: survey.writes > 0,
            reordered_draws: 0,
            memory_is_read: survey.reads_memory,
        };
        for n in graph.ids() {
            if graph.is_live(n) {
                pass.visit_node(graph, n)?;
            }
        }
        pass.add_written_results(graph);
        Ok(survey.writes + pass.reordered_draws)
    })
}

/// What the calls of a graph do that concerns this pass.
#[derive(Default)]
struct CallSurvey {
    /// The number of calls that write.
    writes: usize,
    /// Whether a call draws random numbers in the memory order of its operand.
    draws: bool,
    /// Whether a call reads memory rather than elements.
    reads_memory: bool,
}

impl CallSurvey {
    fn from_graph(module: &GraphModule, graph: &Graph) -> CallSurvey {
        let mut survey = CallSurvey::default();
        let calls = graph.ids().into_iter().filter(|&n| graph[n].op().is_call());
        for r in calls.filter_map(|n| infer::resolve_node(module, graph, n).ok()) {
            let reads_memory = strided::reads_storage(&r);
            let writes = r.is_inplace() || !r.out.is_empty() || updates_statistics(&r) || reads_memory;
            survey.writes += usize::from(writes);
            survey.draws |= r.op().is_some_and(draws_as_operand_lies);
            survey.reads_memory |= reads_memory;
        }
        survey
    }
}

/// Whether calls of the op draw random numbers in the memory order of their operand, no matter where the result is
/// stored.
fn draws_as_operand_lies(op: &Op) -> bool {
    op.facts.draws == DrawOrder::OfOperand
}

/// One view of a chain.
#[derive(Clone, Debug)]
struct ViewStep {
    op: &'static Op,
    /// One argument per parameter. The first is replaced by the value that is viewed.
    args: Vec<Arg>,
    ty: Type,
}

/// The location of a value within its root.
#[derive(Clone, Debug)]
struct ViewPlace {
    root: NodeId,
    steps: Vec<ViewStep>,
    /// The version of the root that the value shows.
    version: u64,
    /// The memory layout that torch gives the value, if known.
    layout: Option<Layout>,
}

struct Root {
    value: NodeId,
    version: u64,
}

struct Functionalize<'m> {
    normalize: Normalize<'m>,
    places: HashMap<NodeId, ViewPlace>,
    roots: HashMap<NodeId, Root>,
    /// The first `get_attr` of each attribute: all of them share its memory.
    attributes: HashMap<Arc<str>, NodeId>,
    /// The node that replaces a node from here on: its value after a write, or a view that an in-place call made of it.
    newest: HashMap<NodeId, NodeId>,
    /// For each tuple or list, the first node that takes the item at an index.
    items: HashMap<NodeId, Vec<(i64, NodeId)>>,
    /// The memory layout that torch gives to values that own their memory, unless it is row-major; `None` if unknown.
    layouts: HashMap<NodeId, Option<Layout>>,
    /// Whether the graph writes at all. A graph without writes may still draw.
    is_written: bool,
    /// How many draws were rewritten to follow the memory order.
    reordered_draws: usize,
    /// Whether a call reads memory rather than elements.
    memory_is_read: bool,
}

impl Functionalize<'_> {
    fn visit_node(&mut self, graph: &mut Graph, n: NodeId) -> Result<(), Diagnostic> {
        self.refresh_inputs(graph, n)?;
        if self.replace_known_item(graph, n) {
            return Ok(());
        }
        match graph[n].op() {
            Opcode::Placeholder | Opcode::Output => return Ok(()),
            Opcode::GetAttr => {
                self.visit_attribute(graph, n);
                return Ok(());
            }
            _ => {}
        }
        let resolved = infer::resolve_node(self.normalize.module(), graph, n)?;
        let Some(op) = resolved.op() else { return Ok(()) };
        self.note_layout(graph, n, &resolved);
        match resolved.written() {
            Some(_) if matches!(graph[n].meta.ty, Some(Val::List(_) | Val::Tuple(_))) && !resolved.out.is_empty() => {
                self.write_several(graph, n, op, &resolved)
            }
            Some(target) => self.rewrite_write(graph, n, op, &resolved, &target),
            None if strided::reads_storage(&resolved) => self.rewrite_strided(graph, n, op, &resolved),
            None if self.memory_is_read && op.facts.scatter_to.is_some() => {
                self.scatter_in_memory(graph, n, op, &resolved)
            }
            None if updates_statistics(&resolved) => self.rewrite_statistics(graph, n, op, &resolved),
            None if draws_as_operand_lies(op) => self.rewrite_draw(graph, n, op, &resolved),
            None => self.rewrite_shared(graph, n, op, &resolved),
        }
        .map_err(|e| match e {
            FunctionalizeError::Op(e) => {
                let ty = |i: NodeId| graph[i].meta.ty.clone().unwrap_or(Val::Unknown);
                infer::op_error(graph, n, &resolved, e, &ty)
            }
            FunctionalizeError::Diagnostic(d) => *d,
        })
    }

    /// Gives a node that reads an attribute the place of the first one that does.
    fn visit_attribute(&mut self, graph: &Graph, n: NodeId) {
        let root = *self.attributes.entry(graph[n].target().into()).or_insert(n);
        if root != n {
            let place = self.place_of(graph, root);
            self.places.insert(n, ViewPlace { version: 0, ..place });
        }
    }

    /// Updates the node's arguments so that they show every write so far.
    fn refresh_inputs(&mut self, graph: &mut Graph, n: NodeId) -> Result<(), Diagnostic> {
        self.spread_written(graph, n);
        for i in graph[n].inputs() {
            let now = self.refresh(graph, i, n).map_err(|e| {
                Diagnostic::new(e.code, e.title).at_opt(graph[n].meta.span, "reads a value that was overwritten")
            })?;
            if now != i {
                graph.replace_input_with(n, i, now);
            }
        }
        Ok(())
    }

    /// The node that has the current value of `i`, inserted before `user` if necessary.
    fn refresh(&mut self, graph: &mut Graph, i: NodeId, user: NodeId) -> OpResult<NodeId> {
        let mut current = i;
        while let Some(&next) = self.newest.get(&current) {
            current = next;
        }
        let Some(place) = self.places.get(&current).cloned() else {
            return Ok(current);
        };
        let root = &self.roots[&place.root];
        if root.version == place.version {
            return Ok(current);
        }
        let (mut value, version) = (root.value, root.version);
        written_at(graph, current, InsertPoint::Before(user), |b| {
            for step in &place.steps {
                let call = traced_step(b, step, value);
                value = b.node(&call, step.ty.clone());
            }
        });
        self.places.insert(value, ViewPlace { version, ..place });
        if value != current {
            self.newest.insert(current, value);
        }
        Ok(value)
    }

    /// The location of a value. A value that is not a view is its own root.
    fn place_of(&mut self, graph: &Graph, n: NodeId) -> ViewPlace {
        if let Some(p) = self.places.get(&n) {
            return p.clone();
        }
        self.roots.insert(n, Root { value: n, version: 0 });
        let place = ViewPlace {
            root: n,
            steps: vec![],
            version: 0,
            layout: self.root_layout(graph, n),
        };
        self.places.insert(n, place.clone());
        place
    }

    /// Adds the final values of inputs and buffers that were written to the results.
    fn add_written_results(&mut self, graph: &mut Graph) {
        let Some(output) = graph.output() else { return };
        let (mut values, mut mutations) = (vec![], vec![]);
        for n in graph.ids() {
            let Some(root) = self.roots.get(&n).filter(|r| r.version > 0) else {
                continue;
            };
            let name: Arc<str> = graph[n].target().into();
            mutations.push(match graph[n].op() {
                Opcode::Placeholder => Mutation::Input(graph[n].name().into()),
                Opcode::GetAttr => Mutation::Buffer(name),
                _ => continue,
            });
            values.push(Val::Leaf(root.value));
        }
        if values.is_empty() {
            return;
        }
        let old = graph[output].args().first().cloned().unwrap_or(Val::None);
        let old = match old {
            Val::Tuple(v) => v,
            v => vec![v],
        };
        let known = graph.mutations.len().min(old.len());
        let (lead, rest) = old.split_at(known);
        let all = Val::Tuple([lead, &values, rest].concat());
        let ty: Result<Type, Infallible> =
            all.try_map(&mut |&n: &NodeId| Ok(graph[n].meta.ty.clone().unwrap_or(Val::Unknown)));
        graph.meta_mut(output).ty = ty.ok();
        graph.set_args(output, vec![all]);
        graph.mutations.extend(mutations);
    }
}

/// An error with or without a source location.
enum FunctionalizeError {
    Op(OpError),
    Diagnostic(Box<Diagnostic>),
}

impl From<OpError> for FunctionalizeError {
    fn from(e: OpError) -> FunctionalizeError {
        FunctionalizeError::Op(e)
    }
}

impl From<Diagnostic> for FunctionalizeError {
    fn from(d: Diagnostic) -> FunctionalizeError {
        FunctionalizeError::Diagnostic(Box::new(d))
    }
}

fn traced_step(b: &GraphBuilder<'_>, step: &ViewStep, base: NodeId) -> Call<Traced> {
    let mut args: Vec<Val<Traced>> = step.args.iter().map(|a| b.trace(a)).collect();
    args[0] = b.trace(&Val::Leaf(base));
    Call { op: step.op, args }
}

fn node_of(t: &Traced) -> NodeId {
    NodeId::from_u32(t.id)
}

fn tensor_type(graph: &Graph, n: NodeId) -> Option<TensorType> {
    graph[n].meta.ty.as_ref()?.as_leaf().cloned()
}

fn point_after(graph: &Graph, n: NodeId) -> InsertPoint {
    graph.next(n).map_or(InsertPoint::End, InsertPoint::Before)
}

/// Returns the result of `f`, which builds nodes at `point` with the origin `origin`.
fn written_at<R>(
    graph: &mut Graph,
    origin: NodeId,
    point: InsertPoint,
    f: impl FnOnce(&mut GraphBuilder<'_>) -> R,
) -> R {
    let source = NodeOrigin::from_node(graph, origin, "functionalize");
    let before = graph.insert_point();
    graph.set_insert_point(point);
    let r = f(&mut GraphBuilder::new(graph, source, |_| true));
    graph.set_insert_point(before);
    r
}

/// Whether the call is a batch normalisation in training that has running statistics.
fn updates_statistics(resolved: &Resolved) -> bool {
    resolved.types().is_some_and(|c| running::functional_form(&c).is_some())
}
