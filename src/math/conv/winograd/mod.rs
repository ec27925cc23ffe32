//! 3x3 convolutions of stride 1 by Winograd's minimal filtering: Lavin and Gray, "Fast Algorithms for Convolutional
//! Neural Networks" (2016).
//!
//! A tile of `side x side` outputs is computed from `(side + 2) x (side + 2)` inputs. The inputs and the weights are
//! transformed ([`transform`], [`weights`]), the weights once, when the plan is made. One product `[tiles, in] · [in, out]` for each
//! of the transformed points replaces nine. Its results are transformed back. `F(4x4, 3x3)` needs a quarter of the
//! multiplications but four times the memory for weights; `F(2x2, 3x3)` needs 4/9 and 16/9. If there is no room for
//! transformed weights, the weights are kept untransformed and are transformed in every run, as they are used.
//! [`choose_way`] compares these variants with each other and with the direct method.
//!
//! Inputs and outputs are f32, or channels-last bf16, which the transforms widen and round: in f32, four multiplications take
//! longer than nine of pairs take, but fewer than a quarter are needed.
//!
//! Rounding differs from that of a sum of products; [`transform`] says by how much. An infinity or NaN in the input
//! affects all outputs of its tile, not only those whose window contains it.

mod choice;
mod products;
#[cfg(test)]
mod tests;
mod tiles;
mod transform;
mod weights;

pub(super) use choice::{WinogradWay, choose_way, extra_weight_bytes};

use super::padded::Padded;
use super::strip::{ConvOutput, OutputPart};
use super::{ConvOperands, Method, panels};
use crate::math::contract::{Conv, PlanError};
use crate::math::scratch::{self, SharedPtr};
use crate::math::tile::Kernels;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::types::DType;
use std::cell::OnceCell;
use transform::{Back, Forth};
use weights::PanelWeights;

/// The number of bytes of transformed input in a block. With its results, a block stays in a 1 MB L2 cache.
const BLOCK: usize = 512 << 10;
/// The minimum number of tiles in a block, if there are as many: enough rows for two register tiles.
const FEWEST: usize = 24;
/// The maximum number of tiles whose products a chunk keeps.
const MOST: usize = 64;

/// The number of bytes of transformed input that all threads share.
const TOGETHER: usize = 4 << 20;

/// The method.
pub(super) struct Winograd {
    conv: Conv,
    isa: Isa,
    kernels: &'static Kernels,
    input: Padded,
    output: ConvOutput,
    /// Height and width of the output.
    out: [usize; 2],
    /// The number of outputs along the side of a tile: 2 or 4.
    side: usize,
    /// The numbers of tiles down and across an image.
    grid: [usize; 2],
    /// The stride between the transformed inputs of tiles, in elements.
    row: usize,
    /// The number of panels of output channels.
    panels: usize,
    /// Whether weights are kept untransformed, panel by panel, and transformed as they are used.
    fresh: bool,
}

/// Rows of tiles `first..end` of the current images, the first of which is `image`. They belong to a block that starts
/// at row `block` and has `tiles` tiles.
#[derive(Clone, Copy)]
struct TileLines {
    image: usize,
    block: usize,
    tiles: usize,
    first: usize,
    end: usize,
}

impl Winograd {
    /// Plans `conv`, for which [`choose_way`] returned this variant.
    pub(super) fn new(isa: Isa, conv: &Conv, WinogradWay { side, fresh }: WinogradWay) -> Result<Winograd, PlanError> {
        let kernels = Kernels::for_isa(isa);
        // Tiles at the border read zeros beyond it, so no padded copy is needed.
        let input = Padded::with_padding(isa, conv, [0; 3])?;
        let [_, h, w] = conv.output_size().ok_or(PlanError::Size)?;
        let c = conv.in_channels;
        let panels = conv.out_channels.div_ceil(kernels.nr);
        let points = (side + 2) * (side + 2);
        let weights = [panels, kernels.nr, c, points, 4];
        let fits = weights.iter().try_fold(1usize, |a, &x| a.checked_mul(x));
        fits.filter(|&b| b <= isize::MAX as usize).ok_or(PlanError::Size)?;
        Ok(Winograd {
            conv: conv.clone(),
            isa,
            kernels,
            input,
            output: ConvOutput::new(conv),
            out: [h, w],
            side,
            grid: [h.div_ceil(side), w.div_ceil(side)],
            // Rows a multiple of 1 KiB apart would share a few sets of the L1 cache.
            row: c + if c.is_multiple_of(256) { 16 } else { 0 },
            panels,
            fresh,
        })
    }

    fn forth_kernel(&self) -> unsafe fn(&Forth) {
        transform::forth_kernel(self.isa, self.side, self.conv.dtype == DType::BF16)
    }

    fn back_kernel(&self) -> unsafe fn(&Back) {
        transform::back_kernel(self.isa, self.side, self.conv.dtype == DType::BF16)
    }

    /// The number of points of a transformed tile.
    fn points(&self) -> usize {
        (self.side + 2) * (self.side + 2)
    }

    /// Computes all outputs of `count` images from `image` on, whose channels-last input is at `x`.
    ///
    /// # Safety
    /// The operands are valid.
    unsafe fn run_images(&self, pool: &Pool, o: &ConvOperands, x: *const u8, image: usize, count: usize) {
        let (lines, across) = (count * self.grid[0], self.grid[1]);
        let tile = 4 * self.points() * self.row;
        let most = (BLOCK / tile).max(FEWEST).div_ceil(across).clamp(1, lines);
        let wanted = 4 * pool.threads();
        // Weights that are transformed during the run should serve many tiles.
        let many = !self.fresh || across * most.min(lines / wanted) >= MOST;
        let alone = many && (pool.threads() == 1 || lines.div_ceil(most) >= wanted);
        let own = many && lines / wanted * across >= FEWEST / 2;
        let x = SharedPtr(x.cast_mut());
        if alone || own {
            // Each chunk transforms its own input, which stays in the thread's cache.
            let blocks = lines.div_ceil(most).max(if alone { 1 } else { wanted });
            let per = if alone {
                lines.div_ceil(blocks)
            } else {
                (lines / blocks).max(1)
            };
            pool.run(lines.div_ceil(per), |i| {
                let l = self.block_of_lines(image, i * per, ((i + 1) * per).min(lines));
                let mut v = scratch::take_buffer(self.points() * l.tiles * self.row);
                // SAFETY: the lines are those of the images; chunks own disjoint parts of the output.
                unsafe {
                    self.transform_tiles(x.get(), &l, 0, l.tiles, v.as_mut_ptr());
                    self.run_lines(o, v.as_ptr(), &l, [0, self.panels]);
                }
            });
            return;
        }
        // Chunks share the transformed input. Process as many lines at a time as the memory limit allows, in whole
        // chunks.
        let chunk = (MOST / across).max(1);
        let step = (TOGETHER / (tile * across) / chunk * chunk).max(chunk);
        for first in (0..lines).step_by(step) {
            let all = self.block_of_lines(image, first, (first + step).min(lines));
            // SAFETY: guaranteed by the caller; the lines are those of the images.
            unsafe { self.run_shared_lines(pool, o, x.get(), all) };
        }
    }

    /// Lines `first..end` as a block of their own.
    fn block_of_lines(&self, image: usize, first: usize, end: usize) -> TileLines {
        TileLines {
            image,
            block: first,
            tiles: (end - first) * self.grid[1],
            first,
            end,
        }
    }

    /// Computes the outputs of lines whose transformed input all threads read.
    ///
    /// # Safety
    /// The operands are valid; the lines are a block.
    unsafe fn run_shared_lines(&self, pool: &Pool, o: &ConvOperands, x: *const u8, all: TileLines) {
        let (lines, across) = (all.end - all.first, self.grid[1]);
        let wanted = 4 * pool.threads();
        let x = SharedPtr(x.cast_mut());
        let mut v = scratch::take_buffer(self.points() * all.tiles * self.row);
        let v = SharedPtr(v.as_mut_ptr());
        let per = all.tiles.div_ceil(wanted);
        pool.run(all.tiles.div_ceil(per), |i| {
            // SAFETY: chunks transform different tiles.
            unsafe { self.transform_tiles(x.get(), &all, i * per, ((i + 1) * per).min(all.tiles), v.get()) };
        });
        let panels = self.panels.div_ceil(wanted);
        let groups = self.panels.div_ceil(panels);
        // Each part transforms its own weights.
        let parts = match self.fresh && groups >= 2 * pool.threads() {
            true => 1,
            false => wanted.div_ceil(groups),
        };
        let parts = parts.max(lines.div_ceil((MOST / across).max(1))).min(lines);
        let per = lines.div_ceil(parts);
        let parts = lines.div_ceil(per);
        pool.run(groups * parts, |i| {
            let (g, part) = (i / parts, i % parts);
            let l = TileLines {
                first: all.first + part * per,
                end: (all.first + (part + 1) * per).min(all.end),
                ..all
            };
            let p = [g * panels, ((g + 1) * panels).min(self.panels)];
            // SAFETY: the transformed input is complete; chunks own disjoint parts of the output.
            unsafe { self.run_lines(o, v.get(), &l, p) };
        });
    }

    /// The part of the output given by some lines of one image and some panels.
    fn output_part(&self, image: usize, [d0, d1]: [usize; 2], [p0, p1]: [usize; 2]) -> OutputPart {
        let (nr, [h, w]) = (self.kernels.nr, self.out);
        let (first, end) = (d0 * self.side, (d1 * self.side).min(h));
        OutputPart {
            image,
            pixel: first * w,
            pixels: (end - first) * w,
            channel: p0 * nr,
            channels: (p1 * nr).min(self.conv.out_channels) - p0 * nr,
        }
    }

    /// Multiplies the transformed input `v` of some lines with some panels, and finishes these outputs.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part of the output.
    unsafe fn run_lines(&self, o: &ConvOperands, v: *const f32, l: &TileLines, p: [usize; 2]) {
        let down = self.grid[0];
        // Lines of one image form one part of the output.
        let run = |line: usize| ((line / down + 1) * down).min(l.end);
        let mut line = l.first;
        while line < l.end {
            let end = if self.output.is_buffered() { run(line) } else { l.end };
            let some = TileLines { first: line, end, ..*l };
            // SAFETY: guaranteed by the caller.
            unsafe { self.multiply_lines(o, v, &some, p) };
            line = end;
        }
    }

    /// [`Winograd::run_lines`] for lines that share one buffer, or that need none.
    ///
    /// # Safety
    /// As for [`Winograd::run_lines`].
    unsafe fn multiply_lines(&self, o: &ConvOperands, v: *const f32, l: &TileLines, p: [usize; 2]) {
        let (nr, down) = (self.kernels.nr, self.grid[0]);
        let tiles = (l.end - l.first) * self.grid[1];
        let mut m = scratch::take_buffer(self.points() * tiles * nr);
        let end_of = |line: usize| ((line / down + 1) * down).min(l.end);
        let starts = || std::iter::successors(Some(l.first), |&line| Some(end_of(line)).filter(|&e| e < l.end));
        let part_at = |line: usize| {
            let first = line % down;
            self.output_part(l.image + line / down, [first, first + end_of(line) - line], p)
        };
        // SAFETY: the parts lie in the output and are this caller's.
        unsafe {
            let mut held = (self.output.is_buffered()).then(|| self.output.begin_strip(o.y, &part_at(l.first)));
            for panel in p[0]..p[1] {
                self.compute_products(o, v, l, panel, m.as_mut_ptr());
                for line in starts() {
                    let (fresh, part) = (OnceCell::new(), part_at(line));
                    let strip = held
                        .as_ref()
                        .unwrap_or_else(|| fresh.get_or_init(|| self.output.begin_strip(o.y, &part)));
                    let products = m.as_ptr().add((line - l.first) * self.grid[1] * nr);
                    self.transform_back(o, products, tiles * nr, strip, &part, panel);
                }
            }
            for line in starts() {
                let part = part_at(line);
                let strip = held.take().unwrap_or_else(|| self.output.begin_strip(o.y, &part));
                self.output.finish_strip(strip, &part, o);
            }
        }
    }
}

impl Method for Winograd {
    fn packed_len(&self) -> usize {
        let each = if self.fresh { 9 } else { self.points() };
        self.panels * self.kernels.nr * self.conv.in_channels * each
    }

    fn packing_key(&self) -> [usize; 2] {
        match self.fresh {
            true => panels::packing_key(self.kernels.nr),
            false => [4, self.kernels.nr],
        }
    }

    /// Packs panel after panel: for each point and input channel, the panel's output channels side by side.
    /// Untransformed weights are packed as for the direct method.
    fn pack_weight(&self, pool: &Pool, weight: &[f32], packed: &mut [f32]) {
        if self.fresh {
            return panels::pack_panels(pool, &self.conv, self.kernels.nr, weight, packed);
        }
        let (nr, c) = (self.kernels.nr, self.conv.in_channels);
        let dst = SharedPtr(packed.as_mut_ptr());
        pool.run(self.panels, |p| {
            let cols = nr.min(self.conv.out_channels - p * nr);
            // SAFETY: the weights hold `cols` channels from there on; panel `p` belongs to this chunk.
            unsafe {
                let job = PanelWeights {
                    src: weight.as_ptr().add(p * nr * c * 9),
                    channels: c,
                    cols,
                    nr,
                    dst: dst.get().add(p * self.points() * c * nr),
                };
                weights::weights_kernel(self.isa, self.side)(&job);
            }
        });
    }

    unsafe fn run(&self, pool: &Pool, o: &ConvOperands) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.input
                .for_each_batch(pool, self.conv.batch, o.x, |x, image, count| {
                    self.run_images(pool, o, x.cast(), image, count)
                })
        };
    }

    fn name(&self) -> String {
        let s = self.side;
        format!(
            "winograd {s}x{s}{} {}x{} {}",
            if self.fresh { " on the fly" } else { "" },
            self.kernels.mr,
            self.kernels.nr,
            self.kernels.isa
        )
    }
}
