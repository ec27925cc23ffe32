//! What rules have written, so that none goes on for ever on its own replacement.
//!
//! "Put a relu after every add" is a rule whose replacement holds what the rule looks for. Its user means the adds that were there, so
//! a match that lies within one replacement of the same rule does not count if it is the match that the replacement was made
//! for. A rule that takes its own replacement further comes to an end by what it binds (a smaller literal, a shorter list) or
//! by its condition, and goes on as long as these change.

use super::pattern::Hole;
use super::view::is_same_value;
use super::{Match, Rule};
use crate::graph::NodeId;
use crate::types::Val;
use std::collections::HashMap;

/// The replacements written into one graph.
#[derive(Default)]
pub(super) struct Written {
    /// For each application of a rule, the rule and what was matched.
    applied: Vec<(usize, Match)>,
    /// The application that wrote a node.
    by: HashMap<NodeId, usize>,
}

impl Written {
    /// Notes that `rule` wrote the nodes `made` in the place of a match.
    pub(super) fn note(&mut self, rule: usize, found: Match, made: &[NodeId]) {
        self.by.extend(made.iter().map(|&n| (n, self.applied.len())));
        self.applied.push((rule, found));
    }

    /// Whether a rule wrote any node of a match.
    pub(super) fn has_part_in(&self, rule: &Rule, found: &Match) -> bool {
        found.matched(&rule.pattern).iter().any(|n| self.by.contains_key(n))
    }

    /// Whether a match of `rule` is the one that its nodes were written for.
    pub(super) fn finds_itself(&self, index: usize, rule: &Rule, found: &Match) -> bool {
        let nodes = found.matched(&rule.pattern);
        let by = |n: &NodeId| self.by.get(n).copied();
        let Some(application) = nodes.first().and_then(by) else {
            return false;
        };
        let (writer, before) = &self.applied[application];
        if *writer != index || nodes.iter().any(|n| by(n) != Some(application)) {
            return false;
        }
        // Where nothing but literals and lists can tell the matches apart, other operands make no difference.
        let free = is_unconditional(rule) && found.dims.is_empty();
        rule.pattern
            .holes()
            .all(|(n, _)| match (before.values.get(&n), found.values.get(&n)) {
                (Some(Val::Leaf(_)), Some(Val::Leaf(_))) if free => true,
                (Some(a), Some(b)) => is_same_value(a, b),
                (a, b) => a.is_none() && b.is_none(),
            })
    }
}

/// Whether a rule asks for no more than calls and literals: neither for a condition nor for types.
fn is_unconditional(rule: &Rule) -> bool {
    let untyped = |h: &Hole| !matches!(h, Hole::Value(ty) if *ty != Val::Unknown);
    rule.condition.is_none() && rule.pattern.holes().all(|(_, h)| untyped(h))
}
