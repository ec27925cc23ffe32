//! The functions that kernels compute in place, rather than by a call for a group of elements.

use crate::scalar::{Binary, Unary};

/// Whether an f32 function of one number is computed in place.
pub(super) fn is_inline_unary(op: Unary) -> bool {
    use Unary::*;
    let polynomial = matches!(
        op,
        Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Tanh | Erf | Sigmoid
    );
    polynomial || has_unary_formula(op)
}

/// Whether an f32 function of one number is in `formulas`.
pub(super) fn has_unary_formula(op: Unary) -> bool {
    use Unary::*;
    matches!(
        op,
        Sin | Cos | Tan | Asin | Acos | Atan | Sinh | Cosh | Asinh | Acosh | Atanh | Erfc | Erfinv
    )
}

/// Whether an f64 function of one number is computed in place in kernels of wide vectors.
pub(super) fn is_inline_f64(op: Unary) -> bool {
    use Unary::*;
    matches!(op, Exp | Exp2 | Expm1 | Sigmoid | Log | Log1p)
}

/// Whether an f32 function of two numbers is in `formulas`.
pub(super) fn is_inline_binary(op: Binary) -> bool {
    matches!(op, Binary::Atan2 | Binary::Pow | Binary::Hypot)
}
