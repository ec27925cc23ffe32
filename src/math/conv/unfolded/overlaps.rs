//! Transposed convolutions: each pixel of the input times each kernel is a window of the output, and windows overlap.

use super::{Operands, UnfoldedConv};
use crate::math::conv::overlap::add_plane;
use crate::math::lanes::{LaneElement, Product, StridedColumns, multiply};
use crate::math::scratch;
use crate::parallel::Pool;

/// The number of products that wait to be added to the output. They are in the second cache.
const WAITING: usize = 32 << 10;
/// The smallest number of rows of a product that is worth packing the input again, for more than one thread.
const ROWS: usize = 32;
/// The smallest number of pixels in a block.
const PIXELS: usize = 64;

/// Computes the convolution.
///
/// # Safety
/// The operands are those of the plan's convolution, which is transposed, channels first.
pub(super) unsafe fn run<T: LaneElement>(plan: &UnfoldedConv, pool: &Pool, o: &Operands<T>) {
    let (c, s) = (&plan.conv, &plan.sizes);
    // Where sums depend on their order, the number of threads must not decide how many channels wait together.
    let together = match pool.threads() {
        1 if T::IN_ANY_ORDER => s.group_out,
        _ => ROWS.div_ceil(s.taps).clamp(1, s.group_out),
    };
    let parts = s.group_out.div_ceil(together);
    pool.run(c.batch * c.groups * parts, |i| {
        let (image, group, part) = (i / parts / c.groups, i / parts % c.groups, i % parts);
        let first = part * together;
        // SAFETY: guaranteed by the caller; chunks own disjoint planes of the output.
        unsafe { run_planes(plan, o, image, group, [first, s.group_out.min(first + together)]) };
    });
}

/// Computes the output channels `c0..c1` of a group of an image.
///
/// # Safety
/// As for [`run`]; nothing else writes these channels.
unsafe fn run_planes<T: LaneElement>(
    plan: &UnfoldedConv,
    o: &Operands<T>,
    image: usize,
    group: usize,
    [c0, c1]: [usize; 2],
) {
    let (c, s) = (&plan.conv, &plan.sizes);
    let (channels, channel) = (c1 - c0, group * s.group_out + c0);
    // SAFETY: the offsets lie in the operands.
    unsafe {
        let y = o.y.get().add((image * c.out_channels + channel) * s.out_pixels);
        for i in 0..channels {
            let start = if c.bias { *o.bias.add(channel + i) } else { T::default() };
            std::slice::from_raw_parts_mut(y.add(i * s.out_pixels), s.out_pixels).fill(start);
        }
        if s.group_in > 0 {
            let x = o.x.add((image * c.in_channels + group * s.group_in) * s.in_pixels);
            let weight = o.weight.add((group * s.group_in * s.group_out + c0) * s.taps);
            add_windows(plan, x, weight, y, channels);
        }
        plan.clamp(y, s.out_pixels, channels);
    }
}

/// Adds the windows of all pixels of a group of an image to the first `channels` planes at `y`.
///
/// # Safety
/// The pointers are those of the group's first input channel, and of the first output channel.
unsafe fn add_windows<T: LaneElement>(plan: &UnfoldedConv, x: *const T, weight: *const T, y: *mut T, channels: usize) {
    let s = &plan.sizes;
    let rows = channels * s.taps;
    let block = (WAITING / rows).max(PIXELS).min(s.in_pixels);
    let mut waiting = scratch::take_buffer((rows * block * size_of::<T>()).div_ceil(4));
    let products = waiting.as_mut_ptr().cast::<T>();
    for first in (0..s.in_pixels).step_by(block) {
        let n = block.min(s.in_pixels - first);
        let product = Product {
            m: rows,
            n,
            k: s.group_in,
            a: weight,
            a_strides: [1, s.group_out * s.taps],
            c: products,
            c_row: n,
            add: false,
        };
        // SAFETY: guaranteed by the caller; the buffer holds the products.
        unsafe {
            let (start, strides) = (x.add(first), [s.in_pixels, 1]);
            multiply(plan.isa, &product, &StridedColumns { start, strides });
            for row in 0..rows {
                let products = std::slice::from_raw_parts(products.add(row * n), n);
                let y = std::slice::from_raw_parts_mut(y.add(row / s.taps * s.out_pixels), s.out_pixels);
                add_plane(&plan.conv, s.out, products, first, row % s.taps, y);
            }
        }
    }
}
