//! Finding what is to blame for a wrong result.

pub mod bisect;
pub mod compare;
pub mod minimize;
