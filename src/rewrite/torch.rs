//! torch.fx's own pattern functions: `SubgraphMatcher`, `replace_pattern`, `replace_pattern_with_filters`.
//!
//! Like torch 2.15, they compare opcode, target and arguments as written. Their limits are torch's: two placeholders
//! never match the same node, a node in a slice never matches, operands keep their order, and overlapping matches are
//! applied once and not to a fixed point. [`Rule::from_graphs`](super::Rule::from_graphs) with
//! [`rewrite`](super::rewrite()) has none of these limits.

mod replace;

pub use replace::{MatchFilter, ReplacedPatterns, ReplacementCallback, replace_pattern, replace_pattern_with_filters};

use super::pattern::PatternError;
use crate::graph::{Arg, Graph, NodeId, Opcode};
use crate::op;
use crate::types::Val;
use std::collections::{HashMap, HashSet};

/// Options of [`SubgraphMatcher`]: torch's arguments of that class.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MatchOptions {
    /// Whether the pattern's output must be the graph's.
    pub match_output: bool,
    /// Whether placeholders only match placeholders.
    pub match_placeholder: bool,
    /// Whether a node can be part of only one match.
    pub remove_overlapping_matches: bool,
    /// Whether literals may differ.
    pub ignore_literals: bool,
    /// A graph node whose name contains this text matches any node of the pattern (torch's `node_name_match`); none
    /// does if it is empty.
    pub node_name_match: String,
}

impl Default for MatchOptions {
    fn default() -> MatchOptions {
        MatchOptions {
            match_output: false,
            match_placeholder: false,
            remove_overlapping_matches: true,
            ignore_literals: false,
            node_name_match: String::new(),
        }
    }
}

/// One match (torch's `InternalMatch`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct InternalMatch {
    /// The nodes at which the search began. They match the results of the pattern that nothing else in it uses.
    pub anchors: Vec<NodeId>,
    /// What each node of the pattern matches: a node, or for placeholders any argument.
    pub nodes_map: HashMap<NodeId, Arg>,
    /// What the pattern's placeholders match, in order.
    pub placeholder_nodes: Vec<Arg>,
    /// The nodes that match the pattern's results.
    pub returning_nodes: Vec<NodeId>,
    /// What the named nodes of the pattern match ([`NamedMatcher`]).
    pub name_node_map: HashMap<String, Arg>,
}

/// Searches graphs for a pattern, like torch's class of the same name.
pub struct SubgraphMatcher<'p> {
    pattern: &'p Graph,
    options: MatchOptions,
    anchors: Vec<NodeId>,
    returning: Vec<NodeId>,
}

fn pattern_error<T>(text: impl Into<String>) -> Result<T, PatternError> {
    Err(PatternError(text.into()))
}

impl<'p> SubgraphMatcher<'p> {
    /// Creates a matcher for `pattern`, which must have a result and no dead code.
    pub fn new(pattern: &'p Graph, options: MatchOptions) -> Result<SubgraphMatcher<'p>, PatternError> {
        let Some(output) = pattern.output() else {
            return pattern_error("SubgraphMatcher cannot be initialized with an empty pattern");
        };
        let dead = |n: NodeId| {
            pattern[n].users().len() == 0 && !matches!(pattern[n].op(), Opcode::Output | Opcode::Placeholder)
        };
        if pattern.iter().any(dead) {
            return pattern_error("SubgraphMatcher cannot be initialized with a pattern with dead code");
        }
        let returning = pattern[output].inputs();
        let anchors = match options.match_output {
            true => vec![output],
            false => returning
                .iter()
                .copied()
                .filter(|&n| pattern[n].users().len() == 1)
                .collect(),
        };
        Ok(SubgraphMatcher {
            pattern,
            options,
            anchors,
            returning,
        })
    }

    /// All matches, in the order of the graph's nodes.
    pub fn match_graph(&self, graph: &Graph) -> Vec<InternalMatch> {
        let mut candidates = vec![];
        self.anchors_from(graph, 0, &mut vec![], &HashMap::new(), &mut candidates);
        let mut out: Vec<InternalMatch> = candidates.into_iter().filter(|m| self.is_contained(graph, m)).collect();
        if self.options.remove_overlapping_matches {
            let mut taken: HashSet<NodeId> = HashSet::new();
            out.retain(|m| {
                let nodes = self.inner(m);
                let free = nodes.iter().all(|n| !taken.contains(n));
                if free {
                    taken.extend(nodes);
                }
                free
            });
        }
        out
    }

    /// The graph nodes of a match that will be replaced.
    fn inner(&self, m: &InternalMatch) -> Vec<NodeId> {
        let inner = |p: &NodeId| !matches!(self.pattern[*p].op(), Opcode::Placeholder | Opcode::Output);
        let nodes = self.pattern.iter().filter(inner);
        nodes.filter_map(|p| m.nodes_map.get(&p)?.as_leaf().copied()).collect()
    }

    fn anchors_from(
        &self,
        graph: &Graph,
        i: usize,
        chosen: &mut Vec<NodeId>,
        map: &HashMap<NodeId, Arg>,
        out: &mut Vec<InternalMatch>,
    ) {
        // Matches of several anchors are combinations. This limits their number in a graph.
        const MOST: usize = 100_000;
        let Some(&anchor) = self.anchors.get(i) else {
            let node = |n: &NodeId| map.get(n).and_then(|a| a.as_leaf()).copied();
            out.push(InternalMatch {
                anchors: chosen.clone(),
                placeholder_nodes: self
                    .pattern
                    .placeholders()
                    .iter()
                    .filter_map(|p| map.get(p).cloned())
                    .collect(),
                returning_nodes: self.returning.iter().filter_map(node).collect(),
                nodes_map: map.clone(),
                name_node_map: HashMap::new(),
            });
            return;
        };
        for n in graph.iter() {
            if out.len() >= MOST {
                return;
            }
            let mut map = map.clone();
            if self.match_nodes(graph, anchor, n, &mut map) {
                chosen.push(n);
                self.anchors_from(graph, i + 1, chosen, &map, out);
                chosen.pop();
            }
        }
    }

    /// Matches pattern node `p` with `n`, and their inputs. The worklist replaces torch's recursion.
    fn match_nodes(&self, graph: &Graph, p: NodeId, n: NodeId, map: &mut HashMap<NodeId, Arg>) -> bool {
        let mut todo = vec![(p, n)];
        while let Some((p, n)) = todo.pop() {
            if let Some(known) = map.get(&p) {
                if known.as_leaf() == Some(&n) {
                    continue;
                }
                return false;
            }
            if map.values().any(|a| a.as_leaf() == Some(&n)) || !self.is_same_call(graph, p, n) {
                return false;
            }
            map.insert(p, Val::Leaf(n));
            if self.pattern[p].op() == Opcode::Placeholder {
                continue;
            }
            let Some(pairs) = pair_arguments(self.pattern, p, graph, n) else {
                return false;
            };
            let mut next = vec![];
            for (a, b) in &pairs {
                if !self.match_argument(a, b, map, &mut next) {
                    return false;
                }
            }
            // Reversed, so that the first argument is processed first.
            todo.extend(next.into_iter().rev());
        }
        true
    }

    fn is_same_call(&self, graph: &Graph, p: NodeId, n: NodeId) -> bool {
        let (a, b) = (&self.pattern[p], &graph[n]);
        if a.op() == Opcode::Placeholder && !self.options.match_placeholder {
            return true;
        }
        let name = &self.options.node_name_match;
        if !name.is_empty() && b.name().contains(name.as_str()) {
            return true;
        }
        a.op() == b.op()
            && match a.op() {
                Opcode::Placeholder | Opcode::Output | Opcode::GetAttr => true,
                Opcode::CallFunction => op::canonical_path(a.target(), false) == op::canonical_path(b.target(), false),
                _ => a.target() == b.target(),
            }
    }

    fn match_argument(
        &self,
        a: &Arg,
        b: &Arg,
        map: &mut HashMap<NodeId, Arg>,
        next: &mut Vec<(NodeId, NodeId)>,
    ) -> bool {
        match (a, b) {
            (Val::Leaf(p), Val::Leaf(n)) => {
                next.push((*p, *n));
                true
            }
            (Val::List(x), Val::List(y))
            | (Val::Tuple(x), Val::Tuple(y))
            | (Val::List(x), Val::Tuple(y))
            | (Val::Tuple(x), Val::List(y)) => {
                x.len() == y.len() && x.iter().zip(y).all(|(a, b)| self.match_argument(a, b, map, next))
            }
            (Val::Leaf(p), b) => {
                if self.pattern[*p].op() != Opcode::Placeholder {
                    return self.options.ignore_literals;
                }
                match map.get(p) {
                    Some(known) => known == b || self.options.ignore_literals,
                    None => {
                        map.insert(*p, b.clone());
                        true
                    }
                }
            }
            (_, Val::Leaf(_)) => self.options.ignore_literals,
            // Python's `==` for equal types: NaN is not equal to itself, and 0.0 equals -0.0.
            (a, b) => (a.leaves().is_empty() && b.leaves().is_empty() && a == b) || self.options.ignore_literals,
        }
    }

    /// Whether only results are used outside of the match.
    fn is_contained(&self, graph: &Graph, m: &InternalMatch) -> bool {
        let inside: HashSet<NodeId> = m.nodes_map.values().filter_map(|a| a.as_leaf().copied()).collect();
        self.inner(m)
            .into_iter()
            .all(|n| m.returning_nodes.contains(&n) || graph[n].users().all(|u| inside.contains(&u)))
    }
}

/// A matcher whose pattern names nodes. The pattern returns an additional dict of names and nodes (torch's
/// `SubgraphMatcherWithNameNodeMap`).
pub struct NamedMatcher {
    pattern: Graph,
    names: Vec<(String, NodeId)>,
    options: MatchOptions,
}

impl NamedMatcher {
    /// Creates a matcher for a pattern that returns `(result, …, {"name": node, …})`.
    ///
    /// # Errors
    /// The pattern has no dict, or [`SubgraphMatcher::new`] fails.
    pub fn new(pattern: &Graph, options: MatchOptions) -> Result<NamedMatcher, PatternError> {
        const NO_DICT: &str = "Expecting the input graph to have a dict output as the last element";
        let mut pattern = pattern.clone();
        let Some(output) = pattern.output() else {
            return pattern_error(NO_DICT);
        };
        let Some(Val::Tuple(results) | Val::List(results)) = pattern[output].args().first().cloned() else {
            return pattern_error(NO_DICT);
        };
        let Some((Val::Dict(named), rest)) = results.split_last() else {
            return pattern_error(NO_DICT);
        };
        let mut names = vec![];
        for (k, v) in named {
            match (k, v) {
                (Val::Str(k), Val::Leaf(n)) => names.push((k.to_string(), *n)),
                _ => return pattern_error("the names of a pattern are nodes of it"),
            }
        }
        let result = match rest {
            [single] => single.clone(),
            many => Val::Tuple(many.to_vec()),
        };
        pattern.set_args(output, vec![result]);
        SubgraphMatcher::new(&pattern, options.clone())?;
        Ok(NamedMatcher {
            pattern,
            names,
            options,
        })
    }

    /// All matches, each with what the named nodes match.
    pub fn match_graph(&self, graph: &Graph) -> Vec<InternalMatch> {
        let Ok(matcher) = SubgraphMatcher::new(&self.pattern, self.options.clone()) else {
            return vec![];
        };
        let mut matches = matcher.match_graph(graph);
        for m in &mut matches {
            let named = self.names.iter();
            m.name_node_map = named
                .filter_map(|(k, n)| Some((k.clone(), m.nodes_map.get(n)?.clone())))
                .collect();
        }
        matches
    }
}

/// Whether two graphs have the same structure: their nodes correspond, including inputs and outputs (torch's
/// `compare_graphs`). Names and order are ignored.
pub fn compare_graphs(left: &Graph, right: &Graph) -> bool {
    let options = MatchOptions {
        match_output: true,
        match_placeholder: true,
        ..MatchOptions::default()
    };
    let alive = left.len() == right.len();
    alive && SubgraphMatcher::new(left, options).is_ok_and(|m| !m.match_graph(right).is_empty())
}

/// Pairs the arguments of two calls; `None` if they differ in number or names. Calls of overloads are compared by
/// parameter, others as written.
fn pair_arguments(pattern: &Graph, p: NodeId, graph: &Graph, n: NodeId) -> Option<Vec<(Arg, Arg)>> {
    let bound = |g: &Graph, n: NodeId| -> Option<Vec<Arg>> {
        let node = &g[n];
        let path = op::canonical_path(node.target(), false);
        let is_overload = node.op() == Opcode::CallFunction && path.starts_with("aten.");
        let candidate = is_overload
            .then(|| op::candidates(&path))
            .and_then(|c| c.into_iter().next())?;
        let unknown = |_: &Arg| Val::Unknown;
        let kwargs: Vec<(&str, &Arg)> = node.kwargs().iter().map(|(k, v)| (&**k, v)).collect();
        let types: Vec<_> = node.kwargs().iter().map(|(k, v)| (&**k, unknown(v))).collect();
        let types: Vec<_> = types.iter().map(|(k, t)| (*k, t)).collect();
        let args: Vec<_> = node.args().iter().map(unknown).collect();
        let spelling = candidate.bind(&args, &types, true).ok()?;
        Some(spelling.apply(node.args(), &kwargs).args)
    };
    if let (Some(a), Some(b)) = (bound(pattern, p), bound(graph, n)) {
        return (a.len() == b.len()).then(|| a.into_iter().zip(b).collect());
    }
    let (a, b) = (&pattern[p], &graph[n]);
    let names = |n: &crate::graph::Node| n.kwargs().iter().map(|(k, _)| k.clone()).collect::<Vec<_>>();
    if a.args().len() != b.args().len() || names(a) != names(b) {
        return None;
    }
    let kwargs = a
        .kwargs()
        .iter()
        .zip(b.kwargs())
        .map(|((_, x), (_, y))| (x.clone(), y.clone()));
    Some(
        a.args()
            .iter()
            .cloned()
            .zip(b.args().iter().cloned())
            .chain(kwargs)
            .collect(),
    )
}
