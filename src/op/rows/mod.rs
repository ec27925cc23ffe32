//! The rows of the op table, by family.

mod affine;
mod splits;
mod views;

use super::Op;

/// Every row.
pub fn all() -> Vec<Op> {
    [views::rows(), affine::rows(), splits::rows()]
        .into_iter()
        .flatten()
        .collect()
}
