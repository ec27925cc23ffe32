//! Comparisons, predicates, logical and bitwise ops.

use crate::op::pointwise::{call_dtypes, pointwise, pointwise_by};
use crate::op::rows::spell::{one, two, two_};
use crate::op::{Call, DtypeRule as D, Op, OpError, OpResult};
use crate::types::TensorType;

pub(super) fn rows() -> Vec<Op> {
    [comparison_rows(), predicate_rows(), logic_rows(), bitwise_rows()]
        .into_iter()
        .flatten()
        .collect()
}

macro_rules! comparison {
    ($n:literal, $op:literal, $doc:literal) => {
        pointwise(
            ($n, concat!($n, "(Tensor self, Tensor other) -> Tensor")),
            D::Compare,
            concat!("self ", $op, " other"),
        )
        .doc($doc)
        .spelled(two!($n))
        .spelled(concat!("operator.", $n, " Tensor.__", $n, "__"))
        .inplace(two_!($n))
    };
    // Variant with a second torch name.
    ($n:literal = $alias:literal, $op:literal, $doc:literal) => {
        comparison!($n, $op, $doc).spelled(two!($alias)).inplace(two_!($alias))
    };
}

fn comparison_rows() -> Vec<Op> {
    vec![
        comparison!(
            "eq",
            "==",
            "whether self == other; a number is first rounded to the tensor's dtype"
        )
        .commutative(),
        comparison!("ne" = "not_equal", "!=", "whether self != other").commutative(),
        comparison!("lt" = "less", "<", "whether self < other"),
        comparison!("le" = "less_equal", "<=", "whether self <= other"),
        comparison!("gt" = "greater", ">", "whether self > other"),
        comparison!("ge" = "greater_equal", ">=", "whether self >= other"),
        pointwise_by(
            "isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
            D::Compare,
            isclose,
        )
        .doc("whether |self - other| <= atol + rtol * |other|")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn isclose(c: &Call<TensorType>) -> OpResult<&'static str> {
    let (a, b) = (c.leaf("self")?.dtype, c.leaf("other")?.dtype);
    if a != b {
        return Err(OpError::dtype(format!(
            "{} did not match {}",
            a.scalar_type_name(),
            b.scalar_type_name()
        )));
    }
    for name in ["rtol", "atol"] {
        if c.f64(name)? < 0.0 {
            let title = format!("{name} must be greater than or equal to zero, but got {}", c.f64(name)?);
            return Err(OpError::arg(name, title));
        }
    }
    let d = call_dtypes(c)?.common;
    Ok(match (d.is_float(), c.bool("equal_nan")?) {
        (true, false) => "d = abs(self - other); (self == other) | (~isinf(d) & (d <= atol + abs(rtol * other)))",
        (true, true) => {
            "d = abs(self - other); (self == other) | (~isinf(d) & (d <= atol + abs(rtol * other))) | (isnan(self) & \
             isnan(other))"
        }
        // Integers are compared in f32, torch's default float dtype.
        _ => "s = f32(self); o = f32(other); (self == other) | (abs(s - o) <= atol + abs(rtol * o))",
    })
}

macro_rules! predicate {
    ($n:literal, $text:literal, $doc:literal) => {
        pointwise(($n, concat!($n, "(Tensor self) -> Tensor")), D::Predicate, $text)
            .doc($doc)
            .spelled(one!($n))
    };
}

/// A predicate that says the same of all integers.
macro_rules! float_predicate {
    ($n:literal, $text:literal, $of_integers:literal, $doc:literal) => {
        pointwise_by(concat!($n, "(Tensor self) -> Tensor"), D::Predicate, |c| {
            Ok(match c.leaf("self")?.dtype.is_float() {
                true => $text,
                false => $of_integers,
            })
        })
        .doc($doc)
        .spelled(one!($n))
    };
}

fn predicate_rows() -> Vec<Op> {
    vec![
        float_predicate!("isnan", "isnan(self)", "False", "whether self is NaN"),
        float_predicate!("isinf", "isinf(self)", "False", "whether self is infinite"),
        float_predicate!(
            "isfinite",
            "~(isinf(self) | isnan(self))",
            "True",
            "whether self is finite"
        ),
        float_predicate!(
            "isposinf",
            "isinf(self) & ~signbit(self)",
            "False",
            "whether self is +inf"
        ),
        float_predicate!(
            "isneginf",
            "isinf(self) & signbit(self)",
            "False",
            "whether self is -inf"
        ),
        predicate!("signbit", "signbit(self)", "whether the sign bit is set (also of -0.0)"),
        predicate!("isreal", "True", "true, since fxc has no complex numbers"),
    ]
}

fn logic_rows() -> Vec<Op> {
    vec![
        pointwise("logical_not(Tensor self) -> Tensor", D::Logical, "~self")
            .doc("logical not: whether self is zero")
            .spelled("aten.@ torch.@ Tensor.@")
            .inplace("aten.@_ Tensor.@_"),
        pointwise(
            "logical_and(Tensor self, Tensor other) -> Tensor",
            D::Logical,
            "self & other",
        )
        .doc("logical and: whether both are nonzero")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .commutative(),
        pointwise(
            "logical_or(Tensor self, Tensor other) -> Tensor",
            D::Logical,
            "self | other",
        )
        .doc("logical or: whether at least one is nonzero")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .commutative(),
        pointwise(
            "logical_xor(Tensor self, Tensor other) -> Tensor",
            D::Logical,
            "self ^ other",
        )
        .doc("logical exclusive or: whether exactly one is nonzero")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .commutative(),
    ]
}

macro_rules! bitwise {
    ($n:literal, $operator:literal, $kernel:literal, $op:literal, $doc:literal) => {
        pointwise(
            (
                concat!("bitwise_", $n),
                concat!("bitwise_", $n, "(Tensor self, Tensor other) -> Tensor"),
            ),
            D::IntOrBool($kernel),
            concat!("self ", $op, " other"),
        )
        .doc($doc)
        .spelled(concat!(
            "aten.bitwise_",
            $n,
            ".Tensor aten.bitwise_",
            $n,
            ".Scalar aten.bitwise_",
            $n,
            ".Scalar_Tensor"
        ))
        .spelled(concat!(
            "torch.bitwise_",
            $n,
            " Tensor.bitwise_",
            $n,
            " operator.",
            $operator
        ))
        .spelled(concat!(
            "aten.__",
            $n,
            "__.Tensor aten.__",
            $n,
            "__.Scalar Tensor.__",
            $n,
            "__ Tensor.__r",
            $n,
            "__"
        ))
        .inplace(concat!(
            "aten.bitwise_",
            $n,
            "_.Tensor aten.bitwise_",
            $n,
            "_.Scalar Tensor.bitwise_",
            $n,
            "_"
        ))
        .inplace(concat!(
            "aten.__i",
            $n,
            "__.Tensor aten.__i",
            $n,
            "__.Scalar Tensor.__i",
            $n,
            "__ operator.i",
            $n
        ))
        .commutative()
    };
}

macro_rules! shift {
    ($n:literal, $short:literal, $kernel:literal, $op:literal, $doc:literal) => {
        pointwise(
            (
                concat!("bitwise_", $n, "_shift"),
                concat!("bitwise_", $n, "_shift(Tensor self, Tensor other) -> Tensor"),
            ),
            D::IntOnly($kernel),
            concat!("self ", $op, " other"),
        )
        .doc($doc)
        .spelled(concat!(
            "aten.bitwise_",
            $n,
            "_shift.Tensor aten.bitwise_",
            $n,
            "_shift.Tensor_Scalar aten.bitwise_",
            $n,
            "_shift.Scalar_Tensor"
        ))
        .spelled(concat!(
            "torch.bitwise_",
            $n,
            "_shift Tensor.bitwise_",
            $n,
            "_shift operator.",
            $short
        ))
        .spelled(concat!(
            "aten.__",
            $short,
            "__.Tensor aten.__",
            $short,
            "__.Scalar Tensor.__",
            $short,
            "__"
        ))
        .form(
            concat!("Tensor.__r", $short, "__"),
            concat!("bitwise_", $n, "_shift(Tensor other, Tensor self) -> Tensor"),
        )
        .inplace(concat!(
            "aten.bitwise_",
            $n,
            "_shift_.Tensor aten.bitwise_",
            $n,
            "_shift_.Tensor_Scalar Tensor.bitwise_",
            $n,
            "_shift_"
        ))
        .inplace(concat!(
            "aten.__i",
            $short,
            "__.Tensor aten.__i",
            $short,
            "__.Scalar Tensor.__i",
            $short,
            "__ operator.i",
            $short
        ))
    };
}

fn bitwise_rows() -> Vec<Op> {
    vec![
        bitwise!(
            "and",
            "and_",
            "bitwise_and_cpu",
            "&",
            "bitwise and; logical and on bools"
        ),
        bitwise!("or", "or_", "bitwise_or_cpu", "|", "bitwise or; logical or on bools"),
        bitwise!("xor", "xor", "bitwise_xor_cpu", "^", "bitwise exclusive or"),
        pointwise(
            "bitwise_not(Tensor self) -> Tensor",
            D::IntOrBool("bitwise_not_cpu"),
            "~self",
        )
        .doc("bitwise not; logical not on bools")
        .spelled("aten.@ torch.@ Tensor.@")
        .spelled("operator.invert operator.inv Tensor.__invert__")
        .inplace("aten.@_ Tensor.@_"),
        shift!(
            "left",
            "lshift",
            "lshift_cpu",
            "<<",
            "self shifted left; shifts outside the width yield 0"
        ),
        shift!(
            "right",
            "rshift",
            "rshift_cpu",
            ">>",
            "self shifted right with sign extension; shifts outside the width yield 0 or -1"
        ),
    ]
}
