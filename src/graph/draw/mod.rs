//! Graphs as pictures: Graphviz's dot, as torch draws it, and SVG with a layout of its own.

pub mod dot;
pub mod layout;
pub mod svg;
