//! The Rust API: open a model, compile it, run it.
//!
//! ```
//! use fxc::{Model, Options, Tensor};
//!
//! let model = Model::from_text("graph main { %x : f32[N, 2] = placeholder x  %y = call_function torch.neg(%x)  output %y }")?;
//! let compiled = model.compile(&Options::new().threads(1))?;
//! let x = Tensor::from_slice(&[1, 2], &[1.0f32, -2.0]);
//! let out = compiled.run([x.into()])?;
//! assert_eq!(out[0].as_slice::<f32>(), [-1.0, 2.0]);
//! # Ok::<(), fxc::Error>(())
//! ```
//!
//! A [`Model`] is a graph with its weights, as it was read or built. [`Compiled`] is its code, which is cheap to clone and callable from
//! as many threads as you like. A [`Session`] is a compiled model that remembers its buffers from call to call.
//! All failures are an [`Error`], which contains the diagnostics that the command line would print.

#[cfg(test)]
mod cache_tests;
mod compiled;
#[cfg(test)]
mod compiled_tests;
mod error;
mod generate;
mod graphs;
mod input;
#[cfg(test)]
mod memory_tests;
mod model;
#[cfg(feature = "ndarray")]
mod nd;
mod options;
mod output;
mod session;
#[cfg(test)]
mod target_tests;
#[cfg(test)]
mod tests;
mod worker;

pub use compiled::Compiled;
pub use error::Error;
pub use generate::{GenerateOptions, GenerateStats, Generation};
pub use input::Input;
pub use model::{Model, ValueInfo};
pub use options::Options;
pub use output::Outputs;
pub use session::Session;
