//! Replaces each match with a graph, as torch does.

use super::{InternalMatch, MatchOptions, SubgraphMatcher, pattern_error};
use crate::graph::{Arg, Graph, InsertPoint, NodeId, Opcode};
use crate::rewrite::PatternError;
use crate::types::Val;
use std::collections::{HashMap, HashSet};

/// One replacement (torch's `ReplacedPatterns`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplacedPatterns {
    /// The node at which the search began. It has been erased.
    pub anchor: NodeId,
    /// What each node of the pattern matched.
    pub nodes_map: HashMap<NodeId, Arg>,
    /// The new nodes.
    pub replacements: Vec<NodeId>,
}

/// A filter of matches: the match, the graph and the pattern.
pub type MatchFilter<'a> = &'a dyn Fn(&InternalMatch, &Graph, &Graph) -> bool;

/// A function that creates the replacement of a match, from the match, the graph and the pattern.
pub type ReplacementCallback<'a> = &'a dyn Fn(&InternalMatch, &Graph, &Graph) -> Graph;

/// Replaces every match of `pattern` with `replacement` (torch's `replace_pattern`). Of overlapping matches, one is
/// replaced.
///
/// # Errors
/// The pattern has dead code, the numbers of placeholders or results differ, or the pattern is only a placeholder. The
/// errors have torch's texts.
pub fn replace_pattern(
    graph: &mut Graph,
    pattern: &Graph,
    replacement: &Graph,
) -> Result<Vec<ReplacedPatterns>, PatternError> {
    replace_pattern_with_filters(graph, pattern, Some(replacement), &[], MatchOptions::default(), None)
}

/// [`replace_pattern`] for the matches that all `filters` accept. `callback` creates the replacement if none is given.
pub fn replace_pattern_with_filters(
    graph: &mut Graph,
    pattern: &Graph,
    replacement: Option<&Graph>,
    filters: &[MatchFilter<'_>],
    options: MatchOptions,
    callback: Option<ReplacementCallback<'_>>,
) -> Result<Vec<ReplacedPatterns>, PatternError> {
    let matcher = SubgraphMatcher::new(pattern, options)?;
    let matches: Vec<InternalMatch> = matcher
        .match_graph(graph)
        .into_iter()
        .filter(|m| filters.iter().all(|f| f(m, graph, pattern)))
        .collect();
    let mut renewed: HashMap<NodeId, Arg> = HashMap::new();
    let mut out = vec![];
    for m in matches {
        let written;
        let replacement = match (replacement, callback) {
            (Some(r), _) => r,
            (None, Some(f)) => {
                written = f(&m, graph, pattern);
                &written
            }
            (None, None) => {
                return pattern_error("Must provide either a replacement GraphModule or a replacement callback");
            }
        };
        out.push(replace_one(graph, pattern, replacement, &m, &mut renewed)?);
    }
    Ok(out)
}

/// Replaces one match. `renewed` maps results of earlier replaced matches to their replacements.
fn replace_one(
    graph: &mut Graph,
    pattern: &Graph,
    replacement: &Graph,
    m: &InternalMatch,
    renewed: &mut HashMap<NodeId, Arg>,
) -> Result<ReplacedPatterns, PatternError> {
    let placeholders = replacement.placeholders();
    check_placeholders(pattern, m, placeholders.len())?;
    let latest = |a: &Arg| -> Arg {
        let mut a = a.clone();
        while let Some(next) = a.as_leaf().and_then(|n| renewed.get(n)) {
            a = next.clone();
        }
        a
    };
    let values = m.placeholder_nodes.iter().map(latest);
    let mut map: HashMap<NodeId, Arg> = placeholders.iter().copied().zip(values).collect();
    let result = copy_to(graph, insert_point(graph, m)?, replacement, &mut map)?;
    let inner = replacement
        .iter()
        .filter(|n| replacement[*n].op() != Opcode::Placeholder);
    let replacements: Vec<NodeId> = inner.filter_map(|n| map.get(&n)?.as_leaf().copied()).collect();
    let results: Vec<Arg> = match result {
        Val::Tuple(v) | Val::List(v) => v,
        v => vec![v],
    };
    let (expected, actual) = (m.returning_nodes.len(), results.len());
    if expected != actual {
        let title = format!("the pattern returns {expected} values, but the replacement returns {actual}");
        return pattern_error(title);
    }
    replace_uses(graph, m, &results, &replacements, renewed);
    erase_matched(graph, pattern, m)?;
    Ok(ReplacedPatterns {
        anchor: m.anchors[0],
        nodes_map: m.nodes_map.clone(),
        replacements,
    })
}

/// Checks that the match has a value for each of the `expected` placeholders of the replacement.
fn check_placeholders(pattern: &Graph, m: &InternalMatch, expected: usize) -> Result<(), PatternError> {
    if let Some(unused) = pattern.placeholders().iter().find(|p| !m.nodes_map.contains_key(p)) {
        return pattern_error(format!("KeyError: {}", pattern[*unused].name()));
    }
    match m.placeholder_nodes.len() {
        actual if actual != expected => pattern_error(format!("Placeholder count mismatch: {actual} vs {expected}")),
        _ => Ok(()),
    }
}

/// Lets the users of a match's results use the replacement's, except the replacement itself.
fn replace_uses(
    graph: &mut Graph,
    m: &InternalMatch,
    results: &[Arg],
    replacements: &[NodeId],
    renewed: &mut HashMap<NodeId, Arg>,
) {
    for (&old, new) in m.returning_nodes.iter().zip(results) {
        let users: Vec<NodeId> = graph[old].users().filter(|u| !replacements.contains(u)).collect();
        for u in users {
            graph.map_args(u, |n| if n == old { new.clone() } else { Val::Leaf(n) });
        }
        renewed.insert(old, new.clone());
    }
}

/// Copies `replacement` to `point`, and returns its results in terms of `graph`.
fn copy_to(
    graph: &mut Graph,
    point: InsertPoint,
    replacement: &Graph,
    map: &mut HashMap<NodeId, Arg>,
) -> Result<Arg, PatternError> {
    let before = graph.insert_point();
    graph.set_insert_point(point);
    let copied = graph.graph_copy(replacement, map);
    graph.set_insert_point(before);
    match copied {
        Ok(r) => Ok(r.unwrap_or(Val::None)),
        Err(e) => pattern_error(e.0),
    }
}

/// Erases the calls of a match, whose results are now unused, from last to first.
fn erase_matched(graph: &mut Graph, pattern: &Graph, m: &InternalMatch) -> Result<(), PatternError> {
    for p in pattern.iter().rev() {
        let inner = !matches!(pattern[p].op(), Opcode::Placeholder | Opcode::Output);
        if let Some(Val::Leaf(n)) = m.nodes_map.get(&p).filter(|_| inner)
            && let Err(e) = graph.erase_node(*n)
        {
            return pattern_error(e.0);
        }
    }
    Ok(())
}

/// The insertion point: before the first user of a result, or after the last result if none has users.
fn insert_point(graph: &Graph, m: &InternalMatch) -> Result<InsertPoint, PatternError> {
    if m.anchors.is_empty() {
        return pattern_error("The insert point can't be None");
    }
    let users: HashSet<NodeId> = m.returning_nodes.iter().flat_map(|&n| graph[n].users()).collect();
    if let Some(first) = graph.iter().find(|n| users.contains(n)) {
        return Ok(InsertPoint::Before(first));
    }
    let last = graph.iter().rev().find(|n| m.returning_nodes.contains(n));
    match last.and_then(|n| graph.next(n)) {
        Some(next) => Ok(InsertPoint::Before(next)),
        None => pattern_error("The insert point can't be None"),
    }
}
