//! Runs of equal elements, for the element types that have compiled loops.

use crate::op::rows::dense::zeros;
use crate::op::rows::index::combine::Cell;
use crate::op::{Call, OpResult};
use crate::tensor::{Tensor, with_wide_vectors};
use crate::types::{DType, Val};

/// The first element of every run, the run of each element, and the lengths of the runs, as far as the call asks for them.
pub(super) fn element_runs<T: Cell>(c: &Call<Tensor>, input: &Tensor) -> OpResult<Val<Tensor>> {
    let x = input.as_slice::<T>();
    let differing = with_wide_vectors(|| {
        x.iter()
            .zip(x.iter().skip(1))
            .map(|(a, b)| (a != b) as usize)
            .sum::<usize>()
    });
    let count = if x.is_empty() { 0 } else { differing + 1 };
    let none = || Tensor::zeros(DType::I64, &[0]);
    let (with_inverse, with_counts) = (c.bool("return_inverse")?, c.bool("return_counts")?);
    let mut values = zeros(T::DTYPE, &[count])?;
    let firsts = values.as_mut_slice::<T>();
    for_each_backwards(x, count, |run, _, v| firsts[run] = v);
    let mut inverse = none();
    if with_inverse {
        inverse = zeros(DType::I64, input.shape())?;
        let runs = inverse.as_mut_slice::<i64>();
        for_each_backwards(x, count, |run, i, _| runs[i] = run as i64);
    }
    let mut counts = none();
    if with_counts {
        counts = zeros(DType::I64, &[count])?;
        let lengths = counts.as_mut_slice::<i64>();
        for_each_backwards(x, count, |run, i, _| lengths[run] = i as i64);
        // The starts of the runs become lengths.
        for run in 0..count {
            let next = lengths.get(run + 1).copied().unwrap_or(x.len() as i64);
            lengths[run] = next - lengths[run];
        }
    }
    Ok(Val::Tuple([values, inverse, counts].map(Val::Leaf).to_vec()))
}

/// Calls `f` with the run, the place and the value of each element, the last first: what `f` stores for a run is overwritten until the run's
/// first element. A branch on whether a run starts would be mispredicted.
#[inline(always)]
fn for_each_backwards<T: Cell>(x: &[T], count: usize, mut f: impl FnMut(usize, usize, T)) {
    let mut run = count.wrapping_sub(1);
    for i in (1..x.len()).rev() {
        f(run, i, x[i]);
        run -= (x[i] != x[i - 1]) as usize;
    }
    if let Some(&first) = x.first() {
        f(run, 0, first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::by_name;

    #[test]
    fn runs_are_those_of_a_walk() {
        let odd = [0.0f32, -0.0, 1.0, 1.0, f32::NAN, f32::NAN, -0.0, 0.0, 0.0, 2.0];
        for n in 0..=odd.len() {
            let x = &odd[..n];
            let (mut firsts, mut runs, mut lengths) = (vec![], vec![], vec![]);
            for i in 0..n {
                if i == 0 || x[i] != x[i - 1] {
                    firsts.push(x[i].to_bits());
                    lengths.push(0);
                }
                runs.push(firsts.len() as i64 - 1);
                lengths[firsts.len() - 1] += 1i64;
            }
            let call = Call {
                op: by_name("unique_consecutive").expect("a row"),
                args: vec![
                    Val::Leaf(Tensor::from_slice(&[n], x)),
                    Val::Bool(true),
                    Val::Bool(true),
                    Val::None,
                ],
            };
            let found = element_runs::<f32>(&call, &Tensor::from_slice(&[n], x)).expect("runs");
            let found = found.leaves();
            let bits: Vec<u32> = found[0].as_slice::<f32>().iter().map(|v| v.to_bits()).collect();
            assert_eq!(bits, firsts);
            assert_eq!(found[1].as_slice::<i64>(), runs);
            assert_eq!(found[2].as_slice::<i64>(), lengths);
        }
    }
}
