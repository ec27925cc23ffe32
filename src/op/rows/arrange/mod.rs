//! Joining, repeating, padding and splitting tensors.

mod assembly;
mod indexed_lines;
pub(super) mod joining;
mod padding;
mod parts;
mod rearrange;
mod resize;

use crate::op::Op;

pub(super) fn rows() -> Vec<Op> {
    [
        joining::rows(),
        padding::rows(),
        rearrange::rows(),
        assembly::rows(),
        parts::rows(),
        resize::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
