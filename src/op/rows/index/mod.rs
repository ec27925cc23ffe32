//! `index` and `index_put`: a tensor with index tensors for some of its dims.

mod by_value;
pub(super) mod combine;
mod embedding_bag;
pub(super) mod gather;
mod scatter;
mod slices;
pub(super) mod sort;
mod write_view;

use self::combine::{Cell, Reduce, with_cell};
use crate::op::rows::dense::{in_bounds, zeros};
use crate::op::rows::fill::{copy_all, with_size};
use crate::op::rows::spell::list_text;
use crate::op::view::strided_positions;
use crate::op::{Call, Meaning, MemoryOrder, Op, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, cells_of_mut, contiguous_strides};
use crate::types::{DType, Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        by_tensors(),
        gather::rows(),
        scatter::rows(),
        sort::rows(),
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
        .doc("x[i, j, …] with index tensors, masks, and None for whole dims")
        .spelled(
            "aten.index.Tensor aten._unsafe_index.Tensor aten.index.Tensor_hacked_twin \
                 aten._unsafe_index.Tensor_hacked_twin",
        ),
        Op::new(
            "index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
            index_put_type,
            Meaning::Fill(index_put),
        )
        .order(MemoryOrder::First)
        .doc("a copy with x[i, j, …] = values, or += values")
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
    let mut at: Vec<usize> = vec![];
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
        let own = if is_mask(t.dtype) {
            vec![Dim::Unknown]
        } else {
            shape.to_vec()
        };
        common = broadcast_indices(&common, &own, sizes)?;
        at.extend(dim..dim + taken);
        dim += taken;
    }
    if dim > x.len() {
        return Err(too_many(c, x.len()));
    }
    rest.extend_from_slice(&x[dim..]);
    let first = insertion_point(&at);
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

/// The positions of the elements of `x[indices]`: offsets for the index part, strides for the dims before and after it.
struct Places {
    shape: Vec<usize>,
    first: usize,
    index_rank: usize,
    offsets: Vec<usize>,
    /// `(size, stride)` of the dims that are not indexed, in order.
    rest: Vec<(usize, usize)>,
}

/// The dims of a tensor, by what the items of an index do with them.
#[derive(Default)]
struct IndexedDims {
    /// `(size, stride)` of the dims that are not indexed, in order.
    rest: Vec<(usize, usize)>,
    /// The dims that are indexed, each with its index tensor.
    tensors: Vec<(usize, Tensor)>,
    /// The dim of every index tensor and of every 0-d mask.
    positions: Vec<usize>,
    /// Whether all 0-d masks are true, if there are any.
    scalar_mask: Option<bool>,
}

impl IndexedDims {
    fn from_call(c: &Call<Tensor>, strides: &[usize]) -> OpResult<IndexedDims> {
        let x = c.leaf("self")?;
        let too_many = || OpError::shape(format!("too many indices for tensor of dimension {}", x.rank()));
        let mut out = IndexedDims::default();
        let mut dim = 0;
        for item in index_items(c)? {
            let tensors = match item {
                None => {
                    let n = *x.shape().get(dim).ok_or_else(too_many)?;
                    out.rest.push((n, strides[dim]));
                    dim += 1;
                    continue;
                }
                Some(t) if is_mask(t.dtype()) && t.rank() == 0 => {
                    out.scalar_mask = Some(t.get(0).to_bool() && out.scalar_mask != Some(false));
                    out.positions.push(dim);
                    continue;
                }
                Some(t) if is_mask(t.dtype()) => mask_indices(t),
                Some(t) => vec![t.to(DType::I64)],
            };
            for t in tensors {
                out.tensors.push((dim, t));
                out.positions.push(dim);
                dim += 1;
            }
        }
        if dim > x.rank() {
            return Err(too_many());
        }
        out.rest.extend((dim..x.rank()).map(|d| (x.shape()[d], strides[d])));
        Ok(out)
    }

    /// The shape to which the index tensors are broadcast.
    fn common_shape(&self) -> OpResult<Vec<usize>> {
        let mut common: Vec<Dim> = self.scalar_mask.map(|m| Dim::Const(m as i64)).into_iter().collect();
        for (_, t) in &self.tensors {
            let ty = t.ty();
            common = broadcast_indices(&common, ty.shape.as_deref().unwrap_or_default(), &mut Sizes::default())?;
        }
        Ok(common.iter().filter_map(|d| d.as_const().map(|c| c as usize)).collect())
    }
}

/// Converts a mask to one index tensor per dim.
fn mask_indices(mask: &Tensor) -> Vec<Tensor> {
    let found: Vec<usize> = (0..mask.numel()).filter(|&i| mask.bytes()[i] != 0).collect();
    let strides = contiguous_strides(mask.shape());
    let along = |d: usize| {
        let v: Vec<i64> = found
            .iter()
            .map(|&p| (p / strides[d] % mask.shape()[d].max(1)) as i64)
            .collect();
        Tensor::from_slice(&[v.len()], &v)
    };
    (0..mask.rank()).map(along).collect()
}

impl Places {
    fn new(c: &Call<Tensor>) -> OpResult<Places> {
        let x = c.leaf("self")?;
        let strides = contiguous_strides(x.shape());
        let indexed = IndexedDims::from_call(c, &strides)?;
        let common = indexed.common_shape()?;
        let offsets = index_offsets(x, &strides, &indexed.tensors, &common)?;
        let first = insertion_point(&indexed.positions);
        let mut shape: Vec<usize> = indexed.rest.iter().map(|r| r.0).collect();
        shape.splice(first..first, common.iter().copied());
        Ok(Places {
            shape,
            first,
            index_rank: common.len(),
            offsets,
            rest: indexed.rest,
        })
    }

    /// Calls `f(i, p, n)` for each run of `n` elements of the result, from element `i` on, that are neighbours in the tensor from
    /// position `p` on; all runs have the same length.
    #[inline(always)]
    fn for_each_run(&self, mut f: impl FnMut(usize, usize, usize)) {
        let (before, after) = self.rest.split_at(self.first);
        let part = |v: &[(usize, usize)]| {
            let (shape, strides): (Vec<usize>, Vec<i64>) = v.iter().map(|&(n, s)| (n, s as i64)).unzip();
            let mut out = vec![];
            strided_positions(&shape, 0, &strides, &mut |_, p| out.push(p));
            out
        };
        let (before, mut after) = (part(before), part(after));
        let mut run = 1;
        if after.iter().enumerate().all(|(k, &p)| k == p) {
            run = after.len();
            after.truncate(1);
        }
        let mut i = 0;
        for a in &before {
            for o in &self.offsets {
                for z in &after {
                    f(i, a + o + z, run);
                    i += run;
                }
            }
        }
    }
}

/// For each element of the broadcast index tensors, the sum of index times stride over the indexed dims.
fn index_offsets(x: &Tensor, strides: &[usize], tensors: &[(usize, Tensor)], common: &[usize]) -> OpResult<Vec<usize>> {
    let mut offsets = vec![0usize; common.iter().product()];
    for (d, t) in tensors {
        let lead = common.len() - t.rank();
        let own = contiguous_strides(t.shape());
        let stretch = |i: usize| match i.checked_sub(lead) {
            Some(j) if t.shape()[j] != 1 => own[j] as i64,
            _ => 0,
        };
        let strides_t: Vec<i64> = (0..common.len()).map(stretch).collect();
        let v = t.as_slice::<i64>();
        if t.shape() == common {
            for (o, &i) in offsets.iter_mut().zip(v) {
                *o += in_bounds(i, x.shape()[*d], *d)? * strides[*d];
            }
            continue;
        }
        let mut error = None;
        strided_positions(
            common,
            0,
            &strides_t,
            &mut |i, p| match in_bounds(v[p], x.shape()[*d], *d) {
                Ok(at) => offsets[i] += at * strides[*d],
                Err(e) => error = error.take().or(Some(e)),
            },
        );
        if let Some(e) = error {
            return Err(e);
        }
    }
    Ok(offsets)
}

fn index(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let x = c.leaf("self")?;
    let places = Places::new(c)?;
    let mut out = zeros(x.dtype(), &places.shape)?;
    let (src, dst) = (x.bytes(), out.bytes_mut());
    with_size!(x.dtype().size(), N => {
        let (src, dst) = (src.as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
        places.for_each_run(|i, p, n| match n {
            1 => dst[i] = src[p],
            _ => dst[i..i + n].copy_from_slice(&src[p..p + n]),
        });
    });
    Ok(Val::Leaf(out))
}

/// Strides that broadcast `values` to `shape`.
fn value_strides(values: &Tensor, shape: &[usize], places: &Places) -> OpResult<Vec<i64>> {
    let own = contiguous_strides(values.shape());
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
    let dims = values.shape().iter().zip(own).skip(lead);
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
    let (dtype, dst) = (x.dtype(), outs[0].bytes_mut());
    if !accumulate {
        with_size!(dtype.size(), N => {
            let (src, dst) = (values.bytes().as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
            places.for_each_run(|i, p, n| match n {
                1 => dst[p] = src[i],
                _ => dst[p..p + n].copy_from_slice(&src[i..i + n]),
            });
        });
        return Ok(());
    }
    with_cell!(dtype, T => {
        let (src, dst) = (values.as_slice::<T>(), cells_of_mut::<T>(dst));
        places.for_each_run(|i, p, n| {
            dst[p..p + n].iter_mut().zip(&src[i..i + n]).for_each(|(d, s)| *d = d.plus(*s));
        });
    }, else places.for_each_run(|i, p, n| {
        (0..n).for_each(|k| Reduce::Sum.update_element(dtype, dst, p + k, values.get(i + k)));
    }));
    Ok(())
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
