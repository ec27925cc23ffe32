//! Running extrema with their positions: cummax and cummin.

use super::scan::{lines_of, scan_type};
use crate::op::rows::fill::{run_pairs, units_per_part};
use crate::op::rows::index::combine::{Cell, with_cell};
use crate::op::rows::lines::{DimLines, WideValues, tensor_of};
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, WideLoop, run_wide};
use crate::types::{DType, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)",
            |c, _| running_type(c),
            Meaning::Fill(|c, outs, pool| running_extremum(c, outs, true, pool)),
        )
        .doc("the cumulative maximum along a dim, and the index of its last occurrence; NaN propagates")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)",
            |c, _| running_type(c),
            Meaning::Fill(|c, outs, pool| running_extremum(c, outs, false, pool)),
        )
        .doc("the cumulative minimum along a dim, and the index of its last occurrence; NaN propagates")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn running_type(c: &Call<TensorType>) -> OpResult<Type> {
    let values = scan_type(c)?;
    let shape = c.leaf("self")?.shape.clone();
    let indices = TensorType {
        dtype: DType::I64,
        shape,
    };
    Ok(Val::Tuple(vec![values, Val::Leaf(indices)]))
}

fn running_extremum(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], largest: bool, pool: &Pool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let lines = lines_of(c, t)?;
    let [values, indices] = outs else {
        return Err(OpError::arg("self", "values and indices are two results"));
    };
    let indices = indices.as_mut_slice::<i64>();
    with_cell!(t.dtype(), T => {
        run_lines(t.as_slice::<T>(), values.as_mut_slice::<T>(), indices, &lines, largest, pool);
    }, else {
        let mut picked = WideValues::from_tensor(t);
        match &mut picked {
            WideValues::Float(v) => run_lines(&v.clone(), v, indices, &lines, largest, pool),
            WideValues::Int(v) => run_lines(&v.clone(), v, indices, &lines, largest, pool),
        }
        values.bytes_mut().copy_from_slice(tensor_of(t.dtype(), t.shape(), &picked).bytes());
    });
    Ok(())
}

/// The running extrema of all lines with their last positions. NaN stays.
fn run_lines<T: Cell>(v: &[T], values: &mut [T], indices: &mut [i64], lines: &DimLines, largest: bool, pool: &Pool) {
    let (n, inner) = (lines.len, lines.inner);
    if v.is_empty() {
        return;
    }
    let block = n * inner;
    let blocks = units_per_part(lines.outer, 2 * block * (size_of::<T>() + 8), pool);
    let len = blocks * block;
    run_pairs(pool, (values, len), (indices, len), |i, values, indices| {
        let v = &v[i * len..][..values.len()];
        if inner == 1 {
            return run_rows(v, values, indices, n, largest);
        }
        let blocks = values.chunks_exact_mut(block).zip(indices.chunks_exact_mut(block));
        for ((values, indices), v) in blocks.zip(v.chunks_exact(block)) {
            run_wide(RunningColumns {
                v,
                values,
                indices,
                inner,
                largest,
            });
        }
    });
}

/// Whether `x` becomes the extremum. NaN stays, because no number is at least or at most NaN.
#[inline(always)]
fn takes<T: Cell>(x: T, best: T, largest: bool) -> bool {
    x.is_nan() | if largest { x >= best } else { x <= best }
}

/// The rows that are computed together, because each element waits for the one before it in its row.
const TOGETHER: usize = 4;

/// The running extrema of rows of `n` elements.
fn run_rows<T: Cell>(v: &[T], values: &mut [T], indices: &mut [i64], n: usize, largest: bool) {
    let together = TOGETHER * n;
    let full = v.len() / together * together;
    let (values, last_values) = values.split_at_mut(full);
    let (indices, last_indices) = indices.split_at_mut(full);
    let groups = values
        .chunks_exact_mut(together)
        .zip(indices.chunks_exact_mut(together));
    for ((values, indices), v) in groups.zip(v.chunks_exact(together)) {
        run_adjacent_rows::<T, TOGETHER>(v, values, indices, n, largest);
    }
    let rows = last_values.chunks_exact_mut(n).zip(last_indices.chunks_exact_mut(n));
    for ((values, indices), v) in rows.zip(v[full..].chunks_exact(n)) {
        run_adjacent_rows::<T, 1>(v, values, indices, n, largest);
    }
}

/// The running extrema of `R` rows of `n` elements.
fn run_adjacent_rows<T: Cell, const R: usize>(v: &[T], values: &mut [T], indices: &mut [i64], n: usize, largest: bool) {
    // Slices of one length per row, so that the loop checks no bounds.
    let v: [&[T]; R] = std::array::from_fn(|r| &v[r * n..][..n]);
    let mut values = values.chunks_exact_mut(n);
    let values: [&mut [T]; R] = std::array::from_fn(|_| values.next().unwrap_or_default());
    let mut indices = indices.chunks_exact_mut(n);
    let indices: [&mut [i64]; R] = std::array::from_fn(|_| indices.next().unwrap_or_default());
    let mut best: [(T, i64); R] = std::array::from_fn(|r| (v[r][0], 0));
    for k in 0..n {
        for r in 0..R {
            let x = v[r][k];
            let take = takes(x, best[r].0, largest);
            best[r] = (
                if take { x } else { best[r].0 },
                if take { k as i64 } else { best[r].1 },
            );
            (values[r][k], indices[r][k]) = best[r];
        }
    }
}

/// The running extrema of columns.
struct RunningColumns<'a, T> {
    v: &'a [T],
    values: &'a mut [T],
    indices: &'a mut [i64],
    inner: usize,
    largest: bool,
}

impl<T: Cell> WideLoop for RunningColumns<'_, T> {
    #[inline(always)]
    fn run(self) {
        let (v, inner) = (self.v, self.inner);
        self.values[..inner].copy_from_slice(&v[..inner]);
        self.indices[..inner].fill(0);
        for k in 1..v.len() / inner {
            let (done, rest) = self.values.split_at_mut(k * inner);
            let (done_at, rest_at) = self.indices.split_at_mut(k * inner);
            let (best, at) = (&done[(k - 1) * inner..], &done_at[(k - 1) * inner..]);
            let row = rest.iter_mut().zip(rest_at).zip(&v[k * inner..]);
            for (((value, index), &x), (&b, &a)) in row.zip(best.iter().zip(at)) {
                let take = takes(x, b, self.largest);
                *value = if take { x } else { b };
                *index = if take { k as i64 } else { a };
            }
        }
    }
}
