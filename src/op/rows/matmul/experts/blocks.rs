//! Products of groups of many rows: each block of a matrix is multiplied with all rows of its group while it is in cache.

use super::{COLUMNS, ColumnProducts, Group};
use crate::op::rows::dense::Number;
use crate::tensor::{Factor, WideLoop, add_product, run_wide};

/// The minimum number of rows of a group that is multiplied in blocks. Smaller groups are limited by memory bandwidth, and loops read their
/// matrix sequentially.
pub(super) const MANY_ROWS: usize = 8;

/// The rows of a matrix in a block: with [`COLUMNS`] columns of f32, 256 KB.
const BLOCK_DEPTH: usize = 256;

/// [`add_product`] for one type of elements.
pub(super) type AddProduct<T> = fn([usize; 3], T, Factor<T>, Factor<T>, (&mut [T], usize, usize));

/// An element type of grouped products.
pub(super) trait GroupElement: Number {
    /// The number 1 and [`add_product`]; `None` for types that it does not support.
    const ADD_PRODUCT: Option<(Self, AddProduct<Self>)>;
}

impl GroupElement for f32 {
    const ADD_PRODUCT: Option<(f32, AddProduct<f32>)> = Some((1.0, add_product));
}

impl GroupElement for f64 {
    const ADD_PRODUCT: Option<(f64, AddProduct<f64>)> = Some((1.0, add_product));
}

impl GroupElement for i64 {
    const ADD_PRODUCT: Option<(i64, AddProduct<i64>)> = None;
}

/// Reads lines of `len` elements, which are `stride` apart, one after the other into a block.
struct ReadBlock<'a, S, T, R> {
    source: &'a [S],
    stride: usize,
    len: usize,
    block: &'a mut [T],
    read: R,
}

impl<S: Copy, T: Copy, R: Fn(S) -> T + Copy> WideLoop for ReadBlock<'_, S, T, R> {
    #[inline(always)]
    fn run(self) {
        for (i, line) in self.block.chunks_exact_mut(self.len).enumerate() {
            let source = &self.source[i * self.stride..][..self.len];
            for (to, v) in line.iter_mut().zip(source) {
                *to = (self.read)(*v);
            }
        }
    }
}

/// Adds the product of the rows of `x` and a block to the sums, for these numbers of rows, columns and product indices. For a transposed
/// matrix, the sums are transposed too: the block times the transposed `x` is faster, because `gemm` packs a row-major block much faster
/// than a column-major one.
fn add_block<T: GroupElement>(
    (one, add_product): (T, AddProduct<T>),
    transposed: bool,
    [rows, width, depth]: [usize; 3],
    x: Factor<T>,
    block: &[T],
    sums: &mut [T],
) {
    match transposed {
        true => {
            let block = Factor::at(block, depth, 0, 0);
            add_product([width, rows, depth], one, block, x.transposed(), (sums, 0, rows));
        }
        false => {
            let block = Factor::at(block, width, 0, 0);
            add_product([rows, width, depth], one, x, block, (sums, 0, width));
        }
    }
}

impl<S: Copy, T: GroupElement, R: Fn(S) -> T + Copy> ColumnProducts<'_, S, T, R> {
    /// Computes these columns of the products of a group.
    pub(super) fn multiply_blocks(&mut self, group: &Group, transposed: bool, product: (T, AddProduct<T>)) {
        let (k, rows) = (self.sizes[0], group.rows.len());
        let most = COLUMNS.min(self.width);
        let mut block = vec![T::default(); most * BLOCK_DEPTH.min(k)];
        let mut sums = vec![T::default(); rows * most];
        for at in (0..self.width).step_by(COLUMNS) {
            let width = COLUMNS.min(self.width - at);
            let sums = &mut sums[..rows * width];
            sums.fill(T::default());
            for from in (0..k).step_by(BLOCK_DEPTH) {
                let depth = BLOCK_DEPTH.min(k - from);
                let block = &mut block[..depth * width];
                self.read_block(group.matrix, transposed, (from, depth), (at, width), block);
                let x = Factor::at(self.x, k, group.rows.start, from);
                add_block(product, transposed, [rows, width, depth], x, block, sums);
            }
            self.store_sums(group, transposed, (at, width), sums);
        }
    }

    /// Copies the sums of some columns to the result.
    fn store_sums(&mut self, group: &Group, transposed: bool, (at, width): (usize, usize), sums: &[T]) {
        let rows = group.rows.len();
        for (i, row) in group.rows.clone().enumerate() {
            let out = &mut self.out.row(row)[at..at + width];
            match transposed {
                true => out.iter_mut().enumerate().for_each(|(j, o)| *o = sums[j * rows + i]),
                false => out.copy_from_slice(&sums[i * width..][..width]),
            }
        }
    }

    /// Reads `depth` rows from `from` on and `width` columns from `at` on of a matrix, in the order of memory.
    fn read_block(
        &self,
        matrix: usize,
        transposed: bool,
        (from, depth): (usize, usize),
        (at, width): (usize, usize),
        block: &mut [T],
    ) {
        let [k, n] = self.sizes;
        let column = self.first + at;
        let (start, stride, len) = match transposed {
            true => ((matrix * n + column) * k + from, k, depth),
            false => ((matrix * k + from) * n + column, n, width),
        };
        run_wide(ReadBlock {
            source: &self.w[start..],
            stride,
            len,
            block,
            read: self.read,
        });
    }
}
