//! Sampling images at computed coordinates.

use crate::op::emit::dims_val;
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced};
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
    Op::new(
        (name, schema),
        sample_type,
        Meaning::Fill(super::grid_kernel::grid_sample),
    )
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
        let requested = c.str(name)?;
        list.iter()
            .position(|m| *m == requested)
            .map(|i| Val::int(i as i64))
            .ok_or_else(|| {
                OpError::arg(
                    name,
                    format!(
                        "nn.functional.grid_sample(): expected {name} to be one of {list:?}, but got: '{requested}'"
                    ),
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
    check_grid(c, n)?;
    let ((d, x), (_, g)) = (c.shaped("input")?, c.shaped("grid")?);
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

/// Checks the dtypes and ranks of an input with `n` spatial dims and its grid.
fn check_grid(c: &Call<TensorType>, n: usize) -> OpResult<()> {
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
    Ok(())
}

/// Coordinates in -1..1 along a dim: of the elements' centres, or with the outer elements at ±1 if `align`.
fn axis_coordinates(b: &mut dyn Build, n: &Dim, align: bool, dtype: DType) -> OpResult<Traced> {
    let single = *n == Dim::Const(1);
    if single {
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
