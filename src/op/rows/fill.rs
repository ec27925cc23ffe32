//! Routines that write their results to memory of the caller's, and how they move elements: by size, in rows, without looking at dtypes
//! inside their loops.

use super::dense::{in_range, zeros};
use crate::op::view::strided_rows;
use crate::op::{Call, FillFn, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, contiguous_strides};
use crate::types::{TensorType, Val};
use std::sync::{Mutex, PoisonError};

/// Runs a [`Meaning::Fill`](crate::op::Meaning::Fill) on this thread, with new memory for the results.
pub fn fill_new(call: &Call<Tensor>, fill: FillFn) -> OpResult<Val<Tensor>> {
    let ty = (call.op.rule)(&call.types(), &mut Sizes::default())?;
    let many = matches!(ty, Val::Tuple(_));
    let fresh = |t: &TensorType| {
        let shape = t.fixed_shape();
        zeros(
            t.dtype,
            &shape.ok_or_else(|| OpError::shape("the size of the result is not known"))?,
        )
    };
    let mut tensors = ty.leaves().into_iter().map(fresh).collect::<OpResult<Vec<Tensor>>>()?;
    let mut outs: Vec<ViewMut> = tensors.iter_mut().map(ViewMut::from).collect();
    fill(call, &mut outs, &Pool::new(1))?;
    drop(outs);
    Ok(match many {
        true => Val::Tuple(tensors.into_iter().map(Val::Leaf).collect()),
        false => Val::Leaf(tensors.swap_remove(0)),
    })
}

/// Runs `$body` with the constant `$n`, the number of bytes of an element.
macro_rules! with_size {
    ($size:expr, $n:ident => $body:expr) => {
        match $size {
            1 => {
                const $n: usize = 1;
                $body
            }
            2 => {
                const $n: usize = 2;
                $body
            }
            4 => {
                const $n: usize = 4;
                $body
            }
            8 => {
                const $n: usize = 8;
                $body
            }
            _ => {
                const $n: usize = 16;
                $body
            }
        }
    };
}
pub(super) use with_size;

/// A thread handles at least this many bytes, or it is not worth waking.
const BYTES_PER_PART: usize = 128 << 10;

/// The number of units of `bytes` each, of `n`, that a thread handles at once.
pub(super) fn units_per_part(n: usize, bytes: usize, pool: &Pool) -> usize {
    let shares = n.div_ceil(4 * pool.threads());
    shares.max(BYTES_PER_PART.div_ceil(bytes.max(1))).max(1)
}

/// Copies all of a tensor to a result of the same size.
pub(super) fn copy_all(from: &Tensor, to: &mut ViewMut<'_>, pool: &Pool) {
    let (src, dst) = (from.bytes(), to.bytes_mut());
    let len = units_per_part(dst.len(), 1, pool);
    pool.run_parts(dst, len, |i, part| {
        part.copy_from_slice(&src[i * len..i * len + part.len()])
    });
}

/// Copies `src`, row-major elements of `size` bytes, to the places of a view in `dst`.
pub(super) fn write_strided(shape: &[usize], offset: i64, strides: &[i64], src: &[u8], dst: &mut [u8], size: usize) {
    with_size!(size, N => {
        let (src, dst) = (src.as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
        strided_rows(shape, offset, strides, |first, base, n, step| {
            let row = &src[first..first + n];
            match step {
                1 => dst[base as usize..][..n].copy_from_slice(row),
                _ => row.iter().enumerate().for_each(|(k, v)| dst[(base + k as i64 * step) as usize] = *v),
            }
        });
    });
}

/// The rows of an index tensor, for ops that name one element along `dim` of another tensor for each of its elements.
pub(super) struct IndexedRows<'a> {
    index: &'a [i64],
    shape: &'a [usize],
    dim: usize,
    /// The size of the other tensor along `dim`.
    pub size: usize,
    /// The distance of neighbours along `dim`.
    pub along: usize,
    /// The distance of the places of neighbours in a row, the same index given.
    pub step: usize,
    /// The strides of the other tensor, 0 along `dim`.
    strides: Vec<usize>,
}

impl<'a> IndexedRows<'a> {
    /// `index` is i64.
    pub(super) fn new(index: &'a Tensor, other: &[usize], dim: usize) -> IndexedRows<'a> {
        let mut strides = contiguous_strides(other);
        let along = strides.get(dim).copied().unwrap_or(1);
        if let Some(s) = strides.get_mut(dim) {
            *s = 0;
        }
        strides.resize(index.rank(), 0);
        IndexedRows {
            index: index.as_slice::<i64>(),
            shape: index.shape(),
            dim,
            size: other.get(dim).copied().unwrap_or(1),
            along,
            step: strides.last().copied().unwrap_or(0),
            strides,
        }
    }

    /// The length of a row.
    pub(super) fn len(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    fn row_count(&self) -> usize {
        self.index.len() / self.len().max(1)
    }

    /// The strides in a third tensor, of shape `other`, of the elements that belong to those of the index tensor.
    pub(super) fn strides_of(&self, other: &[usize]) -> Vec<usize> {
        let mut strides = contiguous_strides(other);
        strides.resize(self.shape.len(), 0);
        strides
    }

    /// The offset of a row's first element in a tensor with these strides.
    fn base(&self, mut row: usize, strides: &[usize]) -> usize {
        let outer = self.shape.len().saturating_sub(1);
        let mut base = 0;
        for d in (0..outer).rev() {
            base += row % self.shape[d] * strides[d];
            row /= self.shape[d];
        }
        base
    }

    /// The row and the offset at which its elements begin in the other tensor; an error if it has an index that is out of bounds.
    fn row(&self, row: usize) -> OpResult<(&'a [i64], usize)> {
        let n = self.len();
        let indices = &self.index[row * n..(row + 1) * n];
        let largest = indices.iter().fold(0, |m, &i| (i as u64).max(m));
        if largest >= self.size as u64 {
            let bad = indices.iter().find(|&&i| i as u64 >= self.size as u64);
            in_range(bad.copied().unwrap_or(-1), self.size, self.dim)?;
        }
        Ok((indices, self.base(row, &self.strides)))
    }

    /// Calls `f` for each index with the position that it names, and the position that belongs to it in a tensor of the strides `third`
    /// (0 if there are none).
    #[inline(always)]
    pub(super) fn for_each_place(&self, third: &[usize], mut f: impl FnMut(usize, usize)) -> OpResult<()> {
        let shift = !third.is_empty() as usize;
        for r in 0..self.row_count() {
            let (row, base) = self.row(r)?;
            let from = if shift == 0 { 0 } else { self.base(r, third) };
            for (j, &i) in row.iter().enumerate() {
                f(base + i as usize * self.along + j * self.step, from + j * shift);
            }
        }
        Ok(())
    }

    /// Reads for each index the element of `src` that it names.
    pub(super) fn gather<const N: usize>(&self, src: &[u8], dst: &mut [u8], pool: &Pool) -> OpResult<()> {
        let (src, dst) = (src.as_chunks::<N>().0, dst.as_chunks_mut::<N>().0);
        let n = self.len();
        if dst.is_empty() {
            return Ok(());
        }
        let rows = units_per_part(self.row_count(), n * N, pool);
        let failed = Mutex::new(None);
        pool.run_parts(dst, rows * n, |part, dst| {
            for (k, out) in dst.chunks_exact_mut(n).enumerate() {
                match self.row(part * rows + k) {
                    Ok((row, base)) => self.gather_row(row, &src[base..], out),
                    Err(e) => {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                        return;
                    }
                }
            }
        });
        failed
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .map_or(Ok(()), Err)
    }

    fn gather_row<const N: usize>(&self, row: &[i64], src: &[[u8; N]], out: &mut [[u8; N]]) {
        match (self.along, self.step) {
            (1, 0) => row.iter().zip(out).for_each(|(&i, o)| *o = src[i as usize]),
            (along, step) => {
                let places = row.iter().enumerate().map(|(j, &i)| i as usize * along + j * step);
                places.zip(out).for_each(|(p, o)| *o = src[p]);
            }
        }
    }
}
