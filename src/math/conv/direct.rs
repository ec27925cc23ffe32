//! Direct convolution on register tiles. A run is a part of the padded channels-last input that is contiguous under the
//! kernel (a kernel row, or a tap). For each run, the tile multiplies a row of pixels with a panel of output channels.
//! The input is not unfolded (there is no im2col). Supports any number of spatial dimensions, groups, strides and
//! dilations.

use super::padded::Padded;
use super::panels::{self, Panel};
use super::row::{PixelRow, bias_at};
use super::run_blocks::{RunBlock, cut_blocks};
use super::strip::{ChunkOrder, ConvOutput, Load, OutputPart};
use super::visible::{visible_pixels, visible_segments};
use super::{ConvOperands, Method};
use crate::math::contract::{Conv, PlanError};
use crate::math::tile::Kernels;
use crate::parallel::Pool;
use crate::target::Isa;
use std::ops::Range;

/// The number of pixels in a row if all pixels of an image form one line, and in a piece of a long row.
const FLAT_ROW: usize = 112;

/// The method.
pub(super) struct Direct {
    conv: Conv,
    kernels: &'static Kernels,
    padded: Padded,
    output: ConvOutput,
    out: [usize; 3],
    panels: Vec<Panel>,
    /// The offset of each run from the pixel's first element.
    segments: Vec<usize>,
    /// The number of elements in a run.
    run: usize,
    /// The parts of a panel that stay in the L1 cache while all rows of a chunk are multiplied.
    blocks: Vec<RunBlock>,
    /// For each column of the kernel, the pixels of a row that see the image through it, if others are left out.
    visible: Option<Vec<Range<usize>>>,
    /// Whether output pixels and input pixels form the same line (1x1, stride 1).
    flat: bool,
    /// The number of pieces that an output row is split into. Each counts as a row when work is split into chunks.
    pieces: usize,
    load: Load,
}

/// The number of pieces that an output row of this width is split into.
fn row_pieces(width: usize) -> usize {
    match width > 2 * FLAT_ROW {
        true => width.div_ceil(FLAT_ROW),
        false => 1,
    }
}

/// The offset of each run from the pixel's first element, and the number of elements in a run: a row of the kernel, or a tap
/// (always if `by_taps`).
fn lay_out_runs(conv: &Conv, padded: &Padded, by_taps: bool) -> (Vec<usize>, usize) {
    let together = conv.groups == 1 && conv.dilation[2] == 1 && padded.pixel == conv.in_channels;
    let whole_rows = together && !by_taps;
    let [dil_d, dil_h, dil_w] = conv.dilation;
    let columns = if whole_rows { 1 } else { conv.kernel[2] };
    let mut segments = vec![];
    for d in 0..conv.kernel[0] {
        for h in 0..conv.kernel[1] {
            segments.extend((0..columns).map(|w| padded.pixel_offset(d * dil_d, h * dil_h, w * dil_w)));
        }
    }
    let run = conv.in_channels / conv.groups * if whole_rows { conv.kernel[2] } else { 1 };
    (segments, run)
}

impl Direct {
    /// Plans `conv`, which is not transposed.
    pub(super) fn new(isa: Isa, conv: &Conv) -> Result<Direct, PlanError> {
        let (kernels, padded) = (Kernels::for_isa(isa), Padded::new(isa, conv)?);
        let out = conv.output_size().ok_or(PlanError::Size)?;
        let (panels, pieces) = (panels::cut_panels(conv, kernels.nr), row_pieces(out[2]));
        let visible = visible_pixels(conv, out[2], conv.in_channels).filter(|_| pieces == 1 && conv.groups == 1);
        let (segments, run) = lay_out_runs(conv, &padded, visible.is_some());
        let flat = conv.kernel == [1; 3] && padded.stride == [1; 3] && padded.size == out;
        let output = ConvOutput::new(conv);
        let (rows, row_pixels) = match flat {
            true => (output.pixels.div_ceil(FLAT_ROW), FLAT_ROW.min(output.pixels)),
            false if pieces > 1 => (out[0] * out[1] * pieces, FLAT_ROW),
            false => (out[0] * out[1], out[2]),
        };
        let load = Load {
            rows,
            row_pixels,
            panels: panels.len(),
            panel_cols: kernels.nr,
            images: conv.batch,
            macs: conv.macs(),
            weights: panels.len() * kernels.nr * segments.len() * run,
            input: conv.batch.saturating_mul(padded.image),
            buffered: output.is_buffered(),
        };
        Ok(Direct {
            conv: conv.clone(),
            kernels,
            padded,
            output,
            out,
            panels,
            blocks: cut_blocks(segments.len(), run, kernels.block_depth()),
            segments,
            run,
            visible,
            flat,
            pieces,
            load,
        })
    }

    /// The number of product indices per output element.
    fn product_depth(&self) -> usize {
        self.segments.len() * self.run
    }

    /// The input pixel under the first tap of row `r`, and the row's first output pixel and length.
    fn row_geometry(&self, r: usize) -> (usize, usize, usize) {
        if self.flat {
            let first = r * FLAT_ROW;
            return (
                first * self.padded.pixel,
                first,
                FLAT_ROW.min(self.output.pixels - first),
            );
        }
        let (line, first) = (r / self.pieces, r % self.pieces * FLAT_ROW);
        let (d, h) = (line / self.out[1], line % self.out[1]);
        let stride = self.padded.stride;
        let offset = self
            .padded
            .pixel_offset(d * stride[0], h * stride[1], first * stride[2]);
        let len = if self.pieces > 1 {
            FLAT_ROW.min(self.out[2] - first)
        } else {
            self.out[2]
        };
        (offset, line * self.out[2] + first, len)
    }

    /// The segments under row `r` without those that contain only zeros.
    fn segments_of(&self, r: usize) -> Range<usize> {
        if self.flat {
            return 0..self.segments.len();
        }
        let line = r / self.pieces;
        visible_segments(
            &self.conv,
            [line / self.out[1], line % self.out[1]],
            self.segments.len(),
        )
    }

    /// The part of the output given by rows `r0..r1` of one image and panels `p0..p1`.
    fn output_part(&self, image: usize, [r0, r1]: [usize; 2], [p0, p1]: [usize; 2]) -> OutputPart {
        let (_, first, _) = self.row_geometry(r0);
        let (_, last, len) = self.row_geometry(r1 - 1);
        let (channel, end) = (self.panels[p0].channel, self.panels[p1 - 1]);
        OutputPart {
            image,
            pixel: first,
            pixels: last + len - first,
            channel,
            channels: end.channel + end.cols - channel,
        }
    }

    /// Computes rows `r0..r1` of one image, padded at `x`, for panels `p0..p1`.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part.
    unsafe fn run_chunk(
        &self,
        o: &ConvOperands,
        x: *const f32,
        image: usize,
        [r0, r1]: [usize; 2],
        [p0, p1]: [usize; 2],
    ) {
        let part = self.output_part(image, [r0, r1], [p0, p1]);
        // SAFETY: the part lies in the output, and belongs to this thread.
        unsafe {
            let strip = self.output.begin_strip(o.y, &part);
            for p in p0..p1 {
                let panel = &self.panels[p];
                let y = strip.base.add(panel.channel - part.channel);
                for block in &self.blocks {
                    for r in r0..r1 {
                        let (_, pixel, _) = self.row_geometry(r);
                        let y = y.add((pixel - part.pixel) * strip.row);
                        self.run_row(o, x, (p, block), (r, [r0, r1]), (y, strip.row));
                    }
                }
            }
            self.output.finish_strip(strip, &part, o);
        }
    }

    /// Computes row `r` of the rows `r0..r1` for panel `p`, as far as it is the sum over a block. `y` is the row's first output and the
    /// stride between pixels.
    ///
    /// # Safety
    /// As for [`Direct::run_chunk`].
    #[inline(always)]
    unsafe fn run_row(
        &self,
        o: &ConvOperands,
        x: *const f32,
        (p, block): (usize, &RunBlock),
        (r, [r0, r1]): (usize, [usize; 2]),
        (y, y_pixel): (*mut f32, usize),
    ) {
        let (nr, depth, panel) = (self.kernels.nr, self.product_depth(), &self.panels[p]);
        let (place, _, len) = self.row_geometry(r);
        let used = self.segments_of(r);
        let segments = block.segments.start.max(used.start)..block.segments.end.min(used.end);
        if segments.is_empty() {
            return;
        }
        let index_of = |segment: usize, run: usize| p * depth + segment * self.run + run;
        let next = index_of(block.segments.end - 1, block.run.end);
        let halves = self.kernels.half_vectors(panel.cols);
        // SAFETY: every pointer below lies in its operand.
        unsafe {
            let row = PixelRow {
                x: x.add(place + panel.input + block.run.start),
                x_pixel: self.padded.stride[2] * self.padded.pixel,
                weight: (o.weight.add(index_of(segments.start, block.run.start) * nr), nr),
                is_first: segments.start == used.start && block.run.start == 0,
                is_last: segments.end == used.end && block.run.end == self.run,
                segments: &self.segments[segments.clone()],
                run: block.run.len(),
                y,
                y_pixel,
                pixels: len,
                cols: panel.cols,
                bias: bias_at(o.bias, panel.channel),
                activation: self.conv.activation,
                next: (next < self.panels.len() * depth).then_some((o.weight.wrapping_add(next * nr), r - r0, r1 - r0)),
            };
            self.run_pixels(&row, halves, [segments.start, self.run * nr]);
        }
    }

    /// Computes a row of pixels, whose taps begin at a segment and are `step` weights apart.
    ///
    /// # Safety
    /// As for [`PixelRow::run`].
    unsafe fn run_pixels(&self, row: &PixelRow, halves: usize, [segment, step]: [usize; 2]) {
        let tile = |rows| self.kernels.tile_kernel(rows, halves, false);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match &self.visible {
                Some(columns) => row.run_by_taps(self.kernels, columns, [segment, step], tile),
                None => row.run(self.kernels, tile),
            }
        }
    }
}

impl Method for Direct {
    fn packed_len(&self) -> usize {
        self.panels.len() * self.kernels.nr * self.product_depth()
    }

    fn packing_key(&self) -> [usize; 2] {
        panels::packing_key(self.kernels.nr)
    }

    fn pack_weight(&self, pool: &Pool, weight: &[f32], packed: &mut [f32]) {
        panels::pack_panels(pool, &self.conv, self.kernels.nr, weight, packed);
    }

    unsafe fn run(&self, pool: &Pool, o: &ConvOperands) {
        let work = (self.conv.batch, self.load);
        let run = |x: *const f32, image: usize, rows: [usize; 2], panels: [usize; 2]| {
            // SAFETY: guaranteed by the caller; chunks own disjoint parts of the output.
            unsafe { self.run_chunk(o, x, image, rows, panels) };
        };
        // SAFETY: as above.
        unsafe {
            self.padded
                .for_each_chunk(pool, work, ChunkOrder::RowsOfPanels, o.x, run)
        };
    }

    fn name(&self) -> String {
        format!("direct {}x{} {}", self.kernels.mr, self.kernels.nr, self.kernels.isa)
    }
}
