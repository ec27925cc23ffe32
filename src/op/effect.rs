//! What calls do beside computing their values: one answer for graphs, passes and the table.

use super::Op;

/// What a call, or a node of a graph, does beside computing its value. Rows are pure, random or external.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: it may be merged, folded, moved and dropped.
    Pure,
    /// It is a parameter or the result of a graph.
    Interface,
    /// It draws random numbers: never merged, folded or dropped.
    Random,
    /// It writes to one of its arguments.
    Mutates,
    /// It checks something, changes a setting or talks to the outside: never dropped.
    External,
}

/// Parameters that make a random op draw nothing where they are 0 or false: a dropout that does not train drops nothing.
const QUIET: [&str; 4] = ["train", "training", "dropout_p", "dropout"];

impl Op {
    /// What a call does beside computing. `given` is the number that a parameter has in the call, if that is known; bools are 0
    /// and 1.
    pub fn effect_where(&self, given: impl Fn(&str) -> Option<f64>) -> Effect {
        match self.effect {
            Effect::Random if QUIET.into_iter().any(|p| given(p) == Some(0.0)) => Effect::Pure,
            e => e,
        }
    }

    /// Whether a call is a dropout that drops nothing: torch gives the operand itself.
    pub fn drops_nothing(&self, given: impl Fn(&str) -> Option<f64>) -> bool {
        self.facts.dropout && self.effect_where(given) == Effect::Pure
    }
}
