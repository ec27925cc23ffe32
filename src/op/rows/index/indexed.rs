//! Reading and writing the elements that an index tensor names along a dim, for gather and scatter.

use super::blocks::{BlockDim, Blocks};
use super::rounded::{AsStored, PartView};
use crate::op::rows::dense::in_range;
use crate::op::rows::fill::{BYTES_PER_PART, FirstError, units_per_part};
use crate::op::{OpError, OpResult};
use crate::parallel::Pool;
use crate::tensor::{IndexedBlock, Tensor, contiguous_strides, indices_within};
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
    size: usize,
    /// The distance of neighbours along `dim`.
    along: usize,
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
        IndexedRows {
            index: index.as_slice::<i64>(),
            shape: of_dims(index.shape()),
            dim,
            size: other.get(dim).copied().unwrap_or(1),
            along,
            strides: of_dims(&strides),
            dims,
        }
    }

    /// The strides in a third tensor, of shape `other`, of the elements that belong to those of the index tensor.
    pub(super) fn strides_of(&self, other: &[usize]) -> Vec<usize> {
        let strides = contiguous_strides(other);
        self.dims
            .iter()
            .map(|&d| strides.get(d).copied().unwrap_or(0))
            .collect()
    }

    /// The elements in blocks, with their positions in a tensor of the strides `third` (0 if there are none).
    fn blocks(&self, third: Option<&[usize]>) -> Blocks {
        Blocks::new((0..self.dims.len()).map(|d| BlockDim {
            size: self.shape[d],
            to: self.strides[d],
            from: third.map_or(0, |t| t[d]),
        }))
    }

    /// The indices of a block.
    fn block<'b>(&self, blocks: &'b Blocks, elements: Range<usize>) -> IndexedBlock<'b>
    where
        'a: 'b,
    {
        IndexedBlock {
            index: &self.index[elements],
            size: self.size,
            along: self.along,
            offsets: &blocks.to,
        }
    }

    /// Calls `f` for each index with the position that it names, and the position that belongs to it in a tensor of the strides `third`
    /// (0 if there are none).
    pub(super) fn for_each_place(&self, third: Option<&[usize]>, mut f: impl FnMut(usize, usize)) -> OpResult<()> {
        let blocks = self.blocks(third);
        blocks.for_each(0..blocks.count(), |elements, to, from| {
            let index = &self.index[elements];
            if !indices_within(index, self.size) {
                return Err(self.error(index));
            }
            let places = blocks.to.list().iter().zip(blocks.from.list());
            for (&i, (&t, &s)) in index.iter().zip(places) {
                f(to + t + i as usize * self.along, from + s);
            }
            Ok(())
        })
    }

    /// The error of indices one of which is out of bounds.
    fn error(&self, index: &[i64]) -> OpError {
        let bad = index.iter().find(|&&i| i as u64 >= self.size as u64);
        let error = in_range(bad.copied().unwrap_or(-1), self.size, self.dim);
        error.err().unwrap_or_else(|| OpError::value("index out of bounds"))
    }

    /// The number of units that write to one block of the other tensor and the block's length, if the rows of a dim before the indexed
    /// one have blocks of their own.
    fn units_per_block(&self, blocks: &Blocks) -> Option<(usize, usize)> {
        let (first, units) = blocks.first();
        let before = *self.dims.first()? < self.dim;
        (before && first.to > 0).then_some((units, first.to))
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
        self.scatter_as(&AsStored, src, third, dst, combine, pool)
    }

    /// [`IndexedRows::scatter`], where elements of `dst` are combined as `view` shows them.
    pub(super) fn scatter_as<D: Copy + Send + Sync, T: Copy + Send + Sync>(
        &self,
        view: &impl PartView<D, T>,
        src: &[D],
        third: Option<&[usize]>,
        dst: &mut [D],
        combine: impl Fn(T, T) -> T + Sync,
        pool: &Pool,
    ) -> OpResult<()> {
        let blocks = self.blocks(third);
        let Some((units, block)) = self.units_per_block(&blocks) else {
            return view.update(dst, pool, |dst| {
                let part = |m: Matrix| Some((m, self.columns_per_part(m.columns, size_of::<D>(), pool)?));
                match self.matrix(dst.len(), third).and_then(part) {
                    Some(part) => self.scatter_columns(part, (view, src), dst, &combine, pool),
                    None => self.scatter_units(&blocks, 0..blocks.count(), (view, src), dst, 0, &combine),
                }
            });
        };
        let count = blocks.count() / units;
        let bytes = units * blocks.unit * (size_of::<D>() + size_of::<i64>());
        let part = units_per_part(count, bytes, pool).min((view.most() / block).max(1));
        let reached = dst.len().min(count.saturating_mul(block));
        let failed = FirstError::default();
        pool.run_parts(&mut dst[..reached], part * block, |i, dst| {
            let first = i * part;
            let units = first * units..count.min(first + part) * units;
            failed.note(view.update(dst, Pool::alone(), |dst| {
                self.scatter_units(&blocks, units, (view, src), dst, first * block, &combine)
            }));
        });
        failed.result()
    }

    /// [`IndexedRows::scatter`] for some units and the part of the other tensor that begins at `start`, in which they write.
    fn scatter_units<D: Copy, T: Copy>(
        &self,
        blocks: &Blocks,
        units: Range<usize>,
        (view, src): (&impl PartView<D, T>, &[D]),
        dst: &mut [T],
        start: usize,
        combine: &impl Fn(T, T) -> T,
    ) -> OpResult<()> {
        let mut buffer = vec![];
        blocks.for_each(units, |elements, to, from| {
            let length = self.piece(blocks, elements.len());
            for first in (0..elements.len()).step_by(length.max(1)) {
                let (to, from) = (
                    to.wrapping_add(blocks.to.list()[first]),
                    from + blocks.from.list()[first],
                );
                let begin = elements.start + first;
                let block = self.block(blocks, begin..elements.end.min(begin + length));
                // Positions in tensors without elements may be anything.
                let dst = dst.get_mut(to.wrapping_sub(start)..).unwrap_or_default();
                let src = view.read(&src[from..], &blocks.from, block.index.len(), &mut buffer);
                if !block.scatter(dst, src, combine) {
                    return Err(self.error(block.index));
                }
            }
            Ok(())
        })
    }

    /// How many of a block's `count` elements are handled at once: units that are long rows are handled one by one, because positions in
    /// a row are the indices.
    fn piece(&self, blocks: &Blocks, count: usize) -> usize {
        let rows = self.along == 1 && blocks.unit >= LONG_ROW && blocks.to.are_zero(blocks.unit);
        if rows { blocks.unit } else { count }
    }

    /// The index tensor as a matrix whose rows lie along the indexed dim, its first one; `None` if the elements of a row are not evenly
    /// spaced in the other tensor of `len` elements and in the third one, whose strides are `third`.
    fn matrix(&self, len: usize, third: Option<&[usize]>) -> Option<Matrix> {
        let (first, _) = self.dims.split_first()?;
        let matrix = *first == self.dim && (1..=len).contains(&(self.size * self.along));
        if !matrix {
            return None;
        }
        let dim = |d: usize| (self.shape[d], self.strides[d], third.map_or(0, |t| t[d]));
        let (mut columns, step, shift) = dim(self.dims.len() - 1);
        for (size, to, from) in (1..self.dims.len() - 1).rev().map(dim) {
            if (to, from) != (columns * step, columns * shift) {
                return None;
            }
            columns *= size;
        }
        (self.dims.len() > 1).then_some(Matrix {
            columns,
            step,
            down: third.map_or(0, |t| t[0]),
            shift,
        })
    }

    /// How many columns of a matrix a thread should take; `None` if that does not save time.
    fn columns_per_part(&self, columns: usize, size: usize, pool: &Pool) -> Option<usize> {
        let bytes = self.index.len() * (size + size_of::<i64>());
        let parts = pool.threads().min(bytes / BYTES_PER_PART).min(columns / FEW_COLUMNS);
        // A whole number of cache lines, except that few columns are shared out evenly.
        let line = (CACHE_LINE / size).max(1);
        let part = columns.div_ceil(parts.max(1));
        let whole = part.next_multiple_of(line);
        (parts > 1).then_some(if part > 4 * line { whole } else { part })
    }

    /// [`IndexedRows::scatter`] in which threads take columns of both the index tensor and the other one.
    fn scatter_columns<D: Copy + Sync, T: Copy + Send + Sync>(
        &self,
        (matrix, part): (Matrix, usize),
        (view, src): (&impl PartView<D, T>, &[D]),
        dst: &mut [T],
        combine: &(impl Fn(T, T) -> T + Sync),
        pool: &Pool,
    ) -> OpResult<()> {
        let Matrix {
            columns,
            step,
            down,
            shift,
        } = matrix;
        let failed = FirstError::default();
        let dst = &mut dst[..self.size * self.along];
        pool.run_columns(dst, self.along, part * step, |i, mut dst| {
            let first = (i * part).min(columns);
            for (r, index) in self.index.chunks_exact(columns).enumerate() {
                let index = &index[first..columns.min(first + part)];
                let from = r * down + first * shift;
                for (j, &i) in index.iter().enumerate() {
                    // Only an index can be out of bounds; as an unsigned number, a negative one is large.
                    let Some(to) = dst.get(i as usize, j * step) else {
                        return failed.note(Err(self.error(index)));
                    };
                    *to = combine(*to, view.number(src[from + j * shift]));
                }
            }
        });
        failed.result()
    }

    /// Reads the elements of a block, whose positions are relative to `to`.
    fn gather_block<T: Copy>(
        &self,
        blocks: &Blocks,
        elements: Range<usize>,
        src: &[T],
        to: usize,
        out: &mut [T],
    ) -> OpResult<()> {
        let length = self.piece(blocks, out.len());
        for (k, out) in out.chunks_mut(length.max(1)).enumerate() {
            let from = elements.start + k * length;
            let block = self.block(blocks, from..from + out.len());
            let start = to.wrapping_add(blocks.to.list().get(k * length).copied().unwrap_or(0));
            // Positions in tensors without elements may be anything.
            if !block.gather(src.get(start..).unwrap_or_default(), out) {
                return Err(self.error(block.index));
            }
        }
        Ok(())
    }

    /// Reads for each index the element of `src` that it names.
    pub(super) fn gather<T: Copy + Send + Sync>(&self, src: &[T], dst: &mut [T], pool: &Pool) -> OpResult<()> {
        if dst.is_empty() {
            return Ok(());
        }
        let blocks = self.blocks(None);
        let unit = blocks.unit;
        let part = units_per_part(blocks.count(), unit * size_of::<T>(), pool);
        let failed = FirstError::default();
        pool.run_parts(dst, part * unit, |i, dst| {
            let first = i * part;
            let units = first..first + dst.len() / unit;
            failed.note(blocks.for_each(units, |elements, to, _| {
                let out = &mut dst[elements.start - first * unit..elements.end - first * unit];
                self.gather_block(&blocks, elements, src, to, out)
            }));
        });
        failed.result()
    }
}

/// An index tensor as a matrix.
#[derive(Clone, Copy)]
struct Matrix {
    columns: usize,
    /// The distance of columns in the other tensor.
    step: usize,
    /// The distances of rows and of columns in the third tensor.
    down: usize,
    shift: usize,
}

/// The fewest columns for which a thread goes over all rows.
const FEW_COLUMNS: usize = 3;

const CACHE_LINE: usize = 64;

/// Rows of at least so many indices are read as blocks of their own.
const LONG_ROW: usize = 64;

#[cfg(test)]
mod tests;
