//! Partial selection in long lines: counting the leading bits of ranks finds the few elements that a part of the order can contain, and only
//! these are compared.

use super::Placed;
use crate::tensor::with_wide_vectors;
use std::ops::Range;

/// Lines shorter than this are ordered without counting.
pub(super) const LONG: usize = 256;

/// The bits of a rank by which elements are counted, in lines of up to [`VERY_LONG`] elements and in longer ones.
const BITS: u32 = 8;
const MORE_BITS: u32 = 11;
const VERY_LONG: usize = 1 << 14;

/// The maximum number of elements that are compared without counting again.
const ENOUGH: usize = 512;

/// Ranks as numbers of intervals: those from `least` on, `1 << shift` ranks in each.
#[derive(Clone, Copy)]
struct Intervals {
    least: u64,
    shift: u32,
}

impl Intervals {
    /// Intervals of which `1 << bits` hold the ranks from `least` to `greatest`.
    fn new(least: u64, greatest: u64, bits: u32) -> Intervals {
        let width = u64::BITS - (greatest - least).leading_zeros();
        Intervals {
            least,
            shift: width.saturating_sub(bits),
        }
    }

    #[inline(always)]
    fn of(self, rank: u64) -> usize {
        ((rank - self.least) >> self.shift) as usize
    }

    /// The least rank of the first of these intervals and the greatest of the last.
    fn bounds(self, intervals: &Range<usize>) -> (u64, u64) {
        let first = |k: usize| ((k as u64) << self.shift).saturating_add(self.least);
        let last = (intervals.end as u64 - 1) << self.shift | ((1 << self.shift) - 1);
        (first(intervals.start), last.saturating_add(self.least))
    }
}

/// Replaces `placed` by the elements of a line of which a part of its order is among them. Returns the number of lesser elements, which
/// are left out. `part` is a part of the line, and not empty.
pub(super) fn collect_near<P: Placed>(ranks: &[P::Rank], part: &Range<usize>, placed: &mut Vec<P>) -> usize {
    let bits = if ranks.len() > VERY_LONG { MORE_BITS } else { BITS };
    let (least, greatest) = with_wide_vectors(|| {
        ranks.iter().fold((ranks[0], ranks[0]), |(low, high), &r| {
            (if r < low { r } else { low }, if r > high { r } else { high })
        })
    });
    let mut intervals = Intervals::new(least.into(), greatest.into(), bits);
    let counts = count(ranks.iter().map(|&r| intervals.of(r.into())), bits);
    let (mut range, mut before, kept) = intervals_of_part(&counts, part);
    let (low, high) = intervals.bounds(&range);
    placed.clear();
    placed.resize(kept + 1, P::new(least, 0));
    let mut end = 0;
    for (k, &r) in ranks.iter().enumerate() {
        // Without a branch, which would be mispredicted.
        placed[end] = P::new(r, k);
        end += usize::from(within(r.into(), low, high));
    }
    placed.truncate(kept);
    // Where one interval holds all of the part, its ranks are divided further.
    while range.len() == 1 && intervals.shift > 0 && placed.len() > ENOUGH {
        let (low, high) = intervals.bounds(&range);
        intervals = Intervals::new(low, high, bits);
        let counts = count(placed.iter().map(|p| intervals.of(p.rank().into())), bits);
        let rest = part.start - before..part.end - before;
        let (next, fewer, _) = intervals_of_part(&counts, &rest);
        let (low, high) = intervals.bounds(&next);
        placed.retain(|p| within(p.rank().into(), low, high));
        (range, before) = (next, before + fewer);
    }
    before
}

#[inline(always)]
fn within(rank: u64, low: u64, high: u64) -> bool {
    (rank >= low) & (rank <= high)
}

/// The number of elements in each of `1 << bits` intervals.
fn count(intervals: impl Iterator<Item = usize>, bits: u32) -> Vec<usize> {
    let mut counts = vec![0u32; 2 << bits];
    let (even, odd) = counts.split_at_mut(1 << bits);
    let mask = even.len() - 1;
    // Two lists, because neighbours are often in the same interval, and then one waits for the other.
    let mut is_odd = false;
    for k in intervals {
        let list = if is_odd { &mut *odd } else { &mut *even };
        list[k & mask] += 1;
        is_odd = !is_odd;
    }
    even.iter()
        .zip(odd.iter())
        .map(|(&a, &b)| a as usize + b as usize)
        .collect()
}

/// The intervals with a part of the order, the number of elements before them and in them.
fn intervals_of_part(counts: &[usize], part: &Range<usize>) -> (Range<usize>, usize, usize) {
    let (mut start, mut before) = (0, 0);
    while before + counts[start] <= part.start {
        before += counts[start];
        start += 1;
    }
    let (mut end, mut kept) = (start, 0);
    while before + kept < part.end {
        kept += counts[end];
        end += 1;
    }
    (start..end, before, kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::SplitMix;

    /// The ranks of a part of a line in order, found among the elements near it.
    fn found(ranks: &[u32], part: Range<usize>) -> Vec<u64> {
        let mut placed = vec![];
        let before = collect_near::<u64>(ranks, &part, &mut placed);
        placed.sort_unstable();
        placed[part.start - before..part.end - before].to_vec()
    }

    #[test]
    fn parts_are_among_the_elements_near_them() {
        let mut random = SplitMix::new(3);
        let n = 20000;
        let lines: [&mut dyn FnMut(usize) -> u32; 6] = [
            &mut |_| random.next_below(1 << 32) as u32,
            &mut |k| (k % 7) as u32,
            &mut |_| u32::MAX,
            &mut |k| if k == 5 { 0 } else { u32::MAX - (k as u32 * 7919) % 5000 },
            &mut |k| 1 << (k % 32),
            &mut |k| k as u32,
        ];
        for line in lines {
            let ranks: Vec<u32> = (0..n).map(line).collect();
            for n in [1, 300, n] {
                let mut order: Vec<u64> = (0..n).map(|k| <u64 as Placed>::new(ranks[k], k)).collect();
                order.sort_unstable();
                for part in [0..1, n / 2..n / 2 + 1, n - 1..n, n / 3..n / 2 + 1, 0..n / 2 + 1] {
                    assert_eq!(found(&ranks[..n], part.clone()), order[part]);
                }
            }
        }
    }

    #[test]
    fn ranks_of_eight_bytes_are_divided_too() {
        let ranks: Vec<u64> = (0..5000u64)
            .map(|k| (k * 7919 % 5000) << 40 | 3)
            .chain([u64::MAX, 0])
            .collect();
        let mut placed: Vec<u128> = vec![];
        let before = collect_near(&ranks, &(2500..2501), &mut placed);
        placed.sort_unstable();
        assert_eq!(placed[2500 - before].rank(), 2499 << 40 | 3);
        assert!(placed.len() < 600, "{}", placed.len());
    }
}
