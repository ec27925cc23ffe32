//! Depthwise convolution over vectors of channels, on padded channels-last input. Each output channel reads only its
//! own input channel, so lanes are channels. Supports any number of dimensions, stride and dilation.

use super::padded::Padded;
use super::row::bias_at;
use super::strip::{ChunkOrder, ConvOutput, Load, OutputPart};
use super::taps::{TapsJob, kernel};
use super::{ConvOperands, Method};
use crate::math::contract::{Conv, PlanError};
use crate::parallel::Pool;
use crate::target::Isa;

/// The method.
pub(super) struct DepthwiseChannels {
    conv: Conv,
    isa: Isa,
    input: Padded,
    output: ConvOutput,
    out: [usize; 3],
    load: Load,
    kernel: unsafe fn(&TapsJob),
    /// Whether the kernel handles the border at the ends of a row itself.
    whole_rows: bool,
}

/// Whether there is a kernel for whole rows of the convolution, whose input has this stride.
fn has_whole_rows(conv: &Conv, stride: usize) -> bool {
    matches!(conv.kernel[2], 3 | 5 | 7 | 9 | 11)
        && conv.dilation[2] == 1
        && (stride == 1 || (stride == 2 && conv.kernel[2] < 7))
}

impl DepthwiseChannels {
    /// Plans `conv`, which has as many groups as input and output channels.
    pub(super) fn new(isa: Isa, conv: &Conv) -> Result<DepthwiseChannels, PlanError> {
        // This method handles the border itself: a padded copy would cost as much as the convolution.
        let input = Padded::with_padding(isa, conv, [0; 3])?;
        let out = conv.output_size().ok_or(PlanError::Size)?;
        let output = ConvOutput::new(conv);
        let load = Load {
            rows: out[0] * out[1],
            row_pixels: out[2],
            panels: conv.in_channels.div_ceil(4 * isa.lanes()),
            panel_cols: 4 * isa.lanes(),
            images: conv.batch,
            // A multiply-add costs about four times one in a register tile because each has its own loads.
            macs: 4.0 * conv.macs(),
            weights: 0,
            input: 1,
            buffered: output.is_buffered(),
        };
        let kernel = match (conv.kernel[2], conv.dilation[2], input.stride[2]) {
            (3, 1, 1) => kernel::<3, 1>(isa),
            (3, 1, 2) => kernel::<3, 2>(isa),
            (5, 1, 1) => kernel::<5, 1>(isa),
            (5, 1, 2) => kernel::<5, 2>(isa),
            (7, 1, 1) => kernel::<7, 1>(isa),
            (9, 1, 1) => kernel::<9, 1>(isa),
            (11, 1, 1) => kernel::<11, 1>(isa),
            _ => kernel::<0, 0>(isa),
        };
        let whole_rows = has_whole_rows(conv, input.stride[2]);
        Ok(DepthwiseChannels {
            conv: conv.clone(),
            isa,
            input,
            output,
            out,
            load,
            kernel,
            whole_rows,
        })
    }

    /// The taps along dimension `d` that overlap the input in the window of output position `at`, and the input
    /// position of the first.
    fn visible_taps(&self, d: usize, at: usize) -> ([usize; 2], usize) {
        let c = &self.conv;
        // If the input skips rows that no tap reads, each output row has its own input row.
        let (begin, pad) = (
            at * self.input.stride[d],
            if self.input.stride[d] == c.stride[d] {
                c.padding[d]
            } else {
                0
            },
        );
        let first = pad.saturating_sub(begin).div_ceil(c.dilation[d]);
        let end = (self.input.size[d] + pad)
            .saturating_sub(begin)
            .div_ceil(c.dilation[d])
            .min(c.kernel[d]);
        let place = (begin + first * c.dilation[d]).saturating_sub(pad);
        ([first.min(end), end], place)
    }

    /// Computes rows `r0..r1` of one image at `x`, for panels `p0..p1`.
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
        let (c0, end) = (p0 * self.load.panel_cols, p1 * self.load.panel_cols);
        let c1 = end.min(self.conv.in_channels);
        let ow = self.out[2];
        let part = OutputPart {
            image,
            pixel: r0 * ow,
            pixels: (r1 - r0) * ow,
            channel: c0,
            channels: c1 - c0,
        };
        // SAFETY: the part lies in the output; every pointer below lies in its operand.
        unsafe {
            let strip = self.output.begin_strip(o.y, &part);
            for r in r0..r1 {
                let y = strip.base.add((r - r0) * ow * strip.row);
                let job = self.row_job(o, x, r, [c0, c1], (y, strip.row));
                match self.whole_rows {
                    true => (self.kernel)(&job),
                    false => self.run_row_in_pieces(&job),
                }
            }
            self.output.finish_strip(strip, &part, o);
        }
    }

    /// Output row `r` of the image at `x`, for channels `c0..c1`. `y` is the row's first element and the stride between
    /// its pixels.
    fn row_job(
        &self,
        o: &ConvOperands,
        x: *const f32,
        r: usize,
        [c0, c1]: [usize; 2],
        (y, y_pixel): (*mut f32, usize),
    ) -> TapsJob {
        let (taps, place) = self.row_taps(r);
        TapsJob {
            x: x.wrapping_add(place + c0),
            step: self.tap_steps(),
            pixel: self.input.stride[2] * self.input.pixel,
            pixels: self.out[2],
            before: self.conv.padding[2],
            width: self.input.size[2],
            taps,
            kernel: self.conv.kernel,
            weight: o.weight.wrapping_add(c0),
            weight_tap: self.conv.in_channels,
            bias: bias_at(o.bias, c0),
            y,
            y_pixel,
            channels: c1 - c0,
            clamp: self.conv.activation.bounds(),
        }
    }

    /// The taps that overlap the input in the windows of output row `r`, all of them along the row, and the offset of
    /// the first input row that they read.
    fn row_taps(&self, r: usize) -> ([[usize; 2]; 3], usize) {
        let (depth, z) = self.visible_taps(0, r / self.out[1]);
        let (height, y) = self.visible_taps(1, r % self.out[1]);
        let taps = [depth, height, [0, self.conv.kernel[2]]];
        (taps, self.input.pixel_offset(z, y, 0))
    }

    /// The distances between the input elements of adjacent taps along each dimension.
    fn tap_steps(&self) -> [usize; 3] {
        let [d, h, w] = self.conv.dilation;
        [
            self.input.pixel_offset(d, 0, 0),
            self.input.pixel_offset(0, h, 0),
            self.input.pixel_offset(0, 0, w),
        ]
    }

    /// Computes a row with a kernel that does not handle the border. Pixels whose window lies inside the image are
    /// computed together, border pixels one by one.
    ///
    /// # Safety
    /// As for [`DepthwiseChannels::run_chunk`]; the job is that of the whole row.
    unsafe fn run_row_in_pieces(&self, row: &TapsJob) {
        let (ow, all) = (self.out[2], [0, self.conv.kernel[2]]);
        let mut p = 0;
        while p < ow {
            let (taps, first) = self.visible_taps(2, p);
            let inner_end = || (p + 1..ow).find(|&p| self.visible_taps(2, p).0 != all).unwrap_or(ow);
            let end = if taps == all { inner_end() } else { p + 1 };
            // SAFETY: guaranteed by the caller.
            unsafe {
                (self.kernel)(&TapsJob {
                    x: row.x.wrapping_add(first * self.input.pixel),
                    pixels: end - p,
                    before: 0,
                    taps: [row.taps[0], row.taps[1], taps],
                    y: row.y.add(p * row.y_pixel),
                    ..*row
                })
            };
            p = end;
        }
    }

    /// The range of input rows that output row `r` needs.
    pub(super) fn needed_rows(&self, r: usize) -> [usize; 2] {
        let ([first, end], place) = self.visible_taps(1, r);
        [place, place + end - first]
    }

    /// Computes output row `r` from a band of input rows.
    ///
    /// # Safety
    /// The convolution is the second of an [`Expansion`](crate::math::contract::Expansion). The band has the rows that
    /// [`DepthwiseChannels::needed_rows`] returns. Pointers refer to the band's channels.
    pub(super) unsafe fn band_row(&self, r: usize, b: &Band) {
        let (taps, place) = self.visible_taps(1, r);
        let row = self.input.size[2] * b.pixel;
        let job = TapsJob {
            x: b.x.wrapping_add((place - b.first) * row),
            step: [0, row, b.pixel],
            pixel: self.input.stride[2] * b.pixel,
            pixels: self.out[2],
            before: self.conv.padding[2],
            width: self.input.size[2],
            taps: [[0, 1], taps, [0, self.conv.kernel[2]]],
            kernel: self.conv.kernel,
            weight: b.weight,
            weight_tap: self.conv.in_channels,
            bias: b.bias,
            y: b.y,
            y_pixel: b.y_pixel,
            channels: b.channels,
            clamp: self.conv.activation.bounds(),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { (self.kernel)(&job) };
    }
}

impl Method for DepthwiseChannels {
    fn packed_len(&self) -> usize {
        self.conv.kernel.iter().product::<usize>() * self.conv.in_channels
    }

    fn packing_key(&self) -> [usize; 2] {
        [2, 0]
    }

    /// Packs weights tap after tap, with the channels of a tap side by side.
    fn pack_weight(&self, _: &Pool, weight: &[f32], packed: &mut [f32]) {
        let (c, taps) = (self.conv.in_channels, self.conv.kernel.iter().product::<usize>());
        for t in 0..taps {
            for i in 0..c {
                packed[t * c + i] = weight[i * taps + t];
            }
        }
    }

    unsafe fn run(&self, pool: &Pool, o: &ConvOperands) {
        let work = (self.conv.batch, self.load);
        let run = |x: *const f32, image: usize, rows: [usize; 2], panels: [usize; 2]| {
            // SAFETY: guaranteed by the caller; chunks own disjoint parts of the output.
            unsafe { self.run_chunk(o, x, image, rows, panels) };
        };
        // SAFETY: as above.
        unsafe {
            self.input
                .for_each_chunk(pool, work, ChunkOrder::PanelsOfRows, o.x, run)
        };
    }

    fn name(&self) -> String {
        format!("depthwise over channels {}", self.isa)
    }
}

/// Some rows of some channels of an image, and the destination of one output row.
pub(super) struct Band {
    /// The first channel of the band's first pixel.
    pub x: *const f32,
    /// The image row of the band's first row.
    pub first: usize,
    /// The stride from one pixel to the next.
    pub pixel: usize,
    /// The weights of the first channel.
    pub weight: *const f32,
    /// The bias of the first channel, or null.
    pub bias: *const f32,
    /// The first channel of the row's first output pixel.
    pub y: *mut f32,
    /// The stride from one output pixel to the next.
    pub y_pixel: usize,
    /// The number of channels.
    pub channels: usize,
}
