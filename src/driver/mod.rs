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
pub(crate) mod files;
mod function;
mod inputs;
mod interpret;
mod limited;
pub(crate) mod load;
mod lowering;
mod mend;
mod ready;
mod reduce;
mod routines;
pub(crate) mod run;
mod save;
mod session;
mod show;
mod split;
mod stage;
mod symbolic;

pub use cache::{Cache, NoCache, finish_cache_writes, parse_size};
pub(crate) use cache::{CacheFile, write_in_background};
pub use call_result::CallResult;
pub(crate) use code_source::CodeSource;
pub(crate) use compile::nothing_compiled;
pub use compile::{Compilation, Request, compile};
pub use compiled_file::CompiledFile;
pub(crate) use compiled_file::{PartInfo, build_name};
pub use debug::minimize;
pub(crate) use debug::{bisect, compare};
pub(crate) use declared::declared_types;
pub use declared::input_types;
pub use function::Function;
pub use inputs::bind::{BoundInputs, Dims, Given, Provided, Value};
pub(crate) use inputs::bind::{CALL, COMMAND_LINE};
pub use inputs::fill::Fill;
pub(crate) use inputs::sequence::{CallSequence, stack_results};
pub(crate) use inputs::{bind, fill, limits, literal, sizes, state, types};
pub use interpret::interpret;
pub use limited::run_limited;
pub use load::LoadedModel;
pub use mend::mend_text;
pub use ready::{BufferState, Ready};
pub use reduce::{Failing, reduce};
pub(crate) use save::{SaveRequest, save_compiled};
pub(crate) use session::{MAX_THREADS, thread_count};
pub use session::{Reported, Session, Staged};
pub(crate) use show::{describe, diff, form, text};
pub use stage::Stage;
pub(crate) use stage::{Observer, StageProduct, Timer, lock_observer};
