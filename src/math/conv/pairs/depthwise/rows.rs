//! Depthwise convolution of bf16, channels last, in place: row by row.

use super::blocks::{BlockOrder, element};
#[cfg(target_arch = "x86_64")]
use super::row_pairs;
use super::taps::{RowAffine, RowJob, row_kernel};
use super::{cut_channels, finished_part, run_parts};
use crate::math::contract::{ColumnAffine, Constant, Conv, ConvArgs, ConvConstants, ConvPlan, PlanError};
use crate::math::pairs::PairKernels;
use crate::math::scratch;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use std::sync::Arc;

/// A plan of such a convolution with constant parameters.
pub(super) struct RowDepthwise {
    conv: Conv,
    isa: Isa,
    out: [usize; 3],
    /// The order of the kernels' blocks.
    order: BlockOrder,
    /// The number of channels in a block.
    block: usize,
    /// The weights in that order, tap by tap.
    weight: Arc<AlignedBytes>,
    /// The bias in the same order, or zeros.
    bias: Vec<f32>,
    kernel: unsafe fn(&RowJob),
}

/// The kernel for `conv`, the order of its blocks, and the number of channels in one.
///
/// Rows are multiplied in pairs where the processor can do that. The partner of a missing row is zero, and its weights must be finite.
fn choose_kernel(kernels: &PairKernels, conv: &Conv, weight: Constant) -> (unsafe fn(&RowJob), BlockOrder, usize) {
    let (size, stride, isa) = (conv.kernel[2], conv.stride[2], kernels.isa);
    #[cfg(target_arch = "x86_64")]
    if kernels.rounds_blocks() && weight.with_bytes(are_finite) {
        return (
            row_pairs::pair_kernel(size, stride),
            BlockOrder::Fours,
            row_pairs::BLOCK,
        );
    }
    let kernel = match (size, stride) {
        (3, 1) => row_kernel::<3, 1>(isa),
        (3, _) => row_kernel::<3, 2>(isa),
        (5, 1) => row_kernel::<5, 1>(isa),
        (5, _) => row_kernel::<5, 2>(isa),
        _ => row_kernel::<7, 1>(isa),
    };
    (kernel, BlockOrder::Pairs, 2 * isa.lanes())
}

/// Whether all elements of a bf16 constant are finite.
fn are_finite(bytes: &[u8]) -> bool {
    (0..bytes.len() / 2).all(|i| element(bytes, i).is_finite())
}

impl RowDepthwise {
    pub(super) fn new(
        kernels: &PairKernels,
        conv: &Conv,
        constants: ConvConstants,
        weight: Constant,
    ) -> Result<RowDepthwise, PlanError> {
        let channels = conv.in_channels;
        let (kernel, order, block) = choose_kernel(kernels, conv, weight);
        let bias = match constants.bias.filter(|_| conv.bias) {
            Some(b) => b.with_bytes(|bytes| (0..channels).map(|c| element(bytes, c).to_f32()).collect()),
            None => vec![0.0; channels],
        };
        Ok(RowDepthwise {
            isa: kernels.isa,
            out: conv.output_size().ok_or(PlanError::Size)?,
            weight: order.pack_weight(conv, block, weight),
            bias: order.in_blocks(block, &bias),
            order,
            block,
            kernel,
            conv: conv.clone(),
        })
    }

    /// Computes rows `r0..r1` of channels `c0..c1` of an image.
    ///
    /// # Safety
    /// `args` is as for [`ConvPlan::run`]; no other thread writes this part.
    unsafe fn run_part(
        &self,
        (args, affine): (&ConvArgs, Option<RowAffine>),
        image: usize,
        [r0, r1]: [usize; 2],
        [c0, c1]: [usize; 2],
    ) {
        let (c, channels, width) = (&self.conv, self.conv.in_channels, self.out[2]);
        let x = args.x.cast::<u16>();
        let x = x.wrapping_add(image * c.input[1] * c.input[2] * channels + c0);
        let y = args.y.cast::<u16>();
        let y = y.wrapping_add(image * self.out[1] * width * channels + c0);
        for r in r0..r1 {
            // SAFETY: guaranteed by the caller; parts begin with whole blocks.
            unsafe { (self.kernel)(&self.row_job(r, x, y, [c0, c1], affine)) };
        }
        if let (Some(tail), None) = (&args.tail, affine) {
            let data = y.wrapping_add(r0 * width * channels).cast();
            // SAFETY: the part is finished and belongs to this thread.
            unsafe {
                tail.run(&finished_part(
                    c,
                    self.out,
                    (data, channels),
                    image,
                    ([r0, r1], [c0, c1]),
                ))
            };
        }
    }

    /// Copies the operands of a tail to a buffer, in the order of the kernels' blocks.
    ///
    /// # Safety
    /// There is one of each for each channel. The buffer has room for two padded rows.
    unsafe fn order_affine(&self, a: &ColumnAffine, buffer: &mut [f32]) -> RowAffine {
        let channels = self.conv.in_channels;
        let (scale, shift) = buffer.split_at_mut(self.padded_channels());
        for (to, from) in [(&mut *scale, a.scale), (&mut *shift, a.shift)] {
            // SAFETY: guaranteed by the caller.
            let from = unsafe { std::slice::from_raw_parts(from, channels) };
            self.order.arrange(self.block, from, to);
        }
        RowAffine {
            scale: scale.as_ptr(),
            shift: shift.as_ptr(),
            bounds: a.bounds,
        }
    }

    /// Output row `r` of channels `c0..c1` of an image. `x` and `y` are the first of these channels in the image and in its result.
    fn row_job(&self, r: usize, x: *const u16, y: *mut u16, [c0, c1]: [usize; 2], affine: Option<RowAffine>) -> RowJob {
        let (c, channels) = (&self.conv, self.conv.in_channels);
        let row = c.input[2] * channels;
        let (taps, first) = self.visible_taps(r);
        RowJob {
            x: x.wrapping_add(first * row),
            strides: [row, channels],
            width: c.input[2],
            before: c.padding[2],
            taps,
            weight: self.weight.bytes().as_ptr().cast::<f32>().wrapping_add(c0),
            weight_tap: self.padded_channels(),
            bias: self.bias.as_ptr().wrapping_add(c0),
            y: y.wrapping_add(r * self.out[2] * channels),
            pixels: self.out[2],
            channels: c1 - c0,
            clamp: c.activation.bounds(),
            affine: affine.map(|a| a.skip(c0)),
        }
    }

    /// The number of channels in whole blocks.
    fn padded_channels(&self) -> usize {
        self.conv.in_channels.next_multiple_of(self.block)
    }

    /// The rows of the kernel that overlap the input under output row `r`, and the first input row that they read.
    fn visible_taps(&self, r: usize) -> ([usize; 2], usize) {
        let (c, begin) = (&self.conv, r * self.conv.stride[1]);
        let first = c.padding[1].saturating_sub(begin).min(c.kernel[1]);
        let end = (c.input[1] + c.padding[1]).saturating_sub(begin).min(c.kernel[1]);
        ([first, end.max(first)], (begin + first).saturating_sub(c.padding[1]))
    }
}

impl ConvPlan for RowDepthwise {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let affine = args.tail.and_then(|t| t.affine).filter(|a| a.addend.is_null());
        let mut operands = scratch::take_buffer(if affine.is_some() {
            2 * self.padded_channels()
        } else {
            0
        });
        // SAFETY: the tail has its operands.
        let affine = affine.map(|a| unsafe { self.order_affine(&a, &mut operands) });
        let (cut, panel_cols) = cut_channels(&self.conv, self.isa, self.out, pool.threads());
        run_parts(
            pool,
            &self.conv,
            self.out[1],
            [cut.rows, cut.panels * panel_cols],
            args,
            |args, image, rows, cols| {
                // SAFETY: guaranteed by the caller; chunks own disjoint parts of the output.
                unsafe { self.run_part((args, affine), image, rows, cols) };
            },
        );
    }

    fn describe(&self) -> String {
        let unit = if self.order == BlockOrder::Fours {
            " avx512bf16"
        } else {
            ""
        };
        format!("conv bf16 depthwise in rows {}{unit} packed", self.isa)
    }
}
