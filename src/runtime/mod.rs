//! Running compiled programs.
//!
//! An [`Executable`] owns what a run needs: compiled kernels, planned contractions, the arena, and memory for results.
//! After the first run it allocates only for results that the caller still holds.

mod control;
mod estimate;
mod executable;
mod plan;
mod shared;

pub use executable::{Executable, Options, Profile, ProfileRow, RunError};
pub use shared::Shared;
