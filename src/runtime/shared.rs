//! Data that the executables of a process share.

use crate::math::contract::Packs;
use std::sync::{Arc, OnceLock};

/// Packed weights that several executables use: executables of the same graph at other sizes, or of the same file
/// read again. An entry lives as long as an executable uses it.
#[derive(Default)]
pub struct Shared {
    /// Packed weights, by the memory of the original and the packed form.
    pub packs: Packs,
}

impl Shared {
    /// The cache of this process.
    pub fn of_process() -> Arc<Shared> {
        static SHARED: OnceLock<Arc<Shared>> = OnceLock::new();
        SHARED.get_or_init(Arc::default).clone()
    }
}
