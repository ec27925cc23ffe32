//! Divides a tail into regions that can be compiled, and nodes that only the interpreter can run.
//!
//! ```text
//! scores ──▶ nonzero ──▶ gather ─▶ linear ─▶ index_add ──▶ attention ─▶ linear ──▶ result
//!            └ alone ┘   └─ sizes known at run time ─┘     └──── known types ────┘
//! ```
//!
//! Only few nodes have results whose sizes depend on the values of their operands. What follows them has known sizes as soon as they
//! have run, so it is compiled for the sizes that occur; and results like those of `index_add` have known types again.
//!
//! A node's stage is the number of times that a path to it enters another region. So regions of one stage do not depend on each
//! other, and a region needs only results of lower stages.

use super::kinds::{Kind, NodeKinds};
use crate::graph::transform::extract;
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, NodeId};
use crate::types::{Type, Val};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The fewest calls in a region that is not heavy. The interpreter runs smaller ones in less time than a compiled call takes.
const FEWEST_CALLS: usize = 4;

/// A module whose entry graph calls a graph for each region of the tail.
pub(in crate::driver) struct RegionPlan {
    pub module: GraphModule,
    /// The node of the new entry graph for each node of the old one that is in no region.
    pub nodes: HashMap<NodeId, NodeId>,
    /// The calls of regions, by node of the new entry graph.
    pub(super) regions: Vec<(NodeId, RegionGraph)>,
    /// The number of calls that the regions contain.
    pub operations: usize,
}

/// A region as a graph of its own.
pub(super) struct RegionGraph {
    pub name: Arc<str>,
    pub graph: Graph,
    /// The types of its inputs, as far as they are known before the call.
    pub inputs: Vec<Type>,
    /// Whether it multiplies matrices, convolves, or has compositions of several ops, which takes the interpreter long.
    pub is_heavy: bool,
}

/// Nodes that run together, in the order of the graph: a region, or a node that is in none.
struct RunStep {
    nodes: Vec<NodeId>,
    stage: usize,
}

impl RegionPlan {
    /// Divides the tail of a module's entry graph. `None` if no region is worth compiling, or if the graph writes to operands, so
    /// that the order of its nodes matters.
    pub(super) fn new(module: &GraphModule, tail: &HashSet<NodeId>) -> Option<RegionPlan> {
        let graph = module.entry()?;
        let kinds = NodeKinds::find(module, graph, tail)?;
        let regions: Vec<RunStep> = find_regions(graph, &kinds)
            .into_iter()
            .filter(|r| kinds.is_heavy(&r.nodes) || r.nodes.len() >= FEWEST_CALLS)
            .collect();
        if regions.is_empty() {
            return None;
        }
        PlanBuilder::new(module, graph, &kinds).build(regions)
    }
}

/// The regions: nodes of known types of one stage, and connected nodes of one stage whose sizes are known at run time.
fn find_regions(graph: &Graph, kinds: &NodeKinds) -> Vec<RunStep> {
    let mut regions: BTreeMap<(usize, bool, usize), Vec<NodeId>> = BTreeMap::new();
    let groups = kinds.groups(graph);
    for &n in &kinds.tail {
        let key = match kinds.kind(n) {
            Kind::Alone => continue,
            Kind::Known => (kinds.stage(n), false, 0),
            Kind::Sized => (kinds.stage(n), true, groups[&n]),
        };
        regions.entry(key).or_default().push(n);
    }
    let regions = regions.into_iter();
    regions.map(|((stage, ..), nodes)| RunStep { nodes, stage }).collect()
}

/// Builds the graph that calls the regions.
struct PlanBuilder<'a> {
    module: &'a GraphModule,
    old: &'a Graph,
    kinds: &'a NodeKinds,
    new: Graph,
    /// The values of the old graph's nodes in the new one.
    values: HashMap<NodeId, Arg>,
    plan: RegionPlan,
}

impl<'a> PlanBuilder<'a> {
    fn new(module: &'a GraphModule, old: &'a Graph, kinds: &'a NodeKinds) -> PlanBuilder<'a> {
        PlanBuilder {
            module,
            old,
            kinds,
            new: Graph::new(),
            values: HashMap::new(),
            plan: RegionPlan {
                module: module.clone(),
                nodes: HashMap::new(),
                regions: vec![],
                operations: 0,
            },
        }
    }

    fn build(mut self, regions: Vec<RunStep>) -> Option<RegionPlan> {
        let output = self.old.output()?;
        let in_tail: HashSet<NodeId> = self.kinds.tail.iter().copied().collect();
        for n in self.old.iter().filter(|n| !in_tail.contains(n) && *n != output) {
            self.copy(n)?;
        }
        let in_region: HashSet<NodeId> = regions.iter().flat_map(|r| r.nodes.iter().copied()).collect();
        // Steps of one stage do not depend on each other.
        let alone = self.kinds.tail.iter().filter(|n| !in_region.contains(n));
        let alone = alone.map(|&n| RunStep {
            nodes: vec![n],
            stage: self.kinds.stage(n),
        });
        let mut steps: Vec<(usize, RunStep)> = alone.chain(regions).enumerate().collect();
        steps.sort_by_key(|(order, r)| (r.stage, *order));
        for (_, step) in steps {
            match step.nodes[..] {
                [n] if !in_region.contains(&n) => self.copy(n)?,
                _ => self.call_region(&step.nodes)?,
            }
        }
        self.copy(output)?;
        self.new.mutations = self.old.mutations.clone();
        let entry = self.module.entry_name()?.clone();
        *self.plan.module.graphs.get_mut(&entry)? = self.new;
        Some(self.plan)
    }

    /// Copies a node that is in no region.
    fn copy(&mut self, n: NodeId) -> Option<()> {
        let values = &self.values;
        if self.old[n].inputs().iter().any(|i| !values.contains_key(i)) {
            return None;
        }
        let copied = self.new.node_copy(self.old, n, |i| values[&i].clone());
        self.plan.nodes.insert(n, copied);
        self.values.insert(n, Val::Leaf(copied));
        Some(())
    }

    /// Adds a call of a region, and its results.
    fn call_region(&mut self, nodes: &[NodeId]) -> Option<()> {
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let outputs: Vec<NodeId> = nodes
            .iter()
            .copied()
            .filter(|&n| self.old[n].users().any(|u| !inside.contains(&u)))
            .collect();
        let inputs = self.inputs(nodes, &inside);
        let region = self.region_graph(nodes, &inputs, &outputs)?;
        let args: Option<Vec<Arg>> = inputs.iter().map(|i| self.values.get(i).cloned()).collect();
        let call = self.new.call_function(&region.name, args?, vec![]);
        match outputs[..] {
            [single] => drop(self.values.insert(single, Val::Leaf(call))),
            _ => {
                for (i, &o) in outputs.iter().enumerate() {
                    let item = self
                        .new
                        .call_function("getitem", vec![Val::Leaf(call), Val::int(i as i64)], vec![]);
                    self.values.insert(o, Val::Leaf(item));
                }
            }
        }
        self.plan.operations += nodes.len();
        self.plan
            .module
            .graphs
            .insert(region.name.clone(), region.graph.clone());
        self.plan.regions.push((call, region));
        Some(())
    }

    /// The values that a region takes: all from outside but constants of the module.
    fn inputs(&self, nodes: &[NodeId], inside: &HashSet<NodeId>) -> Vec<NodeId> {
        let mut inputs: Vec<NodeId> = vec![];
        let mut seen = BTreeSet::new();
        for &n in nodes {
            for i in self.old[n].inputs() {
                if !inside.contains(&i) && !self.kinds.is_constant(self.old, i) && seen.insert(i) {
                    inputs.push(i);
                }
            }
        }
        inputs
    }

    fn region_graph(&self, nodes: &[NodeId], inputs: &[NodeId], outputs: &[NodeId]) -> Option<RegionGraph> {
        let mut graph = extract(self.old, inputs, outputs).ok()?;
        let placeholders = graph.placeholders();
        // The sizes are those of a call.
        for &p in &placeholders {
            let meta = graph.meta_mut(p);
            (meta.ty, meta.declared) = (None, false);
        }
        graph.set_insert_point(InsertPoint::End);
        let name = (0..)
            .map(|i| format!("region_{i}"))
            .find(|name| !self.plan.module.graphs.contains_key(name.as_str()))?;
        let type_of = |&i: &NodeId| self.old[i].meta.ty.clone().unwrap_or(Val::Unknown);
        Some(RegionGraph {
            name: name.into(),
            graph,
            inputs: inputs.iter().map(type_of).collect(),
            is_heavy: self.kinds.is_heavy(nodes),
        })
    }
}
