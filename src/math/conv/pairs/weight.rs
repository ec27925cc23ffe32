//! Weights as panels of pairs: for each segment of product indices, the panel's output channels.

use super::segments::{Segments, TapForm};
use super::window::Window;
use crate::math::contract::{Constant, Conv};
use crate::math::pack::pack_panel;
use crate::math::pairs::pack::{Source, pack_bytes, pack_pairs};
use crate::math::pairs::{COLS, PairKernels};
use crate::math::scratch::{self, SharedPtr};
use crate::parallel::Pool;
use crate::tensor::{AlignedBytes, wide_function};
use crate::types::DType;
use std::borrow::Cow;
use std::sync::Arc;

/// The packed form of the weight that `reorder` makes of a constant and the size of its elements. `order` identifies the order; it is empty
/// if `conv` has the constant itself.
pub(super) fn pack_constant(
    (kernels, conv, window): (&PairKernels, &Conv, &Window),
    weight: Constant,
    order: &[usize],
    reorder: impl for<'a> FnOnce(&'a [u8], usize) -> Cow<'a, [u8]>,
) -> Arc<AlignedBytes> {
    let wide = conv.dtype == DType::F32;
    let (_, form) = kernels.describe_factors(wide);
    let segments = &window.segments;
    let mut key = vec![8, conv.in_channels, conv.out_channels, segments.form as usize, form];
    // Units group and pad product indices differently.
    key.extend([conv.groups, segments.tap, segments.run]);
    key.extend(&conv.kernel);
    key.extend(order);
    weight.get_or_pack(&key, |bytes| {
        let bytes = &*reorder(bytes, conv.factor_size());
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
        unsafe { pack(Pool::alone(), conv, window, Source::new(src, wide), dst.cast()) };
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
        // SAFETY: the source outlives the job; the panel lies in the destination and belongs to this chunk.
        unsafe {
            let source = (*src.get()).skip(panels.start(p) * taps * channels);
            let panel = dst.get().add(p * window.panel_words());
            let Some(pairs) = channel_pairs(source, channels, segments) else {
                return pack_reordered(window, p, (source, taps), panel);
            };
            let job = TapPairs {
                pairs,
                taps,
                channels,
                cols: panels.cols(p),
                tap_rows: if segments.count == 1 { channels } else { segments.run } / 2,
            };
            if segments.len < segments.run {
                panel.write_bytes(0, window.panel_words());
            }
            job.pack(panel.cast());
        }
    });
}

/// Packs panel `p`, whose weight is first copied to where taps are before input channels.
///
/// # Safety
/// The source has the panel's output channels; `panel` is writable and aligned to 4 bytes.
unsafe fn pack_reordered(window: &Window, p: usize, (src, taps): (Source, usize), panel: *mut u16) {
    let (panels, segments) = (&window.panels, &window.segments);
    let (start, cols, channels) = (panels.start(p), panels.cols(p), panels.group_inputs());
    // An even stride lets pairs be moved as a whole.
    let stride = (taps * segments.tap).next_multiple_of(2);
    let mut reordered = scratch::take_buffer(cols * stride / 2 + 1);
    if channels < segments.tap {
        reordered.fill(0.0);
    }
    let lines = reordered.as_mut_ptr().cast::<u16>();
    // SAFETY: guaranteed by the caller; the buffer has a line for each column.
    unsafe {
        for c in 0..cols {
            let src = src.skip(c * taps * channels);
            for tap in 0..taps {
                let to = lines.add(c * stride + tap * segments.tap + panels.offset(p, start + c));
                src.skip(tap).copy_bits(taps, channels, to);
            }
        }
        for s in 0..segments.count {
            let line = Source::Narrow(lines).skip(s * segments.len);
            let depth = [segments.len, segments.run];
            pack_pairs(line, [1, stride], cols, depth, panel.add(s * segments.run * COLS));
        }
    }
}

/// The weight of a panel as words of two adjacent elements, if its pairs can be joined from these: each pair is two input channels of a
/// tap, and the panel has one group.
fn channel_pairs(src: Source, channels: usize, segments: &Segments) -> Option<*const f32> {
    let whole = segments.tap == channels && channels.is_multiple_of(2) && segments.form != TapForm::Rows;
    match src {
        Source::Narrow(p) if whole && p.cast::<f32>().is_aligned() => Some(p.cast()),
        _ => None,
    }
}

/// The number of words that are transposed at a time, in the L1 cache.
const WORDS: usize = 4096;

/// Packs the pairs of input channels of each tap of a panel.
struct TapPairs {
    /// The weight of the panel's first output channel, in words of two elements.
    pairs: *const f32,
    taps: usize,
    /// The number of input channels, which is even.
    channels: usize,
    cols: usize,
    /// The number of rows of the panel that belong to a tap.
    tap_rows: usize,
}

impl TapPairs {
    /// Writes rows of [`COLS`] pairs: the input channels of the first tap, those of the second, and so on.
    ///
    /// # Safety
    /// The weight is readable for the columns, and the panel is writable.
    unsafe fn pack(&self, panel: *mut u32) {
        let line = self.channels * self.taps / 2;
        let most = (WORDS / (self.taps * COLS) * 2).clamp(2, self.channels);
        let mut block = scratch::take_buffer(most / 2 * self.taps * COLS);
        for first in (0..self.channels).step_by(most) {
            let count = most.min(self.channels - first);
            // SAFETY: guaranteed by the caller; the block has room for the words, which have any bits.
            unsafe {
                let words = count / 2 * self.taps;
                let src = self.pairs.add(first / 2 * self.taps);
                pack_panel(src, line, 1, self.cols, COLS, words, block.as_mut_ptr());
                let block = std::slice::from_raw_parts(block.as_ptr().cast::<[u32; COLS]>(), words);
                for tap in 0..self.taps {
                    let to = panel.add((tap * self.tap_rows + first / 2) * COLS);
                    let to = std::slice::from_raw_parts_mut(to.cast::<[u32; COLS]>(), count / 2);
                    join_channels(block, [tap, self.taps], to);
                }
            }
        }
    }
}

wide_function! {
    /// Joins the elements of each two input channels of a tap. Row `i` of `words` has elements `2 * i` and `2 * i + 1` of the columns,
    /// whose channels are `taps` elements apart.
    fn join_channels = join_channels_body(words: &[[u32; COLS]], tap_of: [usize; 2], to: &mut [[u32; COLS]])
}

#[inline(always)]
fn join_channels_body(words: &[[u32; COLS]], [tap, taps]: [usize; 2], to: &mut [[u32; COLS]]) {
    for i in 0..to.len() {
        let even = 2 * i * taps + tap;
        let odd = even + taps;
        let (x, y) = (&words[even / 2], &words[odd / 2]);
        let [x_shift, y_shift] = [even, odd].map(|at| 16 * (at % 2) as u32);
        let pairs = &mut to[i];
        for c in 0..COLS {
            pairs[c] = x[c] >> x_shift & 0xffff | y[c] >> y_shift << 16;
        }
    }
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
