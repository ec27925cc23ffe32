//! Arithmetic: sums, products, quotients, remainders, powers.

mod sums;

use self::sums::{add_relu_rows, add_rows, sub_rows};
use crate::op::pointwise::{not_implemented, number_of, pointwise, pointwise_by};
use crate::op::rows::spell::{method_, one, one_, two, two_};
use crate::op::{Build, Call, DtypeRule as D, Op, OpBuilder, OpError, OpId, OpResult, Traced, pointwise::call_dtypes};
use crate::types::{DType, Dim, TensorType, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        add_rows(),
        sub_rows(),
        add_relu_rows(),
        sign_rows(),
        product_rows(),
        quotient_rows(),
        remainder_rows(),
        divisor_rows(),
        power_rows(),
        fused_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn sign_rows() -> Vec<Op> {
    vec![
        pointwise(
            "neg(Tensor self) -> Tensor",
            D::NoBoolMessage(
                "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, \
                 use the `~` or `logical_not()` operator instead.",
            ),
            "-self",
        )
        .doc("-self; integers wrap around")
        .spelled("aten.@ torch.@ Tensor.@")
        .spelled(one!("negative"))
        .spelled("operator.@ Tensor.__neg__")
        .inplace("aten.@_ torch.@_ Tensor.@_")
        .inplace(one_!("negative")),
        pointwise(
            "positive(Tensor self) -> Tensor",
            D::NoBoolMessage("The `+` operator, on a bool tensor is not supported."),
            "self",
        )
        .doc("self")
        .spelled("aten.@ torch.@ Tensor.@")
        .spelled("operator.pos Tensor.__pos__")
        .aliasing()
        .same_object(|_, _| true),
        pointwise("abs(Tensor self) -> Tensor", D::NoBool("abs_cpu"), "abs(self)")
            .doc("the absolute value; integers wrap around")
            .spelled("aten.@ torch.@ Tensor.@")
            .spelled(one!("absolute"))
            .spelled("operator.@ builtins.@ Tensor.__abs__")
            .inplace("aten.@_ torch.@_ Tensor.@_")
            .inplace(method_!("absolute")),
    ]
}

fn product_rows() -> Vec<Op> {
    let (binary, unary) = (
        "mul(Tensor self, Tensor other) -> Tensor",
        "square(Tensor self) -> Tensor",
    );
    vec![
        pointwise(("mul", binary), D::Promote, "self * other")
            .doc("self * other; logical and on bools")
            .wide_numbers()
            .spelled(two!("mul"))
            .spelled(two!("multiply"))
            .spelled("operator.mul Tensor.__mul__ Tensor.__rmul__")
            .inplace(two_!("mul"))
            .inplace(two_!("multiply"))
            .inplace("operator.imul Tensor.__imul__")
            .commutative(),
        pointwise(("square", unary), D::BoolToInt, "self * self")
            .doc("self * self")
            .spelled(one!("square"))
            .inplace(one_!("square")),
        Op::composite("ldexp(Tensor self, Tensor other) -> Tensor", ldexp)
            .doc("self * 2 ** other")
            .spelled("aten.@.Tensor torch.@ Tensor.@")
            .inplace("aten.@_ torch.@_ Tensor.@_"),
        pointwise("deg2rad(Tensor self) -> Tensor", D::PromoteFloat, "self * (pi / 180)")
            .doc("degrees to radians")
            .spelled("aten.@ torch.@ Tensor.@")
            .inplace("aten.@_ torch.@_ Tensor.@_"),
        pointwise("rad2deg(Tensor self) -> Tensor", D::PromoteFloat, "self * (180 / pi)")
            .doc("radians to degrees")
            .spelled("aten.@ torch.@ Tensor.@")
            .inplace("aten.@_ torch.@_ Tensor.@_"),
    ]
}

fn ldexp(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, other) = (c.leaf("self")?, c.leaf("other")?);
    if x.dtype().is_float() && !other.dtype().is_float() {
        if other.dtype() == DType::B8 {
            return Err(not_implemented("ldexp_cpu_exp", DType::B8));
        }
        // As in C's ldexp, the dtype is that of the floats, and the power does not overflow before the product does.
        let wide = [b.to_dtype(x, DType::F64)?, b.to_dtype(other, DType::F64)?];
        let power = b.pow(Val::Float(2.0), &wide[1])?;
        let out = b.mul(&wide[0], &power)?;
        return b.to_dtype(&out, x.dtype()).map(Val::Leaf);
    }
    let power = b.pow(Val::Float(2.0), other)?;
    b.call(OpId::Mul, vec![x.into(), power.into()])
}

/// Whether torch rounds each step of a division to the operands' dtype. It does so for 16-bit floats, unless the
/// divisor is a number or a tensor of one element.
fn rounds_between(c: &Call<TensorType>) -> OpResult<bool> {
    let many = c.opt_leaf("other").is_some_and(|t| t.numel() != Dim::Const(1));
    Ok(many && matches!(call_dtypes(c)?.common, DType::F16 | DType::BF16))
}

/// torch's floor division, with each step rounded to 16 bits.
const FLOOR_16: &str = "quotient = rounded(self / other); \
    rest = fmod(self, other); \
    whole = where(isinf(quotient) & (abs(self) != inf), self, rounded(self - rest)); \
    exact = rounded(whole / other); \
    exact = where((rest != 0) & ((other < 0) ^ (rest < 0)), rounded(exact - 1), exact); \
    down = floor(exact); \
    down = where(rounded(exact - down) > 0.5, rounded(down + 1), down); \
    where(other == 0, quotient, where(exact == 0, copysign(exact, quotient), down))";

/// Quotients and remainders.
fn quotient_rows() -> Vec<Op> {
    vec![
        div_row(),
        pointwise_by(
            "floor_divide(Tensor self, Tensor other) -> Tensor",
            D::NoBool("div_floor_cpu"),
            |c| Ok(if rounds_between(c)? { FLOOR_16 } else { "self // other" }),
        )
        .doc("self / other rounded down")
        .wide_numbers()
        .spelled("aten.@ aten.@.Scalar torch.@ Tensor.@")
        .spelled("operator.floordiv Tensor.__floordiv__")
        .form(
            "Tensor.__rfloordiv__",
            "floor_divide(Tensor other, Tensor self) -> Tensor",
        )
        .inplace("aten.@_.Tensor aten.@_.Scalar Tensor.@_")
        .inplace("operator.ifloordiv Tensor.__ifloordiv__"),
    ]
}

fn remainder_rows() -> Vec<Op> {
    vec![
        pointwise(
            "remainder(Tensor self, Tensor other) -> Tensor",
            D::NoBool("remainder_cpu"),
            "self % other",
        )
        .doc("the remainder of self / other, with other's sign")
        .spelled("aten.@.Tensor aten.@.Scalar torch.@ Tensor.@")
        .spelled("aten.@.Scalar_Tensor operator.mod Tensor.__mod__")
        .form("Tensor.__rmod__", "remainder(Tensor other, Tensor self) -> Tensor")
        .inplace("aten.@_.Tensor aten.@_.Scalar Tensor.@_")
        .inplace("operator.imod Tensor.__imod__"),
        pointwise(
            "fmod(Tensor self, Tensor other) -> Tensor",
            D::NoBool("fmod_cpu"),
            "fmod(self, other)",
        )
        .doc("the remainder of self / other, with self's sign")
        .spelled("aten.@.Tensor aten.@.Scalar torch.@ Tensor.@")
        .inplace("aten.@_.Tensor aten.@_.Scalar Tensor.@_"),
        pointwise("reciprocal(Tensor self) -> Tensor", D::PromoteFloat, "1 / self")
            .doc("1 / self")
            .spelled("aten.@ torch.@ Tensor.@")
            .inplace("aten.@_ torch.@_ Tensor.@_"),
    ]
}

fn div_row() -> Op {
    let plain = "div(Tensor self, Tensor other) -> Tensor";
    pointwise_by(
        "div(Tensor self, Tensor other, *, str? rounding_mode=None) -> Tensor",
        D::Division,
        div_expr,
    )
    .doc("self / other, optionally rounded down (`floor`) or towards zero (`trunc`); integers yield f32 unless rounded")
    .wide_numbers()
    .spelled("aten.@.Tensor_mode aten.@.Scalar_mode torch.@ Tensor.@")
    .spelled("aten.divide.Tensor_mode aten.divide.Scalar_mode torch.divide Tensor.divide")
    .form(
        "aten.div.Tensor aten.div.Scalar aten.divide.Tensor aten.divide.Scalar",
        plain,
    )
    .form(two!("true_divide"), plain)
    .spelled("Tensor.__truediv__ Tensor.__div__")
    .form("operator.truediv", plain)
    .form(
        "Tensor.__rtruediv__ Tensor.__rdiv__",
        "div(Tensor other, Tensor self) -> Tensor",
    )
    .inplace("aten.@_.Tensor_mode aten.@_.Scalar_mode Tensor.@_")
    .inplace("aten.divide_.Tensor_mode aten.divide_.Scalar_mode Tensor.divide_")
    .inplace_form(
        "aten.div_.Tensor aten.div_.Scalar aten.divide_.Tensor aten.divide_.Scalar",
        plain,
    )
    .inplace_form(two_!("true_divide"), plain)
    .inplace("Tensor.__itruediv__")
    .inplace_form("operator.itruediv", plain)
}

fn div_expr(c: &Call<TensorType>) -> OpResult<&'static str> {
    match c.get("rounding_mode").as_str() {
        None => Ok("self / other"),
        Some("floor") => Ok(if rounds_between(c)? { FLOOR_16 } else { "self // other" }),
        Some("trunc") if rounds_between(c)? => Ok("trunc(rounded(self / other))"),
        Some("trunc") => Ok("truncdiv(self, other)"),
        Some(m) => Err(OpError::arg(
            "rounding_mode",
            format!("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{m}'"),
        )),
    }
}

/// Greatest common divisors and least common multiples.
fn divisor_rows() -> Vec<Op> {
    vec![
        pointwise_by("gcd(Tensor self, Tensor other) -> Tensor", D::IntOnly("gcd_cpu"), |c| {
            // Narrow integers are the high bits of wide ones: the lowest keeps its sign as its magnitude wraps around.
            Ok(match call_dtypes(c)?.common {
                DType::I8 => "compute(gcd(i64(self) << 56, i64(other) << 56) >> 56)",
                DType::I16 => "compute(gcd(i64(self) << 48, i64(other) << 48) >> 48)",
                DType::I32 => "compute(gcd(i64(self) << 32, i64(other) << 32) >> 32)",
                _ => "gcd(self, other)",
            })
        })
        .doc("the greatest common divisor of the magnitudes")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ torch.@_ Tensor.@_")
        .commutative(),
        pointwise_by("lcm(Tensor self, Tensor other) -> Tensor", D::IntOnly("lcm_cpu"), |c| {
            // C promotes narrow integers to int, so the absolute value is taken before they wrap around.
            Ok(match call_dtypes(c)?.common.size() {
                1 | 2 => {
                    "a = i32(self); b = i32(other); g = gcd(a, b); compute(where(g == 0, 0, abs(truncdiv(a, where(g \
                         == 0, 1, g)) * b)))"
                }
                _ => "g = gcd(self, other); where(g == 0, 0, abs(truncdiv(self, where(g == 0, 1, g)) * other))",
            })
        })
        .doc("the least common multiple of the magnitudes; 0 if both are 0")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ torch.@_ Tensor.@_")
        .commutative(),
    ]
}

fn power_rows() -> Vec<Op> {
    let schema = "pow(Tensor self, Tensor exponent) -> Tensor";
    let reversed = "pow(Tensor exponent, Tensor self) -> Tensor";
    vec![
        pointwise_by(("pow", schema), D::Promote, power_expr)
            .doc("self ** exponent; negative powers of integers other than 1 and -1 yield 0")
            .spelled("aten.pow.Tensor_Tensor aten.pow.Tensor_Scalar aten.pow.Scalar torch.pow Tensor.pow")
            .spelled("operator.pow builtins.pow Tensor.__pow__")
            .form("builtins.pow", "pow(Tensor base, Tensor exp) -> Tensor")
            .form("Tensor.__rpow__", reversed)
            .inplace("aten.pow_.Tensor aten.pow_.Scalar Tensor.pow_ operator.ipow Tensor.__ipow__"),
        pointwise(
            "float_power(Tensor self, Tensor exponent) -> Tensor",
            D::Double,
            "self ** exponent",
        )
        .doc("self ** exponent in f64")
        .spelled("aten.@.Tensor_Tensor aten.@.Tensor_Scalar aten.@.Scalar")
        .spelled("torch.@ Tensor.@")
        .inplace("aten.@_.Tensor aten.@_.Scalar Tensor.@_"),
    ]
}

/// torch's special cases for constant exponents. They affect `(-inf) ** 0.5` and the last bit of results.
fn power_expr(c: &Call<TensorType>) -> OpResult<&'static str> {
    let d = call_dtypes(c)?.common;
    let base = c.get("self");
    let exponent = match (base.as_leaf(), number_of(c.get("exponent"))) {
        (Some(_), Some(n)) => n,
        _ if d == DType::B8 => return Err(crate::op::pointwise::not_implemented("pow", d)),
        _ => return Ok("self ** exponent"),
    };
    let e = exponent.to_f64();
    if d.is_int() && e < 0.0 {
        return Err(OpError::value("Integers to negative integer powers are not allowed."));
    }
    let float = d.is_float();
    Ok(match e {
        0.0 => "1",
        1.0 => "self",
        2.0 => "self * self",
        3.0 if d == DType::BF16 => "rounded(self * self) * self",
        3.0 => "self * self * self",
        // torch's f16 kernel has no special cases for roots, so `(-inf) ** 0.5` is infinity there.
        0.5 if float && d != DType::F16 => "sqrt(self)",
        -0.5 if float && d != DType::F16 => "1 / sqrt(self)",
        -1.0 => "1 / self",
        -2.0 if d == DType::BF16 => "1 / rounded(self * self)",
        -2.0 => "1 / (self * self)",
        _ => "self ** exponent",
    })
}

fn fused_rows() -> Vec<Op> {
    vec![
        pointwise_by(
            "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
            D::NoBool("addcmul_cpu_out"),
            |c| {
                // torch's vectorised kernel uses a fused multiply-add.
                Ok(if call_dtypes(c)?.common.is_float() {
                    "fma(value * tensor1, tensor2, self)"
                } else {
                    "self + value * tensor1 * tensor2"
                })
            },
        )
        .doc("self + value * tensor1 * tensor2")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        pointwise(
            "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
            D::Addcdiv,
            "self + value * tensor1 / tensor2",
        )
        .doc("self + value * tensor1 / tensor2")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
        pointwise_by(
            "lerp(Tensor self, Tensor end, Tensor weight) -> Tensor",
            D::Same("lerp_kernel_scalar"),
            |_| Ok("where(abs(weight) < 0.5, fma(weight, end - self, self), fma(weight - 1, end - self, end))"),
        )
        .doc("linear interpolation from self to end by weight")
        .wide_numbers()
        .spelled("aten.@.Scalar aten.@.Tensor torch.@ Tensor.@")
        .inplace("aten.@_.Scalar aten.@_.Tensor Tensor.@_"),
    ]
}
