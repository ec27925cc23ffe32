//! The user's files: how fxc opens the files that it is given, and how it writes those that it is asked for.
//!
//! No other module creates or opens them (a test holds this), so the promises are made in one place. An output is
//! complete or absent ([`OutputFile`]). An input is a regular file ([`open_regular`]), or a text that is read up to a
//! limit ([`open_text`]).

mod input;
mod output;
#[cfg(test)]
mod tests;

pub(crate) use input::{in_folders, is_stream, open_regular, open_text};
pub(crate) use output::{OutputFile, is_temporary, write};
#[cfg(feature = "cli")]
pub(crate) use output::{abandon_outputs, write_new};
