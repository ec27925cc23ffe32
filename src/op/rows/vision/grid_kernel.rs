//! The call of `grid_sampler`.

use super::grid_axis::{Axis, GridReal, Padding};
use super::grid_half::GridElement;
use super::grid_planes::Sampler;
use super::grid_taps::Interpolation;
use crate::op::rows::fill::{BYTES_PER_PART, units_per_part};
use crate::op::{Call, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{POINTS, Tensor, ViewMut};
use crate::types::DType;
use half::{bf16, f16};
use smallvec::SmallVec;

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

/// The most elements of an image: the greatest f32 that an i32 can express.
const MOST_ELEMENTS: usize = (1 << 31) - 128;

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
    if size.iter().product::<usize>() > MOST_ELEMENTS {
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

/// The maximum size in bytes of the images that are sampled together. Random reads from more memory miss the TLB.
const IMAGES_AT_ONCE: usize = 4 << 20;

/// The number of planes of `bytes` each that a thread samples at once, from images of `image` bytes. All channels of an item read the same
/// places, and each part computes these again, so a part has as many channels as possible while every thread has work.
fn planes_per_part([items, channels]: [usize; 2], bytes: usize, image: usize, pool: &Pool) -> usize {
    let share = items.saturating_mul(channels).div_ceil(pool.threads());
    let planes = match pool.threads() {
        1 => share.max(1),
        _ => units_per_part(items * channels, bytes, pool).max(channels.min(share)),
    };
    let together = (IMAGES_AT_ONCE / image.max(1)).max(1);
    if channels > together {
        planes.min(together)
    } else {
        planes
    }
}

/// About the number of results that a thread computes while it could copy [`BYTES_PER_PART`] bytes.
const RESULTS_PER_PART: usize = BYTES_PER_PART / 32;

/// The numbers of channels and of points of an item that a thread samples at once; `None` if threads take whole planes, because there are
/// enough of them. An image has so many bytes.
fn points_per_part<T: GridReal>(sampler: &Sampler<T>, items: usize, image: usize, pool: &Pool) -> Option<[usize; 2]> {
    let threads = pool.threads();
    let channels = (IMAGES_AT_ONCE / image.max(1)).clamp(1, sampler.channels.max(1));
    let groups = items.saturating_mul(sampler.channels.div_ceil(channels));
    if threads == 1 || groups >= 2 * threads {
        return None;
    }
    // Where an image is widened before it is sampled, each part does so.
    let widens = T::IS_HALF && sampler.how == Interpolation::Cubic;
    let part = sampler.points.div_ceil(if widens { threads } else { 2 * threads });
    let part = part.max(RESULTS_PER_PART / channels).next_multiple_of(POINTS);
    (part < sampler.points).then_some([channels, part])
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
    let pixels: usize = sampler.axes.iter().map(|a| a.size).product();
    // Cubic interpolation reads the elements as numbers.
    let element = match sampler.how {
        Interpolation::Cubic => size_of::<E::Real>(),
        _ => size_of::<E>(),
    };
    let (bytes, image_bytes) = (sampler.points * size_of::<E::Real>(), pixels * element);
    if let Some([channels, points]) = points_per_part(&sampler, shape[0], image_bytes, pool) {
        for (item, out) in out.chunks_exact_mut(sampler.channels * sampler.points).enumerate() {
            let grid = &grid[item * sampler.points * sampler.dims..];
            for (group, out) in out.chunks_mut(channels * sampler.points).enumerate() {
                let image = &image[(item * sampler.channels + group * channels) * pixels..];
                let image = &image[..out.len() / sampler.points * pixels];
                pool.run_columns(out, sampler.points, points, |i, out| {
                    let mut out: SmallVec<[&mut [E]; 4]> = out.into_rows().collect();
                    sampler.sample_part(image, grid, i * points, &mut out);
                });
            }
        }
        return Ok(());
    }
    let planes = planes_per_part([shape[0], shape[1]], bytes, image_bytes, pool);
    pool.run_parts(out, planes * sampler.points, |i, out| {
        sampler.sample_planes(image, grid, i * planes, out);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::by_name;
    use crate::target::{Target, with_target};
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

    #[test]
    fn channels_of_an_item_are_sampled_together() {
        let large = 1 << 20;
        assert_eq!(planes_per_part([1, 3], large, large, &Pool::new(1)), 3);
        assert_eq!(planes_per_part([4, 1], large, large, &Pool::new(1)), 4);
        assert_eq!(planes_per_part([1, 3], large, large, &Pool::new(2)), 2);
        assert_eq!(planes_per_part([8, 3], large, large, &Pool::new(2)), 3);
        assert_eq!(planes_per_part([64, 1], large, large, &Pool::new(2)), 8);
        assert_eq!(planes_per_part([2, 16], large, large, &Pool::new(1)), 4);
    }

    /// Points within images and beyond all of their edges, as vectors and as plain loops compute them. Some images have fewer columns
    /// than a point reads.
    #[test]
    fn results_do_not_depend_on_the_target() {
        for (h, w) in [(1, 1), (1, 7), (5, 2), (4, 3), (7, 9), (9, 21)] {
            let image: Vec<f32> = (0..h * w).map(|i| (i * 37 % 101) as f32).collect();
            let grid: Vec<f32> = (0..90).map(|i| (i * 29 % 67) as f32 / 24.0 - 1.4).collect();
            for (mode, padding) in (0..3).flat_map(|m| (0..3).map(move |p| (m, p))) {
                let all = || sampled(&[1, 1, h, w], &image, &grid, mode, padding);
                let plain = with_target(Target::default(), all);
                assert_eq!(all(), plain, "{mode} {padding} {h}x{w}");
            }
        }
    }

    #[test]
    fn threads_sample_as_one_does() {
        for (shape, points) in [([1, 3, 40, 50], 3000), ([2, 1, 9, 30], 5000), ([5, 2, 7, 7], 4100)] {
            let [items, channels, h, w] = shape;
            let numbers = |n: usize, by: usize| (0..n).map(|i| (i * by % 101) as f64 / 40.0 - 1.25).collect::<Vec<_>>();
            let image = Tensor::from_slice(&shape, &numbers(items * channels * h * w, 37));
            let grid = Tensor::from_slice(&[items, points, 1, 2], &numbers(items * points * 2, 29));
            for (dtype, mode) in [DType::F32, DType::F64, DType::BF16]
                .into_iter()
                .flat_map(|d| [(d, 0), (d, 1), (d, 2)])
            {
                let operand = |t: &Tensor| Val::Leaf(t.to(dtype));
                let call = Call {
                    op: by_name("grid_sampler_2d").expect("a row"),
                    args: vec![
                        operand(&image),
                        operand(&grid),
                        Val::int(mode),
                        Val::int(0),
                        Val::Bool(false),
                    ],
                };
                let by = |threads: usize| {
                    let mut out = Tensor::zeros(dtype, &[items, channels, points, 1]);
                    grid_sample(&call, &mut [ViewMut::from(&mut out)], &Pool::new(threads)).expect("a result");
                    out
                };
                let want = by(1);
                assert!(
                    (2..4).all(|n| by(n).bytes() == want.bytes()),
                    "{shape:?} {dtype} {mode}"
                );
            }
        }
    }
}
