//! Normalisations.

mod batch_norm;
mod group;
mod instance_norm;
mod moments;
pub(super) mod softmax;
mod statistics;

use self::group::group_rows;
use self::moments::{Moments, moments_at_once, moments_of_parts};
use crate::op::emit::ints_val;
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, MemoryOrder, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        softmax::rows(),
        layer_rows(),
        rms_rows(),
        group_rows(),
        batch_norm::rows(),
        other_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn layer_rows() -> Vec<Op> {
    vec![
        Op::composite("layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, \
             bool cudnn_enable=True) -> Tensor",
            |b, c| layer_norm(b, c).map(|n| n.out.into()),
        )
        .new_memory()
        .order(MemoryOrder::RowMajor)
        .doc("(x - mean) / sqrt(var + eps) * weight + bias over the last dims")
        .spelled("aten.@ torch.@ torch.nn.functional.@")
        .module(
            "LayerNorm(normalized_shape, eps=1e-05, elementwise_affine=True, bias=True) = layer_norm(input, \
             [normalized_shape], @weight[*normalized_shape] if elementwise_affine, \
             @bias[*normalized_shape] if elementwise_affine and bias, eps)",
        ),
        Op::composite("native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, \
             Tensor, Tensor)",
            |b, c| {
                let n = layer_norm(b, c)?;
                n.into_saved(b, c)
            },
        )
        .order(MemoryOrder::RowMajor)
        .doc("layer_norm, the mean, and 1 / sqrt(var + eps)")
        .spelled("aten.@ torch.@"),
    ]
}

fn rms_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
            |b, c| rms_norm(b, c).map(|(out, _)| out.into()),
        )
        .order(MemoryOrder::RowMajor)
        .doc("x / sqrt(mean(x * x) + eps) * weight over the last dims")
        .spelled("aten.@ torch.@ torch.nn.functional.@")
        .module(
            "RMSNorm(normalized_shape, eps=None, elementwise_affine=True) = rms_norm(input, [normalized_shape], \
             @weight[*normalized_shape] if \
             elementwise_affine, eps)",
        ),
        Op::composite(
            "_fused_rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
            |b, c| rms_norm(b, c).map(|(out, r)| Val::Tuple(vec![out.into(), r.into()])),
        )
        .doc("rms_norm, and 1 / sqrt(mean(x * x) + eps)")
        .spelled("aten.@"),
    ]
}

fn other_rows() -> Vec<Op> {
    vec![
        Op::composite("local_response_norm(Tensor input, int size, float alpha=0.0001, float beta=0.75, float k=1.0) -> Tensor",
            local_response_norm,
        )
        .doc("x / (k + alpha * the mean of x * x over neighbouring channels) ** beta")
        .spelled("torch.nn.functional.@")
        .module(
            "LocalResponseNorm(size, alpha=0.0001, beta=0.75, k=1.0) = local_response_norm(input, size, alpha, beta, k)",
        ),
        Op::composite("cross_map_lrn2d(Tensor input, int size, float alpha=0.0001, float beta=0.75, float k=1.0) -> Tensor",
            cross_map_lrn,
        )
        .doc("local_response_norm of images with the formula of torch's older class, CrossMapLRN2d")
        .module("CrossMapLRN2d(size, alpha=0.0001, beta=0.75, k=1) = cross_map_lrn2d(input, size, alpha, beta, k)"),
        Op::composite("normalize(Tensor input, Any p=2.0, int[1]? dim=1, float eps=1e-12) -> Tensor",
            normalize,
        )
        .doc("x / max(norm(x), eps) along a dim")
        .spelled("torch.nn.functional.@"),
    ]
}

/// A normalised tensor with its statistics.
pub(in crate::op::rows) struct Normed {
    pub out: Traced,
    pub mean: Traced,
    /// The mean of the squared differences from the mean.
    pub var: Traced,
    pub rstd: Traced,
}

impl Normed {
    /// The results, with statistics as torch saves them.
    fn into_saved(self, b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
        let dtype = saved_dtype(c)?;
        let (mean, rstd) = (b.to_dtype(&self.mean, dtype)?, b.to_dtype(&self.rstd, dtype)?);
        Ok(Val::Tuple(vec![self.out.into(), mean.into(), rstd.into()]))
    }
}

/// The dtype of saved statistics: that of the parameters if they are wider than the input, else the input's.
pub(in crate::op::rows) fn saved_dtype(c: &Call<Traced>) -> OpResult<DType> {
    let x = c.leaf("input")?.dtype();
    let param = |name: &str| c.op.schema.index_of(name).and_then(|i| c.args[i].as_leaf());
    let params = ["weight", "bias", "running_mean", "running_var"]
        .into_iter()
        .filter_map(param);
    let wide = x.compute_dtype();
    let widened = params.map(Traced::dtype).any(|d| d == wide);
    Ok(if widened { wide } else { x })
}

/// `(x - mean) * rstd` over the dims `dims` of `x` (f32 or f64), with the statistics, in which these dims are kept.
pub(in crate::op::rows) fn standardise(b: &mut dyn Build, x: &Traced, dims: &[usize], eps: f64) -> OpResult<Normed> {
    let moments = moments_at_once(b, x, dims)?;
    standardise_by(b, moments, eps)
}

/// [`standardise`] of elements that were not converted: long rows are read in parts, which for others would have to be stored.
fn standardise_unconverted(b: &mut dyn Build, x: &Traced, dims: &[usize], eps: f64) -> OpResult<Normed> {
    let moments = moments_of_parts(b, x, dims)?;
    standardise_by(b, moments, eps)
}

fn standardise_by(b: &mut dyn Build, moments: Moments, eps: f64) -> OpResult<Normed> {
    let Moments { mean, var, centred } = moments;
    let shifted = b.add(&var, Val::Float(eps))?;
    let rstd = b.rsqrt(&shifted)?;
    let out = b.mul(&centred, &rstd)?;
    Ok(Normed { out, mean, var, rstd })
}

/// Returns torch's error for a kernel that needs floats if `x` is not a float.
pub(in crate::op::rows) fn want_float(x: &Traced, kernel: &str) -> OpResult<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    Err(crate::op::pointwise::not_implemented(kernel, x.dtype()))
}

/// The last dims, which `normalized_shape` describes.
fn last_dims(c: &Call<Traced>) -> OpResult<Vec<usize>> {
    let x = c.leaf("input")?;
    let (shape, norm) = (x.shape()?, c.dims("normalized_shape")?);
    if norm.is_empty() {
        return Err(OpError::shape(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got \
             normalized_shape = []",
        ));
    }
    let differ = |(a, b): (&Dim, &Dim)| a.sub(b).as_const().is_some_and(|d| d != 0);
    let lead = shape.len().checked_sub(norm.len());
    let fits = lead.is_some_and(|l| !norm.iter().zip(&shape[l..]).any(differ));
    if !fits {
        let tail: Vec<String> = norm.iter().map(Dim::to_string).collect();
        return Err(OpError::shape(format!(
            "Given normalized_shape={}, expected input with shape [*, {}], but got input of size{}",
            list_text(&norm),
            tail.join(", "),
            list_text(shape)
        )));
    }
    for name in ["weight", "bias"] {
        let Some(Val::Leaf(w)) = c.op.schema.index_of(name).map(|i| &c.args[i]) else {
            continue;
        };
        if w.rank()? != norm.len() || w.shape()?.iter().zip(&norm).any(differ) {
            return Err(OpError::shape(format!(
                "Expected {name} to be of same shape as normalized_shape, but got {name} of shape {} and normalized_shape = {}",
                list_text(w.shape()?),
                list_text(&norm)
            )));
        }
    }
    Ok((lead.unwrap_or(0)..shape.len()).collect())
}

/// `x * weight + bias` in the compute dtype; either may be missing.
fn scale_shift(b: &mut dyn Build, x: Traced, weight: Option<&Traced>, bias: Option<&Traced>) -> OpResult<Traced> {
    let mut x = x;
    for (op, t) in [(OpId::Mul, weight), (OpId::Add, bias)] {
        if let Some(t) = t {
            let t = b.to_dtype(t, x.dtype())?;
            x = b.binary(op, &x, &t)?;
        }
    }
    Ok(x)
}

fn layer_norm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Normed> {
    let x = c.leaf("input")?;
    want_float(x, "LayerNormKernelImpl")?;
    let dims = last_dims(c)?;
    let dtype = x.dtype();
    let wide = b.to_dtype(x, dtype.compute_dtype())?;
    let mut n = standardise(b, &wide, &dims, c.f64("eps")?)?;
    n.out = scale_shift(b, n.out, c.opt_leaf("weight"), c.opt_leaf("bias"))?;
    n.out = b.to_dtype(&n.out, dtype)?;
    Ok(n)
}

fn rms_norm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<(Traced, Traced)> {
    let x = c.leaf("input")?;
    want_float(x, "rms_norm")?;
    let dims = last_dims(c)?;
    let dtype = x.dtype();
    let epsilon = |d: DType| {
        if d == DType::F64 {
            f64::EPSILON
        } else {
            f32::EPSILON as f64
        }
    };
    let wide = b.to_dtype(x, dtype.compute_dtype())?;
    let eps = if c.is_none("eps") {
        epsilon(wide.dtype())
    } else {
        c.f64("eps")?
    };
    let squares = b.mul(&wide, &wide)?;
    let mean = b.reduce(OpId::Mean, &squares, &dims, true)?;
    let mean = b.add(&mean, Val::Float(eps))?;
    let r = b.rsqrt(&mean)?;
    let out = b.mul(&wide, &r)?;
    let out = scale_shift(b, out, c.opt_leaf("weight"), None)?;
    Ok((b.to_dtype(&out, dtype)?, r))
}

/// torch pads the channels with zeros and averages with a pool; windows made by `unfold` are equivalent.
fn local_response_norm(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("input")?;
    let (rank, size) = (x.rank()?, c.int("size")?);
    if rank < 3 {
        return Err(OpError::shape(format!(
            "Expected 3D or higher dimensionality input (got {rank} dimensions)"
        )));
    }
    if size < 1 {
        return Err(OpError::arg("size", format!("size must be at least 1, got {size}")));
    }
    let squares = b.mul(x, x)?;
    let mut pad = vec![0i64; 2 * (rank - 1)];
    let first = pad.len() - 2;
    pad[first] = size / 2;
    pad[first + 1] = (size - 1) / 2;
    let padded = b.op(
        OpId::ConstantPadNd,
        [(&squares).into(), ints_val(&pad), Val::Float(0.0)],
    )?;
    let windows = b.unfold(&padded, Val::int(1), Val::int(size), Val::int(1))?;
    let mean = match x.dtype() {
        // Pools of integers use integer division.
        DType::I64 => {
            let sum = b.reduce(OpId::Sum, &windows, &[rank], false)?;
            b.floor_divide(&sum, Val::int(size))?
        }
        _ => b.reduce(OpId::Mean, &windows, &[rank], false)?,
    };
    let scaled = b.mul(&mean, c.get("alpha").clone())?;
    let base = b.add(&scaled, c.get("k").clone())?;
    let power = b.pow(&base, c.get("beta").clone())?;
    b.div(x, &power).map(Val::Leaf)
}

/// torch's class sums over `(size + 1) / 2 - 1` channels on both sides and divides by `size`. As it slides the window
/// along, it never subtracts the square of the first channel.
fn cross_map_lrn(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, size) = (c.leaf("input")?, c.int("size")?);
    if x.rank()? != 4 {
        return Err(OpError::shape(format!(
            "CrossMapLRN2d: Expected input to be 4D, got {}D instead.",
            x.rank()?
        )));
    }
    if !(1..=i64::from(i32::MAX)).contains(&size) {
        return Err(OpError::arg("size", format!("size must be at least 1, got {size}")));
    }
    let reach = (size + 1) / 2 - 1;
    let squares = b.mul(x, x)?;
    let channels = x.shape()?[1].clone();
    let first = b.slice(&squares, 1, Dim::Const(0), Dim::Const(1), 1)?;
    let others = b.slice(&squares, 1, Dim::Const(1), channels, 1)?;
    let pad = ints_val(&[0, 0, 0, 0, reach + 1, reach]);
    let padded = b.op(OpId::ConstantPadNd, [(&others).into(), pad, Val::Float(0.0)])?;
    let windows = b.unfold(&padded, Val::int(1), Val::int(2 * reach + 1), Val::int(1))?;
    let sum = b.reduce(OpId::Sum, &windows, &[4], false)?;
    let sum = b.add(&sum, &first)?;
    let scaled = b.mul(&sum, Val::Float(c.f64("alpha")? / size as f64))?;
    let base = b.add(&scaled, c.get("k").clone())?;
    let power = b.pow(&base, Val::Float(-c.f64("beta")?))?;
    b.mul(&power, x).map(Val::Leaf)
}

fn normalize(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let p = match c.get("p") {
        Val::None => Val::Float(2.0),
        Val::Str(p) if &**p == "fro" => Val::Float(2.0),
        p => p.clone(),
    };
    let args = vec![c.get("input").clone(), p, c.get("dim").clone(), Val::Bool(true)];
    let norm = b.op(OpId::LinalgVectorNorm, args)?;
    let norm = b.binary(OpId::Clamp, &norm, c.get("eps").clone())?;
    let x = c.leaf("input")?;
    b.div(x, &norm).map(Val::Leaf)
}
