//! Plans the replacement of a match: where the new nodes go, and the values of the replacement's holes.

use crate::graph::{Graph, GraphModule, NodeId};
use crate::infer::Operand;
use crate::rewrite::Rule;
use crate::rewrite::condition::Eval;
use crate::rewrite::matcher::Match;
use crate::rewrite::pattern::{Hole, Pattern};
use crate::rewrite::view::{ViewCallee, Views};
use crate::types::Val;
use std::collections::HashMap;

/// The plan for replacing a match.
pub(in crate::rewrite) struct ReplacementPlan {
    /// The node before which to insert; `None` is the end.
    pub before: Option<NodeId>,
    /// The replacement's holes.
    pub holes: HashMap<NodeId, Val<Operand>>,
    /// The replaced nodes, in the pattern's order.
    pub matched: Vec<NodeId>,
    /// The nodes that match the pattern's results.
    pub outputs: Vec<NodeId>,
}

/// Plans the replacement of a match. The error says why it is not possible.
pub(in crate::rewrite) fn plan_replacement(
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
    check_writes(module, caller, graph, rule, &matched, before, views)?;
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
                let v = eval
                    .value(e)
                    .map_err(|reason| format!("cannot compute `{e}`: {reason}"))?;
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
fn check_writes(
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
