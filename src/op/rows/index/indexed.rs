//! Reading and writing the elements that an index tensor names along a dim, for gather and scatter.

use crate::op::rows::dense::in_range;
use crate::op::rows::fill::{BYTES_PER_PART, FirstError, units_per_part};
use crate::op::{OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{IndexedLine, Tensor, contiguous_strides};
use std::ops::Range;

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
            return match self.columns_per_part(dst.len(), size_of::<T>(), pool) {
                Some(columns) => self.scatter_columns(columns, src, third, dst, &combine, pool),
                None => self.scatter_rows(0..self.row_count(), src, third, dst, 0, &combine),
            };
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

    /// How many columns of a matrix, indexed along its first dim, a thread should take; `None` if that does not save time.
    fn columns_per_part(&self, len: usize, size: usize, pool: &Pool) -> Option<usize> {
        let matrix = self.dims.len() == 2 && self.dims[0] == self.dim && (1..=len).contains(&(self.size * self.along));
        let large = self.index.len() * (size + size_of::<i64>()) >= 2 * BYTES_PER_PART;
        (matrix && large && pool.threads() > 1).then(|| self.len().div_ceil(pool.threads()))
    }

    /// [`IndexedRows::scatter`] in which threads take columns of both the index tensor and the other one.
    fn scatter_columns<T: Copy + Send + Sync>(
        &self,
        columns: usize,
        src: &[T],
        third: Option<&[usize]>,
        dst: &mut [T],
        combine: &(impl Fn(T, T) -> T + Sync),
        pool: &Pool,
    ) -> OpResult<()> {
        let shift = third.map_or(0, |t| t.last().copied().unwrap_or(0));
        let failed = FirstError::default();
        let matrix = &mut dst[..self.size * self.along];
        pool.run_columns(matrix, self.along, columns * self.step, |part, mut dst| {
            let first = (part * columns).min(self.len());
            for (r, index) in self.index.chunks_exact(self.len()).enumerate() {
                let index = &index[first..self.len().min(first + columns)];
                let from = third.map_or(0, |t| self.base(r, t)) + first * shift;
                if index.iter().any(|&i| i as u64 >= self.size as u64) {
                    return failed.note(Err(self.error(index)));
                }
                for (j, &i) in index.iter().enumerate() {
                    let to = &mut dst.row(i as usize)[j * self.step];
                    *to = combine(*to, src[from + j * shift]);
                }
            }
        });
        failed.result()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::SplitMix;

    /// A matrix of indices for each dim of a matrix, large enough for several threads.
    #[test]
    fn threads_scatter_as_one_does() {
        let mut random = SplitMix::new(3);
        let (rows, columns, along, first) = (300, 131, 140, 90);
        let src: Vec<i64> = (0..rows * columns).map(|_| random.next_below(100) as i64).collect();
        for (dim, other) in [(0, [first, along]), (1, [rows, along])] {
            let index: Vec<i64> = src.iter().map(|_| random.next_below(other[dim]) as i64).collect();
            let index = Tensor::from_slice(&[rows, columns], &index);
            let by = |threads: usize| {
                let indexed = IndexedRows::new(&index, &other, dim);
                let mut dst = vec![1i64; other[0] * other[1]];
                let strides = indexed.strides_of(&[rows, columns]);
                let combine = |a: i64, b: i64| a.wrapping_mul(3).wrapping_add(b);
                let r = indexed.scatter(&src, Some(&strides), &mut dst, combine, &Pool::new(threads));
                r.map(|()| dst).map_err(|e| e.title)
            };
            assert_eq!(by(3), by(1), "dim {dim}");
        }
        let mut bad = vec![0i64; rows * columns];
        bad[rows * columns - 1] = 5;
        let index = Tensor::from_slice(&[rows, columns], &bad);
        let indexed = IndexedRows::new(&index, &[5, columns], 0);
        let mut dst = vec![0; 5 * columns];
        assert!(indexed.scatter(&[1], None, &mut dst, |_, b| b, &Pool::new(2)).is_err());
    }
}
