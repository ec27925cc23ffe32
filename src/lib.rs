//! fxc: the optimizing compiler for torch.fx graphs.
//!
//! ```
//! use fxc::{Model, Options, Tensor};
//!
//! let model = Model::from_text("graph main { %x : f32[N] = placeholder x  %y = call_function torch.relu(%x)  output %y }")?;
//! let compiled = model.compile(&Options::new())?;
//! let out = compiled.run([Tensor::from_slice(&[2], &[-1.0f32, 2.0]).into()])?;
//! assert_eq!(out[0].as_slice::<f32>(), [0.0, 2.0]);
//! # Ok::<(), fxc::Error>(())
//! ```
//!
//! [`Model`], [`Compiled`] and [`Session`] run models. [`graph`], [`pass`] and [`rewrite`] build and change graphs as
//! torch.fx does; [`infer`] and [`interp`] correspond to its shape propagation and its `Interpreter`; [`custom`] adds
//! ops. The rest of the crate is the compiler, which has no stable API:
//!
//! ```text
//!   text ──syntax::parse──▶ AST ──graph::build──▶ GraphModule ──infer──▶ typed ──pass::optimize──▶ canonical
//!   .pt2 ──import::read_pt2──────────────────────────▲              │                                 │
//!                                                                   ▼                                 ▼
//!                                                             interp::run                       lower::lower
//!                                                             (the oracle)                            │
//!                                                                                                     ▼
//!                                       Executable ◀──compile_kernels─── kernels ─┐            Program of steps
//!                                       (runtime)  ◀──math::Library───── contractions ─┴───────────────┘
//! ```
//!
//! **Reading.** FXIR ([`syntax`]) is torch.fx as a file. The text that torch itself prints is FXIR too. `.pt2`
//! archives ([`import`]) contain a graph with its weights. Both become a [`graph::GraphModule`]: torch.fx's `Graph`
//! of six opcodes with its editing API, and everything that the graph refers to.
//!
//! **Checking.** [`graph`] lints the structure. [`infer`] determines the type of every node by running the graph on
//! types: its values are [`types::Val`] around tensor *types*, and sizes are symbolic ([`types::Dim`]). Each problem
//! becomes a [`diag::Diagnostic`]; one run reports all of them.
//!
//! **Meaning.** Everything about an operation is in one row of the table in [`op`]: its schema, its spellings, its
//! type rule and its computation, in one of a few forms. The form of pointwise ops is a [`scalar::ScalarExpr`]. The
//! interpreter ([`interp`]) runs graphs directly from these meanings, node by node; it is the oracle that all later
//! stages are tested against.
//!
//! **Optimising.** [`pass`] rewrites graphs into canonical ones: no module calls, no in-place writes, one spelling.
//! Most simplifications are rules written in FXIR, which [`rewrite`] matches and applies, as it does users' rules.
//! [`pass::tutorial`] has programs for the tasks of the torch.fx tutorials, and [`pass::features`] lists where to
//! find each feature of torch.fx.
//!
//! **Lowering.** [`lower`] turns a canonical graph with known sizes into a program. Pointwise values and reductions
//! are fused into [`kernel`]s (loop nests that print as runnable Python), views become strides, [`math`] computes
//! matrix products and convolutions, and intermediate buffers share one arena.
//!
//! **Running.** [`codegen`] generates machine code for the kernels with Cranelift, in about a tenth of a millisecond
//! each. [`runtime`] owns memory and threads ([`parallel`]).
//!
//! **Running without the compiler.** With the feature `runtime` instead of `compiler`, the library consists of
//! [`Runner`], which runs compiled models. The modules of the compiler are marked below.
//!
//! `docs/tour.md` follows one graph through these stages. `ARCHITECTURE.md` describes the invariants of each
//! representation, and how to add an op or a pass.

// Unsafe code is limited to modules that handle addresses: machine code, memory, threads and vectors.
#![deny(unsafe_code)]
// Some items in the modules of a runtime build are used only by the compiler, others only by the command line.
#![cfg_attr(not(feature = "cli"), allow(dead_code, unused_imports))]
// Items are `pub` only if other crates can reach them.
#![cfg_attr(feature = "compiler", warn(unreachable_pub))]
// The public documentation links to the compiler's internals.
#![allow(rustdoc::private_intra_doc_links)]

#[cfg(feature = "compiler")]
mod api;
#[allow(unsafe_code)]
mod artifact;
mod budget;
#[cfg(feature = "cli")]
mod cli;
#[allow(unsafe_code)]
mod code;
#[cfg(feature = "compiler")]
#[allow(unsafe_code)]
mod codegen;
mod control;
pub mod diag;
#[cfg(feature = "compiler")]
mod driver;
mod fs;
#[cfg(feature = "compiler")]
pub mod graph;
#[cfg(feature = "compiler")]
mod import;
#[cfg(feature = "compiler")]
pub mod infer;
#[cfg(feature = "compiler")]
pub mod interp;
mod kernel;
#[cfg(feature = "compiler")]
mod linalg;
#[cfg(feature = "compiler")]
mod lower;
#[allow(unsafe_code)]
mod math;
#[cfg(feature = "compiler")]
mod op;
#[allow(unsafe_code)]
mod parallel;
#[cfg(feature = "compiler")]
pub mod pass;
mod program;
#[cfg(feature = "compiler")]
pub mod rewrite;
mod runner;
#[allow(unsafe_code)]
mod runtime;
mod scalar;
pub mod source;
#[cfg(feature = "compiler")]
mod syntax;
mod target;
#[allow(unsafe_code)]
mod tensor;
pub mod types;

#[cfg(feature = "compiler")]
pub use api::{
    Compiled, Error, GenerateOptions, GenerateStats, Generation, Input, Model, Options, Outputs, Session, ValueInfo,
};
pub use budget::Limits;
pub use math::contract::Precision;
pub use parallel::CancelToken;
pub use runner::{Runner, RunnerError, RunnerOptions};
pub use tensor::{BlockAllocator, CountingAllocator, Element, LayoutError, Scalar, Tensor, View, ViewMut};

#[cfg(feature = "compiler")]
pub use driver::finish_cache_writes as flush_cache;
#[cfg(feature = "compiler")]
pub use driver::minimize;
#[cfg(feature = "compiler")]
pub use op::random::seed as manual_seed;
#[cfg(feature = "compiler")]
pub use target::Target;

/// The examples of docs/embedding.md, which the tests run.
#[cfg(all(doctest, feature = "compiler"))]
#[doc = include_str!("../docs/embedding.md")]
mod embedding {}

#[cfg(feature = "compiler")]
/// Custom ops in Rust: a schema, a type rule and a computation, which every stage uses like a row of the table.
pub mod custom {
    pub use crate::op::custom::{CustomOp, register, registered_ops};
    pub use crate::op::{Call, Op, OpError, OpResult, Sizes};
}

#[cfg(feature = "compiler")]
#[doc(hidden)]
pub mod internals;
