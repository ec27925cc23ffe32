//! Kernels made of values: what scheduling gives.

use super::ValueId;
use crate::kernel::Kernel;

/// A kernel with the buffers it takes, in the order of its parameters.
pub struct Scheduled {
    /// The kernel.
    pub kernel: Kernel,
    /// One per parameter.
    pub buffers: Vec<Stored>,
}

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// A value.
    Value(ValueId),
    /// What the parts of a reduction's rows come to.
    Parts {
        /// The reduction.
        of: ValueId,
        /// How many parts a row has.
        parts: usize,
        /// How many rows there are.
        rows: usize,
    },
}
