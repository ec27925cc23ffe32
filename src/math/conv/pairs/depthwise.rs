//! Depthwise convolution of bf16 and of bytes, channels last. That of bf16 reads its input in place ([`rows`]), two rows at once
//! where the processor multiplies pairs (`row_pairs`). So does that of bytes where the processor multiplies groups of four
//! (`dots`). Elsewhere, the f32 kernel runs on bands of rows of bytes that are widened into the L2 cache. Its sums are integers,
//! which f32 has exactly.

mod blocks;
#[cfg(target_arch = "x86_64")]
mod dots;
#[cfg(target_arch = "x86_64")]
mod quads;
#[cfg(target_arch = "x86_64")]
mod row_pairs;
mod rows;
mod taps;

use crate::math::contract::{
    ByteInput, Constant, Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, PlanError, Tile,
};
use crate::math::conv::channels::{Band, DepthwiseChannels};
use crate::math::conv::prepare_weight;
use crate::math::conv::strip::{ChunkCut, ChunkOrder, Load, cut_chunks};
use crate::math::convert::{to_integers, widen_signed, widen_unsigned};
use crate::math::pairs::PairKernels;
use crate::math::scratch::{self, Scratch, SharedPtr};
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;

/// The maximum number of elements in a band: a quarter of a 2 MB L2 cache.
const BAND: usize = 128 << 10;

/// A plan of a convolution of bytes with a constant weight.
struct ByteDepthwise {
    conv: Conv,
    input: ByteInput,
    isa: Isa,
    out: [usize; 3],
    rows: DepthwiseChannels,
    weight: Arc<AlignedBytes>,
}

/// The weight, if the convolution is of this kind and its parameters are constant.
pub(in crate::math::conv) fn applicable_weight<'a>(conv: &Conv, constants: &ConvConstants<'a>) -> Option<Constant<'a>> {
    let c = conv;
    let last = c.input_layout == ConvLayout::ChannelsLast && c.output_layout == ConvLayout::ChannelsLast;
    let depthwise = c.groups > 1 && c.groups == c.in_channels && c.groups == c.out_channels;
    let flat = c.input[0] == 1 && c.kernel[0] == 1 && c.padding[0] == 0 && c.stride[0] == 1;
    let steps = c.stride[2] == 1 || (c.stride[2] == 2 && c.kernel[2] < 7);
    let taps = matches!(c.kernel[2], 3 | 5 | 7) && c.dilation == [1; 3] && steps;
    let border = c.padding[1] < c.kernel[1] && c.padding[2] < c.kernel[2];
    let fits =
        (c.dtype == DType::BF16 || c.bytes.is_some()) && !c.transposed && last && depthwise && flat && taps && border;
    constants
        .weight
        .filter(|_| fits && (!c.bias || constants.bias.is_some()))
}

/// Plans `conv` with the weight that [`applicable_weight`] returned.
pub(in crate::math::conv) fn plan(
    kernels: &PairKernels,
    conv: &Conv,
    constants: ConvConstants,
    weight: Constant,
) -> Result<Box<dyn ConvPlan>, PlanError> {
    let isa = kernels.isa;
    Ok(match conv.bytes {
        #[cfg(target_arch = "x86_64")]
        Some(input) if dots::is_applicable(kernels, conv) => Box::new(dots::DotDepthwise::new(conv, input, weight)?),
        Some(input) => Box::new(ByteDepthwise::new(isa, conv, input, weight)?),
        None => Box::new(rows::RowDepthwise::new(kernels, conv, constants, weight)?),
    })
}

/// The rows of a chunk and its panels of channels, and the number of channels in a panel.
fn cut_channels(c: &Conv, isa: Isa, out: [usize; 3], threads: usize) -> (ChunkCut, usize) {
    let panel_cols = 4 * isa.lanes();
    let load = Load {
        rows: out[1],
        row_pixels: out[2],
        panels: c.in_channels.div_ceil(panel_cols),
        panel_cols,
        images: c.batch,
        macs: 4.0 * c.macs(),
        weights: 0,
        input: 1,
        buffered: false,
    };
    (cut_chunks(&load, threads), panel_cols)
}

/// Calls `run` with each part of at most `most` rows and channels of each image: the image, the rows and the channels.
fn run_parts(
    pool: &Pool,
    c: &Conv,
    out_rows: usize,
    most: [usize; 2],
    args: &ConvArgs,
    run: impl Fn(&ConvArgs, usize, [usize; 2], [usize; 2]) + Sync,
) {
    if c.extents().is_none_or(|e| e[3] == 0) {
        return;
    }
    let shared = SharedPtr(args as *const ConvArgs as *mut ConvArgs);
    let cut = ChunkCut {
        rows: most[0],
        panels: most[1],
    };
    let counts = [out_rows, c.in_channels];
    cut.for_each_chunk(
        pool,
        c.batch,
        counts,
        ChunkOrder::PanelsOfRows,
        |image, rows, channels| {
            // SAFETY: `args` outlives the job.
            run(unsafe { &*shared.get() }, image, rows, channels);
        },
    );
}

/// Some finished rows and channels of an image of a result of this size. `data` is their first element and the stride between
/// pixels there.
fn finished_part(
    c: &Conv,
    [_, out_rows, width]: [usize; 3],
    (data, data_stride): (*mut u8, usize),
    image: usize,
    ([r0, r1], [c0, c1]): ([usize; 2], [usize; 2]),
) -> Tile {
    let (channels, row) = (c.in_channels, r0 * width);
    Tile {
        data,
        offset: (image * out_rows * width + row) * channels + c0,
        batch: image,
        row,
        col: c0,
        rows: (r1 - r0) * width,
        cols: c1 - c0,
        row_stride: channels,
        data_stride,
    }
}

impl ByteDepthwise {
    fn new(isa: Isa, conv: &Conv, input: ByteInput, weight: Constant) -> Result<ByteDepthwise, PlanError> {
        let wide = Conv {
            dtype: DType::F32,
            bytes: None,
            ..conv.clone()
        };
        let weight = weight.widen_from(DType::I8);
        let rows = DepthwiseChannels::new(isa, &wide)?;
        Ok(ByteDepthwise {
            isa,
            input,
            out: conv.output_size().ok_or(PlanError::Size)?,
            weight: prepare_weight(&rows, &wide, weight),
            rows,
            conv: conv.clone(),
        })
    }

    /// The rows of a chunk, and its panels of channels.
    fn cut(&self, threads: usize) -> (ChunkCut, usize) {
        let c = &self.conv;
        let (mut cut, panel_cols) = cut_channels(c, self.isa, self.out, threads);
        let band = |cut: &ChunkCut| {
            let rows = (cut.rows - 1) * c.stride[1] + c.kernel[1];
            rows * c.input[2] * cut.panels * panel_cols
        };
        // Parts of a row's channels are read with gaps, but rows of a band overlap.
        while band(&cut) > BAND && cut.panels > 4 {
            cut.panels = cut.panels.div_ceil(2);
        }
        while band(&cut) > BAND && cut.rows > 2 * c.kernel[1] {
            cut.rows = cut.rows.div_ceil(2);
        }
        (cut, panel_cols)
    }

    /// Computes rows `r0..r1` of channels `c0..c1` of an image.
    ///
    /// # Safety
    /// `args` is as for [`ConvPlan::run`]; no other thread writes this part.
    unsafe fn run_chunk(&self, args: &ConvArgs, image: usize, [r0, r1]: [usize; 2], [c0, c1]: [usize; 2]) {
        let (c, channels, n, out_width) = (&self.conv, self.conv.in_channels, c1 - c0, self.out[2]);
        let [first, last] = [self.rows.needed_rows(r0)[0], self.rows.needed_rows(r1 - 1)[1]];
        // SAFETY: guaranteed by the caller.
        let band = unsafe { self.widen_band(args, image, [first, last], [c0, c1]) };
        let mut row = scratch::take_buffer(out_width * n);
        // The tail makes elements of another size from sums of bytes.
        let waits = args.tail.is_some();
        let mut sums = scratch::take_buffer(if waits { (r1 - r0) * out_width * n } else { 0 });
        let offset = (image * self.out[1] + r0) * out_width * channels + c0;
        // SAFETY: guaranteed by the caller; the buffers hold the band and a row.
        unsafe {
            let (y, y_pixel) = match waits {
                true => (sums.as_mut_ptr().cast(), n),
                false => (args.y.add(offset * c.dtype.size()), channels),
            };
            let band = Band {
                x: band.as_ptr(),
                first,
                pixel: n,
                weight: self.weight.bytes().as_ptr().cast::<f32>().add(c0),
                bias: std::ptr::null(),
                y: row.as_mut_ptr(),
                y_pixel: n,
                channels: n,
            };
            for r in r0..r1 {
                self.rows.band_row(r, &band);
                let first = (r - r0) * out_width * y_pixel;
                convert(out_width, n, y_pixel, |p, offset, len| {
                    self.narrow(row.as_ptr().add(p * n), len, y, first + offset)
                });
            }
            let Some(tail) = &args.tail else { return };
            tail.run(&finished_part(c, self.out, (y, y_pixel), image, ([r0, r1], [c0, c1])));
        }
    }

    /// Channels `c0..c1` of rows `first..last` of an image of the input, in f32.
    ///
    /// # Safety
    /// `args` is as for [`ConvPlan::run`].
    unsafe fn widen_band(
        &self,
        args: &ConvArgs,
        image: usize,
        [first, last]: [usize; 2],
        [c0, c1]: [usize; 2],
    ) -> Scratch {
        let (c, channels, n) = (&self.conv, self.conv.in_channels, c1 - c0);
        let pixels = last.saturating_sub(first) * c.input[2];
        let before = (image * c.input[1] + first) * c.input[2] * channels + c0;
        let mut band = scratch::take_buffer(pixels * n);
        let to = band.as_mut_ptr();
        // SAFETY: guaranteed by the caller; the buffer holds the band.
        convert(pixels, n, channels, |p, offset, len| unsafe {
            self.widen(args.x, before + offset, len, to.add(p * n))
        });
        band
    }

    /// Converts `len` elements of `x`, from element `at` on, to f32.
    ///
    /// # Safety
    /// Both have the elements.
    unsafe fn widen(&self, x: *const u8, at: usize, len: usize, to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let dst = std::slice::from_raw_parts_mut(to, len);
            match self.input {
                ByteInput::Unsigned => widen_unsigned(std::slice::from_raw_parts(x.add(at), len), dst),
                ByteInput::Signed => widen_signed(std::slice::from_raw_parts(x.cast::<i8>().add(at), len), dst),
            }
        }
    }

    /// Converts `len` sums to elements of the result, from element `at` of `y` on.
    ///
    /// # Safety
    /// Both have the elements.
    unsafe fn narrow(&self, sums: *const f32, len: usize, y: *mut u8, at: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let to = std::slice::from_raw_parts_mut(y.cast::<i32>().add(at), len);
            to_integers(std::slice::from_raw_parts(sums, len), to);
        }
    }
}

/// Calls `f` for each contiguous piece of `n` channels of pixels: the first pixel, its offset, and the length.
fn convert(pixels: usize, n: usize, channels: usize, f: impl FnMut(usize, usize, usize)) {
    let mut f = f;
    if n == channels {
        return f(0, 0, pixels * n);
    }
    (0..pixels).for_each(|p| f(p, p * channels, n));
}

impl ConvPlan for ByteDepthwise {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let (cut, panel_cols) = self.cut(pool.threads());
        let most = [cut.rows, cut.panels * panel_cols];
        run_parts(
            pool,
            &self.conv,
            self.out[1],
            most,
            args,
            |args, image, rows, channels| {
                // SAFETY: guaranteed by the caller; chunks own disjoint parts of the output.
                unsafe { self.run_chunk(args, image, rows, channels) };
            },
        );
    }

    fn describe(&self) -> String {
        format!("conv int8 depthwise in bands {} packed", self.isa)
    }
}
