//! bf16 products, and f32 products with operands that are rounded to bf16.
//!
//! Sums are f32. The blocks are those of [`pairs`](crate::math::pairs). A panel of B is read once for all rows of a chunk,
//! which stay in the L2 cache. A constant B is packed when the plan is made, in 16 bits; a dynamic one in every chunk. Rows
//! of A are read in place where they are bf16, contiguous and aligned.

use super::grid::{Grid, GridShape};
use super::integers::{self, PackedIntegers};
use super::packed::Packed;
use super::{Offsets, Rect, run_tail};
use crate::math::contract::{Constant, MatMul, MatMulArgs, MatMulConstants, MatMulPlan};
use crate::math::pairs::pack::{Source, pack_pairs, pack_row, packed_row};
use crate::math::pairs::store::StoreJob;
use crate::math::pairs::{COLS, PairBlocks, PairJob, PairKernels, padded_run, prefetched_part};
use crate::math::scratch::{self, Scratch, SharedPtr};
use crate::math::tile::Tiles;
use crate::parallel::Pool;
use crate::target::Isa;
use crate::tensor::AlignedBytes;
use crate::types::DType;
use std::sync::Arc;

/// The number of columns after which the tail runs.
const TAIL_COLS: usize = 512;
/// The maximum number of elements of whole rows that wait for the tail, which runs best over contiguous rows.
const TAIL_ROWS: usize = 320 << 10;
/// The number of bytes of a constant that are packed before the file's pages are released.
const RELEASED: usize = 1 << 20;

/// A plan of such a product.
pub(crate) struct Bf16MatMulPlan {
    desc: MatMul,
    kernels: PairKernels,
    /// Pairs of tiles: the rows of one block.
    blocks: Tiles,
    a: Option<Arc<AlignedBytes>>,
    b: Option<Packed>,
    /// B, if it is packed as integers. Each chunk unpacks the panels that it multiplies.
    integers: Option<PackedIntegers>,
}

/// The operands of one matrix of the batch.
struct MatrixOperands<'a> {
    a: Source,
    b: Source,
    /// The packed B, if it is constant.
    panels: Option<*const u16>,
    args: &'a MatMulArgs,
    offsets: Offsets,
    batch: usize,
}

/// The rows of A of a chunk, as blocks read them.
struct ChunkRows {
    /// The first row of the chunk.
    first: *const u8,
    /// The stride between rows, in bytes.
    row: usize,
    _packed: Scratch,
}

impl Bf16MatMulPlan {
    /// Plans `desc`, whose extents were already checked. Its dtype is bf16 or f32.
    pub(crate) fn new(kernels: PairKernels, desc: &MatMul, constants: MatMulConstants) -> Bf16MatMulPlan {
        let mut plan = Bf16MatMulPlan {
            desc: desc.clone(),
            kernels,
            blocks: Tiles::new(desc.m, 2 * kernels.rows),
            a: None,
            b: None,
            integers: None,
        };
        match (constants.a, constants.b) {
            (Some(a), _) => plan.a = Some(a.aligned_bytes()),
            (None, Some(b)) => plan.b = Some(plan.pack_constant(b)),
            (None, None) => {}
        }
        plan
    }

    /// Plans `desc` with a B of integers. `None` if the kernels or the form of B do not fit, and for few rows, for which
    /// unpacking would take longer than multiplying.
    pub(crate) fn with_integers(
        kernels: PairKernels,
        desc: &MatMul,
        constants: MatMulConstants,
    ) -> Option<Bf16MatMulPlan> {
        // Other instruction sets pack integers in narrower panels.
        let fits = constants.a.is_none() && kernels.isa == Isa::Avx512 && kernels.are_faster_than_f32();
        let b = constants.b.filter(|_| fits && desc.m > integers::ROWS)?;
        let packed = PackedIntegers::new(desc, desc.quantized?, COLS, b)?;
        let mut plan = Bf16MatMulPlan::new(kernels, desc, MatMulConstants::default());
        plan.integers = Some(packed);
        Some(plan)
    }

    fn is_wide(&self) -> bool {
        self.desc.dtype == DType::F32
    }

    fn panels(&self) -> usize {
        self.desc.n.div_ceil(COLS)
    }

    /// The number of columns of panel `j`.
    fn panel_cols(&self, j: usize) -> usize {
        (self.desc.n - j * COLS).min(COLS)
    }

    /// The number of elements in a packed panel.
    fn panel_len(&self) -> usize {
        padded_run(self.desc.k) * COLS
    }

    fn pack_constant(&self, constant: Constant) -> Packed {
        let d = &self.desc;
        let strides: Vec<usize> = d.batch.iter().map(|b| b.b).collect();
        let key = [7, d.n, d.k, d.b[0], d.b[1], self.is_wide() as usize];
        let item = self.panels() * self.panel_len();
        let size = d.dtype.size();
        Packed::in_pairs(d, &strides, item, constant, &key, |b, offset, dst| {
            // Contiguous lines are released piece by piece, so that a large matrix never exists twice in memory.
            let lines = d.b == [1, d.k];
            let (mut kept, start) = (0, size * offset);
            for j in 0..self.panels() {
                // SAFETY: the constant holds the extents; the panel lies in the item.
                unsafe {
                    let src = Source::new(b, self.is_wide()).skip(offset + j * COLS * d.b[1]);
                    pack_pairs(src, d.b, self.panel_cols(j), d.k, dst.add(j * self.panel_len()));
                }
                let read = size * (j + 1) * COLS * d.k;
                if lines && read - kept >= RELEASED {
                    constant.release(start + kept..start + read);
                    kept = read;
                }
            }
        })
    }

    /// The split for `threads` threads.
    fn choose_grid(&self, threads: usize) -> Grid {
        let shape = GridShape {
            tiles: self.blocks,
            mr: self.blocks.start(1).max(1),
            panels: self.panels(),
            nr: COLS,
            k: self.desc.k,
            a_packed: self.a.is_some() && self.reads_rows_in_place(),
            b_packed: self.b.is_some(),
            chunks_per_thread: 4,
            rate: self.kernels.rate(),
        };
        Grid::new(shape, threads, self.desc.batch_size())
    }

    /// The number of small matrices that form one chunk.
    fn matrices_per_chunk(&self) -> usize {
        let d = &self.desc;
        let macs = d.m as f64 * d.n as f64 * d.k.max(1) as f64 / self.kernels.rate() as f64;
        ((100e3 / macs).ceil().min(d.batch_size() as f64) as usize).max(1)
    }

    /// Whether blocks can read rows of A where they are. AMX reads misaligned rows at a third of the speed.
    fn reads_rows_in_place(&self) -> bool {
        let d = &self.desc;
        let aligned = |n: usize| n.is_multiple_of(32);
        !self.is_wide()
            && !self.kernels.widens_rows()
            && d.a[1] == 1
            && d.k == padded_run(d.k)
            && (aligned(d.a[0]) || d.m == 1)
            && d.batch.iter().all(|b| aligned(b.a))
    }

    fn matrix_operands<'a>(&'a self, args: &'a MatMulArgs, batch: usize) -> MatrixOperands<'a> {
        let (d, offsets) = (&self.desc, Offsets::for_matrix(&self.desc, batch));
        let a = self.a.as_ref().map_or(args.a, |a| a.bytes().as_ptr());
        MatrixOperands {
            a: Source::new(a, self.is_wide()).skip(offsets.a),
            b: Source::new(args.b, self.is_wide()).skip(offsets.b),
            panels: self.b.as_ref().map(|p| p.pairs_at(d, batch)),
            args,
            offsets,
            batch,
        }
    }

    /// Rows `r0..r1` of A, packed if blocks cannot read them in place.
    ///
    /// # Safety
    /// A is valid.
    unsafe fn chunk_rows(&self, x: &MatrixOperands, [r0, r1]: [usize; 2]) -> ChunkRows {
        let (d, size) = (&self.desc, self.kernels.row_element());
        if let Source::Narrow(p) = x.a
            && self.reads_rows_in_place()
        {
            return ChunkRows {
                first: p.wrapping_add(r0 * d.a[0]).cast(),
                row: 2 * d.a[0],
                _packed: scratch::take_buffer(0),
            };
        }
        let run = padded_run(d.k);
        let row = packed_row(run) * size;
        let mut packed = scratch::take_buffer((r1 - r0) * row / 4);
        let first = packed.as_mut_ptr().cast::<u8>();
        for r in r0..r1 {
            // SAFETY: guaranteed by the caller; the buffer has the rows.
            unsafe {
                let dst = first.add((r - r0) * row);
                pack_row(&self.kernels, x.a.skip(r * d.a[0]), d.a[1], d.k, run, dst);
            }
        }
        ChunkRows {
            first,
            row,
            _packed: packed,
        }
    }

    /// Computes the blocks `t0..t1` of rows and the panels `p0..p1`.
    ///
    /// # Safety
    /// The operands are valid for the descriptor; no other thread writes this chunk's part of C.
    unsafe fn run_chunk(&self, x: &MatrixOperands, [t0, t1]: [usize; 2], [p0, p1]: [usize; 2]) {
        let (d, len) = (&self.desc, self.panel_len());
        let [r0, r1] = [t0, t1].map(|t| self.blocks.start(t));
        // SAFETY: guaranteed by the caller.
        let rows = unsafe { self.chunk_rows(x, [r0, r1]) };
        let mut packed = scratch::take_buffer(if x.panels.is_some() { 0 } else { len / 2 });
        let mut blocks = self.kernels.begin();
        let whole = p1 - p0 == self.panels() && (r1 - r0) * d.n <= TAIL_ROWS;
        let tail_cols = if whole { usize::MAX } else { TAIL_COLS };
        let mut tailed = p0;
        for p in p0..p1 {
            // SAFETY: the panel lies in B, or in the buffer; the chunk owns these columns of its rows.
            unsafe {
                let panel = match (x.panels, &self.integers) {
                    (Some(b), _) => b.add(p * len),
                    (None, Some(integers)) => {
                        integers.unpack_pairs(self.kernels.isa, p, packed.as_mut_ptr().cast());
                        packed.as_ptr().cast()
                    }
                    (None, None) => {
                        let src = x.b.skip(p * COLS * d.b[1]);
                        pack_pairs(src, d.b, self.panel_cols(p), d.k, packed.as_mut_ptr().cast());
                        packed.as_ptr().cast()
                    }
                };
                for t in t0..t1 {
                    let block = [self.blocks.start(t), self.blocks.start(t + 1)];
                    let a = rows.first.wrapping_add((block[0] - r0) * rows.row);
                    let last = p + 1 == p1 || x.panels.is_none();
                    let next = prefetched_part(panel, len, t - t0, last);
                    self.run_block(&mut blocks, x, (a, rows.row), block, p, [panel, next]);
                }
                if p + 1 == p1 || (p + 1 - tailed) * COLS >= tail_cols {
                    self.run_panel_tail(x, [r0, r1], [tailed, p + 1]);
                    tailed = p + 1;
                }
            }
        }
    }

    /// Computes and stores one block.
    ///
    /// # Safety
    /// As for [`Bf16MatMulPlan::run_chunk`].
    #[inline]
    unsafe fn run_block(
        &self,
        blocks: &mut PairBlocks,
        x: &MatrixOperands,
        (a, row): (*const u8, usize),
        [r0, r1]: [usize; 2],
        p: usize,
        [panel, next]: [*const u16; 2],
    ) {
        let (d, n) = (&self.desc, r1 - r0);
        let first = if n > self.kernels.rows { n.div_ceil(2) } else { n };
        let job = PairJob {
            a: [a, a.wrapping_add(first * row)],
            rows: [first, n - first],
            a_row: row / self.kernels.row_element(),
            segments: &[0],
            run: padded_run(d.k),
            b: panel,
            cols: self.panel_cols(p),
            next,
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            let sums = blocks.compute(&job);
            self.store_job(x, sums, [r0, n], [p * COLS, job.cols])
                .run(&self.kernels);
        }
    }

    /// The job that stores the sums of a block: its first row and their number, its first column and their number.
    #[inline]
    fn store_job(
        &self,
        x: &MatrixOperands,
        sums: *const f32,
        [r0, rows]: [usize; 2],
        [c0, cols]: [usize; 2],
    ) -> StoreJob {
        let d = &self.desc;
        let first = r0 * d.c_row + c0 + x.offsets.c;
        let addend = d.addend.filter(|_| d.beta != 0.0).map(|s| {
            let first = x.offsets.addend + r0 * s.row + c0 * s.col;
            (Source::new(x.args.addend, self.is_wide()).skip(first), [s.row, s.col])
        });
        StoreJob {
            sums,
            rows,
            cols,
            c: x.args.c.wrapping_add(first * d.dtype.size()),
            c_row: d.c_row,
            wide: self.is_wide(),
            addend,
            alpha: d.alpha as f32,
            beta: d.beta as f32,
            clamp: d.activation.bounds(),
        }
    }

    /// Runs the tail, if there is one, on finished panels.
    ///
    /// # Safety
    /// The panels are finished and belong to this thread.
    unsafe fn run_panel_tail(&self, x: &MatrixOperands, [row, end]: [usize; 2], [p0, p1]: [usize; 2]) {
        let Some(tail) = &x.args.tail else { return };
        let rect = Rect {
            batch: x.batch,
            row,
            col: p0 * COLS,
            rows: end - row,
            cols: (p1 * COLS).min(self.desc.n) - p0 * COLS,
        };
        // SAFETY: the rectangle is finished.
        unsafe { run_tail(&self.desc, tail, x.args.c, x.offsets.c, rect) };
    }
}

impl MatMulPlan for Bf16MatMulPlan {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let d = &self.desc;
        if d.m == 0 || d.n == 0 || d.batch_size() == 0 {
            return;
        }
        let grid = self.choose_grid(pool.threads());
        let shared = SharedPtr(args as *const MatMulArgs as *mut MatMulArgs);
        grid.run_batch(
            pool,
            d.batch_size(),
            self.matrices_per_chunk(),
            |matrix, tiles, panels| {
                // SAFETY: guaranteed by the caller; `args` outlives the job, and chunks own disjoint parts of C.
                unsafe { self.run_chunk(&self.matrix_operands(&*shared.get(), matrix), tiles, panels) };
            },
        );
    }

    fn describe(&self) -> String {
        let how = match (&self.a, &self.b) {
            (Some(_), _) => "A constant",
            (_, Some(_)) => "B packed",
            _ if self.integers.is_some() => "B packed as integers",
            _ => "dynamic",
        };
        let operands = if self.is_wide() { "f32 in bf16" } else { "bf16" };
        let k = &self.kernels;
        format!("matmul {operands} {how} {}x{COLS} {}", 2 * k.rows, k)
    }
}
