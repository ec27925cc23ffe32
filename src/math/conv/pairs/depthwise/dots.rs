//! Depthwise convolution of bytes, channels last, in place, where the processor multiplies groups of four bytes.

use super::quads::{BLOCK, GROUPS, LANES, QUADS, QuadFn, QuadJob, VECTOR, row_tiles, tile_kernel};
use super::run_parts;
use crate::math::contract::{ByteInput, Constant, Conv, ConvArgs, ConvPlan, PlanError, Tile};
use crate::math::pairs::PairKernels;
use crate::math::scratch;
use crate::parallel::Pool;
use crate::tensor::AlignedBytes;
use std::sync::Arc;

/// The maximum number of sums that wait for the tail: half of a 32 KB L1 cache.
const WAITING: usize = 4 << 10;

/// A plan of such a convolution.
pub(super) struct DotDepthwise {
    conv: Conv,
    signed: bool,
    out: [usize; 3],
    /// The number of output rows that share quads.
    rows: usize,
    /// The number of groups of four input rows under them.
    groups: usize,
    /// The weights in the order of [`QuadJob::weight`].
    weight: Arc<AlignedBytes>,
    /// What sums start with: minus the offset of signed inputs.
    start: Vec<i32>,
    kernel: QuadFn,
}

/// A part of the result: the pixels of one or two rows of an image for some channels.
struct Part {
    image: usize,
    /// The first output row, and the number of rows that are computed together.
    first: usize,
    rows: usize,
    channels: [usize; 2],
    /// The first pixel and one past the last.
    pixels: [usize; 2],
}

/// Whether such a plan exists for `conv`, a depthwise convolution.
pub(super) fn is_applicable(kernels: &PairKernels, conv: &Conv) -> bool {
    kernels.has_quads && conv.kernel[1] == conv.kernel[2]
}

impl DotDepthwise {
    /// Plans `conv`, for which [`is_applicable`] holds.
    pub(super) fn new(conv: &Conv, input: ByteInput, weight: Constant) -> Result<DotDepthwise, PlanError> {
        let size = conv.kernel[1];
        let rows = if conv.stride[1] == 1 { 2 } else { 1 };
        let groups = (size + rows - 1).div_ceil(4);
        let signed = input == ByteInput::Signed;
        let offset = if signed { -128 } else { 0 };
        let start = weight.with_bytes(|w| {
            let of_channel = |w: &[u8]| offset * w.iter().map(|&w| w as i8 as i32).sum::<i32>();
            let mut start: Vec<i32> = w.chunks_exact(size * size).map(of_channel).collect();
            start.resize(conv.in_channels.next_multiple_of(LANES), 0);
            start
        });
        Ok(DotDepthwise {
            signed,
            out: conv.output_size().ok_or(PlanError::Size)?,
            weight: pack_weight(conv, [rows, groups], weight),
            start,
            kernel: tile_kernel(size, conv.stride[2], rows),
            rows,
            groups,
            conv: conv.clone(),
        })
    }

    /// The maximum number of rows and channels of a part.
    fn cut(&self, threads: usize) -> [usize; 2] {
        let (rows, channels) = (self.out[1].max(1), self.conv.in_channels);
        let parts = if threads > 1 { 2 * threads } else { 1 };
        let most = rows.div_ceil(parts).next_multiple_of(self.rows);
        let blocks = channels.div_ceil(BLOCK);
        let pieces = parts.div_ceil(rows.div_ceil(most) * self.conv.batch.max(1));
        [most, blocks.div_ceil(pieces) * BLOCK]
    }

    /// Computes rows `r0..r1` of channels `c0..c1` of an image.
    ///
    /// # Safety
    /// `args` is as for [`ConvPlan::run`]; no other thread writes this part.
    unsafe fn run_part(&self, args: &ConvArgs, image: usize, [r0, r1]: [usize; 2], channels: [usize; 2]) {
        let (width, n) = (self.out[2], channels[1] - channels[0]);
        let pixels = match args.tail {
            Some(_) => (WAITING / (self.rows * n)).next_multiple_of(8).min(width),
            None => width,
        };
        let mut quads = scratch::take_buffer(QUADS / 4);
        let mut sums = scratch::take_buffer(if args.tail.is_some() { self.rows * pixels * n } else { 0 });
        for first in (r0..r1).step_by(self.rows) {
            for p in (0..width).step_by(pixels.max(1)) {
                let part = Part {
                    image,
                    first,
                    rows: (r1 - first).min(self.rows),
                    channels,
                    pixels: [p, (p + pixels).min(width)],
                };
                // SAFETY: guaranteed by the caller; the buffers hold the part's sums and a tile's quads.
                unsafe { self.run_pixels(args, &part, quads.as_mut_ptr().cast(), sums.as_mut_ptr().cast()) };
            }
        }
    }

    /// Computes a part, into `sums` if a tail waits for them.
    ///
    /// # Safety
    /// As for [`DotDepthwise::run_part`]; the buffers hold the part.
    unsafe fn run_pixels(&self, args: &ConvArgs, part: &Part, quads: *mut u8, sums: *mut i32) {
        let (channels, width) = (self.conv.in_channels, self.out[2]);
        let [[c0, c1], [p0, p1]] = [part.channels, part.pixels];
        let first = ((part.image * self.out[1] + part.first) * width + p0) * channels + c0;
        let (y, strides) = match args.tail {
            Some(_) => (sums, [(p1 - p0) * (c1 - c0), c1 - c0]),
            None => (args.y.cast::<i32>().wrapping_add(first), [width * channels, channels]),
        };
        let tiles = row_tiles(p1 - p0);
        for t in 0..tiles.count() {
            let [p, end] = [t, t + 1].map(|t| p0 + tiles.start(t));
            for c in (c0..c1).step_by(BLOCK) {
                let y = y.wrapping_add((p - p0) * strides[1] + c - c0);
                let job = self.quad_job(args.x, part, [p, end], [c, c1.min(c + BLOCK)], (y, strides), quads);
                // SAFETY: guaranteed by the caller.
                unsafe { (self.kernel)(&job) };
            }
        }
        let Some(tail) = &args.tail else { return };
        for q in 0..part.rows {
            let tile = Tile {
                data: y.wrapping_add(q * strides[0]).cast(),
                offset: first + q * width * channels,
                batch: part.image,
                row: (part.first + q) * width + p0,
                col: c0,
                rows: p1 - p0,
                cols: c1 - c0,
                row_stride: channels,
                data_stride: c1 - c0,
            };
            // SAFETY: the part is finished and belongs to this thread.
            unsafe { tail.run(&tile) };
        }
    }

    /// The job of pixels `p..end` and channels `c0..c1` of a part.
    fn quad_job(
        &self,
        x: *const u8,
        part: &Part,
        [p, end]: [usize; 2],
        [c0, c1]: [usize; 2],
        (y, y_strides): (*mut i32, [usize; 2]),
        quads: *mut u8,
    ) -> QuadJob {
        let (c, channels) = (&self.conv, self.conv.in_channels);
        let column = (p * c.stride[2]) as isize - c.padding[2] as isize;
        let inside = |i: isize| (i - column).max(0) as usize;
        let mut rows = [std::ptr::null(); 4 * GROUPS];
        for (i, row) in rows.iter_mut().enumerate().take(c.kernel[1] + self.rows - 1) {
            let line = (part.first * c.stride[1] + i).wrapping_sub(c.padding[1]);
            if line < c.input[1] {
                let before = (part.image * c.input[1] + line) * c.input[2] * channels + c0;
                *row = x.wrapping_add(before).wrapping_offset(column * channels as isize);
            }
        }
        QuadJob {
            rows,
            groups: self.groups,
            there: [inside(0), inside(c.input[2] as isize)],
            x_pixel: channels,
            channels: c1 - c0,
            signed: self.signed,
            quads,
            weight: self.weight.bytes()[c0 / LANES * self.vector_bytes()..].as_ptr(),
            start: self.start[c0..].as_ptr(),
            y,
            y_strides,
            out: [part.rows, end - p],
        }
    }

    /// The number of bytes of the weights of a vector of channels.
    fn vector_bytes(&self) -> usize {
        self.groups * self.conv.kernel[2] * self.rows * VECTOR
    }
}

/// For each vector of channels, group of four input rows, column of the kernel and output row: four bytes for each channel. The
/// column for the second output row is one input row further down.
fn pack_weight(conv: &Conv, [rows, groups]: [usize; 2], weight: Constant) -> Arc<AlignedBytes> {
    let (channels, size) = (conv.in_channels, conv.kernel[1]);
    let vectors = channels.div_ceil(LANES);
    weight.get_or_pack(&[16, channels, size, rows], |bytes| {
        let mut packed = AlignedBytes::zeroed(vectors * groups * size * rows * VECTOR);
        for (i, to) in packed.bytes_mut().iter_mut().enumerate() {
            let (byte, lane, rest) = (i % 4, i / 4 % LANES, i / VECTOR);
            let (q, rest) = (rest % rows, rest / rows);
            let (column, rest) = (rest % size, rest / size);
            let channel = rest / groups * LANES + lane;
            let row = (rest % groups * 4 + byte).wrapping_sub(q);
            if row < size && channel < channels {
                *to = bytes[(channel * size + row) * size + column];
            }
        }
        packed
    })
}

impl ConvPlan for DotDepthwise {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let most = self.cut(pool.threads());
        run_parts(
            pool,
            &self.conv,
            self.out[1],
            most,
            args,
            |args, image, rows, channels| {
                // SAFETY: guaranteed by the caller; chunks own disjoint parts of the output.
                unsafe { self.run_part(args, image, rows, channels) };
            },
        );
    }

    fn describe(&self) -> String {
        "conv int8 depthwise in rows avx512vnni packed".to_owned()
    }
}
