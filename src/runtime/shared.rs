//! What executables of one process share.

use crate::codegen::Cache;
use crate::math::contract::Packs;

/// Code and packed weights that executables of the same graph at other sizes use too. Nothing stays here longer than some executable
/// has it.
#[derive(Default)]
pub struct Shared {
    /// Functions by the structure of their kernels.
    pub kernels: Cache,
    /// Weights by their memory and the order in which they are packed.
    pub packs: Packs,
}
