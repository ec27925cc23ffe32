//! fxc: the optimizing compiler for torch.fx graphs.

pub mod diag;
pub mod op;
pub mod scalar;
pub mod source;
pub mod tensor;
pub mod types;
