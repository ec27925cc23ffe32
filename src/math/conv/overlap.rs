//! Transposed convolution as a sum of overlapping windows: each pixel of the input times a kernel is a window of the output.

use crate::math::contract::Conv;
use crate::math::number::Number;

/// Neighbouring pixels of a row of the input.
struct Run {
    /// The first pixel.
    at: [usize; 3],
    len: usize,
}

/// Adds the products of the pixels from `pixel` on with element `tap` of a kernel to an output plane of size `out`.
pub(super) fn add_plane<T: Number>(
    c: &Conv,
    out: [usize; 3],
    products: &[T],
    mut pixel: usize,
    tap: usize,
    y: &mut [T],
) {
    let [_, height, width] = c.input;
    let [_, kernel_height, kernel_width] = c.kernel;
    let tap = [
        tap / kernel_width / kernel_height,
        tap / kernel_width % kernel_height,
        tap % kernel_width,
    ];
    let mut done = 0;
    while done < products.len() {
        let x = pixel % width;
        let len = (width - x).min(products.len() - done);
        let at = [pixel / width / height, pixel / width % height, x];
        add_run(c, out, &products[done..done + len], &Run { at, len }, tap, y);
        (done, pixel) = (done + len, pixel + len);
    }
}

/// Adds the products of a run.
fn add_run<T: Number>(c: &Conv, out: [usize; 3], products: &[T], run: &Run, tap: [usize; 3], y: &mut [T]) {
    let place = |d: usize| {
        let p = (run.at[d] * c.stride[d] + tap[d] * c.dilation[d]).checked_sub(c.padding[d]);
        p.filter(|&p| p < out[d])
    };
    let (Some(depth), Some(height)) = (place(0), place(1)) else {
        return;
    };
    // The first pixel and the end of those that reach the output: pixel `i` reaches element `start + i * step - padding`.
    let (step, padding) = (c.stride[2], c.padding[2]);
    let start = run.at[2] * step + tap[2] * c.dilation[2];
    let first = padding.saturating_sub(start).div_ceil(step);
    let end = (out[2] + padding).saturating_sub(start).div_ceil(step).min(run.len);
    if first >= end {
        return;
    }
    let from = (depth * out[1] + height) * out[2] + start + first * step - padding;
    let (y, products) = (&mut y[from..], &products[first..end]);
    match step {
        1 => add_elements(y.iter_mut(), products),
        2 => add_elements(y.iter_mut().step_by(2), products),
        _ => add_elements(y.iter_mut().step_by(step), products),
    }
}

/// Adds to each element.
#[inline(always)]
fn add_elements<'a, T: Number>(y: impl Iterator<Item = &'a mut T>, products: &[T]) {
    for (y, &p) in y.zip(products) {
        *y = y.add(p);
    }
}
