//! Inputs by name: what a user gives, what is made up instead, and which integers a graph takes.

mod assign;
pub mod bind;
pub mod fill;
mod fit;
pub mod limits;
pub mod literal;
mod made;
pub(super) mod sequence;
pub mod sizes;
pub mod state;
pub mod types;
