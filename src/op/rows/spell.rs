//! The spellings that most ops have.

/// An op with one overload: `aten.sin.default torch.sin Tensor.sin`.
macro_rules! one {
    ($n:literal) => {
        concat!("aten.", $n, ".default torch.", $n, " Tensor.", $n)
    };
}

/// Its in-place form.
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

/// Its in-place form.
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

pub(super) use {method_, one, one_, special, two, two_};
