//! Graphs and FXIR: [`build`] makes graphs of a file's syntax tree, [`print`] writes them as text that gives them back.

pub mod build;
mod constants;
mod origins;
pub mod print;
mod script;
mod statements;
#[cfg(test)]
mod tests;
