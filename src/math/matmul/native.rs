//! f32 products on register tiles.
//!
//! The loops are those of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): blocks of
//! product indices, packed panels of B, packed tiles of A, and the register tile inside. A constant operand is packed
//! once, when the plan is made. A dynamic operand is packed per block if it is used often enough to pay; otherwise it
//! is read in place.

use super::grid::{self, Grid, GridShape};
use super::packed::Packed;
use super::{Offsets, Rect, dot, run_tail};
use crate::math::contract::{Addend, Constant, MatMul, MatMulArgs, MatMulConstants, MatMulPlan, TileTail};
use crate::math::pack::pack_panel;
use crate::math::scratch::{self, SharedPtr};
use crate::math::tile::{Init, Kernels, ONE_SEGMENT, TileJob, Tiles};
use crate::parallel::Pool;
use crate::target::Isa;

/// A plan of an f32 product.
pub(crate) struct F32MatMulPlan {
    desc: MatMul,
    kernels: &'static Kernels,
    tiles: Tiles,
    a: Option<Packed>,
    b: Option<Packed>,
    start: Start,
    /// The [`dot`] kernel to use instead of tiles.
    thin: Option<Thin>,
}

/// When `alpha`, `beta` and the addend are applied.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Start {
    Zero,
    ColumnBias,
    RowBias,
    /// After the product, in a pass over the tile.
    After,
}

/// The methods for few rows.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Thin {
    /// The columns of B are contiguous.
    Dots,
    /// The rows of B are contiguous.
    Rows,
    /// B is one contiguous column, and the rows of A are contiguous.
    Column,
}

/// The minimum number of elements of B for which reading it along its rows pays.
const LARGE: usize = 64 * 1024;

/// The number of bytes of a constant that are packed before the file's pages are released.
const RELEASED: usize = 1 << 20;

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

/// The number of columns after which the tail runs. Together with the rows of a slab they are still in the L2 cache.
const TAIL_COLS: usize = 256;
/// The maximum number of elements of whole rows that wait for the tail, which runs best over contiguous rows.
const TAIL_ROWS: usize = 160 << 10;

impl F32MatMulPlan {
    /// Plans `desc`, whose extents were already checked. Constants span at least the extents.
    pub(crate) fn new(isa: Isa, desc: &MatMul, constants: MatMulConstants) -> F32MatMulPlan {
        let kernels = Kernels::for_isa(isa);
        let tiles = Tiles::new(desc.m, kernels.mr);
        let mut plan = F32MatMulPlan {
            desc: desc.clone(),
            kernels,
            tiles,
            a: None,
            b: None,
            start: choose_start(desc),
            thin: None,
        };
        if let Some(a) = constants.a {
            plan.a = Some(plan.pack_a(a));
        } else if let Some(b) = constants.b {
            plan.b = Some(plan.pack_b(b));
        } else {
            plan.thin = match desc.b {
                _ if desc.a[1] != 1 || desc.k == 0 => None,
                // The stride between columns means nothing if there is only one.
                [1, c] if (c != 1 || desc.n == 1) && desc.m <= dot::ROWS => Some(Thin::Dots),
                [1, _] if desc.n == 1 && desc.c_row == 1 => Some(Thin::Column),
                [_, 1] if desc.m <= dot::AXPY_ROWS && desc.n.saturating_mul(desc.k) > LARGE => Some(Thin::Rows),
                _ => None,
            };
        }
        plan
    }

    fn pack_a(&self, constant: Constant) -> Packed {
        let (d, t) = (&self.desc, self.tiles);
        let strides: Vec<usize> = d.batch.iter().map(|b| b.a).collect();
        let key = [1, d.m, d.k, d.a[0], d.a[1], self.kernels.mr];
        Packed::new(d, &strides, d.m * d.k, constant, &key, |a, offset, dst| {
            for i in 0..t.count() {
                let (r0, rows) = (t.start(i), t.start(i + 1) - t.start(i));
                // SAFETY: the constant holds the extents; the tile lies in the item.
                unsafe {
                    let src = a.as_ptr().add(offset + r0 * d.a[0]);
                    pack_panel(src, d.a[0], d.a[1], rows, rows, d.k, dst.add(r0 * d.k));
                }
            }
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
                // Contiguous lines are released piece by piece, so that a large matrix never exists twice in memory.
                let lines = d.b == [1, d.k];
                let (mut kept, start) = (0, 4 * offset);
                for j in 0..self.panels() {
                    // SAFETY: the constant holds the extents; the panel lies in the item.
                    unsafe {
                        let src = b.as_ptr().add(offset + j * nr * d.b[1]);
                        pack_panel(src, d.b[1], d.b[0], self.panel_width(j), nr, d.k, dst.add(j * nr * d.k));
                    }
                    let read = 4 * (j + 1) * nr * d.k;
                    if lines && read - kept >= RELEASED {
                        constant.release(start + kept..start + read);
                        kept = read;
                    }
                }
            },
        )
    }

    fn panels(&self) -> usize {
        self.desc.n.div_ceil(self.kernels.nr)
    }

    /// The number of columns of panel `j`.
    fn panel_width(&self, j: usize) -> usize {
        (self.desc.n - j * self.kernels.nr).min(self.kernels.nr)
    }

    /// The split for `threads` threads.
    fn choose_grid(&self, threads: usize) -> Grid {
        let shape = GridShape {
            tiles: self.tiles,
            mr: self.tiles.start(1).max(1),
            panels: self.panels(),
            nr: self.kernels.nr,
            k: self.desc.k,
            a_packed: self.a.is_some(),
            b_packed: self.b.is_some() || self.thin == Some(Thin::Rows),
            // Rows of B that are read in place should be long.
            chunks_per_thread: if self.thin == Some(Thin::Rows) { 1 } else { 4 },
        };
        Grid::new(shape, threads, self.desc.batch_size())
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

    /// Computes the tiles and panels of one chunk.
    ///
    /// # Safety
    /// The operands are valid for the descriptor; no other thread writes this chunk's part of C.
    unsafe fn run_chunk(&self, x: &MatrixOperands, [t0, t1]: [usize; 2], [p0, p1]: [usize; 2]) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let (m0, m1) = (self.tiles.start(t0), self.tiles.start(t1));
        // Contiguous rows of A can be read in place, unless their stride is a multiple of 2 KiB: then they share a few
        // sets of the L1 cache.
        let enough = match d.a[1] {
            1 if d.a[0].is_multiple_of(512) => 2,
            1 => 16,
            _ => 4,
        };
        let pack_a = self.a.is_none() && m1 - m0 >= 4 && p1 - p0 >= enough;
        let pack_b = self.b.is_none() && (t1 - t0 >= 2 || d.b[1] != 1);
        let most = if t1 - t0 == 1 && !pack_a && !pack_b {
            d.k.max(1)
        } else if self.b.is_some() {
            grid::KC_PACKED
        } else {
            grid::KC
        };
        let kc = grid::block_size(d.k, most);
        let mut a_buf = scratch::take_buffer(if pack_a { (m1 - m0) * kc } else { 0 });
        // A partial last panel is always packed because tiles read whole vectors of B.
        let pack_last = self.b.is_none() && !pack_b && self.panel_width(p1 - 1) < nr;
        let packed_panels = if pack_b { p1 - p0 } else { pack_last as usize };
        let mut b_buf = scratch::take_buffer(packed_panels * nr * kc);
        let mut k0 = 0;
        loop {
            let k1 = (k0 + kc).min(d.k);
            // SAFETY: the buffers hold a block; the operands are valid for it.
            unsafe {
                if pack_a {
                    for t in t0..t1 {
                        let (r0, rows) = (self.tiles.start(t), self.tiles.start(t + 1) - self.tiles.start(t));
                        let dst = a_buf.as_mut_ptr().add((r0 - m0) * kc);
                        let src = x.a.add(r0 * d.a[0] + k0 * d.a[1]);
                        pack_panel(src, d.a[0], d.a[1], rows, rows, k1 - k0, dst);
                    }
                }
                for i in 0..packed_panels {
                    let j = p1 - packed_panels + i;
                    let src = x.b.add(k0 * d.b[0] + j * nr * d.b[1]);
                    let dst = b_buf.as_mut_ptr().add(i * nr * kc);
                    pack_panel(src, d.b[1], d.b[0], self.panel_width(j), nr, k1 - k0, dst);
                }
                let block = ProductBlock {
                    k0,
                    k1,
                    kc,
                    m0,
                    a: pack_a.then_some(a_buf.as_ptr()),
                    b: b_buf.as_ptr(),
                    b_first: p1 - packed_panels,
                };
                self.run_block(x, &block, [t0, t1], [p0, p1]);
            }
            k0 = k1;
            if k0 >= d.k {
                break;
            }
        }
    }

    /// Multiplies one block of product indices.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_chunk`]; the block's packed parts are filled.
    unsafe fn run_block(&self, x: &MatrixOperands, k: &ProductBlock, [t0, t1]: [usize; 2], [p0, p1]: [usize; 2]) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let last = k.k1 >= d.k;
        let (mut j, mut tailed) = (p0, p0);
        let rows = self.tiles.start(t1) - self.tiles.start(t0);
        let whole = p1 - p0 == self.panels() && rows * d.n <= TAIL_ROWS;
        let tail_cols = if whole { usize::MAX } else { TAIL_COLS };
        while j < p1 {
            let direct_b = self.b.is_none() && j < k.b_first;
            // With a single short tile, process two panels at once, so that there are enough independent sums.
            let rows = self.tiles.start(t0 + 1) - self.tiles.start(t0);
            let pair = t1 - t0 == 1 && rows <= self.kernels.mr_wide && j + 1 < p1 && (!direct_b || j + 1 < k.b_first);
            let cols = if pair {
                nr + self.panel_width(j + 1)
            } else {
                self.panel_width(j)
            };
            let halves = if pair { 8 } else { self.kernels.half_vectors(cols) };
            // SAFETY: each source is valid for the block.
            let (b, b_k, b_panel) = unsafe {
                match &self.b {
                    Some(_) => (x.b.add(j * nr * d.k + k.k0 * nr), nr, nr * d.k),
                    None if direct_b => (x.b.add(k.k0 * d.b[0] + j * nr), d.b[0], nr),
                    None => (k.b.add((j - k.b_first) * nr * k.kc), nr, nr * k.kc),
                }
            };
            for t in t0..t1 {
                let (r0, rows) = (self.tiles.start(t), self.tiles.start(t + 1) - self.tiles.start(t));
                // SAFETY: as above.
                let (a, a_row, a_k) = unsafe {
                    match (&self.a, k.a) {
                        (Some(_), _) => (x.a.add(r0 * d.k + k.k0 * rows), 1, rows),
                        (None, Some(a)) => (a.add((r0 - k.m0) * k.kc), 1, rows),
                        (None, None) => (x.a.add(r0 * d.a[0] + k.k0 * d.a[1]), d.a[0], d.a[1]),
                    }
                };
                let (init, bias) = self.tile_init(x, k.k0, r0, j * nr);
                let job = TileJob {
                    a,
                    a_row,
                    a_k,
                    segments: ONE_SEGMENT.as_ptr(),
                    segment_count: 1,
                    run: k.k1 - k.k0,
                    b,
                    b_k,
                    b_panel,
                    c: x.c.wrapping_add(r0 * d.c_row + j * nr),
                    c_row: d.c_row,
                    cols,
                    init,
                    bias,
                    clamp: if last && self.start != Start::After {
                        d.activation.bounds()
                    } else {
                        None
                    },
                };
                // SAFETY: the job describes valid parts of the operands; the machine has the kernels' level.
                unsafe { self.kernels.tile_kernel(rows, halves, a_row == 1)(&job) };
            }
            if last && self.start == Start::After {
                let (row, end) = (self.tiles.start(t0), self.tiles.start(t1));
                let rect = Rect {
                    batch: x.batch,
                    row,
                    col: j * nr,
                    rows: end - row,
                    cols,
                };
                // SAFETY: the chunk owns the rectangle.
                unsafe { add_after(d, x, rect) };
            }
            j += 1 + pair as usize;
            if last && (j >= p1 || (j - tailed) * nr >= tail_cols) {
                // SAFETY: these panels are finished and belong to this chunk.
                unsafe { self.run_panel_tail(x, [t0, t1], [tailed, j.min(p1)]) };
                tailed = j;
            }
        }
    }

    fn tile_init(&self, x: &MatrixOperands, k0: usize, row: usize, col: usize) -> (Init, *const f32) {
        match self.start {
            _ if k0 > 0 => (Init::Output, std::ptr::null()),
            Start::Zero | Start::After => (Init::Zero, std::ptr::null()),
            Start::ColumnBias => (Init::Bias, x.addend.wrapping_add(col)),
            Start::RowBias => (Init::RowBias, x.addend.wrapping_add(row)),
        }
    }
}

/// One block of product indices, and its packed parts.
struct ProductBlock {
    k0: usize,
    k1: usize,
    kc: usize,
    m0: usize,
    a: Option<*const f32>,
    b: *const f32,
    /// The index of the first panel in `b`.
    b_first: usize,
}

/// Chooses when the addend is applied.
fn choose_start(desc: &MatMul) -> Start {
    match desc.addend {
        _ if desc.alpha != 1.0 => Start::After,
        None => Start::Zero,
        Some(_) if desc.beta == 0.0 => Start::Zero,
        Some(Addend { row: 0, col: 1 }) if desc.beta == 1.0 => Start::ColumnBias,
        Some(Addend { row: 1, col: 0 }) if desc.beta == 1.0 => Start::RowBias,
        Some(_) => Start::After,
    }
}

/// `c = activation(alpha * c + beta * addend)` on a rectangle.
///
/// # Safety
/// The operands are valid; nothing else uses the rectangle.
unsafe fn add_after(d: &MatMul, x: &MatrixOperands, r: Rect) {
    let (alpha, beta) = (d.alpha as f32, d.beta as f32);
    let addend = d.addend.filter(|_| d.beta != 0.0);
    let (lo, hi) = d.activation.bounds().unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
    for i in r.row..r.row + r.rows {
        for j in r.col..r.col + r.cols {
            // SAFETY: the indices lie in the rectangle.
            unsafe {
                let c = x.c.add(i * d.c_row + j);
                let mut y = alpha * *c;
                if let Some(s) = addend {
                    y += beta * *x.addend.add(i * s.row + j * s.col);
                }
                y = if lo > y { lo } else { y };
                *c = if hi < y { hi } else { y };
            }
        }
    }
}

impl MatMulPlan for F32MatMulPlan {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let d = &self.desc;
        if d.m == 0 || d.n == 0 || d.batch_size() == 0 {
            return;
        }
        let grid = self.choose_grid(pool.threads());
        let (per, batch) = (grid.chunks(), d.batch_size());
        // Several small matrices form one chunk.
        let macs = d.m as f64 * d.n as f64 * d.k.max(1) as f64;
        let together = if per > 1 {
            1
        } else {
            (100e3 / macs).ceil().min(batch as f64) as usize
        }
        .max(1);
        let shared = SharedPtr(args as *const MatMulArgs as *mut MatMulArgs);
        pool.run((batch * per).div_ceil(together), |i| {
            // SAFETY: `args` outlives the job and is only read.
            let args = unsafe { &*shared.get() };
            for i in i * together..((i + 1) * together).min(batch * per) {
                let (tiles, panels) = grid.chunk(i % per);
                // SAFETY: guaranteed by the caller; chunks own disjoint parts of C.
                unsafe {
                    let x = self.matrix_operands(args, i / per);
                    if let Some(thin) = self.thin {
                        self.thin_chunk(thin, &x, tiles, panels);
                        self.run_panel_tail(&x, tiles, panels);
                    } else {
                        self.run_chunk(&x, tiles, panels);
                    }
                }
            }
        });
    }

    fn describe(&self) -> String {
        let k = self.kernels;
        let how = match (&self.a, &self.b) {
            (Some(_), _) => "A packed",
            (_, Some(_)) => "B packed",
            _ if self.thin == Some(Thin::Column) => "one column",
            _ if self.thin.is_some() => "few rows",
            _ => "dynamic",
        };
        format!("matmul f32 {how} {}x{} {}", k.mr, k.nr, k.isa)
    }
}

impl F32MatMulPlan {
    /// Computes the columns of `panels` for a product with few rows, or the rows of `tiles` for one with one column.
    ///
    /// # Safety
    /// As for [`F32MatMulPlan::run_chunk`].
    unsafe fn thin_chunk(&self, thin: Thin, x: &MatrixOperands, [t0, t1]: [usize; 2], [p0, p1]: [usize; 2]) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let (col, end) = (p0 * nr, (p1 * nr).min(d.n));
        let [row, last] = match thin {
            Thin::Column => [self.tiles.start(t0), self.tiles.start(t1)],
            _ => [0, d.m],
        };
        let few_rows = dot::DotJob {
            a: x.a,
            a_row: d.a[0],
            rows: d.m,
            b: x.b.wrapping_add(col * d.b[1]),
            b_col: if thin == Thin::Rows { d.b[0] } else { d.b[1] },
            cols: end - col,
            k: d.k,
            c: x.c.wrapping_add(col),
            c_row: d.c_row,
        };
        // One column is the transposed product's only row.
        let one_column = dot::DotJob {
            a: x.b,
            a_row: 0,
            rows: 1,
            b: x.a.wrapping_add(row * d.a[0]),
            b_col: d.a[0],
            cols: last - row,
            c: x.c.wrapping_add(row),
            ..few_rows
        };
        let rect = Rect {
            batch: x.batch,
            row,
            col,
            rows: last - row,
            cols: end - col,
        };
        // SAFETY: the operands are valid for these rows and columns; the machine has the level.
        unsafe {
            match thin {
                Thin::Dots => dot::kernel(self.kernels.isa)(&few_rows),
                Thin::Rows => dot::axpy(self.kernels.isa)(&few_rows),
                Thin::Column => dot::kernel(self.kernels.isa)(&one_column),
            }
            add_after(d, x, rect);
        }
    }

    /// Runs the tail, if there is one, on finished panels.
    ///
    /// # Safety
    /// The panels are finished and belong to this thread.
    unsafe fn run_panel_tail(&self, x: &MatrixOperands, [t0, t1]: [usize; 2], [p0, p1]: [usize; 2]) {
        let Some(tail) = &x.tail else { return };
        let nr = self.kernels.nr;
        let (row, end) = (self.tiles.start(t0), self.tiles.start(t1));
        let (col, cols) = (p0 * nr, (p1 * nr).min(self.desc.n) - p0 * nr);
        let rect = Rect {
            batch: x.batch,
            row,
            col,
            rows: end - row,
            cols,
        };
        let result = x.c.wrapping_sub(x.offset).cast();
        // SAFETY: the rectangle is finished.
        unsafe { run_tail(&self.desc, tail, result, x.offset, rect) };
    }
}
