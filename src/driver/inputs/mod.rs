//! Inputs by name: what a user gives, what is made up instead, and which integers a graph takes.

pub mod bind;
pub mod fill;
pub mod limits;
mod made;
