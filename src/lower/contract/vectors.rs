//! Products of a matrix and a vector of 16-bit floats. Each element of the matrix is used once, so a kernel that converts the elements
//! as it reads them takes less time than a product of operands that were converted before.

use crate::lower::ir::{Def, Tir, ValueId};
use crate::lower::weights::is_quantized_weight;
use crate::op::{Build, Call, OpBuilder, OpId, OpResult, Traced};
use crate::types::{DType, TensorType, Val};

/// The product as a sum, if one of its dynamic operands is a vector of 16-bit floats.
pub(in crate::lower) fn recognise_vector_product(
    tir: &mut Tir,
    types: &Call<TensorType>,
    ids: &Call<ValueId>,
) -> OpResult<Option<ValueId>> {
    let [x, y] = match types.op.id() {
        Some(OpId::Mm | OpId::Product) => [&ids.args[0], &ids.args[1]],
        _ => return Ok(None),
    };
    let (Val::Leaf(x), Val::Leaf(y)) = (x, y) else {
        return Ok(None);
    };
    let dtype = tir.value(*x).dtype;
    let (&[rows, depth], &[_, columns]) = (&tir.value(*x).shape[..], &tir.value(*y).shape[..]) else {
        return Ok(None);
    };
    if !dtype.is_half() || depth == 0 {
        return Ok(None);
    }
    // Constants are converted and packed once, and integers stay integers.
    let is_constant = |v: ValueId| {
        let base = tir.access(v).map_or(v, |a| a.base);
        matches!(tir.value(base).def, Def::Constant(_)) || is_quantized_weight(tir, base)
    };
    if is_constant(*x) || is_constant(*y) {
        return Ok(None);
    }
    let (x, y) = (tir.traced(*x), tir.traced(*y));
    let b: &mut dyn Build = tir;
    let sum = if columns == 1 {
        let row = b.transpose(&y, 0, 1)?;
        sum_products(b, &x, &row, 1)?
    } else if rows == 1 {
        let column = b.transpose(&x, 0, 1)?;
        sum_products(b, &y, &column, 0)?
    } else {
        return Ok(None);
    };
    Ok(Some(ValueId(b.to_dtype(&sum, dtype)?.id)))
}

/// The sum of the products along `dim`, in f32.
fn sum_products(b: &mut dyn Build, matrix: &Traced, vector: &Traced, dim: usize) -> OpResult<Traced> {
    let [matrix, vector] = [matrix, vector].map(|t| b.to_dtype(t, DType::F32));
    let products = b.mul(matrix?, vector?)?;
    b.reduce(OpId::Sum, &products, &[dim], true)
}
