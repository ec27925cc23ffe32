//! Weights packed for the direct method: panels of output channels. Winograd's method uses the same form when it
//! transforms weights during the run, so problem sizes that use either method share the packed weights.

use crate::math::contract::Conv;
use crate::math::pack::pack_panel;
use crate::math::scratch::{self, SharedPtr};
use crate::parallel::Pool;

/// Some output channels of one group: the columns of one tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    /// The group's first input channel.
    pub input: usize,
    /// The first output channel.
    pub channel: usize,
    /// How many output channels.
    pub cols: usize,
}

/// The number of panels of at most `nr` channels in all groups.
fn panel_count(conv: &Conv, nr: usize) -> usize {
    conv.groups * (conv.out_channels / conv.groups).div_ceil(nr)
}

/// Panel `p` of all groups.
fn panel_at(conv: &Conv, nr: usize, p: usize) -> Panel {
    let (gi, go) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
    let per_group = go.div_ceil(nr);
    let (g, first) = (p / per_group, p % per_group * nr);
    Panel {
        input: g * gi,
        channel: g * go + first,
        cols: (go - first).min(nr),
    }
}

/// The panels of all groups, each of at most `nr` channels.
pub(super) fn cut_panels(conv: &Conv, nr: usize) -> Vec<Panel> {
    (0..panel_count(conv, nr)).map(|p| panel_at(conv, nr, p)).collect()
}

/// The key of this form: see [`Method::packing_key`](super::Method::packing_key).
pub(super) fn packing_key(nr: usize) -> [usize; 2] {
    [1, nr]
}

/// The number of elements that are transposed at a time, in the L1 cache.
const BLOCK: usize = 4096;

/// Packs panel after panel: for each tap and input channel, the panel's output channels side by side.
pub(super) fn pack_panels(pool: &Pool, conv: &Conv, nr: usize, weight: &[f32], packed: &mut [f32]) {
    let taps: usize = conv.kernel.iter().product();
    let channels = conv.in_channels / conv.groups;
    let panels = panel_count(conv, nr);
    let line = channels * taps;
    if line == 0 || panels == 0 {
        return;
    }
    assert!(packed.len() >= panels * line * nr && weight.len() >= conv.out_channels * line);
    let dst = SharedPtr(packed.as_mut_ptr());
    pool.run(panels, |p| {
        let Panel { channel, cols, .. } = panel_at(conv, nr, p);
        // SAFETY: panel `p` of the destination, whose length the assertion above checked, belongs to this chunk.
        let to = unsafe { std::slice::from_raw_parts_mut(dst.get().add(p * line * nr), line * nr) };
        pack_taps(&weight[channel * line..], (channels, taps), (cols, nr), to);
    });
}

/// Packs `cols` output channels of weights of some input channels and taps, the first of which is the first of `weight`: for each tap and
/// input channel, the output channels side by side and zeros up to `width`. Panics if lengths do not fit, or if there are no elements.
pub(super) fn pack_taps(
    weight: &[f32],
    (channels, taps): (usize, usize),
    (cols, width): (usize, usize),
    packed: &mut [f32],
) {
    let line = channels * taps;
    assert!(line > 0 && cols <= width && weight.len() >= cols * line && packed.len() >= line * width);
    let some = (BLOCK / (taps * width)).clamp(1, channels);
    // Dynamic weights are packed in every run, which must not allocate.
    let mut block = scratch::take_buffer(some * taps * width);
    for first in (0..channels).step_by(some) {
        let count = some.min(channels - first);
        // SAFETY: `cols` channels of the weight start there, `line` apart, and each has `count` more input channels. The lengths were
        // checked above.
        unsafe {
            let src = weight.as_ptr().add(first * taps);
            let dst = packed.as_mut_ptr().add(first * width);
            if taps == 1 {
                pack_panel(src, line, 1, cols, width, count, dst);
                continue;
            }
            pack_panel(src, line, 1, cols, width, count * taps, block.as_mut_ptr());
            for (i, from) in block.chunks_exact(width).take(count * taps).enumerate() {
                let to = (i % taps * channels + i / taps) * width;
                dst.add(to).copy_from_nonoverlapping(from.as_ptr(), width);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_lead_then_input_channels() {
        for (c, k, groups, kernel) in [
            (3, 5, 1, [1, 3, 3]),
            (200, 33, 1, [1, 3, 3]),
            (8, 12, 4, [1, 1, 1]),
            (6, 4, 2, [2, 1, 5]),
        ] {
            let conv = Conv {
                kernel,
                groups,
                ..Conv::new2d(c, k, [9, 9], [1, 1])
            };
            let (taps, gi) = (kernel.iter().product::<usize>(), c / groups);
            let weight: Vec<f32> = (0..k * gi * taps).map(|i| i as f32).collect();
            let panels = cut_panels(&conv, 4);
            let mut packed = vec![-1f32; panels.len() * taps * gi * 4];
            pack_panels(&Pool::new(1), &conv, 4, &weight, &mut packed);
            for (i, &got) in packed.iter().enumerate() {
                let (p, tap, input, j) = (i / (taps * gi * 4), i / (gi * 4) % taps, i / 4 % gi, i % 4);
                let want = match j < panels[p].cols {
                    true => weight[((panels[p].channel + j) * gi + input) * taps + tap],
                    false => 0.0,
                };
                assert_eq!(got, want, "{conv:?} element {i}");
            }
        }
    }
}
