//! Routines that write their results to memory of the caller's, and how they move elements: by size, in rows, without looking at dtypes
//! inside their loops.

use super::dense::{in_range, zeros};
use crate::op::view::{strided_positions, strided_rows};
use crate::op::{Call, FillFn, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{IndexedLine, Tensor, ViewMut, contiguous_strides};
use crate::types::{TensorType, Val};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Runs a [`Meaning::Fill`](crate::op::Meaning::Fill) on this thread, with new memory for the results.
pub(crate) fn fill_new(call: &Call<Tensor>, fill: FillFn) -> OpResult<Val<Tensor>> {
    let ty = call.op.result_type(&call.types(), &mut Sizes::default())?;
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

/// Runs `$body` with operand and result as slices of words that are as large as an element.
macro_rules! with_word {
    ($size:expr, $src:expr, $dst:expr, |$s:ident, $d:ident| $body:expr) => {
        match $size {
            1 => with_word!(@cells u8, $src, $dst, $s, $d, $body),
            2 => with_word!(@cells i16, $src, $dst, $s, $d, $body),
            4 => with_word!(@cells i32, $src, $dst, $s, $d, $body),
            8 => with_word!(@cells i64, $src, $dst, $s, $d, $body),
            _ => {
                let ($s, $d) = ($src.as_chunks::<16>().0, $dst.as_chunks_mut::<16>().0);
                $body
            }
        }
    };
    (@cells $t:ty, $src:expr, $dst:expr, $s:ident, $d:ident, $body:expr) => {{
        let $s = $crate::tensor::cells_of::<$t>($src);
        let $d = $crate::tensor::cells_of_mut::<$t>($dst);
        $body
    }};
}
pub(super) use with_word;

/// A thread handles at least this many bytes, or it is not worth waking.
const BYTES_PER_PART: usize = 128 << 10;

/// The number of units of `bytes` each, of `n`, that a thread handles at once.
pub(super) fn units_per_part(n: usize, bytes: usize, pool: &Pool) -> usize {
    let shares = n.div_ceil(4 * pool.threads());
    shares.max(BYTES_PER_PART.div_ceil(bytes.max(1))).max(1)
}

/// The tensor broadcast to `shape`.
pub(super) fn expanded(t: &Tensor, shape: &[usize]) -> Tensor {
    if t.shape() == shape {
        return t.clone();
    }
    let lead = shape.len() - t.rank();
    let own = contiguous_strides(t.shape());
    let stride = |i: usize| match i.checked_sub(lead) {
        Some(j) if t.shape()[j] != 1 => own[j] as i64,
        _ => 0,
    };
    let strides: Vec<i64> = (0..shape.len()).map(stride).collect();
    let mut out = Tensor::zeros(t.dtype(), shape);
    with_size!(t.dtype().size(), N => {
        let (src, dst) = (t.bytes().as_chunks::<N>().0, out.bytes_mut().as_chunks_mut::<N>().0);
        strided_positions(shape, 0, &strides, &mut |i, p| dst[i] = src[p]);
    });
    out
}

/// Calls `f(i, a, b)` for matching parts of two results, the last of which may be shorter, on the threads. Panics if a length is 0.
pub(super) fn run_pairs<A: Send, B: Send>(
    pool: &Pool,
    (a, a_len): (&mut [A], usize),
    (b, b_len): (&mut [B], usize),
    f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let mut parts: Vec<_> = a.chunks_mut(a_len).zip(b.chunks_mut(b_len)).collect();
    pool.run_parts(&mut parts, 1, |i, part| {
        if let [(a, b)] = part {
            f(i, a, b);
        }
    });
}

/// Copies all of a tensor to a result of the same size, unless they are the same memory.
pub(super) fn copy_all(from: &Tensor, to: &mut ViewMut<'_>, pool: &Pool) {
    if std::ptr::eq(from.bytes().as_ptr(), to.address().cast_const()) {
        return;
    }
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
    /// The dims of the index tensor that have more than one element.
    dims: Vec<usize>,
    /// Their sizes.
    shape: Vec<usize>,
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
        let dims: Vec<usize> = (0..index.rank()).filter(|&d| index.shape()[d] != 1).collect();
        let of_dims = |v: &[usize]| dims.iter().map(|&d| v.get(d).copied().unwrap_or(0)).collect::<Vec<_>>();
        let strides = of_dims(&strides);
        IndexedRows {
            index: index.as_slice::<i64>(),
            shape: of_dims(index.shape()),
            dim,
            size: other.get(dim).copied().unwrap_or(1),
            along,
            step: strides.last().copied().unwrap_or(0),
            strides,
            dims,
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
        let strides = contiguous_strides(other);
        self.dims
            .iter()
            .map(|&d| strides.get(d).copied().unwrap_or(0))
            .collect()
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
            return Err(self.error(indices));
        }
        Ok((indices, self.base(row, &self.strides)))
    }

    /// Calls `f` for each index with the position that it names, and the position that belongs to it in a tensor of the strides `third`
    /// (0 if there are none).
    #[inline(always)]
    pub(super) fn for_each_place(&self, third: Option<&[usize]>, mut f: impl FnMut(usize, usize)) -> OpResult<()> {
        let shift = third.map_or(0, |t| t.last().copied().unwrap_or(0));
        for r in 0..self.row_count() {
            let (row, base) = self.row(r)?;
            let from = third.map_or(0, |t| self.base(r, t));
            for (j, &i) in row.iter().enumerate() {
                f(base + i as usize * self.along + j * self.step, from + j * shift);
            }
        }
        Ok(())
    }

    /// The error of a row that has an index out of bounds.
    fn error(&self, row: &[i64]) -> OpError {
        let bad = row.iter().find(|&&i| i as u64 >= self.size as u64);
        let error = in_range(bad.copied().unwrap_or(-1), self.size, self.dim);
        error.err().unwrap_or_else(|| OpError::value("index out of bounds"))
    }

    /// A row, and where its places begin in the other tensor, of `len` elements.
    fn line(&self, row: usize, len: usize) -> (IndexedLine<'a>, usize) {
        let n = self.len();
        let line = IndexedLine {
            index: &self.index[row * n..(row + 1) * n],
            size: self.size,
            along: self.along,
            step: self.step,
        };
        (line, self.base(row, &self.strides).min(len))
    }

    /// The number of rows that write to one block of the other tensor and the block's length, if the rows of a dim before the indexed
    /// one have blocks of their own.
    fn rows_per_block(&self) -> Option<(usize, usize)> {
        let (first, block) = (*self.dims.first()?, *self.strides.first()?);
        (self.dims.len() > 1 && first < self.dim && block > 0).then(|| (self.row_count() / self.shape[0].max(1), block))
    }

    /// Combines for each index the element of `src` that belongs to it with the one of `dst` that it names, in order. `third` are the
    /// strides of `src`; without them all indices take its only element.
    pub(super) fn scatter<T: Copy + Send + Sync>(
        &self,
        src: &[T],
        third: Option<&[usize]>,
        dst: &mut [T],
        combine: impl Fn(T, T) -> T + Sync,
        pool: &Pool,
    ) -> OpResult<()> {
        let Some((rows, block)) = self.rows_per_block() else {
            return self.scatter_rows(0..self.row_count(), src, third, dst, 0, &combine);
        };
        let bytes = rows * self.len() * (size_of::<T>() + size_of::<i64>());
        let blocks = units_per_part(self.shape[0], bytes, pool);
        let reached = dst.len().min(self.shape[0] * block);
        let failed = FirstError::default();
        pool.run_parts(&mut dst[..reached], blocks * block, |part, dst| {
            let first = part * blocks;
            let rows = first * rows..self.shape[0].min(first + blocks) * rows;
            failed.note(self.scatter_rows(rows, src, third, dst, first * block, &combine));
        });
        failed.result()
    }

    /// [`IndexedRows::scatter`] for some rows and the part of the other tensor that begins at `start`, in which they write.
    fn scatter_rows<T: Copy>(
        &self,
        mut rows: Range<usize>,
        src: &[T],
        third: Option<&[usize]>,
        dst: &mut [T],
        start: usize,
        combine: &impl Fn(T, T) -> T,
    ) -> OpResult<()> {
        let shift = third.map_or(0, |t| t.last().copied().unwrap_or(0));
        rows.try_for_each(|r| {
            let (line, base) = self.line(r, start + dst.len());
            let from = third.map_or(0, |t| self.base(r, t));
            match line.scatter(&mut dst[base.saturating_sub(start)..], &src[from..], shift, combine) {
                true => Ok(()),
                false => Err(self.error(line.index)),
            }
        })
    }

    /// Reads for each index the element of `src` that it names.
    pub(super) fn gather<T: Copy + Send + Sync>(&self, src: &[T], dst: &mut [T], pool: &Pool) -> OpResult<()> {
        let n = self.len();
        if dst.is_empty() {
            return Ok(());
        }
        let rows = units_per_part(self.row_count(), n * size_of::<T>(), pool);
        let failed = FirstError::default();
        pool.run_parts(dst, rows * n, |part, dst| {
            for (k, out) in dst.chunks_exact_mut(n).enumerate() {
                let r = part * rows + k;
                let (line, base) = self.line(r, src.len());
                if !line.gather(&src[base..], out) {
                    return failed.note(Err(self.error(line.index)));
                }
            }
        });
        failed.result()
    }
}

/// An error of a part of an operation that runs on several threads.
#[derive(Default)]
pub(super) struct FirstError(Mutex<Option<OpError>>);

impl FirstError {
    /// Keeps the error, unless another part failed before.
    pub(super) fn note(&self, result: OpResult<()>) {
        if let Err(e) = result {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        }
    }

    /// The error of the whole operation.
    pub(super) fn result(self) -> OpResult<()> {
        self.0
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .map_or(Ok(()), Err)
    }
}
