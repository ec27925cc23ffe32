//! Convolutions with one tap and stride 1, as matrix products on the activations in place.

use super::{bias_of, constant_bias};
use crate::math::contract::{
    Addend, BatchDim, Conv, ConvArgs, ConvConstants, ConvLayout, ConvPlan, MatMul, MatMulArgs, MatMulConstants,
    MatMulPlan,
};
use crate::math::matmul::native::F32MatMulPlan;
use crate::parallel::Pool;
use crate::target::Isa;

/// A plan of such a convolution.
pub(super) struct PointwiseConv {
    product: F32MatMulPlan,
    first: bool,
    has_bias: bool,
    bias: Option<Vec<f32>>,
}

/// Whether `conv` is such a convolution and a matrix product suits it. With channels first, the pixels are the columns
/// of the product, and few pixels would leave vectors half empty.
pub(super) fn is_applicable(conv: &Conv, isa: Isa) -> bool {
    let pixels: usize = conv.input.iter().product();
    let is_pointwise = conv.kernel == [1; 3] && conv.stride == [1; 3] && conv.padding == [0; 3];
    let columns = pixels.next_multiple_of(isa.lanes());
    is_pointwise
        && conv.groups == 1
        && !conv.transposed
        && (conv.input_layout == conv.output_layout || conv.in_channels == 1)
        && (!is_channels_first(conv) || pixels * 100 >= columns * 85)
}

/// Whether the channels of the product are its rows. An input of one channel has both layouts.
pub(super) fn is_channels_first(conv: &Conv) -> bool {
    conv.output_layout == ConvLayout::ChannelsFirst
}

/// The matrix product that `conv`, for which [`is_applicable`] holds, is.
pub(super) fn product(conv: &Conv) -> MatMul {
    let (c, o) = (conv.in_channels, conv.out_channels);
    let pixels: usize = conv.input.iter().product();
    let first = is_channels_first(conv);
    let image = c * pixels;
    // The weight is the same for all images.
    let (mut d, a, b) = match first {
        true => (MatMul::new(conv.dtype, o, pixels, c), 0, image),
        false => (MatMul::linear(conv.dtype, pixels, o, c), image, 0),
    };
    d.batch = vec![BatchDim {
        size: conv.batch,
        a,
        b,
        c: o * pixels,
        addend: 0,
    }];
    d.activation = conv.activation;
    d.bytes = conv.bytes;
    d.addend = conv.bias.then_some(Addend {
        row: first as usize,
        col: !first as usize,
    });
    d
}

impl PointwiseConv {
    /// Plans `conv`, for which [`is_applicable`] holds.
    pub(super) fn new(isa: Isa, conv: &Conv, constants: ConvConstants) -> PointwiseConv {
        let first = is_channels_first(conv);
        let constant = MatMulConstants {
            a: constants.weight.filter(|_| first),
            b: constants.weight.filter(|_| !first),
        };
        PointwiseConv {
            product: F32MatMulPlan::new(isa, &product(conv), constant),
            first,
            has_bias: conv.bias,
            bias: constant_bias(conv, &constants),
        }
    }
}

impl ConvPlan for PointwiseConv {
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs) {
        let (a, b) = if self.first {
            (args.weight, args.x)
        } else {
            (args.x, args.weight)
        };
        let bias = bias_of(self.has_bias, &self.bias, args.bias);
        let product = MatMulArgs {
            a,
            b,
            addend: bias.cast(),
            c: args.y,
            tail: args.tail,
        };
        // SAFETY: the operands of the convolution are those of the product.
        unsafe { self.product.run(pool, &product) };
    }

    fn describe(&self) -> String {
        format!("conv f32 1x1 as {}", self.product.describe())
    }
}
