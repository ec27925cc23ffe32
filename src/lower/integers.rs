//! Products of quantized operands, as products of their integers.
//!
//! With `x = (p - z) * s` and `w = (q - y) * t`, where `s` is a number or one for each row and `t` is one for each output channel,
//! `x · w + b` is `((p - z) · (q - y)) * (s * t) + b`. The scales follow the product as an epilogue. They are multiplied once
//! a result and not once an operand, so results differ by the rounding of f32.
//!
//! If `p` is a value of bytes and `q - y` fits i8, the product is one of bytes with i32 sums, `p · (q - y)`, from which the
//! epilogue subtracts `z * Σ(q - y)` ([`MatMul::bytes`]). Otherwise the integers may be ones that bf16 represents, so that
//! units that multiply bf16 compute the product without rounding ([`MatMul::exact_in_bf16`]).
//!
//! If `t` is a number for each group of product indices, and `p` is of i8, the weight keeps its scales: the product is `p · w`, whose rows are
//! integers ([`MatMul::a_is_i8`]), from which the epilogue subtracts `z * Σw`.
//!
//! [`MatMul::bytes`]: crate::math::contract::MatMul::bytes
//! [`MatMul::exact_in_bf16`]: crate::math::contract::MatMul::exact_in_bf16
//! [`MatMul::a_is_i8`]: crate::math::contract::MatMul::a_is_i8

mod bytes;
mod operands;
#[cfg(test)]
mod tests;

use super::ir::{Def, Special, Tir, ValueId};
use crate::op::{Contraction, IndexMap, OpResult};
use crate::scalar::{Binary, Ref, ScalarExpr};
use crate::target::{PairUnit, thread_target};
use crate::tensor::{Element, Quantized, Scalar, Tensor};
use crate::types::{DType, TensorType};
pub(super) use bytes::read_bytes;
use operands::{Scale, Zero, converted_bytes, row_sums, row_totals, signed_bytes, split_scale, split_zero};

/// The most product indices of a product of bytes. Sums of as many products fit i32, for zero points up to
/// [`operands::MAX_ZERO`].
const MOST_BYTES: usize = 1 << 15;
/// The most product indices of a convolution of bytes with groups, whose sums are computed in f32, which has them exactly.
const MOST_GROUPED: usize = 1 << 9;

/// The units that a target has for products of integers.
#[derive(Clone, Copy)]
struct ProductUnits {
    bytes: bool,
    pairs: bool,
}

/// Moves the scales of quantized operands after the products, for targets that multiply integers faster than f32.
pub(super) fn move_scales(tir: &mut Tir) -> OpResult<()> {
    let target = thread_target();
    let units = ProductUnits {
        bytes: target.byte_unit() != PairUnit::Widening,
        pairs: target.pair_unit() != PairUnit::Widening,
    };
    move_scales_for(tir, units)
}

fn move_scales_for(tir: &mut Tir, ProductUnits { bytes, pairs }: ProductUnits) -> OpResult<()> {
    if !bytes && !pairs {
        return Ok(());
    }
    tir.redefine_values(|tir, v| {
        if bytes {
            multiply_bytes(tir, v);
        }
        let Some(product) = QuantizedProduct::find(tir, v) else {
            return Ok(());
        };
        let as_bytes = || bytes.then(|| product.as_bytes(tir)).flatten();
        let as_pairs = || pairs.then(|| product.as_pairs(tir)).flatten();
        let factors = match product.has_groups() {
            true => bytes.then(|| product.as_rows(tir)).transpose()?.flatten(),
            false => as_bytes().or_else(as_pairs),
        };
        match factors {
            Some(factors) => product.replace(tir, v, factors),
            None => Ok(()),
        }
    })
}

/// Lets an i32 product of bytes that were converted to i32, such as `_int_mm`, read the bytes.
fn multiply_bytes(tir: &mut Tir, v: ValueId) {
    let Def::Contract {
        args,
        contraction: Contraction::MatMul(p),
    } = &tir.value(v).def
    else {
        return;
    };
    let is_plain = tir.value(v).dtype == DType::I32 && p.alpha == 1.0 && p.bias.is_none();
    let (a, b) = (p.a, p.b);
    let bytes = [args[a], args[b]].map(|x| converted_bytes(tir, x));
    if let (true, [Some(x), Some(w)]) = (is_plain, bytes)
        && tir.value(w).dtype == DType::I8
        && let Def::Contract { args, .. } = &mut tir.values[v.0 as usize].def
    {
        (args[a], args[b]) = (x, w);
    }
}

/// A contraction of quantized operands.
struct QuantizedProduct {
    contraction: Contraction,
    /// The input's integers, minus the zero point.
    input: ValueId,
    scale: Scale,
    weight: Tensor,
    bias: Option<ValueId>,
}

/// The integers to multiply.
struct IntegerFactors {
    input: ValueId,
    weight: Tensor,
    /// The zero point of the input, if it is still to be subtracted, and the sum of the weight for each output channel, of dtype `sums`.
    zero: Option<(Zero, Tensor)>,
    /// The dtype of the sums.
    sums: DType,
    /// Whether the weight keeps its scales.
    scaled: bool,
}

impl QuantizedProduct {
    fn find(tir: &Tir, v: ValueId) -> Option<QuantizedProduct> {
        let Def::Contract { args, contraction } = &tir.value(v).def else {
            return None;
        };
        if tir.value(v).dtype != DType::F32 {
            return None;
        }
        let (input, weight, bias) = match contraction {
            Contraction::MatMul(p) if !p.a_transposed && p.alpha == 1.0 && p.beta == 1.0 => {
                (p.a, weight_rows(tir, args[p.b], p.b_transposed)?, p.bias)
            }
            Contraction::Conv(c) if !c.transposed => (c.input, args[c.weight], c.bias),
            _ => return None,
        };
        let Def::Constant(weight) = &tir.value(weight).def else {
            return None;
        };
        weight.quantized()?;
        let (input, scale) = split_scale(tir, args[input])?;
        Some(QuantizedProduct {
            contraction: contraction.clone(),
            input,
            scale,
            weight: match contraction {
                Contraction::MatMul(_) => weight.reshape(&weight.quantized()?.shape),
                _ => weight.clone(),
            },
            bias: bias.map(|b| args[b]),
        })
    }

    fn is_grouped(&self) -> bool {
        matches!(&self.contraction, Contraction::Conv(c) if c.groups > 1)
    }

    /// Whether the weight has more than one scale for an output channel.
    fn has_groups(&self) -> bool {
        self.quantized().scale_run(1) != self.quantized().shape[1]
    }

    fn quantized(&self) -> &Quantized {
        self.weight.quantized().expect("the weight has integers")
    }

    /// The factors as bytes.
    fn as_bytes(&self, tir: &Tir) -> Option<IntegerFactors> {
        let (input, zero) = split_zero(tir, self.input)?;
        let is_padded = matches!(&self.contraction, Contraction::Conv(c) if c.padding.iter().any(|&p| p > 0));
        let most = if self.is_grouped() { MOST_GROUPED } else { MOST_BYTES };
        if is_padded && !matches!(zero, Zero::Number(_)) || self.quantized().shape[1] > most {
            return None;
        }
        let weight = signed_bytes(self.quantized(), self.weight.shape())?;
        Some(IntegerFactors {
            input,
            weight,
            zero: (!matches!(zero, Zero::Number(0))).then(|| (zero, vector(&row_sums(self.quantized())))),
            sums: DType::I32,
            scaled: false,
        })
    }

    /// The factors as rows of 8-bit integers and a weight that keeps its scales.
    fn as_rows(&self, tir: &mut Tir) -> OpResult<Option<IntegerFactors>> {
        let parts = split_zero(tir, self.input).filter(|(v, _)| tir.value(*v).dtype == DType::I8);
        let (Some((bytes, zero)), Contraction::MatMul(_)) = (parts, &self.contraction) else {
            return Ok(None);
        };
        let mut e = Epilogue::default();
        let root = e.arg(tir, bytes, DType::F32);
        let shape = tir.value(bytes).shape.clone();
        Ok(Some(IntegerFactors {
            input: tir.push(DType::F32, &shape, e.into_def(root))?,
            weight: self.weight.clone(),
            zero: (!matches!(zero, Zero::Number(0))).then(|| (zero, vector(&row_totals(self.quantized())))),
            sums: DType::F32,
            scaled: true,
        }))
    }

    /// The factors as numbers that bf16 represents.
    fn as_pairs(&self, tir: &Tir) -> Option<IntegerFactors> {
        let is_small = |v: ValueId| tir.integer_range(v).is_some_and(|r| r.is_exact_in_bf16());
        Some(IntegerFactors {
            input: Some(self.input).filter(|&v| !self.is_grouped() && is_small(v))?,
            weight: self.quantized().without_scale().into_tensor(self.weight.shape())?,
            zero: None,
            sums: DType::F32,
            scaled: false,
        })
    }

    /// Redefines `v` as the scaled product of the integers.
    fn replace(self, tir: &mut Tir, v: ValueId, mut factors: IntegerFactors) -> OpResult<()> {
        let shape = tir.value(v).shape.clone();
        tir.name = tir.value(v).name.clone();
        // Channels are the second dim of a convolution's result, and the last one of a matrix.
        let (mut contraction, mut spatial) = (self.contraction.clone(), 0);
        let out = TensorType {
            dtype: factors.sums,
            ..contraction.out().clone()
        };
        match &mut contraction {
            Contraction::MatMul(p) => (p.a, p.b, p.b_transposed, p.bias, p.out) = (0, 1, true, None, out),
            Contraction::Conv(c) => {
                (c.input, c.weight, c.bias, c.out) = (0, 1, None, out);
                spatial = shape.len() - 2;
                if let Some((Zero::Number(zero), _)) = factors.zero {
                    factors.input = push_border(tir, factors.input, &mut c.padding, zero)?;
                }
            }
        }
        let weight = push_constant(tir, factors.weight.clone())?;
        let product = Def::Contract {
            args: vec![factors.input, weight],
            contraction,
        };
        factors.input = tir.push(factors.sums, &shape, product)?;
        let along_channels = [vec![self.quantized().shape[0]], vec![1; spatial]].concat();
        let epilogue = self.epilogue(tir, factors, &along_channels)?;
        tir.values[v.0 as usize].def = epilogue;
        Ok(())
    }

    /// The result, from the product of the integers, which is `factors.input`. Values per channel have the given shape.
    fn epilogue(&self, tir: &mut Tir, factors: IntegerFactors, along_channels: &[usize]) -> OpResult<Def> {
        let mut e = Epilogue::default();
        let mut root = e.arg(tir, factors.input, factors.sums);
        if let Some((zero, sums)) = factors.zero {
            let excess = e.excess(tir, zero, sums, along_channels)?;
            root = e.expr.binary(Binary::Sub, root, excess);
        }
        root = e.expr.cast(DType::F32, root);
        if !factors.scaled || matches!(self.scale, Scale::Number(_)) {
            let scales = push_constant(tir, self.channel_scales(along_channels, factors.scaled))?;
            let scales = e.arg(tir, scales, DType::F32);
            root = e.expr.binary(Binary::Mul, root, scales);
        }
        let scale = match self.scale {
            Scale::Number(_) => None,
            Scale::Value(s) => Some(tir.view(s, IndexMap::Reshape, &[])?),
            Scale::Rows(s) => Some(s),
        };
        if let Some(s) = scale {
            let s = e.arg(tir, s, DType::F32);
            root = e.expr.binary(Binary::Mul, root, s);
        }
        if let Some(bias) = self.bias {
            let bias = match along_channels.len() {
                1 => bias,
                _ => tir.view(bias, IndexMap::Reshape, along_channels)?,
            };
            let bias = e.arg(tir, bias, DType::F32);
            root = e.expr.binary(Binary::Add, root, bias);
        }
        Ok(e.into_def(root))
    }

    /// The factor of each channel of the product, as far as it is constant. Without that of the weight if this is `scaled`.
    fn channel_scales(&self, shape: &[usize], scaled: bool) -> Tensor {
        let factor = match self.scale {
            Scale::Number(s) => s,
            Scale::Value(_) | Scale::Rows(_) => 1.0,
        };
        let quantized = self.quantized();
        let own = |i: usize| if scaled { 1.0 } else { quantized.scale_at(i, 0) };
        let scales: Vec<f32> = (0..quantized.shape[0]).map(|i| factor * own(i)).collect();
        Tensor::from_slice(shape, &scales)
    }
}

/// The matrix with output features as rows, possibly with other dims merged, that the operand `b` of a product is, or shows transposed.
fn weight_rows(tir: &Tir, b: ValueId, transposed: bool) -> Option<ValueId> {
    let &[rows, cols] = &tir.value(b).shape[..] else {
        return None;
    };
    let access = tir.access(b).filter(|a| a.offset == 0)?;
    let shown = match transposed {
        true => [cols as i64, 1],
        false => [1, rows as i64],
    };
    let base = tir.value(access.base);
    let features = if transposed { rows } else { cols };
    let is_whole = base.numel() == rows * cols && base.shape.first() == Some(&features);
    (is_whole && access.strides == shown).then_some(access.base)
}

/// A pointwise value in the making.
#[derive(Default)]
struct Epilogue {
    expr: ScalarExpr,
    args: Vec<ValueId>,
}

impl Epilogue {
    /// The next argument, converted to a dtype.
    fn arg(&mut self, tir: &Tir, v: ValueId, dtype: DType) -> Ref {
        let arg = self.expr.arg(self.args.len() as u32, tir.value(v).dtype);
        self.args.push(v);
        self.expr.cast(dtype, arg)
    }

    /// The zero point times the sums of the weight, by which a product of integers is too large.
    fn excess(&mut self, tir: &mut Tir, zero: Zero, mut sums: Tensor, along_channels: &[usize]) -> OpResult<Ref> {
        if let Zero::Number(z) = zero {
            sums = match sums.dtype() {
                DType::F32 => vector(&sums.as_slice::<f32>().iter().map(|s| s * z as f32).collect::<Vec<_>>()),
                _ => vector(
                    &sums
                        .as_slice::<i32>()
                        .iter()
                        .map(|s| s.wrapping_mul(z))
                        .collect::<Vec<_>>(),
                ),
            };
        }
        let dtype = sums.dtype();
        let sums = push_constant(tir, sums.reshape(along_channels))?;
        let sums = self.arg(tir, sums, dtype);
        let z = match zero {
            Zero::Number(_) => return Ok(sums),
            Zero::Value(z) => tir.view(z, IndexMap::Reshape, &[])?,
            Zero::Rows(z) => z,
        };
        let z = self.arg(tir, z, dtype);
        Ok(self.expr.binary(Binary::Mul, sums, z))
    }

    fn into_def(mut self, root: Ref) -> Def {
        self.expr.roots.push(root);
        Def::Pointwise {
            expr: self.expr.into(),
            args: self.args,
        }
    }
}

fn vector<T: Element>(elements: &[T]) -> Tensor {
    Tensor::from_slice(&[elements.len()], elements)
}

fn push_constant(tir: &mut Tir, tensor: Tensor) -> OpResult<ValueId> {
    let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
    tir.push(dtype, &shape, Def::Constant(tensor))
}

/// Pads the spatial dims of `input` with a zero point, which stands for 0, instead of the convolution.
fn push_border(tir: &mut Tir, input: ValueId, padding: &mut [usize], zero: i32) -> OpResult<ValueId> {
    if padding.iter().all(|&p| p == 0) {
        return Ok(input);
    }
    let (dtype, mut shape) = (tir.value(input).dtype, tir.value(input).shape.clone());
    let mut before = vec![0; shape.len()];
    for (d, p) in padding.iter_mut().enumerate() {
        before[d + 2] = *p as i64;
        shape[d + 2] += 2 * std::mem::take(p);
    }
    let special = Special::Pad {
        before,
        value: Scalar::from_i64(dtype, zero as i64),
    };
    let args = vec![input];
    tir.push(dtype, &shape, Def::Special { args, special })
}
