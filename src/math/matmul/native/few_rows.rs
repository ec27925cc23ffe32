//! Products with few rows, and products of a matrix and one column. They use the kernels of [`dot`] or [`integers`]
//! instead of tiles.

use super::addend::add_after;
use super::{F32MatMulPlan, MatrixOperands};
use crate::math::contract::MatMul;
use crate::math::matmul::{Rect, dot, integers};

/// The methods for few rows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum FewRows {
    /// The columns of B are contiguous.
    Dots,
    /// The rows of B are contiguous.
    Rows,
    /// B is one contiguous column, and the rows of A are contiguous.
    Column,
    /// B is one contiguous column, and the columns of A are contiguous.
    ColumnOfRows,
    /// B is packed as integers.
    Integers,
}

/// The minimum number of elements of B for which reading it along its rows pays.
const LARGE: usize = 64 * 1024;

impl FewRows {
    /// The method for a product of two dynamic matrices, if one of these is the best.
    pub(super) fn choose(desc: &MatMul) -> Option<FewRows> {
        match desc.b {
            _ if desc.k == 0 => None,
            // Without this, tiles would have a single column.
            [1, _] if desc.n == 1 && desc.a[0] == 1 && desc.a[1] != 1 && desc.c_row == 1 => Some(FewRows::ColumnOfRows),
            _ if desc.a[1] != 1 => None,
            // The stride between columns means nothing if there is only one.
            [1, c] if (c != 1 || desc.n == 1) && desc.m <= dot::ROWS => Some(FewRows::Dots),
            [1, _] if desc.n == 1 && desc.c_row == 1 => Some(FewRows::Column),
            [_, 1] if desc.m <= dot::AXPY_ROWS && desc.n.saturating_mul(desc.k) > LARGE => Some(FewRows::Rows),
            _ => None,
        }
    }
}

impl F32MatMulPlan {
    /// Computes the columns of `panels` for a product with few rows, and the rows of `tiles` for one with one column or with integers.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_chunk`].
    pub(super) unsafe fn run_few_rows(
        &self,
        method: FewRows,
        x: &MatrixOperands,
        [t0, t1]: [usize; 2],
        [p0, p1]: [usize; 2],
    ) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let (col, end) = (p0 * nr, (p1 * nr).min(d.n));
        let [row, last] = match method {
            FewRows::Column | FewRows::ColumnOfRows | FewRows::Integers => [self.tiles.start(t0), self.tiles.start(t1)],
            _ => [0, d.m],
        };
        // SAFETY: the operands are valid for these rows and columns; the machine has the level.
        unsafe {
            match method {
                FewRows::Dots => dot::kernel(self.kernels.isa)(&few_rows_job(d, x, d.b[1], [col, end])),
                FewRows::Rows => dot::axpy(self.kernels.isa)(&few_rows_job(d, x, d.b[0], [col, end])),
                FewRows::Column => dot::kernel(self.kernels.isa)(&one_column_job(d, x, d.a[0], [row, last])),
                FewRows::ColumnOfRows => dot::axpy(self.kernels.isa)(&one_column_job(d, x, d.a[1], [row, last])),
                FewRows::Integers => self.multiply_integers(x, [row, last], [p0, p1]),
            }
            let rect = Rect {
                batch: x.batch,
                row,
                col,
                rows: last - row,
                cols: end - col,
            };
            add_after(self.kernels.isa, d, x, rect);
        }
    }
}

impl F32MatMulPlan {
    /// Multiplies rows `row..last` with panels `p0..p1` of integers.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_few_rows`].
    unsafe fn multiply_integers(&self, x: &MatrixOperands, [row, last]: [usize; 2], [p0, p1]: [usize; 2]) {
        let Some(packed) = &self.integers else { return };
        let rows = |j: usize| integers::FewRows {
            a: x.a.wrapping_add(row * self.desc.a[0]),
            a_strides: self.desc.a,
            count: last - row,
            c: x.c.wrapping_add(row * self.desc.c_row + j * self.kernels.nr),
            c_row: self.desc.c_row,
            cols: self.panel_width(j),
        };
        let isa = self.kernels.isa;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let prepared = packed.prepare(isa, &rows(p0));
            (p0..p1).for_each(|j| packed.multiply(isa, j, rows(j), &prepared));
        }
    }
}

/// All rows of columns `col..end`. `b_col` is the stride of B that is not 1.
fn few_rows_job(d: &MatMul, x: &MatrixOperands, b_col: usize, [col, end]: [usize; 2]) -> dot::DotJob {
    dot::DotJob {
        a: x.a,
        a_row: d.a[0],
        rows: d.m,
        b: x.b.wrapping_add(col * d.b[1]),
        b_col,
        cols: end - col,
        k: d.k,
        c: x.c.wrapping_add(col),
        c_row: d.c_row,
    }
}

/// Rows `row..last` of a product with one column: the columns of the transposed product's only row. `b_col` is the stride of
/// A that is not 1.
fn one_column_job(d: &MatMul, x: &MatrixOperands, b_col: usize, [row, last]: [usize; 2]) -> dot::DotJob {
    dot::DotJob {
        a: x.b,
        a_row: 0,
        rows: 1,
        b: x.a.wrapping_add(row * d.a[0]),
        b_col,
        cols: last - row,
        k: d.k,
        c: x.c.wrapping_add(row),
        c_row: d.c_row,
    }
}
