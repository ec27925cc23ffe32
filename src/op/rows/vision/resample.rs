//! Resizing images: nearest, linear and cubic interpolation over one to three dims.

mod interpolate;

use self::interpolate::interpolate_row;
use super::resample_axis::Axis;
use super::resample_blend::{blend_narrow, blend_taps};
use super::resample_bytes::{Taps, fixed_point};
use super::resample_lines::resample_nearest;
use crate::op::rows::spell::{list_text, text};
use crate::op::{Call, Meaning, Op, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Type, Val};
use half::{bf16, f16};

/// The interpolation method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResampleMode {
    Nearest,
    NearestExact,
    Linear,
    Cubic,
    /// Linear, with a filter that is as wide as the step, for downscaling.
    LinearSmooth,
    CubicSmooth,
}

/// `(row, dims, mode)`. The routine of a row is selected by its name.
const TABLE: &[(&str, usize, ResampleMode)] = &[
    ("upsample_nearest1d", 1, ResampleMode::Nearest),
    ("upsample_nearest2d", 2, ResampleMode::Nearest),
    ("upsample_nearest3d", 3, ResampleMode::Nearest),
    ("_upsample_nearest_exact1d", 1, ResampleMode::NearestExact),
    ("_upsample_nearest_exact2d", 2, ResampleMode::NearestExact),
    ("_upsample_nearest_exact3d", 3, ResampleMode::NearestExact),
    ("upsample_linear1d", 1, ResampleMode::Linear),
    ("upsample_bilinear2d", 2, ResampleMode::Linear),
    ("upsample_trilinear3d", 3, ResampleMode::Linear),
    ("upsample_bicubic2d", 2, ResampleMode::Cubic),
    ("_upsample_bilinear2d_aa", 2, ResampleMode::LinearSmooth),
    ("_upsample_bicubic2d_aa", 2, ResampleMode::CubicSmooth),
];

pub(super) fn rows() -> Vec<Op> {
    let mut v: Vec<Op> = TABLE
        .iter()
        .map(|&(name, n, mode)| upsample_row(name, n, mode))
        .collect();
    v.push(interpolate_row());
    v
}

fn upsample_row(name: &'static str, n: usize, mode: ResampleMode) -> Op {
    let align = if matches!(mode, ResampleMode::Nearest | ResampleMode::NearestExact) {
        ""
    } else {
        "bool align_corners, "
    };
    let scales = match n {
        1 => "float? scales=None",
        2 => "float? scales_h=None, float? scales_w=None",
        _ => "float? scales_d=None, float? scales_h=None, float? scales_w=None",
    };
    let full =
        text!("{name}(Tensor self, SymInt[{n}]? output_size, {align}{scales}, float[]? scale_factors=None) -> Tensor");
    let vec = text!("{name}(Tensor self, SymInt[]? output_size, {align}float[]? scale_factors) -> Tensor");
    Op::new((name, full), upsample_type, Meaning::Fill(upsample))
        .doc("the image resampled to another size")
        .spelled(text!("aten.{name}.default torch._C._nn.{name}"))
        .form(text!("aten.{name}.vec torch._C._nn.{name}"), vec)
}

fn dims_and_mode(name: &str) -> (usize, ResampleMode) {
    let found = TABLE.iter().find(|r| r.0 == name);
    found
        .map(|r| (r.1, r.2))
        .unwrap_or_else(|| panic!("`{name}` does not resample"))
}

/// A scale factor per spatial dim, if given.
fn scale_factors<T>(c: &Call<T>, n: usize) -> OpResult<Vec<Option<f64>>> {
    if let Some(v) = c.get("scale_factors").items() {
        if v.len() != n {
            return Err(OpError::arg(
                "scale_factors",
                format!("expected {n} scale factors, got {}", v.len()),
            ));
        }
        return Ok(v.iter().map(Val::as_f64).collect());
    }
    let names: &[&str] = match n {
        1 => &["scales"],
        2 => &["scales_h", "scales_w"],
        _ => &["scales_d", "scales_h", "scales_w"],
    };
    Ok(names.iter().map(|n| c.get(n).as_f64()).collect())
}

/// A size times a factor, rounded down.
fn scale_size(n: &Dim, s: f64) -> Dim {
    if let Some(n) = n.as_const() {
        return Dim::Const((n as f64 * s) as i64);
    }
    n.scale_by(s)
}

/// The spatial sizes of the result: those that the call gives, or the operand's times its factors.
fn requested_sizes(c: &Call<TensorType>, x: &[Dim]) -> OpResult<Vec<Dim>> {
    let n = x.len();
    if c.is_none("output_size") || c.get("output_size").items().is_some_and(<[_]>::is_empty) {
        let title = "Must specify exactly one of output_size and scale_factors";
        let scaled = x.iter().zip(scale_factors(c, n)?).map(|(d, s)| match s {
            Some(s) => Ok(scale_size(d, s)),
            None => Err(OpError::arg("output_size", title)),
        });
        return scaled.collect();
    }
    let size = c.dims("output_size")?;
    if size.len() != n {
        let title = format!("It is expected output_size equals to {n}, but got size {}", size.len());
        return Err(OpError::shape(title));
    }
    Ok(size)
}

fn out_shape(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    let (n, _) = dims_and_mode(c.op.name);
    let (_, x) = c.shaped("self")?;
    if x.len() != n + 2 {
        return Err(OpError::shape(format!(
            "It is expected input_size equals to {}, but got size {}",
            n + 2,
            x.len()
        )));
    }
    let out = [&x[..2], &requested_sizes(c, &x[2..])?].concat();
    let bad = |d: &Dim| d.as_const().is_some_and(|d| d <= 0);
    if x[1..].iter().any(bad) || out[2..].iter().any(bad) {
        return Err(OpError::shape(format!(
            "Input and output sizes should be greater than 0, but got input {} output {}",
            list_text(x),
            list_text(&out[2..])
        )));
    }
    Ok(out)
}

fn upsample_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let d = c.leaf("self")?.dtype;
    let (n, mode) = dims_and_mode(c.op.name);
    let shape = out_shape(c)?;
    let nearest = matches!(mode, ResampleMode::Nearest | ResampleMode::NearestExact);
    if !d.is_float() && d != DType::U8 {
        let what = if nearest {
            format!("compute_indices_weights_nearest{n}d")
        } else {
            "compute_indices_weights_linear".into()
        };
        return Err(crate::op::pointwise::not_implemented(&what, d));
    }
    Ok(Val::Leaf(TensorType::new(d, shape)))
}

fn upsample(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (n, mode) = dims_and_mode(c.op.name);
    let (x, out) = (c.leaf("self")?, &mut outs[0]);
    let align = c.op.schema.index_of("align_corners").is_some() && c.bool("align_corners")?;
    let bytes = x.dtype() == DType::U8 && n == 2;
    let single = x.dtype() != DType::F64 && !bytes;
    let mut axes = vec![Axis::unchanged(1); 3 - n];
    for (d, s) in scale_factors(c, n)?.into_iter().enumerate() {
        axes.push(Axis::new(mode, x.shape()[d + 2], out.shape()[d + 2], align, s, single));
    }
    let mut size = [1; 3];
    size[3 - n..].copy_from_slice(&x.shape()[2..]);
    if x.numel() == 0 {
        return Ok(());
    }
    if matches!(mode, ResampleMode::Nearest | ResampleMode::NearestExact) {
        resample_nearest(x, size, &axes, out, pool)?;
    } else if bytes {
        let along: Vec<Vec<Taps>> = axes[1..].iter().map(Axis::taps).collect();
        fixed_point(x, &along, out.as_mut_slice(), pool);
    } else {
        blend(x, size, &axes, out, pool);
    }
    Ok(())
}

/// Resamples by weighted sums, computed in f32 or f64.
fn blend(x: &Tensor, size: [usize; 3], axes: &[Axis], out: &mut ViewMut<'_>, pool: &Pool) {
    match x.dtype() {
        DType::F32 => blend_taps(x.as_slice::<f32>(), size, axes, out.as_mut_slice(), pool),
        DType::F64 => blend_taps(x.as_slice::<f64>(), size, axes, out.as_mut_slice(), pool),
        DType::BF16 => blend_narrow::<bf16>(x.as_slice(), size, axes, out.as_mut_slice(), pool),
        DType::F16 => blend_narrow::<f16>(x.as_slice(), size, axes, out.as_mut_slice(), pool),
        // Bytes are interpolated in f64, rounded to the nearest integer, and clamped to their range.
        DType::U8 => {
            let mut y = Tensor::zeros(DType::F64, out.shape());
            let wide = x.to(DType::F64);
            blend_taps(wide.as_slice::<f64>(), size, axes, y.as_mut_slice(), pool);
            let whole = |v: &mut f64| *v = v.round().clamp(0.0, 255.0);
            y.as_mut_slice::<f64>().iter_mut().for_each(whole);
            out.fill_from(&y.to(DType::U8));
        }
        d => {
            let mut y = Tensor::zeros(DType::F32, out.shape());
            let wide = x.to(DType::F32);
            blend_taps(wide.as_slice::<f32>(), size, axes, y.as_mut_slice(), pool);
            out.fill_from(&y.to(d));
        }
    }
}
