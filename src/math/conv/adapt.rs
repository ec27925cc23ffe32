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

/// An f16 or bf16 convolution: converted to f32, computed there, and rounded once. Or one of bytes, whose sums f32 has exactly.
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
            bytes: None,
            ..conv.clone()
        };
        let ConvConstants { weight, bias } = constants;
        let dtype = if conv.bytes.is_some() { DType::I8 } else { conv.dtype };
        let [weight, bias] = [weight, bias].map(|c| Some(c?.widen_from(dtype)));
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
        let [nx, nw, nb, ny] = self.lens;
        if ny == 0 {
            return;
        }
        let bytes = self.conv.bytes.map(ByteInput::dtype);
        let dtype = bytes.unwrap_or(self.conv.dtype);
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
            // The tail makes elements of another size from sums of bytes.
            let waits = bytes.is_some() && args.tail.is_some();
            let mut sums = scratch::take_buffer(if waits { ny } else { 0 });
            let to = if waits { sums.as_mut_ptr().cast() } else { args.y };
            narrow_elements(pool, self.conv.dtype, &y, to);
            run_tail(pool, &self.conv, to, args.tail);
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
