//! Presents the products of the stages to users and other programs: texts, diffs, graphs as JSON.

pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod form;
pub(super) mod json;
pub(super) mod model_explorer;
pub(super) mod netron;
pub(crate) mod text;
