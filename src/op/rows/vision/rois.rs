//! Features of boxes in images: RoI pooling and RoI alignment, plain and position-sensitive (torchvision's C++ ops).

use super::detection::{BoxReal, by_dtype};
use crate::op::rows::dense::zeros;
use crate::op::rows::fill::{FirstError, units_per_part};
use crate::op::rows::spell::list_text;
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::Tensor;
use crate::types::{DType, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new("roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int \
             sampling_ratio, bool aligned) -> Tensor",
            |c, _| roi_type(c),
            Meaning::Routine(|c| by_dtype(c, "input", roi_align::<f32>, roi_align::<f64>)),
        )
        .doc("the mean of interpolated samples in each cell of each box `[image, x1, y1, x2, y2]` (Mask R-CNN)")
        .spelled("torchvision.@.default"),
        Op::new("roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> Tensor[]",
            |c, _| {
                let out = roi_type(c)?;
                let places = out.map(|t| TensorType { dtype: DType::I32, ..t.clone() });
                Ok(Val::Tuple(vec![out, places]))
            },
            Meaning::Routine(|c| by_dtype(c, "input", roi_pool::<f32>, roi_pool::<f64>)),
        )
        .doc("the maximum in each cell of each box `[image, x1, y1, x2, y2]`, and its index (Fast R-CNN)")
        .spelled("torchvision.@.default"),
        Op::new("ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int \
             sampling_ratio) -> (Tensor, Tensor)",
            |c, _| sensitive_type(c),
            Meaning::Routine(|c| by_dtype(c, "input", ps_roi_align::<f32>, ps_roi_align::<f64>)),
        )
        .doc("position-sensitive roi_align, where each cell reads separate channels, and the channel indices (Light-Head R-CNN)")
        .spelled("torchvision.@.default"),
        Op::new("ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, \
             Tensor)",
            |c, _| sensitive_type(c),
            Meaning::Routine(|c| by_dtype(c, "input", ps_roi_pool::<f32>, ps_roi_pool::<f64>)),
        )
        .doc("position-sensitive roi_pool: the mean in each cell of each box, where each cell reads separate channels, and the channel indices (R-FCN)")
        .spelled("torchvision.@.default"),
    ]
}

/// A coordinate rounded to an integer, with ties away from zero like C's `round`.
fn round_to_index<T: BoxReal>(x: T) -> i64 {
    x.to_f64().round().clamp(f64::from(i32::MIN), f64::from(i32::MAX)) as i64
}

fn roi_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (dtype, x) = c.shaped("input")?;
    let (other, rois) = c.shaped("rois")?;
    let five = matches!(rois, [_, n] if n.as_const().is_none_or(|n| n == 5));
    if x.len() != 4 || !five || dtype != other {
        return Err(OpError::shape(format!(
            "{}(): the input should be [N, C, H, W] and the boxes [K, 5] of its dtype, got {} and {}",
            c.op.name,
            list_text(x),
            list_text(rois)
        )));
    }
    let (h, w) = (c.dims("pooled_height")?, c.dims("pooled_width")?);
    let shape = vec![rois[0].clone(), x[1].clone(), h[0].clone(), w[0].clone()];
    Ok(Val::Leaf(TensorType::new(dtype, shape)))
}

/// Images `[N, C, H, W]` and the boxes in them.
struct Rois<'a, T> {
    x: &'a [T],
    size: [usize; 4],
    boxes: Vec<&'a [T]>,
    shape: Vec<usize>,
}

fn read_rois<T: BoxReal>(c: &Call<Tensor>) -> OpResult<Rois<'_, T>> {
    let ty = roi_type(&c.types())?;
    let (x, boxes) = (c.leaf("input")?, c.leaf("rois")?);
    let size: [usize; 4] = x.shape().try_into().map_err(|_| OpError::shape("expected 4 dims"))?;
    let boxes: Vec<&[T]> = boxes.as_slice::<T>().chunks_exact(5).collect();
    let image = |b: &&[T]| (0.0..size[0] as f64).contains(&b[0].to_f64());
    if !boxes.iter().all(image) {
        return Err(OpError::value(format!(
            "{}(): a box refers to an image that does not exist",
            c.op.name
        )));
    }
    let shape = ty.as_leaf().and_then(TensorType::fixed_shape).unwrap_or_default();
    Ok(Rois {
        x: x.as_slice(),
        size,
        boxes,
        shape,
    })
}

impl<T: BoxReal> Rois<'_, T> {
    /// Calls `f` for each box, with its part of the results, on the threads that were lent.
    fn for_each_box<R: Send>(&self, out: &mut [R], f: impl Fn(&[T], &mut [R]) -> OpResult<()> + Sync) -> OpResult<()> {
        /// What a result costs at least, beside what copying a byte does.
        const COST: usize = 64;
        let (failed, per_box) = (FirstError::default(), out.len() / self.boxes.len().max(1));
        if per_box == 0 {
            return self.boxes.iter().try_for_each(|b| f(b, &mut []));
        }
        Pool::with_lent(|pool| {
            let boxes = units_per_part(self.boxes.len(), per_box.saturating_mul(COST), pool);
            pool.run_parts(out, boxes * per_box, |i, out| {
                let mut parts = self.boxes[i * boxes..].iter().zip(out.chunks_exact_mut(per_box));
                failed.note(parts.try_for_each(|(b, out)| f(b, out)));
            });
        });
        failed.result()
    }
}

/// The number of samples along a dim of a cell.
fn samples_along<T: BoxReal>(ratio: i64, size: T) -> i64 {
    if ratio > 0 { ratio } else { size.to_f64().ceil() as i64 }
}

/// The cells of a box and the grid of samples in each, by rows and columns.
struct SampledCell<T> {
    start: [T; 2],
    cell: [T; 2],
    grid: [i64; 2],
    samples: i64,
}

impl<T: BoxReal> SampledCell<T> {
    fn of_box(b: &[T], scale: T, aligned: bool, cells: [usize; 2], ratio: i64) -> OpResult<SampledCell<T>> {
        let half = T::from_f64(if aligned { 0.5 } else { 0.0 });
        let start = [2, 1].map(|i| b[i] * scale - half);
        let mut extent = [b[4] * scale - half - start[0], b[3] * scale - half - start[1]];
        let known = extent.iter().all(|e| !e.to_f64().is_nan());
        if !aligned {
            extent = extent.map(|e| e.larger(T::from_f64(1.0)));
        }
        let cell = [0, 1].map(|d| extent[d] / T::from_f64(cells[d] as f64));
        let grid = cell.map(|e| samples_along(ratio, e));
        if !known {
            return Err(too_many_samples("roi_align"));
        }
        Ok(SampledCell {
            start,
            cell,
            grid,
            samples: samples_of(grid, cells, "roi_align")?,
        })
    }
}

/// The number of samples in a cell. torchvision makes a table of the samples of all cells, which it indexes by 32 bits.
fn samples_of(grid: [i64; 2], cells: [usize; 2], op: &str) -> OpResult<i64> {
    let samples = grid[0].max(0).saturating_mul(grid[1].max(0));
    let all = samples.saturating_mul((cells[0] * cells[1]) as i64);
    match all <= i32::MAX.into() {
        true => Ok(samples),
        false => Err(too_many_samples(op)),
    }
}

fn too_many_samples(op: &str) -> OpError {
    OpError::value(format!(
        "{op} sampling grid is too large, reduce sampling_ratio or the RoI size"
    ))
}

fn roi_align<T: BoxReal>(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let r = read_rois::<T>(c)?;
    let ([_, channels, h, w], [_, _, ph, pw]) = (r.size, [r.shape[0], r.shape[1], r.shape[2], r.shape[3]]);
    let (scale, ratio, aligned) = (
        T::from_f64(c.f64("spatial_scale")?),
        c.int("sampling_ratio")?,
        c.bool("aligned")?,
    );
    let mut out = zeros(T::DTYPE, &r.shape)?;
    r.for_each_box(out.as_mut_slice::<T>(), |b, out| {
        let SampledCell {
            start,
            cell,
            grid,
            samples,
        } = SampledCell::of_box(b, scale, aligned, [ph, pw], ratio)?;
        let count = T::from_f64(samples.max(1) as f64);
        for (i, j) in (0..ph).flat_map(|i| (0..pw).map(move |j| (i, j))) {
            let place = |d: usize, cell_index: usize, sample: i64| {
                let step = T::from_f64(sample as f64 + 0.5) * cell[d] / T::from_f64(grid[d] as f64);
                start[d] + T::from_f64(cell_index as f64) * cell[d] + step
            };
            for (y, x) in (0..grid[0]).flat_map(|y| (0..grid[1]).map(move |x| (y, x))) {
                let taps = taps_inside(place(0, i, y), place(1, j, x), h, w);
                for ch in 0..channels {
                    let plane = &r.x[(b[0].to_f64() as usize * channels + ch) * h * w..][..h * w];
                    let to = &mut out[(ch * ph + i) * pw + j];
                    *to = taps.iter().fold(*to, |sum, &(p, weight)| sum + weight * plane[p]);
                }
            }
            for ch in 0..channels {
                let to = &mut out[(ch * ph + i) * pw + j];
                *to = *to / count;
            }
        }
        Ok(())
    })?;
    Ok(Val::Leaf(out))
}

/// The elements of a plane that a bilinear sample reads, with their weights. Empty if the point is more than one
/// element outside the plane.
fn taps_inside<T: BoxReal>(y: T, x: T, h: usize, w: usize) -> Vec<(usize, T)> {
    let outside = |v: T, n: usize| v.to_f64() < -1.0 || v.to_f64() > n as f64;
    if outside(y, h) || outside(x, w) || h == 0 || w == 0 {
        return vec![];
    }
    let along = |v: T, n: usize| {
        let v = v.larger(T::ZERO);
        let low = v.to_f64() as usize;
        match low + 1 >= n {
            true => [(n - 1, T::from_f64(1.0)), (n - 1, T::ZERO)],
            false => {
                let rest = v - T::from_f64(low as f64);
                [(low, T::from_f64(1.0) - rest), (low + 1, rest)]
            }
        }
    };
    let (rows, cols) = (along(y, h), along(x, w));
    let all = rows
        .iter()
        .flat_map(|&(r, a)| cols.iter().map(move |&(c, b)| (r * w + c, a * b)));
    all.collect()
}

fn roi_pool<T: BoxReal>(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let r = read_rois::<T>(c)?;
    let ([_, channels, h, w], [_, _, ph, pw]) = (r.size, [r.shape[0], r.shape[1], r.shape[2], r.shape[3]]);
    let scale = T::from_f64(c.f64("spatial_scale")?);
    let (mut out, mut places) = (zeros(T::DTYPE, &r.shape)?, zeros(DType::I32, &r.shape)?);
    let mut pairs = vec![(T::ZERO, -1); out.numel()];
    r.for_each_box(&mut pairs, |b, pairs| {
        let corner = |i: usize| round_to_index(b[i] * scale);
        let range = |cell: usize, cells: usize, lo: i64, hi: i64, n: usize| {
            let size = T::from_f64((hi - lo + 1).max(1) as f64) / T::from_f64(cells as f64);
            let end = |x: f64| ((x as i64) + lo).clamp(0, n as i64) as usize;
            let from = end((T::from_f64(cell as f64) * size).to_f64().floor());
            (from, end((T::from_f64(cell as f64 + 1.0) * size).to_f64().ceil()))
        };
        for (ch, i, j) in (0..channels * ph * pw).map(|n| (n / (ph * pw), n / pw % ph, n % pw)) {
            let (y0, y1) = range(i, ph, corner(2), corner(4), h);
            let (x0, x1) = range(j, pw, corner(1), corner(3), w);
            let plane = &r.x[(b[0].to_f64() as usize * channels + ch) * h * w..][..h * w];
            let mut best: (T, i32) = (T::from_f64(f64::from(f32::MIN)), -1);
            for position in (y0..y1).flat_map(|y| (x0..x1).map(move |x| y * w + x)) {
                if plane[position] > best.0 {
                    best = (plane[position], position as i32);
                }
            }
            let empty = y1 <= y0 || x1 <= x0;
            pairs[(ch * ph + i) * pw + j] = if empty { (T::ZERO, -1) } else { best };
        }
        Ok(())
    })?;
    let (values, index) = (out.as_mut_slice::<T>(), places.as_mut_slice::<i32>());
    for (pair, to) in pairs.into_iter().zip(values.iter_mut().zip(index)) {
        (*to.0, *to.1) = pair;
    }
    Ok(Val::Tuple(vec![Val::Leaf(out), Val::Leaf(places)]))
}

/// The type of both results of a position-sensitive op: the channels are divided among the cells.
fn sensitive_type(c: &Call<TensorType>) -> OpResult<Type> {
    let features = roi_type(c)?;
    let out = features.map(|t| {
        let mut t = t.clone();
        if let Some([_, channels, h, w]) = t.shape.as_deref_mut() {
            *channels = channels.floordiv(&h.mul(w));
        }
        t
    });
    let channels = c.shaped("input")?.1[1].as_const();
    let cells = c.dims("pooled_height")?[0].mul(&c.dims("pooled_width")?[0]).as_const();
    if let (Some(channels), Some(cells)) = (channels, cells)
        && (cells <= 0 || channels % cells != 0)
    {
        return Err(OpError::shape(
            "input channels must be a multiple of pooling height * pooling width",
        ));
    }
    let places = out.map(|t| TensorType {
        dtype: DType::I32,
        ..t.clone()
    });
    Ok(Val::Tuple(vec![out, places]))
}

/// The results of a position-sensitive op. `cell` computes the value for a plane, a box, and the cell's row and column.
fn position_sensitive<T: BoxReal>(
    c: &Call<Tensor>,
    cell: impl Fn(&Rois<T>, &[T], &[T], [usize; 2]) -> OpResult<T> + Sync,
) -> OpResult<Val<Tensor>> {
    let ty = sensitive_type(&c.types())?;
    let r = read_rois::<T>(c)?;
    let shape = ty.leaves()[0].fixed_shape().unwrap_or_default();
    let ([_, channels, h, w], [_, outs, ph, pw]) = (r.size, [shape[0], shape[1], shape[2], shape[3]]);
    let (mut out, mut places) = (zeros(T::DTYPE, &shape)?, zeros(DType::I32, &shape)?);
    r.for_each_box(out.as_mut_slice::<T>(), |b, values| {
        for (n, value) in values.iter_mut().enumerate() {
            let plane = &r.x[(b[0].to_f64() as usize * channels + n) * h * w..][..h * w];
            *value = cell(&r, plane, b, [n / pw % ph, n % pw])?;
        }
        Ok(())
    })?;
    let index = places.as_mut_slice::<i32>().iter_mut();
    (0..(outs * ph * pw) as i32)
        .cycle()
        .zip(index)
        .for_each(|(n, i)| *i = n);
    Ok(Val::Tuple(vec![Val::Leaf(out), Val::Leaf(places)]))
}

fn ps_roi_align<T: BoxReal>(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let (scale, ratio) = (T::from_f64(c.f64("spatial_scale")?), c.int("sampling_ratio")?);
    position_sensitive::<T>(c, |r, plane, b, channel| {
        let half = T::from_f64(0.5);
        let (cells, [_, _, h, w]) = ([r.shape[2], r.shape[3]], r.size);
        let along = |d: usize| {
            let start = b[2 - d] * scale - half;
            let extent = b[4 - d] * scale - half - start;
            let size = extent / T::from_f64(cells[d] as f64);
            let grid = samples_along(ratio, size);
            (T::from_f64(channel[d] as f64) * size + start, size, grid.max(0))
        };
        let sides = [along(0), along(1)];
        let samples = samples_of([sides[0].2, sides[1].2], cells, "ps_roi_align")?;
        let place = |d: usize, i: i64| {
            let (start, size, grid) = sides[d];
            start + T::from_f64(i as f64 + 0.5) * size / T::from_f64(grid as f64)
        };
        let mut sum = T::ZERO;
        for (y, x) in (0..sides[0].2).flat_map(|y| (0..sides[1].2).map(move |x| (y, x))) {
            let taps = taps_inside(place(0, y), place(1, x), h, w);
            sum = sum
                + taps
                    .iter()
                    .fold(T::ZERO, |s, &(position, weight)| s + weight * plane[position]);
        }
        // Without samples the result is 0 / 0.
        Ok(sum / T::from_f64(samples as f64))
    })
}

fn ps_roi_pool<T: BoxReal>(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let scale = T::from_f64(c.f64("spatial_scale")?);
    position_sensitive::<T>(c, |r, plane, b, channel| {
        let (cells, size, w) = ([r.shape[2], r.shape[3]], [r.size[2], r.size[3]], r.size[3]);
        let range = |d: usize| {
            let (start, end) = (round_to_index(b[2 - d] * scale), round_to_index(b[4 - d] * scale));
            let cell = T::from_f64((end - start).max(1) as f64) / T::from_f64(cells[d] as f64);
            // The last row and column belong to no cell.
            let within = |x: f64| (x as i64 + start).clamp(0, (size[d] as i64 - 1).max(0)) as usize;
            let edge = |i: usize| (T::from_f64(i as f64) * cell).to_f64();
            within(edge(channel[d]).floor())..within(edge(channel[d] + 1).ceil())
        };
        let (rows, columns) = (range(0), range(1));
        let area = rows.len() * columns.len();
        if area == 0 {
            return Ok(T::ZERO);
        }
        let places = rows.flat_map(|y| columns.clone().map(move |x| y * w + x));
        Ok(places.fold(T::ZERO, |sum, i| sum + plane[i]) / T::from_f64(area as f64))
    })
}

#[cfg(test)]
mod tests;
