//! Runs compiled programs.
//!
//! An [`Executable`] owns everything that a run needs: compiled kernels, planned contractions, the arena, and memory
//! for results.
//! After the first run it allocates only for results that the caller still holds.

mod code;
mod control;
mod executable;
mod in_place;
mod input;
mod memory;
mod overwrite;
mod plan;
mod profile;
mod results;
mod shared;
mod steps;
mod tables;
mod tail;
#[cfg(test)]
mod tests;

pub use executable::{Executable, ExecutableOptions, OverwriteFn, RoutineFn, Routines, RunError, cancelled};
pub use input::RunInput;
pub use profile::{Profile, ProfileRow};
pub use results::check_result_memory;
pub use shared::Shared;
