//! Creating tensors from numbers: constants, ranges, triangles.

mod nested;
mod ranges;
mod triangles;
mod windows;

use self::ranges::{arange_rows, spaced_rows};
use self::triangles::{triangle_index_rows, triangle_rows};
use crate::op::pointwise::{creation_row, pointwise};
use crate::op::sharing::{always_shared, of_numbers};
use crate::op::{Call, DtypeRule as D, MemoryOrder, Op, OpError, OpId, OpResult};
use crate::types::{Dim, TensorType};

pub(super) fn rows() -> Vec<Op> {
    [
        constant_rows(),
        empty_rows(),
        scalar_rows(),
        like_rows(),
        fill_rows(),
        new_tensor_rows(),
        new_empty_rows(),
        arange_rows(),
        spaced_rows(),
        triangle_rows(),
        triangle_index_rows(),
        windows::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The `size` argument as a shape.
pub(in crate::op::rows) fn size_arg(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    let dims = c.dims("size")?;
    for d in &dims {
        if let Some(n) = d.as_const()
            && n < 0
        {
            return Err(OpError::shape(match c.op.id() {
                Some(OpId::Zeros) => "zeros: Dimension size must be non-negative.".to_string(),
                _ => format!("Trying to create tensor with negative dimension {n}"),
            }));
        }
    }
    Ok(dims)
}

/// The sizes of `empty_permuted`. Its `physical_layout` must be a permutation of the dims.
fn permuted_size(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    let (dims, order) = (size_arg(c)?, c.ints("physical_layout")?);
    if dims.len() != order.len() {
        return Err(OpError::shape(format!(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {} is not equal to \
             len(physical_layout) = {}",
            dims.len(),
            order.len()
        )));
    }
    for (i, &d) in order.iter().enumerate() {
        if d < 0 || d >= dims.len() as i64 {
            return Err(OpError::shape(format!(
                "Dimension out of range (expected to be between 0 and {}, but got {d} at index {i}).",
                dims.len() as i64 - 1
            )));
        }
        if order[..i].contains(&d) {
            return Err(OpError::shape(format!("Duplicate dim not allowed: {d} at index {i}")));
        }
    }
    Ok(dims)
}

fn constant_rows() -> Vec<Op> {
    vec![
        creation_row(
            "full(SymInt[] size, Scalar fill_value, ScalarType? dtype=None) -> Tensor",
            D::GivenByValue,
            size_arg,
            "fill_value",
        )
        .order(MemoryOrder::RowMajor)
        .doc("a tensor filled with the value; its Python type determines the default dtype")
        .spelled("aten.@ torch.@"),
        creation_row(
            "zeros(SymInt[] size, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "0",
        )
        .order(MemoryOrder::RowMajor)
        .doc("a tensor of zeros")
        .spelled("aten.@ torch.@"),
        creation_row(
            "ones(SymInt[] size, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "1",
        )
        .order(MemoryOrder::RowMajor)
        .doc("a tensor of ones")
        .spelled("aten.@ torch.@"),
    ]
}

fn empty_rows() -> Vec<Op> {
    vec![
        creation_row(
            "empty(SymInt[] size, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "0",
        )
        .doc("a tensor of zeros (uninitialized in torch)")
        .spelled("aten.@.memory_format torch.@")
        .form(
            "aten.empty_strided.default torch.empty_strided",
            "empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None) -> Tensor",
        ),
        Op::composite(
            "empty_permuted(SymInt[] size, int[] physical_layout, *, ScalarType? dtype=None) -> Tensor",
            |b, c| {
                permuted_size(&c.types())?;
                b.call(OpId::Empty, vec![c.get("size").clone(), c.get("dtype").clone()])
            },
        )
        .doc("a tensor of zeros; the physical layout is ignored")
        .spelled("aten.@ torch.@"),
    ]
}

/// Tensors created from a single number.
fn scalar_rows() -> Vec<Op> {
    vec![
        creation_row(
            "scalar_tensor(Scalar s, ScalarType? dtype=None) -> Tensor",
            D::Given,
            |_| Ok(vec![]),
            "s",
        )
        .doc("a 0-d tensor with the number; f32 by default")
        .spelled("aten.@ torch.@"),
        creation_row(
            "tensor(Scalar data, ScalarType? dtype=None) -> Tensor",
            D::GivenByValue,
            |_| Ok(vec![]),
            "data",
        )
        .doc("a 0-d tensor with the number, whose Python type determines the default dtype")
        .spelled("torch.@ torch.as_tensor"),
        nested::row(),
    ]
}

fn like_rows() -> Vec<Op> {
    let like = |name, schema, text| pointwise((name, schema), D::Given, text);
    vec![
        like(
            "full_like",
            "full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor",
            "fill_value",
        )
        .doc("a tensor with self's shape and dtype, filled with the value")
        .spelled("aten.@ torch.@"),
        like(
            "zeros_like",
            "zeros_like(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            "0",
        )
        .doc("zeros with self's shape and dtype")
        .spelled("aten.@ torch.@"),
        like(
            "ones_like",
            "ones_like(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            "1",
        )
        .doc("ones with self's shape and dtype")
        .spelled("aten.@ torch.@"),
        like(
            "empty_like",
            "empty_like(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            "0",
        )
        .doc("zeros (uninitialized in torch) with self's shape and dtype")
        .spelled("aten.@ torch.@"),
    ]
}

/// Fills of existing tensors.
fn fill_rows() -> Vec<Op> {
    vec![
        pointwise("fill(Tensor self, Tensor value) -> Tensor", D::First, "value")
            .doc("a tensor with self's shape and dtype, filled with the value")
            .spelled("aten.@.Scalar aten.@.Tensor torch.@")
            .inplace("aten.@_.Scalar aten.@_.Tensor torch.@_ Tensor.@_")
            .shared_writes(of_numbers),
        pointwise("zero(Tensor self) -> Tensor", D::First, "0")
            .doc("zeros with self's shape and dtype")
            .spelled("aten.@")
            .inplace("aten.@_ torch.@_ Tensor.@_")
            .shared_writes(always_shared),
    ]
}

fn new_tensor_rows() -> Vec<Op> {
    vec![
        creation_row(
            "new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "fill_value",
        )
        .order(MemoryOrder::RowMajor)
        .doc("a tensor with self's dtype, filled with the value")
        .spelled("aten.@ Tensor.@"),
        creation_row(
            "new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "0",
        )
        .order(MemoryOrder::RowMajor)
        .doc("zeros with self's dtype")
        .spelled("aten.@ Tensor.@"),
        creation_row(
            "new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "1",
        )
        .order(MemoryOrder::RowMajor)
        .doc("ones with self's dtype")
        .spelled("aten.@ Tensor.@"),
    ]
}

fn new_empty_rows() -> Vec<Op> {
    vec![
        creation_row(
            "new_empty(Tensor self, SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "0",
        )
        .order(MemoryOrder::RowMajor)
        .doc("zeros (uninitialized in torch) with self's dtype")
        .spelled("aten.@ Tensor.@")
        .form(
            "aten.new_empty_strided.default",
            "new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None) -> Tensor",
        ),
    ]
}
