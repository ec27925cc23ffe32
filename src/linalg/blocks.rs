//! The blocks of rows or columns that large matrices are divided into.

use std::ops::Range;

/// The number of rows or columns of a block. The remaining matrix is updated by one matrix product per block.
pub(super) const BLOCK: usize = 64;

/// Divides `0..n` into blocks of [`BLOCK`].
pub(super) fn blocks(n: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    ranges(n, BLOCK)
}

/// Divides `0..n` into ranges of `size`. The last may be shorter.
pub(super) fn ranges(n: usize, size: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    (0..n.div_ceil(size)).map(move |i| i * size..n.min((i + 1) * size))
}
