//! The passes of [`PIPELINE`](super::PIPELINE): from what the user wrote to the canonical graph.

pub mod batch_norm;
pub mod cse;
pub mod dce;
pub mod fold;
pub mod functionalize;
pub mod identities;
pub mod inline;
pub mod normalize;
pub mod recognise;
pub mod recurrent;
pub mod simplify;

#[cfg(test)]
mod recognise_tests;
#[cfg(test)]
mod simplify_tests;
#[cfg(test)]
mod wrappers_tests;
