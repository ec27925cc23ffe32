//! The memory plan: the offsets of intermediate buffers in one arena.
//!
//! A buffer is live from the step that writes it to the last step that reads it. Buffers that are never live at the
//! same time may share memory. The largest are placed first, each at the lowest offset that is free for its whole live
//! range (greedy by size, as in Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).

use crate::tensor::ALIGN;
use smallvec::SmallVec;

/// The live range and size of a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LiveRange {
    /// The size in bytes.
    pub size: usize,
    /// The step that writes it.
    pub first: usize,
    /// The last step that reads it.
    pub last: usize,
}

/// The placed buffers that are live at a step.
type Alive = SmallVec<[usize; 8]>;

/// Returns one offset per buffer, and the arena's size. Sizes that add up to more than the address space saturate; such
/// an arena is never allocated.
pub(super) fn plan_offsets(lives: &[LiveRange]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..lives.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(lives[i].size), i));
    let mut offsets = vec![0usize; lives.len()];
    // The buffers placed so far.
    let mut placed: Vec<usize> = vec![];
    // The placed buffers that are live at each step.
    let mut alive = vec![Alive::new(); lives.iter().map(|l| l.last + 1).max().unwrap_or(0)];
    let mut total = 0usize;
    let mut others: Vec<usize> = vec![];
    for i in order {
        let LiveRange { size, first, last } = lives[i];
        find_overlapping(&lives[i], lives, &placed, &alive, &mut others);
        let size = size.next_multiple_of(ALIGN);
        let mut offset = 0usize;
        others.sort_unstable_by_key(|&p| (offsets[p], p));
        for &p in &others {
            if offsets[p] >= offset.saturating_add(size) {
                break;
            }
            offset = offset.max(offsets[p].saturating_add(lives[p].size.next_multiple_of(ALIGN)));
        }
        offsets[i] = offset;
        total = total.max(offset.saturating_add(size));
        placed.push(i);
        alive[first..=last].iter_mut().for_each(|a| a.push(i));
    }
    (offsets, total)
}

/// Finds the placed buffers whose live ranges overlap `range`, each once. `alive` has those of each step.
fn find_overlapping(range: &LiveRange, lives: &[LiveRange], placed: &[usize], alive: &[Alive], found: &mut Vec<usize>) {
    let LiveRange { first, last, .. } = *range;
    found.clear();
    if last - first < placed.len() {
        // Those that are live at the first step, and those that begin later.
        found.extend(&alive[first]);
        let later = |s: usize| alive[s].iter().filter(move |&&p| lives[p].first == s);
        found.extend((first + 1..=last).flat_map(later));
    } else {
        // Live for many steps: look through all.
        let overlaps = |p: &&usize| lives[**p].first <= last && first <= lives[**p].last;
        found.extend(placed.iter().filter(overlaps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_alive_together_do_not_overlap() {
        let lives: Vec<LiveRange> = (0..60)
            .map(|i: usize| LiveRange {
                size: (i * 37) % 500 + 1,
                first: i / 2,
                last: i / 2 + (i * 7) % 9,
            })
            .collect();
        let (offsets, total) = plan_offsets(&lives);
        for (i, a) in lives.iter().enumerate() {
            assert!(offsets[i] + a.size <= total && offsets[i] % ALIGN == 0);
            for (j, b) in lives.iter().enumerate().skip(i + 1) {
                let together = a.first <= b.last && b.first <= a.last;
                let apart = offsets[i] + a.size <= offsets[j] || offsets[j] + b.size <= offsets[i];
                assert!(!together || apart, "{i} and {j}");
            }
        }
        let naive: usize = lives.iter().map(|l| l.size.next_multiple_of(ALIGN)).sum();
        assert!(total * 2 < naive, "{total} of {naive}");
    }
}
