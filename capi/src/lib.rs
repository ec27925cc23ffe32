//! The C API.
//!
//! Each function of `include/fxc.h` checks its pointers, catches panics so that they cannot cross into C, and returns
//! an [`fxc_status`](status::fxc_status). The error message is the calling thread's last error. Objects are opaque.
//! The function whose name ends in `_free` frees them and accepts NULL.

// C naming conventions.
#![allow(non_camel_case_types)]

mod compiled;
mod model;
mod options;
mod outputs;
mod session;
mod status;
mod tensor;
