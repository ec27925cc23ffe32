//! Sums, means, products and counts.

use super::{Spec, reduce, reduced_type, reduction, spec_of};
use crate::op::{Call, Combine, Meaning, Op, OpError, OpResult};
use crate::types::{DType, TensorType};

/// The dtype of sums and products: the requested one, else i64 for integers and bools.
pub(in crate::op::rows) fn sum_dtype<T>(c: &Call<T>, operand: DType) -> DType {
    match c.opt_dtype("dtype") {
        Some(d) => d,
        None if operand.is_float() => operand,
        None => DType::I64,
    }
}

fn sum_spec(c: &Call<TensorType>) -> OpResult<Spec> {
    let d = sum_dtype(c, c.leaf("self")?.dtype);
    Ok(Spec::new(Combine::Sum, d, d.compute_dtype(), d))
}

fn prod_spec(c: &Call<TensorType>) -> OpResult<Spec> {
    Ok(Spec {
        combine: Combine::Prod,
        ..sum_spec(c)?
    })
}

fn nansum_spec(c: &Call<TensorType>) -> OpResult<Spec> {
    Ok(sum_spec(c)?.with_texts("where(isnan(x), 0, x)", "x"))
}

fn mean_spec(c: &Call<TensorType>) -> OpResult<Spec> {
    let (self_dtype, requested) = (c.leaf("self")?.dtype, c.opt_dtype("dtype"));
    let d = requested.unwrap_or(self_dtype);
    if !d.is_float() {
        let which = if requested.is_some() { "Optional" } else { "Input" };
        return Err(OpError::dtype(format!(
            "mean(): could not infer output dtype. {which} dtype must be either a floating point or complex dtype. \
             Got: {}",
            d.scalar_type_name()
        )));
    }
    Ok(Spec::new(Combine::Sum, d, d.compute_dtype(), d).with_texts("x", "x / n"))
}

fn count_spec(c: &Call<TensorType>) -> OpResult<Spec> {
    let d = c.leaf("self")?.dtype;
    Ok(Spec::new(Combine::Sum, d, DType::I64, DType::I64).with_texts("x != 0", "x"))
}

pub(super) fn sum_rows() -> Vec<Op> {
    vec![
        reduce!(
            "sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            sum_spec
        )
        .doc("the sum over the given dims, or over all; integers and bools yield i64, f16 and bf16 accumulate in f32")
        .spelled("aten.@.dim_IntList torch.@ Tensor.@")
        .form(
            "aten.sum.default",
            "sum(Tensor self, *, ScalarType? dtype=None) -> Tensor",
        ),
        reduce!(
            "mean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            mean_spec
        )
        .doc("the mean over the given dims, or over all; floats only")
        .spelled("aten.@.dim torch.@ Tensor.@")
        .form(
            "aten.mean.default",
            "mean(Tensor self, *, ScalarType? dtype=None) -> Tensor",
        ),
        reduce!(
            "nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            nansum_spec
        )
        .doc("the sum, with NaN treated as 0")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

/// `prod` and `count_nonzero`.
pub(super) fn product_rows() -> Vec<Op> {
    vec![
        reduce!(
            "prod(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
            prod_spec
        )
        .doc("the product over a dim, or over all; integers and bools yield i64")
        .form(
            "aten.prod.dim_int torch.prod Tensor.prod",
            "prod(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        )
        .form(
            "aten.prod.default torch.prod Tensor.prod",
            "prod(Tensor self, *, ScalarType? dtype=None) -> Tensor",
        ),
        reduce!("count_nonzero(Tensor self, int[1]? dim=None) -> Tensor", count_spec)
            .doc("the number of nonzero elements")
            .spelled("aten.@ aten.@.dim_IntList torch.@")
            .spelled("Tensor.@"),
    ]
}
