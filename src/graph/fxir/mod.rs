//! Conversion between graphs and FXIR: [`build`] makes graphs from a file's syntax tree, and [`print`] writes them as
//! text from which `build` restores them.

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

/// The span of printed items, which come from no file.
const NOWHERE: Span = Span {
    file: FileId(0),
    start: 0,
    end: 0,
};

fn unplaced_name(text: &str) -> Name {
    Name::new(text, NOWHERE)
}
