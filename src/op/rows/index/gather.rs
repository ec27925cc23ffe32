//! Reading elements at computed positions: gather, index_select, take, embedding.

use super::indexed::IndexedRows;
use crate::op::IndexLimit;
use crate::op::rows::dense::{in_bounds, in_range, sizes_around, to_i64_indices};
use crate::op::rows::fill::{units_per_part, with_word};
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Sizes, Traced, wrap_dim};
use crate::parallel::Pool;
use crate::tensor::{IndexedLine, Tensor, ViewMut, take_elements};
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
            select_rows(w, 0, flat.as_slice::<i64>(), &mut outs[0], pool, |i, n| {
                in_range(i, n, 0).map_err(|_| OpError::value("index out of range in self"))
            })
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

/// Copies element `from` of `src` to element `to` of `dst`.
#[inline]
pub(in crate::op::rows) fn copy_element(dst: &mut [u8], to: usize, src: &[u8], from: usize, size: usize) {
    dst[to * size..(to + 1) * size].copy_from_slice(&src[from * size..(from + 1) * size]);
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

/// Writes the slices of `x` along `dim` at `index`.
pub(in crate::op::rows) fn select_rows(
    x: &Tensor,
    dim: usize,
    index: &[i64],
    out: &mut ViewMut<'_>,
    pool: &Pool,
    check: impl Fn(i64, usize) -> OpResult<usize>,
) -> OpResult<()> {
    let (_, n, inner) = sizes_around(x.shape(), dim);
    let places: Vec<usize> = index.iter().map(|&i| check(i, n)).collect::<OpResult<_>>()?;
    let (size, count) = (x.dtype().size(), places.len());
    let (src, dst) = (x.bytes(), out.bytes_mut());
    if dst.is_empty() {
        return Ok(());
    }
    if inner == 1 {
        with_word!(size, src, dst, |src, dst| select_elements(src, dst, n, &places, pool));
        return Ok(());
    }
    let row = inner * size;
    let rows = units_per_part(dst.len() / row, row, pool);
    pool.run_parts(dst, rows * row, |part, dst| {
        for (k, to) in dst.chunks_exact_mut(row).enumerate() {
            let r = part * rows + k;
            let from = (r / count * n + places[r % count]) * row;
            to.copy_from_slice(&src[from..from + row]);
        }
    });
    Ok(())
}

/// [`select_rows`] along the last dim, of `n` elements.
fn select_elements<T: Copy + Send + Sync>(src: &[T], dst: &mut [T], n: usize, places: &[usize], pool: &Pool) {
    let lines = units_per_part(dst.len() / places.len(), places.len() * size_of::<T>(), pool);
    let index: Vec<i64> = places.iter().map(|&p| p as i64).collect();
    pool.run_parts(dst, lines * places.len(), |part, dst| {
        for (k, to) in dst.chunks_exact_mut(places.len()).enumerate() {
            let line = IndexedLine {
                index: &index,
                size: n,
                along: 1,
                step: 0,
            };
            // The places were checked.
            line.gather(&src[(part * lines + k) * n..][..n], to);
        }
    });
}

fn index_select(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, index) = (c.leaf("self")?, c.leaf("index")?);
    let dim = wrap_dim(c.int("dim")?, x.rank())?;
    let flat = to_i64_indices(index, "index_select(): Expected dtype int32 or int64 for index")?;
    select_rows(x, dim, flat.as_slice::<i64>(), &mut outs[0], pool, |i, n| {
        in_range(i, n, dim).map_err(|_| OpError::value("index out of range in self"))
    })
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
