//! The exact text form of kernels. Tests of code generation are written in it.
//!
//! ```text
//! kernel softmax
//! in x: f32[4, 8]
//! out y: f32[4, 8]
//! local row: f32[8]
//! parallel for i0 in 4 {
//!     v0: f32 = f32(-inf)
//!     vector for i1 in 8 {
//!         v1: f32 = x[8 * i0 + i1]
//!         reduce max v1 from v0 to v2: f32
//!     }
//!     v3: f32 = f32(0.0)
//!     vector for i2 in 8 {
//!         v4: f32 = x[8 * i0 + i2]
//!         v5: f32 = sub(v4, v2)
//!         v6: f32 = exp(v5) share
//!         row[i2] = v6
//!         reduce add v6 from v3 to v7: f32
//!     }
//!     vector for i3 in 8 {
//!         v8: f32 = row[i3]
//!         v9: f32 = div(v8, v7)
//!         y[8 * i0 + i3] = v9
//!     }
//! }
//! ```
//!
//! Each line is a buffer, a definition, a store, or part of a loop. The `reduce` and `carry` lines in a loop's braces
//! are the loop's results. Operations have the names of [`scalar::text`](crate::scalar::text). Three forms exist only
//! in kernels: `bounded(v3, 100, check)`, `index 8 * i0 + 3`, and `x[i0 - 1] where 0 <= i0 - 1 < 8 else f32(0.0)`.
//! `v1: f32 @relu` was computed for the node `relu`, and `share` marks [`Kernel::shares`](super::Kernel::shares), as
//! `flush` does [`Kernel::flushing`](super::Kernel::flushing). `//` starts a comment. [`python`](super::python) is the runnable form of kernels.

mod cursor;
mod parse;
mod print;
#[cfg(test)]
mod tests;

pub(crate) use parse::IrTextError;
