//! Sampling images at computed coordinates.

use crate::op::emit::dims_val;
use crate::op::rows::dense::{native, zeros};
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite("grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
            by_rank,
        )
        .doc("the image sampled at the coordinates of a grid, which range from -1 to 1")
        .spelled("aten.@ torch.@"),
        sampler_row(
            "grid_sampler_2d",
            "grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
        )
        .spelled("aten.@ torch.@"),
        sampler_row(
            "grid_sampler_3d",
            "grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
        )
        .spelled("aten.@ torch.@"),
        Op::composite("grid_sample(Tensor input, Tensor grid, str mode='bilinear', str padding_mode='zeros', bool? align_corners=None) -> \
             Tensor",
            by_name,
        )
        .doc("grid_sampler with named modes")
        .spelled("torch.nn.functional.@"),
        Op::composite("affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners=False) -> Tensor",
            affine_grid,
        )
        .doc("the sampling grid of an affine map of an image's coordinates")
        .spelled("aten.@ torch.@ torch.nn.functional.affine_grid"),
    ]
}

fn sampler_row(name: &'static str, schema: &'static str) -> Op {
    Op::new((name, schema), sample_type, Meaning::Routine(grid_sample))
        .doc("the image sampled at the coordinates of a grid, which range from -1 to 1")
}

fn by_rank(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    match c.leaf("input")?.rank()? {
        4 => b.call(OpId::GridSampler2d, c.args.clone()),
        5 => b.call(OpId::GridSampler3d, c.args.clone()),
        n => Err(OpError::shape(format!(
            "grid_sampler(): expected 4D or 5D input, but got {n}D"
        ))),
    }
}

fn by_name(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let find = |name: &str, list: &[&str]| {
        let given = c.str(name)?;
        list.iter()
            .position(|m| *m == given)
            .map(|i| Val::int(i as i64))
            .ok_or_else(|| {
                OpError::arg(
                    name,
                    format!("nn.functional.grid_sample(): expected {name} to be one of {list:?}, but got: '{given}'"),
                )
            })
    };
    let mode = find("mode", &["bilinear", "nearest", "bicubic"])?;
    let padding = find("padding_mode", &["zeros", "border", "reflection"])?;
    let align = Val::Bool(!c.is_none("align_corners") && c.bool("align_corners")?);
    b.call(
        OpId::GridSampler,
        vec![c.get("input").clone(), c.get("grid").clone(), mode, padding, align],
    )
}

fn sample_type(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Type> {
    let n = if c.op.name.ends_with("3d") { 3 } else { 2 };
    let (d, x) = c.shaped("input")?;
    let (gd, g) = c.shaped("grid")?;
    if d != gd {
        return Err(OpError::dtype(format!(
            "grid_sampler(): expected input and grid to have the same dtype, but input has {} and grid has {}",
            d.torch_name(),
            gd.torch_name()
        )));
    }
    if !d.is_float() {
        return Err(crate::op::pointwise::not_implemented(&format!("{}_cpu", c.op.name), d));
    }
    if x.len() != n + 2 || g.len() != n + 2 {
        return Err(OpError::shape(format!(
            "grid_sampler(): expected {}D input and grid with same number of dimensions, but got input with sizes {} and grid with \
             sizes {}",
            n + 2,
            list_text(x),
            list_text(g)
        )));
    }
    if g[n + 1].as_const().is_some_and(|k| k != n as i64) {
        return Err(OpError::shape(format!(
            "grid_sampler(): expected grid to have size {n} in last dimension, but got grid with sizes {}",
            list_text(g)
        )));
    }
    let batch = s.unify_dims(&x[0], &g[0], || {
        format!(
            "grid_sampler(): expected grid and input to have same batch size, but got input with sizes {} and grid with sizes {}",
            list_text(x),
            list_text(g)
        )
    })?;
    if x[2..].contains(&Dim::Const(0)) {
        return Err(OpError::shape(
            "grid_sampler(): expected input to have non-empty spatial dimensions",
        ));
    }
    let mut shape = vec![batch, x[1].clone()];
    shape.extend_from_slice(&g[1..=n]);
    Ok(Val::Leaf(TensorType::new(d, shape)))
}

#[derive(Clone, Copy)]
struct SampleMode {
    interpolation: i64,
    padding: i64,
    align: bool,
    /// Whether coordinates are rounded to f32 at every step, as torch does for f32.
    single: bool,
}

impl SampleMode {
    fn round_if_single(self, x: f64) -> f64 {
        if self.single { x as f32 as f64 } else { x }
    }

    /// Maps a coordinate from -1..1 to an index, which may be out of bounds.
    fn unnormalise(self, x: f64, n: usize) -> f64 {
        let n = n as f64;
        if self.align {
            self.round_if_single(self.round_if_single(self.round_if_single(x + 1.0) / 2.0) * (n - 1.0))
        } else {
            self.round_if_single(
                self.round_if_single(self.round_if_single(self.round_if_single(x + 1.0) * n) - 1.0) / 2.0,
            )
        }
    }

    /// Brings an index within bounds according to the padding mode.
    fn apply_padding(self, x: f64, n: usize) -> f64 {
        let last = n as f64 - 1.0;
        let clip = |x: f64| x.max(0.0).min(last);
        match self.padding {
            1 => clip(x),
            2 => {
                let (low, high) = if self.align {
                    (0.0, 2.0 * last)
                } else {
                    (-1.0, 2.0 * n as f64 - 1.0)
                };
                if low == high {
                    return 0.0;
                }
                let (min, span) = (low / 2.0, (high - low) / 2.0);
                let x = (x - min).abs();
                let extra = self.round_if_single(x % span);
                let flips = (x / span).floor() as i64;
                clip(if flips % 2 == 0 {
                    self.round_if_single(extra + min)
                } else {
                    self.round_if_single(span - extra + min)
                })
            }
            _ => x,
        }
    }

    /// The weights along three axes for a point of the grid, which gives (x, y[, z]), that is, the last dim first.
    fn taps_of_point(&self, point: &[f64], size: [usize; 3]) -> [Vec<(i64, f64)>; 3] {
        let missing = 3 - point.len();
        [0, 1, 2].map(|d| match d < missing {
            true => vec![(0, 1.0)],
            false => self.taps_at(point[2 - d], size[d]),
        })
    }

    /// Indices with weights along one dim. Indices may be out of bounds; their elements count as zeros.
    fn taps_at(self, x: f64, n: usize) -> Vec<(i64, f64)> {
        let x = self.unnormalise(x, n);
        if self.interpolation == 2 {
            let at = x.floor();
            let w = cubic_weights(self.round_if_single(x - at));
            return (0..4)
                .map(|k| {
                    let i = self.apply_padding(at - 1.0 + k as f64, n);
                    (to_index(i), self.round_if_single(w[k]))
                })
                .collect();
        }
        let x = self.apply_padding(x, n);
        if self.interpolation == 1 {
            return vec![(to_index(x.round_ties_even()), 1.0)];
        }
        let at = x.floor();
        vec![
            (to_index(at), self.round_if_single(at + 1.0 - x)),
            (to_index(at + 1.0), self.round_if_single(x - at)),
        ]
    }
}

/// Converts to an index. NaN and values far outside become out-of-bounds indices.
fn to_index(x: f64) -> i64 {
    if x.is_nan() { -1 } else { x.clamp(-1e9, 1e9) as i64 }
}

fn cubic_weights(t: f64) -> [f64; 4] {
    let a = -0.75;
    let near = |x: f64| ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}

fn grid_sample(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let ty = sample_type(&c.types(), &mut Sizes::default())?;
    let shape = ty.as_leaf().and_then(TensorType::fixed_shape).unwrap_or_default();
    let (x, g) = (c.leaf("input")?, c.leaf("grid")?);
    let mode = SampleMode {
        interpolation: c.int("interpolation_mode")?,
        padding: c.int("padding_mode")?,
        align: c.bool("align_corners")?,
        single: x.dtype() != DType::F64,
    };
    let n = x.rank() - 2;
    let wide = x.to(DType::F64);
    let grid = g.to(DType::F64);
    let (src, coords) = (wide.as_slice::<f64>(), grid.as_slice::<f64>());
    let mut size = [1usize; 3];
    size[3 - n..].copy_from_slice(&x.shape()[2..]);
    let plane: usize = size.iter().product();
    let points: usize = shape[2..].iter().product();
    let channels = shape[1];
    let mut out = zeros(DType::F64, &shape)?;
    let dst = out.as_mut_slice::<f64>();
    for item in 0..shape[0] {
        for p in 0..points {
            let taps = mode.taps_of_point(&coords[(item * points + p) * n..][..n], size);
            for ch in 0..channels {
                let image = &src[(item * channels + ch) * plane..][..plane];
                dst[(item * channels + ch) * points + p] = weighted_sum(image, size, &taps);
            }
        }
    }
    let out = match native(x.dtype()) {
        DType::F64 => out,
        _ => out.to(DType::F32),
    };
    Ok(Val::Leaf(out.to(x.dtype())))
}

fn weighted_sum(image: &[f64], size: [usize; 3], taps: &[Vec<(i64, f64)>; 3]) -> f64 {
    let inside = |i: i64, n: usize| usize::try_from(i).ok().filter(|&i| i < n);
    let mut sum = 0.0;
    for &(i, wi) in &taps[0] {
        let Some(i) = inside(i, size[0]) else { continue };
        for &(j, wj) in &taps[1] {
            let Some(j) = inside(j, size[1]) else { continue };
            for &(k, wk) in &taps[2] {
                let Some(k) = inside(k, size[2]) else { continue };
                sum += image[(i * size[1] + j) * size[2] + k] * (wi * wj * wk);
            }
        }
    }
    sum
}

/// Coordinates in -1..1 along a dim: of the elements' centres, or with the outer elements at ±1 if `align`.
fn axis_coordinates(b: &mut dyn Build, n: &Dim, align: bool, dtype: DType) -> OpResult<Traced> {
    let one = *n == Dim::Const(1);
    if one {
        return b.full(&[Dim::Const(1)], Val::int(0), dtype);
    }
    let line = b.op(
        OpId::Linspace,
        [Val::int(-1), Val::int(1), Val::Int(n.clone()), Val::DType(dtype)],
    )?;
    if align {
        return Ok(line);
    }
    let Some(k) = n.as_const().filter(|&k| k > 0) else {
        return Err(OpError::shape("affine_grid requires known sizes"));
    };
    let line = b.mul(&line, Val::int(k - 1))?;
    b.div(&line, Val::int(k))
}

fn affine_grid(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let theta = c.leaf("theta")?;
    let size = c.dims("size")?;
    let n = size.len().saturating_sub(2);
    let fits = matches!(theta.shape()?, [_, r, k] if *r == Dim::from(n) && *k == Dim::from(n + 1));
    if !(n == 2 || n == 3) || !fits {
        return Err(OpError::shape(format!(
            "Expected a batch of {n}D affine matrices of shape Nx{n}x{} for size {}. Got {}.",
            n + 1,
            list_text(&size),
            list_text(theta.shape()?)
        )));
    }
    let align = c.bool("align_corners")?;
    let dtype = theta.dtype();
    let space = &size[2..];
    let mut parts = vec![];
    // x is the first coordinate and belongs to the last dim.
    for d in (0..n).rev() {
        let line = axis_coordinates(b, &space[d], align, dtype)?;
        let mut shape = vec![Dim::Const(1); n + 1];
        shape[d] = space[d].clone();
        let line = b.reshape(&line, &shape)?;
        let mut full = space.to_vec();
        full.push(Dim::Const(1));
        parts.push(b.op(OpId::Expand, [line.into(), dims_val(&full)])?);
    }
    let mut full = space.to_vec();
    full.push(Dim::Const(1));
    parts.push(b.full(&full, Val::int(1), dtype)?);
    let base = b.cat(&parts, n)?;
    let points = space.iter().fold(Dim::Const(1), |p, d| p.mul(d));
    let base = b.reshape(&base, &[Dim::Const(1), points, Dim::from(n + 1)])?;
    let maps = b.transpose(theta, 1, 2)?;
    let grid = b.matmul(&base, &maps)?;
    let mut shape = vec![size[0].clone()];
    shape.extend_from_slice(space);
    shape.push(Dim::from(n));
    b.reshape(&grid, &shape).map(Val::Leaf)
}
