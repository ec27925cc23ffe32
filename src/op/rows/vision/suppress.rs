//! Non-maximum suppression: which of many boxes overlap one that has a higher score.

use super::detection::BoxReal;
use crate::tensor::{WideLoop, run_wide};
use std::cmp::Ordering;

/// Boxes by descending score, a coordinate at a time, so that one is compared with the others in vectors.
struct Boxes<T> {
    /// x1, y1, x2 and y2.
    sides: [Vec<T>; 4],
    areas: Vec<T>,
}

/// The indices of the boxes `[x1, y1, x2, y2]`, by descending score, without those that overlap a kept box by more than `limit` of what
/// both cover. Comparisons and arithmetic are those of torchvision's `nms_kernel_impl`.
pub(super) fn kept_boxes<T: BoxReal>(boxes: &[T], scores: &[T], limit: f64) -> Vec<i64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| by_descending_score(scores[a], scores[b]));
    let boxes = Boxes::in_order(boxes, &order);
    let mut dropped = vec![0u8; order.len()];
    run_wide(Suppress {
        boxes: &boxes,
        limit: greatest_up_to(limit),
        dropped: &mut dropped,
    });
    let kept = order.iter().zip(&dropped).filter(|&(_, &dropped)| dropped == 0);
    kept.map(|(&i, _)| i as i64).collect()
}

/// The order of torch's stable descending sort: NaN first, zeros of both signs equal.
fn by_descending_score<T: BoxReal>(a: T, b: T) -> Ordering {
    let (a, b) = (a.to_f64(), b.to_f64());
    b.partial_cmp(&a).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// The greatest number of type `T` that is not above `limit`: numbers of this type are above both or neither.
fn greatest_up_to<T: BoxReal>(limit: f64) -> T {
    let rounded = T::from_f64(limit);
    match rounded.to_f64() > limit {
        true => T::from_f64(f64::from((limit as f32).next_down())),
        false => rounded,
    }
}

impl<T: BoxReal> Boxes<T> {
    fn in_order(boxes: &[T], order: &[usize]) -> Boxes<T> {
        let side = |k: usize| order.iter().map(|&i| boxes[4 * i + k]).collect::<Vec<T>>();
        let sides = [0, 1, 2, 3].map(side);
        let area = |i: usize| (sides[2][i] - sides[0][i]) * (sides[3][i] - sides[1][i]);
        let areas = (0..order.len()).map(area).collect();
        Boxes { sides, areas }
    }
}

/// Marks the boxes to drop.
struct Suppress<'a, T> {
    boxes: &'a Boxes<T>,
    limit: T,
    dropped: &'a mut [u8],
}

impl<T: BoxReal> WideLoop for Suppress<'_, T> {
    #[inline(always)]
    fn run(self) {
        for i in 0..self.dropped.len() {
            if self.dropped[i] == 0 {
                drop_overlapping(self.boxes, i, self.limit, &mut self.dropped[i + 1..]);
            }
        }
    }
}

/// Marks the boxes after `i` that overlap it.
#[inline(always)]
fn drop_overlapping<T: BoxReal>(boxes: &Boxes<T>, i: usize, limit: T, dropped: &mut [u8]) {
    let n = dropped.len();
    let [x1, y1, x2, y2] = &boxes.sides;
    let (bx1, by1, bx2, by2) = (
        &x1[i + 1..][..n],
        &y1[i + 1..][..n],
        &x2[i + 1..][..n],
        &y2[i + 1..][..n],
    );
    let areas = &boxes.areas[i + 1..][..n];
    let (ax1, ay1, ax2, ay2, area) = (x1[i], y1[i], x2[i], y2[i], boxes.areas[i]);
    for j in 0..n {
        let width = larger(T::ZERO, smaller(ax2, bx2[j]) - larger(ax1, bx1[j]));
        let height = larger(T::ZERO, smaller(ay2, by2[j]) - larger(ay1, by1[j]));
        let inner = width * height;
        let share = inner / (area + areas[j] - inner);
        dropped[j] |= u8::from(share > limit);
    }
}

/// C++'s `std::max`: the first operand if one is NaN.
#[inline(always)]
fn larger<T: PartialOrd>(a: T, b: T) -> T {
    if a < b { b } else { a }
}

/// C++'s `std::min`: the first operand if one is NaN.
#[inline(always)]
fn smaller<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kept boxes, each compared with each.
    fn kept_one_by_one(boxes: &[f32], scores: &[f32], limit: f64) -> Vec<i64> {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| by_descending_score(scores[a], scores[b]));
        let area = |i: usize| (boxes[4 * i + 2] - boxes[4 * i]) * (boxes[4 * i + 3] - boxes[4 * i + 1]);
        let overlaps = |i: usize, j: usize| {
            let side = |k: usize| {
                let high = smaller(boxes[4 * i + k + 2], boxes[4 * j + k + 2]);
                larger(0.0, high - larger(boxes[4 * i + k], boxes[4 * j + k]))
            };
            let inner = side(0) * side(1);
            f64::from(inner / (area(i) + area(j) - inner)) > limit
        };
        let mut kept: Vec<usize> = vec![];
        for &j in &order {
            if !kept.iter().any(|&i| overlaps(i, j)) {
                kept.push(j);
            }
        }
        kept.into_iter().map(|i| i as i64).collect()
    }

    #[test]
    fn vectors_keep_the_same_boxes_as_single_comparisons() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 16) as f32 / 65536.0
        };
        for (n, limit) in [(0, 0.5), (1, 0.5), (7, 0.1), (40, 0.3), (333, 0.7), (200, 0.0)] {
            let mut boxes = vec![];
            for _ in 0..n {
                let (x, y) = (next() * 30.0, next() * 30.0);
                boxes.extend([x, y, x + next() * 20.0, y + next() * 20.0]);
            }
            let mut scores: Vec<f32> = (0..n).map(|_| (next() * 16.0).floor()).collect();
            if n > 30 {
                (scores[3], boxes[17], scores[9]) = (f32::NAN, f32::NAN, -0.0);
            }
            assert_eq!(
                kept_boxes(&boxes, &scores, limit),
                kept_one_by_one(&boxes, &scores, limit)
            );
        }
    }

    #[test]
    fn a_limit_between_two_numbers_is_the_lower_one() {
        assert_eq!(f64::from(greatest_up_to::<f32>(0.7)), f64::from(0.7f32));
        assert!(f64::from(greatest_up_to::<f32>(0.1)) <= 0.1);
        assert_eq!(greatest_up_to::<f64>(0.1), 0.1);
    }
}
