//! Tensor IR as text: printed by `fxc compile --emit tir`, and read back for tests.
//!
//! ```text
//! %x: f32[4, 64] = input 0
//! %max: f32[4, 1] = max(%x) dims=[1]
//! %shifted: f32[4, 64] = map(%x, %max) { sub(a0, a1) }
//! %flat: f32[256] = reshape(%shifted)
//! return %flat
//! ```
//!
//! A value has the name of the graph node that it was created for; a node's second value is `%x#1`. Parameters of an
//! operation follow its operands as `key=value`. Scalar expressions ([`scalar::text`](crate::scalar::text)) are in
//! braces. A view by affine indices lists an index for each dim of its operand, in terms of the result's dims:
//! `affine(%x) at=[d1, 3+2*d0]`. `//` starts a comment. Values of constants, and calls of routines with their graphs,
//! are printed but cannot be parsed.

mod parse;
mod print;
mod special;
#[cfg(test)]
mod tests;
