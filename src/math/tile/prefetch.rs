//! What tiles prefetch while they multiply.

use crate::math::simd::prefetch_to_l2;

/// What a tile prefetches of the panel that is multiplied next. The first tile of a panel would wait for memory: each
/// page of a panel takes less time than the processor's own prefetcher needs to follow.
#[derive(Clone, Copy)]
pub(in crate::math) struct Prefetch {
    /// The first element to prefetch.
    from: *const f32,
    /// The number of elements for each product index.
    step: usize,
}

impl Prefetch {
    /// The largest number of tiles that share a panel.
    const MOST: usize = 4;

    /// Nothing: `p` is any operand of the tile, which is in cache already.
    pub(in crate::math) fn nothing(p: *const f32) -> Prefetch {
        Prefetch { from: p, step: 0 }
    }

    /// Prefetches the elements of one product index.
    #[inline(always)]
    pub(super) fn issue(&mut self) {
        prefetch_to_l2(self.from.cast());
        self.from = self.from.wrapping_add(self.step);
    }

    /// The share of tile `i` of the `count` tiles before panel `next`, which has `nr` columns and `depth` product indices.
    #[inline(always)]
    pub(in crate::math) fn share(next: *const f32, nr: usize, depth: usize, i: usize, count: usize) -> Prefetch {
        let shares = match count {
            1 => 1,
            2 | 3 => 2,
            _ => Self::MOST,
        };
        match i < shares {
            true => Prefetch {
                from: next.wrapping_add(i * depth * nr / shares),
                step: nr / shares,
            },
            false => Prefetch::nothing(next),
        }
    }
}
