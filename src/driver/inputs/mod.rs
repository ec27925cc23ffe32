//! Inputs by name: values that a user provides or that are generated, and the range of integers that a graph takes.

mod assign;
pub(crate) mod bind;
pub(crate) mod fill;
mod fit;
pub(crate) mod limits;
pub(crate) mod literal;
mod made;
mod paths;
pub(super) mod sequence;
pub(crate) mod sizes;
pub(crate) mod state;
pub(crate) mod types;
