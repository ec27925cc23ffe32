//! Weights as panels of pairs: for each segment of product indices, the panel's output channels.

use super::window::Window;
use crate::math::contract::{Constant, Conv};
use crate::math::pairs::pack::{Source, pack_bytes, pack_pairs};
use crate::math::pairs::{COLS, PairKernels};
use crate::math::scratch::{self, SharedPtr};
use crate::parallel::Pool;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;

/// The packed form of a constant weight.
pub(super) fn pack_constant(
    kernels: &PairKernels,
    conv: &Conv,
    window: &Window,
    weight: Constant,
) -> Arc<AlignedBytes> {
    let wide = conv.dtype == DType::F32;
    let (_, form) = kernels.describe_factors(wide);
    let mut key = vec![8, conv.in_channels, conv.out_channels, window.gathers as usize, form];
    key.extend(&conv.kernel);
    weight.get_or_pack(&key, |bytes| {
        let panels = conv.out_channels.div_ceil(COLS);
        let mut packed = AlignedBytes::zeroed_in_huge_pages(2 * panels * window.panel_words());
        let dst = packed.bytes_mut().as_mut_ptr();
        if kernels.are_bytes() {
            // SAFETY: the plan's caller checked the constant's length; the buffer has room for all panels.
            unsafe { pack_byte_panels(conv, window, bytes.as_ptr(), dst) };
            return packed;
        }
        let aligned = bytes.as_ptr().align_offset(conv.dtype.size()) == 0;
        let copy = (!aligned).then(|| AlignedBytes::from_slice(bytes));
        let src = copy.as_ref().map_or(bytes, |c| c.bytes()).as_ptr();
        // SAFETY: as above.
        unsafe { pack(&Pool::new(1), conv, window, Source::new(src, wide), dst.cast()) };
        packed
    })
}

/// Packs a weight in torch's order, `[out, in, taps]`.
///
/// # Safety
/// `src` holds the weight. `dst` is writable for all panels and aligned to 4 bytes.
pub(super) unsafe fn pack(pool: &Pool, conv: &Conv, window: &Window, src: Source, dst: *mut u16) {
    let (taps, channels): (usize, _) = (conv.kernel.iter().product(), conv.in_channels);
    let line = taps * channels;
    let (src, dst) = (SharedPtr(&src as *const Source as *mut Source), SharedPtr(dst));
    pool.run(conv.out_channels.div_ceil(COLS), |p| {
        let cols = (conv.out_channels - p * COLS).min(COLS);
        // The panel's channels with taps before input channels. An even stride lets pairs be moved as a whole.
        let stride = line.next_multiple_of(2);
        let mut reordered = scratch::take_buffer(cols * stride / 2 + 1);
        let lines = reordered.as_mut_ptr().cast::<u16>();
        // SAFETY: the source outlives the job; the panel lies in the destination and belongs to this chunk.
        unsafe {
            let src = (*src.get()).skip(p * COLS * line);
            for c in 0..cols {
                for tap in 0..taps {
                    let to = lines.add(c * stride + tap * channels);
                    src.skip(c * line + tap).copy_bits(taps, channels, to);
                }
            }
            let panel = dst.get().add(p * window.panel_words());
            let lines = Source::Narrow(lines);
            match window.gathers {
                true => pack_pairs(lines, [1, stride], cols, line, panel),
                false => {
                    for tap in 0..taps {
                        let to = panel.add(tap * window.pixel * COLS);
                        pack_pairs(lines.skip(tap * channels), [1, stride], cols, channels, to);
                    }
                }
            }
        }
    });
}

/// Packs a weight of bytes in torch's order, `[out, in, taps]`.
///
/// # Safety
/// `src` holds the weight, and `dst` has room for all panels.
unsafe fn pack_byte_panels(conv: &Conv, window: &Window, src: *const u8, dst: *mut u8) {
    let (taps, channels): (usize, _) = (conv.kernel.iter().product(), conv.in_channels);
    let line = taps * channels;
    // The weight with taps before input channels.
    let mut reordered = AlignedBytes::zeroed(conv.out_channels * line);
    for (o, to) in reordered.bytes_mut().chunks_exact_mut(line.max(1)).enumerate() {
        for (tap, to) in to.chunks_exact_mut(channels).enumerate() {
            for (c, to) in to.iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller.
                *to = unsafe { *src.add(o * line + c * taps + tap) };
            }
        }
    }
    let src = reordered.bytes().as_ptr();
    for p in 0..conv.out_channels.div_ceil(COLS) {
        let cols = (conv.out_channels - p * COLS).min(COLS);
        let first = p * COLS * line;
        // SAFETY: as above.
        unsafe {
            let panel = dst.add(2 * p * window.panel_words());
            if window.gathers {
                pack_bytes(src.add(first), [1, line], cols, line, panel);
                continue;
            }
            for tap in 0..taps {
                let to = panel.add(tap * window.pixel * COLS);
                pack_bytes(src.add(first + tap * channels), [1, line], cols, channels, to);
            }
        }
    }
}
