//! Compiles the part of a graph before sizes that depend on values, and interprets what cannot be compiled of the rest.
//!
//! ```text
//! x ──▶ backbone ──▶ scores ──▶ nonzero ──▶ rows ──▶ linear ──▶ result
//!       └─── compiled ───┘     interpreted  └── compiled by call ──┘
//! ```
//!
//! `nonzero`, `unique`, `masked_select`, `item` and the like return tensors whose sizes (or numbers that are sizes) are
//! only known after they have run. Such nodes and all that depend on them form the tail of the graph ([`tail`]). It is divided into
//! regions ([`plan`]), whose code is compiled in the first call with their sizes ([`region`]).

mod kinds;
mod plan;
mod region;
mod tail;

pub(super) use self::plan::RegionPlan;
use self::region::Region;
pub(super) use self::tail::InterpretedTail;
use super::compile::Request;
use super::inputs::bind::{BoundInputs, Value};
use super::run::executable_inputs;
use super::session::{Session, thread_count};
use crate::diag::Diagnostic;
use crate::graph::{GraphModule, NodeId};
use crate::interp::{Hooked, Hooks, Interpreter, RunningNode};
use crate::parallel::Pool;
use crate::runtime::{Executable, cancelled};
use crate::types::Val;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A graph split into a compiled head and a tail.
pub(super) struct SplitExecutable {
    /// The number of operations in the tail.
    operations: usize,
    /// The compiled part, unless it is empty, and the nodes whose values are its results.
    head: Option<(Executable, Vec<NodeId>)>,
    /// The nodes that the head computes.
    computed: HashSet<NodeId>,
    /// The tail's regions, if it has some. The nodes above are those of their module.
    regions: Option<Regions>,
    /// The session that compiles regions. It cancels calls, between two nodes.
    session: Session,
    /// The threads of what is interpreted: nodes are few, but their tensors may be large.
    pool: Arc<Pool>,
}

/// The regions of a tail.
struct Regions {
    /// The module whose entry graph calls them.
    module: GraphModule,
    /// The number of operations in regions.
    operations: usize,
    calls: RegionCalls,
}

/// The regions by the node that calls them, and how they are compiled.
struct RegionCalls {
    regions: HashMap<NodeId, Region>,
    request: Request,
}

impl Regions {
    fn new(plan: RegionPlan, request: Request) -> Regions {
        let module = plan.module;
        let count = plan.regions.len();
        let regions = plan.regions.into_iter();
        let regions = regions.map(|(n, r)| (n, Region::new(&module, r, count))).collect();
        Regions {
            module,
            operations: plan.operations,
            calls: RegionCalls { regions, request },
        }
    }
}

/// Hooks that provide the values that the head computed and run regions, so that the interpreter computes only the other nodes, until
/// the call is cancelled.
struct Compiled<'a> {
    values: HashMap<NodeId, Value>,
    skip: &'a HashSet<NodeId>,
    calls: Option<&'a mut RegionCalls>,
    session: &'a mut Session,
}

impl Hooks for Compiled<'_> {
    fn run_node(&mut self, node: RunningNode<'_>) -> Hooked {
        if self.session.cancel.is_cancelled() {
            return Err(cancelled());
        }
        // The nodes of graphs that the entry calls may have the same ids as its own.
        if !node.module.entry().is_some_and(|entry| std::ptr::eq(entry, node.graph)) {
            return Ok(None);
        }
        if let Some(v) = self.values.get(&node.id) {
            return Ok(Some(v.clone()));
        }
        if let Some(calls) = &mut self.calls
            && let Some(region) = calls.regions.get_mut(&node.id)
        {
            return Ok(region.run(self.session, &calls.request, node.args));
        }
        Ok(self.skip.contains(&node.id).then_some(Val::None))
    }
}

impl SplitExecutable {
    /// The tail of `module`, its regions, and the head that was compiled from the same graph.
    pub(super) fn new(
        module: &GraphModule,
        (tail, plan): (InterpretedTail, Option<RegionPlan>),
        head: Option<(Executable, Vec<NodeId>)>,
        (session, request): (&Session, &Request),
    ) -> SplitExecutable {
        let mut computed = match (&head, module.entry()) {
            (Some(_), Some(graph)) => tail.nodes_before(graph),
            _ => HashSet::new(),
        };
        let mut head = head;
        if let Some(plan) = &plan {
            let new = |n: &NodeId| plan.nodes.get(n).copied().unwrap_or(*n);
            computed = computed.iter().map(new).collect();
            head = head.map(|(e, boundary)| (e, boundary.iter().map(new).collect()));
        }
        SplitExecutable {
            operations: tail.len(),
            head,
            computed,
            regions: plan.map(|plan| Regions::new(plan, request.clone())),
            session: session.for_regions(),
            pool: Pool::shared(thread_count(request.threads)),
        }
    }

    /// The compiled part.
    pub(super) fn executable(&self) -> Option<&Executable> {
        self.head.as_ref().map(|h| &h.0)
    }

    /// The compiled part.
    pub(super) fn executable_mut(&mut self) -> Option<&mut Executable> {
        self.head.as_mut().map(|h| &mut h.0)
    }

    /// The number of operations that are not compiled.
    pub(super) fn interpreted_count(&self) -> usize {
        self.operations - self.regions.as_ref().map_or(0, |r| r.operations)
    }

    /// Runs the module's entry graph: the head and the regions as compiled code, the rest in an interpreter. `set_state` gives it the
    /// module's buffers.
    pub(super) fn run(
        &mut self,
        module: &GraphModule,
        bound: &BoundInputs,
        set_state: impl FnOnce(&mut Interpreter<'_>),
    ) -> Result<Value, Diagnostic> {
        let values = self.run_head(module, bound)?;
        let (module, calls) = match &mut self.regions {
            Some(r) => (&r.module, Some(&mut r.calls)),
            None => (module, None),
        };
        let mut compiled = Compiled {
            skip: &self.computed,
            values,
            calls,
            session: &mut self.session,
        };
        let mut interpreter = Interpreter::new(module);
        set_state(&mut interpreter);
        self.pool
            .lend(|| interpreter.run_with(bound.values.clone(), &mut compiled))
    }

    /// The results of the head, by node of the split graph.
    fn run_head(&mut self, module: &GraphModule, bound: &BoundInputs) -> Result<HashMap<NodeId, Value>, Diagnostic> {
        let (Some((executable, boundary)), Some(graph)) = (&mut self.head, module.entry()) else {
            return Ok(HashMap::new());
        };
        let inputs = executable_inputs(executable, graph, bound)?;
        let values = executable.run(&inputs).map_err(|d| *d)?;
        let values = values.items().map(<[Value]>::to_vec).unwrap_or_default();
        Ok(boundary.iter().copied().zip(values).collect())
    }
}

#[cfg(test)]
mod tests;
