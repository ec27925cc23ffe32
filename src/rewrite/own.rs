//! Tracks what rules have written, so that no rule fires endlessly on its own replacement.
//!
//! "Put a relu after every add" is a rule whose replacement contains its pattern. Its user means the original adds. A
//! match inside one replacement of the same rule is therefore ignored if it is the match that the replacement was made
//! for. A rule that refines its own replacement terminates because of its bindings (a smaller literal, a shorter list)
//! or its condition, and it continues as long as these change.

use super::pattern::Hole;
use super::view::is_same_value;
use super::{Match, Rule};
use crate::graph::NodeId;
use crate::types::Val;
use std::collections::HashMap;

/// The replacements written into one graph.
#[derive(Default)]
pub(super) struct Written {
    /// For each application of a rule, the index of the rule and its match.
    applied: Vec<(usize, Match)>,
    /// For each node written by a rule, the index of the application.
    by: HashMap<NodeId, usize>,
}

impl Written {
    /// Records that `rule` wrote the nodes `created` to replace a match.
    pub(super) fn note(&mut self, rule: usize, found: Match, created: &[NodeId]) {
        self.by.extend(created.iter().map(|&n| (n, self.applied.len())));
        self.applied.push((rule, found));
    }

    /// Whether any node of a match was written by a rule.
    pub(super) fn has_part_in(&self, rule: &Rule, found: &Match) -> bool {
        found.matched(&rule.pattern).iter().any(|n| self.by.contains_key(n))
    }

    /// Whether a match of `rule` is the one that its nodes were written to replace.
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
        // If only literals and lists can distinguish the matches, other operands are ignored.
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

/// Whether a rule has neither a condition nor types, so that only calls and literals determine its matches.
fn is_unconditional(rule: &Rule) -> bool {
    let untyped = |h: &Hole| !matches!(h, Hole::Value(ty) if *ty != Val::Unknown);
    rule.condition.is_none() && rule.pattern.holes().all(|(_, h)| untyped(h))
}
