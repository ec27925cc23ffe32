//! Sorting and selecting by order.

use super::combine::{Cell, with_cell};
use crate::op::rows::fill::with_size;
use crate::op::rows::lines::DimLines;
use crate::op::rows::order::{Wanted, for_each_ordered_line};
use crate::op::{Build, Call, Meaning, MemoryOrder, Op, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::cmp::Ordering;

pub(crate) fn rows() -> Vec<Op> {
    [sort_rows(), selection_rows(), search_rows(), bucket_rows()]
        .into_iter()
        .flatten()
        .collect()
}

fn sort_rows() -> Vec<Op> {
    vec![
        Op::new(
            "sort(Tensor self, int dim=-1, bool descending=False, *, bool? stable=None) -> (Tensor, Tensor)",
            |c, _| values_and_indices_type(c, None),
            Meaning::Fill(sort_dim),
        )
        .order(MemoryOrder::First)
        .doc("the sorted elements along a dim and their original indices; NaN is the greatest; the sort is stable")
        .spelled("aten.@ aten.@.stable torch.@ Tensor.@"),
        Op::composite(
            "argsort(Tensor self, int dim=-1, bool descending=False, *, bool? stable=None) -> Tensor",
            |b, c| nth_result(b, OpId::Sort, c.args.clone(), 1),
        )
        .order(MemoryOrder::First)
        .doc("the indices that sort the elements along a dim")
        .spelled("aten.@ aten.@.stable torch.@ Tensor.@")
        .form(
            "torch.argsort Tensor.argsort",
            "argsort(Tensor self, int dim=-1, bool descending=False, bool? stable=None) -> Tensor",
        ),
        Op::composite("msort(Tensor self) -> Tensor", |b, c| {
            nth_result(b, OpId::Sort, vec![c.get("self").clone(), Val::int(0)], 0)
        })
        .order(MemoryOrder::First)
        .doc("the elements sorted along the first dim")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

/// The largest elements, and the k-th smallest.
fn selection_rows() -> Vec<Op> {
    vec![
        Op::new(
            "topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor, Tensor)",
            topk_type,
            Meaning::Fill(topk),
        )
        .doc("the k largest or smallest elements along a dim, and their indices")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor, Tensor)",
            kth_type,
            Meaning::Fill(kthvalue),
        )
        .doc("the k-th smallest element along a dim, and its index")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

fn nth_result(b: &mut dyn Build, op: OpId, args: Vec<Val<Traced>>, n: usize) -> OpResult<Val<Traced>> {
    let mut v = b.call_many(op, args)?;
    if n >= v.len() {
        return Err(OpError::arg("self", format!("`{op}` returns {} tensors", v.len())));
    }
    Ok(v.swap_remove(n).into())
}

/// The types of values and indices, with another size along the dim.
fn values_and_indices_type(c: &Call<TensorType>, size: Option<Dim>) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let dim = wrap_dim(c.int("dim")?, x.len())?;
    let mut shape = x.to_vec();
    if let (Some(slot), Some(n)) = (shape.get_mut(dim), size) {
        *slot = n;
    }
    let t = |d: DType| Val::Leaf(TensorType::new(d, shape.clone()));
    Ok(Val::Tuple(vec![t(d), t(DType::I64)]))
}

fn topk_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    if d == DType::B8 {
        return Err(crate::op::pointwise::not_implemented("topk_cpu", d));
    }
    let dim = wrap_dim(c.int("dim")?, x.len())?;
    let k = c.dims("k")?[0].clone();
    let n = x.get(dim).cloned().unwrap_or(Dim::Const(1));
    let over = k.sub(&n).as_const().is_some_and(|o| o > 0);
    if over || k.as_const().is_some_and(|k| k < 0) {
        return Err(OpError::shape("selected index k out of range"));
    }
    values_and_indices_type(c, Some(k))
}

fn kth_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let dim = wrap_dim(c.int("dim")?, x.len())?;
    let k = c.int("k")?;
    let n = x.get(dim).cloned().unwrap_or(Dim::Const(1));
    if k < 1 || n.as_const().is_some_and(|n| k > n) {
        return Err(OpError::shape(format!(
            "kthvalue(): selected number k out of range for dimension {dim}"
        )));
    }
    let mut shape = x.to_vec();
    if dim < shape.len() {
        match c.bool("keepdim")? {
            true => shape[dim] = Dim::Const(1),
            false => drop(shape.remove(dim)),
        }
    }
    let t = |d: DType| Val::Leaf(TensorType::new(d, shape.clone()));
    Ok(Val::Tuple(vec![t(d), t(DType::I64)]))
}

/// Ascending order, with NaN as the greatest value.
pub(in crate::op::rows) fn float_order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Writes values and indices of the elements `take` of each sorted line.
fn take_sorted(
    x: &Tensor,
    dim: usize,
    descending: bool,
    outs: &mut [ViewMut<'_>],
    take: std::ops::Range<usize>,
) -> OpResult<()> {
    let [values, indices] = outs else {
        return Err(OpError::arg("self", "values and indices are two results"));
    };
    let lines = DimLines::new(x.shape(), dim);
    let (n, inner, len) = (lines.len, lines.inner, take.len());
    let index = indices.as_mut_slice::<i64>();
    with_size!(x.dtype().size(), N => {
        let (src, dst) = (x.bytes().as_chunks::<N>().0, values.bytes_mut().as_chunks_mut::<N>().0);
        for_each_ordered_line(x, &lines, descending, &Wanted::Part(take), &mut |line, order| {
            let (o, i) = (line / inner, line % inner);
            for (k, &p) in order.iter().enumerate() {
                let to = (o * len + k) * inner + i;
                (dst[to], index[to]) = (src[(o * n + p) * inner + i], p as i64);
            }
        });
    });
    Ok(())
}

fn sort_dim(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let n = x.shape().get(dim).copied().unwrap_or(1);
    take_sorted(x, dim, c.bool("descending")?, outs, 0..n)
}

fn topk(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let k = c.int("k")?.max(0) as usize;
    if x.rank() == 0 && k == 0 {
        return Err(OpError::shape("selected index k out of range"));
    }
    take_sorted(x, dim, c.bool("largest")?, outs, 0..k)
}

fn kthvalue(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], _: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let k = c.int("k")?.max(1) as usize;
    take_sorted(x, dim, false, outs, k - 1..k)
}

/// Rows that search in sorted boundaries.
fn search_rows() -> Vec<Op> {
    vec![
        Op::new(
            "searchsorted(Tensor sorted_sequence, Any self, *, bool out_int32=False, bool right=False, str? side=None, \
             Tensor? sorter=None) -> Tensor",
            search_type,
            Meaning::Routine(|c| {
                let right = c.bool("right")? || c.get("side").as_str() == Some("right");
                let sorted = match c.opt_leaf("sorter") {
                    Some(s) => apply_sorter(c.leaf("sorted_sequence")?, s)?,
                    None => c.leaf("sorted_sequence")?.clone(),
                };
                search_sorted(&sorted, c.get("self"), right, c.bool("out_int32")?)
            }),
        )
        .doc("the insertion index of each value in a sorted row")
        .spelled("aten.@.Tensor aten.@.Scalar torch.@"),
    ]
}

fn bucket_rows() -> Vec<Op> {
    vec![
        Op::new(
            "bucketize(Any self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
            |c, _| {
                let b = c.shaped("boundaries")?.1;
                if b.len() != 1 {
                    return Err(OpError::shape(format!(
                        "boundaries tensor must be 1 dimension, but got dim({})",
                        b.len()
                    )));
                }
                search_result(c)
            },
            Meaning::Routine(|c| {
                search_sorted(
                    c.leaf("boundaries")?,
                    c.get("self"),
                    c.bool("right")?,
                    c.bool("out_int32")?,
                )
            }),
        )
        .doc("the index of the interval between boundaries that contains each value")
        .spelled("aten.@.Tensor aten.@.Scalar torch.@"),
    ]
}

fn search_result(c: &Call<TensorType>) -> OpResult<Type> {
    let dtype = if c.bool("out_int32")? { DType::I32 } else { DType::I64 };
    let shape = match c.get("self") {
        Val::Leaf(t) => t.shape.clone(),
        Val::Unknown => None,
        Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Any(_) => Some(vec![]),
        _ => return Err(OpError::arg("self", "the values must be a tensor or a number")),
    };
    Ok(Val::Leaf(TensorType { dtype, shape }))
}

fn search_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    if c.bool("right")? && c.get("side").as_str() == Some("left") {
        return Err(OpError::arg(
            "side",
            "side and right can't be set to opposites, got side of left while right was True",
        ));
    }
    let s = c.shaped("sorted_sequence")?.1;
    if let (true, Some(Val::Leaf(v))) = (s.len() != 1, c.args.get(1)) {
        let v = v.shape.clone().unwrap_or_default();
        let text = || {
            "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value tensor must \
             match"
                .to_string()
        };
        if v.len() != s.len() {
            return Err(OpError::shape(text()));
        }
        for (a, b) in s.iter().zip(&v).take(s.len().saturating_sub(1)) {
            sizes.unify_dims(a, b, text)?;
        }
    }
    search_result(c)
}

fn apply_sorter(x: &Tensor, order: &Tensor) -> OpResult<Tensor> {
    if x.shape() != order.shape() || order.dtype() != DType::I64 {
        return Err(OpError::shape(
            "boundary and sorter must have the same size, and the sorter must be i64",
        ));
    }
    let n = x.shape().last().copied().unwrap_or(1).max(1);
    for &i in order.as_slice::<i64>() {
        crate::op::rows::dense::in_range(i, n, 0)?;
    }
    let at = order.as_slice::<i64>();
    Ok(Tensor::from_fn(x.dtype(), x.shape(), |i| {
        x.get(i / n * n + at[i] as usize)
    }))
}

fn search_sorted(sorted: &Tensor, values: &Val<Tensor>, right: bool, int32: bool) -> OpResult<Val<Tensor>> {
    let values = match values {
        Val::Leaf(t) => t.clone(),
        Val::Float(x) => Tensor::scalar(*x),
        v => Tensor::scalar(
            v.as_int()
                .ok_or_else(|| OpError::arg("self", "the values must be a tensor or a number"))?,
        ),
    };
    let found = search_cells(sorted, &values, right).unwrap_or_else(|| search_scalars(sorted, &values, right));
    let out = Tensor::from_slice(values.shape(), &found);
    Ok(Val::Leaf(if int32 { out.to(DType::I32) } else { out }))
}

/// The number of values for each line of the sorted sequence, and the length of a line. A 1-dim sequence is used for all
/// values; otherwise each line has its own.
fn search_lines(sorted: &Tensor, values: &Tensor) -> (usize, usize) {
    let per_line = match sorted.rank() {
        0 | 1 => values.numel().max(1),
        _ => values.shape().last().copied().unwrap_or(1).max(1),
    };
    (per_line, sorted.shape().last().copied().unwrap_or(1))
}

/// [`search_sorted`] for tensors of one dtype that has cells.
fn search_cells(sorted: &Tensor, values: &Tensor, right: bool) -> Option<Vec<i64>> {
    if sorted.dtype() != values.dtype() {
        return None;
    }
    let (per_line, n) = search_lines(sorted, values);
    let mut found = vec![0i64; values.numel()];
    with_cell!(values.dtype(), T => {
        let (sorted, values) = (sorted.as_slice::<T>(), values.as_slice::<T>());
        for (r, (found, values)) in found.chunks_mut(per_line).zip(values.chunks(per_line)).enumerate() {
            let line = &sorted[r * n..][..n];
            let places = values.iter().map(|&v| place_in_order(line, v, right));
            found.iter_mut().zip(places).for_each(|(f, p)| *f = p as i64);
        }
        Some(found)
    }, else None)
}

/// [`search_sorted`] for any dtypes.
fn search_scalars(sorted: &Tensor, values: &Tensor, right: bool) -> Vec<i64> {
    let (per_line, n) = search_lines(sorted, values);
    let search = |i: usize| {
        let (base, v) = (i / per_line * n, values.get(i));
        partition_point(n, |k| {
            let order = match (sorted.get(base + k), v) {
                (Scalar::Int(_, a), Scalar::Int(_, b)) => a.cmp(&b),
                (s, v) => float_order(s.to_f64(), v.to_f64()),
            };
            order == Ordering::Less || (right && order == Ordering::Equal)
        }) as i64
    };
    (0..values.numel()).map(search).collect()
}

/// The number of elements of an ordered line that come before `v`; with `right`, also those that are equal. NaN is the greatest.
#[inline]
fn place_in_order<T: Cell>(line: &[T], v: T, right: bool) -> usize {
    let comes_before = |a: T, b: T| a < b || (b.is_nan() && !a.is_nan());
    match right {
        true => partition_point(line.len(), |k| !comes_before(v, line[k])),
        false => partition_point(line.len(), |k| comes_before(line[k], v)),
    }
}

/// The first of `n` positions that is not `before`. The steps do not depend on the answers, so that no branch is mispredicted.
#[inline(always)]
fn partition_point(n: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut left) = (0, n);
    while left > 1 {
        let half = left / 2;
        low += half * before(low + half - 1) as usize;
        left -= half;
    }
    low + (left == 1 && before(low)) as usize
}
