//! Ops with indices: `index` and `index_put` (a tensor with index tensors for some of its dims) are here. `gather` and `scatter`, whose index
//! tensors have an index for each element, run in blocks of neighbours ([`blocks`], [`indexed`]); [`named`] and [`slices`] move whole slices.

mod bags;
mod blocks;
mod by_value;
pub(super) mod combine;
mod embedding_bag;
pub(super) mod gather;
mod indexed;
mod named;
mod places;
mod rounded;
mod scatter;
mod search;
mod slices;
pub(super) mod sort;
mod write_view;

use self::combine::{Cell, Reduce, with_cell};
use self::places::Places;
use crate::op::IndexLimit;
use crate::op::rows::dense::zeros;
use crate::op::rows::fill::{copy_all, with_size};
use crate::op::rows::spell::list_text;
use crate::op::view::strided_positions;
use crate::op::{Call, Meaning, MemoryOrder, Op, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{SavedBytes, Tensor, ViewMut, cells_of_mut, contiguous_strides, copy_row};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        by_tensors(),
        gather::rows(),
        scatter::rows(),
        sort::rows(),
        search::rows(),
        by_value::rows(),
        embedding_bag::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn by_tensors() -> Vec<Op> {
    vec![
        Op::new(
            "index(Tensor self, Tensor?[] indices) -> Tensor",
            index_type,
            Meaning::Routine(index),
        )
        .fills(|c, outs, _| copy_places(c.leaf("self")?, &Places::new(c)?, outs[0].bytes_mut()))
        .doc("x[i, j, …] with index tensors, masks, and None for whole dims")
        .index_limits(&[("indices", IndexLimit::DimByDim("self"))])
        .spelled(
            "aten.index.Tensor aten._unsafe_index.Tensor aten.index.Tensor_hacked_twin \
                 aten._unsafe_index.Tensor_hacked_twin",
        ),
        Op::new(
            "index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
            index_put_type,
            Meaning::Fill(index_put),
        )
        .updates()
        .order(MemoryOrder::First)
        .overwrites(overwrite_places)
        .doc("a copy with x[i, j, …] = values, or += values")
        .index_limits(&[("indices", IndexLimit::DimByDim("self"))])
        .spelled("aten.@ aten._unsafe_index_put.default aten.@.hacked_twin torch.@ Tensor.@")
        .inplace("aten.@_ aten.@_.hacked_twin Tensor.@_ torch.@_")
        .shared_writes(|c, _| c.get("accumulate").as_int() == Some(0)),
    ]
}

fn is_mask(d: DType) -> bool {
    matches!(d, DType::B8 | DType::U8)
}

/// The index tensors in the parameter `indices`, one entry per dim; a mask covers several dims.
fn index_items<T>(c: &Call<T>) -> OpResult<Vec<Option<&T>>> {
    let items = c.get("indices").items().unwrap_or_default();
    items
        .iter()
        .map(|v| match v {
            Val::None => Ok(None),
            Val::Leaf(t) => Ok(Some(t)),
            v => Err(OpError::arg(
                "indices",
                format!("an index must be a tensor or None, not {}", v.kind_name()),
            )),
        })
        .collect()
}

/// The shape of the result and the position of the index dims in it: `(shape, first index dim, index shape)`.
fn indexed_shape(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<(Vec<Dim>, usize, Vec<Dim>)> {
    let x = c.shaped("self")?.1;
    let mut common: Vec<Dim> = vec![];
    let mut rest = vec![];
    let mut indexed: Vec<usize> = vec![];
    let mut dim = 0;
    for item in index_items(c)? {
        let Some(t) = item else {
            let n = x.get(dim).ok_or_else(|| too_many(c, x.len()))?;
            rest.push(n.clone());
            dim += 1;
            continue;
        };
        let shape = t.shape.as_deref().ok_or_else(|| {
            OpError::new(
                crate::diag::Code::E0304,
                "`index` requires the rank of its index tensors",
            )
        })?;
        let taken = index_dims(c, t.dtype, shape, x, dim)?;
        let index_shape = if is_mask(t.dtype) {
            vec![Dim::Unknown]
        } else {
            shape.to_vec()
        };
        common = broadcast_indices(&common, &index_shape, sizes)?;
        indexed.extend(dim..dim + taken);
        dim += taken;
    }
    if dim > x.len() {
        return Err(too_many(c, x.len()));
    }
    rest.extend_from_slice(&x[dim..]);
    let first = insertion_point(&indexed);
    let mut shape = rest;
    shape.splice(first..first, common.iter().cloned());
    Ok((shape, first, common))
}

fn too_many(c: &Call<TensorType>, rank: usize) -> OpError {
    let n = c.get("indices").items().map_or(0, <[_]>::len);
    OpError::shape(format!("too many indices for tensor of dimension {rank} (got {n})"))
}

/// The number of dims that an index tensor of this type indexes.
fn index_dims(c: &Call<TensorType>, d: DType, shape: &[Dim], x: &[Dim], dim: usize) -> OpResult<usize> {
    if is_mask(d) {
        for (i, m) in shape.iter().enumerate() {
            let n = x.get(dim + i).ok_or_else(|| too_many(c, x.len()))?;
            if m.sub(n).as_const().is_some_and(|d| d != 0) {
                return Err(OpError::shape(format!(
                    "The shape of the mask {} at index {i} does not match the shape of the indexed tensor {} at index {}",
                    list_text(shape),
                    list_text(x),
                    dim + i
                )));
            }
        }
        return Ok(shape.len());
    }
    if !matches!(d, DType::I64 | DType::I32) {
        return Err(OpError::dtype(
            "tensors used as indices must be long, int, byte or bool tensors".to_string(),
        ));
    }
    if dim >= x.len() {
        return Err(too_many(c, x.len()));
    }
    Ok(1)
}

fn broadcast_indices(a: &[Dim], b: &[Dim], sizes: &mut Sizes) -> OpResult<Vec<Dim>> {
    sizes.broadcast(a, b).map_err(|_| {
        OpError::shape(format!(
            "shape mismatch: indexing tensors could not be broadcast together with shapes {}, {}",
            list_text(a),
            list_text(b)
        ))
    })
}

/// The position of the index dims: that of the indexed dims if these are adjacent, else the front.
fn insertion_point(dims: &[usize]) -> usize {
    let neighbours = dims.windows(2).all(|w| w[1] == w[0] + 1);
    if neighbours {
        dims.first().copied().unwrap_or(0)
    } else {
        0
    }
}

fn index_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let d = c.leaf("self")?.dtype;
    Ok(Val::Leaf(TensorType::new(d, indexed_shape(c, sizes)?.0)))
}

fn index_put_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let x = c.leaf("self")?;
    let v = c.leaf("values")?;
    if v.dtype != x.dtype {
        return Err(OpError::dtype(format!(
            "Index put requires the source and destination dtypes match, got {} for the destination and {} for the source.",
            x.dtype.scalar_type_name(),
            v.dtype.scalar_type_name()
        )));
    }
    let shape = indexed_shape(c, sizes)?.0;
    let values = c.shaped("values")?.1;
    let fits = |(a, b): (&Dim, &Dim)| *a == Dim::Const(1) || a.sub(b).as_const().is_none_or(|d| d == 0);
    let ok = values.len() <= shape.len() && values.iter().rev().zip(shape.iter().rev()).all(fits);
    if !ok {
        return Err(OpError::shape(format!(
            "shape mismatch: value tensor of shape {} cannot be broadcast to indexing result of shape {}",
            list_text(values),
            list_text(&shape)
        )));
    }
    Ok(Val::Leaf(x.clone()))
}

fn index(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let x = c.leaf("self")?;
    let places = Places::new(c)?;
    let mut out = zeros(x.dtype(), &places.shape)?;
    copy_places(x, &places, out.bytes_mut())?;
    Ok(Val::Leaf(out))
}

/// Copies the elements at `places`.
fn copy_places(x: &Tensor, places: &Places, dst: &mut [u8]) -> OpResult<()> {
    let src = x.bytes();
    with_size!(x.dtype().size(), N => {
        let (src, dst) = (src.as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
        Pool::with_lent(|pool| places.gather(src, dst, pool));
    });
    Ok(())
}

/// Strides that broadcast `values` to `shape`.
fn value_strides(values: &Tensor, shape: &[usize], places: &Places) -> OpResult<Vec<i64>> {
    let dense = contiguous_strides(values.shape());
    let fail = || {
        OpError::shape(format!(
            "shape mismatch: value tensor of shape {:?} cannot be broadcast to indexing result of shape {shape:?}",
            values.shape()
        ))
    };
    let lead = values.rank().saturating_sub(shape.len());
    if values.shape()[..lead].iter().any(|&n| n != 1) || places.index_rank > shape.len() {
        return Err(fail());
    }
    let mut out = vec![0; shape.len()];
    let dims = values.shape().iter().zip(dense).skip(lead);
    for ((i, &n), (&size, stride)) in shape.iter().enumerate().skip(shape.len() - dims.len()).zip(dims) {
        if size == n {
            out[i] = if n == 1 { 0 } else { stride as i64 };
        } else if size != 1 {
            return Err(fail());
        }
    }
    Ok(out)
}

fn index_put(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, values) = (c.leaf("self")?, c.leaf("values")?);
    let places = Places::new(c)?;
    let strides = value_strides(values, &places.shape, &places)?;
    let accumulate = c.bool("accumulate")?;
    let values = spread(values, &places.shape, &strides);
    copy_all(x, &mut outs[0], pool);
    put_values(&places, &values, accumulate, outs[0].bytes_mut());
    Ok(())
}

fn overwrite_places(c: &Call<Tensor>, x: &mut ViewMut<'_>, saved: &mut SavedBytes) -> OpResult<()> {
    let values = c.leaf("values")?;
    let places = Places::of_shape(c, x.shape())?;
    let strides = value_strides(values, &places.shape, &places)?;
    let accumulate = c.bool("accumulate")?;
    let values = spread(values, &places.shape, &strides);
    let (size, bytes) = (x.dtype().size(), x.bytes_mut());
    places.for_each_run(|_, p, n| saved.save(bytes, p * size..(p + n) * size));
    put_values(&places, &values, accumulate, bytes);
    Ok(())
}

/// Stores the values at the places, or adds them.
fn put_values(places: &Places, values: &Tensor, accumulate: bool, dst: &mut [u8]) {
    let dtype = values.dtype();
    if !accumulate {
        with_size!(dtype.size(), N => {
            let (src, dst) = (values.bytes().as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
            places.for_each_run(|i, p, n| match n {
                1 => dst[p] = src[i],
                _ => copy_row(&src[i..i + n], &mut dst[p..p + n]),
            });
        });
        return;
    }
    with_cell!(dtype, T => {
        let (src, dst) = (values.as_slice::<T>(), cells_of_mut::<T>(dst));
        places.for_each_run(|i, p, n| {
            dst[p..p + n].iter_mut().zip(&src[i..i + n]).for_each(|(d, s)| *d = d.plus(*s));
        });
    }, else places.for_each_run(|i, p, n| {
        (0..n).for_each(|k| Reduce::Sum.update_element(dtype, dst, p + k, values.get(i + k)));
    }));
}

/// `values` with these strides as a tensor of shape `shape`.
fn spread(values: &Tensor, shape: &[usize], strides: &[i64]) -> Tensor {
    if values.numel() == shape.iter().product::<usize>() {
        return values.reshape(shape);
    }
    let mut out = Tensor::zeros(values.dtype(), shape);
    with_size!(values.dtype().size(), N => {
        let (src, dst) = (values.bytes().as_chunks::<N>().0, out.bytes_mut().as_chunks_mut::<N>().0);
        strided_positions(shape, 0, strides, &mut |i, p| dst[i] = src[p]);
    });
    out
}
