//! The loops of `grid_sampler`: for a block of points the places and weights of the elements that they read, then these for each channel.
//! The arithmetic and its order are those of torch's vectorised CPU kernels, in the dtype of the image.

use super::grid_axis::{Axis, GridReal, Padding, cubic_weights};
use super::grid_half::GridElement;
use crate::op::rows::fill::units_per_part;
use crate::op::{Call, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Places, Tensor, ViewMut, WideLoop, gather_weighted, run_wide};
use crate::types::DType;
use half::{bf16, f16};

/// The number of points whose places are computed at once. Few, because small calls initialise as many.
const BLOCK: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Interpolation {
    Linear,
    Nearest,
    Cubic,
}

/// What a block of points reads along one dim: for each of up to 4 neighbours the indices, or -1, and the weights.
struct Taps<T> {
    places: [[i32; BLOCK]; 4],
    weights: [[T; BLOCK]; 4],
}

impl<T: GridReal> Taps<T> {
    fn new() -> Taps<T> {
        Taps {
            places: [[0; BLOCK]; 4],
            weights: [[T::from_f64(1.0); BLOCK]; 4],
        }
    }

    /// Computes the taps of points at these coordinates.
    #[inline(always)]
    fn fill(&mut self, axis: Axis<T>, how: Interpolation, coordinates: &[T]) {
        match how {
            Interpolation::Nearest => {
                for (p, &x) in self.places[0].iter_mut().zip(coordinates) {
                    *p = axis.place(axis.pad(axis.unnormalise(x)).round_even());
                }
            }
            Interpolation::Linear => self.fill_linear(axis, coordinates),
            Interpolation::Cubic => self.fill_cubic(axis, coordinates),
        }
    }

    #[inline(always)]
    fn fill_linear(&mut self, axis: Axis<T>, coordinates: &[T]) {
        let n = coordinates.len();
        let ([p0, p1, ..], [w0, w1, ..]) = (&mut self.places, &mut self.weights);
        // Slices of one length need no checks in the loop.
        let (p0, p1, w0, w1) = (&mut p0[..n], &mut p1[..n], &mut w0[..n], &mut w1[..n]);
        for j in 0..n {
            [(p0[j], w0[j]), (p1[j], w1[j])] = axis.neighbours(axis.pad(axis.unnormalise(coordinates[j])));
        }
    }

    #[inline(always)]
    fn fill_cubic(&mut self, axis: Axis<T>, coordinates: &[T]) {
        for (j, &x) in coordinates.iter().enumerate() {
            let x = axis.unnormalise(x);
            let below = x.floor();
            let w = cubic_weights(x - below);
            for (k, w) in w.into_iter().enumerate() {
                self.places[k][j] = axis.place(axis.pad(below + T::from_f64(k as f64 - 1.0)));
                self.weights[k][j] = w;
            }
        }
    }
}

/// Computes the taps of `n` points at the coordinates `grid[j * step]`.
struct FillTaps<'a, E: GridElement> {
    taps: &'a mut Taps<E::Real>,
    grid: &'a [E],
    step: usize,
    n: usize,
    axis: &'a Axis<E::Real>,
    how: Interpolation,
}

impl<E: GridElement> WideLoop for FillTaps<'_, E> {
    #[inline(always)]
    fn run(self) {
        let (taps, axis, how) = (self.taps, *self.axis, self.how);
        let mut coordinates = [E::Real::from_f64(0.0); BLOCK];
        let coordinates = &mut coordinates[..self.n];
        let steps = self.grid.iter().step_by(self.step);
        coordinates.iter_mut().zip(steps).for_each(|(c, &g)| *c = g.widen());
        if axis.by_point {
            return taps.fill(axis, how, coordinates);
        }
        match axis.padding {
            Padding::Zeros => taps.fill(axis.with_mode(Padding::Zeros), how, coordinates),
            Padding::Border => taps.fill(axis.with_mode(Padding::Border), how, coordinates),
            Padding::Reflection => taps.fill(axis.with_mode(Padding::Reflection), how, coordinates),
        }
    }
}

/// A call with its sizes; images of two dims have a depth of 1.
struct Sampler<T> {
    axes: [Axis<T>; 3],
    dims: usize,
    how: Interpolation,
    channels: usize,
    points: usize,
}

/// The places and weights that a block of points has in a plane, for each of its neighbours.
struct Corners<T> {
    taps: [Taps<T>; 3],
    places: [[i32; BLOCK]; 8],
    weights: [[T; BLOCK]; 8],
    line: [T; BLOCK],
}

impl<T: GridReal> Sampler<T> {
    fn plane(&self) -> usize {
        self.axes.iter().map(|a| a.size).product()
    }

    /// Samples some planes, `first` and those after it, which are channels of several items.
    fn sample_planes<E: GridElement<Real = T>>(&self, image: &[E], grid: &[E], first: usize, out: &mut [E]) {
        let mut corners = Box::new(Corners {
            taps: [Taps::new(), Taps::new(), Taps::new()],
            places: [[0; BLOCK]; 8],
            weights: [[T::from_f64(1.0); BLOCK]; 8],
            line: [T::from_f64(0.0); BLOCK],
        });
        let (mut buffer, planes) = (vec![], out.len() / self.points);
        let mut done = 0;
        while done < planes {
            let (item, channel) = ((first + done) / self.channels, (first + done) % self.channels);
            let count = (self.channels - channel).min(planes - done);
            let grid = &grid[item * self.points * self.dims..][..self.points * self.dims];
            let image = &image[(first + done) * self.plane()..][..count * self.plane()];
            let out = &mut out[done * self.points..][..count * self.points];
            let blocks = (0..self.points).step_by(BLOCK);
            let blocks = blocks.map(|from| (from, BLOCK.min(self.points - from)));
            let numbers = match self.how {
                Interpolation::Nearest => &[],
                _ => E::numbers(image, &mut buffer),
            };
            for (from, n) in blocks {
                self.fill_taps(&grid[from * self.dims..], n, &mut corners);
                let parts = out.chunks_exact_mut(self.points).map(|o| &mut o[from..from + n]);
                match self.how {
                    Interpolation::Nearest => self.copy_block(image, n, parts, &mut corners),
                    _ => self.sample_block(numbers, n, parts, &mut corners),
                }
            }
            done += count;
        }
    }

    /// The taps of `n` points, whose coordinates are in `grid`.
    fn fill_taps<E: GridElement<Real = T>>(&self, grid: &[E], n: usize, c: &mut Corners<T>) {
        for d in 3 - self.dims..3 {
            // The grid contains (x, y[, z]), that is, the last dim first.
            run_wide(FillTaps {
                taps: &mut c.taps[d],
                grid: &grid[2 - d..],
                step: self.dims,
                n,
                axis: &self.axes[d],
                how: self.how,
            });
        }
    }

    /// Copies the nearest elements of `n` points in all planes of `image` to `parts`.
    fn copy_block<'o, E: GridElement>(
        &self,
        image: &[E],
        n: usize,
        parts: impl Iterator<Item = &'o mut [E]>,
        c: &mut Corners<T>,
    ) {
        self.combine(c, n, 0, [0; 3]);
        let places = Places::new(self.plane(), &c.places[0][..n]);
        let planes = image.chunks_exact(self.plane());
        planes.zip(parts).for_each(|(x, o)| places.gather(x, o));
    }

    /// Samples `n` points in all planes of `image`; the results go to `parts`.
    fn sample_block<'o, E: GridElement<Real = T>>(
        &self,
        image: &[T],
        n: usize,
        parts: impl Iterator<Item = &'o mut [E]>,
        c: &mut Corners<T>,
    ) {
        let mut buffer = [T::from_f64(0.0); BLOCK];
        let outs = image.chunks_exact(self.plane()).zip(parts);
        match (self.how, self.dims) {
            (Interpolation::Cubic, _) => {
                outs.for_each(|(x, o)| E::write(o, &mut buffer, |o| self.sample_cubic(x, o, c)));
            }
            (_, 2) => {
                (0..4).for_each(|k| self.combine(c, n, k, [0, k >> 1, k & 1]));
                let (p, w) = self.corners::<4>(c, n);
                outs.for_each(|(x, o)| E::write(o, &mut buffer, |o| gather_weighted(x, p, w, o)));
            }
            _ => {
                (0..8).for_each(|k| self.combine(c, n, k, [k >> 2, k >> 1 & 1, k & 1]));
                let (p, w) = self.corners::<8>(c, n);
                outs.for_each(|(x, o)| E::write(o, &mut buffer, |o| gather_weighted(x, p, w, o)));
            }
        }
    }

    /// The places and weights of `n` points at `K` corners.
    fn corners<'c, const K: usize>(&self, c: &'c Corners<T>, n: usize) -> ([Places<&'c [i32]>; K], [&'c [T]; K]) {
        let all = std::array::from_fn(|k| k);
        (
            all.map(|k: usize| Places::new(self.plane(), &c.places[k][..n])),
            all.map(|k| &c.weights[k][..n]),
        )
    }

    /// Computes corner `k`, the product of one tap of each dim.
    fn combine(&self, c: &mut Corners<T>, n: usize, k: usize, tap: [usize; 3]) {
        let [_, h, w] = self.axes.each_ref().map(|a| a.size as i32);
        run_wide(CombineTaps {
            taps: [0, 1, 2].map(|d| (&c.taps[d].places[tap[d]][..n], &c.taps[d].weights[tap[d]][..n])),
            size: [h, w],
            places: &mut c.places[k][..n],
            weights: &mut c.weights[k][..n],
        });
    }

    /// Samples a plane by cubic interpolation: along the last dim, then along the other.
    fn sample_cubic(&self, image: &[T], out: &mut [T], c: &mut Corners<T>) {
        let n = out.len();
        let width = self.axes[2].size as i32;
        let line = &mut c.line[..n];
        out.fill(T::from_f64(0.0));
        for row in 0..4 {
            let rows = &c.taps[1].places[row][..n];
            for k in 0..4 {
                let (to, columns) = (&mut c.places[k][..n], &c.taps[2].places[k][..n]);
                for ((to, &y), &x) in to.iter_mut().zip(rows).zip(columns) {
                    *to = if (y | x) < 0 { -1 } else { y * width + x };
                }
            }
            let places = [0, 1, 2, 3].map(|k| Places::new(image.len(), &c.places[k][..n]));
            gather_weighted(image, places, c.taps[2].weights.each_ref().map(|w| &w[..n]), line);
            let weights = &c.taps[1].weights[row];
            for ((o, &v), &w) in out.iter_mut().zip(&*line).zip(weights) {
                *o = *o + v * w;
            }
        }
    }
}

/// Multiplies the taps of the dims of an image.
struct CombineTaps<'a, T> {
    /// The places and weights along each dim.
    taps: [(&'a [i32], &'a [T]); 3],
    /// The height and the width of the image.
    size: [i32; 2],
    places: &'a mut [i32],
    weights: &'a mut [T],
}

impl<T: GridReal> WideLoop for CombineTaps<'_, T> {
    #[inline(always)]
    fn run(self) {
        let ([z, y, x], [h, w]) = (self.taps, self.size);
        let n = self.places.len();
        // Slices of one length need no checks in the loop.
        let [z, y, x] = [z, y, x].map(|(places, weights)| (&places[..n], &weights[..n]));
        let (places, weights) = (self.places, &mut self.weights[..n]);
        for j in 0..n {
            let [pz, py, px] = [z.0[j], y.0[j], x.0[j]];
            let place = (pz.wrapping_mul(h).wrapping_add(py)).wrapping_mul(w).wrapping_add(px);
            places[j] = if (pz | py | px) < 0 { -1 } else { place };
            weights[j] = x.1[j] * y.1[j] * z.1[j];
        }
    }
}

/// The row's function.
pub(super) fn grid_sample(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, grid, out) = (c.leaf("input")?, c.leaf("grid")?, &mut outs[0]);
    let shape = out.shape().to_vec();
    match x.dtype() {
        DType::F32 => sample::<f32>(c, x.as_slice(), grid.as_slice(), &shape, out.as_mut_slice(), pool),
        DType::F64 => sample::<f64>(c, x.as_slice(), grid.as_slice(), &shape, out.as_mut_slice(), pool),
        DType::BF16 => sample::<bf16>(c, x.as_slice(), grid.as_slice(), &shape, out.as_mut_slice(), pool),
        _ => sample::<f16>(c, x.as_slice(), grid.as_slice(), &shape, out.as_mut_slice(), pool),
    }
}

/// The sampler of a call whose result has this shape.
fn sampler_of_call<T: GridReal>(c: &Call<Tensor>, shape: &[usize]) -> OpResult<Sampler<T>> {
    let padding = match c.int("padding_mode")? {
        1 => Padding::Border,
        2 => Padding::Reflection,
        _ => Padding::Zeros,
    };
    let dims = shape.len() - 2;
    let align = c.bool("align_corners")?;
    let mut size = [1; 3];
    size[3 - dims..].copy_from_slice(&c.leaf("input")?.shape()[2..]);
    if size.iter().product::<usize>() > i32::MAX as usize {
        return Err(OpError::shape(format!(
            "grid_sampler(): an image of {size:?} elements is too large"
        )));
    }
    Ok(Sampler {
        axes: size.map(|n| Axis::new(n, padding, align, dims == 3)),
        dims,
        how: match c.int("interpolation_mode")? {
            1 => Interpolation::Nearest,
            2 => Interpolation::Cubic,
            _ => Interpolation::Linear,
        },
        channels: shape[1],
        points: shape[2..].iter().product(),
    })
}

fn sample<E: GridElement>(
    c: &Call<Tensor>,
    image: &[E],
    grid: &[E],
    shape: &[usize],
    out: &mut [E],
    pool: &Pool,
) -> OpResult<()> {
    let sampler: Sampler<E::Real> = sampler_of_call(c, shape)?;
    if out.is_empty() {
        return Ok(());
    }
    let planes = units_per_part(shape[0] * shape[1], sampler.points * size_of::<E::Real>(), pool);
    pool.run_parts(out, planes * sampler.points, |i, out| {
        sampler.sample_planes(image, grid, i * planes, out);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::by_name;
    use crate::types::Val;

    fn sampled(shape: &[usize], image: &[f32], grid: &[f32], mode: i64, padding: i64) -> Vec<f32> {
        let dims = shape.len() - 2;
        let points = grid.len() / dims;
        let space = [vec![points], vec![1; dims - 1]].concat();
        let grid = Tensor::from_slice(&[&[1], &space[..], &[dims]].concat(), grid);
        let op = by_name(if dims == 2 {
            "grid_sampler_2d"
        } else {
            "grid_sampler_3d"
        });
        let call = Call {
            op: op.expect("a row"),
            args: vec![
                Val::Leaf(Tensor::from_slice(shape, image)),
                Val::Leaf(grid),
                Val::int(mode),
                Val::int(padding),
                Val::Bool(false),
            ],
        };
        let mut out = Tensor::zeros(DType::F32, &[&[1, 1], &space[..]].concat());
        grid_sample(&call, &mut [ViewMut::from(&mut out)], &Pool::new(1)).expect("a result");
        out.as_slice::<f32>().to_vec()
    }

    /// The results are those of torch 2.15.
    #[test]
    fn coordinates_that_are_not_finite_or_far_away() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let points = [nan, 0.0, 0.0, nan, inf, 0.0, 5.0, 5.0, 1e10, 0.0, 1.0, 1.0, -3.0, 0.2];
        let bits = |v: Vec<f32>| {
            v.into_iter()
                .map(|x| if x.is_nan() { -1.0 } else { x })
                .collect::<Vec<_>>()
        };
        let image = |n: usize| [vec![inf], vec![1.0; n - 1]].concat();
        let plane = |mode, padding| bits(sampled(&[1, 1, 3, 3], &image(9), &points, mode, padding));
        assert_eq!(plane(0, 0), [-1.0, -1.0, -1.0, 0.0, 0.0, 0.25, 0.0]);
        assert_eq!(plane(0, 1), [1.0; 7]);
        assert_eq!(plane(1, 0), [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(plane(1, 2), [1.0; 7]);
        let far = [nan, 0.0, 0.0, inf, 0.0, 0.0, 5.0, 5.0, 5.0, -3.0, 0.2, 0.0];
        for (padding, want) in [(0, 0.0), (1, 1.0), (2, 1.0)] {
            assert_eq!(sampled(&[1, 1, 3, 3, 3], &[1.0; 27], &far, 0, padding), [want; 4]);
        }
    }
}
