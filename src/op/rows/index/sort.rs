//! Sorting and selecting by order.

mod counted;
mod keys;

use self::counted::sort_counted;
use self::keys::narrow_keys;
use crate::op::rows::fill::{run_pairs, units_per_part, with_size};
use crate::op::rows::lines::DimLines;
use crate::op::rows::order::{ShortOrders, Ties, Wanted, are_few, for_each_ordered_line};
use crate::op::{Build, Call, Meaning, MemoryOrder, Op, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::cmp::Ordering;

pub(crate) fn rows() -> Vec<Op> {
    [sort_rows(), selection_rows()].into_iter().flatten().collect()
}

fn sort_rows() -> Vec<Op> {
    vec![
        Op::new(
            "sort(Tensor self, int dim=-1, bool descending=False, *, bool? stable=None) -> (Tensor, Tensor)",
            |c, _| values_and_indices_type(c, None),
            Meaning::Fill(sort_dim),
        )
        .order(MemoryOrder::First)
        .doc("the sorted elements along a dim and their original indices; NaN is the greatest; without `stable=True`, equal elements have the order that torch gives them")
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

/// `topk` of at most this many elements of lines of at least this length inserts elements into a sorted list.
const FEW: usize = 16;
const LONG: usize = 128;

/// Writes values and indices of the elements `take` of each sorted line.
fn take_sorted(
    x: &Tensor,
    dim: usize,
    descending: bool,
    outs: &mut [ViewMut<'_>],
    (take, ties): (std::ops::Range<usize>, Ties),
    pool: &Pool,
) -> OpResult<()> {
    let [values, indices] = outs else {
        return Err(OpError::arg("self", "values and indices are two results"));
    };
    let lines = DimLines::new(x.shape(), dim);
    let len = take.len();
    let index = indices.as_mut_slice::<i64>();
    if index.is_empty() {
        return Ok(());
    }
    let counts = lines.inner == 1 && len == lines.len && ties == Ties::Stable;
    if counts && sort_counted(x, len, descending, (&mut *values, &mut *index), pool) {
        return Ok(());
    }
    let few = take.end <= FEW && lines.len > LONG || are_few(take.end, lines.len);
    let keys = narrow_keys(x, few, pool);
    let keys = keys.as_ref().unwrap_or(x);
    if let Some(orders) = ShortOrders::new(keys, &lines, descending, (take.clone(), ties), pool) {
        write_short(x, &lines, (&orders, len), (values, index), pool);
        return Ok(());
    }
    write_long(
        (x, keys),
        &lines,
        (descending, Wanted::Part(take, ties)),
        (values, index),
        pool,
    );
    Ok(())
}

/// Writes values and indices of the elements `take` of each line, which is sorted by itself. The elements have the order of the keys.
fn write_long(
    (x, keys): (&Tensor, &Tensor),
    lines: &DimLines,
    (descending, wanted): (bool, Wanted),
    (values, index): (&mut ViewMut<'_>, &mut [i64]),
    pool: &Pool,
) {
    let (n, inner) = (lines.len, lines.inner);
    let len = index.len() / (lines.outer * inner);
    // Ordering costs more than reading.
    let count = units_per_part(lines.outer * inner, 8 * n * x.dtype().size(), pool);
    with_size!(x.dtype().size(), N => {
        let (src, dst) = (x.bytes().as_chunks::<N>().0, values.bytes_mut().as_chunks_mut::<N>().0);
        if inner == 1 {
            let mut parts: Vec<_> = dst.chunks_mut(count * len).zip(index.chunks_mut(count * len)).collect();
            for_each_ordered_line(keys, lines, (descending, &wanted), (&mut parts, count), pool, |(values, index), at, line, order| {
                for (k, &p) in order.iter().enumerate() {
                    (values[at * len + k], index[at * len + k]) = (src[line * n + p], p as i64);
                }
            });
            return;
        }
        // The places of each line, one line after the other.
        let mut places = vec![0; index.len()];
        let mut parts: Vec<_> = places.chunks_mut(count * len).collect();
        for_each_ordered_line(keys, lines, (descending, &wanted), (&mut parts, count), pool, |places, at, _, order| {
            places[at * len..][..len].copy_from_slice(order);
        });
        write_taken(lines, len, (src, |line, k| places[line * len + k]), (dst, index), pool);
    });
}

/// Writes the elements of short lines in order, `len` for each, and their places.
fn write_short(
    x: &Tensor,
    lines: &DimLines,
    (orders, len): (&ShortOrders, usize),
    (values, indices): (&mut ViewMut<'_>, &mut [i64]),
    pool: &Pool,
) {
    with_size!(x.dtype().size(), N => {
        let (src, values) = (x.bytes().as_chunks::<N>().0, values.bytes_mut().as_chunks_mut::<N>().0);
        match lines.inner {
            1 => write_rows(lines.len, len, (src, orders), (values, indices), pool),
            _ => write_taken(lines, len, (src, |line, k| orders.place(line, k)), (values, indices), pool),
        }
    });
}

/// [`write_short`] for rows of `n` elements.
fn write_rows<T: Copy + Send + Sync>(
    n: usize,
    len: usize,
    (src, orders): (&[T], &ShortOrders),
    (values, indices): (&mut [T], &mut [i64]),
    pool: &Pool,
) {
    let rows = units_per_part(values.len() / len, 16 * len, pool);
    run_pairs(
        pool,
        (values, rows * len),
        (indices, rows * len),
        |part, values, indices| {
            let lines = src[part * rows * n..].chunks_exact(n).enumerate();
            let taken = values.chunks_exact_mut(len).zip(indices.chunks_exact_mut(len));
            for ((r, line), (values, indices)) in lines.zip(taken) {
                for (k, (value, index)) in values.iter_mut().zip(indices).enumerate() {
                    let p = orders.place(part * rows + r, k);
                    (*value, *index) = (line[p], p as i64);
                }
            }
        },
    );
}

/// Writes the elements at the places that `place` gives, `len` for each line, and the places themselves.
fn write_taken<T: Copy + Send + Sync>(
    lines: &DimLines,
    len: usize,
    (src, place): (&[T], impl Fn(usize, usize) -> usize + Sync),
    (values, indices): (&mut [T], &mut [i64]),
    pool: &Pool,
) {
    let (n, inner) = (lines.len, lines.inner);
    let rows = units_per_part(lines.outer * len, 16 * inner, pool);
    run_pairs(
        pool,
        (values, rows * inner),
        (indices, rows * inner),
        |part, values, indices| {
            for (r, (values, indices)) in values.chunks_mut(inner).zip(indices.chunks_mut(inner)).enumerate() {
                let (o, k) = ((part * rows + r) / len, (part * rows + r) % len);
                for (i, (value, index)) in values.iter_mut().zip(indices).enumerate() {
                    let p = place(o * inner + i, k);
                    (*value, *index) = (src[(o * n + p) * inner + i], p as i64);
                }
            }
        },
    );
}

/// Whether torch sorts a tensor by radix, which is stable (`can_use_radix_sort` in `aten/src/ATen/native/cpu/SortingKernel.cpp`).
fn sorts_by_radix(x: &Tensor, descending: bool) -> bool {
    const LEAST: usize = 1 << 15;
    let is_integer = !x.dtype().is_float() && x.dtype() != DType::B8;
    x.rank() == 1 && !descending && is_integer && x.numel() >= LEAST
}

fn sort_dim(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let n = x.shape().get(dim).copied().unwrap_or(1);
    let (descending, stable) = (c.bool("descending")?, !c.get("stable").is_none() && c.bool("stable")?);
    let ties = if stable || sorts_by_radix(x, descending) {
        Ties::Stable
    } else {
        Ties::Sort
    };
    take_sorted(x, dim, descending, outs, (0..n, ties), pool)
}

fn topk(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let k = c.int("k")?.max(0) as usize;
    // A number is the only element of its line, even if none is wanted.
    let k = if x.rank() == 0 { 1 } else { k };
    let in_order = c.bool("sorted")?;
    take_sorted(x, dim, c.bool("largest")?, outs, (0..k, Ties::Top { in_order }), pool)
}

fn kthvalue(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let k = c.int("k")?.max(1) as usize;
    take_sorted(x, dim, false, outs, (k - 1..k, Ties::Kth), pool)
}
