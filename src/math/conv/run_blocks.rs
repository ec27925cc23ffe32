//! Splits the product indices of a direct convolution into blocks whose weights stay in the L1 cache.

use crate::math::tile::block_size;
use std::ops::Range;

/// Some product indices: runs of some segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunBlock {
    pub segments: Range<usize>,
    /// The part of each run. It is the whole run if there are several segments.
    pub run: Range<usize>,
}

/// Splits `segments` runs of `run` elements into blocks of at most `most` product indices, as equal as possible.
pub(super) fn cut_blocks(segments: usize, run: usize, most: usize) -> Vec<RunBlock> {
    let parts = run.div_ceil(most).max(1);
    let (run_step, together) = match parts {
        1 => (run, block_size(segments, most / run.max(1))),
        _ => (block_size(run, most), 1),
    };
    let mut blocks = vec![];
    for s in (0..segments).step_by(together) {
        for part in 0..parts {
            blocks.push(RunBlock {
                segments: s..(s + together).min(segments),
                run: part * run_step..((part + 1) * run_step).min(run),
            });
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_product_indices_in_order() {
        for (segments, run, most) in [
            (1, 1, 256),
            (3, 192, 256),
            (9, 40, 256),
            (3, 1536, 256),
            (25, 7, 256),
            (2, 257, 256),
            (1, 0, 256),
        ] {
            let blocks = cut_blocks(segments, run, most);
            let indices = |b: &RunBlock| {
                (
                    b.segments.start * run + b.run.start,
                    (b.segments.end - 1) * run + b.run.end,
                )
            };
            let mut at = 0;
            for b in &blocks {
                let (start, end) = indices(b);
                assert_eq!(start, at, "{segments} {run}: {blocks:?}");
                assert!(end - start <= most, "{segments} {run}: {blocks:?}");
                assert!(
                    b.segments.len() == 1 || b.run == (0..run),
                    "{segments} {run}: {blocks:?}"
                );
                at = end;
            }
            assert_eq!(at, segments * run);
        }
    }
}
