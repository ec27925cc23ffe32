//! Sorting and selecting by order.

use crate::op::rows::dense::{native, sizes_around, zeros};
use crate::op::{Build, Call, Meaning, MemoryOrder, Op, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::cmp::Ordering;

pub(crate) fn rows() -> Vec<Op> {
    sort_rows().into_iter().chain(search_rows()).collect()
}

fn sort_rows() -> Vec<Op> {
    vec![
        Op::new(
            "sort(Tensor self, int dim=-1, bool descending=False, *, bool? stable=None) -> (Tensor, Tensor)",
            |c, _| values_and_indices_type(c, None),
            Meaning::Routine(|c| sort_dim(c, c.bool("descending")?)),
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
        Op::new(
            "topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor, Tensor)",
            topk_type,
            Meaning::Routine(topk),
        )
        .doc("the k largest or smallest elements along a dim, and their indices")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor, Tensor)",
            kth_type,
            Meaning::Routine(kthvalue),
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

/// Sort keys in torch's order, in which NaN is the greatest value.
enum Keys {
    Float(Vec<f64>),
    Int(Vec<i64>),
}

impl Keys {
    fn from_tensor(x: &Tensor) -> Keys {
        match native(x.dtype()) {
            DType::I64 => Keys::Int(x.to(DType::I64).as_slice::<i64>().to_vec()),
            DType::F64 => Keys::Float(x.as_slice::<f64>().to_vec()),
            _ => Keys::Float(x.to(DType::F32).as_slice::<f32>().iter().map(|&v| v as f64).collect()),
        }
    }

    fn cmp_at(&self, i: usize, j: usize) -> Ordering {
        match self {
            Keys::Int(v) => v[i].cmp(&v[j]),
            Keys::Float(v) => float_order(v[i], v[j]),
        }
    }
}

/// Ascending order, with NaN as the greatest value.
pub(in crate::op::rows) fn float_order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Sorts each line along `dim` and calls `f(outer, inner, order)`, where `order` lists positions along the dim.
fn rows_in_order(x: &Tensor, dim: usize, descending: bool, f: &mut dyn FnMut(usize, usize, &[usize])) {
    let (outer, n, inner) = sizes_around(x.shape(), dim);
    let keys = Keys::from_tensor(x);
    let mut order: Vec<usize> = Vec::with_capacity(n);
    for o in 0..outer {
        for i in 0..inner {
            let at = |k: usize| (o * n + k) * inner + i;
            order.clear();
            order.extend(0..n);
            order.sort_by(|&p, &q| {
                let c = keys.cmp_at(at(p), at(q));
                if descending { c.reverse() } else { c }
            });
            f(o, i, &order);
        }
    }
}

/// Values and indices of the elements `take` of each sorted line.
fn take_sorted(
    x: &Tensor,
    dim: usize,
    descending: bool,
    shape: &[usize],
    take: std::ops::Range<usize>,
) -> OpResult<Val<Tensor>> {
    let (_, n, inner) = sizes_around(x.shape(), dim);
    let (mut values, mut at) = (zeros(x.dtype(), shape)?, zeros(DType::I64, shape)?);
    let (len, size) = (take.len(), x.dtype().size());
    let (src, dst) = (x.bytes(), values.bytes_mut());
    let index = at.as_mut_slice::<i64>();
    rows_in_order(x, dim, descending, &mut |o, i, order| {
        for (k, &p) in order[take.clone()].iter().enumerate() {
            let to = (o * len + k) * inner + i;
            super::gather::copy_element(dst, to, src, (o * n + p) * inner + i, size);
            index[to] = p as i64;
        }
    });
    Ok(Val::Tuple(vec![Val::Leaf(values), Val::Leaf(at)]))
}

fn sort_dim(c: &Call<Tensor>, descending: bool) -> OpResult<Val<Tensor>> {
    let x = c.leaf("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let n = x.shape().get(dim).copied().unwrap_or(1);
    take_sorted(x, dim, descending, x.shape(), 0..n)
}

fn topk(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let x = c.leaf("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let k = c.int("k")?.max(0) as usize;
    let mut shape = x.shape().to_vec();
    if let Some(s) = shape.get_mut(dim) {
        *s = k;
    }
    if x.rank() == 0 && k == 0 {
        return Err(OpError::shape("selected index k out of range"));
    }
    take_sorted(x, dim, c.bool("largest")?, &shape, 0..k)
}

fn kthvalue(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let x = c.leaf("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let k = c.int("k")?.max(1) as usize;
    let mut kept = x.shape().to_vec();
    if let Some(s) = kept.get_mut(dim) {
        *s = 1;
    }
    let both = take_sorted(x, dim, false, &kept, k - 1..k)?;
    if c.bool("keepdim")? || x.rank() == 0 {
        return Ok(both);
    }
    kept.remove(dim);
    Ok(both.map(|t| t.reshape(&kept)))
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
    let (values, shape) = match values {
        Val::Leaf(t) => ((0..t.numel()).map(|i| t.get(i)).collect::<Vec<_>>(), t.shape().to_vec()),
        Val::Float(x) => (vec![Scalar::F64(*x)], vec![]),
        v => {
            let i = v
                .as_int()
                .ok_or_else(|| OpError::arg("self", "the values must be a tensor or a number"))?;
            (vec![Scalar::Int(DType::I64, i)], vec![])
        }
    };
    let n = sorted.shape().last().copied().unwrap_or(1);
    // A 1-dim sequence is used for all values; otherwise each line has its own.
    let per_row = if sorted.rank() > 1 {
        shape.last().copied().unwrap_or(1).max(1)
    } else {
        usize::MAX
    };
    let position = |i: usize, v: Scalar| {
        let base = if per_row == usize::MAX { 0 } else { i / per_row * n };
        let before = |k: usize| {
            let s = sorted.get(base + k);
            let order = match (s, v) {
                (Scalar::Int(_, a), Scalar::Int(_, b)) => a.cmp(&b),
                _ => float_order(s.to_f64(), v.to_f64()),
            };
            order == Ordering::Less || (right && order == Ordering::Equal)
        };
        let (mut low, mut high) = (0, n);
        while low < high {
            let mid = (low + high) / 2;
            if before(mid) {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        low as i64
    };
    let found: Vec<i64> = values.iter().enumerate().map(|(i, &v)| position(i, v)).collect();
    let out = Tensor::from_slice(&shape, &found);
    Ok(Val::Leaf(if int32 { out.to(DType::I32) } else { out }))
}
