//! Blocks of channels: the order in which the kernels of depthwise convolution hold their lanes, and weights in that order.

use crate::math::contract::{Constant, Conv};
use crate::tensor::AlignedBytes;
use half::bf16;
use std::sync::Arc;

/// Which channels of a block the lanes of its two vectors hold.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum BlockOrder {
    /// The second elements of the pairs, then the first ones: the halves of 32-bit words.
    Pairs,
    /// The first four of every eight channels, then the others: what `vpunpcklwd` and `vpunpckhwd` give.
    Fours,
}

impl BlockOrder {
    /// The channel in lane `i` of a block of this many channels.
    fn channel(self, i: usize, block: usize) -> usize {
        let (half, lane) = (block / 2, i % (block / 2));
        match self {
            BlockOrder::Pairs => 2 * lane + usize::from(i < half),
            BlockOrder::Fours => lane / 4 * 8 + lane % 4 + i / half * 4,
        }
    }

    /// Writes the elements of some channels in this order. Those of the channels beyond `from` are zero.
    pub(super) fn arrange<T: Copy + Default>(self, block: usize, from: &[T], to: &mut [T]) {
        let whole = from.len() / block;
        for (from, to) in from.chunks_exact(block).zip(to.chunks_exact_mut(block)) {
            self.arrange_whole(from, to);
        }
        let last = from.len() - whole * block;
        if last > 0 {
            let to = &mut to[whole * block..][..block];
            for (i, to) in to.iter_mut().enumerate() {
                let from = from[whole * block..].get(self.channel(i, block));
                *to = from.copied().unwrap_or_default();
            }
        }
    }

    /// One whole block. Convolutions with a tail do this in each run.
    fn arrange_whole<T: Copy>(self, from: &[T], to: &mut [T]) {
        let (first, second) = to.split_at_mut(from.len() / 2);
        match self {
            BlockOrder::Pairs => {
                for ((pair, first), second) in from.as_chunks::<2>().0.iter().zip(first).zip(second) {
                    [*second, *first] = *pair;
                }
            }
            BlockOrder::Fours => {
                let halves = first
                    .as_chunks_mut::<4>()
                    .0
                    .iter_mut()
                    .zip(second.as_chunks_mut::<4>().0);
                for (eight, (first, second)) in from.as_chunks::<8>().0.iter().zip(halves) {
                    first.copy_from_slice(&eight[..4]);
                    second.copy_from_slice(&eight[4..]);
                }
            }
        }
    }

    /// Elements in this order.
    pub(super) fn in_blocks<T: Copy + Default>(self, block: usize, elements: &[T]) -> Vec<T> {
        let mut arranged = vec![T::default(); elements.len().next_multiple_of(block)];
        self.arrange(block, elements, &mut arranged);
        arranged
    }

    /// The weights, for each tap one word of each channel: in f32, or, in `Fours`, for each two rows of the kernel a pair in bf16.
    /// The second row of the last pair is zero.
    pub(super) fn pack_weight(self, conv: &Conv, block: usize, weight: Constant) -> Arc<AlignedBytes> {
        let channels = conv.in_channels;
        let [_, rows, columns] = conv.kernel;
        let joined = if self == BlockOrder::Fours { 2 } else { 1 };
        let key = [14, channels, rows * columns, block * joined];
        weight.get_or_pack(&key, |bytes| {
            let element = |c: usize, row: usize, column: usize| match row < rows {
                true => element(bytes, (c * rows + row) * columns + column).to_bits() as u32,
                false => 0,
            };
            let tap = channels.next_multiple_of(block);
            let mut packed = AlignedBytes::zeroed(4 * rows.div_ceil(joined) * columns * tap);
            for (t, to) in packed.bytes_mut().chunks_exact_mut((4 * tap).max(1)).enumerate() {
                let (row, column) = (t / columns * joined, t % columns);
                let words = (0..channels).map(|c| match self {
                    BlockOrder::Pairs => element(c, row, column) << 16,
                    BlockOrder::Fours => element(c, row + 1, column) << 16 | element(c, row, column),
                });
                let words = self.in_blocks(block, &words.collect::<Vec<u32>>());
                for (to, word) in to.chunks_exact_mut(4).zip(words) {
                    to.copy_from_slice(&word.to_ne_bytes());
                }
            }
            packed
        })
    }
}

/// Element `i` of a bf16 constant.
pub(super) fn element(bytes: &[u8], i: usize) -> bf16 {
    bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_pairs_have_their_second_elements_first() {
        assert_eq!(BlockOrder::Pairs.in_blocks(4, &[0, 1, 2, 3]), [1, 3, 0, 2]);
        assert_eq!(
            BlockOrder::Pairs.in_blocks(4, &[0, 1, 2, 3, 4]),
            [1, 3, 0, 2, 0, 0, 4, 0]
        );
    }

    #[test]
    fn blocks_of_fours_have_the_lower_half_of_each_eight_first() {
        let channels: Vec<u32> = (0..13).collect();
        let want = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 0, 0, 0];
        assert_eq!(BlockOrder::Fours.in_blocks(16, &channels), want);
        let channels: Vec<u32> = (0..16).collect();
        let want = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15];
        assert_eq!(BlockOrder::Fours.in_blocks(16, &channels), want);
    }
}
