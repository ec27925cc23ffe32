//! Transposed convolution. Outputs that are a multiple of the stride apart use the same taps. Each *phase* of the strides is
//! therefore an ordinary convolution of stride 1 over the input, on register tiles (or, if each group is one channel, over
//! vectors of channels) that write every `stride`-th pixel of the output. Nothing is computed twice, and no sums are
//! accumulated in memory. (Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016.)

mod depthwise;

use super::padded::Padded;
use super::panels::{self, Panel};
use super::row::{PixelRow, bias_at};
use super::strip::{ChunkOrder, ConvOutput, Load, OutputPart};
use super::{ConvOperands, Method};
use crate::math::contract::{Conv, ConvLayout, PlanError};
use crate::math::pack::pack_panel;
use crate::math::scratch;
use crate::math::tile::Kernels;
use crate::parallel::Pool;
use crate::target::Isa;

/// The maximum number of phases.
const PHASES: usize = 64;

/// The number of pixels of a phase in a piece of a long row.
const PIECE: usize = 112;
/// The smallest number of output channels of a group that fill a vector well enough if the output is channels first.
/// Products whose columns are pixels suit fewer channels better.
const CHANNELS: usize = 8;

/// The outputs `first + j * stride` of each dimension.
struct Phase {
    first: [usize; 3],
    /// The number of outputs along each dimension.
    count: [usize; 3],
    /// The taps that overlap the input for these outputs, as positions in the kernel.
    taps: Vec<usize>,
    /// For output `j`, the offset of the pixel under each tap from pixel `j` of the padded input.
    segments: Vec<usize>,
    /// The offset of the phase's weights, in product indices.
    depth: usize,
}

/// The method.
pub(super) struct Phases {
    conv: Conv,
    kernels: &'static Kernels,
    padded: Padded,
    out: [usize; 3],
    phases: Vec<Phase>,
    panels: Vec<Panel>,
    /// The number of weights of a panel for each product index.
    width: usize,
    output: ConvOutput,
    /// The number of output pixels in a piece of an output row, a multiple of the stride, and the number of pieces. Each
    /// counts as a row when work is split into chunks.
    piece: usize,
    pieces: usize,
    load: Load,
}

/// The taps of one dimension that outputs `phase + j * stride` use, each with its distance from input `j`.
pub(super) fn phase_taps(c: &Conv, d: usize, phase: usize) -> impl Iterator<Item = (usize, isize)> {
    let (stride, dilation, from) = (c.stride[d], c.dilation[d], phase + c.padding[d]);
    (0..c.kernel[d]).filter_map(move |t| {
        let place = from as isize - (t * dilation) as isize;
        (place.rem_euclid(stride as isize) == 0).then_some((t, place.div_euclid(stride as isize)))
    })
}

/// The number of outputs of a dimension that belong to a phase.
pub(super) fn output_count(c: &Conv, out: [usize; 3], d: usize, phase: usize) -> usize {
    out[d].saturating_sub(phase).div_ceil(c.stride[d])
}

/// The number of rows around the input that windows reach, along each dimension.
fn input_margin(c: &Conv, out: [usize; 3]) -> [usize; 3] {
    [0, 1, 2].map(|d| {
        let of_phase = |p: usize| {
            let last = output_count(c, out, d, p) as isize - 1;
            let beyond = |(_, e): (usize, isize)| (-e).max(last + e - (c.input[d] as isize - 1));
            phase_taps(c, d, p).map(beyond).max().unwrap_or(0)
        };
        let most = (0..c.stride[d].min(out[d])).map(of_phase).max();
        most.unwrap_or(0).max(0) as usize
    })
}

/// Whether each group of `conv` is one channel.
fn is_depthwise(conv: &Conv) -> bool {
    conv.groups == conv.in_channels && conv.groups == conv.out_channels && conv.groups > 1
}

/// Whether the method supports `conv`, which is transposed, and suits it: there must be few phases, and the border must not
/// dominate.
pub(super) fn is_applicable(conv: &Conv) -> bool {
    let Some(out) = conv.output_size() else { return false };
    let columns = if is_depthwise(conv) {
        conv.groups
    } else {
        conv.out_channels / conv.groups
    };
    if conv.output_layout == ConvLayout::ChannelsFirst && columns < CHANNELS {
        return false;
    }
    let phases = conv.stride.iter().try_fold(1usize, |a, &s| a.checked_mul(s));
    let small = |n: usize| n < 1 << 24;
    let sane = [conv.kernel, conv.dilation, conv.padding, out, conv.input]
        .iter()
        .flatten()
        .all(|&n| small(n));
    sane && phases.is_some_and(|p| p <= PHASES) && {
        let margin = input_margin(conv, out);
        (0..3).all(|d| margin[d] <= conv.input[d] + 4)
    }
}

impl Phases {
    /// Plans `conv`, for which [`is_applicable`] holds.
    pub(super) fn new(isa: Isa, conv: &Conv) -> Result<Phases, PlanError> {
        let (kernels, out) = (Kernels::for_isa(isa), conv.output_size().ok_or(PlanError::Size)?);
        let margin = input_margin(conv, out);
        let padded = pad_input(isa, conv, margin)?;
        let (panels, width) = match is_depthwise(conv) {
            true => (depthwise::cut_panels(conv, 4 * isa.lanes()), 4 * isa.lanes()),
            false => (panels::cut_panels(conv, kernels.nr), kernels.nr),
        };
        let output = ConvOutput::new(conv);
        let whole = out[2].next_multiple_of(conv.stride[2]);
        let piece = match whole > 2 * PIECE * conv.stride[2] {
            true => PIECE * conv.stride[2],
            false => whole,
        };
        let pieces = whole.div_ceil(piece.max(1));
        let load = Load {
            rows: out[0] * out[1] * pieces,
            row_pixels: piece,
            panels: panels.len(),
            panel_cols: width,
            images: conv.batch,
            macs: conv.macs(),
            weights: conv.extents().map_or(0, |e| e[1]),
            input: conv.batch.saturating_mul(padded.image),
            buffered: output.is_buffered(),
        };
        Ok(Phases {
            conv: conv.clone(),
            kernels,
            phases: list_phases(conv, out, &padded, margin),
            padded,
            out,
            panels,
            width,
            output,
            piece,
            pieces,
            load,
        })
    }

    /// A hash of the order of the taps.
    fn tap_order_hash(&self) -> usize {
        let taps = self.phases.iter().flat_map(|p| &p.taps);
        taps.fold(0, |a: usize, &t| {
            (a.wrapping_mul(0x0100_0000_01b3) ^ (t + 1)) & 0xffff_ffff
        }) << 8
    }

    /// The number of input channels of a group.
    fn run_len(&self) -> usize {
        self.conv.in_channels / self.conv.groups
    }

    /// The number of product indices of all phases.
    fn product_depth(&self) -> usize {
        self.phases.iter().map(|p| p.taps.len()).sum::<usize>() * self.run_len()
    }

    /// The first output pixel of row `r` of all pieces of rows.
    fn row_start(&self, r: usize) -> usize {
        r / self.pieces * self.out[2] + (r % self.pieces * self.piece).min(self.out[2])
    }

    /// Packs the weights of a panel, which are `[in, out / groups, taps]`.
    fn pack_panel(&self, panel: &Panel, weight: &[f32], out: &mut [f32]) {
        let (width, channels) = (self.width, self.run_len());
        let taps: usize = self.conv.kernel.iter().product();
        let group_outputs = self.conv.out_channels / self.conv.groups;
        let mut transposed = scratch::take_buffer(taps * width);
        for i in 0..channels {
            // Channels of a group, and groups of one channel, are `taps` elements apart.
            let from = ((panel.input + i) * group_outputs + panel.channel % group_outputs) * taps;
            let src = &weight[from..][..panel.cols * taps];
            // SAFETY: the source has the taps of the panel's channels, the buffer a row for each tap.
            unsafe { pack_panel(src.as_ptr(), taps, 1, panel.cols, width, taps, transposed.as_mut_ptr()) };
            let order = self.phases.iter().flat_map(|phase| &phase.taps);
            for (at, &tap) in order.enumerate() {
                out[(at * channels + i) * width..][..width].copy_from_slice(&transposed[tap * width..][..width]);
            }
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
        let (channel, end) = (self.panels[p0].channel, self.panels[p1 - 1]);
        let part = OutputPart {
            image,
            pixel: self.row_start(r0),
            pixels: self.row_start(r1) - self.row_start(r0),
            channel,
            channels: end.channel + end.cols - channel,
        };
        // SAFETY: the part lies in the output and belongs to this thread.
        unsafe {
            let strip = self.output.begin_strip(o.y, &part);
            for p in p0..p1 {
                let y = strip.base.add(self.panels[p].channel - channel);
                for phase in &self.phases {
                    for r in r0..r1 {
                        let y = y.add((self.row_start(r) - part.pixel) * strip.row);
                        self.run_row(o, x, (p, phase), r, (y, strip.row));
                    }
                }
            }
            self.output.finish_strip(strip, &part, o);
        }
    }

    /// Computes those pixels of row `r` that belong to `phase`, for panel `p`. `y` is the row's first output and the stride
    /// between pixels.
    ///
    /// # Safety
    /// As for [`Phases::run_chunk`].
    #[inline(always)]
    unsafe fn run_row(
        &self,
        o: &ConvOperands,
        x: *const f32,
        (p, phase): (usize, &Phase),
        r: usize,
        (y, y_pixel): (*mut f32, usize),
    ) {
        let (stride, line, piece) = (self.conv.stride, r / self.pieces, r % self.pieces);
        let at = [line / self.out[1], line % self.out[1]];
        let first = piece * (self.piece / stride[2]);
        let pixels = phase.count[2].saturating_sub(first).min(self.piece / stride[2]);
        if [0, 1].iter().any(|&d| at[d] % stride[d] != phase.first[d]) || pixels == 0 {
            return;
        }
        let (panel, width, k) = (&self.panels[p], self.width, self.kernels);
        // SAFETY: the row lies in the output, its windows in the padded image, the panel in the weights.
        unsafe {
            let row = PixelRow {
                x: x.add(self.padded.pixel_offset(at[0] / stride[0], at[1] / stride[1], first) + panel.input),
                x_pixel: self.padded.pixel,
                segments: &phase.segments,
                run: self.run_len(),
                weight: (o.weight.add((p * self.product_depth() + phase.depth) * width), width),
                y: y.add(phase.first[2] * y_pixel),
                y_pixel: stride[2] * y_pixel,
                pixels,
                cols: panel.cols,
                bias: bias_at(o.bias, panel.channel),
                activation: self.conv.activation,
                is_first: true,
                is_last: true,
                next: None,
            };
            if is_depthwise(&self.conv) {
                return depthwise::run_row(self.kernels.isa, &row);
            }
            row.run(k, |rows| k.tile_kernel(rows, k.half_vectors(panel.cols), false));
        }
    }
}

/// The input with a margin around it. It is that of a plain convolution.
fn pad_input(isa: Isa, conv: &Conv, margin: [usize; 3]) -> Result<Padded, PlanError> {
    let plain = Conv {
        kernel: [1; 3],
        stride: [1; 3],
        dilation: [1; 3],
        padding: margin,
        output_padding: [0; 3],
        transposed: false,
        ..conv.clone()
    };
    Padded::with_padding(isa, &plain, margin)
}

/// The phases that have outputs.
fn list_phases(c: &Conv, out: [usize; 3], padded: &Padded, margin: [usize; 3]) -> Vec<Phase> {
    let mut phases = vec![];
    let mut depth = 0;
    let all = c.stride.iter().product();
    for i in 0..all {
        let first = [
            i / (c.stride[1] * c.stride[2]),
            i / c.stride[2] % c.stride[1],
            i % c.stride[2],
        ];
        let counts = [0, 1, 2].map(|d| output_count(c, out, d, first[d]));
        if counts.contains(&0) {
            continue;
        }
        let mut p = Phase {
            first,
            count: counts,
            taps: vec![],
            segments: vec![],
            depth,
        };
        let place = |d: usize, e: isize| (margin[d] as isize + e) as usize;
        for (td, ed) in phase_taps(c, 0, first[0]) {
            for (th, eh) in phase_taps(c, 1, first[1]) {
                for (tw, ew) in phase_taps(c, 2, first[2]) {
                    p.taps.push((td * c.kernel[1] + th) * c.kernel[2] + tw);
                    p.segments
                        .push(padded.pixel_offset(place(0, ed), place(1, eh), place(2, ew)));
                }
            }
        }
        depth += p.taps.len() * (c.in_channels / c.groups);
        phases.push(p);
    }
    phases
}

impl Method for Phases {
    fn packed_len(&self) -> usize {
        self.panels.len() * self.width * self.product_depth()
    }

    fn packing_key(&self) -> [usize; 2] {
        [9 + self.tap_order_hash(), self.width]
    }

    /// Packs panel after panel, phase after phase: for each tap and input channel, the panel's output channels side by
    /// side.
    fn pack_weight(&self, pool: &Pool, weight: &[f32], packed: &mut [f32]) {
        let len = self.product_depth() * self.width;
        let dst = scratch::SharedPtr(packed.as_mut_ptr());
        pool.run(self.panels.len(), |p| {
            // SAFETY: panel `p` belongs to this chunk.
            let out = unsafe { std::slice::from_raw_parts_mut(dst.get().add(p * len), len) };
            self.pack_panel(&self.panels[p], weight, out);
        });
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
        let how = if is_depthwise(&self.conv) { "depthwise " } else { "" };
        format!("transposed {how}in {} phases {}", self.phases.len(), self.kernels.isa)
    }
}
