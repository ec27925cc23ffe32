//! The stages strung together: the only place that knows their order.
//!
//! ```text
//! path ─load─▶ Model ─check─▶ typed ─optimize─▶ canonical ─lower─▶ Program ─compile─▶ Executable
//! ```
//!
//! A [`Session`] holds what a run reads and finds; each of its methods is one stage. [`Observer`]s see every stage's
//! product. A [`Function`] is a model to be called at any sizes. Around it: tensors in files ([`files`]), inputs by name ([`bind`]), results compared ([`compare`]), and the
//! text of every stage ([`text`]).

pub mod bind;
pub mod bisect;
pub mod compare;
mod compile;
pub mod diff;
pub mod files;
pub mod fill;
mod function;
pub mod json;
pub mod limits;
pub mod load;
pub mod minimize;
pub mod model_explorer;
pub mod netron;
mod ready;
pub mod run;
mod session;
mod split;
mod stage;
pub mod text;

pub use bind::{Bound, Dims, Given, Provided, Value};
pub use compile::{Compilation, Request, compile, nothing_compiled};
pub use fill::Fill;
pub use function::{Called, Function};
pub use load::Model;
pub use ready::{Ready, State};
pub use session::{Reported, Session, Staged, input_types, thread_count};
pub use stage::{Observer, Product, Stage, Timer};
