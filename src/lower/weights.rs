//! Weights that are computed from integers: `(integers - zero) * scale`, as models with quantized weights contain them.
//!
//! Such a weight becomes one constant, a [`Quantized`] matrix. Calls then neither compute it nor store it, and products
//! read its integers ([`MatMul::quantized`](crate::math::contract::MatMul)). The rest of lowering sees a constant like
//! any other.

use super::ir::access::Access;
use super::ir::{Def, Tir, ValueId};
use crate::op::{Contraction, OpResult};
use crate::scalar::{Binary, Ref, ScalarExpr, ScalarNode, ScalarOp};
use crate::tensor::{BlockValues, FEWEST_INTEGERS, MAX_ZERO, Quantized, Scalar, Tensor};
use crate::types::{Category, DType};

/// The number of nested operations that are followed. A difference, a product and conversions between them are fewer.
const DEPTH: usize = 16;

/// Replaces weights that are computed from constant integers by constants.
pub(super) fn fold_quantized_weights(tir: &mut Tir) -> OpResult<()> {
    let weights = values_used_as_weights(tir);
    for v in (0..tir.values.len() as u32).map(ValueId) {
        if weights[v.0 as usize]
            && let Some(tensor) = quantized_tensor(tir, v)
        {
            tir.values[v.0 as usize].def = Def::Constant(tensor);
        }
    }
    Ok(())
}

/// The pointwise values that only contractions read, as weights and possibly through views.
fn values_used_as_weights(tir: &Tir) -> Vec<bool> {
    let (mut weight, mut other) = (vec![false; tir.values.len()], vec![false; tir.values.len()]);
    let calls = tir.calls.iter().flat_map(|c| c.call.args.iter());
    let results = tir.output.iter().chain(calls).flat_map(|a| a.leaves());
    results.for_each(|v| other[v.0 as usize] = true);
    // In reverse: all readers of a view are known before its operand inherits them.
    for v in (0..tir.values.len() as u32).rev().map(ValueId) {
        let weight_operand = match &tir.value(v).def {
            Def::Contract {
                contraction: Contraction::MatMul(p),
                ..
            } => Some(p.b),
            Def::Contract {
                contraction: Contraction::Conv(p),
                ..
            } => Some(p.weight),
            _ => None,
        };
        let is_view = matches!(tir.value(v).def, Def::View { .. });
        for (i, a) in tir.operands(v).into_iter().enumerate() {
            let a = a.0 as usize;
            let as_weight = weight_operand == Some(i);
            weight[a] |= as_weight || is_view && weight[v.0 as usize];
            other[a] |= if is_view { other[v.0 as usize] } else { !as_weight };
        }
    }
    let pointwise = |v: &super::ir::ValueDef| matches!(v.def, Def::Pointwise { .. });
    let uses = weight.iter().zip(other).zip(&tir.values);
    uses.map(|((&weight, other), v)| weight && !other && pointwise(v))
        .collect()
}

/// A constant that broadcasts to the weight.
#[derive(Clone, Copy)]
enum QuantParameter {
    Number(Scalar),
    Value(ValueId),
}

/// Integers, and what was done with them so far.
#[derive(Clone, Copy)]
struct AffineIntegers {
    integers: ValueId,
    zero: Option<QuantParameter>,
    scale: Option<QuantParameter>,
}

/// A part of the expression of a weight.
#[derive(Clone, Copy)]
enum WeightForm {
    Affine(AffineIntegers),
    Parameter(QuantParameter),
}

/// Whether [`fold_quantized_weights`] makes a constant of the pointwise value `v` if only products read it.
pub(super) fn is_quantized_weight(tir: &Tir, v: ValueId) -> bool {
    matches!(tir.value(v).def, Def::Pointwise { .. }) && quantized_tensor(tir, v).is_some()
}

/// The weight `v` as a tensor, if it is computed from integers.
fn quantized_tensor(tir: &Tir, v: ValueId) -> Option<Tensor> {
    let value = tir.value(v);
    let float = matches!(value.dtype, DType::F32 | DType::F16 | DType::BF16);
    if !float || value.numel() < FEWEST_INTEGERS || value.shape.len() < 2 {
        return None;
    }
    let reader = WeightReader {
        tir,
        numel: value.numel(),
        depth: DEPTH,
    };
    let WeightForm::Affine(affine) = reader.form_of_value(v)? else {
        return None;
    };
    let (integers, access) = constant_of(tir, affine.integers)?;
    let [rows, cols] = matrix_strides(&access.strides, &value.shape)?;
    if access.offset != 0 || rows.0 != 1 || cols.0 != 1 {
        return None;
    }
    let block = |p: Option<QuantParameter>| match p {
        None => Some(None),
        Some(p) => block_values(tir, p, &value.shape).map(Some),
    };
    let quantized = Quantized {
        integers,
        strides: [rows.1, cols.1],
        shape: [value.shape[0], value.numel() / value.shape[0]],
        zero: match block(affine.zero)? {
            Some(zero) => Some(with_integers(zero)?),
            None => None,
        },
        scale: block(affine.scale)?,
        dtype: value.dtype,
    };
    zeros_fit(&quantized)
        .then(|| quantized.into_tensor(&value.shape))
        .flatten()
}

/// Zero points that were folded to floats, as the integers that they are.
fn with_integers(zero: BlockValues) -> Option<BlockValues> {
    let values = &zero.values;
    if !values.dtype().is_float() {
        return Some(zero);
    }
    let is_integer = |x: f64| x.fract() == 0.0 && x.abs() <= MAX_ZERO as f64;
    let whole = (0..values.numel()).all(|i| is_integer(values.get(i).to_f64()));
    whole.then(|| BlockValues {
        values: values.to(DType::I32),
        ..zero
    })
}

/// Whether integers minus zero points fit 16 bits and are exact in the weight's dtype.
fn zeros_fit(q: &Quantized) -> bool {
    let Some(zero) = &q.zero else { return true };
    // f16 and bf16 have all integers up to 256.
    let range = match (q.dtype, q.integers.dtype()) {
        (DType::F32, _) => -MAX_ZERO..=MAX_ZERO,
        (_, DType::I8) => -128..=128,
        _ => 0..=255,
    };
    let values = &zero.values;
    // If all values of the dtype fit, large tables need not be searched.
    let all_fit = match values.dtype() {
        DType::I8 => *range.start() <= -128 && *range.end() >= 127,
        DType::U8 => *range.start() <= 0 && *range.end() >= 255,
        _ => false,
    };
    values.dtype().is_int() && (all_fit || (0..values.numel()).all(|i| range.contains(&values.get(i).to_i64())))
}

/// Finds integers, zero points and scales in the expression of a weight.
#[derive(Clone, Copy)]
struct WeightReader<'a> {
    tir: &'a Tir,
    /// The number of elements of the weight.
    numel: usize,
    /// The number of operations that may still be followed.
    depth: usize,
}

impl WeightReader<'_> {
    /// What value `v` is in the expression.
    fn form_of_value(mut self, v: ValueId) -> Option<WeightForm> {
        self.depth = self.depth.checked_sub(1)?;
        let value = self.tir.value(v);
        if let Def::Pointwise { expr, args } = &value.def {
            let &[root] = &expr.roots[..] else { return None };
            return self.form_of_node(expr, args, root);
        }
        constant_of(self.tir, v)?;
        let integers = matches!(value.dtype, DType::I8 | DType::U8) && value.numel() == self.numel;
        let affine = AffineIntegers {
            integers: v,
            zero: None,
            scale: None,
        };
        Some(match integers {
            true => WeightForm::Affine(affine),
            false => WeightForm::Parameter(QuantParameter::Value(v)),
        })
    }

    fn form_of_node(mut self, expr: &ScalarExpr, args: &[ValueId], node: Ref) -> Option<WeightForm> {
        self.depth = self.depth.checked_sub(1)?;
        let form = |r: Ref| self.form_of_node(expr, args, r);
        let op = match expr.node(node) {
            ScalarNode::Arg(i) => return self.form_of_value(*args.get(i as usize)?),
            ScalarNode::Op(op) => op,
            ScalarNode::Index(_) => return None,
        };
        match op {
            ScalarOp::Const(s) => Some(WeightForm::Parameter(QuantParameter::Number(s))),
            ScalarOp::Cast(to, x) if keeps_values(expr.dtype(x), to) => form(x),
            ScalarOp::Binary(Binary::Sub, x, y) if expr.dtype(node).size() > 1 => subtract(form(x)?, form(y)?),
            ScalarOp::Binary(Binary::Mul, x, y) if expr.dtype(node).is_float() => multiply(form(x)?, form(y)?),
            _ => None,
        }
    }
}

fn subtract(x: WeightForm, y: WeightForm) -> Option<WeightForm> {
    match (x, y) {
        (WeightForm::Affine(a), WeightForm::Parameter(zero)) if a.zero.is_none() && a.scale.is_none() => {
            let zero = Some(integral(zero)?);
            Some(WeightForm::Affine(AffineIntegers { zero, ..a }))
        }
        _ => None,
    }
}

fn multiply(x: WeightForm, y: WeightForm) -> Option<WeightForm> {
    match (x, y) {
        (WeightForm::Affine(a), WeightForm::Parameter(s)) | (WeightForm::Parameter(s), WeightForm::Affine(a))
            if a.scale.is_none() =>
        {
            Some(WeightForm::Affine(AffineIntegers { scale: Some(s), ..a }))
        }
        // `sub(x, y, alpha=1)` multiplies by 1.
        (WeightForm::Parameter(QuantParameter::Number(one)), p @ WeightForm::Parameter(_)) if one.to_f64() == 1.0 => {
            Some(p)
        }
        _ => None,
    }
}

/// Whether a conversion of integers, zero points and scales is exact. That from f32 to 16 bits is the rounding of the
/// result.
fn keeps_values(from: DType, to: DType) -> bool {
    match (from.category(), to.category()) {
        (Category::Int, Category::Int) => to.size() >= from.size() && (to.size() > 1 || from == to),
        (Category::Int, Category::Float) => true,
        (Category::Float, Category::Float) => from.size() <= 4,
        _ => false,
    }
}

/// A number as an integer, if it is one.
fn integral(p: QuantParameter) -> Option<QuantParameter> {
    match p {
        QuantParameter::Number(s) if s.to_f64().fract() == 0.0 => {
            Some(QuantParameter::Number(Scalar::from_i64(DType::I64, s.to_f64() as i64)))
        }
        QuantParameter::Number(_) => None,
        value => Some(value),
    }
}

/// The constant that `v` is or shows, and the elements that it shows.
fn constant_of(tir: &Tir, v: ValueId) -> Option<(Tensor, Access)> {
    let access = tir.access(v)?;
    match &tir.value(access.base).def {
        Def::Constant(t) => Some((t.clone(), access)),
        _ => None,
    }
}

/// A block's size and the stride between blocks.
type Blocks = (usize, usize);

/// Strides over `shape` as those of a matrix: its first dim, and all others merged. A dim with a stride of 0 at the end
/// makes blocks. `None` if the others do not merge.
fn matrix_strides(strides: &[i64], shape: &[usize]) -> Option<[Blocks; 2]> {
    let stride = |d: usize| usize::try_from(if shape[d] == 1 { 0 } else { strides[d] }).ok();
    let rows = match stride(0)? {
        0 => (shape[0].max(1), 0),
        s => (1, s),
    };
    let mut end = shape.len();
    let mut block = 1;
    while end > 1 && stride(end - 1)? == 0 {
        end -= 1;
        block *= shape[end];
    }
    let mut cols = (block.max(1), 0);
    let mut expected = None;
    for d in (1..end).rev().filter(|&d| shape[d] > 1) {
        let s = stride(d)?;
        match expected {
            None => cols.1 = s,
            Some(e) if e == s => {}
            Some(_) => return None,
        }
        expected = Some(s * shape[d]);
    }
    Some([rows, cols])
}

/// The blocks of a constant that broadcasts to `shape`.
fn block_values(tir: &Tir, p: QuantParameter, shape: &[usize]) -> Option<BlockValues> {
    let v = match p {
        QuantParameter::Number(s) => {
            return Some(BlockValues {
                values: Tensor::from_scalars(s.dtype(), &[], &[s]),
                offset: 0,
                block: [shape[0].max(1), shape[1..].iter().product::<usize>().max(1)],
                strides: [0, 0],
            });
        }
        QuantParameter::Value(v) => v,
    };
    let (values, access) = constant_of(tir, v)?;
    let own = &tir.value(v).shape;
    let skip = shape.len().checked_sub(own.len())?;
    let stride = |d: usize| match d.checked_sub(skip) {
        Some(i) if own[i] != 1 => access.strides[i],
        _ => 0,
    };
    let strides: Vec<i64> = (0..shape.len()).map(stride).collect();
    let [rows, cols] = matrix_strides(&strides, shape)?;
    Some(BlockValues {
        values,
        offset: usize::try_from(access.offset).ok()?,
        block: [rows.0, cols.0],
        strides: [rows.1, cols.1],
    })
}
