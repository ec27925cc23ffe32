//! The places of nonzero elements.

use crate::op::rows::dense::zeros;
use crate::op::rows::fill::units_per_part;
use crate::op::rows::index::combine::{Cell, with_cell};
use crate::op::{OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor, WideLoop, cells_of, contiguous_strides, run_wide};
use crate::types::DType;
use std::ops::Range;

/// The number of elements whose flags are in one word.
const WORD: usize = 64;

/// The indices of nonzero elements, as rows, found by the threads that were lent.
pub(in crate::op::rows::index) fn nonzero(x: &Tensor) -> OpResult<Tensor> {
    Pool::with_lent(|pool| nonzero_on(x, pool))
}

fn nonzero_on(x: &Tensor, pool: &Pool) -> OpResult<Tensor> {
    let words = flags_of(x, pool);
    let part = words_per_part(words.len(), pool);
    let mut counts = vec![0; words.len().div_ceil(part)];
    pool.run_parts(&mut counts, 1, |i, count| {
        let words = words[i * part..].iter().take(part);
        count[0] = words.map(|w| w.count_ones() as usize).sum();
    });
    let mut out = zeros(DType::I64, &[counts.iter().sum(), x.rank()])?;
    let dst = out.as_mut_slice::<i64>();
    if dst.is_empty() {
        return Ok(out);
    }
    let found = Found {
        words: &words,
        shape: x.shape(),
        part: part * WORD,
        counts: &counts,
    };
    match x.rank() {
        1 => found.write(dst.as_chunks_mut().0, pool, write_rows::<1>),
        2 => found.write(dst.as_chunks_mut().0, pool, write_rows::<2>),
        3 => found.write(dst.as_chunks_mut().0, pool, write_rows::<3>),
        4 => found.write(dst.as_chunks_mut().0, pool, write_rows::<4>),
        _ => write_long_rows(&words, x.shape(), dst)?,
    }
    Ok(out)
}

/// The number of words that a thread handles at once.
fn words_per_part(words: usize, pool: &Pool) -> usize {
    const COST_OF_AN_ELEMENT: usize = 8;
    units_per_part(words, WORD * COST_OF_AN_ELEMENT, pool)
}

/// The bits of all elements of a tensor, in parts of the same number of elements, of which some are set.
struct Found<'a> {
    words: &'a [u64],
    shape: &'a [usize],
    part: usize,
    counts: &'a [usize],
}

/// Writes the rows of the bits that are set in a range of the elements of a tensor of a shape.
type WriteRows<R> = fn(&[u64], &[usize], Range<usize>, &mut [R]);

impl Found<'_> {
    /// Writes the rows of all bits by `write`, which writes those of a range of elements.
    fn write<R: Send>(&self, mut out: &mut [R], pool: &Pool, write: WriteRows<R>) {
        let part = |&n: &usize| out.split_off_mut(..n).unwrap_or_default();
        let mut parts: Vec<&mut [R]> = self.counts.iter().map(part).collect();
        let all: usize = self.shape.iter().product();
        pool.run_parts(&mut parts, 1, |i, out| {
            let elements = i * self.part..all.min((i + 1) * self.part);
            write(self.words, self.shape, elements, out[0]);
        });
    }
}

/// A bit for each element, which says whether the element is not zero. The bits after the last element are 0.
fn flags_of(x: &Tensor, pool: &Pool) -> Vec<u64> {
    if x.dtype() == DType::B8 {
        return flags(x.bytes(), |b| *b != 0, pool);
    }
    // Both zeros of the 16-bit floats are 0 but for the sign.
    if x.dtype().is_half() {
        return flags(cells_of::<u16>(x.bytes()), |b| b << 1 != 0, pool);
    }
    with_cell!(x.dtype(), T => {
        let zero = T::from_scalar(Scalar::F64(0.0));
        flags(x.as_slice::<T>(), |v| *v != zero, pool)
    }, else flags(x.to(DType::B8).bytes(), |b| *b != 0, pool))
}

fn flags<T: Sync>(x: &[T], is_set: impl Fn(&T) -> bool + Copy + Sync, pool: &Pool) -> Vec<u64> {
    let mut words = vec![0; x.len().div_ceil(WORD)];
    let part = words_per_part(words.len(), pool);
    pool.run_parts(&mut words, part, |i, words| {
        let x = &x[i * part * WORD..];
        run_wide(FlagWords {
            x: &x[..x.len().min(words.len() * WORD)],
            is_set,
            words,
        });
    });
    words
}

struct FlagWords<'a, T, F> {
    x: &'a [T],
    is_set: F,
    words: &'a mut [u64],
}

impl<T, F: Fn(&T) -> bool> WideLoop for FlagWords<'_, T, F> {
    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "loops over indices become vector code more often"
    )]
    fn run(self) {
        let (whole, rest) = self.x.as_chunks::<WORD>();
        let mut bytes = [0u8; WORD];
        for i in 0..whole.len() {
            let x = &whole[i];
            for k in 0..WORD {
                bytes[k] = (self.is_set)(&x[k]) as u8;
            }
            self.words[i] = gathered_bits(&bytes);
        }
        if let Some(word) = self.words.last_mut().filter(|_| !rest.is_empty()) {
            let bit = |(k, x): (usize, &T)| ((self.is_set)(x) as u64) << k;
            *word = rest.iter().enumerate().fold(0, |w, x| w | bit(x));
        }
    }
}

/// The lowest bits of bytes that are 0 or 1.
#[inline(always)]
fn gathered_bits(bytes: &[u8; WORD]) -> u64 {
    // The product moves the bit of byte `i` to bit `56 + i`; no two of its terms meet.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let eights = bytes.as_chunks::<8>().0.iter().enumerate();
    eights.fold(0, |word, (k, b)| {
        word | (u64::from_le_bytes(*b).wrapping_mul(GATHER) >> 56) << (8 * k)
    })
}

/// Calls `f` with each bit that is set in bits `from` to `to`, counted from `from`.
#[inline(always)]
fn for_each_bit(words: &[u64], from: usize, to: usize, mut f: impl FnMut(usize)) {
    if from == to {
        return;
    }
    let (first, last) = (from / WORD, (to - 1) / WORD);
    for (k, word) in words[first..=last].iter().enumerate() {
        let at = (first + k) * WORD;
        let mut bits = *word;
        if at < from {
            bits &= u64::MAX << (from - at);
        }
        if at + WORD > to {
            bits &= u64::MAX >> (at + WORD - to);
        }
        while bits != 0 {
            f(at + bits.trailing_zeros() as usize - from);
            bits &= bits - 1;
        }
    }
}

/// The indices of the leading dims: moves to the next ones in row-major order.
#[inline(always)]
fn advance(lead: &mut [i64], shape: &[usize]) {
    for (index, &n) in lead.iter_mut().zip(shape).rev() {
        *index += 1;
        if *index < n as i64 {
            return;
        }
        *index = 0;
    }
}

/// Writes the indices of the bits that are set among these elements of a tensor of rank `R`.
fn write_rows<const R: usize>(words: &[u64], shape: &[usize], elements: Range<usize>, out: &mut [[i64; R]]) {
    let (width, outer) = (shape[R - 1], &shape[..R - 1]);
    let (mut row, mut next, mut from) = ([0i64; R], 0, elements.start);
    let mut line = from / width;
    for (d, stride) in contiguous_strides(outer).into_iter().enumerate() {
        row[d] = (line / stride % outer[d]) as i64;
    }
    while from < elements.end {
        let (begin, to) = (line * width, elements.end.min((line + 1) * width));
        for_each_bit(words, from, to, |k| {
            row[R - 1] = (from - begin + k) as i64;
            out[next] = row;
            next += 1;
        });
        advance(&mut row[..R - 1], outer);
        (line, from) = (line + 1, to);
    }
}

/// [`write_rows`] for any rank.
fn write_long_rows(words: &[u64], shape: &[usize], out: &mut [i64]) -> OpResult<()> {
    let Some((&width, outer)) = shape.split_last() else {
        return Err(OpError::shape("a number has no indices"));
    };
    let mut lead = vec![0i64; outer.len()];
    let mut rows = out.chunks_exact_mut(shape.len());
    for line in 0..outer.iter().product::<usize>() {
        for_each_bit(words, line * width, (line + 1) * width, |k| {
            if let Some((last, first)) = rows.next().and_then(<[i64]>::split_last_mut) {
                first.copy_from_slice(&lead);
                *last = k as i64;
            }
        });
        advance(&mut lead, outer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::SplitMix;

    #[test]
    fn rows_are_those_of_a_walk_through_the_elements() {
        let mut random = SplitMix::new(5);
        let shapes: [&[usize]; 9] = [
            &[1],
            &[64],
            &[65],
            &[200],
            &[3, 63],
            &[7, 130],
            &[5, 1, 9],
            &[2, 3, 4, 5],
            &[2, 1, 3, 2, 7],
        ];
        for shape in shapes {
            for values in [&[0.0, -0.0, 1.0][..], &[0.0, 0.0, 0.0, 0.0, f64::NAN], &[2.0]] {
                for dtype in [DType::B8, DType::F32, DType::F64, DType::I32, DType::BF16, DType::U16] {
                    let x = Tensor::from_fn(dtype, shape, |_| Scalar::F64(random.pick(values)).cast(dtype));
                    let mut want = vec![];
                    for i in (0..x.numel()).filter(|&i| x.get(i).to_bool()) {
                        let strides = contiguous_strides(shape);
                        want.extend(strides.iter().zip(shape).map(|(s, n)| (i / s % n) as i64));
                    }
                    let got = nonzero(&x).expect("indices");
                    assert_eq!(got.shape(), [want.len() / shape.len(), shape.len()]);
                    assert_eq!(got.as_slice::<i64>(), want, "{dtype} {shape:?}");
                }
            }
        }
    }

    #[test]
    fn empty_tensors_and_numbers_have_no_indices() {
        for shape in [&[][..], &[0], &[3, 0], &[0, 3]] {
            let got = nonzero(&Tensor::zeros(DType::F32, shape)).expect("indices");
            assert_eq!(got.shape(), [0, shape.len()]);
        }
        assert_eq!(nonzero(&Tensor::scalar(2i64)).expect("indices").shape(), [1, 0]);
    }

    #[test]
    fn threads_find_what_one_does() {
        let shapes: [&[usize]; 4] = [&[100_003], &[301, 407], &[3, 50_001], &[20, 60, 70]];
        for shape in shapes {
            let mut random = SplitMix::new(7);
            let x = Tensor::from_fn(DType::F32, shape, |_| Scalar::F64(random.pick(&[0.0, 1.0, 0.0])));
            let found = |threads: usize| nonzero_on(&x, &Pool::new(threads)).expect("indices");
            let (one, more) = (found(1), [2, 3].map(found));
            assert!(
                more.iter()
                    .all(|m| m.shape() == one.shape() && m.bytes() == one.bytes()),
                "{shape:?}"
            );
        }
    }
}
