//! The scalar operations that expressions and kernels share.

use super::parse::names::{BINARY, INFIX, Infix, UNARY};
use super::{Binary, Compare, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An operation on values of type `V`: a [`Ref`](super::Ref) of an expression, a value of a kernel, or a [`Scalar`]
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum ScalarOp<V> {
    /// A constant of its own dtype.
    Const(Scalar),
    /// A function of one value.
    Unary(Unary, V),
    /// A function of two values of the same dtype.
    Binary(Binary, V, V),
    /// A comparison of two values of the same dtype.
    Compare(Compare, V, V),
    /// `a * b + c`, rounded once if the target can, otherwise twice. Used only where torch leaves the rounding open.
    Fma(V, V, V),
    /// `cond ? a : b`. `cond` is b8; `a` and `b` have the same dtype.
    Select(V, V, V),
    /// A conversion with torch's cast semantics.
    Cast(DType, V),
}

impl<V: Copy> ScalarOp<V> {
    /// The operands, in order.
    pub fn operands(&self) -> impl Iterator<Item = V> + use<V> {
        let all = match *self {
            ScalarOp::Const(_) => [None; 3],
            ScalarOp::Unary(_, x) | ScalarOp::Cast(_, x) => [Some(x), None, None],
            ScalarOp::Binary(_, x, y) | ScalarOp::Compare(_, x, y) => [Some(x), Some(y), None],
            ScalarOp::Fma(x, y, z) | ScalarOp::Select(x, y, z) => [Some(x), Some(y), Some(z)],
        };
        all.into_iter().flatten()
    }

    /// The same operation on other values, such as those of a kernel in place of those of an expression.
    pub fn map<W>(self, mut f: impl FnMut(V) -> W) -> ScalarOp<W> {
        match self {
            ScalarOp::Const(s) => ScalarOp::Const(s),
            ScalarOp::Unary(op, x) => ScalarOp::Unary(op, f(x)),
            ScalarOp::Binary(op, x, y) => ScalarOp::Binary(op, f(x), f(y)),
            ScalarOp::Compare(op, x, y) => ScalarOp::Compare(op, f(x), f(y)),
            ScalarOp::Fma(x, y, z) => ScalarOp::Fma(f(x), f(y), f(z)),
            ScalarOp::Select(c, x, y) => ScalarOp::Select(f(c), f(x), f(y)),
            ScalarOp::Cast(d, x) => ScalarOp::Cast(d, f(x)),
        }
    }

    /// The dtype of the result, given the dtypes of the operands.
    pub fn result_dtype(&self, dtype_of: impl Fn(V) -> DType) -> DType {
        match *self {
            ScalarOp::Const(s) => s.dtype(),
            ScalarOp::Unary(Unary::IsNan | Unary::IsInf | Unary::SignBit | Unary::Not, _) => DType::B8,
            ScalarOp::Compare(..) => DType::B8,
            ScalarOp::Cast(to, _) => to,
            ScalarOp::Unary(_, x) | ScalarOp::Binary(_, x, _) | ScalarOp::Fma(x, ..) | ScalarOp::Select(_, x, _) => {
                dtype_of(x)
            }
        }
    }

    /// The operation as numbers, with `number` applied to its operands. Equal operations have equal numbers. Floats
    /// compare by their bits, so 0.0 and -0.0 differ and NaN equals itself.
    pub fn key(&self, number: impl Fn(V) -> u64) -> [u64; 4] {
        let n = number;
        match *self {
            ScalarOp::Const(s) => [0, s.dtype() as u64, s.bits(), 0],
            ScalarOp::Unary(op, x) => [1 + (op as u64) * 8, n(x), 0, 0],
            ScalarOp::Binary(op, x, y) => [2 + (op as u64) * 8, n(x), n(y), 0],
            ScalarOp::Compare(op, x, y) => [3 + (op as u64) * 8, n(x), n(y), 0],
            ScalarOp::Fma(x, y, z) => [4, n(x), n(y), n(z)],
            ScalarOp::Select(c, x, y) => [5, n(c), n(x), n(y)],
            ScalarOp::Cast(d, x) => [6 + (d as u64) * 8, n(x), 0, 0],
        }
    }

    /// The name in the text forms of tensor IR and kernel IR: `add`, `isnan`, `fma`, `f32.cast`. Constants have another
    /// form.
    pub fn mnemonic(&self) -> String {
        match self {
            ScalarOp::Const(_) => "const".into(),
            ScalarOp::Unary(op, _) => lower_case(op),
            ScalarOp::Binary(op, ..) => lower_case(op),
            ScalarOp::Compare(op, ..) => lower_case(op),
            ScalarOp::Fma(..) => "fma".into(),
            ScalarOp::Select(..) => "select".into(),
            ScalarOp::Cast(d, _) => format!("{d}.cast"),
        }
    }

    /// The operation with this [`ScalarOp::mnemonic`] on these operands. `None` if there is none with this number of
    /// operands.
    pub fn from_mnemonic(name: &str, operands: &[V]) -> Option<ScalarOp<V>> {
        Some(match *operands {
            [x] => match name.strip_suffix(".cast") {
                Some(d) => ScalarOp::Cast(DType::from_short(d)?, x),
                None => ScalarOp::Unary(find_unary(name)?, x),
            },
            [x, y] => match Compare::ALL.into_iter().find(|op| lower_case(op) == name) {
                Some(op) => ScalarOp::Compare(op, x, y),
                None => ScalarOp::Binary(find_binary(name)?, x, y),
            },
            [x, y, z] if name == "fma" => ScalarOp::Fma(x, y, z),
            [c, x, y] if name == "select" => ScalarOp::Select(c, x, y),
            _ => return None,
        })
    }
}

/// A variant's name in lower case, as in the text forms.
pub(crate) fn lower_case(op: impl fmt::Debug) -> String {
    format!("{op:?}").to_lowercase()
}

fn find_unary(name: &str) -> Option<Unary> {
    let all = UNARY.iter().map(|u| u.1).chain([Unary::Not, Unary::BitNot]);
    all.into_iter().find(|op| lower_case(op) == name)
}

fn find_binary(name: &str) -> Option<Binary> {
    let infix = INFIX.iter().filter_map(|i| match i.2 {
        Infix::Binary(op) => Some(op),
        Infix::Compare(_) => None,
    });
    let all = BINARY.iter().map(|b| b.1).chain(infix);
    all.into_iter().find(|op| lower_case(op) == name)
}
