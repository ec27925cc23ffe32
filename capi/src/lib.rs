//! fxc for C.
//!
//! Each function of `include/fxc.h` checks its pointers, does its work where a panic cannot cross into C, and says how it ended as an
//! [`fxc_status`](status::fxc_status); what went wrong is the calling thread's last error. Objects are opaque, and freed by the
//! function of their name that ends in `_free`, which takes NULL too.

// The names are those of the C header.
#![allow(non_camel_case_types)]

mod compiled;
mod model;
mod options;
mod outputs;
mod session;
mod status;
mod tensor;
