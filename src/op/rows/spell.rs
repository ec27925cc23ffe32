//! The most common sets of spellings, and texts shared by several rows.

use crate::types::Dim;

/// A function of one tensor with a single overload: `aten.sin.default torch.sin Tensor.sin`.
macro_rules! one {
    ($n:literal) => {
        concat!("aten.", $n, ".default torch.", $n, " Tensor.", $n)
    };
}

/// The in-place form of `one!`.
macro_rules! one_ {
    ($n:literal) => {
        concat!("aten.", $n, "_.default torch.", $n, "_ Tensor.", $n, "_")
    };
}

/// An in-place form that is a method only: `aten.sign_.default Tensor.sign_`.
macro_rules! method_ {
    ($n:literal) => {
        concat!("aten.", $n, "_.default Tensor.", $n, "_")
    };
}

/// An op whose second operand may be a number: `aten.mul.Tensor aten.mul.Scalar torch.mul Tensor.mul`.
macro_rules! two {
    ($n:literal) => {
        concat!("aten.", $n, ".Tensor aten.", $n, ".Scalar torch.", $n, " Tensor.", $n)
    };
}

/// The in-place form of `two!`.
macro_rules! two_ {
    ($n:literal) => {
        concat!("aten.", $n, "_.Tensor aten.", $n, "_.Scalar Tensor.", $n, "_")
    };
}

/// `torch.special`'s name of an op.
macro_rules! special {
    ($n:literal) => {
        concat!("aten.special_", $n, ".default torch.special.", $n)
    };
}

/// A `format!`-ed text, for rows that differ in the number of dims. It is leaked because the table is never dropped.
macro_rules! text {
    ($($t:tt)*) => {
        &*format!($($t)*).leak()
    };
}

pub(super) use {method_, one, one_, special, text, two, two_};

/// Sizes in the notation of torch's messages: `[2, 3]`.
pub(in crate::op) fn list_text(v: &[Dim]) -> String {
    let parts: Vec<String> = v.iter().map(Dim::to_string).collect();
    format!("[{}]", parts.join(", "))
}
