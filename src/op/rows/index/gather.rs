//! Reading elements at computed positions: gather, index_select, take, embedding.

use super::indexed::IndexedRows;
use super::named::{SHORT_UNIT, unit_offsets};
use crate::op::rows::dense::{in_bounds, sizes_around, to_i64_indices};
use crate::op::rows::fill::{units_per_part, with_word};
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, IndexLimit, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{IndexedBlock, Offsets, Tensor, ViewMut, copy_rows, indices_within, take_elements};
use crate::types::{DType, Dim, TensorType, Type, Val};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn rows() -> Vec<Op> {
    vec![
        Op::new(
            "gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
            gather_type,
            Meaning::Fill(gather),
        )
        .doc("the elements at the given indices along dim")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite(
            "take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
            take_along_dim,
        )
        .doc("gather with the other dims broadcast; without dim, from the flattened tensor")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "index_select(Tensor self, int dim, Tensor index) -> Tensor",
            index_select_type,
            Meaning::Fill(index_select),
        )
        .doc("the slices along dim selected by index")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::new(
            "take(Tensor self, Tensor index) -> Tensor",
            take_type,
            Meaning::Fill(take),
        )
        .doc("the elements at the given row-major indices")
        .spelled("aten.@ torch.@ Tensor.@"),
        embedding_row(),
        functional_embedding(),
    ]
}

fn embedding_row() -> Op {
    Op::new(
        "embedding(Tensor weight, Tensor indices, SymInt? padding_idx=-1, bool scale_grad_by_freq=False, bool \
         sparse=False) -> Tensor",
        embedding_type,
        Meaning::Fill(|c, outs, pool| {
            let (w, i) = (c.leaf("weight")?, c.leaf("indices")?);
            let flat = to_i64_indices(i, "embedding requires i64 or i32 indices")?;
            select_rows(w, 0, flat.as_slice::<i64>(), &mut outs[0], pool)
        }),
    )
    .doc("the rows of weight selected by indices")
    .index_limits(&[("indices", IndexLimit::Rows("weight"))])
    .spelled("aten.@ torch.@")
    .module(
        "Embedding(num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, \
         scale_grad_by_freq=False, sparse=False) = embedding(@weight[num_embeddings, embedding_dim], input, \
         padding_idx) when max_norm=None",
    )
}

/// `torch.nn.functional.embedding`, which has its arguments in another order.
fn functional_embedding() -> Op {
    Op::composite("embedding_of(Tensor input, Tensor weight, int? padding_idx=None, float? max_norm=None, float norm_type=2.0, bool \
         scale_grad_by_freq=False, bool sparse=False) -> Tensor",
        |b, c| {
            if !c.is_none("max_norm") {
                let title = "embedding with max_norm, which modifies its weight, is not supported";
                return Err(OpError::arg("max_norm", title));
            }
            b.call(OpId::Embedding, vec![c.get("weight").clone(), c.get("input").clone()])
        },
    )
    .doc("the rows of weight selected by input")
    .index_limits(&[("input", IndexLimit::Rows("weight"))])
    .spelled("torch.nn.functional.embedding")
}

fn want_index(t: &TensorType) -> OpResult<()> {
    if matches!(t.dtype, DType::I64 | DType::I32) {
        return Ok(());
    }
    Err(OpError::dtype(format!(
        "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got torch.{}Tensor \
         instead (while checking arguments for embedding)",
        t.dtype.scalar_type_name()
    )))
}

fn embedding_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let (d, w) = c.shaped("weight")?;
    let i = c.leaf("indices")?;
    if w.len() != 2 {
        return Err(OpError::shape("'weight' must be 2-D"));
    }
    want_index(i)?;
    let shape = c.shaped("indices")?.1;
    Ok(Val::Leaf(TensorType::new(d, [shape, &w[1..]].concat())))
}

fn gather_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let (id, index) = c.shaped("index")?;
    if !matches!(id, DType::I64 | DType::I32) && !index.contains(&Dim::Const(0)) {
        return Err(OpError::dtype("gather(): Expected dtype int32/int64 for index"));
    }
    let dim = wrap_dim(c.int("dim")?, x.len())?;
    if index.contains(&Dim::Const(0)) {
        return Ok(Val::Leaf(TensorType::new(d, index.to_vec())));
    }
    if x.len().max(1) != index.len().max(1) {
        return Err(OpError::shape(
            "Index tensor must have the same number of dimensions as input tensor",
        ));
    }
    let _ = &sizes;
    for (i, (s, n)) in x.iter().zip(index).enumerate() {
        if i != dim && n.sub(s).as_const().is_some_and(|over| over > 0) {
            return Err(OpError::shape(format!(
                "Size does not match at dimension {i} expected index {} to be no larger than self {} apart from dimension {dim}",
                list_text(index),
                list_text(x)
            )));
        }
    }
    Ok(Val::Leaf(TensorType::new(d, index.to_vec())))
}

fn gather(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let index = to_i64_indices(c.leaf("index")?, "expected i64 or i32 indices")?;
    if index.numel() == 0 {
        return Ok(());
    }
    let rows = IndexedRows::new(&index, x.shape(), wrap_dim(c.int("dim")?, x.rank())?);
    let (src, dst) = (x.bytes(), outs[0].bytes_mut());
    with_word!(x.dtype().size(), src, dst, |src, dst| rows.gather(src, dst, pool))
}

/// Converts negative indices, which count from the end of a dim of `size`.
fn from_the_front(b: &mut dyn Build, index: &Traced, size: Dim) -> OpResult<Traced> {
    let negative = b.lt(index, Val::int(0))?;
    let wrapped = b.add(index, Val::Int(size))?;
    b.r#where(negative, wrapped, index)
}

fn take_along_dim(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, index) = (c.leaf("self")?, c.leaf("indices")?);
    if c.is_none("dim") {
        let (x, index) = (b.ravel(x)?, b.ravel(index)?);
        let index = from_the_front(b, &index, x.shape()?[0].clone())?;
        return b.gather(x, Val::int(0), index).map(Val::Leaf);
    }
    if x.rank()? != index.rank()? {
        return Err(OpError::shape(format!(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got {} dimensions for \
             input, and {} dimensions for indices",
            x.rank()?,
            index.rank()?
        )));
    }
    let dim = wrap_dim(c.int("dim")?, x.rank()?)?;
    let (mut xs, mut is) = (x.shape()?.to_vec(), index.shape()?.to_vec());
    if xs.is_empty() {
        return b.gather(x, Val::int(0), index).map(Val::Leaf);
    }
    let (keep_x, keep_i) = (xs[dim].clone(), is[dim].clone());
    let index = &from_the_front(b, index, keep_x.clone())?;
    xs[dim] = Dim::Const(1);
    is[dim] = Dim::Const(1);
    let mut common = Sizes::default().broadcast(&xs, &is)?;
    common[dim] = keep_x;
    let x = b.expand(x, &common)?;
    common[dim] = keep_i;
    let index = b.expand(index, &common)?;
    b.gather(x, Val::int(dim as i64), index).map(Val::Leaf)
}

fn index_select_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let (id, index) = c.shaped("index")?;
    if !matches!(id, DType::I64 | DType::I32) {
        return Err(OpError::dtype(
            "index_select(): Expected dtype int32 or int64 for index",
        ));
    }
    if index.len() > 1 {
        return Err(OpError::shape("index_select(): Index is supposed to be a vector"));
    }
    let dim = wrap_dim(c.int("dim")?, x.len())?;
    let mut shape = x.to_vec();
    if let Some(s) = shape.get_mut(dim) {
        *s = index.first().cloned().unwrap_or(Dim::Const(1));
    }
    Ok(Val::Leaf(TensorType::new(d, shape)))
}

/// Writes the slices of `x` along `dim` at `index`; torch's error of `embedding` and `index_select` if an index is out of bounds.
fn select_rows(x: &Tensor, dim: usize, index: &[i64], out: &mut ViewMut<'_>, pool: &Pool) -> OpResult<()> {
    let (outer, n, inner) = sizes_around(x.shape(), dim);
    let (size, count, unit) = (x.dtype().size(), index.len(), index.len() * inner);
    let (src, dst) = (x.bytes(), out.bytes_mut());
    // A long list of elements is checked while it is read.
    if inner == 1 && !dst.is_empty() && unit > SHORT_UNIT {
        return with_word!(size, src, dst, |src, dst| select_elements(src, dst, n, index, pool));
    }
    if !indices_within(index, n) {
        return Err(index_out_of_range());
    }
    if dst.is_empty() {
        return Ok(());
    }
    if outer > 1 && unit <= SHORT_UNIT {
        let offsets = unit_offsets(index, n, inner, outer);
        with_word!(size, src, dst, |src, dst| select_units(
            (src, n * inner),
            (dst, unit),
            &offsets,
            pool
        ));
        return Ok(());
    }
    let row = inner * size;
    let rows = units_per_part(dst.len() / row, row, pool);
    pool.run_parts(dst, rows * row, |part, dst| {
        let (mut o, mut k) = (part * rows / count, part * rows % count);
        let rows = dst.chunks_exact_mut(row).map(|to| {
            let from = (o * n + index[k] as usize) * row;
            k += 1;
            if k == count {
                (o, k) = (o + 1, 0);
            }
            (&src[from..from + row], to)
        });
        copy_rows(row, rows);
    });
    Ok(())
}

fn index_out_of_range() -> OpError {
    OpError::value("index out of range in self")
}

/// [`select_rows`] of units of `from` elements that become units of `to` elements, at these offsets.
fn select_units<T: Copy + Send + Sync>(
    (src, from): (&[T], usize),
    (dst, to): (&mut [T], usize),
    offsets: &Offsets,
    pool: &Pool,
) {
    let units = units_per_part(dst.len() / to, to * size_of::<T>(), pool);
    let together = offsets.list().len() / to;
    pool.run_parts(dst, units * to, |part, dst| {
        for (k, out) in dst.chunks_mut(together * to).enumerate() {
            offsets.gather(&src[(part * units + k * together) * from..], out);
        }
    });
}

/// The elements of a long list that are read between two checks of indices.
const LIST_PART: usize = 1024;

/// [`select_rows`] along the last dim, of `n` elements.
fn select_elements<T: Copy + Send + Sync>(
    src: &[T],
    dst: &mut [T],
    n: usize,
    index: &[i64],
    pool: &Pool,
) -> OpResult<()> {
    let offsets = Offsets::new(vec![0; LIST_PART]);
    let block = |index| IndexedBlock {
        index,
        size: n,
        along: 1,
        offsets: &offsets,
    };
    let failed = AtomicBool::new(false);
    let part = units_per_part(dst.len(), size_of::<T>(), pool);
    pool.run_parts(dst, part, |i, mut dst| {
        let (mut o, mut k) = (i * part / index.len(), i * part % index.len());
        while !dst.is_empty() {
            let count = LIST_PART.min(index.len() - k).min(dst.len());
            let out = dst.split_off_mut(..count).unwrap_or_default();
            if !block(&index[k..k + count]).gather(&src[o * n..], out) {
                return failed.store(true, Ordering::Relaxed);
            }
            k += count;
            if k == index.len() {
                (o, k) = (o + 1, 0);
            }
        }
    });
    match failed.into_inner() {
        true => Err(index_out_of_range()),
        false => Ok(()),
    }
}

fn index_select(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, index) = (c.leaf("self")?, c.leaf("index")?);
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let flat = to_i64_indices(index, "index_select(): Expected dtype int32 or int64 for index")?;
    select_rows(x, dim, flat.as_slice::<i64>(), &mut outs[0], pool)
}

fn take_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let index = c.leaf("index")?;
    if index.dtype != DType::I64 {
        return Err(OpError::dtype(format!(
            "take(): Expected a long tensor for index, but got {}",
            index.dtype.scalar_type_name()
        )));
    }
    Ok(Val::Leaf(TensorType {
        dtype: c.leaf("self")?.dtype,
        shape: index.shape.clone(),
    }))
}

/// The number of elements that `take` reads between two checks of indices.
const TAKEN: usize = 2048;

fn take(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, index) = (c.leaf("self")?, c.leaf("index")?);
    let flat = to_i64_indices(index, "take(): Expected a long tensor for index")?;
    let n = x.numel();
    let out_of_range = |index: &[i64]| {
        let bad = index
            .iter()
            .find(|&&i| in_bounds(i, n, 0).is_err())
            .copied()
            .unwrap_or_default();
        OpError::value(format!(
            "out of range: tried to access index {bad} on a tensor of {n} elements."
        ))
    };
    let (src, dst, index) = (x.bytes(), outs[0].bytes_mut(), flat.as_slice::<i64>());
    with_word!(x.dtype().size(), src, dst, |src, dst| {
        let len = units_per_part(dst.len(), x.dtype().size(), pool);
        let failed = AtomicBool::new(false);
        pool.run_parts(dst, len, |i, dst| {
            // A part is read in pieces, so that the check leaves the indices in cache.
            let pieces = index[i * len..].chunks(TAKEN).zip(dst.chunks_mut(TAKEN));
            for (index, out) in pieces {
                if !take_elements(src, &index[..out.len()], out) {
                    return failed.store(true, Ordering::Relaxed);
                }
            }
        });
        match failed.into_inner() {
            true => Err(out_of_range(index)),
            false => Ok(()),
        }
    })
}

/// Copies element `from` of `src` to element `to` of `dst`.
#[inline]
pub(in crate::op::rows) fn copy_element(dst: &mut [u8], to: usize, src: &[u8], from: usize, size: usize) {
    dst[to * size..(to + 1) * size].copy_from_slice(&src[from * size..(from + 1) * size]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short and long lists of elements and of slices, and an index that is too large in the last place.
    #[test]
    fn slices_are_those_at_the_indices() {
        let sizes = [
            [900, 7, 1, 3],
            [3, 9, 1, 5000],
            [1, 9, 1, 70],
            [300, 5, 3, 7],
            [2, 6, 200, 4],
        ];
        for [outer, n, inner, count] in sizes {
            let x = Tensor::from_slice(&[outer, n, inner], &Vec::from_iter(0..(outer * n * inner) as i32));
            let mut index: Vec<i64> = (0..count).map(|k| (k * k % n) as i64).collect();
            let mut out = Tensor::zeros(DType::I32, &[outer, count, inner]);
            for threads in [1, 3] {
                assert!(select_rows(&x, 1, &index, &mut ViewMut::from(&mut out), &Pool::new(threads)).is_ok());
                let row = |e: usize| e / count * n + index[e % count] as usize;
                let element = |(e, &got): (usize, &i32)| got as usize == row(e / inner) * inner + e % inner;
                assert!(out.as_slice::<i32>().iter().enumerate().all(element));
            }
            index[count - 1] = n as i64;
            assert!(select_rows(&x, 1, &index, &mut ViewMut::from(&mut out), &Pool::new(1)).is_err());
        }
    }
}
