//! The order of equal elements.

use super::close::bounds;
use super::few::{are_few, most_insertions};
use super::heaps::{partial_sort, partial_sort_ranks};
use super::introsort::{nth_element, quick_select, sort};
use super::{Line, Placed, place_ranks};
use crate::tensor::with_wide_vectors;
use std::ops::Range;

/// Which of several equal elements comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::op::rows) enum Ties {
    /// The one that is first in its line.
    Stable,
    /// The one that `std::sort` puts first, as in `torch.sort` without `stable=True`.
    Sort,
    /// The one that `torch.topk` returns first. `in_order`: whether the result is sorted.
    Top { in_order: bool },
    /// The one that `torch.kthvalue` returns.
    Kth,
}

/// `std::sort` inserts lines up to this length, which keeps the order of equal elements.
const INSERTED: usize = 16;
/// `torch.topk` calls `std::partial_sort` if the line is at least so many times as long as its result.
const PARTIAL: usize = 64;

impl Ties {
    /// Whether all lines of `n` elements are in stable order.
    pub(super) fn is_stable(self, n: usize) -> bool {
        match self {
            Ties::Stable => true,
            Ties::Sort => n <= INSERTED,
            Ties::Top { .. } | Ties::Kth => n <= 1,
        }
    }

    /// Whether lines of `n` elements whose first `count` are wanted differ from the stable order although no elements are equal.
    pub(super) fn is_unsorted(self, count: usize, n: usize) -> bool {
        self == Ties::Top { in_order: false } && count * PARTIAL > n
    }

    /// Whether torch finds the first `count` elements of a line of `n` by `std::partial_sort`, with a heap of them.
    fn heap_sorts(self, count: usize, n: usize) -> bool {
        matches!(self, Ties::Top { .. }) && count.saturating_mul(PARTIAL) <= n
    }

    /// The pairs of neighbours in the order, by the place of the first one, that must differ for the stable order of `part` to be the
    /// only one.
    pub(super) fn pairs_that_differ(part: &Range<usize>, n: usize) -> Range<usize> {
        part.start.saturating_sub(1)..part.end.min(n.saturating_sub(1))
    }

    /// Puts the elements of a part of the order to their places in the line, as torch's algorithm does.
    pub(in crate::op::rows) fn arrange<P: Placed>(self, line: &mut [P], part: &Range<usize>) {
        let count = part.end;
        match self {
            Ties::Stable => line.sort_unstable(),
            Ties::Sort => sort(line),
            Ties::Top { .. } if self.heap_sorts(count, line.len()) => partial_sort(line, count),
            Ties::Top { in_order } => {
                nth_element(line, count - 1);
                if in_order {
                    sort(&mut line[..count - 1]);
                }
            }
            Ties::Kth => quick_select(line, count - 1),
        }
    }
}

impl<P: Placed> Line<P> {
    /// Appends the places of the elements in a part of the line's order. The stable order is found faster, and is the only one if no
    /// elements in question are equal. After a line in which some are, it is not tried again.
    pub(super) fn select(&mut self, part: &Range<usize>, ties: Ties, is_float: bool) {
        let n = self.ranks.len();
        if part.is_empty() || ties.is_stable(n) {
            return self.order_part(part.clone());
        }
        let heap_sorts = ties.heap_sorts(part.end, n);
        if heap_sorts && are_few(part.end, n) && self.heap_sort(part, most_insertions(part.end, n)) {
            return;
        }
        let must_arrange = self.expects_ties || ties.is_unsorted(part.end, n) || !is_float && self.must_have_ties();
        if !must_arrange {
            if self.order_untied(part, ties) {
                return;
            }
            self.expects_ties = true;
            self.order.clear();
        }
        if heap_sorts && self.heap_sort(part, usize::MAX) {
            return;
        }
        place_ranks(&self.ranks, &mut self.placed);
        ties.arrange(&mut self.placed, part);
        self.order.extend(self.placed[part.clone()].iter().map(|p| p.place()));
    }

    /// Appends the places of a part of the line's order as `std::partial_sort` leaves it; false if more than `most` elements enter its heap.
    fn heap_sort(&mut self, part: &Range<usize>, most: usize) -> bool {
        let is_sorted = partial_sort_ranks(&self.ranks, part.end, &mut self.placed, most);
        if is_sorted {
            self.order.extend(self.placed[part.clone()].iter().map(|p| p.place()));
        }
        is_sorted
    }

    /// Whether there are fewer integers between the least and the greatest one than elements.
    fn must_have_ties(&self) -> bool {
        let (least, greatest) = with_wide_vectors(|| bounds(&self.ranks));
        greatest.into() - least.into() < self.ranks.len() as u64 - 1
    }

    /// Appends the places of a part of the line's stable order; false if equal elements leave another one.
    fn order_untied(&mut self, part: &Range<usize>, ties: Ties) -> bool {
        if ties == Ties::Kth {
            self.order_part(part.clone());
            let found = self.ranks[self.order[0]];
            return with_wide_vectors(|| self.ranks.iter().filter(|r| **r == found).count()) == 1;
        }
        // The element after the part may equal the last one in it.
        let seen = part.start..self.ranks.len().min(part.end + 1);
        let placed = self.place_part(seen);
        let placed = &self.placed[placed];
        let is_tied = with_wide_vectors(|| {
            placed
                .windows(2)
                .fold(false, |any, p| any | (p[0].rank() == p[1].rank()))
        });
        self.order.extend(placed[..part.len()].iter().map(|p| p.place()));
        !is_tied
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::rows::lines::DimLines;
    use crate::op::rows::order::{ShortOrders, Wanted, for_each_ordered_line};
    use crate::parallel::Pool;
    use crate::tensor::Tensor;
    use crate::types::DType;

    /// A number for the places of a result and their order.
    fn digest(places: impl IntoIterator<Item = usize>) -> u32 {
        (places.into_iter()).fold(0, |all: u32, p| all.wrapping_mul(31).wrapping_add(p as u32))
    }

    fn places(t: &Tensor, descending: bool, part: Range<usize>, ties: Ties) -> Vec<usize> {
        let lines = DimLines::new(t.shape(), 0);
        let mut found = [vec![]];
        let wanted = Wanted::Part(part, ties);
        for_each_ordered_line(
            t,
            &lines,
            (descending, &wanted),
            (&mut found, 1),
            &Pool::new(1),
            |out, _, _, order| *out = order.to_vec(),
        );
        std::mem::take(&mut found[0])
    }

    /// Lines of small integers, in which many are equal, and what torch 2.15 returned for them: `sort`, `topk` of a 64th, of half, of half
    /// without order, of the third that is least, and `kthvalue` of the middle.
    const TORCH: [(usize, usize, [u32; 5], usize); 5] = [
        (4, 1, [1026, 2, 65, 65, 2], 0),
        (20, 3, [2686742154, 7, 3655998280, 1048194214, 296851446], 17),
        (100, 5, [3221154490, 2, 2861951346, 1036405224, 594245363], 85),
        (1000, 7, [2724100718, 2712753913, 360067916, 3159960484, 2062579216], 93),
        (
            3000,
            40,
            [4079997416, 2958166089, 1973183689, 1121894013, 1745613415],
            1196,
        ),
    ];

    fn calls(n: usize) -> [(bool, Range<usize>, Ties); 5] {
        let top = Ties::Top { in_order: true };
        [
            (false, 0..n, Ties::Sort),
            (true, 0..(n / 64).max(1), top),
            (true, 0..n.div_ceil(2), top),
            (true, 0..n.div_ceil(2), Ties::Top { in_order: false }),
            (false, 0..(n + 1) / 3, top),
        ]
    }

    /// In falling lines every element enters the heap, so that the first attempt gives up; in rising lines none does.
    #[test]
    fn heaps_of_ranks_leave_the_order_of_heaps_of_lines() {
        let ties = Ties::Top { in_order: true };
        for (n, count, different) in [(5000i32, 3, 5000), (5000, 40, 700), (9000, 140, 3)] {
            for step in [1, -1, 7919] {
                let v: Vec<i32> = (0..n).map(|i| (i * step).rem_euclid(n) * different / n).collect();
                let placed = v.iter().enumerate().map(|(k, &x)| <u64 as Placed>::new(x as u32, k));
                let mut line: Vec<u64> = placed.collect();
                ties.arrange(&mut line, &(0..count));
                let want: Vec<usize> = line[..count].iter().map(|p| p.place()).collect();
                let t = Tensor::from_slice(&[n as usize], &v);
                assert_eq!(
                    places(&t, false, 0..count, ties),
                    want,
                    "{n} {count} {different} {step}"
                );
            }
        }
    }

    fn numbers(n: usize, different: usize) -> Vec<f32> {
        (0..n)
            .map(|i| ((i * i * 7 + i * 3 + i / 5) % different) as f32)
            .collect()
    }

    #[test]
    fn equal_elements_have_the_order_that_torch_gives_them() {
        for (n, different, results, kth) in TORCH {
            let t = Tensor::from_slice(&[n], &numbers(n, different));
            for (call, result) in calls(n).into_iter().zip(results) {
                for t in [t.clone(), t.to(DType::F64), t.to(DType::I64), t.to(DType::U8)] {
                    let found = places(&t, call.0, call.1.clone(), call.2);
                    assert_eq!(digest(found), result, "{n} {} {call:?}", t.dtype());
                }
            }
            let middle = n.div_ceil(2);
            assert_eq!(places(&t, false, middle - 1..middle, Ties::Kth), [kth], "{n}");
        }
    }

    #[test]
    fn many_short_lines_have_it_too() {
        for (n, different, results, _) in &TORCH[..3] {
            let columns: Vec<f32> = (numbers(*n, *different).iter())
                .flat_map(|x| (0..70).map(move |j| if j % 2 == 0 { *x } else { j as f32 }))
                .collect();
            let t = Tensor::from_slice(&[*n, 70], &columns);
            for ((descending, part, ties), result) in calls(*n).into_iter().zip(results) {
                let lines = DimLines::new(t.shape(), 0);
                let orders = ShortOrders::new(&t, &lines, descending, (part.clone(), ties), &Pool::new(2));
                let orders = orders.expect("short lines");
                for line in [0, 2, 68] {
                    let found = part.clone().map(|k| orders.place(line, k - part.start));
                    assert_eq!(digest(found), *result, "{n} {ties:?}");
                }
            }
        }
    }

    #[test]
    fn lines_without_equal_elements_are_sorted_by_blocks_as_by_any_algorithm() {
        let numbers: Vec<f32> = (0..5000).map(|i| ((i * 2741) % 5003) as f32).collect();
        let t = Tensor::from_slice(&[5000], &numbers);
        let stable = places(&t, false, 0..5000, Ties::Stable);
        assert_eq!(places(&t, false, 0..5000, Ties::Sort), stable);
        let mut line: Vec<u64> = (0..5000).map(|k| u64::new(numbers[k] as u32, k)).collect();
        sort(&mut line);
        assert!(line.iter().map(|p| p.place()).eq(stable));
    }
}
