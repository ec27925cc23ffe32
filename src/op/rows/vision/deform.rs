//! Deformable convolution (torchvision's C++ op): each tap reads the input at an offset of its own, between its elements.
//!
//! For a block of positions, the places and weights that a tap reads are computed once for all channels of its group of
//! offsets. The samples of all taps are the columns that each filter is multiplied by.

use super::detection::BoxReal;
use crate::op::rows::spell::list_text;
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Places, Tensor, ViewMut, WideLoop, gather_weighted, run_wide};
use crate::types::{DType, Dim, TensorType, Type, Val};

/// The number of positions that are computed at once.
const BLOCK: usize = 64;

/// The number of filters that read a column together.
const FILTERS: usize = 2;

pub(super) fn row() -> Op {
    Op::new("deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, \
             SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) \
             -> Tensor",
            |c, _| deform_type(c),
            Meaning::Fill(deform_conv2d),
        )
        .doc("deformable convolution, with sampling offsets and a mask of weights")
        .spelled("torchvision.@.default")
}

/// The parameters of a deformable convolution.
struct Deform {
    stride: [i64; 2],
    pad: [i64; 2],
    dilation: [i64; 2],
    groups: i64,
    offset_groups: i64,
}

fn deform_params<T: Clone>(c: &Call<T>) -> OpResult<Deform> {
    let pair = |a: &str, b: &str| Ok::<_, OpError>([c.int(a)?, c.int(b)?]);
    let p = Deform {
        stride: pair("stride_h", "stride_w")?,
        pad: pair("pad_h", "pad_w")?,
        dilation: pair("dilation_h", "dilation_w")?,
        groups: c.int("groups")?,
        offset_groups: c.int("offset_groups")?,
    };
    let positive = p
        .stride
        .iter()
        .chain(&p.dilation)
        .chain([&p.groups, &p.offset_groups])
        .all(|&v| v > 0);
    match positive && p.pad.iter().all(|&v| v >= 0) {
        true => Ok(p),
        false => Err(OpError::value(
            "deform_conv2d(): stride, dilation and groups must be positive, padding not negative",
        )),
    }
}

fn deform_type(c: &Call<TensorType>) -> OpResult<Type> {
    let p = deform_params(c)?;
    let (dtype, x) = c.shaped("input")?;
    let ((_, weight), (_, offset)) = (c.shaped("weight")?, c.shaped("offset")?);
    let bad = || {
        let (x, w, o) = (list_text(x), list_text(weight), list_text(offset));
        OpError::shape(format!(
            "deform_conv2d(): the shapes of input {x}, weight {w} and offset {o} do not match"
        ))
    };
    let ([n, channels, sizes @ ..], [out, per_group, kernel @ ..]) = (x, weight) else {
        return Err(bad());
    };
    if sizes.len() != 2 || kernel.len() != 2 || offset.len() != 4 {
        return Err(bad());
    }
    let mut shape = vec![n.clone(), out.clone()];
    let mut taps = 2 * p.offset_groups;
    for d in 0..2 {
        let k = kernel[d].as_const().ok_or_else(bad)?;
        let reach = Dim::Const(2 * p.pad[d] - p.dilation[d] * (k - 1) - 1);
        shape.push(
            sizes[d]
                .add(&reach)
                .floordiv(&Dim::Const(p.stride[d]))
                .add(&Dim::Const(1)),
        );
        taps = taps.saturating_mul(k);
    }
    let fits = |a: &Dim, b: i64| a.as_const().is_none_or(|a| a == b);
    let (i, o) = (per_group.as_const().ok_or_else(bad)?, out.as_const().ok_or_else(bad)?);
    let same = |a: &Dim, b: &Dim| a.as_const().zip(b.as_const()).is_none_or(|(a, b)| a == b);
    let whole = fits(channels, i.saturating_mul(p.groups)) && o % p.groups == 0 && fits(&offset[1], taps);
    let split = channels.as_const().is_none_or(|c| c % p.offset_groups == 0);
    let mask_fits = !c.bool("use_mask")? || matches!(c.shaped("mask")?.1, [_, m, ..] if fits(m, taps / 2));
    if !whole || !split || !mask_fits || !same(&offset[2], &shape[2]) || !same(&offset[3], &shape[3]) {
        return Err(bad());
    }
    Ok(Val::Leaf(TensorType::new(dtype, shape)))
}

/// The row's function.
fn deform_conv2d(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let double = c.leaf("input")?.dtype() == DType::F64;
    let compute = if double { DType::F64 } else { DType::F32 };
    let wide = c.map(|t| t.to(compute));
    let out = match double {
        true => Deformed::<f64>::from_call(&wide, outs[0].shape())?.run(pool),
        false => Deformed::<f32>::from_call(&wide, outs[0].shape())?.run(pool),
    };
    outs[0].fill_from(&out.to(outs[0].dtype()));
    Ok(())
}

/// A call with its operands.
struct Deformed<'a, T> {
    params: Deform,
    input: &'a [T],
    weight: &'a [T],
    /// `[batch, offset_groups, taps, 2, positions]`.
    offset: &'a [T],
    /// `[batch, offset_groups, taps, positions]`, if there is one.
    mask: Option<&'a [T]>,
    bias: &'a [T],
    batch: usize,
    channels: usize,
    /// The height and the width of the input.
    size: [usize; 2],
    kernel: [usize; 2],
    filters: usize,
    /// The height and the width of the result.
    out: [usize; 2],
}

/// The places and weights of the four elements that a tap reads at each position of a block.
struct Corners<T> {
    places: [[i32; BLOCK]; 4],
    weights: [[T; BLOCK]; 4],
}

impl<'a, T: BoxReal + Default + 'static> Deformed<'a, T> {
    fn from_call(c: &'a Call<Tensor>, shape: &[usize]) -> OpResult<Deformed<'a, T>> {
        let (x, weight, offset) = (c.leaf("input")?, c.leaf("weight")?, c.leaf("offset")?);
        let (mask, bias, masked) = (c.leaf("mask")?, c.leaf("bias")?, c.bool("use_mask")?);
        let same_mask = !masked || mask.numel() * 2 == offset.numel();
        if !same_mask || bias.numel() != shape[1] || offset.shape()[0] != shape[0] {
            return Err(OpError::shape(
                "deform_conv2d(): the shapes of bias, offset and mask do not match",
            ));
        }
        let size = [x.shape()[2], x.shape()[3]];
        if size[0] * size[1] > i32::MAX as usize {
            return Err(OpError::shape(format!(
                "deform_conv2d(): an image of {size:?} elements is too large"
            )));
        }
        Ok(Deformed {
            params: deform_params(c)?,
            input: x.as_slice(),
            weight: weight.as_slice(),
            offset: offset.as_slice(),
            mask: masked.then(|| mask.as_slice()),
            bias: bias.as_slice(),
            batch: shape[0],
            channels: x.shape()[1],
            size,
            kernel: [weight.shape()[2], weight.shape()[3]],
            filters: shape[1],
            out: [shape[2], shape[3]],
        })
    }

    fn run(&self, pool: &Pool) -> Tensor {
        let positions = self.out[0] * self.out[1];
        let blocks = positions.div_ceil(BLOCK);
        // A block's results for all filters, one block after another. The result has them filter by filter.
        let mut results = vec![T::ZERO; self.batch * blocks * self.filters * BLOCK];
        pool.run_parts(&mut results, (self.filters * BLOCK).max(1), |part, out| {
            let (n, first) = (part / blocks, part % blocks * BLOCK);
            self.run_block(n, [first, (first + BLOCK).min(positions)], out);
        });
        let shape = [self.batch, self.filters, self.out[0], self.out[1]];
        let mut out = vec![T::ZERO; shape.iter().product()];
        for (line, out) in out.chunks_mut(positions.max(1)).enumerate() {
            let (n, filter) = (line / self.filters, line % self.filters);
            for (block, out) in out.chunks_mut(BLOCK).enumerate() {
                let from = ((n * blocks + block) * self.filters + filter) * BLOCK;
                out.copy_from_slice(&results[from..from + out.len()]);
            }
        }
        Tensor::from_slice(&shape, &out)
    }

    /// Computes all filters at the positions `begin..end` of image `n`.
    fn run_block(&self, n: usize, [begin, end]: [usize; 2], out: &mut [T]) {
        let taps = self.kernel[0] * self.kernel[1];
        let groups = self.params.offset_groups as usize;
        let plane = self.size[0] * self.size[1];
        let mut columns = vec![[T::ZERO; BLOCK]; self.channels * taps];
        let mut corners = Corners {
            places: [[-1; BLOCK]; 4],
            weights: [[T::ZERO; BLOCK]; 4],
        };
        let count = end - begin;
        for (group, tap) in (0..groups).flat_map(|g| (0..taps).map(move |t| (g, t))) {
            let sampled = (n * groups + group) * taps + tap;
            self.find_corners(sampled, tap, begin, count, &mut corners);
            let of_group = self.channels / groups;
            for channel in group * of_group..(group + 1) * of_group {
                let image = &self.input[(n * self.channels + channel) * plane..][..plane];
                let column = &mut columns[channel * taps + tap][..count];
                let weights = corners.weights.each_ref();
                if plane > 0 {
                    let places = corners.places.each_ref().map(|p| Places::new(plane, &p[..count]));
                    gather_weighted(image, places, weights.map(|w| &w[..count]), column);
                }
                if let Some(mask) = self.mask {
                    let mask = &mask[sampled * self.out[0] * self.out[1] + begin..][..count];
                    column.iter_mut().zip(mask).for_each(|(v, &m)| *v = m * *v);
                }
            }
        }
        self.apply_filters(&columns, out);
    }

    /// Finds what a tap reads at the positions from `begin` on. `sampled` counts the taps of all groups of all images.
    fn find_corners(&self, sampled: usize, tap: usize, begin: usize, count: usize, corners: &mut Corners<T>) {
        let (p, [h, w]) = (&self.params, self.size);
        let positions = self.out[0] * self.out[1];
        let at = [tap / self.kernel[1], tap % self.kernel[1]];
        for j in 0..count {
            let position = begin + j;
            let place = [position / self.out[1], position % self.out[1]];
            let moved = [0, 1].map(|d| {
                let base = place[d] as i64 * p.stride[d] - p.pad[d] + at[d] as i64 * p.dilation[d];
                T::from_f64(base as f64) + self.offset[(2 * sampled + d) * positions + position]
            });
            let low = moved.map(|x| x.to_f64().floor());
            let [dy, dx] = [0, 1].map(|d| moved[d] - T::from_f64(low[d]));
            let one = T::from_f64(1.0);
            let weights = [(one - dy) * (one - dx), (one - dy) * dx, dy * (one - dx), dy * dx];
            for (k, weight) in weights.into_iter().enumerate() {
                let (y, x) = (
                    (low[0] as i64).saturating_add(k as i64 / 2),
                    (low[1] as i64).saturating_add(k as i64 % 2),
                );
                let inside = (0..h as i64).contains(&y) && (0..w as i64).contains(&x);
                corners.places[k][j] = if inside {
                    (y as usize * w + x as usize) as i32
                } else {
                    -1
                };
                corners.weights[k][j] = weight;
            }
        }
    }

    /// Multiplies the filters with the columns of their groups.
    fn apply_filters(&self, columns: &[[T; BLOCK]], out: &mut [T]) {
        let groups = self.params.groups as usize;
        let per_group = self.filters / groups;
        let depth = columns.len() / groups;
        for group in 0..groups {
            let columns = &columns[group * depth..(group + 1) * depth];
            for first in (0..per_group).step_by(FILTERS) {
                let filters = [0, 1].map(|i| group * per_group + (first + i).min(per_group - 1));
                run_wide(FilterPair {
                    weights: filters.map(|f| &self.weight[f * depth..(f + 1) * depth]),
                    bias: filters.map(|f| self.bias[f]),
                    columns,
                    filters,
                    out,
                });
            }
        }
    }
}

/// Multiplies two filters with the columns of a block. An element's terms are added in the order of channels and taps.
struct FilterPair<'a, T> {
    weights: [&'a [T]; FILTERS],
    bias: [T; FILTERS],
    columns: &'a [[T; BLOCK]],
    filters: [usize; FILTERS],
    out: &'a mut [T],
}

impl<T: BoxReal> WideLoop for FilterPair<'_, T> {
    #[inline(always)]
    fn run(self) {
        let mut sums = [[self.bias[0]; BLOCK], [self.bias[1]; BLOCK]];
        let depth = self.columns.len();
        let [a, b] = [&self.weights[0][..depth], &self.weights[1][..depth]];
        for (k, column) in self.columns.iter().enumerate() {
            for j in 0..BLOCK {
                sums[0][j] = sums[0][j] + a[k] * column[j];
                sums[1][j] = sums[1][j] + b[k] * column[j];
            }
        }
        for (filter, sums) in self.filters.into_iter().zip(&sums) {
            self.out[filter * BLOCK..(filter + 1) * BLOCK].copy_from_slice(sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::by_name;

    fn filled(shape: &[usize], value: impl Fn(usize) -> f32) -> Val<Tensor> {
        let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
        Val::Leaf(Tensor::from_slice(shape, &values))
    }

    /// Two groups of channels and of offsets; samples lie inside and outside of the input. The results are those of torchvision 0.29.
    #[test]
    fn groups_with_a_mask() {
        let sizes = [1, 1, 0, 0, 1, 1, 2, 2].map(Val::int);
        let operands = [
            filled(&[2, 2, 3, 3], |i| i as f32 / 4.0),
            filled(&[4, 1, 2, 2], |i| i as f32 / 2.0 - 2.0),
            filled(&[2, 16, 2, 2], |i| (i % 7) as f32 / 2.0 - 1.25),
            filled(&[2, 8, 2, 2], |i| (i % 5) as f32 / 4.0),
            Val::Leaf(Tensor::from_slice(&[4], &[1.0f32, -1.0, 0.5, 2.0])),
        ];
        let call = Call {
            op: by_name("deform_conv2d").expect("a row"),
            args: [&operands[..], &sizes, &[Val::Bool(true)]].concat(),
        };
        #[rustfmt::skip]
        let want = [
            -0.06640625, -0.359375, -0.263671875, -1.2734375, 0.32421875, 1.53125, -0.912109375, -0.59375,
            9.001953125, 5.779296875, 7.07421875, 8.638671875, 15.783203125, 12.177734375, 13.76953125, 16.662109375,
            -3.4921875, -5.53125, -5.609375, -6.58984375, 7.9296875, 1.6875, 1.203125, 2.45703125,
            23.51953125, 25.6171875, 41.69140625, 22.830078125, 44.64453125, 49.4453125, 71.73828125, 39.611328125,
        ];
        for (dtype, threads) in [(DType::F32, 1), (DType::F64, 2)] {
            let call = call.map(|t| t.to(dtype));
            let mut out = Tensor::zeros(dtype, &[2, 4, 2, 2]);
            deform_conv2d(&call, &mut [ViewMut::from(&mut out)], &Pool::new(threads)).expect("a result");
            assert_eq!(out.to(DType::F64).as_slice::<f64>(), want);
        }
    }
}
