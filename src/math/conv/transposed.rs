//! Transposed convolution. One matrix product computes all taps for every input pixel and output channel
//! (`[out * taps, in] · [in, pixels]`). Then each output plane gathers the taps that fall on it.
//!
//! The product is stored in working memory. Large ones are split into blocks of groups or of output channels.

use super::overlap::add_plane;
use super::{bias_of, constant_bias};
use crate::math::contract::{
    BatchDim, Constant, Conv, ConvArgs, ConvConstants, ConvPlan, MatMul, MatMulArgs, MatMulConstants, MatMulPlan,
    PlanError, Tile, TileTail,
};
use crate::math::matmul::native::F32MatMulPlan;
use crate::math::number::clamp_elements;
use crate::math::scratch::{self, SharedPtr};
use crate::parallel::Pool;
use crate::target::Isa;
use crate::types::DType;

/// The approximate number of elements in a block's product (4 MB).
const BLOCK: usize = 1 << 20;

/// A plan of such a convolution, channels first.
pub(super) struct Transposed {
    conv: Conv,
    out: [usize; 3],
    blocks: Vec<ChannelBlock>,
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

impl Transposed {
    /// Plans `conv`, which is transposed and channels first, in f32.
    pub(super) fn new(isa: Isa, conv: &Conv, constants: ConvConstants) -> Result<Transposed, PlanError> {
        let out = conv.output_size().ok_or(PlanError::Size)?;
        let (taps, pixels): (usize, usize) = (conv.kernel.iter().product(), conv.input.iter().product());
        let per_channel = taps
            .checked_mul(pixels)
            .filter(|p| p.checked_mul(8).is_some())
            .ok_or(PlanError::Size)?;
        let blocks = match constants.weight {
            // Load the bytes once for all blocks.
            Some(w) => w.with_loaded(|w| Transposed::cut_blocks(isa, conv, Some(w), per_channel)),
            None => Transposed::cut_blocks(isa, conv, None, per_channel),
        };
        Ok(Transposed {
            conv: conv.clone(),
            out,
            blocks,
            bias: constant_bias(conv, &constants),
        })
    }

    /// Splits the product into blocks that fit the cache.
    fn cut_blocks(isa: Isa, conv: &Conv, weight: Option<Constant>, per_channel: usize) -> Vec<ChannelBlock> {
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
                    blocks.push(ChannelBlock::new(isa, conv, weight, groups, channels));
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

    /// Gathers one output plane from its products, and runs the tail on it.
    ///
    /// # Safety
    /// As for [`Transposed::gather_plane`]; `bias` is null or has the bias of every channel; no other thread writes the plane.
    unsafe fn finish_plane(&self, products: *const f32, bias: *const f32, plane: &Tile, tail: Option<TileTail>) {
        // SAFETY: guaranteed by the caller; the buffer holds a plane.
        unsafe {
            let bias = if bias.is_null() { 0.0 } else { *bias.add(plane.row) };
            self.gather_plane(products, bias, plane.data.cast());
            if let Some(tail) = tail {
                tail.run(plane);
            }
        }
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
    fn new(isa: Isa, conv: &Conv, weight: Option<Constant>, groups: [usize; 2], channels: [usize; 2]) -> ChannelBlock {
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
            // Weights are `[in, out / groups, taps]`: A is their transpose.
            a: [1, go * taps],
            ..MatMul::new(DType::F32, rows, pixels, gi)
        };
        let offset = Self::weight_at(conv, groups[0], channels[0]);
        let weight = weight.map(|w| w.skip_bytes(4 * offset));
        ChannelBlock {
            constant: weight.is_some(),
            product: Box::new(F32MatMulPlan::new(
                isa,
                &product,
                MatMulConstants { a: weight, b: None },
            )),
            groups,
            channels,
        }
    }

    /// The offset of the weights of a group's channel.
    fn weight_at(conv: &Conv, group: usize, channel: usize) -> usize {
        let taps: usize = conv.kernel.iter().product();
        let (gi, go) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
        (group * gi * go + channel) * taps
    }
}

impl ConvPlan for Transposed {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let c = &self.conv;
        if c.extents().is_none_or(|e| e[3] == 0) {
            return;
        }
        let pixels: usize = c.kernel.iter().product::<usize>() * c.input.iter().product::<usize>();
        let bias = SharedPtr(bias_of(c.bias, &self.bias, args.bias).cast_mut());
        for (image, b) in (0..c.batch).flat_map(|image| self.blocks.iter().map(move |b| (image, b))) {
            let mut products = scratch::take_buffer(b.groups[1] * b.channels[1] * pixels);
            // SAFETY: guaranteed by the caller; the buffer holds the products of the block's channels.
            unsafe {
                self.multiply_block(pool, args, b, image, products.as_mut_ptr());
                self.finish_block(pool, args, (b, image), (&products, pixels), bias);
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
        bias: SharedPtr<f32>,
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
                self.finish_plane(products.as_ptr().add(i * per_channel), bias.get(), &tile, tail);
            }
        });
    }
}
