//! Text to syntax tree and back.
//!
//! [`parse()`] reads a file: FXIR through [`lexer`], `slips` (which mends what people often get wrong), [`delimiters`] (which balances brackets and limits depth) and the
//! LALRPOP grammar of `grammar/fxir.lalrpop`, where statements alone are a graph (`bare`); torch's own texts, alone or pasted among FXIR, through [`torch_text`]
//! (`print(graph)`), `module_repr` (the modules before `print(gm)`), [`python_text`] (`gm.code`, `print_readable()`, `print(exported_program)`) and [`torchscript`]
//! (`torch.jit`'s graphs); what was pasted with them is taken off by `pasted`. All give the same tree, [`ast`]. [`format()`] writes a tree in canonical form with its comments;
//! [`resolve`] turns types, sizes and values of the tree into those of [`crate::types`].

mod actions;
pub mod ast;
mod bare;
mod check;
mod clean;
pub mod delimiters;
mod errors;
pub mod format;
pub mod lexer;
mod module_repr;
mod names;
pub mod parse;
mod pasted;
mod plain;
pub mod python_text;
#[cfg(test)]
mod random;
pub mod resolve;
mod signs;
mod slips;
mod spans;
pub mod token;
pub mod torch_text;
pub mod torchscript;
pub mod write;

pub use format::format;
pub use parse::{parse, parse_text, parse_type, parse_value};

#[cfg(test)]
use parse::parse_unchecked;
