//! Plans that wrap other plans: 16-bit floats computed in f32, and other layouts converted to channels first.

use super::plan_f32;
use crate::math::contract::{Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, PlanError, Tile, TileTail};
use crate::math::convert::{narrow_elements, widen_elements};
use crate::math::scratch::{self, SharedPtr};
use crate::math::transpose::permute;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::types::DType;

/// An f16 or bf16 convolution: converted to f32, computed there, and rounded once.
pub(super) struct Adapted {
    conv: Conv,
    inner: Box<dyn ConvPlan>,
    /// The number of elements to convert of input, weight, bias and output; 0 for constants.
    lens: [usize; 4],
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
        let inner = Conv {
            dtype: DType::F32,
            ..conv.clone()
        };
        let ConvConstants { weight, bias } = constants;
        let [weight, bias] = [weight, bias].map(|c| Some(c?.widen_from(conv.dtype)));
        let wide = ConvConstants { weight, bias };
        let mut lens = extents;
        if weight.is_some() {
            lens[1] = 0;
            lens[2] = if bias.is_some() { 0 } else { lens[2] };
        }
        Ok(Adapted {
            conv: conv.clone(),
            inner: plan_f32(isa, exact, &inner, wide)?,
            lens,
        })
    }
}

impl ConvPlan for Adapted {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let dtype = self.conv.dtype;
        let [nx, nw, nb, ny] = self.lens;
        if ny == 0 {
            return;
        }
        let (mut x, mut weight) = (scratch::take_buffer(nx), scratch::take_buffer(nw));
        let (mut bias, mut y) = (scratch::take_buffer(nb), scratch::take_buffer(ny));
        // SAFETY: guaranteed by the caller; the buffers are as long as the operands.
        unsafe {
            widen_elements(pool, dtype, args.x, &mut x);
            widen_elements(pool, dtype, args.weight, &mut weight);
            widen_elements(pool, dtype, args.bias, &mut bias);
            let inner = ConvArgs {
                x: x.as_ptr().cast(),
                weight: weight.as_ptr().cast(),
                bias: bias.as_ptr().cast(),
                y: y.as_mut_ptr().cast(),
                tail: None,
            };
            self.inner.run(pool, &inner);
            narrow_elements(pool, dtype, &y, args.y);
            run_tail(pool, &self.conv, args.y, args.tail);
        }
    }

    fn describe(&self) -> String {
        self.inner
            .describe()
            .replace("f32", &format!("{} in f32", self.conv.dtype))
    }
}

/// A convolution in another layout, computed by a method that supports channels first only.
pub(super) struct Relaid {
    conv: Conv,
    inner: Box<dyn ConvPlan>,
    lens: [usize; 4],
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
            lens: conv.extents().ok_or(PlanError::Size)?,
            conv: conv.clone(),
        })
    }
}

/// Copies images of `channels * pixels` f32 from one layout to the other.
///
/// # Safety
/// Both hold `batch` images.
pub(super) unsafe fn copy_to_layout(
    pool: &Pool,
    to: ConvLayout,
    batch: usize,
    channels: usize,
    pixels: usize,
    size: usize,
    src: *const u8,
    dst: *mut u8,
) {
    let image = channels * pixels;
    let (shape, strides) = match to {
        ConvLayout::ChannelsFirst => ([batch, channels, pixels], [image, 1, channels]),
        ConvLayout::ChannelsLast => ([batch, pixels, channels], [image, 1, pixels]),
    };
    // SAFETY: guaranteed by the caller.
    unsafe { permute(pool, size, &shape, &strides, src, dst) };
}

impl ConvPlan for Relaid {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let c = &self.conv;
        let [nx, _, _, ny] = self.lens;
        if ny == 0 {
            return;
        }
        let (x_moves, y_moves) = (
            c.input_layout == ConvLayout::ChannelsLast,
            c.output_layout == ConvLayout::ChannelsLast,
        );
        let mut x = scratch::take_buffer(if x_moves { nx } else { 0 });
        let mut y = scratch::take_buffer(if y_moves { ny } else { 0 });
        let (in_pixels, out_pixels) = (c.input.iter().product(), ny / (c.batch * c.out_channels).max(1));
        // SAFETY: guaranteed by the caller; the buffers are as long as the operands.
        unsafe {
            let mut inner = ConvArgs { tail: None, ..*args };
            if x_moves {
                let to = x.as_mut_ptr().cast();
                copy_to_layout(
                    pool,
                    ConvLayout::ChannelsFirst,
                    c.batch,
                    c.in_channels,
                    in_pixels,
                    4,
                    args.x,
                    to,
                );
                inner.x = to;
            }
            if y_moves {
                inner.y = y.as_mut_ptr().cast();
            }
            self.inner.run(pool, &inner);
            if y_moves {
                copy_to_layout(
                    pool,
                    ConvLayout::ChannelsLast,
                    c.batch,
                    c.out_channels,
                    out_pixels,
                    4,
                    inner.y,
                    args.y,
                );
            }
            run_tail(pool, c, args.y, args.tail);
        }
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
            };
            tail.run(&tile);
        }
    });
}
