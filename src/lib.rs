//! fxc: the optimizing compiler for torch.fx graphs.

pub mod diag;
pub mod graph;
pub mod infer;
pub mod interp;
pub mod kernel;
pub mod math;
pub mod op;
pub mod parallel;
pub mod scalar;
pub mod source;
pub mod syntax;
pub mod tensor;
pub mod types;
