//! The memory plan: where intermediate buffers lie in one arena.
//!
//! A buffer lives from the step that writes it to the last that reads it. Buffers that never live at the same time may
//! lie at the same place; the largest are placed first, each at the lowest offset that is free for its whole life
//! (greedy by size, as in Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).

use crate::tensor::ALIGN;

/// A buffer to place.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Bytes.
    pub size: usize,
    /// The step that writes it.
    pub first: usize,
    /// The last step that reads it.
    pub last: usize,
}

/// Offsets, one per buffer, and the arena's size.
pub fn plan(lives: &[Life]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..lives.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(lives[i].size), i));
    let mut offsets = vec![0usize; lives.len()];
    // What is placed, by offset.
    let mut placed: Vec<usize> = vec![];
    let mut total = 0;
    for i in order {
        let size = lives[i].size.next_multiple_of(ALIGN);
        let mut at = 0;
        for &p in &placed {
            let overlaps = lives[p].first <= lives[i].last && lives[i].first <= lives[p].last;
            if !overlaps {
                continue;
            }
            if offsets[p] >= at + size {
                break;
            }
            at = at.max(offsets[p] + lives[p].size.next_multiple_of(ALIGN));
        }
        offsets[i] = at;
        total = total.max(at + size);
        let slot = placed.partition_point(|&p| offsets[p] <= at);
        placed.insert(slot, i);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_alive_together_do_not_overlap() {
        let lives: Vec<Life> = (0..60)
            .map(|i: usize| Life {
                size: (i * 37) % 500 + 1,
                first: i / 2,
                last: i / 2 + (i * 7) % 9,
            })
            .collect();
        let (offsets, total) = plan(&lives);
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
