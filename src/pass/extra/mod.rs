//! The passes of [`EXTRA`](super::EXTRA), which run where they are asked for.

pub mod assert_sizes;
pub mod batch_linear;
pub mod canonicalise;
mod group;
pub mod inputs;
pub mod merge_matmul;
pub mod merge_rows;
pub mod named_arguments;
pub mod reinplace;
pub mod respell;
