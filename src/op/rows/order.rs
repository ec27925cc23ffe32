//! Lines of a tensor in order. Each element becomes an integer that holds its rank above its place, so that unstable sorting and selection
//! of integers give the stable order, in which NaN is the greatest and both zeros are equal.

mod close;
mod few;
mod heaps;
mod introsort;
mod leading;
mod short;
mod ties;

pub(super) use self::few::are_few;
use self::few::insert_least;
use self::leading::{LONG, collect_near};
pub(super) use self::short::ShortOrders;
pub(super) use self::ties::Ties;
use super::dense::native;
use super::lines::DimLines;
use crate::parallel::Pool;
use crate::tensor::{Element, Tensor, transpose_into, widen_f16, with_wide_vectors};
use crate::types::DType;
use std::ops::Range;

#[inline(always)]
pub(super) fn rank_of_f32(x: f32) -> u32 {
    // -0.0 + 0.0 is 0.0.
    let bits = (x + 0.0).to_bits();
    let sign = (bits as i32 >> 31) as u32;
    if x.is_nan() { u32::MAX } else { bits ^ (sign | 1 << 31) }
}

#[inline(always)]
pub(super) fn rank_of_f64(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    let sign = (bits as i64 >> 63) as u64;
    if x.is_nan() { u64::MAX } else { bits ^ (sign | 1 << 63) }
}

#[inline(always)]
pub(super) fn rank_of_i64(x: i64) -> u64 {
    x as u64 ^ 1 << 63
}

/// A rank with a place in its line.
pub(super) trait Placed: Ord + Copy {
    type Rank: Copy + Ord + Default + std::ops::Not<Output = Self::Rank> + Into<u64>;
    /// The rank of NaN.
    const NAN: Self::Rank;
    fn new(rank: Self::Rank, place: usize) -> Self;
    fn rank(self) -> Self::Rank;
    fn place(self) -> usize;
}

impl Placed for u64 {
    type Rank = u32;
    const NAN: u32 = u32::MAX;
    #[inline(always)]
    fn new(rank: u32, place: usize) -> u64 {
        (rank as u64) << 32 | place as u64
    }
    fn rank(self) -> u32 {
        (self >> 32) as u32
    }
    #[inline(always)]
    fn place(self) -> usize {
        self as u32 as usize
    }
}

impl Placed for u128 {
    type Rank = u64;
    const NAN: u64 = u64::MAX;
    #[inline(always)]
    fn new(rank: u64, place: usize) -> u128 {
        (rank as u128) << 64 | place as u128
    }
    fn rank(self) -> u64 {
        (self >> 64) as u64
    }
    #[inline(always)]
    fn place(self) -> usize {
        self as u64 as usize
    }
}

/// Runs `$body` with the type `$p` of a rank with a place, the element type `$e` of a dtype and the function `$rank` of such elements, or
/// `$other` for dtypes that must be converted. `$narrow`: whether places have 32 bits.
macro_rules! with_ranks {
    ($dtype:expr, $narrow:expr, |$p:ident, $e:ident, $rank:ident| $body:expr, else $other:expr) => {
        match $dtype {
            DType::F32 if $narrow => with_ranks!(@arm $p u64, $e f32, $rank rank_of_f32, $body),
            DType::F16 if $narrow => {
                with_ranks!(@arm $p u64, $e half::f16, $rank |x: half::f16| rank_of_f32(widen_f16(x)), $body)
            }
            DType::BF16 if $narrow => {
                with_ranks!(@arm $p u64, $e half::bf16, $rank |x: half::bf16| rank_of_f32(x.to_f32()), $body)
            }
            DType::I32 if $narrow => with_ranks!(@arm $p u64, $e i32, $rank |x: i32| x as u32 ^ 1 << 31, $body),
            DType::U8 if $narrow => with_ranks!(@arm $p u64, $e u8, $rank |x: u8| x as u32, $body),
            DType::F64 => with_ranks!(@arm $p u128, $e f64, $rank rank_of_f64, $body),
            DType::I64 => with_ranks!(@arm $p u128, $e i64, $rank rank_of_i64, $body),
            _ => $other,
        }
    };
    (@arm $p:ident $placed:ty, $e:ident $element:ty, $rank:ident $f:expr, $body:expr) => {{
        type $p = $placed;
        type $e = $element;
        let $rank = $f;
        $body
    }};
}
use with_ranks;

/// Which places of an ordered line are wanted.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// The elements in this part of the order.
    Part(Range<usize>, Ties),
    /// The lower of the middle elements; the first NaN if there is one.
    Median,
    /// The lower of the middle elements that are not NaN.
    MedianOfNumbers,
}

/// Orders each line of `t`. Part `i` of `parts` belongs to `per_part` lines from `i * per_part` on: for each of these, calls `f` with the
/// part, the line's number in the part, the line's number, and the wanted places, in order.
pub(super) fn for_each_ordered_line<D: Send>(
    t: &Tensor,
    lines: &DimLines,
    (descending, wanted): (bool, &Wanted),
    (parts, per_part): (&mut [D], usize),
    pool: &Pool,
    f: impl Fn(&mut D, usize, usize, &[usize]) + Sync,
) {
    let o = OrderedLines {
        lines,
        descending,
        wanted,
        is_float: native(t.dtype()) != DType::I64,
    };
    // A place must fit beside a narrow rank.
    let narrow = t.dtype().size() < 8 && lines.len <= u32::MAX as usize;
    with_ranks!(t.dtype(), narrow, |P, E, rank| o.order_all::<P, E, D>(t, rank, parts, per_part, pool, f), else {
        let as_dtype = match o.is_float {
            true => DType::F64,
            false if narrow => DType::I32,
            false => DType::I64,
        };
        for_each_ordered_line(&t.to(as_dtype), lines, (descending, wanted), (parts, per_part), pool, f);
    });
}

/// How the lines of a tensor are ordered.
struct OrderedLines<'a> {
    lines: &'a DimLines,
    descending: bool,
    wanted: &'a Wanted,
    is_float: bool,
}

impl OrderedLines<'_> {
    /// [`for_each_ordered_line`] for elements of one type.
    fn order_all<P: Placed, E: Element, D: Send>(
        &self,
        t: &Tensor,
        rank: impl Fn(E) -> P::Rank + Copy + Sync,
        parts: &mut [D],
        per_part: usize,
        pool: &Pool,
        f: impl Fn(&mut D, usize, usize, &[usize]) + Sync,
    ) {
        let elements = t.as_slice::<E>();
        let count = self.lines.outer * self.lines.inner;
        pool.run_parts(parts, 1, |i, part| {
            let mut number = i * per_part;
            let end = count.min(number + per_part);
            let (n, mut together) = (self.lines.len, vec![]);
            let mut line = Line::<P> {
                ranks: vec![],
                placed: vec![],
                order: vec![],
                expects_ties: false,
            };
            while number < end {
                let (group, lines) = self.read_group(elements, number..end, &mut together);
                for l in 0..lines {
                    self.rank_line(&group[l * n..(l + 1) * n], rank, &mut line.ranks);
                    self.order_line(&mut line);
                    f(&mut part[0], number - i * per_part, number, &line.order);
                    number += 1;
                }
            }
        });
    }

    /// The elements of the first of some lines, one line after the other, and the number of these lines. Lines that lie side by side are
    /// read together: each of them alone would read all of their cache lines.
    fn read_group<'e, E: Element>(
        &self,
        elements: &'e [E],
        numbers: Range<usize>,
        together: &'e mut Vec<E>,
    ) -> (&'e [E], usize) {
        let (n, inner) = (self.lines.len, self.lines.inner);
        let (o, i) = (numbers.start / inner, numbers.start % inner);
        if inner == 1 || n == 0 {
            return (&elements[o * n..(o + 1) * n], 1);
        }
        let most = (GROUP_BYTES / (n * size_of::<E>()).max(1)).clamp(1, GROUP);
        let count = most.min(inner - i).min(numbers.len());
        together.clear();
        together.resize(count * n, elements[i]);
        let first = o * n * inner + i;
        transpose_into(&elements[first..(o + 1) * n * inner], inner, [n, count], together, n);
        (together, count)
    }

    /// The ranks of a line's elements, the least first in order.
    fn rank_line<E: Element, R: Copy + Default + std::ops::Not<Output = R>>(
        &self,
        elements: &[E],
        rank: impl Fn(E) -> R,
        ranks: &mut Vec<R>,
    ) {
        ranks.resize(elements.len(), R::default());
        with_wide_vectors(|| ranks.iter_mut().zip(elements).for_each(|(r, &x)| *r = rank(x)));
        if self.descending {
            with_wide_vectors(|| ranks.iter_mut().for_each(|r| *r = !*r));
        }
    }

    /// Finds the wanted places of a line.
    fn order_line<P: Placed>(&self, line: &mut Line<P>) {
        line.order.clear();
        let middle = line.ranks.len().saturating_sub(1) / 2;
        let part = match self.wanted {
            Wanted::Part(part, Ties::Stable) => part.clone(),
            Wanted::Part(part, ties) => return line.select(part, *ties, self.is_float),
            _ => middle..middle + 1,
        };
        if !self.is_float && line.order_close(part) {
            return;
        }
        let nan = if self.descending { !P::NAN } else { P::NAN };
        match self.wanted {
            Wanted::Part(part, _) => line.order_part(part.clone()),
            _ if line.ranks.is_empty() => {}
            median => {
                let ranks = &line.ranks;
                let nans = match self.is_float {
                    true => with_wide_vectors(|| ranks.iter().filter(|r| **r == nan).count()),
                    false => 0,
                };
                if nans > 0 && matches!(median, Wanted::Median) {
                    return line.order.extend(ranks.iter().position(|r| *r == nan));
                }
                let middle = (ranks.len() - nans).max(1).saturating_sub(1) / 2;
                line.order_part(middle..middle + 1);
            }
        }
    }
}

/// The most lines that are read together, and the most bytes of them, which stay in the caches.
const GROUP: usize = 16;
const GROUP_BYTES: usize = 1 << 20;

/// A line that is being ordered.
struct Line<P: Placed> {
    ranks: Vec<P::Rank>,
    placed: Vec<P>,
    /// The wanted places.
    order: Vec<usize>,
    /// Whether a line before had equal elements.
    expects_ties: bool,
}

impl<P: Placed> Line<P> {
    /// Appends the places of the elements in a part of the line's stable order.
    fn order_part(&mut self, part: Range<usize>) {
        let placed = self.place_part(part);
        self.order.extend(self.placed[placed].iter().map(|p| p.place()));
    }

    /// Puts the elements of a part of the line's stable order side by side, in order, and returns where.
    fn place_part(&mut self, part: Range<usize>) -> Range<usize> {
        if part.is_empty() {
            return 0..0;
        }
        let (n, line) = (self.ranks.len(), &mut self.placed);
        if are_few(part.end, n) {
            place_ranks(&self.ranks[..part.end], line);
            line.sort_unstable();
            if insert_least(line, &self.ranks) {
                return part;
            }
        }
        let before = match n >= LONG && part.len() < n {
            true => collect_near(&self.ranks, &part, line),
            false => {
                place_ranks(&self.ranks, line);
                0
            }
        };
        let part = part.start - before..part.end - before;
        if part.len() == 1 {
            line.select_nth_unstable(part.start);
        } else {
            if part.end < line.len() {
                line.select_nth_unstable(part.end - 1);
            }
            line[..part.end].sort_unstable();
        }
        part
    }
}

/// Replaces `placed` by ranks with their places.
fn place_ranks<P: Placed>(ranks: &[P::Rank], placed: &mut Vec<P>) {
    placed.clear();
    placed.extend(ranks.iter().enumerate().map(|(k, &r)| P::new(r, k)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(t: &Tensor, descending: bool, wanted: Wanted) -> Vec<usize> {
        let mut all = [vec![]];
        let lines = DimLines::new(t.shape(), 0);
        for_each_ordered_line(
            t,
            &lines,
            (descending, &wanted),
            (&mut all, 1),
            &Pool::new(1),
            |all, _, _, order| all.extend_from_slice(order),
        );
        std::mem::take(&mut all[0])
    }

    #[test]
    fn equal_elements_keep_their_order_and_nan_is_the_greatest() {
        let v = [1.0f32, -0.0, f32::NAN, 0.0, f32::INFINITY, -2.0, 1.0, -f32::NAN];
        let t = Tensor::from_slice(&[8], &v);
        assert_eq!(
            places(&t, false, Wanted::Part(0..8, Ties::Stable)),
            [5, 1, 3, 0, 6, 4, 2, 7]
        );
        assert_eq!(
            places(&t, true, Wanted::Part(0..8, Ties::Stable)),
            [2, 7, 4, 0, 6, 1, 3, 5]
        );
        let wide = Tensor::from_slice(&[8], &v.map(f64::from));
        assert_eq!(
            places(&wide, true, Wanted::Part(0..8, Ties::Stable)),
            [2, 7, 4, 0, 6, 1, 3, 5]
        );
    }

    #[test]
    fn parts_are_those_of_the_whole_order() {
        let v: Vec<i32> = (0..500).map(|i| (i * 37) % 111 - 55).collect();
        let t = Tensor::from_slice(&[500], &v);
        let whole = places(&t, false, Wanted::Part(0..500, Ties::Stable));
        for part in [0..1, 0..6, 0..7, 3..4, 5..6, 49..50, 20..31, 499..500, 0..0] {
            assert_eq!(
                places(&t, false, Wanted::Part(part.clone(), Ties::Stable)),
                whole[part.clone()]
            );
            let wide = t.to(DType::I64);
            assert_eq!(
                places(&wide, false, Wanted::Part(part.clone(), Ties::Stable)),
                whole[part]
            );
        }
    }

    #[test]
    fn medians_see_or_pass_over_nan() {
        let t = Tensor::from_slice(&[5], &[3.0f32, f32::NAN, 1.0, 2.0, 9.0]);
        assert_eq!(places(&t, false, Wanted::Median), [1]);
        assert_eq!(places(&t, false, Wanted::MedianOfNumbers), [3]);
        assert!(places(&Tensor::zeros(DType::F32, &[0]), false, Wanted::Median).is_empty());
    }
}
