//! Checks that require all bindings: computed values, uses outside of the match, the condition.

use super::text::show_value;
use super::{Match, Matcher, SearchState};
use crate::graph::NodeId;
use crate::infer::Operand;
use crate::rewrite::condition::Eval;
use crate::rewrite::view::is_same_value;
use crate::types::Val;

impl<'a> Matcher<'a> {
    fn evaluator<'s>(&'s self, found: &'s Match) -> Eval<'s> {
        Eval {
            module: self.module,
            graph: self.graph,
            pattern: self.pattern,
            found,
        }
    }

    /// Returns the state if all checks succeed.
    pub(super) fn check_state(&mut self, mut state: SearchState<'a>) -> Option<SearchState<'a>> {
        let graph = self.graph;
        for (e, value) in std::mem::take(&mut state.later) {
            let eval = self.evaluator(&state.found);
            match eval.value(e) {
                Ok(v) if is_same_value(&v, &value) || is_each_item(&v, &value) => {}
                Ok(v) => {
                    return self.fail(&state, || {
                        format!("`{e}` is {}, not {}", show_value(graph, &v), show_value(graph, &value))
                    });
                }
                Err(reason) => return self.fail(&state, || format!("cannot compute `{e}`: {reason}")),
            }
        }
        if let Some(reason) = self.used_outside(&state.found) {
            return self.fail(&state, || reason);
        }
        self.check_condition(&state)?;
        Some(state)
    }

    /// Checks the rule's condition.
    fn check_condition(&mut self, state: &SearchState<'a>) -> Option<()> {
        let Some(c) = &self.rule.condition else { return Some(()) };
        let eval = self.evaluator(&state.found);
        let problem = match eval.holds(c) {
            Ok(Some(true)) => return Some(()),
            Ok(Some(false)) => "is false",
            Ok(None) => "cannot be proved",
            Err(reason) => return self.fail(state, || format!("its condition cannot be evaluated: {reason}")),
        };
        let parts = match self.is_nearest(state) {
            true => eval.describe_parts(c),
            false => vec![],
        };
        self.fail(state, || with_reasons(format!("its condition `{c}` {problem}"), &parts))
    }

    /// A value inside the match that is used outside and is not a result.
    fn used_outside(&self, found: &Match) -> Option<String> {
        let matched = found.matched(self.pattern);
        let outputs: Vec<NodeId> = (0..self.pattern.outputs.len())
            .filter_map(|i| found.output(self.pattern, i))
            .collect();
        matched.iter().filter(|n| !outputs.contains(n)).find_map(|&n| {
            let outside = self.graph[n].users().find(|u| !matched.contains(u))?;
            let (inner, outer) = (self.graph[n].name(), self.graph[outside].name());
            Some(format!(
                "`%{inner}`, inside the match, is used by `%{outer}` outside it"
            ))
        })
    }
}

/// A message with the values that explain it.
fn with_reasons(problem: String, parts: &[String]) -> String {
    match parts {
        [] => problem,
        parts => format!("{problem}: {}", parts.join(", ")),
    }
}

/// Whether `value` is a list whose items all equal `v`, which a single number in place of a list matches.
fn is_each_item(v: &Val<Operand>, value: &Val<Operand>) -> bool {
    let items = value.items().filter(|items| !items.is_empty());
    v.items().is_none() && items.is_some_and(|items| items.iter().all(|i| is_same_value(v, i)))
}
