//! Prints graphs as torch does, byte for byte: `print(graph)`, `print_tabular()`, `gm.code`, `print_readable()`.

pub mod codegen;
pub(super) mod form;
mod names;
pub mod print;
pub mod python;
pub mod readable;
pub mod tabular;

pub use crate::types::pyrepr;
