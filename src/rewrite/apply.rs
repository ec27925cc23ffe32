//! Replaces a match of a rule.
//!
//! [`plan_replacement`] does everything that can fail without changing the graph: it determines where the new nodes go
//! and the values of the replacement's holes. [`apply_plan`] creates the nodes. New nodes get the location in the
//! user's Python of the nodes they replace, and their provenance names those nodes and the rule.

use super::Rule;
use super::condition::Eval;
use super::matcher::Match;
use super::pattern::{Hole, Pattern};
use super::view::{ViewCallee, Views};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, InsertPoint, NodeId, Opcode};
use crate::infer::{self, Operand};
use crate::types::{DType, Dim, Type, Val};
use indexmap::IndexSet;
use std::collections::HashMap;
use std::sync::Arc;

/// The plan for replacing a match.
pub(super) struct ReplacementPlan {
    /// The node before which to insert; `None` is the end.
    before: Option<NodeId>,
    /// The replacement's holes.
    holes: HashMap<NodeId, Val<Operand>>,
    /// The replaced nodes, in the pattern's order.
    matched: Vec<NodeId>,
    /// The nodes that match the pattern's results.
    outputs: Vec<NodeId>,
}

/// Plans the replacement of a match. The error says why it is not possible.
pub(super) fn plan_replacement(
    module: &GraphModule,
    graph: &Graph,
    rule: &Rule,
    found: &Match,
    views: &mut Views,
    caller: &str,
) -> Result<ReplacementPlan, String> {
    let pattern = &rule.pattern;
    let outputs: Option<Vec<NodeId>> = (0..pattern.outputs.len()).map(|i| found.output(pattern, i)).collect();
    let outputs = outputs.ok_or("a result of the pattern is not a node")?;
    let matched = found.matched(pattern);
    let holes = hole_values(module, graph, rule, found)?;
    let mut read: Vec<NodeId> = holes.values().flat_map(|v| v.leaves()).filter_map(node_of).collect();
    read.sort_unstable();
    read.dedup();
    check_results(graph, pattern, found, &outputs)?;
    let before = insertion_point(graph, &matched, &outputs, &read)?;
    across_writes(module, caller, graph, rule, &matched, before, views)?;
    Ok(ReplacementPlan {
        before,
        holes,
        matched,
        outputs,
    })
}

/// Checks that no node is two results of the match, or a result and an operand.
fn check_results(graph: &Graph, pattern: &Pattern, found: &Match, outputs: &[NodeId]) -> Result<(), String> {
    for (i, a) in outputs.iter().enumerate() {
        if outputs[..i].contains(a) {
            return Err(format!("`%{}` would be two results at the same time", graph[*a].name()));
        }
    }
    // A hole for alternatives matches a part of the pattern, so it is not an operand.
    let is_operand = |n: &NodeId| !matches!(pattern.hole(*n), Some(Hole::Either(_)));
    let operands = found.values.iter().filter(|(n, _)| is_operand(n));
    let mut nodes = operands.flat_map(|(_, v)| v.leaves()).filter_map(node_of);
    match nodes.find(|n| outputs.contains(n)) {
        Some(n) => Err(format!("`%{}` is both an operand and a result", graph[n].name())),
        None => Ok(()),
    }
}

fn node_of(o: &Operand) -> Option<NodeId> {
    match o {
        Operand::Node(n) | Operand::Item(n, _) => Some(*n),
        Operand::Attr(_) => None,
    }
}

/// The values of the replacement's holes.
fn hole_values(
    module: &GraphModule,
    graph: &Graph,
    rule: &Rule,
    found: &Match,
) -> Result<HashMap<NodeId, Val<Operand>>, String> {
    let eval = Eval {
        module,
        graph,
        pattern: &rule.pattern,
        found,
    };
    let mut out = HashMap::new();
    for (n, hole) in rule.replacement.holes() {
        let value = match hole {
            Hole::Computed(e) => {
                let v = eval.value(e).map_err(|why| format!("cannot compute `{e}`: {why}"))?;
                if has_unknown(&v) {
                    return Err(format!("the value of `{e}` is unknown"));
                }
                v
            }
            _ => {
                let name = rule.replacement.outer_name(n).unwrap_or_default();
                let value = rule.pattern.find(name).and_then(|p| found.value(p));
                value.ok_or_else(|| format!("`{name}` is unbound"))?
            }
        };
        out.insert(n, value);
    }
    Ok(out)
}

fn has_unknown(v: &Val<Operand>) -> bool {
    match v {
        Val::Unknown | Val::Any(_) => true,
        Val::List(v) | Val::Tuple(v) => v.iter().any(has_unknown),
        Val::Slice(v) | Val::Range(v) => v.iter().any(has_unknown),
        _ => false,
    }
}

/// The node before which the replacement goes: after everything it reads, before everything that reads it.
fn insertion_point(
    graph: &Graph,
    matched: &[NodeId],
    outputs: &[NodeId],
    read: &[NodeId],
) -> Result<Option<NodeId>, String> {
    if let [only] = outputs {
        return Ok(Some(*only));
    }
    let users = outputs.iter().flat_map(|&o| graph[o].users());
    let first = users
        .filter(|u| !matched.contains(u))
        .reduce(|a, b| if graph.is_before(b, a) { b } else { a });
    let Some(first) = first else {
        let last = outputs
            .iter()
            .copied()
            .reduce(|a, b| if graph.is_before(a, b) { b } else { a });
        return Ok(last.and_then(|n| graph.next(n)));
    };
    // The replacement goes before the first user of a result. With a single result, the position of that result is
    // always valid.
    for &r in read {
        if r == first || !graph.is_before(r, first) {
            return Err(format!(
                "`%{}` is not yet computed where `%{}` uses a result",
                graph[r].name(),
                graph[first].name()
            ));
        }
    }
    Ok(Some(first))
}

/// Checks that the replacement moves nothing across an in-place write, and does not change which values share memory.
fn across_writes(
    module: &GraphModule,
    caller: &str,
    graph: &Graph,
    rule: &Rule,
    matched: &[NodeId],
    before: Option<NodeId>,
    views: &mut Views,
) -> Result<(), String> {
    let mut write = None;
    for n in graph.iter() {
        let writes = views.get(module, caller, graph, n).is_some_and(|v| v.writes);
        if writes && !matched.contains(&n) {
            write = Some(n);
            let inside = matched.iter().any(|&m| graph.is_before(m, n)) && before.is_none_or(|b| graph.is_before(n, b));
            if inside {
                return Err(format!(
                    "`%{}` writes in place between the nodes of the match",
                    graph[n].name()
                ));
            }
        }
    }
    let Some(write) = write else { return Ok(()) };
    let passes = rule.replacement.outputs.iter().flat_map(|a| a.leaves());
    let passed = passes.into_iter().any(|n| rule.replacement.hole(*n).is_some());
    if passed || may_share_memory(&rule.pattern) || may_share_memory(&rule.replacement) {
        return Err(format!(
            "`%{}` writes in place, and the rule changes which values share memory",
            graph[write].name()
        ));
    }
    Ok(())
}

/// Whether a call of the pattern may return a value that shares memory with an operand.
fn may_share_memory(p: &Pattern) -> bool {
    let mut views = p.calls().flat_map(|n| p.views(n));
    views.any(|v| match &v.callee {
        ViewCallee::Op(op, inplace) => op.aliases || *inplace,
        ViewCallee::Other(..) => true,
    })
}

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
    found: &Match,
    plan: ReplacementPlan,
    keep_types: bool,
) -> Result<Applied, Diagnostic> {
    let _ = found;
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
    let made = std::mem::take(&mut writer.made);
    graph.set_insert_point(before);
    if results.is_err() {
        // The new nodes are used only by each other.
        made.iter().rev().for_each(|&n| drop(graph.erase_node(n)));
    }
    let results = results?;
    let mut changed = made.clone();
    for (&old, new) in plan.outputs.iter().zip(&results) {
        let users: Vec<NodeId> = graph[old].users().filter(|u| !made.contains(u)).collect();
        for u in users {
            graph.map_args(u, |n| if n == old { new.clone() } else { Val::Leaf(n) });
            changed.push(u);
        }
    }
    erase(graph, &plan.matched);
    Ok(Applied { made, changed })
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
                let mut at = *n;
                for (depth, &i) in path.iter().enumerate() {
                    let ty = infer::operand_type(self.module, self.graph, &Operand::Item(*n, path[..=depth].to_vec()));
                    let args = vec![Val::Leaf(at), Val::int(i as i64)];
                    at = self.graph.call_function("operator.getitem", args, vec![]);
                    self.mark_provenance(at);
                    self.graph.meta_mut(at).ty = Some(ty);
                }
                at
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
