//! Products of a matrix and a vector of 16-bit floats, one or a batch of them. Each element of a matrix is used once, so a kernel
//! that converts the elements as it reads them takes less time than a product of operands that were converted before.

use crate::lower::ir::{Def, Tir, ValueId};
use crate::lower::weights::is_quantized_weight;
use crate::op::{Build, Call, MatrixProduct, OpBuilder, OpId, OpResult, Traced};
use crate::target::{PairUnit, thread_target};
use crate::types::{DType, Val};

/// The maximum number of elements of a matrix that takes less time as one of a batch of small products.
const TINY: usize = 64;
/// The same for bf16 that a target multiplies in pairs, with rows that such a product reads where they are.
const SMALL: usize = 16 << 10;

/// The product as a sum, if one of its dynamic operands is a vector of 16-bit floats, or a batch of them for as many matrices.
pub(in crate::lower) fn recognise_vector_product(
    tir: &mut Tir,
    p: &MatrixProduct,
    ids: &Call<ValueId>,
    [x, y]: [ValueId; 2],
) -> OpResult<Option<ValueId>> {
    // Constants are converted and packed once, and integers stay integers.
    let is_constant = |v: ValueId| {
        let base = tir.access(v).map_or(v, |a| a.base);
        matches!(tir.value(base).def, Def::Constant(_)) || is_quantized_weight(tir, base)
    };
    if p.a_transposed || !tir.value(x).dtype.is_half() || is_constant(x) || is_constant(y) {
        return Ok(None);
    }
    let found = vector_of(p, &tir.value(x).shape, &tir.value(y).shape);
    let Some(vector) = found.filter(|&v| !is_small_product(tir, p, v, [x, y])) else {
        return Ok(None);
    };
    let (x, y) = (tir.traced(x), tir.traced(y));
    let bias = p.bias.filter(|_| p.beta != 0.0).map(|i| &ids.args[i]);
    let bias = bias.and_then(|v| v.as_leaf().map(|&v| tir.traced(v)));
    let b: &mut dyn Build = tir;
    // The columns of B, as rows.
    let last = y.rank()? - 1;
    let sum = match (vector, p.b_transposed) {
        (Vector::Right, true) => sum_products(b, &x, &y, 1)?,
        (Vector::Right, false) => {
            let row = b.transpose(&y, last - 1, last)?;
            sum_products(b, &x, &row, 1)?
        }
        (Vector::Left, transposed) => {
            let y = if transposed {
                b.transpose(&y, last - 1, last)?
            } else {
                y
            };
            let column = b.transpose(&x, x.rank()? - 2, x.rank()? - 1)?;
            sum_products(b, &y, &column, 2)?
        }
    };
    let sum = with_addend(b, p, sum, bias)?;
    Ok(Some(ValueId(b.to_dtype(&sum, p.out.dtype)?.id)))
}

/// The operand that is a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vector {
    Left,
    Right,
}

/// Which operand of shapes `x` and `y` is a vector, if no matrix is multiplied twice.
fn vector_of(p: &MatrixProduct, x: &[usize], y: &[usize]) -> Option<Vector> {
    let ([batch_x @ .., rows, depth], [batch_y @ .., k, n]) = (x, y) else {
        return None;
    };
    let columns = if p.b_transposed { *k } else { *n };
    let out = p.out.fixed_shape()?;
    // Otherwise one of the matrices is broadcast.
    let all: usize = out[..out.len().checked_sub(2)?].iter().product();
    let is_used_once = |batch: &[usize]| batch.iter().product::<usize>() == all;
    match (rows, columns) {
        _ if *depth == 0 => None,
        (_, 1) if is_used_once(batch_x) => Some(Vector::Right),
        (1, _) if is_used_once(batch_y) => Some(Vector::Left),
        _ => None,
    }
}

/// Whether the products of the matrices, of a batch, have a faster kernel.
fn is_small_product(tir: &Tir, p: &MatrixProduct, vector: Vector, [x, y]: [ValueId; 2]) -> bool {
    let matrix = tir.value(if vector == Vector::Left { y } else { x });
    let (dtype, shape) = (matrix.dtype, &matrix.shape);
    let (batch, size) = shape.split_at(shape.len() - 2);
    let (count, len): (usize, usize) = (batch.iter().product(), size.iter().product());
    let reads_rows = dtype == DType::BF16
        && (vector, p.b_transposed) == (Vector::Left, false)
        && thread_target().pair_unit() != PairUnit::Widening;
    count > 1 && len <= if reads_rows { SMALL } else { TINY }
}

/// The sum of the products along one of the last two dims, in f32. `from_end` is 1 for the last one.
fn sum_products(b: &mut dyn Build, matrix: &Traced, vector: &Traced, from_end: usize) -> OpResult<Traced> {
    let [matrix, vector] = [matrix, vector].map(|t| b.to_dtype(t, DType::F32));
    let products = b.mul(matrix?, vector?)?;
    let dim = products.rank()? - from_end;
    b.reduce(OpId::Sum, &products, &[dim], true)
}

/// The product with its factor, and with the addend.
fn with_addend(b: &mut dyn Build, p: &MatrixProduct, mut sum: Traced, bias: Option<Traced>) -> OpResult<Traced> {
    if p.alpha != 1.0 {
        sum = b.mul(&sum, Val::Float(p.alpha))?;
    }
    let Some(bias) = bias else {
        return Ok(sum);
    };
    let mut bias = b.to_dtype(&bias, DType::F32)?;
    if p.beta != 1.0 {
        bias = b.mul(&bias, Val::Float(p.beta))?;
    }
    b.binary(OpId::Add, &sum, &bias)
}
