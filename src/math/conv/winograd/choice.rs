//! Whether Winograd's method suits a convolution, and which variant.

use crate::math::contract::{Conv, ConvLayout};
use crate::types::DType;

/// The cost of reading a weight from memory once more, in multiply-adds of one lane of a full vector.
const WEIGHT: f64 = 16.0;
/// The cost of transforming one value, in the same unit.
const TRANSFORM: f64 = 6.0;
/// The same beside a direct method that is faster than f32 and does not hide it. Measured with bf16 on Zen 5: 13 to 32, the most for large images.
const EXPOSED_TRANSFORM: f64 = 20.0;
/// The cost of transforming one weight during a run, in the same unit.
const MAKE: f64 = 10.0;

/// A variant of Winograd's method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::math::conv) struct WinogradWay {
    /// The number of outputs along the side of a tile: 2 or 4.
    pub side: usize,
    /// Whether weights are kept untransformed, panel by panel, and transformed as they are used.
    pub fresh: bool,
}

/// The number of bytes by which the transformed weights of `conv` exceed the weights themselves. They are kept if there
/// is room. 0 if `conv` is computed by another method.
pub(in crate::math::conv) fn extra_weight_bytes(conv: &Conv, rate: usize) -> usize {
    match choose_way(conv, true, rate) {
        Some(w) => {
            let each = 4 * (w.side + 2) * (w.side + 2) - 9 * conv.dtype.size();
            each * conv.in_channels * conv.out_channels
        }
        None => 0,
    }
}

/// The variant that is worthwhile for `conv`, if there is one. Without `room` for the transformed weights, every run
/// transforms them again. `rate` products of the direct method take the time of one of f32.
pub(in crate::math::conv) fn choose_way(conv: &Conv, room: bool, rate: usize) -> Option<WinogradWay> {
    let three = conv.kernel == [1, 3, 3] && conv.stride == [1; 3] && conv.dilation == [1; 3];
    let in_f32 = match conv.dtype {
        DType::F32 => true,
        DType::BF16 => [conv.input_layout, conv.output_layout] == [ConvLayout::ChannelsLast; 2],
        _ => false,
    };
    let plain = three && in_f32 && conv.groups == 1 && !conv.transposed && conv.input[0] == 1 && conv.padding[0] == 0;
    let (c, k) = (conv.in_channels as f64, conv.out_channels as f64);
    if !plain || conv.in_channels < 16 || conv.out_channels < 16 {
        return None;
    }
    let [_, h, w] = conv.output_size()?;
    let tiles = |side: usize| (conv.batch * h.div_ceil(side) * w.div_ceil(side)) as f64;
    let transform = if rate == 1 { TRANSFORM } else { EXPOSED_TRANSFORM };
    let cost = |way: WinogradWay| {
        let (points, tiles) = (((way.side + 2) * (way.side + 2)) as f64, tiles(way.side));
        let weights = match way.fresh {
            true => 9.0 * WEIGHT + MAKE * points,
            false => WEIGHT * points,
        };
        (points * tiles + weights) * c * k + transform * points * tiles * (c + k)
    };
    let [two, four] = [2, 4].map(|side| WinogradWay { side, fresh: !room });
    // The larger tile must save enough to justify its rounding error. The smaller tile is no less accurate than a plain
    // sum.
    let way = if cost(four) < 0.9 * cost(two) { four } else { two };
    let direct = 9.0 * ((conv.batch * h * w) as f64 + WEIGHT) * c * k / rate as f64;
    let worth = if way.side == 4 { 0.9 } else { 0.97 };
    (cost(way) < worth * direct).then_some(way)
}
