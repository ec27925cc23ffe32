//! Finds the cause of a wrong result.

pub mod bisect;
pub mod compare;
pub mod minimize;
