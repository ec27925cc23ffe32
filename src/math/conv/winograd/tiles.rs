//! The transforms of tiles: inputs to points, products back to outputs.

use super::transform::{Back, Forth};
use super::{TileLines, Winograd};
use crate::math::conv::ConvOperands;
use crate::math::conv::row::bias_at;
use crate::math::conv::strip::{OutputPart, Strip};
use crate::math::scratch;

impl Winograd {
    /// Transforms the input of tiles `t0..t1` of a block into `v`: `[point][tile][row]`.
    ///
    /// # Safety
    /// `x` holds the images; `v` holds the block's transformed tiles.
    pub(super) unsafe fn transform_tiles(&self, x: *const u8, l: &TileLines, t0: usize, t1: usize, v: *mut f32) {
        let (c, size) = (self.conv.in_channels, self.side + 2);
        let [_, h, w] = self.conv.input;
        let [_, ph, pw] = self.conv.padding;
        let (element, kernel) = (self.conv.dtype.size(), self.forth_kernel());
        let mut zeros = scratch::take_buffer(c);
        zeros.fill(0.0);
        let mut job = Forth {
            src: [zeros.as_ptr().cast(); 36],
            channels: c,
            dst: v,
            point: l.tiles * self.row,
        };
        for t in t0..t1 {
            let (line, across) = (l.block + t / self.grid[1], t % self.grid[1]);
            let (n, down) = (line / self.grid[0], line % self.grid[0]);
            for i in 0..size {
                for j in 0..size {
                    // Wraps around for positions before the border.
                    let y = (down * self.side + i).wrapping_sub(ph);
                    let z = (across * self.side + j).wrapping_sub(pw);
                    job.src[i * size + j] = match y < h && z < w {
                        true => x.wrapping_add((n * self.input.image + self.input.pixel_offset(0, y, z)) * element),
                        false => zeros.as_ptr().cast(),
                    };
                }
            }
            // SAFETY: the pointers lead to pixels or to zeros; tile `t` of the block is this caller's.
            unsafe {
                job.dst = v.add(t * self.row);
                kernel(&job);
            }
        }
    }

    /// Transforms one panel's products for the lines of a part back into its strip. `point` is the stride between the
    /// products of consecutive points.
    ///
    /// # Safety
    /// The products and the strip are the part's.
    pub(super) unsafe fn transform_back(
        &self,
        o: &ConvOperands,
        m: *const f32,
        point: usize,
        strip: &Strip,
        part: &OutputPart,
        panel: usize,
    ) {
        let (nr, side, [h, w]) = (self.kernels.nr, self.side, self.out);
        let channel = panel * nr;
        let (top, rows) = (part.pixel / w, part.pixels / w);
        let (element, kernel) = (self.conv.dtype.size(), self.back_kernel());
        for d in 0..rows.div_ceil(side) {
            for a in 0..self.grid[1] {
                // SAFETY: the tile's outputs lie in the part.
                unsafe {
                    kernel(&Back {
                        src: m.add((d * self.grid[1] + a) * nr),
                        point,
                        dst: strip
                            .base
                            .cast::<u8>()
                            .add(((d * side * w + a * side) * strip.row + channel - part.channel) * element),
                        row: w * strip.row,
                        pixel: strip.row,
                        rows: side.min(h - top - d * side),
                        cols: side.min(w - a * side),
                        channels: nr.min(self.conv.out_channels - channel),
                        bias: bias_at(o.bias, channel),
                        clamp: self.conv.activation.bounds(),
                    });
                }
            }
        }
    }
}
