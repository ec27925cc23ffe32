//! Resizing images: nearest, linear and cubic interpolation over one to three dims.

mod interpolate;

use self::interpolate::interpolate_row;
use super::resample_bytes::{Taps, fixed_point};
use super::resample_lines::{blend_taps, resample_nearest};
use crate::op::rows::dense::native;
use crate::op::rows::spell::{list_text, text};
use crate::op::{Call, Meaning, Op, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Type, Val};
use smallvec::smallvec;

/// The interpolation method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ResampleMode {
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

/// Rounds to the dtype that torch computes coordinates in.
fn round_to(single: bool, x: f64) -> f64 {
    if single { x as f32 as f64 } else { x }
}

fn source_step(n: usize, out: usize, align: bool, scale: Option<f64>, single: bool) -> f64 {
    let r = |x| round_to(single, x);
    if align {
        return if out > 1 {
            r(r((n - 1) as f64) / r((out - 1) as f64))
        } else {
            0.0
        };
    }
    match scale {
        Some(s) if s > 0.0 => r(1.0 / s),
        _ => r(n as f64 / out as f64),
    }
}

fn cubic_weights(t: f64, a: f64) -> [f64; 4] {
    let near = |x: f64| ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}

fn axis_taps(mode: ResampleMode, n: usize, out: usize, align: bool, scale: Option<f64>, single: bool) -> Vec<Taps> {
    let r = |x| round_to(single, x);
    let step = source_step(n, out, align, scale, single);
    let last = n - 1;
    let taps_of = |i: usize| -> Taps {
        let source = if align {
            r(step * i as f64)
        } else {
            r(r(step * (i as f64 + 0.5)) - 0.5)
        };
        match mode {
            ResampleMode::Nearest => smallvec![((r(step * i as f64).floor() as usize).min(last), 1.0)],
            ResampleMode::NearestExact => smallvec![((r(step * (i as f64 + 0.5)).floor() as usize).min(last), 1.0)],
            ResampleMode::Linear => {
                if n == out {
                    return smallvec![(i, 1.0)];
                }
                let s = source.max(0.0);
                let place = (s.floor() as usize).min(last);
                let t = r(s - place as f64).clamp(0.0, 1.0);
                smallvec![(place, r(1.0 - t)), ((place + 1).min(last), t)]
            }
            ResampleMode::Cubic => {
                let below = source.floor();
                let w = cubic_weights(r(source - below), -0.75);
                (0..4)
                    .map(|k| ((below as i64 - 1 + k as i64).clamp(0, last as i64) as usize, r(w[k])))
                    .collect()
            }
            ResampleMode::LinearSmooth | ResampleMode::CubicSmooth => smooth_taps(mode, n, step, i),
        }
    };
    (0..out).map(taps_of).collect()
}

/// The filter stretched by the step and normalised (torch's antialiasing, which is that of Pillow).
fn smooth_taps(mode: ResampleMode, n: usize, step: f64, i: usize) -> Taps {
    let half = if mode == ResampleMode::LinearSmooth { 1.0 } else { 2.0 };
    let wide = step.max(1.0);
    let (support, centre) = (half * wide, step * (i as f64 + 0.5));
    let first = ((centre - support + 0.5) as i64).max(0);
    let end = ((centre + support + 0.5) as i64).min(n as i64);
    let filter = |x: f64| {
        let x = x.abs();
        match mode {
            ResampleMode::LinearSmooth => (1.0 - x).max(0.0),
            _ if x < 1.0 => cubic_weights(x, -0.5)[1],
            _ if x < 2.0 => cubic_weights(x - 1.0, -0.5)[0],
            _ => 0.0,
        }
    };
    let w: Vec<f64> = (first..end).map(|j| filter((j as f64 - centre + 0.5) / wide)).collect();
    let sum: f64 = w.iter().sum();
    let sum = if sum == 0.0 { 1.0 } else { sum };
    (first..end).zip(w).map(|(j, w)| (j as usize, w / sum)).collect()
}

fn upsample(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (n, mode) = dims_and_mode(c.op.name);
    let (x, out) = (c.leaf("self")?, &mut outs[0]);
    let align = c.op.schema.index_of("align_corners").is_some() && c.bool("align_corners")?;
    let bytes = x.dtype() == DType::U8 && n == 2;
    let single = x.dtype() != DType::F64 && !bytes;
    let mut along: Vec<Vec<Taps>> = vec![vec![smallvec![(0, 1.0)]]; 3 - n];
    for (d, s) in scale_factors(c, n)?.into_iter().enumerate() {
        along.push(axis_taps(mode, x.shape()[d + 2], out.shape()[d + 2], align, s, single));
    }
    let mut size = [1; 3];
    size[3 - n..].copy_from_slice(&x.shape()[2..]);
    if x.numel() == 0 {
        return Ok(());
    }
    if matches!(mode, ResampleMode::Nearest | ResampleMode::NearestExact) {
        resample_nearest(x, size, &along, out, pool);
    } else if bytes {
        fixed_point(x, &along[1..], out.as_mut_slice(), pool);
    } else {
        blend(x, size, &along, out, pool);
    }
    Ok(())
}

/// Resamples by weighted sums, computed in f32 or f64.
fn blend(x: &Tensor, size: [usize; 3], along: &[Vec<Taps>], out: &mut ViewMut<'_>, pool: &Pool) {
    match (x.dtype(), native(x.dtype())) {
        (DType::F32, _) => blend_taps(x.as_slice::<f32>(), size, along, out.as_mut_slice(), pool),
        (DType::F64, _) => blend_taps(x.as_slice::<f64>(), size, along, out.as_mut_slice(), pool),
        (d, DType::F32) => {
            let mut y = Tensor::zeros(DType::F32, out.shape());
            let wide = x.to(DType::F32);
            blend_taps(wide.as_slice::<f32>(), size, along, y.as_mut_slice(), pool);
            out.fill_from(&y.to(d));
        }
        // Bytes are interpolated in f64, rounded to the nearest integer, and clamped to their range.
        (d, _) => {
            let mut y = Tensor::zeros(DType::F64, out.shape());
            let wide = x.to(DType::F64);
            blend_taps(wide.as_slice::<f64>(), size, along, y.as_mut_slice(), pool);
            let whole = |v: &mut f64| *v = v.round().clamp(0.0, 255.0);
            y.as_mut_slice::<f64>().iter_mut().for_each(whole);
            out.fill_from(&y.to(d));
        }
    }
}
