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
    let segments = &window.segments;
    let mut key = vec![8, conv.in_channels, conv.out_channels, segments.form as usize, form];
    // Units group and pad product indices differently.
    key.extend([conv.groups, segments.tap, segments.run]);
    key.extend(&conv.kernel);
    weight.get_or_pack(&key, |bytes| {
        let panels = window.panels.count();
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

/// Packs a weight in torch's order, `[out, in / groups, taps]`.
///
/// # Safety
/// `src` holds the weight. `dst` is writable for all panels and aligned to 4 bytes.
pub(super) unsafe fn pack(pool: &Pool, conv: &Conv, window: &Window, src: Source, dst: *mut u16) {
    let (panels, segments) = (&window.panels, &window.segments);
    let (taps, channels): (usize, _) = (conv.kernel.iter().product(), panels.group_inputs());
    let (src, dst) = (SharedPtr(&src as *const Source as *mut Source), SharedPtr(dst));
    pool.run(panels.count(), |p| {
        let (start, cols) = (panels.start(p), panels.cols(p));
        // The panel's channels with taps before input channels. An even stride lets pairs be moved as a whole.
        let stride = (taps * segments.tap).next_multiple_of(2);
        let mut reordered = scratch::take_buffer(cols * stride / 2 + 1);
        if channels < segments.tap {
            reordered.fill(0.0);
        }
        let lines = reordered.as_mut_ptr().cast::<u16>();
        // SAFETY: the source outlives the job; the panel lies in the destination and belongs to this chunk.
        unsafe {
            for c in 0..cols {
                let src = (*src.get()).skip((start + c) * taps * channels);
                for tap in 0..taps {
                    let to = lines.add(c * stride + tap * segments.tap + panels.offset(p, start + c));
                    src.skip(tap).copy_bits(taps, channels, to);
                }
            }
            let panel = dst.get().add(p * window.panel_words());
            for s in 0..segments.count {
                let line = Source::Narrow(lines).skip(s * segments.len);
                pack_pairs(
                    line,
                    [1, stride],
                    cols,
                    [segments.len, segments.run],
                    panel.add(s * segments.run * COLS),
                );
            }
        }
    });
}

/// Packs a weight of bytes in torch's order, `[out, in / groups, taps]`.
///
/// # Safety
/// `src` holds the weight, and `dst` has room for all panels.
unsafe fn pack_byte_panels(conv: &Conv, window: &Window, src: *const u8, dst: *mut u8) {
    let (panels, segments) = (&window.panels, &window.segments);
    let (taps, channels): (usize, _) = (conv.kernel.iter().product(), panels.group_inputs());
    let line = taps * segments.tap;
    for p in 0..panels.count() {
        let (start, cols) = (panels.start(p), panels.cols(p));
        // The panel's channels with taps before input channels.
        let mut reordered = AlignedBytes::zeroed(cols * line);
        for (o, to) in reordered.bytes_mut().chunks_exact_mut(line.max(1)).enumerate() {
            for (tap, to) in to.chunks_exact_mut(segments.tap).enumerate() {
                let to = &mut to[panels.offset(p, start + o)..][..channels];
                for (c, to) in to.iter_mut().enumerate() {
                    // SAFETY: guaranteed by the caller.
                    *to = unsafe { *src.add(((start + o) * channels + c) * taps + tap) };
                }
            }
        }
        let src = reordered.bytes().as_ptr();
        for s in 0..segments.count {
            // SAFETY: as above.
            unsafe {
                let to = dst.add(2 * p * window.panel_words() + s * segments.run * COLS);
                pack_bytes(
                    src.add(s * segments.len),
                    [1, line],
                    cols,
                    [segments.len, segments.run],
                    to,
                );
            }
        }
    }
}
