//! The elements that an index selects.

use super::by_value::nonzero;
use super::{broadcast_indices, index_items, insertion_point, is_mask};
use crate::op::rows::dense::in_bounds;
use crate::op::rows::fill::units_per_part;
use crate::op::view::strided_positions;
use crate::op::{Call, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{Tensor, contiguous_strides, copy_rows, indices_within, with_wide_vectors};
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
                Some(t) if is_mask(t.dtype()) => mask_indices(t)?,
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
fn mask_indices(mask: &Tensor) -> OpResult<Vec<Tensor>> {
    let Some((&width, outer)) = mask.shape().split_last() else {
        return Ok(vec![]);
    };
    if outer.is_empty() {
        let rows = nonzero(mask)?;
        return Ok(vec![rows.reshape(&[rows.numel()])]);
    }
    let strides = contiguous_strides(outer);
    let mut all = vec![vec![]; mask.rank()];
    for_each_true(mask.bytes(), width, |line, from, places| {
        let (leading, last) = all.split_at_mut(outer.len());
        for (d, v) in leading.iter_mut().enumerate() {
            v.resize(v.len() + places.len(), (line / strides[d] % outer[d]) as i64);
        }
        last[0].extend(places.iter().map(|&k| (from + k) as i64));
    });
    Ok(all.iter().map(|v| Tensor::from_slice(&[v.len()], v)).collect())
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

    /// The runs of elements of the result that are neighbours in the tensor.
    fn runs(&self) -> Runs {
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
        Runs { before, after, run }
    }

    /// Calls `f(i, p, n)` for each run of `n` elements of the result, from element `i` on, that are neighbours in the tensor from
    /// position `p` on; all runs have the same length.
    #[inline(always)]
    pub(super) fn for_each_run(&self, mut f: impl FnMut(usize, usize, usize)) {
        let Runs { before, after, run } = self.runs();
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

    /// Copies the elements of `src` at these places to `dst`, on the threads.
    pub(super) fn gather<T: Copy + Send + Sync>(&self, src: &[T], dst: &mut [T], pool: &Pool) {
        let runs = self.runs();
        let (unit, count) = (runs.after.len() * runs.run, self.offsets.len());
        if dst.is_empty() {
            return;
        }
        let units = units_per_part(dst.len() / unit, 2 * unit * size_of::<T>(), pool);
        pool.run_parts(dst, units * unit, |part, mut dst| {
            let (mut a, mut o) = (part * units / count, part * units % count);
            while !dst.is_empty() {
                let n = (count - o).min(dst.len() / unit);
                let now = dst.split_off_mut(..n * unit).unwrap_or_default();
                runs.copy(&src[runs.before[a]..], &self.offsets[o..][..n], now);
                (a, o) = (a + 1, 0);
            }
        });
    }
}

impl Runs {
    /// Copies the runs at each offset, one after the other.
    fn copy<T: Copy>(&self, src: &[T], offsets: &[usize], dst: &mut [T]) {
        let run = self.run;
        match self.after[..] {
            [z] if run == 1 => dst.iter_mut().zip(offsets).for_each(|(to, o)| *to = src[o + z]),
            [z] => {
                let runs = dst.chunks_exact_mut(run).zip(offsets);
                copy_rows(run, runs.map(|(to, o)| (&src[o + z..][..run], to)));
            }
            _ if run == 1 => {
                for (to, o) in dst.chunks_exact_mut(self.after.len()).zip(offsets) {
                    to.iter_mut().zip(&self.after).for_each(|(to, z)| *to = src[o + z]);
                }
            }
            _ => {
                let units = offsets.iter().flat_map(|o| self.after.iter().map(move |z| o + z));
                let runs = dst.chunks_exact_mut(run).zip(units);
                copy_rows(run, runs.map(|(to, p)| (&src[p..][..run], to)));
            }
        }
    }
}

/// The positions of the dims before and after the indices, and the number of elements of a run.
struct Runs {
    before: Vec<usize>,
    after: Vec<usize>,
    run: usize,
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
            add_offsets(&mut offsets, v, (shape[*d], strides[*d]), *d)?;
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

/// Adds the offset of each index of a list along `dim`, which has this size and stride.
fn add_offsets(offsets: &mut [usize], index: &[i64], (size, stride): (usize, usize), dim: usize) -> OpResult<()> {
    if !indices_within(index, size) {
        for (o, &i) in offsets.iter_mut().zip(index) {
            *o += in_bounds(i, size, dim)? * stride;
        }
        return Ok(());
    }
    Pool::with_lent(|pool| {
        let part = units_per_part(offsets.len(), 2 * size_of::<i64>(), pool);
        pool.run_parts(offsets, part, |k, offsets| {
            let pairs = offsets.iter_mut().zip(&index[k * part..]);
            with_wide_vectors(|| pairs.for_each(|(o, &i)| *o += i as usize * stride));
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::index;
    use super::*;
    use crate::types::Val;

    fn indexed(x: &Tensor, indices: &[Val<Tensor>], threads: usize) -> Tensor {
        let call = Call {
            op: crate::op::by_name("index").expect("a row"),
            args: vec![Val::Leaf(x.clone()), Val::List(indices.to_vec())],
        };
        let result = Pool::new(threads).lend(|| index(&call)).expect("a result");
        result.as_leaf().cloned().expect("a tensor")
    }

    fn check(got: &Tensor, element: impl Fn(usize) -> usize) {
        let mut all = got.as_slice::<i32>().iter().enumerate();
        assert!(all.all(|(i, &v)| v as usize == element(i)));
    }

    /// Single elements, slices, and elements in the middle of slices.
    #[test]
    fn threads_read_what_one_does() {
        let [a, b, c] = [40, 60, 50];
        let x = Tensor::from_slice(&[a, b, c], &Vec::from_iter(0..(a * b * c) as i32));
        let list = |n: usize, count: i64| {
            let list: Vec<i64> = (0..count).map(|k| k * k % n as i64).collect();
            (Val::Leaf(Tensor::from_slice(&[list.len()], &list)), list)
        };
        for threads in [1, 2, 3] {
            let (at, list_a) = list(a, 90);
            let element = |i: usize| list_a[i / (b * c)] as usize * b * c + i % (b * c);
            check(&indexed(&x, &[at], threads), element);
            let (at, list_c) = list(c, 70);
            let element = |i: usize| i / 70 * c + list_c[i % 70] as usize;
            check(&indexed(&x, &[Val::None, Val::None, at], threads), element);
            let (at, list_b) = list(b, 80);
            let element = |i: usize| (i / (80 * c) * b + list_b[i / c % 80] as usize) * c + i % c;
            check(&indexed(&x, &[Val::None, at], threads), element);
            // The dims after the indices are apart: their elements are neighbours of none of the same place.
            let ((at, list_a), (to, list_c)) = (list(a, 45), list(c, 45));
            let element = |i: usize| (list_a[i / b] as usize * b + i % b) * c + list_c[i / b] as usize;
            check(&indexed(&x, &[at, Val::None, to], threads), element);
            let flat = x.reshape(&[a * b * c]);
            let mask: Vec<i64> = (0..a * b * c).map(|i| (i % 3 == 1) as i64).collect();
            let mask = Tensor::from_slice(&[a * b * c], &mask).to(DType::B8);
            let got = indexed(&flat, &[Val::Leaf(mask)], threads);
            assert_eq!(got.numel(), a * b * c / 3);
            check(&got, |i| 3 * i + 1);
        }
    }
}
