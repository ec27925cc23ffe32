//! Affine quantization by blocks, as torchao's graphs call it: a scale and a zero point for each block of a tensor.

use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite(
            "dequantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType input_dtype, \
             Scalar? quant_min=None, Scalar? quant_max=None, ScalarType? output_dtype=None) -> Tensor",
            dequantize,
        )
        .doc("(input - zero_point) * scale, with a scale and a zero point for each block")
        .spelled("torchao.@.default"),
        Op::composite(
            "quantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType output_dtype, \
             Scalar? quant_min=None, Scalar? quant_max=None) -> Tensor",
            quantize,
        )
        .doc("round(input / scale) + zero_point, clamped to bounds, with a scale and a zero point for each block")
        .spelled("torchao.@.default"),
        Op::composite(
            "choose_qparams_affine(Tensor? input, str mapping_type, SymInt[] block_size, ScalarType target_dtype, Scalar? \
             quant_min=None, Scalar? quant_max=None, float? eps=None, ScalarType? scale_dtype=None, ScalarType? \
             zero_point_dtype=None, bool keepdim=False) -> (Tensor, Tensor)",
            choose_qparams,
        )
        .doc("the scale and the zero point that map the values of each block to a range of integers")
        .spelled("torchao.@.default"),
    ]
}

/// A tensor whose dims are split into blocks.
struct Blocks {
    /// The sizes with the split dims: the number of blocks, then the size of a block.
    split: Vec<Dim>,
    /// The dims within blocks.
    inner: Vec<usize>,
}

impl Blocks {
    /// The blocks of a call's input.
    fn of_call(c: &Call<Traced>) -> OpResult<Blocks> {
        let input = c.leaf("input")?;
        let sizes = c.dims("block_size")?;
        if sizes.len() != input.rank()? {
            return Err(OpError::shape(format!(
                "Got input dim:{}, block_size: {sizes:?}",
                input.rank()?
            )));
        }
        let mut blocks = Blocks {
            split: vec![],
            inner: vec![],
        };
        for (d, block) in sizes.iter().enumerate() {
            blocks.add_dim(d, input.size(d)?, block)?;
        }
        Ok(blocks)
    }

    fn add_dim(&mut self, d: usize, size: &Dim, block: &Dim) -> OpResult<()> {
        if *block == Dim::Const(1) || block == size {
            if *block != Dim::Const(1) {
                self.inner.push(self.split.len());
            }
            self.split.push(size.clone());
            return Ok(());
        }
        match (size, block) {
            (&Dim::Const(size), &Dim::Const(block)) if block > 0 && size % block == 0 => {
                self.inner.push(self.split.len() + 1);
                self.split.extend([Dim::Const(size / block), Dim::Const(block)]);
                Ok(())
            }
            (Dim::Const(size), Dim::Const(block)) => Err(OpError::shape(format!(
                "Expecting input size at {d} dimension: {size} to be divisible by block_size at {d} dimension: {block}"
            ))),
            _ => Err(OpError::refused(format!(
                "the blocks of dim {d} have a size that is not known before the call"
            ))),
        }
    }

    /// A parameter with an element for each block, shaped to broadcast to the split input.
    fn spread(&self, b: &mut dyn Build, t: &Traced) -> OpResult<Traced> {
        let mut shape = self.split.clone();
        self.inner.iter().for_each(|&d| shape[d] = Dim::Const(1));
        b.reshape(t, &shape)
    }
}

/// The bounds of a call's integers: those of the dtype unless given.
fn quant_bounds(c: &Call<Traced>, dtype: DType) -> OpResult<[f64; 2]> {
    let whole = match dtype {
        DType::I8 => [-128.0, 127.0],
        DType::U8 => [0.0, 255.0],
        DType::I16 => [-32768.0, 32767.0],
        DType::I32 => [-2147483648.0, 2147483647.0],
        _ => {
            return Err(OpError::dtype(format!(
                "Unsupported dtype: torch.{}",
                dtype.torch_name()
            )));
        }
    };
    let given = |name: &str, whole: f64| match c.is_none(name) {
        true => Ok(whole),
        false => c.f64(name),
    };
    let bounds = [given("quant_min", whole[0])?, given("quant_max", whole[1])?];
    if bounds[0] < whole[0] || bounds[1] > whole[1] {
        let name = if bounds[0] < whole[0] { "quant_min" } else { "quant_max" };
        return Err(OpError::arg(name, format!("{name} out of bound for dtype")));
    }
    Ok(bounds)
}

fn dequantize(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let input = c.leaf("input")?;
    let dtype = c.opt_dtype("input_dtype").unwrap_or(input.dtype());
    if dtype != input.dtype() {
        return Err(OpError::dtype(format!(
            "Expected: torch.{}, got: torch.{}",
            dtype.torch_name(),
            input.dtype().torch_name()
        )));
    }
    quant_bounds(c, dtype)?;
    let (blocks, out) = (Blocks::of_call(c)?, c.opt_dtype("output_dtype").unwrap_or(DType::F32));
    let x = b.reshape(input, &blocks.split)?;
    let mut x = b.to_dtype(&x, out)?;
    if let Some(zero) = c.opt_leaf("zero_point") {
        let zero = blocks.spread(b, zero)?;
        let zero = b.to_dtype(&zero, out)?;
        x = b.sub(&x, &zero)?;
    }
    let scale = blocks.spread(b, c.leaf("scale")?)?;
    let x = b.mul(&x, &scale)?;
    let x = b.reshape(&x, input.shape()?)?;
    b.to_dtype(&x, out).map(Val::Leaf)
}

fn quantize(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let input = c.leaf("input")?;
    let dtype = c.opt_dtype("output_dtype").unwrap_or(DType::I8);
    let [low, high] = quant_bounds(c, dtype)?;
    let blocks = Blocks::of_call(c)?;
    let x = b.reshape(input, &blocks.split)?;
    let scale = blocks.spread(b, c.leaf("scale")?)?;
    let inverse = b.reciprocal(&scale)?;
    let x = b.mul(&x, &inverse)?;
    let mut x = b.round(&x)?;
    if let Some(zero) = c.opt_leaf("zero_point") {
        let zero = blocks.spread(b, zero)?;
        x = b.add(&x, &zero)?;
    }
    let x = b.op(OpId::Clamp, [x.into(), Val::Float(low), Val::Float(high)])?;
    let x = b.reshape(&x, input.shape()?)?;
    b.to_dtype(&x, dtype).map(Val::Leaf)
}

/// The range of the values of each block, extended to include zero.
fn block_range(b: &mut dyn Build, c: &Call<Traced>, blocks: &Blocks, keep: bool) -> OpResult<[Traced; 2]> {
    let x = b.reshape(c.leaf("input")?, &blocks.split)?;
    let least = b.reduce(OpId::Amin, &x, &blocks.inner, keep)?;
    let most = b.reduce(OpId::Amax, &x, &blocks.inner, keep)?;
    let zero = b.full(&[], Val::Float(0.0), x.dtype())?;
    Ok([b.minimum(&least, &zero)?, b.maximum(&most, &zero)?])
}

fn choose_qparams(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let input = c.leaf("input")?;
    let target = c.opt_dtype("target_dtype").unwrap_or(DType::I8);
    let [low, high] = quant_bounds(c, target)?;
    let (blocks, keep) = (Blocks::of_call(c)?, c.bool("keepdim")?);
    let [least, most] = block_range(b, c, &blocks, keep)?;
    let eps = match c.is_none("eps") {
        true => smallest_normal(input.dtype()),
        false => c.f64("eps")?,
    };
    let mapping = c.str("mapping_type")?;
    let size = step_size(b, mapping, [&least, &most], [low, high])?;
    let scale = b.op(OpId::Clamp, [size.into(), Val::Float(eps)])?;
    if mapping == "ASYMMETRIC" {
        let zero = zero_point(b, &least, &scale, [low, high])?;
        return finish_qparams(b, c, [scale, zero], DType::I32);
    }
    let zero = b.mul(&scale, Val::Float(0.0))?;
    let zero = b.add(&zero, Val::Float(((high + low + 1.0) / 2.0).trunc()))?;
    let default = scale.dtype();
    finish_qparams(b, c, [scale, zero], default)
}

/// The distance of two neighbouring integers' values, if each block has values between `least` and `most` and the integers are between
/// `low` and `high`.
fn step_size(b: &mut dyn Build, mapping: &str, [least, most]: [&Traced; 2], [low, high]: [f64; 2]) -> OpResult<Traced> {
    match mapping {
        "SYMMETRIC" => {
            let least = b.neg(least)?;
            let most = b.maximum(&least, most)?;
            b.div(&most, Val::Float((high - low) / 2.0))
        }
        "SYMMETRIC_NO_CLIPPING_ERR" => {
            let [below, above] = [b.div(least, Val::Float(low))?, b.div(most, Val::Float(high))?];
            let larger = b.gt(&below, &above)?;
            b.op(OpId::Where, [(&larger).into(), (&below).into(), (&above).into()])
        }
        "ASYMMETRIC" => {
            let size = b.sub(most, least)?;
            b.div(&size, Val::Float(high - low))
        }
        other => {
            let title = format!("Unsupported mapping type: {other}");
            Err(OpError::arg("mapping_type", title))
        }
    }
}

/// The integer that stands for zero, if `least` is the least value of each block.
fn zero_point(b: &mut dyn Build, least: &Traced, scale: &Traced, [low, high]: [f64; 2]) -> OpResult<Traced> {
    let below = b.div(least, scale)?;
    let below = b.round(&below)?;
    let zero = b.rsub(&below, Val::Float(low))?;
    b.op(OpId::Clamp, [zero.into(), Val::Float(low), Val::Float(high)])
}

/// The smallest positive normal number of a dtype.
fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F16 => 2f64.powi(-14),
        _ => f64::from(f32::MIN_POSITIVE),
    }
}

/// The results of [`choose_qparams`] in the shapes and dtypes that the call asks for.
fn finish_qparams(
    b: &mut dyn Build,
    c: &Call<Traced>,
    params: [Traced; 2],
    zero_dtype: DType,
) -> OpResult<Val<Traced>> {
    let input = c.leaf("input")?;
    let dtypes = [
        c.opt_dtype("scale_dtype").unwrap_or(input.dtype()),
        c.opt_dtype("zero_point_dtype").unwrap_or(zero_dtype),
    ];
    let mut results = vec![];
    for (p, dtype) in params.into_iter().zip(dtypes) {
        let p = match c.bool("keepdim")? {
            true => {
                let counts = block_counts(c)?;
                b.reshape(&p, &counts)?
            }
            false => p,
        };
        results.push(b.to_dtype(&p, dtype)?.into());
    }
    Ok(Val::Tuple(results))
}

/// The number of blocks along each dim.
fn block_counts(c: &Call<Traced>) -> OpResult<Vec<Dim>> {
    let input = c.leaf("input")?;
    let sizes = c.dims("block_size")?;
    let count = |(d, block): (usize, &Dim)| match (input.size(d)?.clone(), block) {
        (Dim::Const(n), &Dim::Const(block)) if block > 0 => Ok(Dim::Const(n / block)),
        (n, Dim::Const(1)) => Ok(n),
        (n, block) if n == *block => Ok(Dim::Const(1)),
        _ => Err(OpError::refused("the number of blocks is not known before the call")),
    };
    sizes.iter().enumerate().map(count).collect()
}
