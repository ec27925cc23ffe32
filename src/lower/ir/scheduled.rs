//! The result of scheduling: kernels with the values they read and write.

use super::ValueId;
use crate::kernel::Kernel;

/// A kernel with its buffers, in parameter order.
pub(crate) struct Scheduled {
    /// The kernel.
    pub kernel: Kernel,
    /// One buffer per parameter.
    pub buffers: Vec<Stored>,
}

/// The contents of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stored {
    /// A value.
    Value(ValueId),
    /// The partial results of a split reduction.
    Parts {
        /// The reduction.
        of: ValueId,
        /// The number of parts per row.
        parts: usize,
        /// The number of rows.
        rows: usize,
    },
}
