//! Identity matrices, triangles of matrices and their indices.

use crate::op::pointwise::{creation_row, not_implemented, pointwise_by};
use crate::op::rows::dense::zeros;
use crate::op::sharing::always_shared;
use crate::op::{Call, DtypeRule as D, Meaning, MemoryOrder, Op, OpError, OpId, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, WideLoop, run_wide};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::ops::Range;

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
            Meaning::Fill(triangle_indices),
        )
        .doc("row and column indices of the elements on and below a diagonal")
        .spelled("aten.@ torch.@"),
        Op::new(
            "triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=None) -> Tensor",
            |c, _| indices_type(c),
            Meaning::Fill(triangle_indices),
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

fn triangle_indices(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    let (rows, col, offset) = triangle_args(c)?;
    let lines = Triangle {
        rows,
        columns: |r| triangle_columns(c, r, col, offset),
    };
    match outs[0].dtype() {
        DType::I64 => run_wide(lines.into_indices(outs[0].as_mut_slice::<i64>(), |i| i)),
        DType::I32 => run_wide(lines.into_indices(outs[0].as_mut_slice::<i32>(), |i| i as i32)),
        _ => {
            let mut wide = zeros(DType::I64, outs[0].shape())?;
            run_wide(lines.into_indices(wide.as_mut_slice::<i64>(), |i| i));
            outs[0].fill_from(&wide.to(outs[0].dtype()));
        }
    }
    Ok(())
}

/// The rows of a triangle, and the columns of each.
struct Triangle<F> {
    rows: i64,
    columns: F,
}

impl<F: Fn(i64) -> Range<i64>> Triangle<F> {
    /// The loop that writes the indices of all elements: their rows, then their columns.
    fn into_indices<T, G: Fn(i64) -> T>(self, out: &mut [T], of: G) -> TriangleIndices<'_, T, F, G> {
        TriangleIndices {
            triangle: self,
            out,
            of,
        }
    }
}

struct TriangleIndices<'a, T, F, G> {
    triangle: Triangle<F>,
    out: &'a mut [T],
    of: G,
}

impl<T: Copy, F: Fn(i64) -> Range<i64>, G: Fn(i64) -> T> WideLoop for TriangleIndices<'_, T, F, G> {
    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "loops over indices become vector code more often"
    )]
    fn run(self) {
        let (mut rows, mut columns) = self.out.split_at_mut(self.out.len() / 2);
        for r in 0..self.triangle.rows {
            let range = (self.triangle.columns)(r);
            let n = (range.end - range.start) as usize;
            let (row, column);
            (row, rows) = rows.split_at_mut(n);
            (column, columns) = columns.split_at_mut(n);
            row.fill((self.of)(r));
            for k in 0..n {
                column[k] = (self.of)(range.start + k as i64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::by_name;

    #[test]
    fn indices_are_those_of_a_walk_through_the_rows() {
        for (rows, col, offset) in [
            (3, 5, 0),
            (5, 3, 1),
            (4, 40, -2),
            (40, 4, 30),
            (2, 2, -5),
            (0, 3, 0),
            (3, 0, 0),
        ] {
            for (name, lower) in [("tril_indices", true), ("triu_indices", false)] {
                for dtype in [DType::I64, DType::I32, DType::I16] {
                    let inside = |r: i64, k: i64| if lower { k - r <= offset } else { k - r >= offset };
                    let all = (0..rows).flat_map(|r| (0..col).map(move |k| (r, k)));
                    let places: Vec<(i64, i64)> = all.filter(|&(r, k)| inside(r, k)).collect();
                    let want: Vec<i64> = places.iter().map(|p| p.0).chain(places.iter().map(|p| p.1)).collect();
                    let call = Call {
                        op: by_name(name).expect("a row"),
                        args: vec![Val::int(rows), Val::int(col), Val::int(offset), Val::DType(dtype)],
                    };
                    let mut out = Tensor::zeros(dtype, &[2, places.len()]);
                    triangle_indices(&call, &mut [ViewMut::from(&mut out)], &Pool::new(1)).expect("indices");
                    assert_eq!(
                        out.to(DType::I64).as_slice::<i64>(),
                        want,
                        "{name} {rows} {col} {offset}"
                    );
                }
            }
        }
    }
}
