//! Sums and differences with a factor `alpha`.

use crate::op::pointwise::{number_of, pointwise_by};
use crate::op::{Call, DtypeRule as D, Op, OpError, OpResult, pointwise::call_dtypes};
use crate::scalar::UntypedNumber;
use crate::types::{DType, TensorType};

/// The schemas of sums and differences of two tensors, and of a tensor and a number.
const TENSOR_SCHEMA: &str = "add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor";

const SCALAR_SCHEMA: &str = "add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor";

pub(super) fn add_rows() -> Vec<Op> {
    vec![
        pointwise_by(("add", TENSOR_SCHEMA), D::Promote, |c| {
            alpha_expr(
                c,
                [
                    "self + other",
                    "self + other * rounded(alpha)",
                    "fma(other, rounded(alpha), self)",
                ],
            )
        })
        .doc("self + alpha * other; logical or on bools")
        .spelled("aten.add.Tensor torch.add Tensor.add operator.add Tensor.__add__ Tensor.__radd__")
        .form("aten.add.Scalar", SCALAR_SCHEMA)
        .inplace("aten.add_.Tensor Tensor.add_ operator.iadd Tensor.__iadd__")
        .inplace_form("aten.add_.Scalar", SCALAR_SCHEMA)
        .commutative(),
    ]
}

pub(super) fn sub_rows() -> Vec<Op> {
    vec![
        pointwise_by(("sub", TENSOR_SCHEMA), D::Subtract, |c| {
            alpha_expr(
                c,
                [
                    "self - other",
                    "self - other * rounded(alpha)",
                    "fma(other, -rounded(alpha), self)",
                ],
            )
        })
        .doc("self - alpha * other")
        .spelled("aten.sub.Tensor torch.sub Tensor.sub operator.sub Tensor.__sub__")
        .spelled("aten.subtract.Tensor torch.subtract Tensor.subtract")
        .form("aten.sub.Scalar aten.subtract.Scalar", SCALAR_SCHEMA)
        .inplace("aten.sub_.Tensor aten.subtract_.Tensor Tensor.sub_ Tensor.subtract_ operator.isub Tensor.__isub__")
        .inplace_form("aten.sub_.Scalar aten.subtract_.Scalar", SCALAR_SCHEMA),
        pointwise_by(("rsub", TENSOR_SCHEMA), D::Subtract, |c| {
            alpha_expr(
                c,
                [
                    "other - self",
                    "other - self * rounded(alpha)",
                    "fma(self, -rounded(alpha), other)",
                ],
            )
        })
        .doc("other - alpha * self")
        .spelled("aten.rsub.Tensor torch.rsub Tensor.__rsub__")
        .form("aten.rsub.Scalar", SCALAR_SCHEMA),
    ]
}

pub(super) fn add_relu_rows() -> Vec<Op> {
    vec![
        pointwise_by(("_add_relu", TENSOR_SCHEMA), D::Promote, |c| {
            alpha_expr(
                c,
                [
                    "max(self + other, 0)",
                    "max(self + other * rounded(alpha), 0)",
                    "max(fma(other, rounded(alpha), self), 0)",
                ],
            )
        })
        .doc("relu(self + alpha * other)")
        .spelled("aten._add_relu.Tensor")
        .form("aten._add_relu.Scalar", SCALAR_SCHEMA)
        .inplace("aten._add_relu_.Tensor")
        .inplace_form("aten._add_relu_.Scalar", SCALAR_SCHEMA),
    ]
}

/// Selects the expression: without `alpha` if it is 1, else that for integers or that for floats, for which torch uses
/// a fused multiply-add. Applies torch's checks of `alpha`.
fn alpha_expr(c: &Call<TensorType>, text: [&'static str; 3]) -> OpResult<&'static str> {
    let d = call_dtypes(c)?.common;
    match number_of(c.get("alpha")) {
        Some(UntypedNumber::Bool(_)) if d != DType::B8 => {
            Err(OpError::dtype("Boolean alpha only supported for Boolean results."))
        }
        Some(UntypedNumber::Float(_)) if !d.is_float() => Err(OpError::dtype(
            "For integral input tensors, argument alpha must not be a floating point number.",
        )),
        Some(n) if n.to_f64() == 1.0 => Ok(text[0]),
        _ => Ok(text[1 + d.is_float() as usize]),
    }
}
