//! Narrow rows of output, of which a tap at the side of the kernel sees padding in many pixels. These pixels are left out:
//! each tap is multiplied with those that see the image.

use super::row::PixelRow;
use crate::math::contract::{Activation, Conv};
use crate::math::tile::{Kernels, TileFn};
use std::ops::Range;

/// How many pixels without a tap, of one that has `channels` product indices, take the time of reading and writing the sums
/// for that tap once more.
fn lost_pixels(pixels: usize, channels: usize) -> usize {
    pixels.saturating_mul(8) / channels.clamp(1, 256)
}

/// The positions of those of `count` windows that see the input with a tap, along dimension `d`.
fn seeing_windows(conv: &Conv, d: usize, tap: usize, count: usize) -> Range<usize> {
    let at = tap * conv.dilation[d];
    let first = conv.padding[d].saturating_sub(at).div_ceil(conv.stride[d]);
    let end = (conv.input[d] + conv.padding[d]).saturating_sub(at);
    let end = end.div_ceil(conv.stride[d]).min(count);
    first.min(end)..end
}

/// For each column of the kernel, the pixels of a row of `width` output pixels that see the image through it, if others
/// should be left out.
pub(super) fn visible_pixels(conv: &Conv, width: usize) -> Option<Vec<Range<usize>>> {
    if conv.kernel[2] == 1 || conv.padding[2] == 0 {
        return None;
    }
    let seen = |tap: usize| seeing_windows(conv, 2, tap, width);
    let columns: Vec<_> = (0..conv.kernel[2]).map(seen).collect();
    let all = width.saturating_mul(columns.len());
    let hidden = all - columns.iter().map(|c| c.len()).sum::<usize>();
    (hidden > lost_pixels(all, conv.in_channels / conv.groups)).then_some(columns)
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
