//! Transformations that take more arguments than a list of pass names can give: [`LIBRARY`](super::LIBRARY).

pub(super) mod decompose;
pub mod fusions;
pub mod partition;
pub mod sizes;
pub mod sources;
pub mod specialize;
pub mod split;
pub mod split_by;
pub mod support;

#[cfg(test)]
mod split_tests;
