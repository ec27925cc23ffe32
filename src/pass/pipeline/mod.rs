//! The passes of [`PIPELINE`](super::PIPELINE), which turn the graph as written into the optimized canonical graph.

pub(super) mod batch_norm;
pub(super) mod cse;
pub(super) mod dce;
pub(super) mod fold;
pub(super) mod functionalize;
pub(super) mod identities;
pub(super) mod inline;
pub(super) mod normalize;
pub(super) mod recognise;
pub(super) mod recurrent;
pub mod simplify;

#[cfg(test)]
mod fold_tests;
#[cfg(test)]
mod recognise_tests;
#[cfg(test)]
mod simplify_tests;
#[cfg(test)]
mod wrappers_tests;
