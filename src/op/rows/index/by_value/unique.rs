//! Unique elements in ascending order. Integers of a small range are counted; other elements are sorted by their ranks, digit by digit.

use super::counting::COPIES;
use crate::op::rows::dense::zeros;
use crate::op::rows::fill::with_size;
use crate::op::rows::order::{rank_of_f32, rank_of_f64};
use crate::op::{Call, OpResult};
use crate::tensor::{Tensor, with_wide_vectors};
use crate::types::{DType, Val};

/// `unique`: the elements, and on request the index of each element among them, and their counts.
pub(super) fn unique(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let x = c.leaf("self")?;
    let with_counts = c.bool("return_counts")?;
    let with_inverse = c.bool("return_inverse")? || with_counts;
    let found = find_uniques(x, with_inverse)?;
    let mut values = zeros(x.dtype(), &[found.first.len()])?;
    with_size!(x.dtype().size(), N => {
        let (src, dst) = (x.bytes().as_chunks::<N>().0, values.bytes_mut().as_chunks_mut::<N>().0);
        dst.iter_mut().zip(&found.first).for_each(|(d, &i)| *d = src[i]);
    });
    let empty = || Tensor::zeros(DType::I64, &[0]);
    Ok(Val::Tuple(vec![
        Val::Leaf(values),
        Val::Leaf(found.inverse.unwrap_or_else(empty)),
        Val::Leaf(match with_counts {
            true => Tensor::from_slice(&[found.counts.len()], &found.counts),
            false => empty(),
        }),
    ]))
}

/// The first place of each unique element in ascending order, the unique element of each place if that is wanted, and their counts.
struct Uniques {
    first: Vec<usize>,
    inverse: Option<Tensor>,
    counts: Vec<i64>,
}

fn find_uniques(x: &Tensor, with_inverse: bool) -> OpResult<Uniques> {
    let shape = with_inverse.then_some(x.shape());
    match x.dtype() {
        // Both zeros are equal, and NaN, the greatest, is unequal to itself.
        DType::F32 | DType::F16 | DType::BF16 if u32::try_from(x.numel()).is_ok() => {
            let wide = x.to(DType::F32);
            let mut keys = vec![0; x.numel()];
            let v = &wide.as_slice::<f32>()[..keys.len()];
            with_wide_vectors(|| (0..v.len()).for_each(|i| keys[i] = rank_of_f32(v[i])));
            sorted_uniques(placed_u32(&keys), Some(u64::from(u32::MAX)), shape)
        }
        d if d.is_float() => {
            let wide = x.to(DType::F64);
            let keys: Vec<u64> = wide.as_slice::<f64>().iter().map(|&v| rank_of_f64(v)).collect();
            sorted_uniques(placed_u64(&keys), Some(u64::MAX), shape)
        }
        d => {
            let wide = x.to(DType::I64);
            // Flipping the sign bit orders signed numbers as unsigned ones.
            let flipped = if d == DType::U64 { 0 } else { 1 << 63 };
            integer_uniques(wide.as_slice::<i64>(), flipped, shape)
        }
    }
}

/// The unique ones of integers whose order is that of unsigned ones after the bits `flipped` are flipped.
fn integer_uniques(v: &[i64], flipped: u64, shape: Option<&[usize]>) -> OpResult<Uniques> {
    let rank = |x: i64| x as u64 ^ flipped;
    let (low, high) = with_wide_vectors(|| {
        v.iter()
            .fold((u64::MAX, 0), |(low, high), &x| (low.min(rank(x)), high.max(rank(x))))
    });
    let span = high.saturating_sub(low);
    // A table that is much larger than the operand would cost more than sorting.
    if span < 256.max(v.len() as u64 / 4) && u32::try_from(v.len()).is_ok() {
        return counted_uniques(v, |x| (rank(x) - low) as usize, span as usize + 1, shape);
    }
    match u32::try_from(span).is_ok() && u32::try_from(v.len()).is_ok() {
        true => {
            let keys: Vec<u32> = v.iter().map(|&x| (rank(x) - low) as u32).collect();
            sorted_uniques(placed_u32(&keys), None, shape)
        }
        false => {
            let keys: Vec<u64> = v.iter().map(|&x| rank(x) - low).collect();
            sorted_uniques(placed_u64(&keys), None, shape)
        }
    }
}

/// The unique ones of at most `u32::MAX` elements with keys below `n`.
fn counted_uniques(v: &[i64], key: impl Fn(i64) -> usize, n: usize, shape: Option<&[usize]>) -> OpResult<Uniques> {
    // Additions to one count would wait for each other.
    let mut counts = vec![[0u32; COPIES]; n];
    v.iter().enumerate().for_each(|(i, &x)| counts[key(x)][i % COPIES] += 1);
    let mut out = Uniques {
        first: vec![],
        inverse: None,
        counts: vec![],
    };
    let mut group = vec![0; n];
    for (k, c) in counts.iter().enumerate() {
        let count = c.iter().map(|&c| i64::from(c)).sum();
        group[k] = out.counts.len() as i64;
        if count > 0 {
            out.counts.push(count);
        }
    }
    // Equal integers have equal bits, so that any place serves.
    out.first = vec![0; out.counts.len()];
    let mut missing = out.counts.len();
    for (i, &x) in v.iter().enumerate() {
        if missing == 0 {
            break;
        }
        let k = key(x);
        if counts[k] != [0; COPIES] {
            counts[k] = [0; COPIES];
            out.first[group[k] as usize] = i;
            missing -= 1;
        }
    }
    if let Some(shape) = shape {
        let mut inverse = zeros(DType::I64, shape)?;
        let dst = inverse.as_mut_slice::<i64>().iter_mut();
        dst.zip(v).for_each(|(d, &x)| *d = group[key(x)]);
        out.inverse = Some(inverse);
    }
    Ok(out)
}

/// A key above its place.
trait Item: Copy + Ord + Default {
    fn key(self) -> u64;
    fn place(self) -> usize;
}

impl Item for u64 {
    fn key(self) -> u64 {
        self >> 32
    }
    fn place(self) -> usize {
        self as u32 as usize
    }
}

impl Item for u128 {
    fn key(self) -> u64 {
        (self >> 64) as u64
    }
    fn place(self) -> usize {
        self as u64 as usize
    }
}

fn placed_u32(keys: &[u32]) -> Vec<u64> {
    keys.iter().zip(0..).map(|(&k, i)| u64::from(k) << 32 | i).collect()
}

fn placed_u64(keys: &[u64]) -> Vec<u128> {
    keys.iter().zip(0..).map(|(&k, i)| u128::from(k) << 64 | i).collect()
}

/// The unique ones of items, which are in the order of their places. All items with the key `nan` are distinct.
fn sorted_uniques<I: Item>(items: Vec<I>, nan: Option<u64>, shape: Option<&[usize]>) -> OpResult<Uniques> {
    let items = sort_by_key(items);
    // Every place is written, and overwritten unless a group starts there: a branch would be mispredicted.
    let (mut starts, mut groups) = (vec![0; items.len() + 1], 0);
    let mut last = None;
    for (i, item) in items.iter().enumerate() {
        let key = item.key();
        starts[groups] = i;
        groups += ((last != Some(key)) | (nan == Some(key))) as usize;
        last = Some(key);
    }
    starts[groups] = items.len();
    starts.truncate(groups + 1);
    let counts = starts.windows(2).map(|w| (w[1] - w[0]) as i64).collect();
    let first = starts[..groups].iter().map(|&s| items[s].place()).collect();
    let inverse = match shape {
        None => None,
        Some(shape) => {
            let mut inverse = zeros(DType::I64, shape)?;
            let dst = inverse.as_mut_slice::<i64>();
            for (group, w) in starts.windows(2).enumerate() {
                items[w[0]..w[1]].iter().for_each(|i| dst[i.place()] = group as i64);
            }
            Some(inverse)
        }
    };
    Ok(Uniques { first, inverse, counts })
}

/// The number of items from which sorting by digits is faster than by comparisons.
const MANY: usize = 512;

/// The bits of a digit.
const DIGIT: u32 = 11;

/// Sorts items, which are in the order of their places, by their keys.
fn sort_by_key<I: Item>(mut items: Vec<I>) -> Vec<I> {
    if items.len() < MANY {
        items.sort_unstable();
        return items;
    }
    let differing = items.iter().fold(0, |d, i| d | (i.key() ^ items[0].key()));
    let mut other = vec![I::default(); items.len()];
    let mut counts = vec![0usize; 1 << DIGIT];
    for shift in (0..u64::BITS - differing.leading_zeros()).step_by(DIGIT as usize) {
        let digit = |i: I| (i.key() >> shift) as usize & ((1 << DIGIT) - 1);
        if differing >> shift & ((1 << DIGIT) - 1) == 0 {
            continue;
        }
        counts.fill(0);
        items.iter().for_each(|i| counts[digit(*i)] += 1);
        let mut all = 0;
        counts.iter_mut().for_each(|c| all += std::mem::replace(c, all));
        for &i in &items {
            let at = &mut counts[digit(i)];
            other[*at] = i;
            *at += 1;
        }
        std::mem::swap(&mut items, &mut other);
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Scalar, SplitMix};

    /// Unique elements by comparing each with all.
    fn check(x: &Tensor) {
        let found = find_uniques(x, true).expect("unique elements");
        let v: Vec<f64> = (0..x.numel()).map(|i| x.get(i).to_f64()).collect();
        let mut order: Vec<usize> = (0..v.len()).collect();
        order.sort_by(|&a, &b| {
            v[a].partial_cmp(&v[b])
                .unwrap_or_else(|| v[a].is_nan().cmp(&v[b].is_nan()))
        });
        let (mut first, mut counts, mut inverse) = (vec![], vec![], vec![0; v.len()]);
        for (k, &i) in order.iter().enumerate() {
            if k == 0 || v[order[k - 1]] != v[i] {
                first.push(i);
                counts.push(0);
            }
            inverse[i] = first.len() as i64 - 1;
            *counts.last_mut().expect("a group") += 1;
        }
        let bits = |places: &[usize]| places.iter().map(|&i| x.get(i).bits()).collect::<Vec<u64>>();
        assert_eq!(bits(&found.first), bits(&first), "{}", x.dtype());
        assert_eq!(found.counts, counts);
        assert_eq!(found.inverse.expect("places").as_slice::<i64>(), inverse);
    }

    #[test]
    fn unique_elements_are_those_of_comparisons() {
        let mut random = SplitMix::new(3);
        for n in [0, 1, 2, 100, 3000] {
            for span in [1, 5, 200, 3000, 1 << 20, 1 << 40] {
                let number = |random: &mut SplitMix| random.next_below(span) as f64 - (span / 2) as f64;
                for dtype in [
                    DType::I64,
                    DType::I32,
                    DType::U8,
                    DType::B8,
                    DType::F32,
                    DType::F64,
                    DType::BF16,
                ] {
                    check(&Tensor::from_fn(dtype, &[n], |_| {
                        Scalar::F64(number(&mut random)).cast(dtype)
                    }));
                }
            }
        }
        let odd = [0.0, -0.0, f64::NAN, f64::INFINITY, -1.0, f64::NEG_INFINITY, -f64::NAN];
        for dtype in [DType::F32, DType::F64, DType::F16] {
            check(&Tensor::from_fn(dtype, &[3000], |_| {
                Scalar::F64(random.pick(&odd)).cast(dtype)
            }));
        }
        check(&Tensor::from_slice(&[4], &[i64::MIN, i64::MAX, 0, i64::MIN]));
        let unsigned =
            find_uniques(&Tensor::from_slice(&[3], &[u64::MAX, 1, u64::MAX]), false).expect("unique elements");
        assert_eq!((unsigned.first, unsigned.counts), (vec![1, 0], vec![1, 2]));
    }
}
