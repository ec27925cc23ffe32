//! Replaces a match of a rule.
//!
//! [`plan_replacement`] does everything that can fail without changing the graph: it determines where the new nodes go
//! and the values of the replacement's holes. [`apply_plan`] creates the nodes. New nodes get the location in the
//! user's Python of the nodes they replace, and their provenance names those nodes and the rule.

mod plan;

pub(super) use plan::{ReplacementPlan, plan_replacement};

use super::Rule;
use super::pattern::{Hole, Pattern};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, NodeId, Opcode};
use crate::infer::{self, Operand};
use crate::types::{DType, Dim, Type, Val};
use indexmap::IndexSet;
use std::collections::HashMap;
use std::sync::Arc;

/// The effects of applying a rule to the graph.
pub(super) struct Applied {
    /// The nodes of the replacement.
    pub made: Vec<NodeId>,
    /// The new nodes, and the nodes whose arguments changed.
    pub changed: Vec<NodeId>,
}

/// Creates the replacement.
pub(super) fn apply_plan(
    module: &GraphModule,
    graph: &mut Graph,
    rule: &Rule,
    plan: ReplacementPlan,
    keep_types: bool,
) -> Result<Applied, Diagnostic> {
    let before = graph.insert_point();
    graph.set_insert_point(plan.before.map_or(InsertPoint::End, InsertPoint::Before));
    let mut writer = ReplacementWriter {
        module,
        graph,
        rule,
        source: plan.outputs[0],
        matched: &plan.matched,
        made: vec![],
        before: plan.before,
    };
    let results = writer.write_replacement(&plan.holes).and_then(|r| match keep_types {
        true => writer.check_types(&plan.outputs, &r).map(|()| r),
        false => Ok(r),
    });
    let created = std::mem::take(&mut writer.made);
    graph.set_insert_point(before);
    if results.is_err() {
        // The new nodes are used only by each other.
        created.iter().rev().for_each(|&n| drop(graph.erase_node(n)));
    }
    let results = results?;
    let mut changed = created.clone();
    for (&old, new) in plan.outputs.iter().zip(&results) {
        let users: Vec<NodeId> = graph[old].users().filter(|u| !created.contains(u)).collect();
        for u in users {
            graph.map_args(u, |n| if n == old { new.clone() } else { Val::Leaf(n) });
            changed.push(u);
        }
    }
    erase(graph, &plan.matched);
    Ok(Applied { made: created, changed })
}

/// Erases matched nodes that have become unused, and attributes that only they read.
fn erase(graph: &mut Graph, matched: &[NodeId]) {
    let mut matched: Vec<NodeId> = matched.to_vec();
    matched.sort_unstable();
    matched.dedup();
    let mut attributes = vec![];
    loop {
        let before = matched.len();
        matched.retain(|&n| {
            if graph[n].users().len() > 0 {
                return true;
            }
            let inputs = graph[n].inputs();
            attributes.extend(inputs.into_iter().filter(|&i| graph[i].op() == Opcode::GetAttr));
            graph.erase_node(n).is_err()
        });
        if matched.len() == before || matched.is_empty() {
            break;
        }
    }
    for a in attributes {
        if graph.is_live(a) && graph[a].users().len() == 0 {
            // It has become unused, so erasing it cannot fail.
            let _ = graph.erase_node(a);
        }
    }
}

/// Creates the nodes of one replacement.
struct ReplacementWriter<'a> {
    module: &'a GraphModule,
    graph: &'a mut Graph,
    rule: &'a Rule,
    /// The node whose location the new nodes get.
    source: NodeId,
    matched: &'a [NodeId],
    made: Vec<NodeId>,
    before: Option<NodeId>,
}

impl ReplacementWriter<'_> {
    /// Creates the nodes and returns the replacement's results.
    fn write_replacement(&mut self, holes: &HashMap<NodeId, Val<Operand>>) -> Result<Vec<Arg>, Diagnostic> {
        let rule = self.rule;
        let p = &rule.replacement;
        let mut map: HashMap<NodeId, Arg> = HashMap::new();
        for (n, _) in p.holes() {
            if let Some(v) = holes.get(&n) {
                let arg = v.try_map(&mut |o| Ok::<_, Diagnostic>(Val::Leaf(self.operand_node(o))))?;
                map.insert(n, arg);
            }
        }
        let calls: Vec<NodeId> = p.calls().collect();
        for n in calls {
            let node = &p.graph[n];
            let args = node.args().iter().map(|a| substitute(p, a, &map)).collect();
            let kwargs = node
                .kwargs()
                .iter()
                .map(|(k, v)| (k.clone(), substitute(p, v, &map)))
                .collect();
            let new = self
                .graph
                .create_node(node.op(), node.target(), args, kwargs, Some(node.name()));
            self.mark_provenance(new);
            let ty = infer::infer_node(self.module, self.graph, new).map_err(|d| self.misfit_error(d))?;
            let meta = self.graph.meta_mut(new);
            meta.ty = (ty != Val::Unknown).then_some(ty);
            map.insert(n, Val::Leaf(new));
        }
        Ok(p.outputs.iter().map(|a| substitute(p, a, &map)).collect())
    }

    /// The node for a bound value. A module's attributes and the items of lists get nodes that read them.
    fn operand_node(&mut self, o: &Operand) -> NodeId {
        match o {
            Operand::Node(n) => *n,
            Operand::Attr(path) => {
                let known = self.graph.find_nodes(Opcode::GetAttr, Some(path));
                let before = self.before;
                let early = |g: &Graph, n: NodeId| before.is_none_or(|b| g.is_before(n, b));
                if let Some(n) = known.into_iter().find(|&n| early(self.graph, n)) {
                    return n;
                }
                let n = self.graph.get_attr(path);
                self.mark_provenance(n);
                self.graph.meta_mut(n).ty = Some(infer::attribute_type(self.module, path));
                n
            }
            Operand::Item(n, path) => {
                let mut item = *n;
                for (depth, &i) in path.iter().enumerate() {
                    let ty = infer::operand_type(self.module, self.graph, &Operand::Item(*n, path[..=depth].to_vec()));
                    let args = vec![Val::Leaf(item), Val::int(i as i64)];
                    item = self.graph.call_function("operator.getitem", args, vec![]);
                    self.mark_provenance(item);
                    self.graph.meta_mut(item).ty = Some(ty);
                }
                item
            }
        }
    }

    /// Sets the location and provenance of a new node to those of the nodes it replaces.
    fn mark_provenance(&mut self, n: NodeId) {
        let place = self.graph[self.source].meta.clone();
        let mut provenance: IndexSet<Arc<str>> = IndexSet::new();
        for &m in self.matched {
            let node = &self.graph[m];
            // A node that a pass has made is represented by the nodes it came from, since its own name means nothing to
            // the user.
            match &node.meta.provenance[..] {
                [] => _ = provenance.insert(Arc::from(node.name())),
                from => provenance.extend(from.iter().cloned()),
            }
        }
        provenance.insert(self.rule.name.clone());
        let meta = self.graph.meta_mut(n);
        meta.take_place_of(&place);
        meta.provenance = provenance.into_iter().collect();
        self.made.push(n);
    }

    fn check_types(&self, old: &[NodeId], new: &[Arg]) -> Result<(), Diagnostic> {
        for (&o, n) in old.iter().zip(new) {
            let before = self.graph[o].meta.ty.clone().unwrap_or(Val::Unknown);
            let after = infer::arg_type(n, &|n| self.graph[n].meta.ty.clone().unwrap_or(Val::Unknown));
            if types_differ(&before, &after) {
                let name = self.graph[o].name();
                let title = format!(
                    "the rule `{}` changes the type of `%{name}` from {before} to {after}",
                    self.rule.name
                );
                return Err(Diagnostic::new(Code::E0805, title)
                    .at_opt(self.rule.span, "this rule changes a type")
                    .help("add a condition, such as `where dtype(%x) == dtype(%y)`"));
            }
        }
        Ok(())
    }

    /// The error for a replacement that does not type-check where it is inserted.
    fn misfit_error(&self, d: Diagnostic) -> Diagnostic {
        let name = self.graph[self.source].name();
        let title = format!(
            "the replacement of the rule `{}` is invalid at `%{name}`",
            self.rule.name
        );
        Diagnostic::new(Code::E0805, title)
            .at_opt(self.rule.span, "this rule")
            .note(d.title)
            .help("add a condition that excludes this case")
    }
}

/// Replaces the nodes and holes in an argument of the replacement. `*%xs` becomes items of the enclosing list.
fn substitute(p: &Pattern, arg: &Arg, map: &HashMap<NodeId, Arg>) -> Arg {
    let seq = |v: &[Arg]| -> Vec<Arg> {
        let mut out = vec![];
        for a in v {
            match (a, substitute(p, a, map)) {
                (Val::Leaf(n), Val::List(items)) if matches!(p.hole(*n), Some(Hole::Rest)) => out.extend(items),
                (_, a) => out.push(a),
            }
        }
        out
    };
    match arg {
        Val::List(v) => Val::List(seq(v)),
        Val::Tuple(v) => Val::Tuple(seq(v)),
        _ => infer::map_leaves(arg, &mut |n| map.get(n).cloned().unwrap_or(Val::Unknown)),
    }
}

/// Whether two types certainly differ.
fn types_differ(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Val::Unknown, _) | (_, Val::Unknown) => false,
        (Val::Leaf(a), Val::Leaf(b)) => {
            let dims = |x: &[Dim], y: &[Dim]| {
                x.len() != y.len()
                    || x.iter()
                        .zip(y)
                        .any(|(x, y)| matches!(x.sub(y), Dim::Const(c) if c != 0))
            };
            let (x, y): (DType, DType) = (a.dtype, b.dtype);
            x != y || matches!((&a.shape, &b.shape), (Some(x), Some(y)) if dims(x, y))
        }
        (Val::List(a) | Val::Tuple(a), Val::List(b) | Val::Tuple(b)) => {
            a.len() != b.len() || a.iter().zip(b).any(|(a, b)| types_differ(a, b))
        }
        (Val::Leaf(_), _) | (_, Val::Leaf(_)) => true,
        _ => false,
    }
}
