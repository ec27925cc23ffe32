//! The loops over pooling windows, plane by plane.

use super::lanes::{MaxLanes, MeanLanes};
use super::maxima::MaxPlanes;
use super::means::MeanPlanes;
use super::narrow::{max_narrow, mean_narrow};
use super::window::{Kind, Planes, PoolWindow, prepare_planes};
use crate::op::rows::dense::{Number, native, with_number, zeros};
use crate::op::rows::fill::{run_pairs, units_per_part};
use crate::op::{Call, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, run_wide};

impl Planes {
    /// The number of elements of an operand's plane, at least 1.
    pub(super) fn plane(&self) -> usize {
        self.size.iter().product::<usize>().max(1)
    }

    /// The number of elements of a result's plane, at least 1.
    pub(super) fn out_plane(&self) -> usize {
        self.windows.iter().map(Vec::len).product::<usize>().max(1)
    }

    /// The number of planes that a thread handles at once.
    pub(super) fn planes_per_part(&self, bytes: usize, pool: &Pool) -> usize {
        let count = self.x.numel() / self.plane();
        units_per_part(count, bytes * (self.plane() + self.out_plane()), pool)
    }

    /// The windows over depth and height, in the order of the result's rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&PoolWindow, &PoolWindow)> {
        let [depths, heights, _] = &self.windows;
        depths.iter().flat_map(|d| heights.iter().map(move |h| (d, h)))
    }
}

/// The maxima of planes and their places.
pub(super) fn max_of<T: Number>(p: &Planes, x: &[T], out: &mut [T], places: &mut [i64]) {
    let lanes = p.in_lanes(out.len() / p.out_plane());
    let (x_lanes, x) = x.split_at(lanes * p.plane());
    let (out_lanes, out) = out.split_at_mut(lanes * p.out_plane());
    let (places_lanes, places) = places.split_at_mut(lanes * p.out_plane());
    run_wide(MaxLanes {
        planes: p,
        x: x_lanes,
        out: out_lanes,
        places: places_lanes,
    });
    run_wide(MaxPlanes {
        planes: p,
        x,
        out,
        places,
    });
}

/// The maxima of all planes and their places.
fn max_planes<T: Number>(p: &Planes, out: &mut [T], places: &mut [i64], pool: &Pool) {
    let x = p.x.as_slice::<T>();
    let planes = p.planes_per_part(size_of::<T>(), pool);
    let len = planes * p.out_plane();
    run_pairs(pool, (out, len), (places, len), |i, out, places| {
        max_of(p, &x[i * planes * p.plane()..], out, places);
    });
}

/// Max pooling: values and indices.
pub(super) fn max_pool(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], threads: &Pool, n: usize) -> OpResult<()> {
    let adaptive = c.op.schema.index_of("output_size").is_some();
    let p = prepare_planes(c, n, if adaptive { Kind::AdaptiveMax } else { Kind::Max })?;
    let [values, places] = outs else {
        return Err(OpError::arg("self", "values and indices are two results"));
    };
    let places = places.as_mut_slice::<i64>();
    with_results(&p, values, |values| {
        if p.is_narrow() {
            return max_narrow(&p, values, places, threads);
        }
        with_number!(p.pool.dtype, T => max_planes::<T>(&p, values.as_mut_slice::<T>(), places, threads));
    })
}

/// Runs `f` with the result, or with one of the dtype that is computed with, which is converted after, unless elements are narrow. The
/// result of an empty operand is zeros.
fn with_results(p: &Planes, out: &mut ViewMut<'_>, f: impl FnOnce(&mut ViewMut<'_>)) -> OpResult<()> {
    let dtype = native(p.pool.dtype);
    if p.shape.contains(&0) {
        return Ok(());
    }
    if p.x.numel() == 0 {
        out.fill_from(&zeros(p.pool.dtype, &p.shape)?);
        return Ok(());
    }
    if dtype == p.pool.dtype || p.is_narrow() {
        f(out);
        return Ok(());
    }
    let mut wide = zeros(dtype, &p.shape)?;
    with_number!(dtype, T => {
        let mut view = ViewMut::from_slice(&p.shape, wide.as_mut_slice::<T>()).map_err(|e| OpError::shape(e.to_string()))?;
        f(&mut view);
    });
    out.fill_from(&wide.to(p.pool.dtype));
    Ok(())
}

/// The divisor that turns a window's sum into a mean.
#[derive(Clone, Copy)]
pub(super) enum Divisor {
    /// The number of elements in the window.
    Present,
    /// The window's size including padding.
    Full,
    /// The size of each dim in turn, as in torch's adaptive pools.
    InTurn,
    /// A fixed number.
    Fixed(i64),
}

impl Divisor {
    /// The means of windows with these sums, which have as many elements as `window`.
    #[inline(always)]
    pub(super) fn divide_all<T: Number>(self, sums: &mut [T], window: [&PoolWindow; 3]) {
        match self {
            Divisor::InTurn => {
                for v in window {
                    if v.present() != 1 {
                        T::divide_all(sums, v.present());
                    }
                }
            }
            Divisor::Fixed(n) => T::divide_all(sums, n),
            Divisor::Full => T::divide_all(sums, window[0].full * window[1].full * window[2].full),
            Divisor::Present => match window[0].present() * window[1].present() * window[2].present() {
                0 => sums.fill(T::default()),
                n => T::divide_all(sums, n),
            },
        }
    }
}

/// The means of planes.
pub(super) fn mean_of<T: Number>(p: &Planes, divisor: Divisor, x: &[T], out: &mut [T]) {
    let lanes = match p.may_sum_columns() || p.may_sum_windows() {
        true => 0,
        false => p.in_lanes(out.len() / p.out_plane()),
    };
    let (x_lanes, x) = x.split_at(lanes * p.plane());
    let (out_lanes, out) = out.split_at_mut(lanes * p.out_plane());
    run_wide(MeanLanes {
        planes: p,
        divisor,
        x: x_lanes,
        out: out_lanes,
    });
    run_wide(MeanPlanes {
        planes: p,
        divisor,
        x,
        out,
    });
}

/// The means of all planes.
fn mean_planes<T: Number>(p: &Planes, divisor: Divisor, out: &mut [T], pool: &Pool) {
    let x = p.x.as_slice::<T>();
    let planes = p.planes_per_part(size_of::<T>(), pool);
    pool.run_parts(out, planes * p.out_plane(), |i, out| {
        mean_of(p, divisor, &x[i * planes * p.plane()..], out);
    });
}

/// Mean pooling.
pub(super) fn avg_pool(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], threads: &Pool, n: usize) -> OpResult<()> {
    let adaptive = c.op.schema.index_of("output_size").is_some();
    let p = prepare_planes(c, n, if adaptive { Kind::AdaptiveAverage } else { Kind::Average })?;
    let fixed = match c.op.schema.index_of("divisor_override") {
        Some(_) => c.opt_int("divisor_override")?,
        None => None,
    };
    let divisor = match fixed {
        Some(0) => return Err(OpError::arg("divisor_override", "divisor must be not zero")),
        Some(n) => Divisor::Fixed(n),
        None if adaptive => Divisor::InTurn,
        None if c.bool("count_include_pad")? => Divisor::Full,
        None => Divisor::Present,
    };
    with_results(&p, &mut outs[0], |out| {
        if p.is_narrow() {
            return mean_narrow(&p, divisor, out, threads);
        }
        with_number!(p.pool.dtype, T => mean_planes::<T>(&p, divisor, out.as_mut_slice::<T>(), threads));
    })
}
