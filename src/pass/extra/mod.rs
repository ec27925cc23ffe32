//! The passes of [`EXTRA`](super::EXTRA), which run only on request.

pub(super) mod assert_sizes;
pub(super) mod batch_linear;
pub(super) mod canonicalise;
mod group;
pub(super) mod inputs;
pub(super) mod merge_matmul;
pub(super) mod merge_rows;
pub mod named_arguments;
pub(super) mod reinplace;
pub(super) mod respell;

#[cfg(test)]
mod tests;
