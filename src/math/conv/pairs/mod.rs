//! Convolutions of bf16 or bytes, as blocks of pairs (see [`pairs`](crate::math::pairs)), and f32 ones with operands that
//! are rounded to bf16. With several groups, a panel multiplies the channels of a few groups ([`panels`]).
//!
//! A row of A is an output pixel. With many input channels, a segment of its product indices is a tap: the input is read
//! from padded channels-last rows, or in place, without unfolding. With few, padding each tap to a whole step would multiply
//! the work: a segment is a row of taps, or the taps of a chunk's pixels are gathered into rows ([`segments`]).
//!
//! Products with padding are left out where there are many. In narrow rows, each tap is multiplied only with the pixels that see the
//! image through it ([`visible`](super::visible)), and the image needs no padding then.

mod chunk;
pub(super) mod depthwise;
mod image;
pub(super) mod lines;
mod panels;
pub(super) mod phases;
mod planes;
mod segments;
pub(super) mod upsample;
mod weight;
mod window;

use super::adapt::run_tail;
use super::pointwise;
use super::strip::{ChunkCut, ChunkOrder, Load, cut_chunks};
use crate::math::contract::{Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, MatMulArgs, MatMulConstants};
use crate::math::contract::{MatMulPlan, PlanError};
use crate::math::matmul::pairs::PairMatMulPlan;
use crate::math::pairs::pack::Source;
use crate::math::pairs::{COLS, PairKernels};
use crate::math::scratch;
use crate::math::tile::Tiles;
use crate::math::transpose::permute;
use crate::parallel::Pool;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use chunk::ImageOperands;
use segments::TapForm;
use std::borrow::Cow;
use std::sync::Arc;
use window::Window;

/// The maximum number of elements in the gathered rows of a chunk: a quarter of a 2 MB L2 cache.
const GATHERED: usize = 256 << 10;

/// Whether such a plan exists for `conv` and, if it has several groups, is faster than others.
pub(super) fn is_applicable(kernels: &PairKernels, conv: &Conv) -> bool {
    let are_pairs = conv.bytes.is_some() || matches!(conv.dtype, DType::BF16 | DType::F32);
    are_pairs && !conv.transposed && (conv.groups == 1 || panels::are_worthwhile(kernels, conv))
}

/// Plans `conv`, for which [`is_applicable`] holds. `plan_other` plans it by another method.
pub(super) fn plan(
    kernels: PairKernels,
    conv: &Conv,
    constants: ConvConstants,
    plan_other: impl FnOnce() -> Result<Box<dyn ConvPlan>, PlanError>,
) -> Result<Box<dyn ConvPlan>, PlanError> {
    let bias = constant_bias(conv, &constants);
    let first = pointwise::is_channels_first(conv);
    // A matrix of pixels that is not in rows cannot be the first factor, which bytes must be.
    let is_product = pointwise::is_applicable(conv, kernels.isa) && !(first && kernels.are_bytes());
    if is_product {
        let product = MatMulConstants {
            a: constants.weight.filter(|_| first),
            b: constants.weight.filter(|_| !first),
        };
        return Ok(Box::new(Pointwise {
            product: PairMatMulPlan::new(kernels, &pointwise::product(conv), product),
            first,
            bias,
        }));
    }
    let window = Window::new(kernels, conv)?;
    let multiplies_others = window.segments.reads_others(conv, &window.panels) && !kernels.are_bytes();
    let other = multiplies_others.then(plan_other).transpose()?;
    let pack = |w| weight::pack_constant((&kernels, conv, &window), w, &[], |bytes, _| Cow::Borrowed(bytes));
    let weight = constants.weight.map(pack);
    Ok(Box::new(PairConv {
        for_special_values: other,
        ..PairConv::new(kernels, conv, window, (weight, bias))
    }))
}

/// The bias, if both it and the weight are constant.
fn constant_bias(conv: &Conv, constants: &ConvConstants) -> Option<Arc<AlignedBytes>> {
    match (constants.weight, constants.bias) {
        (Some(_), Some(b)) if conv.bias => Some(b.aligned_bytes()),
        _ => None,
    }
}

/// A convolution with one tap and stride 1.
struct Pointwise {
    product: PairMatMulPlan,
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

/// Any other convolution.
struct PairConv {
    conv: Conv,
    kernels: PairKernels,
    window: Window,
    /// The tiles of an output row.
    tiles: Tiles,
    weight: Option<Arc<AlignedBytes>>,
    bias: Option<Arc<AlignedBytes>>,
    /// The plan for inputs with infinities or NaN, if products with zero are computed, which would be NaN.
    for_special_values: Option<Box<dyn ConvPlan>>,
}

impl PairConv {
    /// The convolution with the packed weight and the bias, if they are constant.
    fn new(
        kernels: PairKernels,
        conv: &Conv,
        window: Window,
        (weight, bias): (Option<Arc<AlignedBytes>>, Option<Arc<AlignedBytes>>),
    ) -> PairConv {
        PairConv {
            tiles: Tiles::new(window.out[2], kernels.rows),
            conv: conv.clone(),
            kernels,
            window,
            weight,
            bias,
            for_special_values: None,
        }
    }

    fn is_wide(&self) -> bool {
        self.conv.dtype == DType::F32
    }

    fn panels(&self) -> usize {
        self.window.panels.count()
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
            weights: w.panel_words() * self.panels(),
            input: w.image,
            buffered: false,
        };
        let mut cut = cut_chunks(&load, threads);
        if w.gathers() {
            // Every panel would gather the same rows again.
            cut.panels = self.panels();
            let most = (GATHERED / (w.gathered_row() * w.out[2]).max(1)).max(1);
            let even = load.rows.div_ceil(4 * threads).max(1);
            cut.rows = most.min(if threads > 1 { even } else { load.rows });
        }
        if self.kernels.are_bytes() {
            let sums = cut.panels * COLS * w.out[2].max(1);
            let most = self.kernels.waiting_sums(w.panel_words() * cut.panels);
            cut.rows = cut.rows.min((most / sums).max(1));
        }
        cut
    }

    /// Computes all images, into a channels-last output. Stops and returns false at an image with values that only
    /// [`Self::for_special_values`] handles.
    ///
    /// # Safety
    /// `args` is as for [`ConvPlan::run`].
    unsafe fn run_images(&self, pool: &Pool, args: &ConvArgs, weight: *const u16) -> bool {
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
                if self.for_special_values.is_some() && !w.is_finite(pool, x) {
                    return false;
                }
                let operands = ImageOperands {
                    x,
                    weight,
                    bias,
                    y: args.y.wrapping_add(image * pixels * c.out_channels * c.dtype.size()),
                    image,
                    tail: args.tail,
                };
                self.run_image(pool, operands);
            }
        }
        true
    }

    /// Computes an image in chunks.
    ///
    /// # Safety
    /// The operands are valid.
    unsafe fn run_image(&self, pool: &Pool, o: ImageOperands) {
        let counts = [self.window.out[0] * self.window.out[1], self.panels()];
        let run = |_, rows: [usize; 2], panels: [usize; 2]| {
            // SAFETY: guaranteed by the caller; chunks own disjoint parts of the output.
            unsafe { self.run_chunk(&o, rows, panels) };
        };
        self.cut(pool.threads())
            .for_each_chunk(pool, 1, counts, ChunkOrder::RowsOfPanels, run);
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

impl ConvPlan for PairConv {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let (c, w, size) = (&self.conv, &self.window, self.conv.dtype.size());
        let pixels: usize = w.out.iter().product();
        if c.batch * pixels * c.out_channels == 0 {
            return;
        }
        let panels = w.panel_words() * self.panels() / 2;
        let mut packed = scratch::take_buffer(if self.weight.is_none() { panels } else { 0 });
        let moves = c.output_layout == ConvLayout::ChannelsFirst && c.out_channels > 1;
        let words = (c.batch * pixels * c.out_channels * size).div_ceil(4);
        let mut y = scratch::take_buffer(if moves { words } else { 0 });
        // SAFETY: guaranteed by the caller; the buffers are as long as the operands.
        unsafe {
            let weight = self.weight_panels(pool, args, &mut packed);
            let mut last = *args;
            if moves {
                (last.y, last.tail) = (y.as_mut_ptr().cast(), None);
            }
            let is_done = self.run_images(pool, &last, weight);
            match &self.for_special_values {
                Some(other) if !is_done => return other.run(pool, args),
                _ if !moves => return,
                _ => {}
            }
            let (shape, strides) = (
                [c.batch, c.out_channels, pixels],
                [c.out_channels * pixels, 1, c.out_channels],
            );
            permute(pool, size, &shape, &strides, last.y, args.y);
            run_tail(pool, c, args.y, args.tail);
        }
    }

    fn describe(&self) -> String {
        let (operands, _) = self.kernels.describe_factors(self.is_wide());
        let how = if self.weight.is_some() { "packed" } else { "dynamic" };
        let k = &self.kernels;
        let taps = match (self.window.segments.form, self.conv.groups) {
            (TapForm::Gathered, _) => "gathered",
            (TapForm::Rows, _) => "by rows",
            (TapForm::Single, 1) => "direct",
            (TapForm::Single, _) => "direct in groups",
        };
        format!("conv {operands} {taps} {}x{COLS} {} {how}", 2 * k.rows, k)
    }
}
