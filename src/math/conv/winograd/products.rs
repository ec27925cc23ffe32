//! The products of transformed tiles with transformed weights, point by point.

use super::weights::{self, Fresh};
use super::{TileLines, Winograd};
use crate::math::conv::ConvOperands;
use crate::math::scratch;
use crate::math::simd::prefetch_to_l2;
use crate::math::tile::{Init, ONE_SEGMENT, Prefetch, TileJob, Tiles, block_size};

/// The number of weight elements that are transformed at a time: a quarter of a 1 MB L2 cache.
const FRESH: usize = 64 << 10;

impl Winograd {
    /// The products of all points of some lines with one panel: `[point][tile][channel of the panel]`.
    ///
    /// # Safety
    /// `m` holds them.
    pub(super) unsafe fn compute_products(
        &self,
        o: &ConvOperands,
        v: *const f32,
        l: &TileLines,
        panel: usize,
        m: *mut f32,
    ) {
        let (nr, c, points) = (self.kernels.nr, self.conv.in_channels, self.points());
        let (first, tiles) = ((l.first - l.block) * self.grid[1], (l.end - l.first) * self.grid[1]);
        let step = match self.fresh {
            true => (FRESH / (points * nr)).clamp(1, c),
            false => c,
        };
        // Points a multiple of 4 KiB apart would share a set of the L1 cache.
        let stride = (step + 1) * nr;
        let mut transformed = scratch::take_buffer(if self.fresh { points * stride } else { 0 });
        for c0 in (0..c).step_by(step) {
            let channels = [c0, step.min(c - c0)];
            if self.fresh {
                // SAFETY: the buffer holds the transformed channels.
                unsafe { self.transform_weights(o.weight, panel, channels, transformed.as_mut_ptr(), stride) };
            }
            for point in 0..points {
                if self.fresh && c0 + step < c {
                    let next = [c0 + step, step.min(c - c0 - step)];
                    self.prefetch_weights(o.weight, panel, next, point);
                }
                let b = match self.fresh {
                    true => transformed.as_ptr().wrapping_add(point * stride),
                    false => o.weight.wrapping_add((panel * points + point) * c * nr),
                };
                let a = v.wrapping_add((point * l.tiles + first) * self.row + c0);
                // SAFETY: guaranteed by the caller.
                unsafe { self.multiply_tiles(a, b, m.add(point * tiles * nr), tiles, channels) };
            }
        }
    }

    /// Multiplies the inputs `a` of some tiles at one point by the weights `b` of one panel. `channels` has the first
    /// input channel and their number. The products of the first channel overwrite `c`; others are added to it.
    ///
    /// # Safety
    /// The operands hold the tiles.
    #[inline(always)]
    unsafe fn multiply_tiles(&self, a: *const f32, b: *const f32, c: *mut f32, tiles: usize, [first, run]: [usize; 2]) {
        let nr = self.kernels.nr;
        let rows = Tiles::new(tiles, self.kernels.mr);
        let step = block_size(run, self.kernels.block_depth());
        for (k, i) in (0..run)
            .step_by(step)
            .flat_map(|k| (0..rows.count()).map(move |i| (k, i)))
        {
            let depth = step.min(run - k);
            let (t, n) = (rows.start(i), rows.start(i + 1) - rows.start(i));
            // Transformed weights are in cache. Others follow each other in memory, point by point.
            let next = match self.fresh {
                true => Prefetch::nothing(b),
                false => Prefetch::share(b.wrapping_add((k + depth) * nr), nr, depth, i, rows.count()),
            };
            // SAFETY: every pointer lies in its array.
            unsafe {
                let job = TileJob {
                    a: a.add(t * self.row + k),
                    a_row: self.row,
                    a_k: 1,
                    segments: ONE_SEGMENT.as_ptr(),
                    segment_count: 1,
                    run: depth,
                    b: b.add(k * nr),
                    b_k: nr,
                    b_panel: 0,
                    c: c.add(t * nr),
                    c_row: nr,
                    cols: nr,
                    init: if first + k == 0 { Init::Zero } else { Init::Output },
                    bias: std::ptr::null(),
                    clamp: None,
                    next,
                };
                self.kernels.tile_kernel(n, 4, false)(&job);
            }
        }
    }

    /// Transforms the weights of some input channels of one panel into `dst`, whose points are `point` apart.
    ///
    /// # Safety
    /// The weights are untransformed; `dst` holds the points.
    unsafe fn transform_weights(
        &self,
        weight: *const f32,
        panel: usize,
        [first, channels]: [usize; 2],
        dst: *mut f32,
        point: usize,
    ) {
        let (nr, c) = (self.kernels.nr, self.conv.in_channels);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let job = Fresh {
                src: weight.add((panel * 9 * c + first) * nr),
                tap: c * nr,
                channels,
                dst,
                point,
            };
            weights::fresh_kernel(self.isa, self.side)(&job);
        }
    }

    /// Prefetches, from memory, one point's share of the weights of the channels that are multiplied next.
    fn prefetch_weights(&self, weight: *const f32, panel: usize, [first, channels]: [usize; 2], point: usize) {
        let (nr, c) = (self.kernels.nr, self.conv.in_channels);
        let line = nr * channels;
        let part = (9 * line).div_ceil(self.points());
        let (mut i, end) = (point * part, ((point + 1) * part).min(9 * line));
        while i < end {
            let n = (line - i % line).min(end - i);
            let tap = (panel * 9 + i / line) * c + first;
            prefetch_elements(weight.wrapping_add(tap * nr + i % line), n);
            i += n;
        }
    }
}

/// Prefetches `n` elements into the L2 cache.
fn prefetch_elements(p: *const f32, n: usize) {
    for i in (0..n).step_by(16) {
        prefetch_to_l2(p.wrapping_add(i).cast());
    }
}
