//! Functions of one tensor: exponentials, trigonometry, rounding, special functions.

use crate::op::pointwise::{not_implemented, pointwise, pointwise_by};
use crate::op::rows::spell::{method_, one, one_, special};
use crate::op::{DtypeRule as D, Op, OpError};
use crate::types::DType;

pub(super) fn rows() -> Vec<Op> {
    [
        elementary_rows(),
        trigonometric_rows(),
        truncation_rows(),
        rounding_rows(),
        error_functions(),
        gamma_functions(),
        logistic_rows(),
        normal_distribution(),
        bessel_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The row of a function of one tensor, with the usual spellings.
macro_rules! unary {
    ($n:literal, $rule:expr, $text:expr, $doc:literal) => {
        unary!(method $n, $rule, $text, $doc).inplace(concat!("torch.", $n, "_"))
    };
    // Variant whose in-place form is a method only.
    (method $n:literal, $rule:expr, $text:expr, $doc:literal) => {
        pointwise(($n, concat!($n, "(Tensor self) -> Tensor")), $rule, $text)
            .doc($doc)
            .spelled(one!($n))
            .inplace(method_!($n))
    };
    // Variant with a second torch name.
    ($n:literal = $alias:literal, $rule:expr, $text:expr, $doc:literal) => {
        unary!($n, $rule, $text, $doc)
            .spelled(one!($alias))
            .inplace(one_!($alias))
    };
}

fn elementary_rows() -> Vec<Op> {
    vec![
        unary!("sqrt", D::PromoteFloat, "sqrt(self)", "square root"),
        unary!("rsqrt", D::PromoteFloat, "rsqrt(self)", "1 / sqrt(self)"),
        unary!("exp", D::PromoteFloat, "exp(self)", "e to the power self"),
        unary!("exp2", D::PromoteFloat, "exp2(self)", "2 to the power self").spelled(special!("exp2")),
        unary!(
            "expm1",
            D::PromoteFloat,
            "expm1(self)",
            "exp(self) - 1, accurate near 0"
        )
        .spelled(special!("expm1")),
        unary!("log", D::PromoteFloat, "log(self)", "natural logarithm"),
        unary!("log2", D::PromoteFloat, "log2(self)", "logarithm to base 2"),
        unary!("log10", D::PromoteFloat, "log10(self)", "logarithm to base 10"),
        unary!(
            "log1p",
            D::PromoteFloat,
            "log1p(self)",
            "log(1 + self), accurate near 0"
        )
        .spelled(special!("log1p")),
        unary!(method "sign", D::Promote, "sign(self)", "the sign: -1, 0 or 1; 0 for NaN"),
        unary!(method "sgn", D::Promote, "sign(self)", "the sign: -1, 0 or 1; 0 for NaN"),
        pointwise(
            "angle(Tensor self) -> Tensor",
            D::PromoteFloat,
            "where(isnan(self), self, where(self < 0, pi, 0))",
        )
        .doc("the angle in the complex plane: 0, or pi for negative numbers")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn trigonometric_rows() -> Vec<Op> {
    vec![
        unary!("sin", D::PromoteFloat, "sin(self)", "sine"),
        unary!("cos", D::PromoteFloat, "cos(self)", "cosine"),
        unary!("tan", D::PromoteFloat, "tan(self)", "tangent"),
        unary!("asin" = "arcsin", D::PromoteFloat, "asin(self)", "inverse sine"),
        unary!("acos" = "arccos", D::PromoteFloat, "acos(self)", "inverse cosine"),
        unary!("atan" = "arctan", D::PromoteFloat, "atan(self)", "inverse tangent"),
        unary!("sinh", D::PromoteFloat, "sinh(self)", "hyperbolic sine"),
        unary!("cosh", D::PromoteFloat, "cosh(self)", "hyperbolic cosine"),
        unary!("tanh", D::PromoteFloat, "tanh(self)", "hyperbolic tangent")
            .spelled("torch.nn.functional.tanh")
            .module("Tanh() = tanh(input)"),
        unary!(
            "asinh" = "arcsinh",
            D::PromoteFloat,
            "asinh(self)",
            "inverse hyperbolic sine"
        ),
        unary!(
            "acosh" = "arccosh",
            D::PromoteFloat,
            "acosh(self)",
            "inverse hyperbolic cosine"
        ),
        unary!(
            "atanh" = "arctanh",
            D::PromoteFloat,
            "atanh(self)",
            "inverse hyperbolic tangent"
        ),
        unary!(
            "sinc",
            D::PromoteFloat,
            "t = pi * self; where(self == 0, 1, sin(t) / t)",
            "sin(pi * self) / (pi * self)"
        )
        .spelled(special!("sinc")),
    ]
}

fn truncation_rows() -> Vec<Op> {
    vec![
        unary!("floor", D::NoBool("floor_vml_cpu"), "floor(self)", "rounded down"),
        unary!("ceil", D::NoBool("ceil_vml_cpu"), "ceil(self)", "rounded up"),
        unary!(
            "trunc" = "fix",
            D::NoBool("trunc_vml_cpu"),
            "trunc(self)",
            "rounded towards zero"
        ),
        unary!(
            "frac",
            D::FloatOnly("frac_cpu"),
            "self - trunc(self)",
            "the fractional part, with self's sign"
        ),
    ]
}

fn rounding_rows() -> Vec<Op> {
    vec![
        pointwise_by(
            "round(Tensor self, *, int? decimals=None) -> Tensor",
            D::NoBool("round_vml_cpu"),
            |c| {
                let d = c.leaf("self")?.dtype;
                match c.opt_int("decimals")? {
                    None => Ok("round(self)"),
                    Some(n) if d == DType::B8 && n != 0 => Err(not_implemented("round_cpu", d)),
                    Some(0) if d.is_int() => Err(not_implemented("round_vml_cpu", d)),
                    Some(_) if d.is_int() => Err(not_implemented("round_cpu", d)),
                    Some(0) => Ok("round(self)"),
                    Some(n) if n > 0 => Ok("p = 10 ** decimals; round(self * p) / p"),
                    Some(_) => Ok("p = 10 ** -decimals; round(self / p) * p"),
                }
            },
        )
        .doc("self rounded to the nearest integer or to a number of decimals, half to even")
        .spelled("aten.@.decimals torch.@ Tensor.@")
        .form(
            "aten.special_round.default torch.special.round",
            "special_round(Tensor self, *, int decimals=0) -> Tensor",
        )
        .form("aten.round.default builtins.round", "round(Tensor self) -> Tensor")
        .inplace("aten.@_.decimals Tensor.@_ torch.@_")
        .inplace_form("aten.round_.default", "round_(Tensor self) -> Tensor"),
    ]
}

fn error_functions() -> Vec<Op> {
    vec![
        unary!("erf", D::PromoteFloat, "erf(self)", "error function").spelled(special!("erf")),
        unary!("erfc", D::PromoteFloat, "erfc(self)", "1 - erf(self)").spelled(special!("erfc")),
        unary!(method "erfinv", D::PromoteFloat, "erfinv(self)", "inverse of erf").spelled(special!("erfinv")),
        only_special(
            "erfcx",
            D::WideFloat("erfcx_cpu"),
            special!("erfcx"),
            "erfcx(Tensor self) -> Tensor",
            "erfcx(self)",
            "exp(self ** 2) * erfc(self)",
        ),
    ]
}

fn gamma_functions() -> Vec<Op> {
    vec![
        unary!(
            method "lgamma",
            D::PromoteFloat,
            "lgamma(self)",
            "logarithm of the absolute value of the gamma function"
        )
        .spelled(special!("gammaln")),
        unary!(method "digamma", D::PromoteFloat, "digamma(self)", "derivative of lgamma")
            .spelled(special!("digamma"))
            .spelled(special!("psi")),
        pointwise_by(
            "polygamma(int n, Tensor self) -> Tensor",
            D::PromoteFloat,
            |c| match c.int("n")? {
                0 => Ok("digamma(self)"),
                n if n < 0 => Err(OpError::arg("n", "polygamma(n, x) does not support negative n.")),
                // Uses reflection below one half, as torch does.
                1 => Ok(
                    "s = pi / sin(pi * self); low = self < 0.5; z = zeta(compute(2), where(low, 1 - self, self)); \
                     where(self == inf, 0, where(low, s * s - z, z))",
                ),
                // torch's kernel takes the lower 32 bits of the order.
                _ => Ok("k = (n % 4294967296 + 2147483648) % 4294967296 - 2147483647; \
                     (-1) ** k * exp(lgamma(k)) * zeta(compute(k), self)"),
            },
        )
        .doc("the derivative of digamma of order n")
        .spelled("aten.polygamma.default torch.polygamma torch.special.polygamma aten.special_polygamma.default")
        .form("Tensor.polygamma", "polygamma(Tensor self, int n) -> Tensor")
        .inplace_form(
            "aten.polygamma_.default Tensor.polygamma_",
            "polygamma_(Tensor self, int n) -> Tensor",
        ),
    ]
}

fn logistic_rows() -> Vec<Op> {
    vec![
        unary!("sigmoid", D::PromoteFloat, "sigmoid(self)", "1 / (1 + exp(-self))")
            .spelled("torch.nn.functional.sigmoid torch.special.expit aten.special_expit.default")
            .module("Sigmoid() = sigmoid(input)"),
        pointwise_by("logit(Tensor self, float? eps=None) -> Tensor", D::PromoteFloat, |c| {
            Ok(match c.is_none("eps") {
                true => "log(rounded(self / rounded(1 - self)))",
                false => {
                    "x = where(self < eps, eps, where(self > 1 - eps, 1 - eps, self)); log(rounded(x / rounded(1 - x)))"
                }
            })
        })
        .doc("log(self / (1 - self)), with self clamped to [eps, 1 - eps] if eps is given")
        .spelled("aten.@ torch.@ Tensor.@")
        .spelled(special!("logit"))
        .inplace("aten.@_ torch.@_ Tensor.@_"),
    ]
}

fn normal_distribution() -> Vec<Op> {
    vec![
        only_special(
            "ndtr",
            D::PromoteFloat,
            special!("ndtr"),
            "ndtr(Tensor self) -> Tensor",
            "0.5 * rounded(1 + rounded(erf(rounded(self * sqrt(1 / 2)))))",
            "the normal cumulative distribution function",
        ),
        only_special(
            "ndtri",
            D::WideFloat("ndtri_cpu"),
            special!("ndtri"),
            "ndtri(Tensor self) -> Tensor",
            "ndtri(self)",
            "inverse of the normal cumulative distribution function",
        ),
        only_special(
            "log_ndtr",
            D::WideFloat("log_ndtr_cpu"),
            special!("log_ndtr"),
            "log_ndtr(Tensor self) -> Tensor",
            // The bound keeps numbers that are not chosen from functions' slow ranges.
            "t = self * sqrt(1 / 2); where(self < -1, log(erfcx(max(-t, 0.5)) / 2) - t * t, log1p(-erfc(t) / 2))",
            "logarithm of the normal cumulative distribution function",
        ),
        only_special(
            "entr",
            D::PromoteFloat,
            special!("entr"),
            "entr(Tensor self) -> Tensor",
            "where(isnan(self), self, where(self > 0, -self * log(self), where(self == 0, 0, -inf)))",
            "entropy: -self * log(self)",
        ),
    ]
}

/// A function that only `torch.special` has.
fn only_special(
    name: &'static str,
    dtypes: D,
    paths: &'static str,
    schema: &'static str,
    text: &'static str,
    doc: &'static str,
) -> Op {
    pointwise((name, schema), dtypes, text).doc(doc).spelled(paths)
}

fn bessel_rows() -> Vec<Op> {
    vec![
        unary!(
            "i0",
            D::PromoteFloat,
            // torch multiplies by the exponential, which becomes infinite before the function does.
            "e = exp(abs(self)); where(isinf(e) & ~isinf(self), e, bessel_i0(self))",
            "modified Bessel function of the first kind, order 0"
        )
        .spelled(special!("i0"))
        .spelled(special!("modified_bessel_i0")),
        only_special(
            "i0e",
            D::PromoteFloat,
            special!("i0e"),
            "i0e(Tensor self) -> Tensor",
            "bessel_i0e(self)",
            "exp(-|self|) * i0(self)",
        ),
        only_special(
            "i1",
            D::PromoteFloat,
            special!("i1"),
            "i1(Tensor self) -> Tensor",
            "e = exp(abs(self)); where(isinf(e) & ~isinf(self), copysign(e, self), bessel_i1(self))",
            "modified Bessel function of the first kind, order 1",
        )
        .spelled(special!("modified_bessel_i1")),
        only_special(
            "i1e",
            D::PromoteFloat,
            special!("i1e"),
            "i1e(Tensor self) -> Tensor",
            "bessel_i1e(self)",
            "exp(-|self|) * i1(self)",
        ),
    ]
}
