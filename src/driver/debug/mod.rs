//! Finds the cause of a wrong result.

pub(crate) mod bisect;
pub(crate) mod compare;
pub mod minimize;
