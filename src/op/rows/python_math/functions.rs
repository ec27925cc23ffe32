//! Functions of one float in Python's `math`.

use super::{host, of_float};
use crate::op::Op;

/// A function from one float to one float, with Python's errors if the result is not finite.
macro_rules! function {
    ($name:literal, $schema:literal, $paths:literal, $f:expr) => {
        host(($name, $schema), |c, _| of_float(c.get("a"), $f))
            .doc(concat!($schema, ", of a number"))
            .spelled($paths)
    };
}

pub(super) fn exponential_rows() -> Vec<Op> {
    vec![
        function!("math_exp", "exp(Any a) -> float", "math.exp", f64::exp),
        function!("math_exp2", "exp2(Any a) -> float", "math.exp2", f64::exp2),
        function!("math_expm1", "expm1(Any a) -> float", "math.expm1", f64::exp_m1),
        function!("math_log", "log(Any a) -> float", "math.log", log_except_zero(f64::ln)),
        function!(
            "math_log2",
            "log2(Any a) -> float",
            "math.log2 torch._sym_log2",
            log_except_zero(f64::log2)
        ),
        function!(
            "math_log10",
            "log10(Any a) -> float",
            "math.log10",
            log_except_zero(f64::log10)
        ),
        function!("math_log1p", "log1p(Any a) -> float", "math.log1p", f64::ln_1p),
    ]
}

pub(super) fn trigonometric_rows() -> Vec<Op> {
    vec![
        function!("math_sin", "sin(Any a) -> float", "math.sin torch._sym_sin", f64::sin),
        function!("math_cos", "cos(Any a) -> float", "math.cos torch._sym_cos", f64::cos),
        function!("math_tan", "tan(Any a) -> float", "math.tan torch._sym_tan", f64::tan),
        function!(
            "math_asin",
            "asin(Any a) -> float",
            "math.asin torch._sym_asin",
            f64::asin
        ),
        function!(
            "math_acos",
            "acos(Any a) -> float",
            "math.acos torch._sym_acos",
            f64::acos
        ),
        function!(
            "math_atan",
            "atan(Any a) -> float",
            "math.atan torch._sym_atan",
            f64::atan
        ),
    ]
}

pub(super) fn hyperbolic_rows() -> Vec<Op> {
    vec![
        function!(
            "math_sinh",
            "sinh(Any a) -> float",
            "math.sinh torch._sym_sinh",
            f64::sinh
        ),
        function!(
            "math_cosh",
            "cosh(Any a) -> float",
            "math.cosh torch._sym_cosh",
            f64::cosh
        ),
        function!(
            "math_tanh",
            "tanh(Any a) -> float",
            "math.tanh torch._sym_tanh",
            f64::tanh
        ),
        function!("math_asinh", "asinh(Any a) -> float", "math.asinh", libm::asinh),
        function!("math_acosh", "acosh(Any a) -> float", "math.acosh", |x| if x < 1.0 {
            f64::NAN
        } else {
            libm::acosh(x)
        }),
        function!(
            "math_atanh",
            "atanh(Any a) -> float",
            "math.atanh",
            |x: f64| if x.abs() < 1.0 { libm::atanh(x) } else { f64::NAN }
        ),
    ]
}

/// Error functions, roots and conversions of angles.
pub(super) fn other_function_rows() -> Vec<Op> {
    vec![
        function!("math_fabs", "fabs(Any a) -> float", "math.fabs", f64::abs),
        function!("math_erf", "erf(Any a) -> float", "math.erf", libm::erf),
        function!("math_erfc", "erfc(Any a) -> float", "math.erfc", libm::erfc),
        function!("math_cbrt", "cbrt(Any a) -> float", "math.cbrt", f64::cbrt),
        function!("math_degrees", "degrees(Any a) -> float", "math.degrees", |x| x
            * (180.0 / std::f64::consts::PI)),
        function!("math_radians", "radians(Any a) -> float", "math.radians", |x| x
            * (std::f64::consts::PI / 180.0)),
    ]
}

/// A logarithm that, as in Python, is an error for zero too.
fn log_except_zero(f: fn(f64) -> f64) -> impl Fn(f64) -> f64 {
    move |x| if x == 0.0 { f64::NAN } else { f(x) }
}
