//! f64 and integer convolutions, one output plane at a time: sums over a padded copy of each plane of the input ([`padded`]), or, if
//! transposed, plain loops.

pub(super) mod padded;

use super::adapt::run_channels_first;
use crate::math::contract::{Conv, ConvArgs, ConvConstants, ConvPlan};
use crate::math::lanes::{LaneElement, with_lane_element};
use crate::math::number::{Number, clamp_elements};
use crate::math::scratch::SharedPtr;
use crate::parallel::Pool;
use crate::tensor::AlignedBytes;
use padded::{PaddedSums, Padding};
use std::sync::Arc;

/// A plan of such a convolution.
pub(super) struct GeneralConv {
    conv: Conv,
    /// How planes are padded; `None` if they are not.
    padding: Option<Padding>,
    weight: Option<Arc<AlignedBytes>>,
    bias: Option<Arc<AlignedBytes>>,
}

impl GeneralConv {
    /// Plans `conv`, whose parameters were already checked.
    pub(super) fn new(conv: &Conv, constants: ConvConstants) -> GeneralConv {
        GeneralConv {
            conv: conv.clone(),
            padding: Padding::new(conv),
            weight: constants.weight.map(|w| w.aligned_bytes()),
            bias: constants.weight.and(constants.bias).map(|b| b.aligned_bytes()),
        }
    }

    /// Computes the output, channels first.
    ///
    /// # Safety
    /// The operands are those of the convolution, channels first.
    unsafe fn run_planes<T: LaneElement>(&self, pool: &Pool, args: &ConvArgs) {
        let c = &self.conv;
        let Some([nx, nw, nb, _]) = c.extents() else { return };
        let out_size: usize = c.output_size().unwrap_or_default().iter().product();
        let in_size: usize = c.input.iter().product();
        let taps: usize = c.kernel.iter().product();
        let (gi, go) = (c.in_channels / c.groups, c.out_channels / c.groups);
        let weight = self.weight.as_ref().map_or(args.weight, |w| w.bytes().as_ptr());
        let bias = self.bias.as_ref().map_or(args.bias, |b| b.bytes().as_ptr());
        // SAFETY: guaranteed by the caller.
        let (x, w, b) = unsafe {
            (
                slice_or_empty::<T>(args.x, nx),
                slice_or_empty::<T>(weight, nw),
                slice_or_empty::<T>(bias, nb),
            )
        };
        let y = SharedPtr(args.y.cast::<T>());
        pool.run(c.batch * c.out_channels, |p| {
            let (image, o) = (p / c.out_channels, p % c.out_channels);
            // SAFETY: plane `p` belongs to this chunk.
            let y = unsafe { std::slice::from_raw_parts_mut(y.get().add(p * out_size), out_size) };
            let operands = (0..gi).map(|i| {
                let channel = o / go * gi + i;
                let kernel = if c.transposed {
                    channel * go + o % go
                } else {
                    o * gi + i
                };
                let x = &x[(image * c.in_channels + channel) * in_size..][..in_size];
                (x, &w[kernel * taps..][..taps])
            });
            self.compute_plane(if c.bias { b[o] } else { T::default() }, operands, y);
        });
    }

    /// Computes a plane of the output, whose sums begin with `start`, from planes of the input with their kernels.
    fn compute_plane<'a, T: LaneElement + 'a>(
        &self,
        start: T,
        operands: impl Iterator<Item = (&'a [T], &'a [T])>,
        y: &mut [T],
    ) {
        let c = &self.conv;
        match &self.padding {
            Some(padding) => PaddedSums::new(padding, start).add_all(operands, y),
            None => {
                let out = c.output_size().unwrap_or_default();
                y.fill(start);
                for (x, w) in operands {
                    add_plane(c, out, x, w, y);
                    add_padding(c, out, w, y);
                }
            }
        }
        if let Some((lo, hi)) = c.activation.bounds() {
            clamp_elements(y, T::bound(lo as f64), T::bound(hi as f64));
        }
    }
}

/// Adds the products of one input plane with one kernel to an output plane of size `out`.
fn add_plane<T: Number>(c: &Conv, out: [usize; 3], x: &[T], w: &[T], y: &mut [T]) {
    // A plain convolution reads `in = out * stride + tap * dilation - padding`. A transposed one swaps `in` and `out`.
    let (from, to) = if c.transposed { (c.input, out) } else { (out, c.input) };
    for (t, &f) in w.iter().enumerate() {
        let tap = [
            t / (c.kernel[1] * c.kernel[2]),
            t / c.kernel[2] % c.kernel[1],
            t % c.kernel[2],
        ];
        let reach = |d: usize, at: usize| {
            let p = (at * c.stride[d] + tap[d] * c.dilation[d]).checked_sub(c.padding[d]);
            p.filter(|&p| p < to[d])
        };
        // The elements of a row that reach the other side: the first, and the end.
        let (begin, step) = (tap[2] * c.dilation[2], c.stride[2]);
        let first = c.padding[2].saturating_sub(begin).div_ceil(step);
        let end = (to[2] + c.padding[2]).saturating_sub(begin).div_ceil(step).min(from[2]);
        if first >= end {
            continue;
        }
        let column = begin + first * step - c.padding[2];
        for (a, b) in (0..from[0]).flat_map(|a| (0..from[1]).map(move |b| (a, b))) {
            let (Some(pa), Some(pb)) = (reach(0, a), reach(1, b)) else {
                continue;
            };
            let row = (a * from[1] + b) * from[2];
            let (row, apart) = (row + first..row + end, (pa * to[1] + pb) * to[2] + column);
            match c.transposed {
                true => add_products(&x[row], y[apart..].iter_mut().step_by(step), f),
                false => add_products(x[apart..].iter().step_by(step), &mut y[row], f),
            }
        }
    }
}

/// Adds the products of elements with `f`.
#[inline(always)]
fn add_products<'a, T: Number>(x: impl IntoIterator<Item = &'a T>, y: impl IntoIterator<Item = &'a mut T>, f: T) {
    for (y, x) in y.into_iter().zip(x) {
        *y = y.add(x.mul(f));
    }
}

/// Adds the products of the padding with one kernel to an output plane of size `out`. They are zeros, except that infinities and NaN give
/// NaN: torch multiplies the padding in f64, but not in a transposed convolution.
fn add_padding<T: Number>(c: &Conv, out: [usize; 3], w: &[T], y: &mut [T]) {
    let zero = T::default();
    if c.transposed || w.iter().all(|f| f.mul(zero) == zero) {
        return;
    }
    let inside = |d: usize, at: usize, tap: usize| {
        let p = (at * c.stride[d] + tap * c.dilation[d]).checked_sub(c.padding[d]);
        p.is_some_and(|p| p < c.input[d])
    };
    for (t, f) in w.iter().enumerate() {
        let product = f.mul(zero);
        if product == zero {
            continue;
        }
        let tap = [
            t / (c.kernel[1] * c.kernel[2]),
            t / c.kernel[2] % c.kernel[1],
            t % c.kernel[2],
        ];
        for (i, y) in y.iter_mut().enumerate() {
            let at = [i / (out[1] * out[2]), i / out[2] % out[1], i % out[2]];
            if !(0..3).all(|d| inside(d, at[d], tap[d])) {
                *y = y.add(product);
            }
        }
    }
}

/// The `n` elements at `p`. `p` may be null if `n` is 0.
///
/// # Safety
/// `p` is readable for `n` elements unless `n` is 0.
unsafe fn slice_or_empty<'a, T>(p: *const u8, n: usize) -> &'a [T] {
    match n {
        0 => &[],
        // SAFETY: guaranteed by the caller.
        _ => unsafe { std::slice::from_raw_parts(p.cast(), n) },
    }
}

impl ConvPlan for GeneralConv {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let dtype = self.conv.dtype;
        // SAFETY: guaranteed by the caller.
        let compute = |args: &ConvArgs| unsafe { with_lane_element!(dtype, T => self.run_planes::<T>(pool, args)) };
        // SAFETY: as above.
        unsafe { run_channels_first(pool, &self.conv, args, compute) };
    }

    fn describe(&self) -> String {
        format!("conv {} loops", self.conv.dtype)
    }
}
