//! The parts of quantized operands: integers, zero points and scales.

use crate::lower::ir::{Def, Tir, ValueId};
use crate::scalar::{Binary, Ref, ScalarExpr, ScalarNode, ScalarOp};
use crate::tensor::{BlockValues, Quantized, Scalar, Tensor};
use crate::types::DType;

/// The greatest magnitude of a zero point of bytes.
pub(super) const MAX_ZERO: i32 = 256;

/// A scale of an operand.
#[derive(Clone, Copy)]
pub(super) enum Scale {
    Number(f32),
    /// A value of one element.
    Value(ValueId),
    /// A number for each row of a matrix, in a column.
    Rows(ValueId),
}

/// A zero point of an operand, an integer.
#[derive(Clone, Copy)]
pub(super) enum Zero {
    Number(i32),
    /// A value of one element.
    Value(ValueId),
    /// An integer for each row of a matrix, in a column.
    Rows(ValueId),
}

/// The expression of a pointwise value with one result.
struct Expression<'a> {
    tir: &'a Tir,
    shape: &'a [usize],
    expr: &'a ScalarExpr,
    args: &'a [ValueId],
    root: Ref,
}

impl Expression<'_> {
    fn of_value(tir: &Tir, v: ValueId) -> Option<Expression<'_>> {
        let Def::Pointwise { expr, args } = &tir.value(v).def else {
            return None;
        };
        let &[root] = &expr.roots[..] else { return None };
        Some(Expression {
            tir,
            shape: &tir.value(v).shape,
            expr,
            args,
            root,
        })
    }

    /// The operands, if `r` is this operation.
    fn operands(&self, op: Binary, r: Ref) -> Option<[Ref; 2]> {
        match self.expr.node(r) {
            ScalarNode::Op(ScalarOp::Binary(found, x, y)) if found == op => Some([x, y]),
            _ => None,
        }
    }

    /// The argument that `r` is, with conversions to f32 if `casts`.
    fn arg(&self, r: Ref, casts: bool) -> Option<ValueId> {
        match self.expr.node(r) {
            ScalarNode::Arg(i) => self.args.get(i as usize).copied(),
            ScalarNode::Op(ScalarOp::Cast(DType::F32, x)) if casts => self.arg(x, false),
            _ => None,
        }
    }

    fn is_whole(&self, v: &ValueId) -> bool {
        self.tir.value(*v).shape == self.shape
    }

    fn is_single(&self, v: &ValueId) -> bool {
        self.tir.value(*v).numel() == 1
    }

    /// Whether a value is a column with an element for each row of the matrix.
    fn is_column(&self, v: &ValueId) -> bool {
        let &[rows, _] = self.shape else { return false };
        self.tir.value(*v).shape == [rows, 1]
    }

    fn constant(&self, r: Ref) -> Option<f32> {
        match self.expr.node(r) {
            ScalarNode::Op(ScalarOp::Const(Scalar::F32(x))) => Some(x),
            _ => None,
        }
    }
}

/// The value that `v` is a multiple of, and the factor.
pub(super) fn split_scale(tir: &Tir, v: ValueId) -> Option<(ValueId, Scale)> {
    let e = Expression::of_value(tir, v)?;
    let [x, y] = e.operands(Binary::Mul, e.root)?;
    let whole = |r: Ref| e.arg(r, false).filter(|v| e.is_whole(v));
    let number = |r: Ref| match e.constant(r) {
        Some(s) => Some(Scale::Number(s)),
        None => match e.arg(r, true)? {
            v if e.is_single(&v) => Some(Scale::Value(v)),
            v if e.is_column(&v) => Some(Scale::Rows(v)),
            _ => None,
        },
    };
    let split = |x, y| Some((whole(x)?, number(y)?));
    split(x, y).or_else(|| split(y, x))
}

/// The bytes that `v`, of f32, is computed from, and what is subtracted from them.
pub(super) fn split_zero(tir: &Tir, v: ValueId) -> Option<(ValueId, Zero)> {
    let e = Expression::of_value(tir, v)?;
    let is_byte = |v: &ValueId| matches!(tir.value(*v).dtype, DType::U8 | DType::I8);
    let bytes = |r: Ref| e.arg(r, true).filter(|v| e.is_whole(v) && is_byte(v));
    let Some([x, y]) = e.operands(Binary::Sub, e.root) else {
        return Some((bytes(e.root)?, Zero::Number(0)));
    };
    let integers = match bytes(x) {
        Some(v) => v,
        None => match split_zero(tir, e.arg(x, false).filter(|v| e.is_whole(v))?)? {
            (v, Zero::Number(0)) => v,
            _ => return None,
        },
    };
    let is_small =
        |v: &ValueId| tir.value(*v).dtype.is_int() && tir.integer_range(*v).is_some_and(|r| r.is_exact_in_bf16());
    let zero = match e.constant(y) {
        Some(z) => Zero::Number(Some(z as i32).filter(|&i| i as f32 == z && i.abs() <= MAX_ZERO)?),
        None => match converted_integers(tir, e.arg(y, true)?) {
            v if !is_small(&v) => return None,
            v if e.is_single(&v) => Zero::Value(v),
            v if e.is_column(&v) => Zero::Rows(v),
            _ => return None,
        },
    };
    Some((integers, zero))
}

/// The integers that `v`, of f32, is converted from, or else `v`.
fn converted_integers(tir: &Tir, v: ValueId) -> ValueId {
    let source = Expression::of_value(tir, v).and_then(|e| e.arg(e.root, true).filter(|s| e.is_whole(s)));
    source.filter(|s| tir.value(*s).dtype.is_int()).unwrap_or(v)
}

/// The bytes that `v`, of i32, is converted from.
pub(super) fn converted_bytes(tir: &Tir, v: ValueId) -> Option<ValueId> {
    let e = Expression::of_value(tir, v)?;
    let ScalarNode::Op(ScalarOp::Cast(DType::I32, x)) = e.expr.node(e.root) else {
        return None;
    };
    let is_byte = |v: &ValueId| matches!(tir.value(*v).dtype, DType::U8 | DType::I8);
    e.arg(x, false).filter(|v| e.is_whole(v) && is_byte(v))
}

/// The integers of a weight minus their zero points as i8 of the given shape. `None` if they do not fit.
pub(super) fn signed_bytes(q: &Quantized, shape: &[usize]) -> Option<Tensor> {
    let [rows, cols] = q.shape;
    let is_zero = |z: &BlockValues| (0..z.values.numel()).all(|i| z.values.get(i).to_i64() == 0);
    let in_order = q.strides == [cols, 1] && q.integers.numel() == rows * cols;
    if q.integers.dtype() == DType::I8 && in_order && q.zero.as_ref().is_none_or(is_zero) {
        return Some(q.integers.reshape(shape));
    }
    let inner = q.inner_dim();
    let step = if inner == 1 { [cols, 1] } else { [1, cols] };
    let (mut bytes, mut fits) = (vec![0i8; rows * cols], true);
    q.for_each_line(|index, line| {
        for (i, &x) in line.iter().enumerate() {
            fits &= i8::try_from(x).is_ok();
            bytes[index * step[0] + i * step[1]] = x as i8;
        }
    });
    fits.then(|| Tensor::from_slice(shape, &bytes))
}

/// The sum of the elements of a weight, for each row.
pub(super) fn row_totals(q: &Quantized) -> Vec<f32> {
    let (inner, mut totals) = (q.inner_dim(), vec![0f64; q.shape[0]]);
    q.for_each_line(|index, line| {
        for (i, &x) in line.iter().enumerate() {
            let [row, col] = if inner == 1 { [index, i] } else { [i, index] };
            totals[row] += f64::from(x) * f64::from(q.scale_at(row, col));
        }
    });
    totals.into_iter().map(|t| t as f32).collect()
}

/// The sum of the integers of a weight minus their zero points, for each row.
pub(super) fn row_sums(q: &Quantized) -> Vec<i32> {
    let (inner, mut sums) = (q.inner_dim(), vec![0i32; q.shape[0]]);
    q.for_each_line(|index, line| match inner {
        1 => sums[index] = line.iter().map(|&x| i32::from(x)).sum(),
        _ => sums.iter_mut().zip(line).for_each(|(s, &x)| *s += i32::from(x)),
    });
    sums
}
