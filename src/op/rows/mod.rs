//! The rows of the op table, by family.

use super::Op;

/// Every row.
pub fn all() -> Vec<Op> {
    vec![]
}
