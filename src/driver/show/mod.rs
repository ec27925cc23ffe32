//! Forms of the stages' products for people and other programs: texts, diffs, JSON of graphs.

pub mod diff;
pub mod form;
pub mod json;
pub mod model_explorer;
pub mod netron;
pub mod text;
