//! Transposed convolution of bf16, channels last, whose windows do not overlap. Each tap is a product of its own, which
//! writes every `stride`-th output pixel.

use crate::math::contract::{
    Addend, BatchDim, Constant, Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, MatMul, MatMulArgs,
    MatMulConstants, MatMulPlan, PlanError,
};
use crate::math::conv::adapt::run_tail;
use crate::math::matmul::pairs::PairMatMulPlan;
use crate::math::pairs::PairKernels;
use crate::parallel::Pool;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;

/// A plan of such a convolution with a constant weight.
pub(in crate::math::conv) struct Bf16Upsample {
    conv: Conv,
    /// The product of each tap, and the offset of its first output element.
    taps: Vec<(PairMatMulPlan, usize)>,
    bias: Option<Arc<AlignedBytes>>,
}

/// The weight, if the convolution is of this kind.
pub(in crate::math::conv) fn applicable_weight<'a>(conv: &Conv, constants: &ConvConstants<'a>) -> Option<Constant<'a>> {
    let c = conv;
    let last = c.input_layout == ConvLayout::ChannelsLast && c.output_layout == ConvLayout::ChannelsLast;
    let apart = c.kernel == c.stride && c.padding == [0; 3] && c.output_padding == [0; 3];
    let flat = c.kernel[0] == 1 && c.input[0] == 1;
    let fits = c.dtype == DType::BF16 && c.transposed && c.groups == 1 && last && apart && flat;
    constants.weight.filter(|_| fits)
}

impl Bf16Upsample {
    /// Plans `conv` with the weight that [`applicable_weight`] returned.
    pub(in crate::math::conv) fn new(
        kernels: PairKernels,
        conv: &Conv,
        constants: ConvConstants,
        weight: Constant,
    ) -> Result<Bf16Upsample, PlanError> {
        let [_, kh, kw] = conv.kernel;
        let out_row = conv.input[2] * kw * conv.out_channels;
        let product = tap_product(conv);
        product.extents().ok_or(PlanError::Size)?;
        let plan = |tap: usize| {
            let constant = MatMulConstants {
                a: None,
                b: Some(weight.skip_bytes(2 * tap)),
            };
            let first = tap / kw * out_row + tap % kw * conv.out_channels;
            (PairMatMulPlan::new(kernels, &product, constant), first)
        };
        Ok(Bf16Upsample {
            taps: (0..kh * kw).map(plan).collect(),
            bias: constants.bias.filter(|_| conv.bias).map(|b| b.aligned_bytes()),
            conv: conv.clone(),
        })
    }
}

/// The product of each tap: the input pixels of a row with the tap's weight. The batch is the images and their rows.
fn tap_product(conv: &Conv) -> MatMul {
    let [_, height, width] = conv.input;
    let [_, kh, kw] = conv.kernel;
    let (channels, out) = (conv.in_channels, conv.out_channels);
    let out_row = width * kw * out;
    let mut product = MatMul::new(conv.dtype, width, out, channels);
    product.b = [out * kh * kw, kh * kw];
    product.c_row = kw * out;
    product.activation = conv.activation;
    product.addend = conv.bias.then_some(Addend { row: 0, col: 1 });
    let dim = |size, a, c| BatchDim {
        size,
        a,
        b: 0,
        c,
        addend: 0,
    };
    let image = height * width * channels;
    product.batch = vec![
        dim(conv.batch, image, height * kh * out_row),
        dim(height, width * channels, kh * out_row),
    ];
    product
}

impl ConvPlan for Bf16Upsample {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        for (product, first) in &self.taps {
            let args = MatMulArgs {
                a: args.x,
                b: std::ptr::null(),
                addend: self.bias.as_ref().map_or(args.bias, |b| b.bytes().as_ptr()),
                c: args.y.wrapping_add(2 * first),
                tail: None,
            };
            // SAFETY: the tap's input, weight and output pixels lie in the convolution's operands.
            unsafe { product.run(pool, &args) };
        }
        // SAFETY: the taps wrote every output pixel.
        unsafe { run_tail(pool, &self.conv, args.y, args.tail) };
    }

    fn describe(&self) -> String {
        let (product, _) = &self.taps[0];
        format!("conv transposed, each tap as {}", product.describe())
    }
}
