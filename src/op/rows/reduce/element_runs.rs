//! Runs of equal elements, for the element types that have compiled loops.

use crate::op::rows::index::combine::Cell;
use crate::op::{Call, OpResult};
use crate::tensor::Tensor;
use crate::types::{DType, Val};

/// The first element of every run, the run of each element, and the lengths of the runs, as far as the call asks for them.
pub(super) fn element_runs<T: Cell>(c: &Call<Tensor>, input: &Tensor) -> OpResult<Val<Tensor>> {
    let x = input.as_slice::<T>();
    let (mut starts, mut count) = (vec![0; x.len() + 1], 0);
    // Every place is written, and overwritten unless a run starts there: a branch would be mispredicted.
    for i in 0..x.len() {
        starts[count] = i;
        count += (i == 0 || x[i] != x[i - 1]) as usize;
    }
    starts[count] = x.len();
    let (first, lengths) = (&starts[..count], starts[..count + 1].windows(2).map(|w| w[1] - w[0]));
    let values: Vec<T> = first.iter().map(|&i| x[i]).collect();
    let (mut inverse, mut counts) = (Tensor::zeros(DType::I64, &[0]), Tensor::zeros(DType::I64, &[0]));
    if c.bool("return_inverse")? {
        let runs: Vec<i64> = lengths
            .clone()
            .zip(0..)
            .flat_map(|(n, run)| std::iter::repeat_n(run, n))
            .collect();
        inverse = Tensor::from_slice(input.shape(), &runs);
    }
    if c.bool("return_counts")? {
        counts = Tensor::from_slice(&[count], &lengths.map(|n| n as i64).collect::<Vec<_>>());
    }
    let values = Tensor::from_slice(&[count], &values);
    Ok(Val::Tuple([values, inverse, counts].map(Val::Leaf).to_vec()))
}
