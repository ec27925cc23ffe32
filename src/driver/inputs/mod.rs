//! Inputs by name: values that a user provides or that are generated, and the range of integers that a graph takes.

mod assign;
pub mod bind;
pub mod fill;
mod fit;
pub mod limits;
pub mod literal;
mod made;
mod paths;
pub(super) mod sequence;
pub mod sizes;
pub mod state;
pub mod types;
