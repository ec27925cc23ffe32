//! The selection and sorting algorithms of libstdc++ and of torch, exchange by exchange.
//!
//! torch sorts and selects pairs of a value and its index with `std::sort`, `std::nth_element` and `std::partial_sort`, and compares
//! only the values. Which of several equal elements it returns, and in which order, follows from the exchanges that these make. Models
//! depend on it: a router or a detection head whose scores are all equal chooses the same experts and the same boxes only if ties break
//! the same way.
//!
//! The functions have the names and the structure of `bits/stl_algo.h` and `bits/stl_heap.h` of GCC. Elements are compared by their
//! ranks alone.

use super::Placed;
use super::heaps::{heap_select, less, partial_sort};
use std::ops::RangeInclusive;

/// Ranges up to this length are sorted by insertion at the end (`_S_threshold`).
const THRESHOLD: usize = 16;

/// `std::sort`.
pub(super) fn sort<P: Placed>(line: &mut [P]) {
    let n = line.len();
    introsort_loop(line, depth_limit(n));
    let first = n.min(THRESHOLD);
    insertion_sort(&mut line[..first]);
    (first..n).for_each(|i| unguarded_linear_insert(line, i));
}

/// `std::nth_element`: the element at `nth` is the one that sorting puts there, and those before it are not greater.
pub(super) fn nth_element<P: Placed>(line: &mut [P], nth: usize) {
    let (mut first, mut last) = (0, line.len());
    let mut depth = depth_limit(last);
    while last - first > 3 {
        if depth == 0 {
            heap_select(&mut line[first..last], nth + 1 - first);
            return line.swap(first, nth);
        }
        depth -= 1;
        let cut = first + partition_pivot(&mut line[first..last]);
        if cut <= nth { first = cut } else { last = cut }
    }
    insertion_sort(&mut line[first..last]);
}

/// The selection of `torch.kthvalue` (`quick_select_template` in `aten/src/ATen/native/Sorting.cpp`, after Sedgewick, 1978). Where it would
/// take quadratic time, the elements that are left are sorted instead.
pub(super) fn quick_select<P: Placed>(line: &mut [P], nth: usize) {
    if let Some(rest) = select_by(line, nth, less) {
        line[rest].sort_unstable();
    }
}

/// How often [`select_by`] may visit each element. On average it visits each about three times.
const VISITS: usize = 32;

/// Selects by partitions. Returns the range that is left if they take too long.
fn select_by<T: Copy>(line: &mut [T], nth: usize, less: impl Fn(T, T) -> bool) -> Option<RangeInclusive<usize>> {
    let (mut left, mut right) = (0, line.len().saturating_sub(1));
    let mut visits = VISITS * line.len();
    while right > left + 1 {
        if visits < right - left {
            return Some(left..=right);
        }
        visits -= right - left;
        let (i, j) = partition_between(line, left, right, &less);
        if j >= nth {
            right = j.saturating_sub(1);
        }
        if j <= nth {
            left = i;
        }
    }
    if right == left + 1 && less(line[right], line[left]) {
        line.swap(left, right);
    }
    None
}

/// Partitions `line[left..=right]` around the median of three elements, and returns where the second part begins and where the pivot is.
fn partition_between<T: Copy>(
    line: &mut [T],
    left: usize,
    right: usize,
    less: &impl Fn(T, T) -> bool,
) -> (usize, usize) {
    line.swap((left + right) / 2, left + 1);
    for (a, b) in [(left + 1, right), (left, right), (left + 1, left)] {
        if less(line[b], line[a]) {
            line.swap(a, b);
        }
    }
    let (mut i, mut j) = (left + 1, right);
    let pivot = line[left];
    loop {
        i += 1;
        while less(line[i], pivot) {
            i += 1;
        }
        j -= 1;
        while less(pivot, line[j]) {
            j -= 1;
        }
        if j < i {
            break;
        }
        line.swap(i, j);
    }
    line.swap(left, j);
    (i, j)
}

/// Partitions deeper than this are sorted by a heap, so that no input takes quadratic time.
fn depth_limit(n: usize) -> u32 {
    2 * n.checked_ilog2().unwrap_or(0)
}

fn introsort_loop<P: Placed>(line: &mut [P], mut depth: u32) {
    let mut last = line.len();
    while last > THRESHOLD {
        if depth == 0 {
            return partial_sort(&mut line[..last], last);
        }
        depth -= 1;
        let cut = partition_pivot(&mut line[..last]);
        introsort_loop(&mut line[cut..last], depth);
        last = cut;
    }
}

/// Partitions a range of more than three elements around the median of three of them, and returns where the second part begins.
fn partition_pivot<P: Placed>(line: &mut [P]) -> usize {
    let n = line.len();
    let median = middle_of(line, [1, n / 2, n - 1]);
    line.swap(0, median);
    partition(line)
}

/// The one of three places whose element is the median (`__move_median_to_first`).
fn middle_of<P: Placed>(line: &[P], [a, b, c]: [usize; 3]) -> usize {
    let before = |i: usize, j: usize| less(line[i], line[j]);
    match before(a, b) {
        true if before(b, c) => b,
        true if before(a, c) => c,
        true => a,
        false if before(a, c) => a,
        false if before(b, c) => c,
        false => b,
    }
}

/// The number of elements that are compared with the pivot at once.
const BLOCK: usize = 64;

/// The places of a block, as distances from its start, whose elements must change sides.
struct Misplaced {
    places: [u8; BLOCK],
    next: usize,
    end: usize,
}

impl Misplaced {
    fn new() -> Misplaced {
        Misplaced {
            places: [0; BLOCK],
            next: 0,
            end: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// The place of the next element.
    fn place(&self) -> usize {
        self.places[self.next % BLOCK] as usize
    }

    /// Finds the elements of a block that must change sides. There is no branch for the processor to predict.
    #[inline(always)]
    fn find(&mut self, is_misplaced: impl Fn(usize) -> bool) {
        (self.next, self.end) = (0, 0);
        for k in 0..BLOCK {
            self.places[self.end % BLOCK] = k as u8;
            self.end += usize::from(is_misplaced(k));
        }
    }
}

/// `__unguarded_partition` around the first element, which stays there: exchanges the first element from the left that is not less with the
/// first one from the right that is not greater, until these meet.
fn partition<P: Placed>(line: &mut [P]) -> usize {
    let (mut first, mut last) = exchange_blocks(line);
    let pivot = line[0];
    loop {
        while less(line[first], pivot) {
            first += 1;
        }
        last -= 1;
        while less(pivot, line[last]) {
            last -= 1;
        }
        if first >= last {
            return first;
        }
        line.swap(first, last);
        first += 1;
    }
}

/// The beginning of [`partition`], which finds the elements to exchange for a block at a time (Edelkamp and Weiss, "BlockQuicksort", 2016):
/// these are the same pairs. Returns the range that is left.
fn exchange_blocks<P: Placed>(line: &mut [P]) -> (usize, usize) {
    let (pivot, mut first, mut last) = (line[0], 1, line.len());
    let (mut left, mut right) = (Misplaced::new(), Misplaced::new());
    while last - first >= 2 * BLOCK {
        if left.is_empty() {
            let block = &line[first..first + BLOCK];
            left.find(|k| !less(block[k], pivot));
        }
        if right.is_empty() {
            let block = &line[last - BLOCK..last];
            right.find(|k| !less(pivot, block[BLOCK - 1 - k]));
        }
        while !left.is_empty() && !right.is_empty() {
            line.swap(first + left.place(), last - 1 - right.place());
            (left.next, right.next) = (left.next + 1, right.next + 1);
        }
        first += if left.is_empty() { BLOCK } else { 0 };
        last -= if right.is_empty() { BLOCK } else { 0 };
    }
    // The elements of a block before its next misplaced one are on their side already.
    first += if left.is_empty() { 0 } else { left.place() };
    last -= if right.is_empty() { 0 } else { right.place() };
    (first, last)
}

/// `__insertion_sort`.
fn insertion_sort<P: Placed>(line: &mut [P]) {
    for i in 1..line.len() {
        if less(line[i], line[0]) {
            line[..=i].rotate_right(1);
        } else {
            unguarded_linear_insert(line, i);
        }
    }
}

/// Inserts element `i` into those before it, one of which is not greater.
#[inline(always)]
fn unguarded_linear_insert<P: Placed>(line: &mut [P], i: usize) {
    let (x, mut hole) = (line[i], i);
    while less(x, line[hole - 1]) {
        line[hole] = line[hole - 1];
        hole -= 1;
    }
    line[hole] = x;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Chooses the values of elements while they are compared, so that each partition splits off few of them (McIlroy, "A Killer
    /// Adversary for Quicksort", 1999). Undecided elements are greater than all others.
    struct Adversary {
        values: Vec<Option<usize>>,
        decided: usize,
        /// The element that may be a pivot: the last undecided one that was compared with a decided one.
        candidate: usize,
    }

    impl Adversary {
        fn less(&mut self, x: usize, y: usize) -> bool {
            if self.values[x].is_none() && self.values[y].is_none() {
                let smaller = if x == self.candidate { x } else { y };
                self.values[smaller] = Some(self.decided);
                self.decided += 1;
            }
            match (self.values[x], self.values[y]) {
                (Some(a), Some(b)) => a < b,
                (Some(_), None) => {
                    self.candidate = y;
                    true
                }
                (None, _) => {
                    self.candidate = x;
                    false
                }
            }
        }
    }

    #[test]
    fn selection_gives_up_instead_of_taking_quadratic_time() {
        let n = 4096;
        let adversary = RefCell::new(Adversary {
            values: vec![None; n],
            decided: 0,
            candidate: 0,
        });
        let mut line: Vec<usize> = (0..n).collect();
        let rest = select_by(&mut line, n - 2, |x, y| adversary.borrow_mut().less(x, y));
        assert!(rest.is_some());
        let adversary = adversary.into_inner();
        let placed = |k: usize| u64::new(adversary.values[k].unwrap_or(n) as u32, k);
        let mut line: Vec<u64> = (0..n).map(placed).collect();
        let mut sorted = line.clone();
        sorted.sort_unstable();
        quick_select(&mut line, n - 2);
        assert_eq!(line[n - 2].rank(), sorted[n - 2].rank());
    }
}
