//! Graphs and FXIR: [`build`] makes graphs of a file's syntax tree, [`print`] writes them as text that gives them back.

pub(super) mod build;
mod constants;
mod origins;
pub mod print;
mod script;
mod statements;
#[cfg(test)]
mod tests;

use crate::source::{FileId, Span};
use crate::syntax::ast::Name;

/// The place of what is printed and was in no file.
const NOWHERE: Span = Span {
    file: FileId(0),
    start: 0,
    end: 0,
};

fn unplaced_name(text: &str) -> Name {
    Name::new(text, NOWHERE)
}
