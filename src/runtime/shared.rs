//! What executables of one process share.

use crate::math::contract::Packs;
use std::sync::{Arc, OnceLock};

/// Packed weights that other executables use too: those of the same graph at other sizes, and those of the same file read
/// again. Nothing stays here longer than some executable has it.
#[derive(Default)]
pub struct Shared {
    /// Weights by their memory and the order in which they are packed.
    pub packs: Packs,
}

impl Shared {
    /// What all executables of this process share.
    pub fn of_process() -> Arc<Shared> {
        static SHARED: OnceLock<Arc<Shared>> = OnceLock::new();
        SHARED.get_or_init(Arc::default).clone()
    }
}
