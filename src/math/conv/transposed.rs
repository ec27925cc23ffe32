//! Transposed convolution. One matrix product computes all taps for every input pixel and output channel
//! (`[out * taps, in] · [in, pixels]`). Then each output plane gathers the taps that fall on it.
//!
//! The product is stored in working memory. Large ones are split into blocks of groups or of output channels. Products of bf16 are
//! multiplied in pairs, added up in f32, and rounded once.

use super::constant_bias;
use super::overlap::add_plane;
use crate::math::contract::{
    BatchDim, Constant, Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, MatMul, MatMulArgs, MatMulConstants,
    MatMulPlan, PlanError, Tile, TileTail,
};
use crate::math::convert::{narrow_row, widen_row};
use crate::math::matmul::native::F32MatMulPlan;
use crate::math::matmul::pairs::PairMatMulPlan;
use crate::math::number::clamp_elements;
use crate::math::pairs::PairKernels;
use crate::math::scratch::{self, Scratch, SharedPtr};
use crate::math::transpose::permute;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;

/// The approximate number of elements in a block's product (4 MB).
const BLOCK: usize = 1 << 20;

/// The fewest input channels of a group for which pairs gain more than reading and writing their sums takes.
const PAIR_CHANNELS: usize = 128;

/// What multiplies.
#[derive(Clone, Copy)]
enum Multiplier {
    F32(Isa),
    Bf16(PairKernels),
}

impl Multiplier {
    /// Plans a product, whose A is constant if a weight is given. That of bf16 has no constants, and its result is f32.
    fn plan(self, product: &MatMul, weight: Option<Constant>) -> Box<dyn MatMulPlan> {
        let constants = MatMulConstants { a: weight, b: None };
        match self {
            Multiplier::F32(isa) => Box::new(F32MatMulPlan::new(isa, product, constants)),
            Multiplier::Bf16(kernels) => Box::new(PairMatMulPlan::with_f32_sums(kernels, product)),
        }
    }
}

/// A plan of such a convolution, channels first.
pub(super) struct Transposed {
    conv: Conv,
    out: [usize; 3],
    blocks: Vec<ChannelBlock>,
    /// The constant weight of bf16.
    weight: Option<Arc<AlignedBytes>>,
    bias: Option<Vec<f32>>,
}

/// Some groups, or some output channels of one group.
struct ChannelBlock {
    product: Box<dyn MatMulPlan>,
    /// The first group, and the number of groups.
    groups: [usize; 2],
    /// The first output channel within each group, and the number of channels.
    channels: [usize; 2],
    constant: bool,
}

/// Whether a convolution of bf16 is faster in pairs than in f32.
pub(super) fn suits_pairs(kernels: &PairKernels, c: &Conv) -> bool {
    let first = c.input_layout == ConvLayout::ChannelsFirst && c.output_layout == ConvLayout::ChannelsFirst;
    let has_many = c.in_channels / c.groups.max(1) >= PAIR_CHANNELS;
    c.dtype == DType::BF16 && c.transposed && first && has_many && kernels.are_faster_than_f32()
}

impl Transposed {
    /// Plans `conv`, which is transposed and channels first, in f32.
    pub(super) fn new(isa: Isa, conv: &Conv, constants: ConvConstants) -> Result<Transposed, PlanError> {
        Transposed::with_multiplier(Multiplier::F32(isa), conv, constants)
    }

    /// Plans `conv`, for which [`suits_pairs`] holds.
    pub(super) fn in_pairs(
        kernels: PairKernels,
        conv: &Conv,
        constants: ConvConstants,
    ) -> Result<Transposed, PlanError> {
        // The transposed weight is made in each run, from the bytes of a constant.
        let weight = constants.weight.map(|w| w.aligned_bytes());
        let bias = constants.bias.map(|b| b.widen_from(DType::BF16));
        let rest = ConvConstants { weight: None, bias };
        let plan = Transposed::with_multiplier(Multiplier::Bf16(kernels), conv, rest)?;
        let with_weight = ConvConstants {
            weight: constants.weight,
            bias,
        };
        Ok(Transposed {
            bias: constant_bias(conv, &with_weight),
            weight,
            ..plan
        })
    }

    fn with_multiplier(multiplier: Multiplier, conv: &Conv, constants: ConvConstants) -> Result<Transposed, PlanError> {
        let out = conv.output_size().ok_or(PlanError::Size)?;
        let (taps, pixels): (usize, usize) = (conv.kernel.iter().product(), conv.input.iter().product());
        let per_channel = taps
            .checked_mul(pixels)
            .filter(|p| p.checked_mul(8).is_some())
            .ok_or(PlanError::Size)?;
        let blocks = match constants.weight {
            // Load the bytes once for all blocks.
            Some(w) => w.with_loaded(|w| Transposed::cut_blocks(multiplier, conv, Some(w), per_channel)),
            None => Transposed::cut_blocks(multiplier, conv, None, per_channel),
        };
        Ok(Transposed {
            conv: conv.clone(),
            out,
            blocks,
            weight: None,
            bias: constant_bias(conv, &constants),
        })
    }

    /// Splits the product into blocks that fit the cache.
    fn cut_blocks(
        multiplier: Multiplier,
        conv: &Conv,
        weight: Option<Constant>,
        per_channel: usize,
    ) -> Vec<ChannelBlock> {
        let group_outputs = conv.out_channels / conv.groups;
        let mut blocks = vec![];
        if conv.batch > 0 && conv.in_channels > 0 && group_outputs > 0 {
            let channels = (BLOCK / per_channel.max(1)).clamp(1, group_outputs);
            let groups = if channels < group_outputs {
                1
            } else {
                (BLOCK / (per_channel * group_outputs).max(1)).clamp(1, conv.groups)
            };
            for g in (0..conv.groups).step_by(groups) {
                for c in (0..group_outputs).step_by(channels) {
                    let (groups, channels) = ([g, groups.min(conv.groups - g)], [c, channels.min(group_outputs - c)]);
                    blocks.push(ChannelBlock::new(multiplier, conv, weight, groups, channels));
                }
            }
        }
        blocks
    }

    /// Computes the products of block `b` for one image: for each of its channels and taps, a plane of input pixels.
    ///
    /// # Safety
    /// The operands are valid; `products` has room for the block.
    unsafe fn multiply_block(&self, pool: &Pool, args: &ConvArgs, b: &ChannelBlock, image: usize, products: *mut f32) {
        let (c, size) = (&self.conv, self.conv.dtype.size());
        let pixels: usize = c.input.iter().product();
        let channel = image * c.in_channels + b.groups[0] * (c.in_channels / c.groups);
        // SAFETY: the operands of the block lie in those of the convolution.
        unsafe {
            let first = ChannelBlock::weight_at(c, b.groups[0], b.channels[0]);
            let product = MatMulArgs {
                a: match b.constant {
                    true => std::ptr::null(),
                    false => args.weight.add(first * size),
                },
                b: args.x.add(channel * pixels * size),
                addend: std::ptr::null(),
                c: products.cast(),
                tail: None,
            };
            b.product.run(pool, &product);
        }
    }

    /// Gathers one output plane from its products, and runs the tail on it. `bias` has the bias of every channel, or
    /// nothing.
    ///
    /// # Safety
    /// As for [`Transposed::gather_plane`]; no other thread writes the plane.
    unsafe fn finish_plane(&self, products: *const f32, bias: &[f32], plane: &Tile, tail: Option<TileTail>) {
        let bias = bias.get(plane.row).copied().unwrap_or(0.0);
        // SAFETY: guaranteed by the caller; the buffer holds a plane.
        unsafe {
            if self.conv.dtype == DType::F32 {
                self.gather_plane(products, bias, plane.data.cast());
            } else {
                let mut sums = scratch::take_buffer(plane.cols);
                self.gather_plane(products, bias, sums.as_mut_ptr());
                narrow_row(self.conv.dtype, &sums, plane.data);
            }
            if let Some(tail) = tail {
                tail.run(plane);
            }
        }
    }

    /// The bias of every channel; nothing if there is none.
    ///
    /// # Safety
    /// `given` is the bias, unless it is constant or there is none.
    unsafe fn bias(&self, given: *const u8) -> Scratch {
        let n = if self.conv.bias { self.conv.out_channels } else { 0 };
        let mut bias = scratch::take_buffer(n);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (&self.bias, self.conv.dtype) {
                (Some(b), _) => bias.copy_from_slice(b),
                (None, DType::F32) if n > 0 => bias.copy_from_slice(std::slice::from_raw_parts(given.cast(), n)),
                (None, dtype) => widen_row(dtype, given, &mut bias),
            }
        }
        bias
    }

    /// The weight with rows for each output channel and tap, which pairs of input channels need.
    ///
    /// # Safety
    /// `given` is the weight, unless it is constant.
    unsafe fn weight_rows(&self, pool: &Pool, given: *const u8) -> Scratch {
        let c = &self.conv;
        let taps: usize = c.kernel.iter().product();
        let (gi, rows) = (c.in_channels / c.groups, c.out_channels / c.groups * taps);
        let mut weight = scratch::take_buffer((c.in_channels * rows).div_ceil(2));
        let src = self.weight.as_ref().map_or(given, |w| w.bytes().as_ptr());
        let (shape, strides) = ([c.groups, rows, gi], [gi * rows, 1, rows]);
        // SAFETY: guaranteed by the caller; the buffer has as many elements.
        unsafe { permute(pool, 2, &shape, &strides, src, weight.as_mut_ptr().cast()) };
        weight
    }

    /// Gathers the output plane `y` from its channel's products: `taps` rows of input pixels.
    ///
    /// # Safety
    /// `products` holds `taps * pixels` elements, `y` one plane.
    unsafe fn gather_plane(&self, products: *const f32, bias: f32, y: *mut f32) {
        let c = &self.conv;
        let [od, oh, ow] = self.out;
        let [id, ih, iw] = c.input;
        let pixels = id * ih * iw;
        let taps = c.kernel.iter().product::<usize>();
        // SAFETY: the plane belongs to this thread; the caller provides the products.
        let (y, products) = unsafe {
            let y = std::slice::from_raw_parts_mut(y, od * oh * ow);
            (y, std::slice::from_raw_parts(products, taps * pixels))
        };
        y.fill(bias);
        for (tap, products) in products.chunks_exact(pixels.max(1)).enumerate() {
            add_plane(c, self.out, products, 0, tap, y);
        }
        if let Some((lo, hi)) = c.activation.bounds() {
            clamp_elements(y, lo, hi);
        }
    }
}

impl ChannelBlock {
    fn new(
        multiplier: Multiplier,
        conv: &Conv,
        weight: Option<Constant>,
        groups: [usize; 2],
        channels: [usize; 2],
    ) -> ChannelBlock {
        let (taps, pixels): (usize, usize) = (conv.kernel.iter().product(), conv.input.iter().product());
        let (gi, go) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
        let rows = channels[1] * taps;
        let group = BatchDim {
            size: groups[1],
            a: gi * go * taps,
            b: gi * pixels,
            c: rows * pixels,
            addend: 0,
        };
        let product = MatMul {
            batch: vec![group],
            // Weights are `[in, out / groups, taps]`: A is their transpose, which exists as such for bf16.
            a: match multiplier {
                Multiplier::F32(_) => [1, go * taps],
                Multiplier::Bf16(_) => [gi, 1],
            },
            ..MatMul::new(conv.dtype, rows, pixels, gi)
        };
        let offset = Self::weight_at(conv, groups[0], channels[0]);
        let weight = weight.map(|w| w.skip_bytes(4 * offset));
        ChannelBlock {
            constant: weight.is_some(),
            product: multiplier.plan(&product, weight),
            groups,
            channels,
        }
    }

    /// The offset of the weights of a group's channel.
    fn weight_at(conv: &Conv, group: usize, channel: usize) -> usize {
        let taps: usize = conv.kernel.iter().product();
        let (gi, go) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
        match conv.dtype {
            DType::F32 => (group * gi * go + channel) * taps,
            _ => (group * go + channel) * taps * gi,
        }
    }
}

impl ConvPlan for Transposed {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let c = &self.conv;
        if c.extents().is_none_or(|e| e[3] == 0) {
            return;
        }
        let pixels: usize = c.kernel.iter().product::<usize>() * c.input.iter().product::<usize>();
        // SAFETY: guaranteed by the caller.
        let bias: &[f32] = &unsafe { self.bias(args.bias) };
        let mut args = *args;
        let mut rows = None;
        if c.dtype != DType::F32 {
            // SAFETY: as above.
            let weight = rows.insert(unsafe { self.weight_rows(pool, args.weight) });
            args.weight = weight.as_ptr().cast();
        }
        for (image, b) in (0..c.batch).flat_map(|image| self.blocks.iter().map(move |b| (image, b))) {
            let mut products = scratch::take_buffer(b.groups[1] * b.channels[1] * pixels);
            // SAFETY: guaranteed by the caller; the buffer holds the products of the block's channels.
            unsafe {
                self.multiply_block(pool, &args, b, image, products.as_mut_ptr());
                self.finish_block(pool, &args, (b, image), (&products, pixels), bias);
            }
        }
    }

    fn describe(&self) -> String {
        let how = self.blocks.first().map_or("empty".into(), |b| b.product.describe());
        format!("conv {} transposed, {how}", self.conv.dtype)
    }
}

impl Transposed {
    /// Gathers the output planes of a block of an image, each from its own products.
    ///
    /// # Safety
    /// The operands are valid, and the products are those of the block, this many for each channel.
    unsafe fn finish_block(
        &self,
        pool: &Pool,
        args: &ConvArgs,
        (b, image): (&ChannelBlock, usize),
        (products, per_channel): (&[f32], usize),
        bias: &[f32],
    ) {
        let (c, plane) = (&self.conv, self.out.iter().product::<usize>());
        let ([g0, groups], [c0, channels]) = (b.groups, b.channels);
        let (y, tail) = (SharedPtr(args.y), args.tail);
        pool.run(groups * channels, |i| {
            let channel = (g0 + i / channels) * (c.out_channels / c.groups) + c0 + i % channels;
            let offset = (image * c.out_channels + channel) * plane;
            // SAFETY: this output plane and these products belong to chunk `i`.
            unsafe {
                let tile = Tile {
                    data: y.get().add(offset * c.dtype.size()),
                    offset,
                    batch: image,
                    row: channel,
                    col: 0,
                    rows: 1,
                    cols: plane,
                    row_stride: plane,
                    data_stride: plane,
                };
                self.finish_plane(products.as_ptr().add(i * per_channel), bias, &tile, tail);
            }
        });
    }
}
