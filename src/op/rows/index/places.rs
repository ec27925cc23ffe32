//! The elements that an index selects.

use super::{broadcast_indices, index_items, insertion_point, is_mask};
use crate::op::rows::dense::in_bounds;
use crate::op::view::strided_positions;
use crate::op::{Call, OpError, OpResult, Sizes};
use crate::tensor::{Tensor, contiguous_strides};
use crate::types::{DType, Dim};

/// The positions of the elements of `x[indices]`: offsets for the index part, strides for the dims before and after it.
pub(super) struct Places {
    pub(super) shape: Vec<usize>,
    pub(super) first: usize,
    pub(super) index_rank: usize,
    pub(super) offsets: Vec<usize>,
    /// `(size, stride)` of the dims that are not indexed, in order.
    pub(super) rest: Vec<(usize, usize)>,
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
    /// The dims of a tensor of this shape.
    fn from_call(c: &Call<Tensor>, shape: &[usize], strides: &[usize]) -> OpResult<IndexedDims> {
        let too_many = || OpError::shape(format!("too many indices for tensor of dimension {}", shape.len()));
        let mut out = IndexedDims::default();
        let mut dim = 0;
        for item in index_items(c)? {
            let tensors = match item {
                None => {
                    let n = *shape.get(dim).ok_or_else(too_many)?;
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
        if dim > shape.len() {
            return Err(too_many());
        }
        out.rest.extend((dim..shape.len()).map(|d| (shape[d], strides[d])));
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
    let Some((&width, outer)) = mask.shape().split_last() else {
        return vec![];
    };
    let strides = contiguous_strides(outer);
    let mut all = vec![vec![]; mask.rank()];
    for_each_true(mask.bytes(), width, |line, from, places| {
        let (leading, last) = all.split_at_mut(outer.len());
        for (d, v) in leading.iter_mut().enumerate() {
            v.resize(v.len() + places.len(), (line / strides[d] % outer[d]) as i64);
        }
        last[0].extend(places.iter().map(|&k| (from + k) as i64));
    });
    all.iter().map(|v| Tensor::from_slice(&[v.len()], v)).collect()
}

/// Calls `f(line, from, places)` for parts of lines of `width` bytes, with the places of nonzero bytes from byte `from` of the line on.
pub(super) fn for_each_true(bytes: &[u8], width: usize, mut f: impl FnMut(usize, usize, &[usize])) {
    const PART: usize = 1024;
    // One more than there are bytes: a branch on the bytes would be mispredicted, so that every place is written.
    let mut places = [0; PART + 1];
    for (line, bytes) in bytes.chunks_exact(width.max(1)).enumerate() {
        for (part, bytes) in bytes.chunks(PART).enumerate() {
            let mut count = 0;
            for (k, &m) in bytes.iter().enumerate() {
                places[count] = k;
                count += (m != 0) as usize;
            }
            f(line, part * PART, &places[..count]);
        }
    }
}

impl Places {
    pub(super) fn new(c: &Call<Tensor>) -> OpResult<Places> {
        Places::of_shape(c, c.leaf("self")?.shape())
    }

    /// [`Places::new`] for a call without its first operand, which has this shape.
    pub(super) fn of_shape(c: &Call<Tensor>, indexed_shape: &[usize]) -> OpResult<Places> {
        let strides = contiguous_strides(indexed_shape);
        let indexed = IndexedDims::from_call(c, indexed_shape, &strides)?;
        let common = indexed.common_shape()?;
        let offsets = index_offsets(indexed_shape, &strides, &indexed.tensors, &common)?;
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
    pub(super) fn for_each_run(&self, mut f: impl FnMut(usize, usize, usize)) {
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
fn index_offsets(
    shape: &[usize],
    strides: &[usize],
    tensors: &[(usize, Tensor)],
    common: &[usize],
) -> OpResult<Vec<usize>> {
    let mut offsets = vec![0usize; common.iter().product()];
    for (d, t) in tensors {
        let lead = common.len() - t.rank();
        let dense = contiguous_strides(t.shape());
        let stretch = |i: usize| match i.checked_sub(lead) {
            Some(j) if t.shape()[j] != 1 => dense[j] as i64,
            _ => 0,
        };
        let strides_t: Vec<i64> = (0..common.len()).map(stretch).collect();
        let v = t.as_slice::<i64>();
        if t.shape() == common {
            for (o, &i) in offsets.iter_mut().zip(v) {
                *o += in_bounds(i, shape[*d], *d)? * strides[*d];
            }
            continue;
        }
        let mut error = None;
        strided_positions(
            common,
            0,
            &strides_t,
            &mut |i, p| match in_bounds(v[p], shape[*d], *d) {
                Ok(index) => offsets[i] += index * strides[*d],
                Err(e) => error = error.take().or(Some(e)),
            },
        );
        if let Some(e) = error {
            return Err(e);
        }
    }
    Ok(offsets)
}
