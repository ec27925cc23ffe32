//! Lines of a tensor in order. Each element becomes an integer that holds its rank above its place, so that unstable sorting and selection
//! of integers give the stable order, in which NaN is the greatest and both zeros are equal.

use super::dense::native;
use super::lines::DimLines;
use crate::parallel::Pool;
use crate::tensor::Tensor;
use crate::types::DType;
use std::ops::Range;

/// Ranks: integers in the order of a tensor's elements.
enum Ranks {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

fn rank_of_f32(x: f32) -> u32 {
    // -0.0 + 0.0 is 0.0.
    let bits = (x + 0.0).to_bits();
    let sign = (bits as i32 >> 31) as u32;
    if x.is_nan() { u32::MAX } else { bits ^ (sign | 1 << 31) }
}

pub(super) fn rank_of_f64(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    let sign = (bits as i64 >> 63) as u64;
    if x.is_nan() { u64::MAX } else { bits ^ (sign | 1 << 63) }
}

fn rank_of_i64(x: i64) -> u64 {
    x as u64 ^ 1 << 63
}

impl Ranks {
    fn of_tensor(t: &Tensor) -> Ranks {
        use half::{bf16, f16};
        match t.dtype() {
            DType::F32 => Ranks::Narrow(t.as_slice::<f32>().iter().map(|&x| rank_of_f32(x)).collect()),
            DType::F16 => Ranks::Narrow(t.as_slice::<f16>().iter().map(|x| rank_of_f32(x.to_f32())).collect()),
            DType::BF16 => Ranks::Narrow(t.as_slice::<bf16>().iter().map(|x| rank_of_f32(x.to_f32())).collect()),
            DType::I32 => Ranks::Narrow(t.as_slice::<i32>().iter().map(|&x| x as u32 ^ 1 << 31).collect()),
            DType::U8 => Ranks::Narrow(t.as_slice::<u8>().iter().map(|&x| x as u32).collect()),
            DType::F64 => Ranks::Wide(t.as_slice::<f64>().iter().map(|&x| rank_of_f64(x)).collect()),
            DType::I64 => Ranks::Wide(t.as_slice::<i64>().iter().map(|&x| rank_of_i64(x)).collect()),
            d => {
                let narrow = matches!(d, DType::I8 | DType::I16 | DType::B8);
                Ranks::of_tensor(&t.to(match native(d) {
                    DType::I64 if narrow => DType::I32,
                    DType::I64 => DType::I64,
                    _ => DType::F64,
                }))
            }
        }
    }
}

/// A rank with a place in its line.
trait Placed: Ord + Copy {
    type Rank: Copy + PartialEq;
    /// The rank of NaN.
    const NAN: Self::Rank;
    fn new(rank: Self::Rank, place: usize, descending: bool) -> Self;
    fn place(self) -> usize;
}

impl Placed for u64 {
    type Rank = u32;
    const NAN: u32 = u32::MAX;
    fn new(rank: u32, place: usize, descending: bool) -> u64 {
        let rank = if descending { !rank } else { rank };
        (rank as u64) << 32 | place as u64
    }
    fn place(self) -> usize {
        self as u32 as usize
    }
}

impl Placed for u128 {
    type Rank = u64;
    const NAN: u64 = u64::MAX;
    fn new(rank: u64, place: usize, descending: bool) -> u128 {
        let rank = if descending { !rank } else { rank };
        (rank as u128) << 64 | place as u128
    }
    fn place(self) -> usize {
        self as u64 as usize
    }
}

/// Which places of an ordered line are wanted.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// The elements in this part of the order.
    Part(Range<usize>),
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
    let of_tensor = OrderedLines {
        lines,
        descending,
        wanted,
        is_float: native(t.dtype()) != DType::I64,
    };
    let count = lines.outer * lines.inner;
    let numbers = |i: usize| i * per_part..count.min((i + 1) * per_part);
    match Ranks::of_tensor(t) {
        // A place must fit beside a narrow rank.
        Ranks::Narrow(r) if lines.len <= u32::MAX as usize => {
            pool.run_parts(parts, 1, |i, part| {
                of_tensor.order::<u64, D>(&r, numbers(i), &mut part[0], &f)
            });
        }
        Ranks::Narrow(r) => {
            // NaN stays the greatest.
            let is_nan = |r: u32| of_tensor.is_float && r == u32::MAX;
            let wide: Vec<u64> = r.iter().map(|&r| if is_nan(r) { u64::MAX } else { r as u64 }).collect();
            pool.run_parts(parts, 1, |i, part| {
                of_tensor.order::<u128, D>(&wide, numbers(i), &mut part[0], &f)
            });
        }
        Ranks::Wide(r) => {
            pool.run_parts(parts, 1, |i, part| {
                of_tensor.order::<u128, D>(&r, numbers(i), &mut part[0], &f)
            });
        }
    }
}

/// How the lines of a tensor are ordered.
struct OrderedLines<'a> {
    lines: &'a DimLines,
    descending: bool,
    wanted: &'a Wanted,
    is_float: bool,
}

impl OrderedLines<'_> {
    fn order<P: Placed, D>(
        &self,
        ranks: &[P::Rank],
        numbers: Range<usize>,
        part: &mut D,
        f: &impl Fn(&mut D, usize, usize, &[usize]),
    ) {
        let (lines, from) = (self.lines, numbers.start);
        let (mut line, mut order): (Vec<P>, Vec<usize>) = (vec![], vec![]);
        for number in numbers {
            let first = number / lines.inner * lines.len * lines.inner + number % lines.inner;
            let of_line = || (0..lines.len).map(|k| ranks[first + k * lines.inner]);
            line.clear();
            line.extend(of_line().enumerate().map(|(k, r)| P::new(r, k, self.descending)));
            order.clear();
            match self.wanted {
                Wanted::Part(part) => order_part(&mut line, part.clone(), &mut order),
                Wanted::Median
                    if self.is_float
                        && let Some(nan) = of_line().position(|r| r == P::NAN) =>
                {
                    order.push(nan)
                }
                _ if line.is_empty() => {}
                _ => {
                    let nans = of_line().filter(|r| self.is_float && *r == P::NAN).count();
                    let middle = (lines.len - nans).max(1).saturating_sub(1) / 2;
                    order_part(&mut line, middle..middle + 1, &mut order);
                }
            }
            f(part, number - from, number, &order);
        }
    }
}

/// The largest number of elements that are found by insertion, in lines that are at least [`MANY`] times as long.
const FEW: usize = 16;
const MANY: usize = 64;

/// Moves the least `count` elements to the beginning of the line, in order. The others are lost.
fn insert_least<P: Placed>(line: &mut [P], count: usize) {
    let (least, others) = line.split_at_mut(count);
    least.sort_unstable();
    let mut last = least[count - 1];
    for &x in &*others {
        // Most elements end here.
        if x < last {
            let at = least.partition_point(|y| *y < x);
            least.copy_within(at..count - 1, at + 1);
            least[at] = x;
            last = least[count - 1];
        }
    }
}

/// Appends the places of the elements in a part of a line's order. The line loses elements.
fn order_part<P: Placed>(line: &mut [P], part: Range<usize>, order: &mut Vec<usize>) {
    if part.is_empty() {
        return;
    }
    if part.end <= FEW && line.len() >= MANY * part.end {
        insert_least(line, part.end);
    } else if part.len() == 1 {
        line.select_nth_unstable(part.start);
    } else {
        if part.end < line.len() {
            line.select_nth_unstable(part.end - 1);
        }
        line[..part.end].sort_unstable();
    }
    order.extend(line[part].iter().map(|p| p.place()));
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
        assert_eq!(places(&t, false, Wanted::Part(0..8)), [5, 1, 3, 0, 6, 4, 2, 7]);
        assert_eq!(places(&t, true, Wanted::Part(0..8)), [2, 7, 4, 0, 6, 1, 3, 5]);
        let wide = Tensor::from_slice(&[8], &v.map(f64::from));
        assert_eq!(places(&wide, true, Wanted::Part(0..8)), [2, 7, 4, 0, 6, 1, 3, 5]);
    }

    #[test]
    fn parts_are_those_of_the_whole_order() {
        let v: Vec<i32> = (0..500).map(|i| (i * 37) % 111 - 55).collect();
        let t = Tensor::from_slice(&[500], &v);
        let whole = places(&t, false, Wanted::Part(0..500));
        for part in [0..1, 0..6, 0..7, 3..4, 5..6, 49..50, 20..31, 499..500, 0..0] {
            assert_eq!(places(&t, false, Wanted::Part(part.clone())), whole[part.clone()]);
            let wide = t.to(DType::I64);
            assert_eq!(places(&wide, false, Wanted::Part(part.clone())), whole[part]);
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
