//! Convolutions of few input channels, in planes. An output channel is the sum of shifted planes of the input times elements of
//! the weight: a product whose lines are rows of the padded planes, each shifted by a tap. Neither is the input unfolded, nor
//! are channels moved. See [`lines`](crate::math::pairs::lines).

use crate::math::contract::{Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, PlanError, Tile, TileTail};
use crate::math::pairs::PairKernels;
use crate::math::pairs::lines::{self, COLS, LineJob, Lines, TILE};
use crate::math::scratch::{self, Scratch, SharedPtr};
use crate::parallel::Pool;
use crate::target::PairUnit;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;

/// The maximum number of input channels. More channels fill the product indices of a tap.
const CHANNELS: usize = 16;
/// The maximum number of taps of all channels, whose rows should stay in the L2 cache.
const TAPS: usize = 1024;
/// The least width of an output row that is computed by itself. Several narrower rows are computed as one that includes the
/// padding between them.
const WIDE: usize = 4 * COLS;
/// The number of columns of such a row.
const JOINED: usize = 1024;
/// The number of multiply-adds in a chunk.
const CHUNK_MACS: usize = 500_000;

/// Whether a bf16 convolution is of this kind.
pub(in crate::math::conv) fn is_applicable(kernels: &PairKernels, c: &Conv) -> bool {
    // The planes of one channel are in both orders.
    let are_planes = |layout: ConvLayout, channels: usize| layout == ConvLayout::ChannelsFirst || channels == 1;
    let first = are_planes(c.input_layout, c.in_channels) && are_planes(c.output_layout, c.out_channels);
    let taps: usize = c.kernel.iter().fold(c.in_channels, |n, &k| n.saturating_mul(k));
    // AMX is faster if the input need not be gathered element by element.
    let suits_unit = kernels.unit != PairUnit::Tiles || c.in_channels == 1 || c.dilation[2] > 1;
    c.dtype == DType::BF16
        && lines::are_available(kernels)
        && first
        && suits_unit
        && !c.transposed
        && (c.groups, c.stride[2]) == (1, 1)
        && c.in_channels <= CHANNELS
        && (2..=TAPS).contains(&taps)
        && c.out_channels > 0
}

/// A plan of such a convolution.
pub(in crate::math::conv) struct LineConv {
    conv: Conv,
    out: [usize; 3],
    /// Depth, height and width of the padded planes.
    size: [usize; 3],
    /// The number of elements of the padded planes of an image, 0 if the input needs no padding.
    padded: usize,
    lines: Lines,
    weight: Option<Arc<AlignedBytes>>,
    bias: Option<Arc<AlignedBytes>>,
}

/// The operands of one image.
#[derive(Clone, Copy)]
struct Image {
    x: *const u16,
    weight: *const u16,
    bias: *const u16,
    y: *mut u16,
    index: usize,
}

impl LineConv {
    /// Plans `conv`, for which [`is_applicable`] holds. Returns an error if a size does not fit the address space.
    pub(in crate::math::conv) fn new(conv: &Conv, constants: ConvConstants) -> Result<LineConv, PlanError> {
        let out = conv.output_size().ok_or(PlanError::Size)?;
        let mut size = conv.input;
        for (size, padding) in size.iter_mut().zip(conv.padding) {
            let both = padding.checked_mul(2).ok_or(PlanError::Size)?;
            *size = size.checked_add(both).ok_or(PlanError::Size)?;
        }
        let image = size.iter().try_fold(conv.in_channels, |a, &s| a.checked_mul(s));
        let fits = |&n: &usize| n < isize::MAX as usize / 8;
        let image = image.filter(fits).ok_or(PlanError::Size)?;
        Ok(LineConv {
            conv: conv.clone(),
            out,
            size,
            padded: if conv.padding == [0; 3] { 0 } else { image },
            lines: Lines::new(tap_offsets(conv, size)),
            weight: constants.weight.map(|w| w.aligned_bytes()),
            bias: constants
                .bias
                .filter(|_| conv.bias && constants.weight.is_some())
                .map(|b| b.aligned_bytes()),
        })
    }

    /// The number of output rows that are computed as one.
    fn joined_rows(&self) -> usize {
        match self.conv.stride[1] == 1 && self.out[2] < WIDE {
            true => (JOINED / self.size[2]).clamp(1, self.out[1].max(1)),
            false => 1,
        }
    }

    /// The planes of image `index`, padded if necessary.
    ///
    /// # Safety
    /// `x` is the input, and the buffer has the length.
    unsafe fn prepare(&self, pool: &Pool, x: *const u16, index: usize, padded: &mut Scratch) -> *const u16 {
        let ([depth, height, width], c) = (self.conv.input, &self.conv);
        let x = x.wrapping_add(index * c.in_channels * depth * height * width);
        if self.padded == 0 {
            return x;
        }
        let rows = c.in_channels * self.size[0] * self.size[1];
        let per = (16384 / self.size[2]).max(1);
        let (src, dst) = (SharedPtr(x.cast_mut()), SharedPtr(padded.as_mut_ptr().cast::<u16>()));
        let inside = |d: usize, at: usize| at.checked_sub(c.padding[d]).filter(|&p| p < c.input[d]);
        pool.run(rows.div_ceil(per), |i| {
            for row in i * per..((i + 1) * per).min(rows) {
                let (plane, z, y) = (
                    row / self.size[1] / self.size[0],
                    row / self.size[1] % self.size[0],
                    row % self.size[1],
                );
                // SAFETY: the row lies in the buffer and, without its padding, in the input.
                unsafe {
                    let to = dst.get().add(row * self.size[2]);
                    let (Some(z), Some(y)) = (inside(0, z), inside(1, y)) else {
                        to.write_bytes(0, self.size[2]);
                        continue;
                    };
                    let from = src.get().add(((plane * depth + z) * height + y) * width);
                    to.write_bytes(0, c.padding[2]);
                    std::ptr::copy_nonoverlapping(from, to.add(c.padding[2]), width);
                    to.add(c.padding[2] + width).write_bytes(0, c.padding[2]);
                }
            }
        });
        padded.as_ptr().cast()
    }

    /// Computes the columns `c0..c1` of the output rows `l0..l1`: all columns if there are several rows.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part.
    unsafe fn run_rows(&self, image: &Image, [l0, l1]: [usize; 2], [c0, c1]: [usize; 2]) {
        let (joined, pixels) = (self.joined_rows(), self.out.iter().product::<usize>());
        let mut line = l0;
        while line < l1 {
            // Rows of another depth are elsewhere.
            let ([d, h], step) = ([line / self.out[1], line % self.out[1]], self.conv.stride);
            let rows = joined.min(l1 - line).min(self.out[1] - h);
            let row = d * step[0] * self.size[1] + h * step[1];
            let x = image.x.wrapping_add(row * self.size[2] + c0);
            let y = image.y.wrapping_add(line * self.out[2] + c0);
            // SAFETY: guaranteed by the caller.
            unsafe {
                match rows {
                    1 => lines::multiply(&self.job(image, x, c1 - c0, (y, pixels))),
                    _ => self.run_joined_rows(image, x, rows, (y, pixels)),
                }
            }
            line += rows;
        }
    }

    /// Computes several rows as one, and copies them to the output.
    ///
    /// # Safety
    /// As for [`LineConv::run_rows`].
    unsafe fn run_joined_rows(&self, image: &Image, x: *const u16, rows: usize, (y, y_row): (*mut u16, usize)) {
        let (width, pitch) = (self.out[2], self.size[2]);
        let cols = (rows - 1) * pitch + width;
        let mut all = scratch::take_buffer((self.conv.out_channels * cols).div_ceil(2));
        let all = all.as_mut_ptr().cast::<u16>();
        // SAFETY: guaranteed by the caller; the buffer has the columns.
        unsafe {
            lines::multiply(&self.job(image, x, cols, (all, cols)));
            for o in 0..self.conv.out_channels {
                for r in 0..rows {
                    let (from, to) = (all.add(o * cols + r * pitch), y.add(o * y_row + r * width));
                    std::ptr::copy_nonoverlapping(from, to, width);
                }
            }
        }
    }

    /// The product for `cols` neighbouring windows, from the one at `x` on.
    fn job(&self, image: &Image, x: *const u16, cols: usize, (c, c_row): (*mut u16, usize)) -> LineJob<'_> {
        LineJob {
            a: image.weight,
            a_row: self.lines.count(),
            rows: self.conv.out_channels,
            b: x,
            lines: &self.lines,
            cols,
            c,
            c_row,
            addend: (!image.bias.is_null()).then_some((image.bias, [1, 0])),
            alpha: 1.0,
            beta: 1.0,
            clamp: self.conv.activation.bounds(),
        }
    }

    /// The number of output rows of a chunk, and the number of its columns: all of them if there are several rows.
    fn chunk(&self, threads: usize) -> [usize; 2] {
        let (rows, width) = (self.out[0] * self.out[1], self.out[2]);
        let macs = self.lines.count() * self.conv.out_channels;
        let cols = (CHUNK_MACS / macs).max(1).next_multiple_of(WIDE);
        if width >= 2 * cols {
            return [1, cols];
        }
        let most = rows.div_ceil(if threads > 1 { 4 * threads } else { 1 });
        let per = (CHUNK_MACS / macs / width).min(most).max(1);
        [per.next_multiple_of(self.joined_rows()), width]
    }

    /// Computes an image in chunks.
    ///
    /// # Safety
    /// The operands are valid.
    unsafe fn run_image(&self, pool: &Pool, tail: Option<TileTail>, image: Image) {
        let (rows, width) = (self.out[0] * self.out[1], self.out[2]);
        let [per, cols] = self.chunk(pool.threads());
        let shared = SharedPtr(&image as *const Image as *mut Image);
        let (pixels, pieces) = (rows * width, width.div_ceil(cols));
        pool.run(rows.div_ceil(per) * pieces, |i| {
            let part = |i: usize, len: usize, all: usize| [i * len, ((i + 1) * len).min(all)];
            let ([l0, l1], [c0, c1]) = (part(i / pieces, per, rows), part(i % pieces, cols, width));
            let first = l0 * width + c0;
            // SAFETY: guaranteed by the caller; the image outlives the job, and chunks own different parts.
            unsafe {
                let image = &*shared.get();
                self.run_rows(image, [l0, l1], [c0, c1]);
                if let Some(tail) = &tail {
                    tail.run(&Tile {
                        data: image.y.add(first).cast(),
                        data_stride: pixels,
                        offset: image.index * self.conv.out_channels * pixels + first,
                        batch: image.index,
                        row: 0,
                        col: first,
                        rows: self.conv.out_channels,
                        cols: (l1 - l0 - 1) * width + c1 - c0,
                        row_stride: pixels,
                    });
                }
            }
        });
    }
}

/// The offset of each tap of each channel in padded planes of this size, in the order of the weight's elements.
fn tap_offsets(c: &Conv, size: [usize; 3]) -> Vec<usize> {
    let ([kd, kh, kw], step) = (c.kernel, c.dilation);
    let mut offsets = vec![];
    for (channel, d) in (0..c.in_channels).flat_map(|i| (0..kd).map(move |d| (i, d))) {
        for (h, w) in (0..kh).flat_map(|h| (0..kw).map(move |w| (h, w))) {
            let row = (channel * size[0] + d * step[0]) * size[1] + h * step[1];
            offsets.push(row * size[2] + w * step[2]);
        }
    }
    offsets
}

impl ConvPlan for LineConv {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let (c, pixels) = (&self.conv, self.out.iter().product::<usize>());
        if c.batch * pixels == 0 {
            return;
        }
        let weight = self.weight.as_ref().map_or(args.weight, |w| w.bytes().as_ptr());
        let bias = self.bias.as_ref().map_or(args.bias, |b| b.bytes().as_ptr());
        let bias = if c.bias { bias } else { std::ptr::null() };
        let mut padded = scratch::take_buffer(self.padded.div_ceil(2));
        for index in 0..c.batch {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let image = Image {
                    x: self.prepare(pool, args.x.cast(), index, &mut padded),
                    weight: weight.cast(),
                    bias: bias.cast(),
                    y: args.y.cast::<u16>().add(index * c.out_channels * pixels),
                    index,
                };
                self.run_image(pool, args.tail, image);
            }
        }
    }

    fn describe(&self) -> String {
        format!("conv bf16 lines {TILE}x{COLS} avx512bf16")
    }
}
