//! Convolutions of bf16 with one group, as blocks of pairs (see [`pairs`](crate::math::pairs)), and f32 ones with operands
//! that are rounded to bf16.
//!
//! A row of A is an output pixel. With many input channels, a segment of its product indices is a tap: the input is read
//! from padded channels-last rows, or in place, without unfolding. With few, the taps of a chunk's pixels are gathered
//! into rows, because padding each tap to a whole step would multiply the work.

pub(super) mod depthwise;
pub(super) mod upsample;
mod weight;
mod window;

use super::adapt::run_tail;
use super::pointwise;
use super::strip::{ChunkCut, Load, cut_chunks};
use crate::math::contract::{Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, MatMulArgs, MatMulConstants};
use crate::math::contract::{MatMulPlan, PlanError, Tile};
use crate::math::matmul::bf16::Bf16MatMulPlan;
use crate::math::pairs::pack::Source;
use crate::math::pairs::store::StoreJob;
use crate::math::pairs::{COLS, PairBlocks, PairJob, PairKernels, prefetched_part};
use crate::math::scratch;
use crate::math::tile::Tiles;
use crate::math::transpose::permute;
use crate::parallel::Pool;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;
use window::{ChunkPixels, Window};

/// The maximum number of elements in the gathered rows of a chunk: a quarter of a 2 MB L2 cache.
const GATHERED: usize = 256 << 10;

/// Whether such a plan exists for `conv`.
pub(super) fn is_applicable(conv: &Conv) -> bool {
    conv.groups == 1 && !conv.transposed && matches!(conv.dtype, DType::BF16 | DType::F32)
}

/// Plans `conv`, for which [`is_applicable`] holds.
pub(super) fn plan(
    kernels: PairKernels,
    conv: &Conv,
    constants: ConvConstants,
) -> Result<Box<dyn ConvPlan>, PlanError> {
    let bias = match (constants.weight, constants.bias) {
        (Some(_), Some(b)) if conv.bias => Some(b.aligned_bytes()),
        _ => None,
    };
    if pointwise::is_applicable(conv, kernels.isa) {
        let first = conv.input_layout == ConvLayout::ChannelsFirst;
        let product = MatMulConstants {
            a: constants.weight.filter(|_| first),
            b: constants.weight.filter(|_| !first),
        };
        return Ok(Box::new(Pointwise {
            product: Bf16MatMulPlan::new(kernels, &pointwise::product(conv), product),
            first,
            bias,
        }));
    }
    let window = Window::new(kernels, conv)?;
    Ok(Box::new(Bf16Conv {
        weight: constants.weight.map(|w| weight::pack_constant(conv, &window, w)),
        tiles: Tiles::new(window.out[2], kernels.rows),
        conv: conv.clone(),
        kernels,
        window,
        bias,
    }))
}

/// A convolution with one tap and stride 1.
struct Pointwise {
    product: Bf16MatMulPlan,
    first: bool,
    bias: Option<Arc<AlignedBytes>>,
}

impl ConvPlan for Pointwise {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let (a, b) = match self.first {
            true => (args.weight, args.x),
            false => (args.x, args.weight),
        };
        let product = MatMulArgs {
            a,
            b,
            addend: self.bias.as_ref().map_or(args.bias, |b| b.bytes().as_ptr()),
            c: args.y,
            tail: args.tail,
        };
        // SAFETY: the operands of the convolution are those of the product.
        unsafe { self.product.run(pool, &product) };
    }

    fn describe(&self) -> String {
        format!("conv 1x1 as {}", self.product.describe())
    }
}

/// Any other convolution with one group.
struct Bf16Conv {
    conv: Conv,
    kernels: PairKernels,
    window: Window,
    /// The tiles of an output row.
    tiles: Tiles,
    weight: Option<Arc<AlignedBytes>>,
    bias: Option<Arc<AlignedBytes>>,
}

/// The operands of one image.
#[derive(Clone, Copy)]
struct ImageOperands {
    /// The padded input.
    x: *const u8,
    weight: *const u16,
    bias: Option<Source>,
    /// The channels-last output.
    y: *mut u8,
    image: usize,
    tail: Option<crate::math::contract::TileTail>,
}

// SAFETY: chunks only read the inputs and write disjoint parts of the output.
unsafe impl Send for ImageOperands {}
// SAFETY: as above.
unsafe impl Sync for ImageOperands {}

/// Neighbouring output pixels that a tile computes.
#[derive(Clone, Copy)]
struct PixelTile {
    /// The first pixel's elements of the input.
    address: *const u8,
    /// The index of the first pixel.
    first: usize,
    count: usize,
}

impl PixelTile {
    const EMPTY: PixelTile = PixelTile {
        address: std::ptr::null(),
        first: 0,
        count: 0,
    };
}

impl Bf16Conv {
    fn is_wide(&self) -> bool {
        self.conv.dtype == DType::F32
    }

    fn panels(&self) -> usize {
        self.conv.out_channels.div_ceil(COLS)
    }

    fn cut(&self, threads: usize) -> ChunkCut {
        let (c, w) = (&self.conv, &self.window);
        let load = Load {
            rows: w.out[0] * w.out[1],
            row_pixels: w.out[2],
            panels: self.panels(),
            panel_cols: COLS,
            images: 1,
            macs: c.macs() / c.batch.max(1) as f64 / self.kernels.rate() as f64,
            weights: w.depth() * self.panels() * COLS,
            input: w.image,
            buffered: false,
        };
        let mut cut = cut_chunks(&load, threads);
        if w.gathers {
            // Every panel would gather the same rows again.
            cut.panels = self.panels();
            let most = (GATHERED / (w.gathered_row() * w.out[2]).max(1)).max(1);
            let even = load.rows.div_ceil(4 * threads).max(1);
            cut.rows = most.min(if threads > 1 { even } else { load.rows });
        }
        cut
    }

    /// Computes all images, into a channels-last output.
    ///
    /// # Safety
    /// `args` is as for [`ConvPlan::run`].
    unsafe fn run_images(&self, pool: &Pool, args: &ConvArgs, weight: *const u16) {
        let (c, w) = (&self.conv, &self.window);
        let pixels: usize = w.out.iter().product();
        let bias = self.bias.as_ref().map_or(args.bias, |b| b.bytes().as_ptr());
        let bias = c.bias.then(|| Source::new(bias, self.is_wide()));
        let mut padded = scratch::take_buffer(w.buffer_len());
        let mut relaid = scratch::take_buffer(w.relaid_len());
        for image in 0..c.batch {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let x = w.prepare(pool, args.x, image, [&mut padded, &mut relaid]);
                let operands = ImageOperands {
                    x,
                    weight,
                    bias,
                    y: args.y.add(image * pixels * c.out_channels * c.dtype.size()),
                    image,
                    tail: args.tail,
                };
                self.run_image(pool, operands);
            }
        }
    }

    /// # Safety
    /// The operands are valid.
    unsafe fn run_image(&self, pool: &Pool, o: ImageOperands) {
        let (cut, lines) = (self.cut(pool.threads()), self.window.out[0] * self.window.out[1]);
        let (row_chunks, panel_chunks) = (lines.div_ceil(cut.rows), self.panels().div_ceil(cut.panels));
        let o = &o;
        pool.run(row_chunks * panel_chunks, |i| {
            let (r, p) = (i % row_chunks, i / row_chunks);
            let rows = [r * cut.rows, ((r + 1) * cut.rows).min(lines)];
            let panels = [p * cut.panels, ((p + 1) * cut.panels).min(self.panels())];
            // SAFETY: guaranteed by the caller; chunks own disjoint parts of the output.
            unsafe { self.run_chunk(o, rows, panels) };
        });
    }

    /// Computes the output rows `l0..l1` for the panels `p0..p1`.
    ///
    /// # Safety
    /// The operands are valid; no other thread writes this part.
    unsafe fn run_chunk(&self, o: &ImageOperands, [l0, l1]: [usize; 2], [p0, p1]: [usize; 2]) {
        let (per_line, width) = (self.tiles.count(), self.window.out[2]);
        // SAFETY: guaranteed by the caller.
        let pixels = unsafe { self.window.chunk_pixels(o.x, [l0, l1]) };
        let mut blocks = self.kernels.begin();
        let len = self.window.depth() * COLS;
        let tile = |i: usize| match i < l1 * per_line {
            true => {
                let (line, t) = (i / per_line, i % per_line);
                let first = self.tiles.start(t);
                PixelTile {
                    address: pixels.at(line, first),
                    first: line * width + first,
                    count: self.tiles.start(t + 1) - first,
                }
            }
            false => PixelTile::EMPTY,
        };
        for p in p0..p1 {
            let panel = o.weight.wrapping_add(p * len);
            for i in (l0 * per_line..l1 * per_line).step_by(2) {
                // SAFETY: the tiles lie in the chunk.
                unsafe {
                    let next = prefetched_part(panel, len, (i - l0 * per_line) / 2, p + 1 == p1);
                    self.run_block(&mut blocks, o, &pixels, [tile(i), tile(i + 1)], p, [panel, next]);
                }
            }
        }
        // SAFETY: the part is finished and belongs to this thread.
        unsafe { self.run_chunk_tail(o, [l0 * width, l1 * width], [p0, p1]) };
    }

    /// Runs the tail, if there is one, on the finished pixels `first..end` of the panels `p0..p1`.
    ///
    /// # Safety
    /// As for [`Bf16Conv::run_chunk`].
    unsafe fn run_chunk_tail(&self, o: &ImageOperands, [first, end]: [usize; 2], [p0, p1]: [usize; 2]) {
        let Some(tail) = &o.tail else { return };
        let (channels, col) = (self.conv.out_channels, p0 * COLS);
        let pixels: usize = self.window.out.iter().product();
        let begin = first * channels + col;
        let part = Tile {
            data: o.y.wrapping_add(begin * self.conv.dtype.size()),
            offset: o.image * pixels * channels + begin,
            batch: o.image,
            row: first,
            col,
            rows: end - first,
            cols: (p1 * COLS).min(channels) - col,
            row_stride: channels,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { tail.run(&part) };
    }

    /// Computes and stores two tiles of panel `p`.
    ///
    /// # Safety
    /// As for [`Bf16Conv::run_chunk`].
    #[inline]
    unsafe fn run_block(
        &self,
        blocks: &mut PairBlocks,
        o: &ImageOperands,
        pixels: &ChunkPixels,
        tiles: [PixelTile; 2],
        p: usize,
        [panel, next]: [*const u16; 2],
    ) {
        let job = PairJob {
            a: tiles.map(|t| t.address),
            rows: tiles.map(|t| t.count),
            a_row: pixels.step,
            segments: pixels.segments,
            run: pixels.run,
            b: panel,
            cols: (self.conv.out_channels - p * COLS).min(COLS),
            next,
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut sums = blocks.compute(&job);
            for tile in tiles {
                self.store_job(o, sums, &tile, p).run(&self.kernels);
                sums = sums.add(tile.count * COLS);
            }
        }
    }

    /// The job that stores the sums of a tile of panel `p`.
    #[inline]
    fn store_job(&self, o: &ImageOperands, sums: *const f32, tile: &PixelTile, p: usize) -> StoreJob {
        let channels = self.conv.out_channels;
        let first = tile.first * channels + p * COLS;
        StoreJob {
            sums,
            rows: tile.count,
            cols: (channels - p * COLS).min(COLS),
            c: o.y.wrapping_add(first * self.conv.dtype.size()),
            c_row: channels,
            wide: self.is_wide(),
            addend: o.bias.map(|b| (b.skip(p * COLS), [0, 1])),
            alpha: 1.0,
            beta: 1.0,
            clamp: self.conv.activation.bounds(),
        }
    }

    /// The weight as panels: the constant one, or `args`' packed into `buffer`.
    ///
    /// # Safety
    /// `args` is as for [`ConvPlan::run`]; without a constant weight, the buffer has room for all panels.
    unsafe fn weight_panels(&self, pool: &Pool, args: &ConvArgs, buffer: &mut [f32]) -> *const u16 {
        if let Some(w) = &self.weight {
            return w.bytes().as_ptr().cast();
        }
        let panels = buffer.as_mut_ptr().cast::<u16>();
        let weight = Source::new(args.weight, self.is_wide());
        // SAFETY: guaranteed by the caller.
        unsafe { weight::pack(pool, &self.conv, &self.window, weight, panels) };
        panels
    }
}

impl ConvPlan for Bf16Conv {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let (c, w, size) = (&self.conv, &self.window, self.conv.dtype.size());
        let pixels: usize = w.out.iter().product();
        if c.batch * pixels * c.out_channels == 0 {
            return;
        }
        let panel_words = w.depth() * self.panels() * COLS / 2;
        let mut packed = scratch::take_buffer(if self.weight.is_none() { panel_words } else { 0 });
        let moves = c.output_layout == ConvLayout::ChannelsFirst && c.out_channels > 1;
        let words = (c.batch * pixels * c.out_channels * size).div_ceil(4);
        let mut y = scratch::take_buffer(if moves { words } else { 0 });
        // SAFETY: guaranteed by the caller; the buffers are as long as the operands.
        unsafe {
            let weight = self.weight_panels(pool, args, &mut packed);
            if !moves {
                return self.run_images(pool, args, weight);
            }
            let last = ConvArgs {
                y: y.as_mut_ptr().cast(),
                tail: None,
                ..*args
            };
            self.run_images(pool, &last, weight);
            let (shape, strides) = (
                [c.batch, c.out_channels, pixels],
                [c.out_channels * pixels, 1, c.out_channels],
            );
            permute(pool, size, &shape, &strides, last.y, args.y);
            run_tail(pool, c, args.y, args.tail);
        }
    }

    fn describe(&self) -> String {
        let operands = if self.is_wide() { "f32 in bf16" } else { "bf16" };
        let how = if self.weight.is_some() { "packed" } else { "dynamic" };
        let k = &self.kernels;
        let taps = if self.window.gathers { "gathered" } else { "direct" };
        format!("conv {operands} {taps} {}x{COLS} {} {how}", 2 * k.rows, k)
    }
}
