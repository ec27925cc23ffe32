//! Affine quantization: conversion of numbers to integers with a scale and a zero point and back, as in the exported
//! graphs of torch.ao (`quantized_decomposed`), and both in one step (`fake_quantize`).

use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut rows = to_integers();
    rows.extend(dequantize_rows());
    rows.extend(dequantize_token_rows());
    rows.extend(fake_quantize_rows());
    rows.extend(qparam_rows());
    rows
}

fn to_integers() -> Vec<Op> {
    vec![
        Op::composite("quantize_per_tensor(Tensor input, Any scale, Any zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
            |b, c| quantize(b, c, None),
        )
        .doc("round(input / scale) + zero_point, clamped to bounds, as integers")
        .form(
            "quantized_decomposed.quantize_per_tensor.default",
            "quantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
        )
        .form(
            "quantized_decomposed.quantize_per_tensor.tensor",
            "quantize_per_tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype) -> \
             Tensor",
        ),
        Op::composite("quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max, \
             ScalarType dtype) -> Tensor",
            |b, c| {
                let axis = wrap_dim(c.int("axis")?, c.leaf("input")?.rank()?)?;
                quantize(b, c, Some(axis))
            },
        )
        .doc("quantize_per_tensor with a scale and a zero point for each index of a dim")
        .spelled("quantized_decomposed.@.default"),
        Op::composite("quantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype) -> \
             Tensor",
            |b, c| {
                let inverse = b.reciprocal(c.leaf("scales")?)?;
                let x = b.mul(c.leaf("input")?, &inverse)?;
                let x = b.add(&x, c.leaf("zero_points")?)?;
                let x = b.round(&x)?;
                clamp_to_quant_range(b, c, &x)
            },
        )
        .doc("round(input / scales + zero_points), clamped to bounds, with a scale for each row")
        .spelled("quantized_decomposed.@.default"),
    ]
}

fn dequantize_rows() -> Vec<Op> {
    vec![
        Op::composite("dequantize_per_tensor(Tensor input, Any scale, Any zero_point, int quant_min, int quant_max, ScalarType dtype, *, \
             ScalarType? out_dtype=None) -> Tensor",
            |b, c| {
                let x = b.to_dtype(quantized_input(c)?, c.opt_dtype("out_dtype").unwrap_or(DType::F32))?;
                let (scale, zero) = (scalar_param(b, c, "scale")?, scalar_param(b, c, "zero_point")?);
                let x = b.sub(&x, zero)?;
                b.mul(&x, scale).map(Val::Leaf)
            },
        )
        .doc("(input - zero_point) * scale")
        .form(
            "quantized_decomposed.dequantize_per_tensor.default",
            "dequantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype, *, \
             ScalarType? out_dtype=None) -> Tensor",
        )
        .form(
            "quantized_decomposed.dequantize_per_tensor.tensor",
            "dequantize_per_tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype, \
             *, ScalarType? out_dtype=None) -> Tensor",
        ),
        Op::composite("dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max, \
             ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor",
            |b, c| {
                let (mut x, dtype) = (quantized_input(c)?.clone(), c.opt_dtype("out_dtype").unwrap_or(DType::F32));
                let axis = wrap_dim(c.int("axis")?, x.rank()?)?;
                if let Some(zeros) = c.opt_leaf("zero_points") {
                    let zeros = reshape_along(b, zeros, x.rank()?, axis)?;
                    x = b.sub(&x, &zeros)?;
                }
                let scales = reshape_along(b, c.leaf("scales")?, x.rank()?, axis)?;
                let x = b.mul(&x, &scales)?;
                b.to_dtype(&x, dtype).map(Val::Leaf)
            },
        )
        .doc("dequantize_per_tensor with a scale and a zero point for each index of a dim")
        .spelled("quantized_decomposed.@.default"),
    ]
}

fn dequantize_token_rows() -> Vec<Op> {
    vec![
        Op::composite("dequantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, \
             ScalarType output_dtype) -> Tensor",
            |b, c| {
                let x = b.sub(c.leaf("input")?, c.leaf("zero_points")?)?;
                let x = b.mul(&x, c.leaf("scales")?)?;
                b.to_dtype(&x, c.opt_dtype("output_dtype").unwrap_or(DType::F32)).map(Val::Leaf)
            },
        )
        .doc("(input - zero_points) * scales, with a scale for each row")
        .spelled("quantized_decomposed.@.default"),
    ]
}

fn fake_quantize_rows() -> Vec<Op> {
    vec![
        Op::composite("fake_quantize_per_tensor_affine(Tensor self, Any scale, Any zero_point, int quant_min, int quant_max) -> Tensor",
            |b, c| {
                let (scale, zero) = (scalar_param(b, c, "scale")?, scalar_param(b, c, "zero_point")?);
                fake_quantize(b, c, scale, zero)
            },
        )
        .doc("the values after quantization and dequantization")
        .form(
            "aten.fake_quantize_per_tensor_affine.default torch.fake_quantize_per_tensor_affine",
            "fake_quantize_per_tensor_affine(Tensor self, float scale, int zero_point, int quant_min, int quant_max) -> Tensor",
        )
        .form(
            "aten.fake_quantize_per_tensor_affine.tensor_qparams torch.fake_quantize_per_tensor_affine",
            "fake_quantize_per_tensor_affine(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max) -> Tensor",
        ),
        Op::composite("fake_quantize_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int \
             quant_max) -> Tensor",
            |b, c| {
                let rank = c.leaf("self")?.rank()?;
                let axis = wrap_dim(c.int("axis")?, rank)?;
                let scale = reshape_along(b, c.leaf("scale")?, rank, axis)?;
                let zero = reshape_along(b, c.leaf("zero_point")?, rank, axis)?;
                fake_quantize(b, c, scale.into(), zero.into())
            },
        )
        .doc("fake_quantize_per_tensor_affine with a scale and a zero point for each index of a dim")
        .spelled("aten.@ torch.@"),
    ]
}

fn qparam_rows() -> Vec<Op> {
    let row = |name, symmetric: crate::op::Decompose| {
        Op::composite(
            (
                name,
                "choose_qparams(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)",
            ),
            symmetric,
        )
    };
    vec![
        row("choose_qparams", |b, c| choose_qparams(b, c, false))
            .doc("the scale and zero point that map the values of a tensor to a range of integers")
            .spelled("quantized_decomposed.choose_qparams.tensor"),
        row("choose_qparams_symmetric", |b, c| choose_qparams(b, c, true))
            .doc("the scale and zero point that symmetrically map the magnitudes of a tensor to a range of integers")
            .spelled("quantized_decomposed.choose_qparams_symmetric.tensor"),
    ]
}

/// A parameter that is a number or a tensor of one element.
fn scalar_param(b: &mut dyn Build, c: &Call<Traced>, name: &str) -> OpResult<Val<Traced>> {
    match c.get(name) {
        Val::Leaf(t) => b.reshape(t, &[]).map(Val::Leaf),
        number => Ok(number.clone()),
    }
}

/// `1 / scale`; for numbers, in double precision.
fn inverse_scale(b: &mut dyn Build, scale: Val<Traced>) -> OpResult<Val<Traced>> {
    match scale {
        Val::Leaf(t) => b.reciprocal(&t).map(Val::Leaf),
        number => Ok(Val::Float(1.0 / number.as_f64().unwrap_or(f64::NAN))),
    }
}

/// A vector, reshaped to lie along dim `axis` of a tensor of rank `rank`.
fn reshape_along(b: &mut dyn Build, t: &Traced, rank: usize, axis: usize) -> OpResult<Traced> {
    let mut shape = vec![Dim::Const(1); rank];
    // A tensor of rank 0 has no dim, although -1 and 0 wrap to one.
    let Some(size) = shape.get_mut(axis) else {
        let title = "`axis` must be between 0 and number of dimensions of input";
        return Err(OpError::arg("axis", title));
    };
    *size = t.ty.numel();
    b.reshape(t, &shape)
}

/// The quantized input of a call, which must have the dtype that the call states.
fn quantized_input(c: &Call<Traced>) -> OpResult<&Traced> {
    let x = c.leaf("input")?;
    match c.opt_dtype("dtype") {
        Some(d) if d != x.dtype() => Err(OpError::dtype(format!(
            "Expecting input to have dtype: torch.{}, but got dtype: torch.{}",
            d.torch_name(),
            x.dtype().torch_name()
        ))),
        _ => Ok(x),
    }
}

/// Clamps to the call's bounds and converts to its dtype.
fn clamp_to_quant_range(b: &mut dyn Build, c: &Call<Traced>, x: &Traced) -> OpResult<Val<Traced>> {
    let x = b.op(
        OpId::Clamp,
        [x.into(), c.get("quant_min").clone(), c.get("quant_max").clone()],
    )?;
    b.to_dtype(&x, c.opt_dtype("dtype").unwrap_or(x.dtype())).map(Val::Leaf)
}

fn quantize(b: &mut dyn Build, c: &Call<Traced>, axis: Option<usize>) -> OpResult<Val<Traced>> {
    let x = b.to_dtype(c.leaf("input")?, c.leaf("input")?.dtype().compute_dtype())?;
    let (scale, zero) = match axis {
        Some(axis) => {
            let mut part = |name: &str| reshape_along(b, c.leaf(name)?, x.rank()?, axis).map(Val::Leaf);
            (part("scales")?, part("zero_points")?)
        }
        None => (scalar_param(b, c, "scale")?, scalar_param(b, c, "zero_point")?),
    };
    let inverse = inverse_scale(b, scale)?;
    let x = b.mul(&x, inverse)?;
    let x = b.round(&x)?;
    let x = b.add(&x, zero)?;
    clamp_to_quant_range(b, c, &x)
}

/// Computes in f32 like torch's kernel: `(clamp(round(x / scale) + zero) - zero) * scale`, with the inverse of the
/// scale.
fn fake_quantize(b: &mut dyn Build, c: &Call<Traced>, scale: Val<Traced>, zero: Val<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let dtype = x.dtype();
    let x = b.to_dtype(x, dtype.compute_dtype())?;
    let inverse = match scale.as_f64() {
        Some(s) => Val::Float(f64::from(1.0 / s as f32)),
        None => inverse_scale(b, scale.clone())?,
    };
    let y = b.mul(&x, inverse)?;
    let y = b.round(&y)?;
    let y = b.add(&y, zero.clone())?;
    let y = b.op(
        OpId::Clamp,
        [y.into(), c.get("quant_min").clone(), c.get("quant_max").clone()],
    )?;
    let y = b.sub(&y, zero)?;
    let y = b.mul(&y, scale)?;
    b.to_dtype(&y, dtype).map(Val::Leaf)
}

/// The scale that maps the values from `least` to `most` to `span` steps.
fn choose_scale(b: &mut dyn Build, [least, most]: [&Traced; 2], span: f64, symmetric: bool) -> OpResult<Traced> {
    match symmetric {
        true => {
            let least = b.neg(least)?;
            let size = b.maximum(&least, most)?;
            b.div(&size, Val::Float(span / 2.0))
        }
        false => {
            let size = b.sub(most, least)?;
            b.div(&size, Val::Float(span))
        }
    }
}

/// `determine_qparams` of torch.ao. The range always includes zero.
fn choose_qparams(b: &mut dyn Build, c: &Call<Traced>, symmetric: bool) -> OpResult<Val<Traced>> {
    let (low, high, eps) = (c.int("quant_min")?, c.int("quant_max")?, c.f64("eps")?);
    let span = high as f64 - low as f64;
    let bounds = b.call_many(OpId::Aminmax, [c.leaf("input")?.into()])?;
    let [least, most] = &bounds[..] else {
        return Err(OpError::shape("aminmax returns two tensors"));
    };
    let least = b.op(OpId::Clamp, [least.into(), Val::None, Val::int(0)])?;
    let most = b.op(OpId::Clamp, [most.into(), Val::int(0)])?;
    let scale = choose_scale(b, [&least, &most], span, symmetric)?;
    let scale = b.op(OpId::Clamp, [scale.into(), Val::Float(eps)])?;
    let zero = match symmetric {
        true => {
            let middle = if c.opt_dtype("dtype") == Some(DType::U8) {
                128
            } else {
                0
            };
            b.full(&[], Val::int(middle), DType::I64)?
        }
        false => {
            let below = b.div(&least, &scale)?;
            let below = b.round(&below)?;
            let below = b.to_dtype(&below, DType::I64)?;
            let zero = b.rsub(&below, Val::int(low))?;
            b.op(OpId::Clamp, [zero.into(), Val::int(low), Val::int(high)])?
        }
    };
    let scale = b.to_dtype(&scale, DType::F64)?;
    let shape = [Dim::Const(1)];
    Ok(Val::Tuple(vec![
        b.reshape(&scale, &shape)?.into(),
        b.reshape(&zero, &shape)?.into(),
    ]))
}
