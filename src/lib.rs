//! fxc: the optimizing compiler for torch.fx graphs.
//!
//! ```text
//!   text ──syntax::parse──▶ AST ──graph::build──▶ GraphModule ──infer──▶ typed ──pass::optimize──▶ canonical
//!   .pt2 ──import::read_pt2──────────────────────────▲              │                                 │
//!                                                                   ▼                                 ▼
//!                                                             interp::run                       lower::lower
//!                                                             (the oracle)                            │
//!                                                                                                     ▼
//!                                       Executable ◀──codegen::compile── kernels ─┐            Program of steps
//!                                       (runtime)  ◀──math::Library───── contractions ─┴───────────────┘
//! ```
//!
//! **Reading.** FXIR ([`syntax`]) is torch.fx as a file; what torch itself prints is FXIR too. `.pt2` archives
//! ([`import`]) hold a graph with its weights. Both become a [`graph::GraphModule`]: torch.fx's `Graph` of six opcodes, with its
//! editing API, and what the graph refers to.
//!
//! **Checking.** [`graph`] lints the structure; [`infer`] gives every node a type, by running the graph on types: the
//! values it computes with are [`types::Val`] around tensor *types*, and sizes are symbolic ([`types::Dim`]). What is wrong becomes
//! a [`diag::Diagnostic`], all of it in one run.
//!
//! **Meaning.** What an operation is stands in one row of the table in [`op`]: its schema, its spellings, its type rule and
//! what it computes, in one of a few forms. Pointwise ops mean a [`scalar::Expr`]. The interpreter ([`interp`]) runs graphs straight
//! from these meanings, node by node; it is the oracle that everything after it is tested against.
//!
//! **Optimising.** [`pass`] rewrites graphs into canonical ones: no module calls, no in-place writes, one spelling. Most
//! simplifications are rules written in FXIR, which [`rewrite`] matches and applies; a user's own rules go the same way.
//! [`pass::tutorial`] shows the tasks of the torch.fx tutorials as programs, [`pass::features`] says where each feature of
//! torch.fx is.
//!
//! **Lowering.** [`lower`] turns a canonical graph with known sizes into a program: pointwise values and reductions fuse into
//! [`kernel`]s (loop nests that print as runnable Python), views become strides, matrix products and convolutions go to
//! [`math`], intermediate buffers share one arena.
//!
//! **Running.** [`codegen`] makes machine code of the kernels with Cranelift, in about a tenth of a millisecond each;
//! [`runtime`] owns memory and threads ([`parallel`]).
//!
//! `docs/tour.md` follows one graph through these stages; `ARCHITECTURE.md` tells the invariants of each representation and how
//! to add an op or a pass.

// Unsafe code stands where there are addresses: in the code that is made and run, in memory, in threads, in vectors.
#![deny(unsafe_code)]

pub mod cli;
#[allow(unsafe_code)]
pub mod code;
#[allow(unsafe_code)]
pub mod codegen;
pub mod control;
pub mod diag;
pub mod driver;
pub mod graph;
pub mod import;
pub mod infer;
pub mod interp;
pub mod kernel;
pub mod lower;
#[allow(unsafe_code)]
pub mod math;
pub mod op;
#[allow(unsafe_code)]
pub mod parallel;
pub mod pass;
pub mod program;
pub mod rewrite;
#[allow(unsafe_code)]
pub mod runtime;
pub mod scalar;
pub mod source;
pub mod syntax;
#[allow(unsafe_code)]
pub mod tensor;
pub mod types;
