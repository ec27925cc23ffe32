//! Identity matrices, triangles of matrices and their indices.

use crate::op::pointwise::{creation_row, not_implemented, pointwise_by};
use crate::op::sharing::always_shared;
use crate::op::{Call, DtypeRule as D, Meaning, MemoryOrder, Op, OpError, OpId, OpResult};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn triangle_rows() -> Vec<Op> {
    let triangle = |name, schema, text: fn(&Call<TensorType>) -> OpResult<&'static str>| {
        pointwise_by((name, schema), D::First, text)
    };
    vec![
        creation_row(
            "eye(SymInt n, SymInt? m=None, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            eye_size,
            "where(i0 == i1, 1, 0)",
        )
        .doc("the identity matrix")
        .spelled("aten.@.m torch.@")
        .form("aten.eye.default", "eye(SymInt n, *, ScalarType? dtype=None) -> Tensor"),
        triangle("tril", "tril(Tensor self, SymInt diagonal=0) -> Tensor", |c| {
            expr_of_matrix(c, "where(i0 <= i1 + diagonal, self, 0)")
        })
        .order(MemoryOrder::RowMajor)
        .doc("the lower triangle of the last two dims; zeros above the diagonal")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .shared_writes(always_shared),
        triangle("triu", "triu(Tensor self, SymInt diagonal=0) -> Tensor", |c| {
            expr_of_matrix(c, "where(i0 >= i1 + diagonal, self, 0)")
        })
        .order(MemoryOrder::RowMajor)
        .doc("the upper triangle of the last two dims; zeros below the diagonal")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .shared_writes(always_shared),
    ]
}

pub(super) fn triangle_index_rows() -> Vec<Op> {
    vec![
        Op::new(
            "tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=None) -> Tensor",
            |c, _| indices_type(c),
            Meaning::Routine(triangle_indices),
        )
        .doc("row and column indices of the elements on and below a diagonal")
        .spelled("aten.@ torch.@"),
        Op::new(
            "triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=None) -> Tensor",
            |c, _| indices_type(c),
            Meaning::Routine(triangle_indices),
        )
        .doc("row and column indices of the elements on and above a diagonal")
        .spelled("aten.@ torch.@"),
    ]
}

fn expr_of_matrix(c: &Call<TensorType>, text: &'static str) -> OpResult<&'static str> {
    match c.leaf("self")?.rank() {
        Some(0 | 1) => Err(OpError::shape(format!(
            "{}: input tensor must have at least 2 dimensions",
            c.op.name
        ))),
        _ => Ok(text),
    }
}

fn eye_size(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    let n = c.dims("n")?;
    let m = if c.is_none("m") { n.clone() } else { c.dims("m")? };
    for (name, d) in [("n", &n[0]), ("m", &m[0])] {
        if let Some(v) = d.as_const()
            && v < 0
        {
            return Err(OpError::arg(
                name,
                format!("{name} must be greater or equal to 0, got {v}"),
            ));
        }
    }
    Ok([n, m].concat())
}

/// `(rows, cols, offset)`. `offset` is clamped to ±2^32: larger ones give the same triangle, because sizes are at most
/// 2^31.
fn triangle_args<T>(c: &Call<T>) -> OpResult<(i64, i64, i64)> {
    let (row, col, offset) = (c.int("row")?, c.int("col")?, c.int("offset")?);
    for (name, v) in [("row", row), ("col", col)] {
        if !(0..=1 << 31).contains(&v) {
            return Err(OpError::arg(name, format!("{name} must be non-negative, got {v}")));
        }
    }
    Ok((row, col, offset.clamp(-(1 << 32), 1 << 32)))
}

/// The columns of one row of the triangle.
fn triangle_columns<T>(c: &Call<T>, row: i64, col: i64, offset: i64) -> std::ops::Range<i64> {
    match c.op.id() {
        Some(OpId::TrilIndices) => 0..(row + offset + 1).clamp(0, col),
        _ => (row + offset).clamp(0, col)..col,
    }
}

fn indices_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (rows, col, offset) = triangle_args(c)?;
    if rows.saturating_mul(col.max(1)) > 1 << 28 {
        return Err(OpError::arg(
            "row",
            "triangles within more than 2^28 elements are not supported",
        ));
    }
    let n: i64 = (0..rows)
        .map(|r| triangle_columns(c, r, col, offset))
        .map(|r| r.end - r.start)
        .sum();
    let dtype = c.opt_dtype("dtype").unwrap_or(DType::I64);
    if !dtype.is_int() || !dtype.is_computed() {
        return Err(not_implemented(c.op.name, dtype));
    }
    Ok(Val::Leaf(TensorType::new(dtype, [Dim::Const(2), Dim::Const(n)])))
}

fn triangle_indices(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let ty = indices_type(&c.map(Tensor::ty))?;
    let (rows, col, offset) = triangle_args(c)?;
    let lines = || (0..rows).map(|r| (r, triangle_columns(c, r, col, offset)));
    let count: i64 = lines().map(|(_, k)| k.end - k.start).sum();
    let mut all = Vec::with_capacity(2 * count as usize);
    lines().for_each(|(r, k)| all.resize(all.len() + (k.end - k.start) as usize, r));
    lines().for_each(|(_, k)| all.extend(k));
    let t = Tensor::from_slice(&[2, all.len() / 2], &all);
    Ok(Val::Leaf(t.to(ty.as_leaf().map_or(DType::I64, |t| t.dtype))))
}
