//! Selections and functions of two tensors: maxima, bounds, `where`, angles.

use crate::op::pointwise::{
    call_dtypes, not_implemented, number_of, overflow_error, overflows, pointwise, pointwise_by,
};
use crate::op::rows::spell::{method_, one, special};
use crate::op::sharing::always_shared;
use crate::op::{Call, DtypeRule as D, MemoryOrder, Op, OpError, OpResult};
use crate::types::{DType, TensorType};

pub(super) fn rows() -> Vec<Op> {
    [
        extremum_rows(),
        clamp_rows(),
        selection_rows(),
        angle_rows(),
        sign_rows(),
        logarithm_rows(),
        product_with_log_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

macro_rules! binary {
    ($n:literal, $rule:expr, $text:literal, $doc:literal) => {
        pointwise(($n, concat!($n, "(Tensor self, Tensor other) -> Tensor")), $rule, $text)
            .doc($doc)
            .spelled(one!($n))
    };
}

fn extremum_rows() -> Vec<Op> {
    vec![
        binary!(
            "maximum",
            D::Promote,
            "max(self, other)",
            "the elementwise maximum; NaN if either operand is NaN"
        )
        .spelled("aten.max.other torch.max Tensor.max")
        .commutative(),
        binary!(
            "minimum",
            D::Promote,
            "min(self, other)",
            "the elementwise minimum; NaN if either operand is NaN"
        )
        .spelled("aten.min.other torch.min Tensor.min")
        .commutative(),
        binary!(
            "fmax",
            D::Promote,
            "fmax(self, other)",
            "the elementwise maximum; ignores a NaN operand"
        )
        .commutative(),
        binary!(
            "fmin",
            D::Promote,
            "fmin(self, other)",
            "the elementwise minimum; ignores a NaN operand"
        )
        .commutative(),
    ]
}

fn clamp_rows() -> Vec<Op> {
    vec![
        clamp_row(),
        pointwise_by(
            "nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
            D::Promote,
            |c| {
                Ok(match c.leaf("self")?.dtype.is_float() {
                    true => {
                        "inf = where(signbit(self), given(neginf, -largest()), given(posinf, largest())); where(isnan(self), \
                         given(nan, 0), where(isinf(self), inf, self))"
                    }
                    false => "self",
                })
            },
        )
        .doc("self with NaN and infinities replaced, by default by 0 and the largest finite numbers")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ torch.@_ Tensor.@_"),
    ]
}

fn clamp_row() -> Op {
    let (low, high) = (
        "clamp_min(Tensor self, Tensor min) -> Tensor",
        "clamp_max(Tensor self, Tensor max) -> Tensor",
    );
    pointwise_by(
        "clamp(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor",
        D::Promote,
        clamp_expr,
    )
    .doc("self clamped to two bounds, of which the upper takes precedence; NaN values and NaN bounds yield NaN")
    .spelled("aten.@ aten.@.Tensor torch.@ Tensor.@")
    .spelled("aten.clip.default aten.clip.Tensor torch.clip Tensor.clip")
    .form(
        "aten.clamp_min.default aten.clamp_min.Tensor torch.clamp_min Tensor.clamp_min",
        low,
    )
    .form(
        "aten.clamp_max.default aten.clamp_max.Tensor torch.clamp_max Tensor.clamp_max",
        high,
    )
    .inplace("aten.@_ aten.@_.Tensor torch.@_ Tensor.@_")
    .inplace("aten.clip_.default aten.clip_.Tensor torch.clip_ Tensor.clip_")
    .inplace_form(
        "aten.clamp_min_.default aten.clamp_min_.Tensor torch.clamp_min_ Tensor.clamp_min_",
        low,
    )
    .inplace_form(
        "aten.clamp_max_.default aten.clamp_max_.Tensor torch.clamp_max_ Tensor.clamp_max_",
        high,
    )
}

fn clamp_expr(c: &Call<TensorType>) -> OpResult<&'static str> {
    if c.is_none("min") && c.is_none("max") {
        return Err(OpError::arg(
            "min",
            "torch.clamp: At least one of 'min' or 'max' must not be None",
        ));
    }
    // For bools, torch has only the kernels with a single bound that is a tensor.
    let d = call_dtypes(c)?.common;
    let number = |name| number_of(c.get(name)).is_some();
    let kernel = match (!c.is_none("min"), !c.is_none("max")) {
        (true, true) if number("min") || number("max") => Some("clamp_scalar_cpu"),
        (true, true) => Some("clamp_cpu"),
        (true, false) => number("min").then_some("clamp_min_scalar_cpu"),
        (false, _) => number("max").then_some("clamp_max_scalar_cpu"),
    };
    if let Some(kernel) = kernel.filter(|_| d == DType::B8) {
        return Err(not_implemented(kernel, d));
    }
    Ok(match effective_bounds(c, "min", "max")? {
        (true, true) => "min(max(self, min), max)",
        (true, false) => "max(self, min)",
        (false, true) => "min(self, max)",
        (false, false) => "self",
    })
}

/// Which of the two bounds have an effect. For an integer tensor, a lower bound below the dtype's range has none; an
/// upper bound below it is an error.
pub(in crate::op::rows) fn effective_bounds(c: &Call<TensorType>, min: &str, max: &str) -> OpResult<(bool, bool)> {
    let d = call_dtypes(c)?.common;
    let has_bounds = (!c.is_none(min), !c.is_none(max));
    if !d.is_int() {
        let numbers = [min, max].map(|name| number_of(c.get(name)));
        return match numbers.into_iter().flatten().any(|n| overflows(n, d)) {
            true => Err(overflow_error(d)),
            false => Ok(has_bounds),
        };
    }
    let outside = |bound: &str, n: f64| {
        let d = d.scalar_type_name();
        OpError::value(format!(
            "Clamp {bound} value {n} is outside the representable range of {d}"
        ))
    };
    let half = 2f64.powi(d.size() as i32 * 8 - 1);
    let (low, high) = if d == DType::U8 {
        (0.0, 255.0)
    } else {
        (-half, half - 1.0)
    };
    let (a, b) = (number_of(c.get(min)), number_of(c.get(max)));
    let (a, b) = (a.map(|n| n.to_f64()), b.map(|n| n.to_f64()));
    if let Some(a) = a.filter(|a| *a > high) {
        return Err(outside("min", a));
    }
    if let Some(b) = b.filter(|b| *b < low) {
        return Err(outside("max", b));
    }
    Ok((
        has_bounds.0 && a.is_none_or(|a| a >= low),
        has_bounds.1 && b.is_none_or(|b| b <= high),
    ))
}

fn selection_rows() -> Vec<Op> {
    vec![
        pointwise(
            "where(Tensor condition, Tensor self, Tensor other) -> Tensor",
            D::Promote,
            "where(condition, self, other)",
        )
        .doc("self where the condition is true, else other")
        .spelled("aten.@.self aten.@.ScalarOther aten.@.ScalarSelf aten.@.Scalar torch.@")
        .form(
            "Tensor.where",
            "where(Tensor self, Tensor condition, Tensor other) -> Tensor",
        ),
        pointwise_by(
            "masked_fill(Tensor self, Tensor mask, Tensor value) -> Tensor",
            D::First,
            |c| match c.opt_leaf("value").and_then(TensorType::rank) {
                None | Some(0) => Ok("where(mask, value, self)"),
                Some(n) => Err(OpError::shape(format!(
                    "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {n} dimension(s)."
                ))),
            },
        )
        .order(MemoryOrder::RowMajor)
        .doc("the value, converted to self's dtype, where the mask is true, else self")
        .spelled("aten.@.Scalar aten.@.Tensor torch.@ Tensor.@")
        .inplace("aten.@_.Scalar aten.@_.Tensor Tensor.@_")
        .shared_writes(always_shared),
        pointwise_by(
            "heaviside(Tensor self, Tensor values) -> Tensor",
            D::Promote,
            heaviside_expr,
        )
        .doc("0 if self is negative, 1 if it is positive, and the values where it is 0")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
    ]
}

fn heaviside_expr(c: &Call<TensorType>) -> OpResult<&'static str> {
    if c.leaf("self")?.dtype != c.leaf("values")?.dtype {
        return Err(OpError::dtype(
            "heaviside is not yet implemented for tensors with different dtypes.",
        ));
    }
    Ok("where(self == 0, values, where(self > 0, 1, 0))")
}

fn angle_rows() -> Vec<Op> {
    vec![
        binary!(
            "atan2",
            D::PromoteFloat,
            "atan2(self, other)",
            "the angle of the point (other, self)"
        )
        .spelled(one!("arctan2"))
        .inplace(method_!("atan2"))
        .inplace(method_!("arctan2")),
        binary!(
            "hypot",
            D::FloatOnly("hypot_cpu"),
            "hypot(self, other)",
            "sqrt(self ** 2 + other ** 2)"
        )
        .inplace(method_!("hypot"))
        .commutative(),
    ]
}

/// Ops on signs and neighbouring floats.
fn sign_rows() -> Vec<Op> {
    vec![
        pointwise("copysign(Tensor self, Tensor other) -> Tensor",
            D::PromoteFloat,
            "copysign(self, other)",
        )
        .doc("self's magnitude with other's sign")
        .spelled(crate::op::rows::spell::two!("copysign"))
        .inplace(crate::op::rows::spell::two_!("copysign")),
        pointwise_by("nextafter(Tensor self, Tensor other) -> Tensor",
            D::FloatOnly("nextafter_cpu"),
            |c| match call_dtypes(c)?.common {
                // Neighbouring 16-bit floats are 2^13 (f16) or 2^16 (bf16) f32 steps apart, and the computation is in
                // f32. The exponent range of f16 is also smaller.
                DType::F16 => Ok("where(self == other, other, where(isinf(self) & (other == other), copysign(65504, self), \
                                  self + copysign(max(abs(nextafter(self, other) - self) * 8192, 5.9604644775390625e-8), \
                                  other - self)))"),
                DType::BF16 => Ok("where(self == other, other, where(isinf(self) & (other == other), \
                                   copysign(3.3895313892515355e38, self), self + (nextafter(self, other) - self) * 65536))"),
                _ => Ok("nextafter(self, other)"),
            },
        )
        .doc("the next representable number from self towards other")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_"),
    ]
}

fn logarithm_rows() -> Vec<Op> {
    vec![
        binary!(
            "logaddexp",
            D::FloatOnly("logaddexp_cpu"),
            "where(isinf(self) & (self == other), self, max(self, other) + log1p(exp(-abs(self - other))))",
            "log(exp(self) + exp(other))"
        )
        .commutative(),
        binary!(
            "logaddexp2",
            D::FloatOnly("logaddexp2_cpu"),
            "where(isinf(self) & (self == other), self, max(self, other) + log1p(exp2(-abs(self - other))) * (1 / \
             log(2)))",
            "log2(2 ** self + 2 ** other)"
        )
        .commutative(),
    ]
}

/// Products with logarithms, and zeta.
fn product_with_log_rows() -> Vec<Op> {
    vec![
        pointwise(
            "xlogy(Tensor self, Tensor other) -> Tensor",
            D::PromoteFloat,
            "where(isnan(other), nan, where(self == 0, 0, self * log(other)))",
        )
        .doc("self * log(other), or 0 if self is 0")
        .spelled("aten.@.Tensor aten.@.Scalar_Other aten.@.Scalar_Self torch.@ Tensor.@")
        .spelled("aten.special_xlogy.default aten.special_xlogy.other_scalar aten.special_xlogy.self_scalar")
        .spelled("torch.special.@")
        .inplace("aten.@_.Tensor aten.@_.Scalar_Other torch.@_ Tensor.@_"),
        pointwise(
            "xlog1py(Tensor self, Tensor other) -> Tensor",
            D::PromoteFloat,
            "where(isnan(other), nan, where(self == 0, 0, self * rounded(log1p(other))))",
        )
        .doc("self * log1p(other), or 0 if self is 0")
        .spelled(special!("xlog1py"))
        .spelled("aten.special_xlog1py.other_scalar aten.special_xlog1py.self_scalar"),
        pointwise(
            "zeta(Tensor self, Tensor other) -> Tensor",
            D::WideFloat("zeta_cpu"),
            "zeta(self, other)",
        )
        .doc("the Hurwitz zeta function")
        .spelled(special!("zeta"))
        .spelled("aten.special_zeta.other_scalar aten.special_zeta.self_scalar"),
    ]
}
