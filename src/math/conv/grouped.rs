//! Grouped convolution on register tiles, for one or two spatial dimensions. Works on a slice of groups at a time, with
//! at least a cache line of channels. The input rows that some output rows need are copied, with their padding, to a
//! buffer that fits the L1 cache, and each group's tiles read them there. Reading the whole input directly, a narrow
//! group would touch only a part of every cache line. Padding the input beforehand would cost as much as a third of the
//! work.

use super::padded::Padded;
use super::panels::pack_taps;
use super::row::{PixelRow, bias_at};
use super::strip::{ChunkOrder, ConvOutput, Load, OutputPart, cut_chunks};
use super::{ConvOperands, Method};
use crate::math::contract::{Conv, PlanError};
use crate::math::scratch;
use crate::math::tile::narrow::PIXEL;
use crate::math::tile::{Kernels, TileFn};
use crate::parallel::Pool;
use crate::target::Isa;

/// The minimum number of input channels that are copied at once: a cache line.
const LINE: usize = PIXEL;
/// The approximate number of elements in the buffer: what the L1 cache holds beside weights and results.
const BUFFER: usize = 8 << 10;
/// The minimum number of output rows per buffer, for wide rows. Rows between two buffers are copied twice.
const ROWS: usize = 8;

/// The output channels of one tile.
#[derive(Clone, Copy, Debug)]
struct GroupPanel {
    /// The first input channel, relative to the slice.
    input: usize,
    /// The first output channel, relative to the slice.
    channel: usize,
    /// The number of output channels.
    cols: usize,
    /// The number of weight elements per product index.
    width: usize,
    /// The offset of its weights, relative to the slice.
    weight: usize,
}

/// The kind of tile.
#[derive(Clone, Copy, PartialEq, Debug)]
enum TileKind {
    /// Groups of four input and four output channels, several per vector.
    Fours,
    /// At most eight output channels and a kernel width of three. A segment is a row of the kernel.
    Threes,
    /// All other cases. A segment is a tap.
    Taps,
}

/// The groups whose channels are copied at once.
struct GroupSlice {
    /// The first output channel, and their number.
    channel: usize,
    channels: usize,
    weight: *const f32,
    /// The bias of every output channel, or null.
    bias: *const f32,
}

/// The method.
pub(super) struct Grouped {
    conv: Conv,
    kernels: &'static Kernels,
    input: Padded,
    output: ConvOutput,
    out: [usize; 3],
    kind: TileKind,
    /// The number of groups in a slice. The last slice may have fewer.
    groups: usize,
    /// The panels of a slice, group by group.
    panels: Vec<GroupPanel>,
    /// The number of weight elements of a slice.
    weights: usize,
    /// The stride between pixels of the buffer.
    pixel: usize,
    /// The offset of each tap from the first.
    segments: Vec<usize>,
    /// The number of output rows per buffer.
    rows: usize,
    load: Load,
}

/// Whether the method supports `conv`.
pub(super) fn is_applicable(conv: &Conv) -> bool {
    let taps: usize = conv.kernel.iter().product();
    conv.groups > 1 && !conv.transposed && taps > 1 && conv.kernel[0] == 1 && conv.input[0] == 1 && conv.padding[0] == 0
}

impl Grouped {
    /// Plans `conv`, for which [`is_applicable`] holds.
    pub(super) fn new(isa: Isa, conv: &Conv) -> Result<Grouped, PlanError> {
        let kernels = Kernels::for_isa(isa);
        let input = Padded::new(isa, conv)?;
        let out = conv.output_size().ok_or(PlanError::Size)?;
        let (gi, go) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
        let groups = LINE.div_ceil(gi.max(1)).min(conv.groups);
        let kind = choose_tile_kind(isa, conv, groups);
        let (panels, weights) = cut_panels(conv, kernels, groups, kind);
        let pixel = pixel_stride(kind, gi * groups);
        let reach = (conv.kernel[1] - 1) * conv.dilation[1];
        let rows = (BUFFER / (input.size[2] * pixel).max(1)).saturating_sub(reach) / input.stride[1];
        let output = ConvOutput::new(conv);
        let load = Load {
            rows: out[1],
            row_pixels: out[2],
            panels: conv.groups.div_ceil(groups),
            panel_cols: go * groups,
            images: conv.batch,
            macs: conv.macs(),
            // Slices share nothing, so they are distributed over threads first.
            weights: 1,
            input: 0,
            buffered: output.is_buffered(),
        };
        Ok(Grouped {
            conv: conv.clone(),
            kernels,
            output,
            out,
            kind,
            groups,
            panels,
            weights,
            pixel,
            segments: segment_offsets(conv, input.size[2], pixel, kind),
            input,
            rows: rows.max(ROWS).min(out[1].max(1)),
            load,
        })
    }

    /// The number of product indices per output element.
    fn product_depth(&self) -> usize {
        self.conv.kernel.iter().product::<usize>() * self.conv.in_channels / self.conv.groups
    }

    /// The number of padded input rows under `rows` output rows.
    fn input_rows(&self, rows: usize) -> usize {
        (rows - 1) * self.input.stride[1] + (self.conv.kernel[1] - 1) * self.conv.dilation[1] + 1
    }

    /// Computes rows `r0..r1` of one image, for slices `s0..s1`.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part.
    unsafe fn run_chunk(&self, o: &ConvOperands, image: usize, [r0, r1]: [usize; 2], [s0, s1]: [usize; 2]) {
        let (c, ow) = (&self.conv, self.out[2]);
        let (gi, go) = (c.in_channels / c.groups, c.out_channels / c.groups);
        let first = |s: usize| (s * self.groups).min(c.groups);
        let part = OutputPart {
            image,
            pixel: r0 * ow,
            pixels: (r1 - r0) * ow,
            channel: first(s0) * go,
            channels: (first(s1) - first(s0)) * go,
        };
        let line = self.input.size[2] * self.pixel;
        let mut buffer = scratch::take_buffer(self.input_rows(self.rows) * line);
        // SAFETY: the part lies in the output; every pointer below lies in its operand.
        unsafe {
            let strip = self.output.begin_strip(o.y, &part);
            for s in s0..s1 {
                let slice = GroupSlice {
                    channel: first(s) * go,
                    channels: (first(s + 1) - first(s)) * go,
                    weight: o.weight.add(s * self.weights),
                    bias: o.bias,
                };
                let inputs = [first(s) * gi, (first(s + 1) - first(s)) * gi];
                for r in (r0..r1).step_by(self.rows) {
                    let rows = self.rows.min(r1 - r);
                    for i in 0..self.input_rows(rows) {
                        let row = image * self.input.size[1] + r * self.input.stride[1] + i;
                        let to = buffer.as_mut_ptr().add(i * line);
                        self.input.fill_channels(o.x, row, inputs, self.pixel, to);
                    }
                    let y = strip.base.add((r - r0) * ow * strip.row + slice.channel - part.channel);
                    self.run_slice(&slice, buffer.as_ptr(), rows, y, strip.row);
                }
            }
            self.output.finish_strip(strip, &part, o);
        }
    }

    /// Computes `rows` output rows of a slice from a buffer of input rows. `y` is the slice's first output, and pixels
    /// are `y_pixel` apart.
    ///
    /// # Safety
    /// The buffer holds the input rows; no other thread writes this part.
    #[inline(always)]
    unsafe fn run_slice(&self, s: &GroupSlice, buffer: *const f32, rows: usize, y: *mut f32, y_pixel: usize) {
        let line = self.input.size[2] * self.pixel;
        for p in self.panels.iter().filter(|p| p.channel < s.channels) {
            for i in 0..rows {
                // SAFETY: every pointer lies in its operand.
                unsafe {
                    let row = PixelRow {
                        x: buffer.add(i * self.input.stride[1] * line + p.input),
                        x_pixel: self.input.stride[2] * self.pixel,
                        segments: &self.segments,
                        run: self.conv.in_channels / self.conv.groups,
                        weight: (s.weight.add(p.weight), p.width),
                        y: y.add(i * self.out[2] * y_pixel + p.channel),
                        y_pixel,
                        pixels: self.out[2],
                        cols: p.cols,
                        bias: bias_at(s.bias, s.channel + p.channel),
                        activation: self.conv.activation,
                        is_first: true,
                        is_last: true,
                        next: None,
                    };
                    row.run(self.kernels, |rows| self.tile_kernel(rows, p));
                }
            }
        }
    }

    fn tile_kernel(&self, rows: usize, p: &GroupPanel) -> TileFn {
        let taps = || self.kernels.tile_kernel(rows, self.kernels.half_vectors(p.cols), false);
        match self.kind {
            TileKind::Fours => self.kernels.fours_kernel(rows),
            TileKind::Threes => self
                .kernels
                .threes_kernel(rows, self.input.stride[2])
                .unwrap_or_else(taps),
            TileKind::Taps => taps(),
        }
    }

    /// Packs the weights of `panel` of slice `s`, which are in torch's order (channel, input, tap), into `out`, tap
    /// after tap.
    fn pack_panel(&self, s: usize, panel: &GroupPanel, weight: &[f32], out: &mut [f32]) {
        let taps: usize = self.conv.kernel.iter().product();
        let (gi, go) = (
            self.conv.in_channels / self.conv.groups,
            self.conv.out_channels / self.conv.groups,
        );
        let first = s * self.groups * go + panel.channel;
        if self.kind == TileKind::Taps && first < self.conv.out_channels && gi > 0 {
            return pack_taps(&weight[first * gi * taps..], (gi, taps), (panel.cols, panel.width), out);
        }
        for (k, out) in out.chunks_exact_mut(panel.width).enumerate() {
            let (tap, i) = match self.kind {
                TileKind::Threes => (k / (3 * gi) * 3 + k % 3, k / 3 % gi),
                _ => (k / gi, k % gi),
            };
            for (j, out) in out.iter_mut().enumerate() {
                let channel = first + j;
                *out = match j < panel.cols && channel < self.conv.out_channels {
                    true => weight[(channel * gi + i) * taps + tap],
                    false => 0.0,
                };
            }
        }
    }
}

/// The stride between pixels of the buffer, which have this many channels.
fn pixel_stride(kind: TileKind, channels: usize) -> usize {
    match kind {
        TileKind::Threes => PIXEL,
        // Otherwise all pixels of a tile would share a few cache sets.
        _ if channels.is_multiple_of(512) => channels + LINE,
        _ => channels,
    }
}

/// The offset of each segment from the first tap, in a buffer with rows of `width` pixels that are `pixel` apart.
fn segment_offsets(conv: &Conv, width: usize, pixel: usize, kind: TileKind) -> Vec<usize> {
    let columns = if kind == TileKind::Threes { 1 } else { conv.kernel[2] };
    let [_, dil_h, dil_w] = conv.dilation;
    let row = |h: usize| (0..columns).map(move |w| (h * dil_h * width + w * dil_w) * pixel);
    (0..conv.kernel[1]).flat_map(row).collect()
}

fn choose_tile_kind(isa: Isa, conv: &Conv, groups: usize) -> TileKind {
    let (gi, go) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
    let three = conv.kernel[2] == 3 && conv.dilation[2] == 1 && matches!(conv.stride[2], 1 | 2);
    if (gi, go) == (4, 4) && conv.groups.is_multiple_of(groups) && groups * 4 == LINE {
        TileKind::Fours
    } else if three && gi * groups <= PIXEL && go <= 8 && isa.lanes() >= 8 {
        TileKind::Threes
    } else {
        TileKind::Taps
    }
}

/// The panels of a slice with this many groups, and the number of its weight elements.
fn cut_panels(conv: &Conv, kernels: &Kernels, groups: usize, kind: TileKind) -> (Vec<GroupPanel>, usize) {
    let (gi, go) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
    let depth = gi * conv.kernel.iter().product::<usize>();
    let lanes = kernels.nr / 2;
    let mut panels = vec![];
    let mut weight = 0;
    let mut push = |input, channel, cols, width| {
        panels.push(GroupPanel {
            input,
            channel,
            cols,
            width,
            weight,
        });
        weight += width * depth;
    };
    if kind == TileKind::Fours {
        for c in (0..groups * go).step_by(lanes) {
            push(c, c, lanes, lanes);
        }
    } else {
        for g in 0..groups {
            for c in (0..go).step_by(kernels.nr) {
                let cols = (go - c).min(kernels.nr);
                // Unaligned vectors of weights would each span two cache lines.
                let halves = kernels.half_vectors(cols).next_power_of_two();
                push(g * gi, g * go + c, cols, halves * kernels.nr / 4);
            }
        }
    }
    (panels, weight)
}

impl Method for Grouped {
    fn packed_len(&self) -> usize {
        self.load.panels * self.weights
    }

    fn packing_key(&self) -> [usize; 2] {
        [6 + self.kind as usize, self.kernels.nr]
    }

    /// Packs slice after slice, panel after panel: for each tap and input channel, the panel's output channels side by
    /// side.
    fn pack_weight(&self, pool: &Pool, weight: &[f32], packed: &mut [f32]) {
        let dst = scratch::SharedPtr(packed.as_mut_ptr());
        pool.run(self.load.panels, |s| {
            // SAFETY: slice `s` belongs to this chunk.
            let out = unsafe { std::slice::from_raw_parts_mut(dst.get().add(s * self.weights), self.weights) };
            for p in &self.panels {
                self.pack_panel(s, p, weight, &mut out[p.weight..][..p.width * self.product_depth()]);
            }
        });
    }

    unsafe fn run(&self, pool: &Pool, o: &ConvOperands) {
        let counts = [self.load.rows, self.load.panels];
        let run = |image: usize, rows: [usize; 2], slices: [usize; 2]| {
            // SAFETY: guaranteed by the caller; chunks own disjoint parts of the output.
            unsafe { self.run_chunk(o, image, rows, slices) };
        };
        let cut = cut_chunks(&self.load, pool.threads());
        cut.for_each_chunk(pool, self.conv.batch, counts, ChunkOrder::RowsOfPanels, run);
    }

    fn name(&self) -> String {
        let how = match self.kind {
            TileKind::Fours => "groups of four",
            TileKind::Threes => "groups, kernel width 3",
            TileKind::Taps => "groups",
        };
        format!("direct in {how} {}", self.kernels.isa)
    }
}
