//! The parser and the formatter.
//!
//! [`parse()`] reads a file into a syntax tree ([`ast`]). FXIR passes through the tokenizer ([`lexer`]), `slips`
//! (repairs common mistakes), [`delimiters`] (balances brackets and limits the nesting depth) and the LALRPOP grammar
//! `grammar/fxir.lalrpop`; statements outside of a graph become one in `bare`. torch's own texts, alone or pasted among
//! FXIR, are read by [`torch_text`] (`print(graph)`), `module_repr` (the modules in `print(gm)`), [`python_text`]
//! (`gm.code`, `print_readable()`, `print(exported_program)`) and [`torchscript`] (`torch.jit`'s graphs); `pasted`
//! removes what was pasted around them. [`format()`] writes a tree in canonical form with its comments, and [`resolve`]
//! converts its types, sizes and values to those of [`crate::types`].

mod actions;
pub(crate) mod ast;
mod bare;
mod check;
mod clean;
pub(crate) mod delimiters;
mod errors;
pub mod format;
pub(crate) mod lexer;
mod module_repr;
mod names;
pub mod parse;
mod pasted;
mod plain;
pub(crate) mod python_text;
#[cfg(test)]
mod random;
pub(crate) mod resolve;
mod signs;
mod slips;
mod spans;
pub(crate) mod token;
pub(crate) mod torch_text;
pub(crate) mod torchscript;
pub(crate) mod write;

pub use format::format;
pub use parse::parse;
pub(crate) use parse::{parse_text, parse_type, parse_value};

#[cfg(test)]
use parse::parse_unchecked;
