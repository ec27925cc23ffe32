//! Running compiled programs.
//!
//! An [`Executable`] owns what a run needs: compiled kernels, planned contractions, the arena, and memory for results.
//! After the first run it allocates only for results that the caller still holds.

mod code;
mod control;
mod executable;
mod plan;
mod profile;
mod shared;
mod steps;
mod tables;
#[cfg(test)]
mod tests;

pub use executable::{Executable, ExecutableOptions, RoutineFn, Routines, RunError};
pub use profile::{Profile, ProfileRow};
pub use shared::Shared;
