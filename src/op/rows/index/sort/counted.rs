//! Long lines of integers that are close to each other: the elements are counted, which gives the ordered line, and their places follow in
//! a second pass.

use crate::op::rows::fill::{run_pairs, units_per_part};
use crate::parallel::Pool;
use crate::tensor::{Element, Tensor, ViewMut, cells_of, cells_of_mut, with_wide_vectors};
use crate::types::DType;

/// The length from which lines are counted.
const LONG: usize = 256;
/// The maximum number of different integers: their counts stay in the caches.
const COUNTS: u64 = 1 << 16;
/// The number of segments of a line that are counted in turns, because a count waits for the last one of the same integer.
const SEGMENTS: usize = 4;
/// The maximum number of different integers of which all segments have counts of their own.
const FEW: usize = 1 << 11;

/// An integer.
trait Integer: Element + Ord {
    /// How much greater it is than `least`.
    fn above(self, least: Self) -> u64;
    /// The integer that is `n` greater.
    fn plus(self, n: usize) -> Self;
}

macro_rules! integers {
    ($($t:ident $unsigned:ident),*) => { $(impl Integer for $t {
        #[inline(always)]
        fn above(self, least: $t) -> u64 { self.wrapping_sub(least) as $unsigned as u64 }
        #[inline(always)]
        fn plus(self, n: usize) -> $t { self.wrapping_add(n as $t) }
    })* };
}
integers!(i64 u64, i32 u32, i16 u16, i8 u8, u8 u8);

/// Writes the ordered rows of `n` elements of `x`, and the places of their elements, if all elements are close to each other; returns
/// whether they are.
pub(super) fn sort_counted(
    x: &Tensor,
    n: usize,
    descending: bool,
    (values, places): (&mut ViewMut<'_>, &mut [i64]),
    pool: &Pool,
) -> bool {
    if n < LONG || u32::try_from(n).is_err() {
        return false;
    }
    macro_rules! sort_as {
        ($t:ty) => {{
            let (x, values) = (cells_of::<$t>(x.bytes()), cells_of_mut::<$t>(values.bytes_mut()));
            sort_rows(x, n, descending, (values, places), pool)
        }};
    }
    match x.dtype() {
        DType::I64 => sort_as!(i64),
        DType::I32 => sort_as!(i32),
        DType::I16 => sort_as!(i16),
        DType::I8 => sort_as!(i8),
        DType::U8 | DType::B8 => sort_as!(u8),
        _ => false,
    }
}

fn sort_rows<T: Integer>(
    x: &[T],
    n: usize,
    descending: bool,
    (values, places): (&mut [T], &mut [i64]),
    pool: &Pool,
) -> bool {
    let Some((least, greatest)) = with_wide_vectors(|| bounds(x)) else {
        return false;
    };
    let span = greatest.above(least);
    if span >= COUNTS.min(n as u64) {
        return false;
    }
    let count = span as usize + 1;
    let rows = units_per_part(x.len() / n, 4 * n * size_of::<i64>(), pool);
    run_pairs(pool, (values, rows * n), (places, rows * n), |i, values, places| {
        let lines = x[i * rows * n..].chunks_exact(n);
        let mut next = vec![0; count * SEGMENTS];
        for (line, (values, places)) in lines.zip(values.chunks_exact_mut(n).zip(places.chunks_exact_mut(n))) {
            let counts = Counts { least, descending };
            match count <= FEW {
                true => counts.sort::<SEGMENTS>(line, &mut next, values, places),
                false => counts.sort::<1>(line, &mut next[..count], values, places),
            }
        }
    });
    true
}

/// The least and the greatest element.
#[inline(always)]
pub(super) fn bounds<T: Copy + Ord>(x: &[T]) -> Option<(T, T)> {
    let first = *x.first()?;
    let (mut least, mut greatest) = (first, first);
    for &v in x {
        least = if v < least { v } else { least };
        greatest = if v > greatest { v } else { greatest };
    }
    Some((least, greatest))
}

/// How elements are counted.
#[derive(Clone, Copy)]
struct Counts<T> {
    least: T,
    descending: bool,
}

impl<T: Integer> Counts<T> {
    /// Sorts a line. `next` has a count for each integer in each of `S` segments of the line, and then where the next of these goes.
    fn sort<const S: usize>(self, line: &[T], next: &mut [u32], values: &mut [T], places: &mut [i64]) {
        let next = next.as_chunks_mut::<S>().0;
        next.fill([0; S]);
        let key = |x: T| x.above(self.least) as usize;
        for_each_in_turns::<S>(line.len(), |s, k| next[key(line[k])][s] += 1);
        let (mut before, count) = (0, next.len());
        for n in 0..count {
            let n = if self.descending { count - 1 - n } else { n };
            let begin = before as usize;
            for segment in &mut next[n] {
                before += std::mem::replace(segment, before);
            }
            values[begin..before as usize].fill(self.least.plus(n));
        }
        for_each_in_turns::<S>(line.len(), |s, k| {
            let at = &mut next[key(line[k])][s];
            places[*at as usize] = k as i64;
            *at += 1;
        });
    }
}

/// Calls `f` with each of `S` segments of `0..n` and each of its numbers, in turns.
#[inline(always)]
fn for_each_in_turns<const S: usize>(n: usize, mut f: impl FnMut(usize, usize)) {
    let size = n.div_ceil(S);
    let shortest = n.saturating_sub((S - 1) * size);
    for k in 0..shortest {
        for s in 0..S {
            f(s, s * size + k);
        }
    }
    for s in 0..S {
        for k in (s * size + shortest).min(n)..((s + 1) * size).min(n) {
            f(s, k);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::SplitMix;

    fn check(dtype: DType, rows: usize, n: usize, span: usize, descending: bool) {
        let mut random = SplitMix::new(5);
        let v: Vec<i64> = (0..rows * n).map(|_| random.next_below(span) as i64 - 3).collect();
        let x = Tensor::from_slice(&[rows, n], &v).to(dtype);
        let v = x.to(DType::I64).as_slice::<i64>().to_vec();
        let (mut values, mut places) = (Tensor::zeros(dtype, &[rows, n]), vec![0; rows * n]);
        let outs = (&mut ViewMut::from(&mut values), &mut places[..]);
        assert!(sort_counted(&x, n, descending, outs, &Pool::new(2)));
        let values = values.to(DType::I64).as_slice::<i64>().to_vec();
        for (r, line) in v.chunks(n).enumerate() {
            let mut want: Vec<usize> = (0..n).collect();
            want.sort_by_key(|&k| if descending { -line[k] } else { line[k] });
            for (k, want) in want.into_iter().enumerate() {
                let got = (places[r * n + k], values[r * n + k]);
                assert_eq!(got, (want as i64, line[want]), "{dtype} {n} {span} {k}");
            }
        }
    }

    #[test]
    fn counted_lines_are_in_stable_order() {
        for descending in [false, true] {
            check(DType::I64, 3, 257, 200, descending);
            check(DType::I64, 1, 9001, 5000, descending);
            check(DType::I32, 2, 1000, 1, descending);
            check(DType::I16, 2, 1001, 700, descending);
            check(DType::I8, 2, 1002, 120, descending);
            check(DType::U8, 2, 1003, 250, descending);
            check(DType::B8, 2, 999, 5, descending);
        }
    }

    #[test]
    fn distant_integers_are_not_counted() {
        let v: Vec<i64> = (0..300).map(|k| k * k * 1_000_000_007).collect();
        let x = Tensor::from_slice(&[300], &[&[i64::MIN, i64::MAX], &v[2..]].concat());
        let (mut values, mut places) = (Tensor::zeros(DType::I64, &[300]), vec![0; 300]);
        let outs = (&mut ViewMut::from(&mut values), &mut places[..]);
        assert!(!sort_counted(&x, 300, false, outs, &Pool::new(1)));
    }
}
