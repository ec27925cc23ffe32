//! The number of occurrences of integers, and sums of their weights.

use super::counting::COPIES;
use crate::op::rows::dense::zeros;
use crate::op::rows::fill::units_per_part;
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Element, Tensor, with_wide_vectors};
use crate::types::{DType, Dim, TensorType, Val};
use std::ops::AddAssign;

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor",
            |c, _| {
                let (d, x) = c.shaped("self")?;
                if x.len() != 1 || !d.is_int() {
                    return Err(OpError::shape(
                        "bincount only supports 1-d non-negative integral inputs.",
                    ));
                }
                let dtype = match c.opt_leaf("weights").map(|w| w.dtype) {
                    // torch returns before it looks at the weights.
                    _ if *x == [Dim::Const(0)] => DType::I64,
                    None => DType::I64,
                    Some(DType::F32) => DType::F32,
                    Some(_) => DType::F64,
                };
                Ok(Val::Leaf(TensorType::new(dtype, vec![Dim::Unknown])))
            },
            Meaning::Routine(bincount),
        )
        .doc("the number of occurrences of each integer, or the sum of its weights")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn bincount(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let x = c.leaf("self")?.to(DType::I64);
    let v = x.as_slice::<i64>();
    let (low, high) = range_of(v);
    if low < 0 {
        return Err(OpError::value(
            "bincount only supports 1-d non-negative integral inputs.",
        ));
    }
    let n = (high as usize).wrapping_add(1).max(c.int("minlength")?.max(0) as usize);
    if n > isize::MAX as usize / 16 {
        return Err(OpError::shape("bincount: the largest value is too large"));
    }
    let Some(w) = c.opt_leaf("weights").filter(|_| !v.is_empty()) else {
        return count_integers(v, n).map(Val::Leaf);
    };
    if w.numel() != v.len() {
        return Err(OpError::shape(
            "weights should be 1-d and have the same length as input",
        ));
    }
    // As in torch, sums of f32 are rounded to f32 one by one.
    match w.dtype() {
        DType::F32 => summed_weights(v, w.as_slice::<f32>(), n),
        _ => summed_weights(v, w.to(DType::F64).as_slice::<f64>(), n),
    }
    .map(Val::Leaf)
}

/// The least integer or 0, and the greatest or -1.
fn range_of(v: &[i64]) -> (i64, i64) {
    Pool::with_lent(|pool| {
        let part = units_per_part(v.len(), size_of::<i64>(), pool);
        let mut ranges = vec![(0, -1); v.len().div_ceil(part)];
        pool.run_parts(&mut ranges, 1, |i, range| {
            let v = &v[i * part..v.len().min((i + 1) * part)];
            let wider = |(low, high): (i64, i64), &i: &i64| (i.min(low), i.max(high));
            range[0] = with_wide_vectors(|| v.iter().fold((0, -1), wider));
        });
        let join = |(low, high): (i64, i64), &(l, h): &(i64, i64)| (low.min(l), high.max(h));
        ranges.iter().fold((0, -1), join)
    })
}

/// The number of occurrences of each integer below `n`.
fn count_integers(v: &[i64], n: usize) -> OpResult<Tensor> {
    let mut out = zeros(DType::I64, &[n])?;
    let counts = out.as_mut_slice::<i64>();
    if v.is_empty() {
        return Ok(out);
    }
    // Copies of many counts would not stay in the cache, and cost more than few elements.
    if n > (1 << 14).min(v.len() / 2) {
        v.iter().for_each(|&i| counts[i as usize] += 1);
        return Ok(out);
    }
    Pool::with_lent(|pool| {
        // Adding up the counts of a part costs less than its elements.
        let part = units_per_part(v.len(), 2 * size_of::<i64>(), pool).max(COPIES * n);
        let mut copies = vec![[0i64; COPIES]; v.len().div_ceil(part) * n];
        pool.run_parts(&mut copies, n, |i, copies| {
            count_copies(&v[i * part..v.len().min((i + 1) * part)], copies);
        });
        for copies in copies.chunks_exact(n) {
            let sums = counts.iter_mut().zip(copies);
            sums.for_each(|(count, c)| *count += c.iter().sum::<i64>());
        }
    });
    Ok(out)
}

/// Counts integers in copies of counts that take turns.
fn count_copies(v: &[i64], copies: &mut [[i64; COPIES]]) {
    let (fours, rest) = v.as_chunks::<COPIES>();
    for four in fours {
        (0..COPIES).for_each(|k| copies[four[k] as usize][k] += 1);
    }
    rest.iter().for_each(|&i| copies[i as usize][0] += 1);
}

/// The sums of the weights of each integer below `n`, in the order of the elements.
fn summed_weights<T: Element + AddAssign>(v: &[i64], weights: &[T], n: usize) -> OpResult<Tensor> {
    let mut out = zeros(T::DTYPE, &[n])?;
    let sums = out.as_mut_slice::<T>();
    v.iter().zip(weights).for_each(|(&i, &w)| sums[i as usize] += w);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::by_name;

    #[test]
    fn integers_are_counted_and_their_weights_are_added_in_order() {
        for (len, span) in [
            (0, 1),
            (1, 1),
            (7, 3),
            (1000, 1),
            (1003, 100),
            (1001, 5000),
            (100_003, 90),
        ] {
            let v: Vec<i64> = (0..len).map(|i| (i * 37 + i / 3) % span).collect();
            let n = v.iter().max().map_or(2, |m| (m + 1).max(2)) as usize;
            let w: Vec<f32> = (0..len).map(|i| 0.1 + i as f32).collect();
            let (mut counts, mut sums) = (vec![0i64; n], vec![0f32; n]);
            for (&i, w) in v.iter().zip(&w) {
                counts[i as usize] += 1;
                sums[i as usize] += w;
            }
            let count = |weights: Val<Tensor>| {
                let call = Call {
                    op: by_name("bincount").expect("a row"),
                    args: vec![Val::Leaf(Tensor::from_slice(&[v.len()], &v)), weights, Val::int(2)],
                };
                bincount(&call).expect("counts").as_leaf().cloned().expect("a tensor")
            };
            assert_eq!(count(Val::None).as_slice::<i64>(), counts);
            if len == 0 {
                continue;
            }
            assert_eq!(
                count(Val::Leaf(Tensor::from_slice(&[w.len()], &w))).as_slice::<f32>(),
                sums
            );
        }
    }
}
