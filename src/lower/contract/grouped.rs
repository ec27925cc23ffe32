//! Products of the experts of a mixture: groups of rows, each with its own matrix.

use super::unsigned_strides;
use crate::lower::ir::{Def, Groups, Special, Tir, ValueId};
use crate::math::contract::{Grouped, Grouping};
use crate::op::{Call, IndexMap, MatrixProduct, OpId, OpResult};
use crate::program::{BufferOperand, Contract};
use crate::types::{DType, TensorType};

/// The minimum number of rows for each matrix of f16 whose columns are not contiguous: the step converts such a matrix to f32 as a whole.
const ROWS_OF_F16: usize = 4;

/// The minimum number of elements of a chosen matrix. Smaller ones are copied and multiplied as a batch in less time.
const LEAST_CHOSEN: usize = 4096;

/// Recognises `grouped_mm` and `grouped_linear` of floats. Other calls stay routines.
pub(in crate::lower) fn recognise_grouped(
    tir: &mut Tir,
    types: &Call<TensorType>,
    ids: &Call<ValueId>,
) -> OpResult<Option<ValueId>> {
    let product = GroupedProduct {
        rows: *ids.leaf("input")?,
        matrices: *ids.leaf("weight")?,
        integers: *ids.leaf("offs")?,
        grouping: Grouping::Ends,
        transposed: types.op.is(OpId::GroupedLinear),
    };
    product.push(tir)
}

/// Recognises products of rows, one each, and the rows of a table of matrices at some indices: `bmm(w[i], x[:, :, None])`. The matrices
/// need not be copied then.
pub(in crate::lower) fn recognise_chosen(
    tir: &mut Tir,
    p: &MatrixProduct,
    a: ValueId,
    b: ValueId,
) -> OpResult<Option<ValueId>> {
    if p.bias.is_some() || p.alpha != 1.0 {
        return Ok(None);
    }
    let row = chosen_row(tir, p, a, b);
    let column = || chosen_column(tir, p, a, b);
    let Some((product, shape)) = row.or_else(column) else {
        return Ok(None);
    };
    let k = tir.value(product.rows).shape.iter().product::<usize>() / shape[0].max(1);
    let rows = tir.view(product.rows, IndexMap::Reshape, &[shape[0], k])?;
    let result = GroupedProduct { rows, ..product }.push(tir)?;
    result.map(|v| tir.view(v, IndexMap::Reshape, &shape)).transpose()
}

/// A product of one row and a chosen matrix, each of a batch, and the result's shape.
fn chosen_row(tir: &Tir, p: &MatrixProduct, a: ValueId, b: ValueId) -> Option<(GroupedProduct, Vec<usize>)> {
    let shape = p.out.fixed_shape()?;
    let is_row =
        shape.len() == 3 && shape[1] == 1 && tir.value(a).shape.len() == 3 && tir.value(a).shape[0] == shape[0];
    let product = chosen_matrices(tir, b, p.b_transposed).filter(|_| is_row)?;
    Some((GroupedProduct { rows: a, ..product }, shape))
}

/// A product of a chosen matrix and one column, each of a batch, and the result's shape.
fn chosen_column(tir: &Tir, p: &MatrixProduct, a: ValueId, b: ValueId) -> Option<(GroupedProduct, Vec<usize>)> {
    let shape = p.out.fixed_shape()?;
    let is_column =
        shape.len() == 3 && shape[2] == 1 && tir.value(b).shape.len() == 3 && tir.value(b).shape[0] == shape[0];
    // The rows of a matrix that comes first are the columns of one that comes second.
    let product = chosen_matrices(tir, a, !p.a_transposed).filter(|_| is_column)?;
    Some((GroupedProduct { rows: b, ..product }, shape))
}

/// The product with the matrices of a table that `v` copies, without its rows.
fn chosen_matrices(tir: &Tir, v: ValueId, transposed: bool) -> Option<GroupedProduct> {
    let Def::Special {
        args,
        special: Special::Rows { wrap },
    } = &tir.value(v).def
    else {
        return None;
    };
    let (matrices, integers) = (args[0], args[1]);
    let table = &tir.value(matrices).shape;
    let is_table = table.len() == 3 && tir.value(integers).shape.len() == 1 && table[1] * table[2] >= LEAST_CHOSEN;
    is_table.then_some(GroupedProduct {
        rows: v,
        matrices,
        integers,
        grouping: Grouping::Names { wrap: *wrap },
        transposed,
    })
}

/// The operands of such a product.
struct GroupedProduct {
    rows: ValueId,
    matrices: ValueId,
    /// The integers that tell the groups.
    integers: ValueId,
    grouping: Grouping,
    /// Whether the rows of the matrices are the columns of the products.
    transposed: bool,
}

impl GroupedProduct {
    /// Pushes the step. `None` if it does not support the operands, or would be slow.
    fn push(self, tir: &mut Tir) -> OpResult<Option<ValueId>> {
        let dtype = tir.value(self.rows).dtype;
        let (x, w) = (&tir.value(self.rows).shape, &tir.value(self.matrices).shape);
        let is_supported = matches!(dtype, DType::F32 | DType::BF16 | DType::F16);
        if !is_supported || x.contains(&0) || w.contains(&0) {
            return Ok(None);
        }
        let (rows, groups, n) = (x[0], w[0], if self.transposed { w[1] } else { w[2] });
        let strides = tir.access(self.matrices).map(|access| access.strides);
        let strides = strides.filter(|s| s.iter().all(|&s| s >= 0));
        let depth = if self.transposed { 2 } else { 1 };
        let has_contiguous_columns = strides.as_ref().is_some_and(|s| s[depth] == 1);
        if dtype == DType::F16 && !has_contiguous_columns && rows < groups.saturating_mul(ROWS_OF_F16) {
            return Ok(None);
        }
        let matrices = match strides {
            Some(_) => self.matrices,
            None => tir.copy(self.matrices)?,
        };
        let args = vec![contiguous(tir, self.rows)?, matrices, contiguous(tir, self.integers)?];
        let special = Special::Grouped(Groups {
            integers: tir.value(self.integers).dtype,
            grouping: self.grouping,
            transposed: self.transposed,
        });
        tir.push(dtype, &[rows, n], Def::Special { args, special }).map(Some)
    }
}

/// The value itself if its elements are contiguous in memory, else a copy.
fn contiguous(tir: &mut Tir, v: ValueId) -> OpResult<ValueId> {
    let is_contiguous = tir.access(v).is_some_and(|a| a.is_contiguous(&tir.value(v).shape));
    if is_contiguous { Ok(v) } else { tir.copy(v) }
}

/// The step of such a product: the rows, the matrices, and the integers that tell the groups.
pub(in crate::lower) fn grouped_step(operands: &[BufferOperand], dtype: DType, groups: &Groups) -> Contract {
    let (x, w) = (&operands[0].shape, &operands[1].shape);
    let strides = unsigned_strides(&operands[1]);
    let (k, n) = if groups.transposed { (2, 1) } else { (1, 2) };
    let desc = Grouped {
        dtype,
        integers: groups.integers,
        grouping: groups.grouping,
        groups: w[0],
        rows: x[0],
        n: w[n],
        k: x[1],
        b: [strides[0], strides[k], strides[n]],
    };
    Contract::Grouped(desc, operands.to_vec())
}
