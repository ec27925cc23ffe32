//! Presents the products of the stages to users and other programs: texts, diffs, graphs as JSON.

pub mod describe;
pub mod diff;
pub mod form;
pub mod json;
pub mod model_explorer;
pub mod netron;
pub mod text;
