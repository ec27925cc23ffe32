//! f32 products on register tiles.
//!
//! The loops are those of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): blocks of
//! product indices, packed panels of B, packed tiles of A, and the register tile inside. A constant operand is packed
//! once, when the plan is made. A dynamic operand is packed per block if it is used often enough to pay; otherwise it
//! is read in place.

mod addend;
mod blocks;
mod few_rows;

use super::grid::{Grid, GridShape};
use super::grouped::PackedProduct;
use super::integers::PackedIntegers;
use super::packed::Packed;
use super::tiled::{PageRelease, TiledProduct};
use super::{Offsets, Rect, run_tail};
use crate::math::contract::{Addend, Constant, MatMul, MatMulArgs, MatMulConstants, TileTail};
use crate::math::pack::pack_panel;
use crate::math::tile::{Kernels, Tiles};
use crate::target::Isa;
use addend::add_after;
use few_rows::FewRows;

/// A plan of an f32 product.
pub(crate) struct F32MatMulPlan {
    desc: MatMul,
    kernels: &'static Kernels,
    tiles: Tiles,
    a: Option<Packed>,
    b: Option<Packed>,
    /// B, if it is packed as integers.
    integers: Option<PackedIntegers>,
    start: Start,
    /// The [`dot`](super::dot) kernel to use instead of tiles.
    few_rows: Option<FewRows>,
}

/// When `alpha`, `beta` and the addend are applied.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Start {
    Zero,
    ColumnBias,
    RowBias,
    /// With the addend, a matrix whose rows are as far apart as those of C.
    Matrix,
    /// After the product, in a pass over the tile.
    After,
}

/// The operands of one matrix of the batch.
#[derive(Clone, Copy)]
struct MatrixOperands {
    a: *const f32,
    b: *const f32,
    c: *mut f32,
    addend: *const f32,
    batch: usize,
    /// The offset of this matrix in the result, for the tail.
    offset: usize,
    tail: Option<TileTail>,
}

impl F32MatMulPlan {
    /// Plans `desc`, whose extents were already checked. Constants span at least the extents.
    pub(crate) fn new(isa: Isa, desc: &MatMul, constants: MatMulConstants) -> F32MatMulPlan {
        F32MatMulPlan::with_quads(isa, false, desc, constants)
    }

    /// The same. `quads` states whether integers are multiplied four bytes at a time.
    pub(crate) fn with_quads(isa: Isa, quads: bool, desc: &MatMul, constants: MatMulConstants) -> F32MatMulPlan {
        let kernels = Kernels::for_isa(isa);
        let tiles = Tiles::new(desc.m, kernels.mr);
        let mut plan = F32MatMulPlan {
            desc: desc.clone(),
            kernels,
            tiles,
            a: None,
            b: None,
            integers: None,
            start: choose_start(desc),
            few_rows: None,
        };
        if let Some(a) = constants.a {
            plan.a = Some(plan.pack_a(a));
        } else if let Some(b) = constants.b {
            let packed = |group| PackedIntegers::new(desc, group, kernels.nr, quads, b);
            plan.integers = desc.quantized.and_then(packed);
            match plan.integers {
                Some(ref packed) => plan.few_rows = (desc.m <= packed.most_rows(false)).then_some(FewRows::Integers),
                None => plan.b = Some(plan.pack_b(b)),
            }
        } else {
            plan.few_rows = FewRows::choose(desc);
        }
        plan
    }

    fn pack_a(&self, constant: Constant) -> Packed {
        let (d, t) = (&self.desc, self.tiles);
        let strides: Vec<usize> = d.batch.iter().map(|b| b.a).collect();
        let key = [1, d.m, d.k, d.a[0], d.a[1], self.kernels.mr];
        Packed::new(d, &strides, d.m * d.k, constant, &key, |a, offset, dst| {
            // SAFETY: the constant holds the extents; the item has room for them.
            unsafe { self.pack_tiles(a.as_ptr().add(offset), [0, t.count()], d.k, d.k, dst) };
        })
    }

    fn pack_b(&self, constant: Constant) -> Packed {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let strides: Vec<usize> = d.batch.iter().map(|b| b.b).collect();
        let key = [2, d.n, d.k, d.b[0], d.b[1], nr];
        Packed::new(
            d,
            &strides,
            self.panels() * nr * d.k,
            constant,
            &key,
            |b, offset, dst| {
                let mut pages = PageRelease::new(constant, 4 * offset);
                for j in 0..self.panels() {
                    // SAFETY: the constant holds the extents; the panel lies in the item.
                    unsafe {
                        let src = b.as_ptr().add(offset + j * nr * d.b[1]);
                        pack_panel(src, d.b[1], d.b[0], self.panel_width(j), nr, d.k, dst.add(j * nr * d.k));
                    }
                    if d.b == [1, d.k] {
                        pages.advance(4 * (offset + (j + 1) * nr * d.k));
                    }
                }
            },
        )
    }

    /// Packs `depth` product indices of the tiles of `t0..t1`, with `row` elements for each row of a tile. `src` is the
    /// first element of row 0.
    ///
    /// # Safety
    /// `src` has the tiles' rows; `dst` has room for them.
    unsafe fn pack_tiles(&self, src: *const f32, [t0, t1]: [usize; 2], depth: usize, row: usize, dst: *mut f32) {
        let (a, first) = (self.desc.a, self.tiles.start(t0));
        for t in t0..t1 {
            let (r0, rows) = (self.tiles.start(t), self.tiles.start(t + 1) - self.tiles.start(t));
            // SAFETY: the tile lies in both.
            unsafe {
                let dst = dst.add((r0 - first) * row);
                pack_panel(src.add(r0 * a[0]), a[0], a[1], rows, rows, depth, dst);
            }
        }
    }

    fn panels(&self) -> usize {
        self.desc.n.div_ceil(self.kernels.nr)
    }

    /// The number of columns of panel `j`.
    fn panel_width(&self, j: usize) -> usize {
        (self.desc.n - j * self.kernels.nr).min(self.kernels.nr)
    }

    /// The operands of matrix `batch`.
    ///
    /// # Safety
    /// `args` is as for [`MatMulPlan::run`].
    unsafe fn matrix_operands(&self, args: &MatMulArgs, batch: usize) -> MatrixOperands {
        let (d, o) = (&self.desc, Offsets::for_matrix(&self.desc, batch));
        let dynamic = |p: *const u8, offset: usize| p.cast::<f32>().wrapping_add(offset);
        MatrixOperands {
            a: self.a.as_ref().map_or(dynamic(args.a, o.a), |p| p.matrix_at(d, batch)),
            b: self.b.as_ref().map_or(dynamic(args.b, o.b), |p| p.matrix_at(d, batch)),
            c: args.c.cast::<f32>().wrapping_add(o.c),
            addend: dynamic(args.addend, o.addend),
            batch,
            offset: o.c,
            tail: args.tail,
        }
    }

    /// The rectangle of tiles `t0..t1` and `cols` columns from `col` on.
    fn rect(&self, batch: usize, [t0, t1]: [usize; 2], col: usize, cols: usize) -> Rect {
        let (row, end) = (self.tiles.start(t0), self.tiles.start(t1));
        Rect {
            batch,
            row,
            col,
            rows: end - row,
            cols,
        }
    }

    /// Runs the tail, if there is one, on finished panels.
    ///
    /// # Safety
    /// The panels are finished and belong to this thread.
    unsafe fn run_panel_tail(&self, x: &MatrixOperands, tiles: [usize; 2], [p0, p1]: [usize; 2]) {
        let Some(tail) = &x.tail else { return };
        let nr = self.kernels.nr;
        let cols = (p1 * nr).min(self.desc.n) - p0 * nr;
        let rect = self.rect(x.batch, tiles, p0 * nr, cols);
        let result = x.c.wrapping_sub(x.offset).cast();
        // SAFETY: the rectangle is finished.
        unsafe { run_tail(&self.desc, tail, result, x.offset, rect) };
    }
}

/// Chooses when the addend is applied.
fn choose_start(desc: &MatMul) -> Start {
    match desc.addend {
        _ if desc.alpha != 1.0 => Start::After,
        None => Start::Zero,
        Some(_) if desc.beta == 0.0 => Start::Zero,
        Some(Addend { row: 0, col: 1 }) if desc.beta == 1.0 => Start::ColumnBias,
        Some(Addend { row: 1, col: 0 }) if desc.beta == 1.0 => Start::RowBias,
        Some(Addend { row, col: 1 }) if desc.beta == 1.0 && row == desc.c_row => Start::Matrix,
        Some(_) => Start::After,
    }
}

impl TiledProduct for F32MatMulPlan {
    fn desc(&self) -> &MatMul {
        &self.desc
    }

    fn rate(&self) -> usize {
        1
    }

    fn choose_grid(&self, threads: usize, matrices: usize) -> Grid {
        let shape = GridShape {
            tiles: self.tiles,
            mr: self.tiles.start(1).max(1),
            panels: self.panels(),
            nr: self.kernels.nr,
            k: self.desc.k,
            a_packed: self.a.is_some() || self.few_rows == Some(FewRows::ColumnOfRows),
            b_packed: self.b.is_some() || matches!(self.few_rows, Some(FewRows::Rows | FewRows::Integers)),
            // Rows that are read in place should be long.
            chunks_per_thread: match self.few_rows {
                Some(FewRows::Rows | FewRows::ColumnOfRows) => 1,
                _ => 4,
            },
            rate: 1,
        };
        Grid::new(shape, threads, matrices)
    }

    unsafe fn run_part(&self, args: &MatMulArgs, matrix: usize, tiles: [usize; 2], panels: [usize; 2]) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let x = self.matrix_operands(args, matrix);
            if let Some(method) = self.few_rows {
                self.run_few_rows(method, &x, tiles, panels);
                self.run_panel_tail(&x, tiles, panels);
            } else {
                self.run_chunk(&x, tiles, panels);
            }
        }
    }

    fn method(&self) -> String {
        let k = self.kernels;
        let how = match (&self.a, &self.b) {
            (Some(_), _) => "A packed",
            (_, Some(_)) => "B packed",
            _ if self.integers.is_some() => "B packed as integers",
            _ if matches!(self.few_rows, Some(FewRows::Column | FewRows::ColumnOfRows)) => "one column",
            _ if self.few_rows.is_some() => "few rows",
            _ => "dynamic",
        };
        format!("matmul f32 {how} {}x{} {}", k.mr, k.nr, k.isa)
    }
}

impl PackedProduct for F32MatMulPlan {
    fn for_rows(&self, matrix: usize, rows: usize) -> F32MatMulPlan {
        F32MatMulPlan {
            desc: self.desc.single(rows),
            kernels: self.kernels,
            tiles: Tiles::new(rows, self.kernels.mr),
            a: None,
            b: self.b.as_ref().map(|b| b.single(matrix)),
            integers: None,
            start: self.start,
            few_rows: None,
        }
    }
}
