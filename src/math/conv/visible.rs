//! Which taps of a kernel see the image rather than its padding. Products with padding are left out: whole rows of the kernel where
//! the image ends above or below the output row, and, in narrow rows, the pixels that see padding through a column of the kernel.

use super::row::PixelRow;
use crate::math::contract::{Activation, Conv};
use crate::math::tile::{Kernels, TileFn};
use std::ops::Range;

/// How many pixels without a tap, of one that has `indices` product indices, take the time of reading and writing the sums
/// for that tap once more.
fn lost_pixels(pixels: usize, indices: usize) -> usize {
    pixels.saturating_mul(8) / indices.clamp(1, 256)
}

/// The taps along dimension `d` that see the image in the window of output position `at`.
pub(super) fn visible_taps(conv: &Conv, d: usize, at: usize) -> Range<usize> {
    let (first, step) = (at * conv.stride[d], conv.dilation[d]);
    let begin = conv.padding[d].saturating_sub(first).div_ceil(step);
    let end = (conv.input[d] + conv.padding[d]).saturating_sub(first).div_ceil(step);
    begin.min(conv.kernel[d])..end.min(conv.kernel[d])
}

/// Whether the window of output position `at` lies in the image along dimension `d`.
fn sees_no_padding(conv: &Conv, d: usize, at: usize) -> bool {
    let first = at * conv.stride[d];
    first >= conv.padding[d] && first + (conv.kernel[d] - 1) * conv.dilation[d] < conv.input[d] + conv.padding[d]
}

/// The segments of product indices that contain all those that are not entirely padding, for the output row at this depth and height.
/// The rows of the kernel have as many of the `count` segments each. If several depths overlap the image, all rows of the kernel do as
/// far as this is concerned.
pub(super) fn visible_segments(conv: &Conv, [depth, height]: [usize; 2], count: usize) -> Range<usize> {
    if conv.padding[..2] == [0; 2] || sees_no_padding(conv, 0, depth) && sees_no_padding(conv, 1, height) {
        return 0..count;
    }
    let (d, mut h) = (visible_taps(conv, 0, depth), visible_taps(conv, 1, height));
    if d.is_empty() || h.is_empty() {
        return 0..count;
    }
    if d.len() > 1 {
        h = 0..conv.kernel[1];
    }
    let per = count / (conv.kernel[0] * conv.kernel[1]);
    (d.start * conv.kernel[1] + h.start) * per..((d.end - 1) * conv.kernel[1] + h.end) * per
}

/// The positions of those of `count` windows that see the input with a tap, along dimension `d`.
fn seeing_windows(conv: &Conv, d: usize, tap: usize, count: usize) -> Range<usize> {
    let at = tap * conv.dilation[d];
    let first = conv.padding[d].saturating_sub(at).div_ceil(conv.stride[d]);
    let end = (conv.input[d] + conv.padding[d]).saturating_sub(at);
    let end = end.div_ceil(conv.stride[d]).min(count);
    first.min(end)..end
}

/// For each column of the kernel, the pixels of a row of `width` output pixels that see the image through it. `None` if leaving out the
/// others would not save time, where each tap has as many product indices as are multiplied in the time of this many of f32.
pub(super) fn visible_pixels(conv: &Conv, width: usize, indices: usize) -> Option<Vec<Range<usize>>> {
    if conv.kernel[2] == 1 || conv.padding[2] == 0 {
        return None;
    }
    let seen = |tap: usize| seeing_windows(conv, 2, tap, width);
    let columns: Vec<_> = (0..conv.kernel[2]).map(seen).collect();
    let all = width.saturating_mul(columns.len());
    let hidden = all - columns.iter().map(|c| c.len()).sum::<usize>();
    (hidden > lost_pixels(all, indices)).then_some(columns)
}

impl PixelRow<'_> {
    /// Computes the row with the tile kernels `tile(rows)`, tap by tap. The segments are taps, the first of them number
    /// `first`; `columns` is from [`visible_pixels`]. The weights of adjacent taps are `step` elements apart.
    ///
    /// # Safety
    /// As for [`PixelRow::run`].
    pub(super) unsafe fn run_by_taps(
        &self,
        kernels: &Kernels,
        columns: &[Range<usize>],
        [first, step]: [usize; 2],
        tile: impl Fn(usize) -> TileFn,
    ) {
        // SAFETY: guaranteed by the caller.
        let run = |row: PixelRow| unsafe { row.run(kernels, &tile) };
        if self.is_first {
            run(self.without_taps(true, false));
        }
        for i in 0..self.segments.len() {
            let seen = &columns[(first + i) % columns.len()];
            let prefetched = i * self.run * kernels.nr;
            run(PixelRow {
                x: self.x.wrapping_add(seen.start * self.x_pixel),
                segments: &self.segments[i..i + 1],
                weight: (self.weight.0.wrapping_add(i * step), self.weight.1),
                y: self.y.wrapping_add(seen.start * self.y_pixel),
                pixels: seen.len(),
                is_first: false,
                is_last: false,
                next: self.next.map(|(p, r, rows)| (p.wrapping_add(prefetched), r, rows)),
                ..*self
            });
        }
        if self.is_last && self.activation != Activation::None {
            run(self.without_taps(false, true));
        }
    }

    /// The row without taps, which only begins the sums, or applies the activation to them.
    fn without_taps(&self, is_first: bool, is_last: bool) -> PixelRow<'_> {
        PixelRow {
            segments: &[],
            next: None,
            is_first,
            is_last,
            ..*self
        }
    }
}
