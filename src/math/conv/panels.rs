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
    let some = (BLOCK / (taps * nr)).clamp(1, channels);
    pool.run(panels, |p| {
        let Panel { channel, cols, .. } = panel_at(conv, nr, p);
        // Dynamic weights are packed in every run, which must not allocate.
        let mut block = scratch::take_buffer(some * taps * nr);
        for first in (0..channels).step_by(some) {
            let count = some.min(channels - first);
            // SAFETY: `cols` channels of the weight start there, `line` apart, and each has `count` more input
            // channels. Panel `p` of the destination, whose length the assertion above checked, belongs to this chunk.
            unsafe {
                let src = weight.as_ptr().add(channel * line + first * taps);
                let dst = dst.get().add((p * line + first) * nr);
                if taps == 1 {
                    pack_panel(src, line, 1, cols, nr, count, dst);
                    continue;
                }
                pack_panel(src, line, 1, cols, nr, count * taps, block.as_mut_ptr());
                for (i, from) in block.chunks_exact(nr).take(count * taps).enumerate() {
                    let to = (i % taps * channels + i / taps) * nr;
                    dst.add(to).copy_from_nonoverlapping(from.as_ptr(), nr);
                }
            }
        }
    });
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
