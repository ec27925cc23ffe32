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

pub use executable::Executable;
pub(crate) use executable::{ExecutableOptions, OverwriteFn, RoutineFn, Routines, RunError, cancelled};
pub(crate) use input::RunInput;
pub(crate) use profile::Profile;
pub use profile::ProfileRow;
pub(crate) use results::check_result_memory;
pub(crate) use shared::Shared;
