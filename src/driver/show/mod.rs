//! What the stages make, for people and for other programs: texts, differences, JSON of graphs.

pub mod diff;
pub mod form;
pub mod json;
pub mod model_explorer;
pub mod netron;
pub mod text;
