//! Long lines of integers that are close to each other: they are counted, or their distances from the least one are ordered, which take
//! half the memory.

use super::{Line, Placed, are_few};
use crate::tensor::with_wide_vectors;
use std::ops::Range;

/// The length from which lines are looked through first.
const LONG: usize = 256;
/// The maximum number of different integers that are counted: the counts stay in the caches.
const COUNTS: usize = 1 << 16;

impl<P: Placed> Line<P> {
    /// Appends the places of the elements in a part of the line's order, if the elements are close enough; returns whether they are.
    pub(super) fn order_close(&mut self, part: Range<usize>) -> bool {
        let n = self.ranks.len();
        if n < LONG || are_few(part.end, n) || part.is_empty() {
            return false;
        }
        let (least, greatest) = with_wide_vectors(|| bounds(&self.ranks));
        let span = greatest.into() - least.into();
        if span < n.min(COUNTS) as u64 {
            self.order_counted(least.into(), span as usize + 1, part);
            return true;
        }
        if size_of::<P>() == size_of::<u64>() || span > u32::MAX as u64 || n > u32::MAX as usize {
            return false;
        }
        let mut near = Line::<u64> {
            ranks: self.ranks.iter().map(|&r| (r.into() - least.into()) as u32).collect(),
            placed: vec![],
            order: std::mem::take(&mut self.order),
            expects_ties: false,
        };
        near.order_part(part);
        self.order = near.order;
        true
    }

    /// Orders elements by counting each of `count` ranks from `least` on. Equal elements keep their order.
    fn order_counted(&mut self, least: u64, count: usize, part: Range<usize>) {
        let key = |r: P::Rank| (r.into() - least) as usize;
        let mut next = vec![0usize; count];
        self.ranks.iter().for_each(|&r| next[key(r)] += 1);
        let mut before = 0;
        for n in &mut next {
            before += std::mem::replace(n, before);
        }
        let done = self.order.len();
        self.order.resize(done + part.len(), 0);
        let order = &mut self.order[done..];
        for (k, &r) in self.ranks.iter().enumerate() {
            let at = &mut next[key(r)];
            // Elements before the part have greater differences than it has places.
            if let Some(to) = order.get_mut(at.wrapping_sub(part.start)) {
                *to = k;
            }
            *at += 1;
        }
    }
}

/// The least and the greatest of some ranks.
#[inline(always)]
pub(super) fn bounds<R: Copy + Ord>(ranks: &[R]) -> (R, R) {
    let (mut least, mut greatest) = (ranks[0], ranks[0]);
    for &r in ranks {
        least = if r < least { r } else { least };
        greatest = if r > greatest { r } else { greatest };
    }
    (least, greatest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ranks: Vec<u64>, is_close: bool) {
        let mut whole: Vec<usize> = (0..ranks.len()).collect();
        whole.sort_by_key(|&k| ranks[k]);
        let n = ranks.len();
        for part in [0..n, 0..n / 2, n / 2..n / 2 + 1, n - 9..n] {
            let mut line = Line::<u128> {
                expects_ties: false,
                ranks: ranks.clone(),
                placed: vec![],
                order: vec![],
            };
            assert_eq!(line.order_close(part.clone()), is_close);
            assert!(!is_close || line.order == whole[part]);
        }
    }

    #[test]
    fn close_integers_are_in_stable_order() {
        let some = |n: usize, f: fn(u64) -> u64| (0..n as u64).map(f).collect();
        check(some(700, |i| (1 << 63) - 50 + i * 37 % 101), true);
        check(some(700, |i| i * 37 % 101 * 1000), true);
        check(some(700, |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)), false);
        check(some(700, |_| u64::MAX), true);
        check(some(100, |i| i % 7), false);
    }
}
