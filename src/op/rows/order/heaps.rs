//! Partial sorting by a heap of the least elements, as libstdc++ does it, whose order of equal elements torch's results have.

use super::{Placed, place_ranks};
use crate::tensor::with_wide_vectors;

/// Whether an element comes before another one.
#[inline(always)]
pub(super) fn less<P: Placed>(a: P, b: P) -> bool {
    a.rank() < b.rank()
}

/// `std::partial_sort`: the `count` least elements come first, in order.
pub(super) fn partial_sort<P: Placed>(line: &mut [P], count: usize) {
    heap_select(line, count);
    sort_heap(&mut line[..count]);
}

/// The number of elements that are compared with the greatest selected one at once.
const SCANNED: usize = 32;

/// `__heap_select`: a heap of the `count` least elements comes first.
pub(super) fn heap_select<P: Placed>(line: &mut [P], count: usize) {
    let (heap, rest) = line.split_at_mut(count);
    make_heap(heap);
    for block in rest.chunks_mut(SCANNED) {
        // Most blocks have no element that enters the heap.
        let greatest = heap[0];
        if !with_wide_vectors(|| block.iter().fold(false, |any, &x| any | less(x, greatest))) {
            continue;
        }
        for x in block {
            if less(*x, heap[0]) {
                let entering = std::mem::replace(x, heap[0]);
                adjust_heap(heap, 0, entering);
            }
        }
    }
}

/// The beginning of [`partial_sort`] of a line of these ranks, for which only the selected elements are placed: they replace `heap`, in order.
/// False if more than `most` other elements enter the heap.
pub(super) fn partial_sort_ranks<P: Placed>(ranks: &[P::Rank], count: usize, heap: &mut Vec<P>, most: usize) -> bool {
    place_ranks(&ranks[..count], heap);
    make_heap(heap);
    let mut left = most;
    for (b, block) in ranks[count..].chunks(SCANNED).enumerate() {
        let greatest = heap[0].rank();
        if !with_wide_vectors(|| block.iter().fold(false, |any, x| any | (*x < greatest))) {
            continue;
        }
        for (k, &rank) in block.iter().enumerate() {
            if rank < heap[0].rank() {
                adjust_heap(heap, 0, P::new(rank, count + b * SCANNED + k));
                left = left.saturating_sub(1);
            }
        }
        if left == 0 {
            return false;
        }
    }
    sort_heap(heap);
    true
}

/// `__make_heap`.
fn make_heap<P: Placed>(heap: &mut [P]) {
    for parent in (0..heap.len() / 2).rev() {
        adjust_heap(heap, parent, heap[parent]);
    }
}

/// `__sort_heap`.
fn sort_heap<P: Placed>(heap: &mut [P]) {
    for last in (1..heap.len()).rev() {
        let x = heap[last];
        heap[last] = heap[0];
        adjust_heap(&mut heap[..last], 0, x);
    }
}

/// `__adjust_heap`: moves the hole down to a leaf, and `x` from there up to its place.
fn adjust_heap<P: Placed>(heap: &mut [P], top: usize, x: P) {
    let (mut hole, n) = (top, heap.len());
    while 2 * hole + 2 < n {
        let right = 2 * hole + 2;
        let child = if less(heap[right], heap[right - 1]) {
            right - 1
        } else {
            right
        };
        heap[hole] = heap[child];
        hole = child;
    }
    if 2 * hole + 2 == n {
        heap[hole] = heap[n - 1];
        hole = n - 1;
    }
    while hole > top && less(heap[(hole - 1) / 2], x) {
        heap[hole] = heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap[hole] = x;
}
