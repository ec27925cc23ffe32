//! Convolutions of f64 and of integers: plain loops, one output plane at a time.

use super::adapt::{relay, run_tail};
use crate::math::contract::{Conv, ConvArgs, ConvConstants, ConvPlan, Layout};
use crate::math::number::Number;
use crate::math::reference::add_plane;
use crate::math::scratch::{self, Shared};
use crate::parallel::Pool;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;

/// A plan of such a convolution.
pub(super) struct General {
    conv: Conv,
    weight: Option<Arc<AlignedBytes>>,
    bias: Option<Arc<AlignedBytes>>,
}

impl General {
    /// Plans `conv`, whose parameters were checked.
    pub(super) fn new(conv: &Conv, constants: ConvConstants) -> General {
        General {
            conv: conv.clone(),
            weight: constants.weight.map(|w| w.aligned()),
            bias: constants.weight.and(constants.bias).map(|b| b.aligned()),
        }
    }

    /// Computes the output, channels first.
    ///
    /// # Safety
    /// The operands are those of the convolution, channels first.
    unsafe fn planes<T: Number>(&self, pool: &Pool, x: *const u8, args: &ConvArgs, y: *mut u8) {
        let c = &self.conv;
        let Some([nx, nw, nb, _]) = c.extents() else { return };
        let out = c.output().unwrap_or_default();
        let (in_size, out_size): (usize, usize) = (c.input.iter().product(), out.iter().product());
        let taps: usize = c.kernel.iter().product();
        let (gi, go) = (c.in_channels / c.groups, c.out_channels / c.groups);
        let weight = self.weight.as_ref().map_or(args.weight, |w| w.bytes().as_ptr());
        let bias = self.bias.as_ref().map_or(args.bias, |b| b.bytes().as_ptr());
        // SAFETY: the caller's promise.
        let (x, w, b) = unsafe { (slice::<T>(x, nx), slice::<T>(weight, nw), slice::<T>(bias, nb)) };
        let y = Shared(y.cast::<T>());
        pool.run(c.batch * c.out_channels, |p| {
            let (image, o) = (p / c.out_channels, p % c.out_channels);
            // SAFETY: plane `p` is this chunk's.
            let y = unsafe { std::slice::from_raw_parts_mut(y.get().add(p * out_size), out_size) };
            y.fill(if c.bias { b[o] } else { T::default() });
            for i in 0..gi {
                let channel = o / go * gi + i;
                let at = if c.transposed {
                    channel * go + o % go
                } else {
                    o * gi + i
                };
                let x = &x[(image * c.in_channels + channel) * in_size..][..in_size];
                add_plane(c, out, x, &w[at * taps..][..taps], y);
            }
            if let Some((lo, hi)) = c.activation.bounds() {
                let (lo, hi) = (T::bound(lo as f64), T::bound(hi as f64));
                for y in y {
                    let v = if lo > *y { lo } else { *y };
                    *y = if hi < v { hi } else { v };
                }
            }
        });
    }
}

/// `n` elements at `p`; none may be null.
///
/// # Safety
/// `p` is readable for them if there are any.
unsafe fn slice<'a, T>(p: *const u8, n: usize) -> &'a [T] {
    match n {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(p.cast(), n) },
    }
}

impl ConvPlan for General {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let c = &self.conv;
        let Some([nx, _, _, ny]) = c.extents().filter(|e| e[3] > 0) else {
            return;
        };
        let size = c.dtype.size();
        let (x_moves, y_moves) = (
            c.input_layout == Layout::ChannelsLast,
            c.output_layout == Layout::ChannelsLast,
        );
        let words = |n: usize, moves: bool| if moves { (n * size).div_ceil(4) } else { 0 };
        let (mut x_buf, mut y_buf) = (scratch::take(words(nx, x_moves)), scratch::take(words(ny, y_moves)));
        // SAFETY: the caller's promise; the buffers are as long as the operands, and aligned for every dtype.
        unsafe {
            let (mut x, mut y) = (args.x, args.y);
            if x_moves {
                let to = x_buf.as_mut_ptr().cast();
                relay(
                    pool,
                    Layout::ChannelsFirst,
                    c.batch,
                    c.in_channels,
                    c.input.iter().product(),
                    size,
                    x,
                    to,
                );
                x = to;
            }
            if y_moves {
                y = y_buf.as_mut_ptr().cast();
            }
            match c.dtype {
                DType::F64 => self.planes::<f64>(pool, x, args, y),
                DType::I64 => self.planes::<i64>(pool, x, args, y),
                DType::I32 => self.planes::<i32>(pool, x, args, y),
                DType::I16 => self.planes::<i16>(pool, x, args, y),
                DType::I8 => self.planes::<i8>(pool, x, args, y),
                _ => self.planes::<u8>(pool, x, args, y),
            }
            if y_moves {
                let pixels = ny / (c.batch * c.out_channels);
                relay(
                    pool,
                    Layout::ChannelsLast,
                    c.batch,
                    c.out_channels,
                    pixels,
                    size,
                    y,
                    args.y,
                );
            }
            run_tail(pool, c, args.y, args.tail);
        }
    }

    fn describe(&self) -> String {
        format!("conv {} loops", self.conv.dtype)
    }
}
