//! The least few elements of a long line, found by insertion.

use super::Placed;
use crate::tensor::with_wide_vectors;

/// The largest number of elements that are found by insertion, in lines that are at least [`MANY`] times as long.
const FEW: usize = 64;
const MANY: usize = 64;

/// Whether the first `end` elements in the order of a line of `n` are so few that insertion finds them: hardly any element of the line is
/// inserted, unless the line is in order already.
pub(in crate::op::rows) fn are_few(end: usize, n: usize) -> bool {
    end <= FEW && n >= MANY * end
}

/// Insertion gives up after one insertion for so many elements.
const PER_INSERTION: usize = 32;

/// The most insertions into `count` elements of a line of `n` that take less time than another way to find them.
pub(super) fn most_insertions(count: usize, n: usize) -> usize {
    count * MANY + n / PER_INSERTION
}

/// The number of elements that are compared with the greatest of the least ones at once.
const BLOCK: usize = 32;

/// Replaces the least of the first elements of a line by the least of the whole line, in order; false if that takes too many insertions.
pub(super) fn insert_least<P: Placed>(least: &mut [P], ranks: &[P::Rank]) -> bool {
    let Some(&(mut last)) = least.last() else { return true };
    let (mut at, mut left) = (least.len(), most_insertions(least.len(), ranks.len()));
    while at < ranks.len() {
        let block = &ranks[at..ranks.len().min(at + BLOCK)];
        // Most blocks end here. Equal elements stay behind those before them.
        let greatest = last.rank();
        if with_wide_vectors(|| block.iter().fold(false, |any, r| any | (*r < greatest))) {
            for (k, &r) in block.iter().enumerate().filter(|(_, r)| **r < greatest) {
                let x = P::new(r, at + k);
                if x < last {
                    insert(least, x);
                    last = least[least.len() - 1];
                    left = left.saturating_sub(1);
                }
            }
            if left == 0 {
                return false;
            }
        }
        at += BLOCK;
    }
    true
}

/// Inserts an element into ordered ones, the last of which is lost.
fn insert<P: Placed>(least: &mut [P], x: P) {
    let end = least.len() - 1;
    // Moving a few elements takes less time than calling a function for it.
    if end < FEW / 4 {
        let mut place = end;
        while place > 0 && x < least[place - 1] {
            least[place] = least[place - 1];
            place -= 1;
        }
        least[place] = x;
        return;
    }
    let place = least.partition_point(|y| *y < x);
    least.copy_within(place..end, place + 1);
    least[place] = x;
}

#[cfg(test)]
mod tests {
    use crate::op::rows::lines::DimLines;
    use crate::op::rows::order::{Ties, Wanted, for_each_ordered_line};
    use crate::parallel::Pool;
    use crate::tensor::Tensor;

    /// Each element of a falling line is less than all before it, so that insertion gives up.
    #[test]
    fn few_elements_are_found_in_falling_lines_and_in_columns() {
        let n = 20_000i32;
        for (columns, step) in [(1, -1i32), (1, 7919), (21, 7919)] {
            let v: Vec<i32> = (0..n * columns)
                .map(|i| (i / columns * step + i % columns).rem_euclid(n))
                .collect();
            let t = Tensor::from_slice(&[n as usize, columns as usize], &v);
            let lines = DimLines::new(t.shape(), 0);
            let mut all = [vec![]];
            let wanted = Wanted::Part(0..50, Ties::Stable);
            for_each_ordered_line(
                &t,
                &lines,
                (false, &wanted),
                (&mut all, 21),
                &Pool::new(1),
                |all, _, _, order| {
                    all.push(order.to_vec());
                },
            );
            assert_eq!(all[0].len(), columns as usize);
            for (c, order) in all[0].iter().enumerate() {
                let found: Vec<i32> = order.iter().map(|k| v[k * columns as usize + c]).collect();
                assert_eq!(found, (0..50).collect::<Vec<_>>());
            }
        }
    }
}
