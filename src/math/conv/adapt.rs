//! Plans that wrap other plans: 16-bit floats and bytes computed in f32, and other layouts converted to channels first.

use super::plan_f32;
use crate::math::contract::{
    ByteInput, Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, PlanError, Tile, TileTail,
};
use crate::math::convert::{narrow_elements, widen_elements};
use crate::math::scratch::{self, SharedPtr};
use crate::math::transpose::permute;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::types::DType;

/// An f16 or bf16 convolution: converted to f32, computed there, and rounded once. Or one of bytes, whose sums f32 has exactly. Few
/// images or groups are converted at a time, so that the f32 numbers stay in the cache.
pub(super) struct Adapted {
    conv: Conv,
    /// The plans of blocks of as many groups each.
    blocks: Vec<Box<dyn ConvPlan>>,
    /// The number of images that are computed at a time, which divides the batch: 1 if there are several blocks.
    images: usize,
    /// The number of elements of a block's input, weight, bias and output; 0 for constants.
    lens: [usize; 4],
}

/// The f32 numbers of input and output that are computed at a time, if there are more: 2 MiB.
const AT_ONCE: usize = 512 << 10;

/// The largest divisor of `n` that is at most `most`.
fn largest_divisor(n: usize, most: usize) -> usize {
    (1..=most.clamp(1, n.max(1)))
        .rev()
        .find(|d| n.is_multiple_of(*d))
        .unwrap_or(1)
}

/// How many images and how many groups of `conv` are computed at a time.
fn split_work(conv: &Conv, constant: bool, [nx, nw, _, ny]: [usize; 4]) -> [usize; 2] {
    let image = (nx + ny) / conv.batch.max(1);
    // A weight that is not constant is prepared for each part.
    if conv.bytes.is_some() || !constant && nw > image / 8 {
        return [conv.batch.max(1), conv.groups];
    }
    let images = largest_divisor(conv.batch, AT_ONCE / image.max(1));
    let first = [conv.input_layout, conv.output_layout] == [ConvLayout::ChannelsFirst; 2];
    if !first || images > 1 || conv.groups == 0 {
        return [images, conv.groups];
    }
    let most = AT_ONCE / (image / conv.groups).max(1);
    let groups = largest_divisor(conv.groups, most);
    if groups > 1 || conv.groups < conv.in_channels {
        return [1, groups];
    }
    // A single group of a depthwise convolution is a plain one, which takes longer.
    let fewest = (2..conv.groups).find(|d| conv.groups.is_multiple_of(*d));
    [1, fewest.unwrap_or(conv.groups)]
}

impl Adapted {
    /// Plans `conv`, whose extents are given.
    pub(super) fn new(
        isa: Isa,
        exact: bool,
        conv: &Conv,
        constants: ConvConstants,
        extents: [usize; 4],
    ) -> Result<Adapted, PlanError> {
        let dtype = if conv.bytes.is_some() { DType::I8 } else { conv.dtype };
        let [weight, bias] = [constants.weight, constants.bias].map(|c| Some(c?.widen_from(dtype)));
        let [images, groups] = split_work(conv, weight.is_some(), extents);
        let inner = Conv {
            dtype: DType::F32,
            bytes: None,
            batch: images,
            groups,
            in_channels: conv.in_channels / conv.groups.max(1) * groups,
            out_channels: conv.out_channels / conv.groups.max(1) * groups,
            ..conv.clone()
        };
        let [nx, nw, nb, ny] = inner.extents().ok_or(PlanError::Size)?;
        let plan = |part: usize| {
            let constants = ConvConstants {
                weight: weight.map(|w| w.skip_bytes(4 * nw * part)),
                bias: bias.map(|b| b.skip_bytes(4 * nb * part)),
            };
            plan_f32(isa, exact, &inner, constants)
        };
        let needed = |n: usize, constant: bool| if constant { 0 } else { n };
        Ok(Adapted {
            conv: conv.clone(),
            blocks: (0..conv.groups / groups.max(1)).map(plan).collect::<Result<_, _>>()?,
            images,
            lens: [
                nx,
                needed(nw, weight.is_some()),
                needed(nb, weight.is_some() && bias.is_some()),
                ny,
            ],
        })
    }
}

impl ConvPlan for Adapted {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let (c, blocks, [nx, nw, nb, ny]) = (&self.conv, self.blocks.len(), self.lens);
        if ny == 0 {
            return;
        }
        let bytes = c.bytes.map(ByteInput::dtype);
        let dtype = bytes.unwrap_or(c.dtype);
        let (mut x, mut weight) = (scratch::take_buffer(nx), scratch::take_buffer(nw * blocks));
        let (mut bias, mut y) = (scratch::take_buffer(nb * blocks), scratch::take_buffer(ny));
        // The tail makes elements of another size from sums of bytes.
        let waits = bytes.is_some() && args.tail.is_some();
        let mut sums = scratch::take_buffer(if waits { ny } else { 0 });
        let to = if waits { sums.as_mut_ptr().cast() } else { args.y };
        // SAFETY: guaranteed by the caller; the buffers are as long as the operands.
        unsafe {
            widen_elements(pool, dtype, args.weight, &mut weight);
            widen_elements(pool, dtype, args.bias, &mut bias);
            for step in 0..c.batch / self.images * blocks {
                let part = step % blocks;
                widen_elements(pool, dtype, args.x.add(step * nx * dtype.size()), &mut x);
                let inner = ConvArgs {
                    x: x.as_ptr().cast(),
                    weight: weight[part * nw..].as_ptr().cast(),
                    bias: bias[part * nb..].as_ptr().cast(),
                    y: y.as_mut_ptr().cast(),
                    tail: None,
                };
                self.blocks[part].run(pool, &inner);
                narrow_elements(pool, c.dtype, &y, to.add(step * ny * c.dtype.size()));
            }
            run_tail(pool, c, to, args.tail);
        }
    }

    fn describe(&self) -> String {
        let how = self.blocks.first().map_or("empty".into(), |b| b.describe());
        how.replace("f32", &format!("{} in f32", self.conv.dtype))
    }
}

/// A convolution in another layout, computed by a method that supports channels first only.
pub(super) struct Relaid {
    conv: Conv,
    inner: Box<dyn ConvPlan>,
}

impl Relaid {
    /// Plans `conv` as a wrapper of the plan of the same convolution in channels-first layout.
    pub(super) fn new(isa: Isa, exact: bool, conv: &Conv, constants: ConvConstants) -> Result<Relaid, PlanError> {
        let first = ConvLayout::ChannelsFirst;
        let inner = Conv {
            input_layout: first,
            output_layout: first,
            ..conv.clone()
        };
        Ok(Relaid {
            inner: plan_f32(isa, exact, &inner, constants)?,
            conv: conv.clone(),
        })
    }
}

/// Runs `conv` by `compute`, which supports channels first only: converts the layouts of the input and the output where
/// they differ, and runs the tail. Does nothing if the output is empty.
///
/// # Safety
/// `args` is as for [`ConvPlan::run`].
pub(super) unsafe fn run_channels_first(pool: &Pool, conv: &Conv, args: &ConvArgs, compute: impl FnOnce(&ConvArgs)) {
    if conv.extents().is_none_or(|e| e[3] == 0) {
        return;
    }
    let size = conv.dtype.size();
    let in_pixels: usize = conv.input.iter().product();
    let out_pixels: usize = conv.output_size().unwrap_or_default().iter().product();
    let [x_moves, y_moves] = [conv.input_layout, conv.output_layout].map(|l| l == ConvLayout::ChannelsLast);
    let words = |moves: bool, channels: usize, pixels: usize| match moves {
        true => (conv.batch * channels * pixels * size).div_ceil(4),
        false => 0,
    };
    let mut x = scratch::take_buffer(words(x_moves, conv.in_channels, in_pixels));
    let mut y = scratch::take_buffer(words(y_moves, conv.out_channels, out_pixels));
    let mut inner = ConvArgs { tail: None, ..*args };
    // SAFETY: guaranteed by the caller; the buffers are as long as the operands, and aligned for every dtype.
    unsafe {
        if x_moves {
            inner.x = x.as_ptr().cast();
            let last = [conv.batch, in_pixels, conv.in_channels];
            swap_image_dims(pool, size, last, args.x, x.as_mut_ptr().cast());
        }
        if y_moves {
            inner.y = y.as_mut_ptr().cast();
        }
        compute(&inner);
        if y_moves {
            let first = [conv.batch, conv.out_channels, out_pixels];
            swap_image_dims(pool, size, first, inner.y, args.y);
        }
        run_tail(pool, conv, args.y, args.tail);
    }
}

/// Copies images whose rows and columns have elements of `size` bytes, with the two dimensions swapped.
///
/// # Safety
/// Both hold the images.
unsafe fn swap_image_dims(pool: &Pool, size: usize, [images, rows, cols]: [usize; 3], src: *const u8, dst: *mut u8) {
    // SAFETY: guaranteed by the caller.
    unsafe { permute(pool, size, &[images, cols, rows], &[rows * cols, 1, cols], src, dst) };
}

impl ConvPlan for Relaid {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        // SAFETY: guaranteed by the caller.
        unsafe { run_channels_first(pool, &self.conv, args, |inner| self.inner.run(pool, inner)) };
    }

    fn describe(&self) -> String {
        format!("{}, layout converted", self.inner.describe())
    }
}

/// Runs the tail over a whole finished output, image by image.
///
/// # Safety
/// `y` is the finished output of `conv`.
pub(super) unsafe fn run_tail(pool: &Pool, conv: &Conv, y: *mut u8, tail: Option<TileTail>) {
    let Some(tail) = tail else { return };
    let pixels: usize = conv.output_size().unwrap_or_default().iter().product();
    let (rows, cols) = match conv.output_layout {
        ConvLayout::ChannelsFirst => (conv.out_channels, pixels),
        ConvLayout::ChannelsLast => (pixels, conv.out_channels),
    };
    let per = (16 * 1024 / cols.max(1)).clamp(1, rows.max(1));
    let (parts, y) = (rows.div_ceil(per), SharedPtr(y));
    pool.run(conv.batch * parts, |i| {
        let (batch, row) = (i / parts, i % parts * per);
        let offset = (batch * rows + row) * cols;
        // SAFETY: the rows lie in the output, and belong to this chunk.
        unsafe {
            let tile = Tile {
                data: y.get().add(offset * conv.dtype.size()),
                offset,
                batch,
                row,
                col: 0,
                rows: per.min(rows - row),
                cols,
                row_stride: cols,
                data_stride: cols,
            };
            tail.run(&tile);
        }
    });
}
