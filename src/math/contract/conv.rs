//! The descriptor of convolutions.

use super::{Activation, ByteInput, Constant, TileTail};
use crate::parallel::Pool;
use crate::types::DType;
use serde::{Deserialize, Serialize};

/// The memory order of a convolution's activations, which are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConvLayout {
    /// `[N, C, spatial…]`, torch's default.
    ChannelsFirst,
    /// `[N, spatial…, C]`.
    ChannelsLast,
}

/// `activation(conv(x, weight) + bias)` with one to three spatial dimensions, plain or transposed, as torch's
/// `convolution`. Missing leading dimensions have size 1. Weights are in torch's order: `[out, in / groups, kernel…]`,
/// or `[in, out / groups, kernel…]` if transposed. Padding is with zeros and the same at both ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv {
    /// The dtype of every operand, unless the factors are [`bytes`](Self::bytes).
    pub dtype: DType,
    /// The number of images.
    pub batch: usize,
    /// The number of input channels.
    pub in_channels: usize,
    /// The number of output channels.
    pub out_channels: usize,
    /// The number of groups, which divides both channel counts.
    pub groups: usize,
    /// Depth, height and width of the input.
    pub input: [usize; 3],
    /// The size of the kernel.
    pub kernel: [usize; 3],
    /// The stride, which must not be 0.
    pub stride: [usize; 3],
    /// The padding, which may be larger than the kernel.
    pub padding: [usize; 3],
    /// The dilation, which must not be 0.
    pub dilation: [usize; 3],
    /// Whether this is the transposed convolution.
    pub transposed: bool,
    /// The size added to one end of the output, for transposed convolutions only.
    pub output_padding: [usize; 3],
    /// Whether there is a bias, with one element per output channel.
    pub bias: bool,
    /// The layout of the input.
    pub input_layout: ConvLayout,
    /// The layout of the output.
    pub output_layout: ConvLayout,
    /// The activation, which is applied last.
    pub activation: Activation,
    /// Whether bf16 represents all elements of the factors exactly. Products of pairs are then exact, and sums are
    /// rounded as those of f32. The units that multiply pairs take denormal numbers for zeros.
    pub exact_in_bf16: bool,
    /// For products of bytes: the dtype of the input. The weight is i8 and constant, [`dtype`](Self::dtype) is that of the
    /// result, i32, and there is neither a bias nor an activation.
    pub bytes: Option<ByteInput>,
}

impl Conv {
    /// A dense f32 convolution of stride 1 without padding, channels first, over one `height x width` image.
    pub fn new2d(in_channels: usize, out_channels: usize, image: [usize; 2], kernel: [usize; 2]) -> Conv {
        Conv {
            dtype: DType::F32,
            batch: 1,
            in_channels,
            out_channels,
            groups: 1,
            input: [1, image[0], image[1]],
            kernel: [1, kernel[0], kernel[1]],
            stride: [1; 3],
            padding: [0; 3],
            dilation: [1; 3],
            transposed: false,
            output_padding: [0; 3],
            bias: false,
            input_layout: ConvLayout::ChannelsFirst,
            output_layout: ConvLayout::ChannelsFirst,
            activation: Activation::None,
            exact_in_bf16: false,
            bytes: None,
        }
    }

    /// Depth, height and width of the output. `None` if the parameters are invalid (a zero stride, kernel or dilation,
    /// groups that do not divide the channels, a kernel larger than the padded input) or a size overflows.
    pub fn output_size(&self) -> Option<[usize; 3]> {
        let groups = self.groups != 0
            && self.in_channels.is_multiple_of(self.groups)
            && self.out_channels.is_multiple_of(self.groups);
        if !groups {
            return None;
        }
        let mut out = [0; 3];
        for (d, size) in out.iter_mut().enumerate() {
            *size = self.output_dim(d)?;
        }
        Some(out)
    }

    fn output_dim(&self, d: usize) -> Option<usize> {
        let (input, kernel, stride) = (self.input[d], self.kernel[d], self.stride[d]);
        let (padding, dilation) = (self.padding[d], self.dilation[d]);
        if kernel == 0 || stride == 0 || dilation == 0 {
            return None;
        }
        let reach = dilation.checked_mul(kernel - 1)?.checked_add(1)?;
        let pad2 = padding.checked_mul(2)?;
        if self.transposed {
            let full = input.checked_sub(1)?.checked_mul(stride)?.checked_add(reach)?;
            full.checked_add(self.output_padding[d])?.checked_sub(pad2)
        } else {
            Some(input.checked_add(pad2)?.checked_sub(reach)? / stride + 1)
        }
    }

    /// The number of elements of input, weight, bias and output. `None` if the parameters are invalid or an operand
    /// does not fit the address space.
    pub fn extents(&self) -> Option<[usize; 4]> {
        let out = self.output_size()?;
        let size = self.dtype.size();
        let len = |dims: &[usize]| {
            let n = dims.iter().try_fold(1usize, |a, &d| a.checked_mul(d))?;
            (n.checked_mul(size)? <= isize::MAX as usize).then_some(n)
        };
        let [id, ih, iw] = self.input;
        let [kd, kh, kw] = self.kernel;
        let (outer, inner) = match self.transposed {
            false => (self.out_channels, self.in_channels / self.groups),
            true => (self.in_channels, self.out_channels / self.groups),
        };
        Some([
            len(&[self.batch, self.in_channels, id, ih, iw])?,
            len(&[outer, inner, kd, kh, kw])?,
            if self.bias { self.out_channels } else { 0 },
            len(&[self.batch, self.out_channels, out[0], out[1], out[2]])?,
        ])
    }

    /// The size of an element of the input and of the weight in bytes.
    pub fn factor_size(&self) -> usize {
        if self.bytes.is_some() { 1 } else { self.dtype.size() }
    }

    /// The number of multiply-adds, for estimates.
    pub fn macs(&self) -> f64 {
        let place = if self.transposed {
            Some(self.input)
        } else {
            self.output_size()
        };
        let pixels: f64 = place.unwrap_or([0; 3]).iter().map(|&x| x as f64).product();
        let taps: f64 = self.kernel.iter().map(|&x| x as f64).product();
        let pairs = self.in_channels as f64 * self.out_channels as f64 / self.groups.max(1) as f64;
        self.batch as f64 * pixels * taps * pairs
    }
}

/// The addresses of a [`Conv`]'s operands.
#[derive(Clone, Copy)]
pub struct ConvArgs {
    /// The input.
    pub x: *const u8,
    /// The weight. Not read if it is constant.
    pub weight: *const u8,
    /// The bias. Not read if it is constant or there is none.
    pub bias: *const u8,
    /// The output. It must not overlap any other operand.
    pub y: *mut u8,
    /// The function to run on finished tiles.
    pub tail: Option<TileTail>,
}

/// The constant operands of a [`Conv`], as bytes of the descriptor's dtype.
#[derive(Clone, Copy, Default)]
pub struct ConvConstants<'a> {
    /// The weight.
    pub weight: Option<Constant<'a>>,
    /// The bias. Ignored unless the weight is constant too.
    pub bias: Option<Constant<'a>>,
}

/// A plan that computes a [`Conv`].
pub trait ConvPlan: Send + Sync {
    /// Computes the output.
    ///
    /// # Safety
    /// Every operand that is read is valid for the descriptor's extents and aligned to its dtype; the output is
    /// writable and overlaps no other operand.
    unsafe fn run(&self, pool: &Pool, args: &ConvArgs);
    /// A description of the method, for reports.
    fn describe(&self) -> String;
}

/// A 1x1 convolution followed by a depthwise convolution, the only reader of its result. Both are f32 and
/// channels-last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expansion {
    /// The 1x1 convolution.
    pub first: Conv,
    /// The depthwise convolution.
    pub second: Conv,
}

impl Expansion {
    /// A convolution from `channels` to `between` channels, followed by a depthwise `kernel x kernel` window with
    /// `stride`, padded by half of the window, over one `size x size` image. Both have biases and are clamped as by
    /// relu6.
    pub fn new2d(channels: usize, between: usize, size: usize, kernel: usize, stride: usize) -> Expansion {
        let first = Conv {
            bias: true,
            activation: Activation::Clamp(0.0, 6.0),
            input_layout: ConvLayout::ChannelsLast,
            output_layout: ConvLayout::ChannelsLast,
            ..Conv::new2d(channels, between, [size, size], [1, 1])
        };
        let second = Conv {
            in_channels: between,
            groups: between,
            kernel: [1, kernel, kernel],
            stride: [1, stride, stride],
            padding: [0, kernel / 2, kernel / 2],
            ..first.clone()
        };
        Expansion { first, second }
    }

    /// Whether both convolutions are of this kind and fit together: rows of 3, 5 or 7 taps, no dilation, less padding
    /// than taps.
    pub fn is_supported(&self) -> bool {
        let (a, b) = (&self.first, &self.second);
        let last = |c: &Conv| c.input_layout == ConvLayout::ChannelsLast && c.output_layout == ConvLayout::ChannelsLast;
        let plain = |c: &Conv| c.dtype == DType::F32 && !c.transposed && last(c) && c.dilation == [1; 3];
        let is_pointwise = a.kernel == [1; 3] && a.stride == [1; 3] && a.padding == [0; 3] && a.groups == 1;
        let channels = b.in_channels;
        let depthwise = channels > 1 && b.groups == channels && b.out_channels == channels;
        let flat = b.input[0] == 1 && b.kernel[0] == 1 && b.padding[0] == 0 && b.stride[0] == 1;
        let steps = b.stride[2] == 1 || (b.stride[2] == 2 && b.kernel[2] < 7);
        let taps = matches!(b.kernel[2], 3 | 5 | 7) && (2..=7).contains(&b.kernel[1]) && steps;
        let border = b.padding[1] < b.kernel[1] && b.padding[2] < b.kernel[2];
        let together = a.batch == b.batch && a.out_channels == channels && a.output_size() == Some(b.input);
        let some = b.extents().is_some_and(|e| e[3] > 0) && a.extents().is_some() && a.in_channels > 0;
        plain(a) && plain(b) && is_pointwise && depthwise && flat && taps && border && together && some
    }

    /// The size in bytes of the first convolution's result.
    pub fn between_bytes(&self) -> usize {
        self.first.extents().map_or(0, |e| 4 * e[3])
    }

    /// The number of multiply-adds, for estimates.
    pub fn macs(&self) -> f64 {
        self.first.macs() + self.second.macs()
    }
}

/// The addresses of an [`Expansion`]'s operands. Weights and biases are as in a [`ConvArgs`].
#[derive(Clone, Copy)]
pub struct ExpansionArgs {
    /// The input of the first convolution.
    pub x: *const u8,
    /// The weights of both.
    pub weights: [*const u8; 2],
    /// The biases of both.
    pub biases: [*const u8; 2],
    /// The output of the second convolution. It must not overlap any other operand.
    pub y: *mut u8,
    /// The function to run on pieces of the first result. That result never exists as a whole, so each tile has offset
    /// 0.
    pub middle: Option<TileTail>,
    /// The function to run on finished tiles.
    pub tail: Option<TileTail>,
}

/// A plan that computes an [`Expansion`].
pub trait ExpansionPlan: Send + Sync {
    /// Computes the output.
    ///
    /// # Safety
    /// As for [`ConvPlan::run`].
    unsafe fn run(&self, pool: &Pool, args: &ExpansionArgs);
    /// A description of the method, for reports.
    fn describe(&self) -> String;
}
