//! Graph drawings: Graphviz's dot format, as torch draws it, and SVG with our own layout.

pub mod dot;
pub mod layout;
pub mod svg;
