//! Side effects of calls: one definition for graphs, passes and the table.

use super::Op;

/// The side effect of a call, or of a node of a graph. Rows are pure, random or external.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No side effect: the call may be merged, folded, moved and dropped.
    Pure,
    /// A parameter or the result of a graph.
    Interface,
    /// Draws random numbers: never merged, folded or dropped.
    Random,
    /// Writes to one of its arguments.
    Mutates,
    /// Checks something, changes a setting or has an effect outside the graph: never dropped.
    External,
}

/// Parameters that turn off the random draws of an op if they are 0 or false: dropout outside training drops nothing.
const QUIET: [&str; 4] = ["train", "training", "dropout_p", "dropout"];

impl Op {
    /// The side effect of a call. `value_of` returns the value of a parameter if it is known; bools are 0 and 1.
    pub fn effect_where(&self, value_of: impl Fn(&str) -> Option<f64>) -> Effect {
        match self.effect {
            Effect::Random if QUIET.into_iter().any(|p| value_of(p) == Some(0.0)) => Effect::Pure,
            e => e,
        }
    }

    /// Whether a call is a dropout that drops nothing, in which case torch returns the operand itself.
    pub fn drops_nothing(&self, value_of: impl Fn(&str) -> Option<f64>) -> bool {
        self.facts.dropout && self.effect_where(value_of) == Effect::Pure
    }
}
