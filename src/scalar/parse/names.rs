//! The operators and functions of the language, and the dtypes that each is defined for.

use crate::scalar::{Binary, Compare, Unary};
use crate::types::{Category, DType};

/// An infix operator.
#[derive(Clone, Copy, Debug)]
pub(in crate::scalar) enum Infix {
    Compare(Compare),
    Binary(Binary),
}

/// Operators, longer spellings first: text, binding power (comparisons lowest), meaning.
pub(in crate::scalar) const INFIX: &[(&str, u8, Infix)] = &[
    ("**", 9, Infix::Binary(Binary::Pow)),
    ("//", 7, Infix::Binary(Binary::FloorDiv)),
    ("<<", 5, Infix::Binary(Binary::Shl)),
    (">>", 5, Infix::Binary(Binary::Shr)),
    ("<=", 1, Infix::Compare(Compare::Le)),
    (">=", 1, Infix::Compare(Compare::Ge)),
    ("==", 1, Infix::Compare(Compare::Eq)),
    ("!=", 1, Infix::Compare(Compare::Ne)),
    ("<", 1, Infix::Compare(Compare::Lt)),
    (">", 1, Infix::Compare(Compare::Gt)),
    ("*", 7, Infix::Binary(Binary::Mul)),
    ("/", 7, Infix::Binary(Binary::Div)),
    ("%", 7, Infix::Binary(Binary::Mod)),
    ("+", 6, Infix::Binary(Binary::Add)),
    ("-", 6, Infix::Binary(Binary::Sub)),
    ("&", 4, Infix::Binary(Binary::And)),
    ("^", 3, Infix::Binary(Binary::Xor)),
    ("|", 2, Infix::Binary(Binary::Or)),
];

/// Binding power of unary `-`, `+`, `~`: below `**`, above `*`.
pub(super) const PREFIX_POWER: u8 = 8;

pub(in crate::scalar) const UNARY: &[(&str, Unary)] = &[
    ("neg", Unary::Neg),
    ("abs", Unary::Abs),
    ("sign", Unary::Sign),
    ("floor", Unary::Floor),
    ("ceil", Unary::Ceil),
    ("round", Unary::Round),
    ("trunc", Unary::Trunc),
    ("sqrt", Unary::Sqrt),
    ("rsqrt", Unary::Rsqrt),
    ("recip", Unary::Recip),
    ("exp", Unary::Exp),
    ("exp2", Unary::Exp2),
    ("expm1", Unary::Expm1),
    ("log", Unary::Log),
    ("log2", Unary::Log2),
    ("log10", Unary::Log10),
    ("log1p", Unary::Log1p),
    ("sin", Unary::Sin),
    ("cos", Unary::Cos),
    ("tan", Unary::Tan),
    ("asin", Unary::Asin),
    ("acos", Unary::Acos),
    ("atan", Unary::Atan),
    ("sinh", Unary::Sinh),
    ("cosh", Unary::Cosh),
    ("tanh", Unary::Tanh),
    ("asinh", Unary::Asinh),
    ("acosh", Unary::Acosh),
    ("atanh", Unary::Atanh),
    ("erf", Unary::Erf),
    ("erfc", Unary::Erfc),
    ("erfcx", Unary::Erfcx),
    ("erfinv", Unary::Erfinv),
    ("lgamma", Unary::Lgamma),
    ("digamma", Unary::Digamma),
    ("bessel_i0", Unary::I0),
    ("bessel_i0e", Unary::I0e),
    ("bessel_i1", Unary::I1),
    ("bessel_i1e", Unary::I1e),
    ("ndtri", Unary::Ndtri),
    ("sigmoid", Unary::Sigmoid),
    ("isnan", Unary::IsNan),
    ("isinf", Unary::IsInf),
    ("signbit", Unary::SignBit),
];

pub(in crate::scalar) const BINARY: &[(&str, Binary)] = &[
    ("truncdiv", Binary::TruncDiv),
    ("fmod", Binary::Fmod),
    ("pow", Binary::Pow),
    ("atan2", Binary::Atan2),
    ("max", Binary::Max),
    ("min", Binary::Min),
    ("fmax", Binary::Fmax),
    ("fmin", Binary::Fmin),
    ("copysign", Binary::Copysign),
    ("hypot", Binary::Hypot),
    ("nextafter", Binary::Nextafter),
    ("gcd", Binary::Gcd),
    ("zeta", Binary::Zeta),
];

/// Whether `op` is defined for dtypes of this category.
pub(super) fn binary_defined(op: Binary, c: Category) -> bool {
    use Binary::*;
    match c {
        Category::Float => !matches!(op, And | Or | Xor | Shl | Shr | Gcd),
        Category::Int => !matches!(op, Div | Atan2 | Copysign | Hypot | Nextafter | Zeta),
        Category::Bool => matches!(op, Add | Mul | Max | Min | Fmax | Fmin | And | Or | Xor | Pow),
        Category::Complex => false,
    }
}

pub(super) fn unary_defined(op: Unary, c: Category) -> bool {
    use Unary::*;
    match op {
        IsNan | IsInf | SignBit => c != Category::Complex,
        Neg => matches!(c, Category::Int | Category::Float),
        Abs | Sign => c != Category::Complex,
        Floor | Ceil | Round | Trunc => matches!(c, Category::Int | Category::Float),
        Not => c == Category::Bool,
        BitNot => matches!(c, Category::Int | Category::Bool),
        _ => c == Category::Float,
    }
}

/// The largest finite number of a dtype.
pub(super) fn largest_finite(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::F32 => f32::MAX as f64,
        DType::F16 => 65504.0,
        DType::BF16 => half::bf16::MAX.to_f64(),
        DType::B8 => 1.0,
        d => ((1i128 << (8 * d.size() - (d != DType::U8) as usize)) - 1) as f64,
    }
}

pub(super) fn name_of(op: Binary) -> String {
    let infix = INFIX.iter().find(|(_, _, i)| matches!(i, Infix::Binary(b) if *b == op));
    infix.map_or_else(|| format!("{op:?}").to_lowercase(), |i| i.0.to_string())
}
