//! Running extrema with their positions: cummax and cummin.

use super::scan::{lines_of, scan_type};
use crate::op::rows::index::combine::{Cell, with_cell};
use crate::op::rows::lines::{DimLines, WideValues, tensor_of};
use crate::op::{Call, Meaning, Op, OpError, OpResult};
use crate::tensor::{Tensor, ViewMut};
use crate::types::{DType, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)",
            |c, _| running_type(c),
            Meaning::Fill(|c, outs, _| running_extremum(c, outs, true)),
        )
        .doc("the cumulative maximum along a dim, and the index of its last occurrence; NaN propagates")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)",
            |c, _| running_type(c),
            Meaning::Fill(|c, outs, _| running_extremum(c, outs, false)),
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

fn running_extremum(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], largest: bool) -> OpResult<()> {
    let t = c.leaf("self")?;
    let lines = lines_of(c, t)?;
    let [values, indices] = outs else {
        return Err(OpError::arg("self", "values and indices are two results"));
    };
    let indices = indices.as_mut_slice::<i64>();
    with_cell!(t.dtype(), T => {
        run_lines(t.as_slice::<T>(), values.as_mut_slice::<T>(), indices, &lines, largest);
    }, else {
        let mut picked = WideValues::from_tensor(t);
        match &mut picked {
            WideValues::Float(v) => run_lines(&v.clone(), v, indices, &lines, largest),
            WideValues::Int(v) => run_lines(&v.clone(), v, indices, &lines, largest),
        }
        values.bytes_mut().copy_from_slice(tensor_of(t.dtype(), t.shape(), &picked).bytes());
    });
    Ok(())
}

/// The running extrema of all lines with their last positions. NaN stays.
fn run_lines<T: Cell>(v: &[T], values: &mut [T], indices: &mut [i64], lines: &DimLines, largest: bool) {
    let takes = |x: T, best: T| {
        let at_least = if largest { x >= best } else { x <= best };
        x.is_nan() || (!best.is_nan() && at_least)
    };
    let (n, inner) = (lines.len, lines.inner);
    if v.is_empty() {
        return;
    }
    let blocks = values
        .chunks_exact_mut(n * inner)
        .zip(indices.chunks_exact_mut(n * inner));
    for ((values, indices), v) in blocks.zip(v.chunks_exact(n * inner)) {
        if inner == 1 {
            let mut best = (v[0], 0);
            for (k, ((value, index), &x)) in values.iter_mut().zip(indices).zip(v).enumerate() {
                let take = takes(x, best.0);
                best = (if take { x } else { best.0 }, if take { k as i64 } else { best.1 });
                (*value, *index) = best;
            }
            continue;
        }
        values[..inner].copy_from_slice(&v[..inner]);
        indices[..inner].fill(0);
        for k in 1..n {
            let (done, rest) = values.split_at_mut(k * inner);
            let (done_at, rest_at) = indices.split_at_mut(k * inner);
            let (best, at) = (&done[(k - 1) * inner..], &done_at[(k - 1) * inner..]);
            let row = rest.iter_mut().zip(rest_at).zip(&v[k * inner..]);
            for (((value, index), &x), (&b, &a)) in row.zip(best.iter().zip(at)) {
                let take = takes(x, b);
                *value = if take { x } else { b };
                *index = if take { k as i64 } else { a };
            }
        }
    }
}
