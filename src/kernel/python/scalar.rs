//! Scalar operations as numpy expressions, each with its dtype's wrap-around and NaN semantics.

use super::numpy_dtype;
use crate::kernel::*;
use crate::scalar::{Unary, lower_case};

/// A scalar as a Python literal.
pub(super) fn print_scalar(s: Scalar) -> String {
    let float = |x: f64| match x {
        x if x.is_nan() => "math.nan".to_string(),
        x if x.is_infinite() => if x > 0.0 { "math.inf" } else { "-math.inf" }.to_string(),
        x => crate::types::write_float(x),
    };
    match s {
        Scalar::F64(x) => format!("np.float64({})", float(x)),
        // `{:?}` prints the shortest text that parses to the same f32.
        Scalar::F32(x) if x.is_finite() => format!("np.float32({x:?})"),
        Scalar::F32(x) => format!("np.float32({})", float(x as f64)),
        Scalar::Int(d, x) => format!("{}({x})", numpy_dtype(d)),
        Scalar::Bool(b) => format!("np.bool_({})", if b { "True" } else { "False" }),
        Scalar::Half(DType::F16, x) => format!("np.float16({})", float(x as f64)),
        Scalar::Half(_, x) => format!("to_bf16(np.float32({}))", float(x as f64)),
    }
}

pub(super) fn print_cast(from: DType, to: DType, x: u32) -> String {
    match (from, to) {
        (DType::BF16, DType::F32) => format!("from_bf16(v{x})"),
        (DType::BF16, _) => print_cast_of(DType::F32, to, &format!("from_bf16(v{x})")),
        (_, DType::BF16) => format!("to_bf16(np.asarray(v{x}).astype(np.float32))"),
        _ => print_cast_of(from, to, &format!("v{x}")),
    }
}

pub(super) fn print_cast_of(from: DType, to: DType, x: &str) -> String {
    let d = numpy_dtype(to);
    if to == DType::B8 {
        return format!("({x} != 0)");
    }
    if to.is_int() && from.is_float() {
        return format!("to_int({x}, {d})");
    }
    format!("np.asarray({x}).astype({d})[()]")
}

pub(super) fn print_unary(op: Unary, x: u32, d: DType) -> String {
    let int = !d.is_float();
    match op {
        // Arrays of bf16 hold bits.
        Unary::Neg if d == DType::BF16 => format!("v{x} ^ np.uint16(0x8000)"),
        Unary::Abs if d == DType::BF16 => format!("v{x} & np.uint16(0x7FFF)"),
        Unary::Neg => format!("-v{x}"),
        Unary::Not | Unary::BitNot => format!("~v{x}"),
        Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc if int => format!("v{x}"),
        Unary::SignBit if int => format!("v{x} < 0"),
        Unary::IsNan | Unary::IsInf if int => format!("v{x} != v{x}"),
        Unary::Sign | Unary::Abs if d == DType::B8 => format!("v{x}"),
        Unary::Sign if int => format!("np.sign(v{x})"),
        Unary::I0 | Unary::I0e | Unary::I1 | Unary::I1e => format!("bessel_{}(v{x})", lower_case(op)),
        Unary::Rsqrt => format!("{}(1) / np.sqrt(v{x})", numpy_dtype(d)),
        Unary::Recip => format!("{}(1) / v{x}", numpy_dtype(d)),
        _ => match numpy_function(op) {
            Some(name) => format!("np.{name}(v{x})"),
            // The prelude defines the others.
            None => format!("{}(v{x})", lower_case(op)),
        },
    }
}

/// The numpy function that computes `op`, if there is one.
fn numpy_function(op: Unary) -> Option<&'static str> {
    Some(match op {
        Unary::Abs => "abs",
        Unary::Floor => "floor",
        Unary::Ceil => "ceil",
        Unary::Round => "rint",
        Unary::Trunc => "trunc",
        Unary::Sqrt => "sqrt",
        Unary::Exp => "exp",
        Unary::Exp2 => "exp2",
        Unary::Expm1 => "expm1",
        Unary::Log => "log",
        Unary::Log2 => "log2",
        Unary::Log10 => "log10",
        Unary::Log1p => "log1p",
        Unary::Sin => "sin",
        Unary::Cos => "cos",
        Unary::Tan => "tan",
        Unary::Asin => "arcsin",
        Unary::Acos => "arccos",
        Unary::Atan => "arctan",
        Unary::Sinh => "sinh",
        Unary::Cosh => "cosh",
        Unary::Tanh => "tanh",
        Unary::Asinh => "arcsinh",
        Unary::Acosh => "arccosh",
        Unary::Atanh => "arctanh",
        Unary::IsNan => "isnan",
        Unary::IsInf => "isinf",
        Unary::SignBit => "signbit",
        _ => return None,
    })
}

pub(super) fn print_binary(op: Binary, x: u32, y: u32, d: DType) -> String {
    let infix = |s: &str| format!("v{x} {s} v{y}");
    let call = |s: &str| format!("{s}(v{x}, v{y})");
    let float = d.is_float();
    match op {
        Binary::Add => infix(if d == DType::B8 { "|" } else { "+" }),
        Binary::Sub => infix("-"),
        Binary::Mul => infix(if d == DType::B8 { "&" } else { "*" }),
        Binary::Div => infix("/"),
        Binary::FloorDiv if float => call("floor_div"),
        Binary::FloorDiv => infix("//"),
        Binary::TruncDiv => call("trunc_div"),
        Binary::Mod if float => call("modulo"),
        Binary::Mod => infix("%"),
        Binary::Fmod => call("np.fmod"),
        Binary::Pow if d == DType::B8 => format!("v{x} | ~v{y}"),
        Binary::Pow => call(if float { "np.power" } else { "pow_int" }),
        Binary::Atan2 => call("np.arctan2"),
        Binary::Max if float => call("maximum"),
        Binary::Min if float => call("minimum"),
        Binary::Max | Binary::Fmax if d != DType::B8 => call(if float { "fmax" } else { "np.maximum" }),
        Binary::Min | Binary::Fmin if d != DType::B8 => call(if float { "fmin" } else { "np.minimum" }),
        Binary::Max | Binary::Fmax | Binary::Or => infix("|"),
        Binary::Min | Binary::Fmin | Binary::And => infix("&"),
        Binary::Xor => infix("^"),
        Binary::Shl => call("shift_left"),
        Binary::Shr => call("shift_right"),
        Binary::Copysign if d == DType::BF16 => format!("(v{x} & np.uint16(0x7FFF)) | (v{y} & np.uint16(0x8000))"),
        Binary::Copysign => call("np.copysign"),
        Binary::Hypot => call("np.hypot"),
        Binary::Nextafter => call("np.nextafter"),
        Binary::Gcd => call("gcd"),
        Binary::Zeta => call("zeta"),
    }
}
