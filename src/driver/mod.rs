//! Runs the stages in order. No other module knows the order.
//!
//! ```text
//! path ─load─▶ Model ─check─▶ typed ─optimize─▶ canonical ─lower─▶ Program ─compile─▶ Executable
//! ```
//!
//! A [`Session`] holds the sources and findings of a run; each of its methods is one stage. [`Observer`]s see every
//! stage's product. A [`Function`] is a model that can be called at any sizes. Other parts: tensors in files
//! ([`files`]), inputs by name ([`bind`]), comparison of results ([`compare`]), and the text of every stage ([`text`]).

#[cfg(test)]
mod accuracy_tests;
mod bytes;
mod cache;
mod call_result;
mod code_source;
mod compile;
mod compiled_file;
mod debug;
mod declared;
mod direct;
pub mod files;
mod function;
mod inputs;
mod interpret;
mod limited;
pub mod load;
mod lowering;
mod mend;
mod ready;
mod reduce;
mod routines;
pub mod run;
mod save;
mod session;
mod show;
mod split;
mod stage;
mod symbolic;

pub use crate::artifact::has_compiled_ending;
pub use cache::{Cache, CacheFile, NoCache, PendingEntry, finish_cache_writes, parse_size, write_in_background};
pub use call_result::CallResult;
pub use code_source::CodeSource;
pub use compile::{Compilation, Request, compile, nothing_compiled};
pub use compiled_file::{CompiledFile, PartInfo, SectionInfo, build_name};
pub use debug::{bisect, compare, minimize};
pub use declared::{declared_types, input_types};
pub use function::Function;
pub use inputs::bind::{BoundInputs, CALL, COMMAND_LINE, Dims, Given, Provided, Value};
pub use inputs::fill::Fill;
pub use inputs::sequence::{Sequence, stack_results};
pub use inputs::{bind, fill, limits, literal, sizes, state, types};
pub use interpret::interpret;
pub use limited::run_limited;
pub use load::LoadedModel;
pub use mend::mend_text;
pub use ready::{BufferState, Ready};
pub use reduce::{Failing, FailureTest, Reduced, reduce};
pub use save::{SaveRequest, Saved, save_compiled};
pub use session::{MAX_THREADS, Reported, Session, Staged, thread_count};
pub use show::{describe, diff, form, json, model_explorer, netron, text};
pub use stage::{Observer, Stage, StageProduct, Timer, lock_observer};
