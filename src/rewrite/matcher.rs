//! Searches a graph for a pattern.
//!
//! The search goes backwards from the pattern's first result. It keeps a list of goals, each of which pairs an argument
//! of the pattern with one of the graph. For commutative operands, the search tries both orders and backtracks on
//! failure. Nodes of the pattern that the first result does not depend on (in rules with several results) are searched
//! among the users of bound values.

mod arguments;
mod check;
mod text;

pub(super) use text::show_value;

use super::Rule;
use super::pattern::Pattern;
use super::view::{CallView, ViewCallee, Views, is_same_value};
use crate::diag::words;
use crate::graph::{Graph, GraphModule, NodeId, Opcode};
use crate::infer::{Operand, operand_type};
use crate::syntax::ast::Value;
use crate::types::{Dim, Val};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// The maximum number of goals in one search.
const MAX_STEPS: usize = 50_000;

/// The bindings of a pattern's holes and nodes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Match {
    /// The bindings of calls and attributes.
    pub nodes: HashMap<NodeId, Operand>,
    /// The bindings of holes.
    pub values: HashMap<NodeId, Val<Operand>>,
    /// The bindings of sizes, by name.
    pub dims: HashMap<Arc<str>, Dim>,
}

impl Match {
    /// The graph nodes that the pattern's calls match, in the pattern's order.
    pub fn matched(&self, pattern: &Pattern) -> Vec<NodeId> {
        let node = |n: NodeId| match self.nodes.get(&n) {
            Some(Operand::Node(m)) if pattern.graph[n].op().is_call() => Some(*m),
            _ => None,
        };
        pattern.calls().filter_map(node).collect()
    }

    /// The graph node that the pattern's `i`th result matches.
    pub fn output(&self, pattern: &Pattern, i: usize) -> Option<NodeId> {
        match self.value(*pattern.outputs.get(i)?.as_leaf()?)? {
            Val::Leaf(Operand::Node(n)) => Some(n),
            _ => None,
        }
    }

    /// The value that a hole or node of the pattern is bound to.
    pub fn value(&self, n: NodeId) -> Option<Val<Operand>> {
        let node = || self.nodes.get(&n).cloned().map(Val::Leaf);
        self.values.get(&n).cloned().or_else(node)
    }
}

/// A part of the pattern and the value that it has to match.
type Goal<'p> = (GoalPart<'p>, Val<Operand>);

#[derive(Clone, Copy)]
enum GoalPart<'p> {
    /// An argument in the pattern.
    Arg(&'p Val<NodeId>),
    /// A node of the pattern.
    Node(NodeId),
}

/// A state of the search.
#[derive(Clone, Default)]
struct SearchState<'p> {
    found: Match,
    goals: Vec<Goal<'p>>,
    /// Expressions in the pattern, which are compared once everything is bound.
    later: Vec<(&'p Value, Val<Operand>)>,
}

/// A call of the graph, and those forms of a node of the pattern that call the same function.
struct MatchedCall<'p> {
    view: Rc<CallView<Operand>>,
    fitting: Vec<&'p CallView<NodeId>>,
}

/// Searches one graph for one rule's pattern.
pub struct Matcher<'a> {
    module: &'a GraphModule,
    caller: &'a str,
    graph: &'a Graph,
    rule: &'a Rule,
    pattern: &'a Pattern,
    views: &'a mut Views,
    steps: usize,
    /// The failure of the attempt that bound the most nodes, and their number.
    near: Option<(usize, String)>,
}

impl<'a> Matcher<'a> {
    /// Creates a search for `rule` in `graph`, which is called `caller` in `module`.
    pub(super) fn new(
        module: &'a GraphModule,
        caller: &'a str,
        graph: &'a Graph,
        rule: &'a Rule,
        views: &'a mut Views,
    ) -> Matcher<'a> {
        Matcher {
            module,
            caller,
            graph,
            rule,
            pattern: &rule.pattern,
            views,
            steps: MAX_STEPS,
            near: None,
        }
    }

    /// Searches for a match whose first result is node `n`.
    pub fn match_at(&mut self, n: NodeId) -> Option<Match> {
        let pattern = self.pattern;
        self.near = None;
        let mut state = SearchState::default();
        let root = GoalPart::Arg(pattern.outputs.first()?);
        state.goals.push((root, Val::Leaf(Operand::Node(n))));
        self.solve(state).map(|s| s.found)
    }

    /// The reason why the last search failed, if the pattern's first result matched.
    pub fn failure_reason(&self) -> Option<String> {
        self.near
            .as_ref()
            .filter(|(depth, _)| *depth > 0)
            .map(|(_, reason)| reason.clone())
    }

    /// Whether a failure now is the furthest so far, so that a remark should give its reason.
    fn is_nearest(&self, state: &SearchState<'_>) -> bool {
        self.near.as_ref().is_none_or(|(d, _)| state.found.nodes.len() > *d)
    }

    fn fail<T>(&mut self, state: &SearchState<'_>, reason: impl FnOnce() -> String) -> Option<T> {
        if self.is_nearest(state) {
            self.near = Some((state.found.nodes.len(), reason()));
        }
        None
    }

    fn solve(&mut self, mut state: SearchState<'a>) -> Option<SearchState<'a>> {
        loop {
            if self.steps == 0 {
                return self.fail(&state, || format!("the search was stopped after {MAX_STEPS} steps"));
            }
            self.steps -= 1;
            let Some((part, value)) = state.goals.pop() else {
                return self.finish_search(state);
            };
            let choices = match part {
                GoalPart::Node(p) => self.match_node(&mut state, p, &value)?,
                GoalPart::Arg(arg) => self.match_arg(&mut state, arg, value)?,
            };
            match choices.len() {
                0 => {}
                1 => state.goals.extend(choices.into_iter().flatten()),
                _ => {
                    return choices.into_iter().find_map(|goals| {
                        let mut next = state.clone();
                        next.goals.extend(goals);
                        self.solve(next)
                    });
                }
            }
        }
    }

    /// All goals are satisfied: searches for unbound nodes, then does the final checks.
    fn finish_search(&mut self, state: SearchState<'a>) -> Option<SearchState<'a>> {
        let missing = self.pattern.required().find(|n| !state.found.nodes.contains_key(n));
        let Some(missing) = missing else {
            return self.check_state(state);
        };
        let (p, candidates) = self
            .connected_node(&state)
            .unwrap_or_else(|| (missing, self.graph.ids()));
        for n in candidates {
            let mut next = state.clone();
            next.goals.push((GoalPart::Node(p), Val::Leaf(Operand::Node(n))));
            if let Some(done) = self.solve(next) {
                return Some(done);
            }
        }
        let name = self.pattern.name(p).to_string();
        self.fail(&state, || format!("nothing matches `%{name}`"))
    }

    /// An unbound node of the pattern that has a bound operand, and the users of that operand.
    fn connected_node(&self, state: &SearchState<'a>) -> Option<(NodeId, Vec<NodeId>)> {
        let unbound = self.pattern.required().filter(|n| !state.found.nodes.contains_key(n));
        unbound.into_iter().find_map(|p| {
            let inputs = self.pattern.graph[p].inputs();
            let bound = inputs.into_iter().find_map(|i| match state.found.value(i) {
                Some(Val::Leaf(Operand::Node(n) | Operand::Item(n, _))) => Some(n),
                _ => None,
            });
            bound.map(|n| (p, self.graph[n].users().collect()))
        })
    }

    /// The alternative lists of goals under which pattern node `p` matches `value`.
    fn match_node(
        &mut self,
        state: &mut SearchState<'a>,
        p: NodeId,
        value: &Val<Operand>,
    ) -> Option<Vec<Vec<Goal<'a>>>> {
        let Val::Leaf(operand) = value else {
            return self.fail(state, || {
                format!(
                    "the pattern has a call where the graph has {}",
                    words::with_article(value.kind_name())
                )
            });
        };
        if let Some(bound) = state.found.nodes.get(&p) {
            if bound == operand {
                return Some(vec![]);
            }
            return self.fail(state, || "the pattern has one node where the graph has two".into());
        }
        if self.pattern.graph[p].op() == Opcode::GetAttr {
            return self.match_attribute(state, p, operand);
        }
        let Operand::Node(n) = operand else {
            return self.fail(state, || "no node computes this value".into());
        };
        let MatchedCall { view, fitting } = self.call_views(state, p, *n)?;
        state.found.nodes.insert(p, operand.clone());
        self.type_of(state, p, operand)?;
        let mut out = vec![];
        for v in fitting {
            operand_orders(v, &view, &mut out);
        }
        if out.is_empty() {
            let name = self.graph[*n].name();
            return self.fail(state, || format!("`%{name}` has different arguments"));
        }
        Some(out)
    }

    /// The call of node `n`, and those forms of pattern node `p` that call the same function.
    fn call_views(&mut self, state: &SearchState<'a>, p: NodeId, n: NodeId) -> Option<MatchedCall<'a>> {
        let (pattern, graph) = (self.pattern, self.graph);
        let name = graph[n].name();
        let Some(view) = self.views.get(self.module, self.caller, graph, n) else {
            return self.fail(state, || {
                let opcode = words::with_article(graph[n].op().name());
                format!("`%{name}` is {opcode}, not `%{}`", pattern.name(p))
            });
        };
        let fitting: Vec<_> = pattern.views(p).iter().filter(|v| v.callee == view.callee).collect();
        if fitting.is_empty() {
            return self.fail(state, || {
                let expected = pattern.views(p).first().map_or("?".into(), |v| v.callee.key());
                format!("`%{name}` is `{}`, not `{expected}`", view.callee.key())
            });
        }
        Some(MatchedCall { view, fitting })
    }

    fn match_attribute(
        &mut self,
        state: &mut SearchState<'a>,
        p: NodeId,
        operand: &Operand,
    ) -> Option<Vec<Vec<Goal<'a>>>> {
        let path: Option<Arc<str>> = match operand {
            Operand::Attr(path) => Some(path.clone()),
            Operand::Node(n) if self.graph[*n].op() == Opcode::GetAttr => Some(self.graph[*n].target().into()),
            _ => None,
        };
        let expected = self.pattern.graph[p].target().to_string();
        if path.as_deref() != Some(expected.as_str()) {
            return self.fail(state, || format!("not the attribute `{expected}`"));
        }
        state.found.nodes.insert(p, operand.clone());
        Some(vec![])
    }

    /// Checks the type that the pattern declares for its node.
    fn type_of(&mut self, state: &mut SearchState<'a>, p: NodeId, operand: &Operand) -> Option<()> {
        let pattern = self.pattern;
        let meta = &pattern.graph[p].meta;
        let Some(declared) = meta.ty.as_ref().filter(|_| meta.declared) else {
            return Some(());
        };
        self.match_type(state, declared, operand_type(self.module, self.graph, operand), p)
    }
}

/// Adds the goals for the arguments of a call, for each order of its operands.
fn operand_orders<'p>(expected: &'p CallView<NodeId>, actual: &Rc<CallView<Operand>>, out: &mut Vec<Vec<Goal<'p>>>) {
    if expected.args.len() != actual.args.len() || expected.kwargs.len() != actual.kwargs.len() {
        return;
    }
    let mut named = vec![];
    for (k, a) in &expected.kwargs {
        match actual.kwargs.iter().find(|(l, _)| l == k) {
            Some((_, v)) => named.push((GoalPart::Arg(a), v.clone())),
            None => return,
        }
    }
    let args = |order: &dyn Fn(usize) -> usize| -> Vec<Goal<'p>> {
        // Goals are processed from the end, so this puts the first argument last.
        let pairs = expected.args.iter().enumerate();
        let mut goals = named.clone();
        goals.extend(
            pairs
                .rev()
                .map(|(i, a)| (GoalPart::Arg(a), actual.args[order(i)].clone())),
        );
        goals
    };
    out.push(args(&|i| i));
    if operands_commute(&actual.callee, &actual.args) && !is_same_value(&actual.args[0], &actual.args[1]) {
        out.push(args(&|i| if i < 2 { 1 - i } else { i }));
    }
}

/// Whether the first two operands can be swapped: `add(a, b, alpha=2)` is not `add(b, a, alpha=2)`.
fn operands_commute(callee: &ViewCallee, args: &[Val<Operand>]) -> bool {
    let ViewCallee::Op(op, false) = callee else {
        return false;
    };
    let plain = |(a, p): (&Val<Operand>, &crate::op::Param)| match &p.default {
        Some(d) => is_same_value(a, &crate::op::lift_literal(d)),
        None => a.is_none(),
    };
    op.commutative && args.len() >= 2 && args.iter().zip(&op.schema.params).skip(2).all(plain)
}
