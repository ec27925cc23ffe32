//! Chunks of a product: some rows of one matrix times some panels.

use super::PairMatMulPlan;
use crate::math::contract::{ColumnAffine, MatMulArgs, TileTail};
use crate::math::matmul::{Offsets, Rect, run_tail, run_tail_on};
use crate::math::pairs::pack::{Source, pack_panel_of, pack_rows, packed_row};
use crate::math::pairs::store::{Destination, StoreJob, applies_affine};
use crate::math::pairs::{COLS, PairBlocks, PairJob, prefetched_part};
use crate::math::scratch::{self, Scratch};

/// The number of columns after which the tail runs.
const TAIL_COLS: usize = 512;
/// The maximum number of elements of whole rows that wait for the tail, which runs best over contiguous rows.
const TAIL_ROWS: usize = 320 << 10;
/// The operands of one matrix of the batch.
pub(super) struct MatrixOperands<'a> {
    a: Source,
    b: Source,
    /// The packed B, if it is constant.
    panels: Option<*const u16>,
    args: &'a MatMulArgs,
    offsets: Offsets,
    batch: usize,
    /// The tail, if blocks apply it before they store their sums.
    affine: Option<ColumnAffine>,
}

/// The rows of A of a chunk, as blocks read them.
struct ChunkRows {
    /// The first row of the chunk.
    first: *const u8,
    /// The stride between rows, in bytes.
    row: usize,
    _packed: Option<Scratch>,
}

impl PairMatMulPlan {
    pub(super) fn matrix_operands<'a>(&'a self, args: &'a MatMulArgs, batch: usize) -> MatrixOperands<'a> {
        let (d, offsets) = (&self.desc, Offsets::for_matrix(&self.desc, batch));
        let a = self.a.as_ref().map_or(args.a, |a| a.bytes().as_ptr());
        MatrixOperands {
            a: self.source(a).skip(offsets.a),
            b: self.source(args.b).skip(offsets.b),
            panels: self.b.as_ref().map(|p| p.pairs_at(d, batch)),
            args,
            batch,
            affine: self.column_affine(args).map(|a| a.part(offsets.c, 0)),
            offsets,
        }
    }

    /// The tail, if blocks can apply it before they store their sums.
    fn column_affine(&self, args: &MatMulArgs) -> Option<ColumnAffine> {
        let d = &self.desc;
        let has_plain_addend = d.addend.is_none_or(|a| d.beta == 0.0 || (d.beta == 1.0 && a.row == 0));
        let applies = applies_affine(&self.kernels, self.is_wide()) && d.alpha == 1.0 && has_plain_addend;
        args.tail?.affine.filter(|_| applies)
    }

    /// Rows `r0..r1` of A, packed if blocks cannot read them in place.
    ///
    /// # Safety
    /// A is valid.
    unsafe fn chunk_rows(&self, x: &MatrixOperands, [r0, r1]: [usize; 2]) -> ChunkRows {
        let (d, size) = (&self.desc, self.kernels.row_element());
        if self.reads_rows_in_place() {
            return ChunkRows {
                first: x.a.skip(r0 * d.a[0]).address(),
                row: size * d.a[0],
                _packed: None,
            };
        }
        let run = self.run();
        let row = packed_row(run * size);
        let mut packed = scratch::take_buffer((r1 - r0) * row / 4);
        let first = packed.as_mut_ptr().cast::<u8>();
        let src = x.a.skip(r0 * d.a[0]);
        // SAFETY: guaranteed by the caller; the buffer has the rows.
        unsafe { pack_rows(&self.kernels, src, d.a, r1 - r0, [d.k, run], (first, row)) };
        ChunkRows {
            first,
            row,
            _packed: Some(packed),
        }
    }

    /// Computes the blocks `t0..t1` of rows and the panels `p0..p1`.
    ///
    /// # Safety
    /// The operands are valid for the descriptor; no other thread writes this chunk's part of C.
    pub(super) unsafe fn run_chunk(&self, x: &MatrixOperands, [t0, t1]: [usize; 2], [p0, p1]: [usize; 2]) {
        let d = &self.desc;
        // SAFETY: guaranteed by the caller; the chunk lies in C.
        unsafe {
            if let (true, Some(tail)) = (self.kernels.are_bytes(), &x.args.tail) {
                return self.run_with_waiting_sums(x, tail, [t0, t1], [p0, p1]);
            }
            let to = Destination::result(x.args.c.wrapping_add(x.offsets.c * d.dtype.size()), d.c_row);
            let rows = self.chunk_rows(x, [t0, t1].map(|t| self.blocks.start(t)));
            self.run_part(&mut self.kernels.begin(), (x, &to), &rows, [t0, t1], [p0, p1]);
        }
    }

    /// [`PairMatMulPlan::run_chunk`] with sums in working memory, from which the tail makes elements of another size.
    ///
    /// # Safety
    /// As for [`PairMatMulPlan::run_chunk`].
    unsafe fn run_with_waiting_sums(
        &self,
        x: &MatrixOperands,
        tail: &TileTail,
        [t0, t1]: [usize; 2],
        [p0, p1]: [usize; 2],
    ) {
        let panels = (p1 - p0).clamp(1, TAIL_COLS / COLS);
        let panels = if p1 - p0 <= 2 * panels { p1 - p0 } else { panels };
        let block = self.blocks.start(1).max(1);
        // Panels that are not packed are packed again for each part.
        let words = x.panels.map_or(usize::MAX, |_| self.panel_len() * (p1 - p0));
        let most = self.kernels.waiting_sums(words);
        let blocks = (most / (panels * COLS * block)).max(1);
        let mut sums = scratch::take_buffer(blocks.min(t1 - t0) * block * panels * COLS);
        let mut kernels = self.kernels.begin();
        for t in (t0..t1).step_by(blocks) {
            let tiles = [t, (t + blocks).min(t1)];
            let [row, end] = tiles.map(|t| self.blocks.start(t));
            // SAFETY: guaranteed by the caller; the buffer holds the sums of a part.
            unsafe {
                let rows = self.chunk_rows(x, [row, end]);
                for p in (p0..p1).step_by(panels) {
                    let part = [p, (p + panels).min(p1)];
                    let cols = (part[1] * COLS).min(self.desc.n) - p * COLS;
                    let to = Destination::waiting_sums(sums.as_mut_ptr(), [row, p * COLS], cols);
                    self.run_part(&mut kernels, (x, &to), &rows, tiles, part);
                    let rect = Rect {
                        batch: x.batch,
                        row,
                        col: p * COLS,
                        rows: end - row,
                        cols,
                    };
                    let first = x.offsets.c + row * self.desc.c_row + p * COLS;
                    run_tail_on(&self.desc, tail, [first, cols], sums.as_mut_ptr().cast(), rect);
                }
            }
        }
    }

    /// Computes some blocks of rows and some panels, and runs the tail on results in C.
    ///
    /// # Safety
    /// As for [`PairMatMulPlan::run_chunk`]; the rows are those of the blocks.
    unsafe fn run_part(
        &self,
        blocks: &mut PairBlocks,
        (x, to): (&MatrixOperands, &Destination),
        rows: &ChunkRows,
        [t0, t1]: [usize; 2],
        [p0, p1]: [usize; 2],
    ) {
        let (d, len) = (&self.desc, self.panel_len());
        let [r0, r1] = [t0, t1].map(|t| self.blocks.start(t));
        let mut packed = x.panels.is_none().then(|| scratch::take_buffer(len / 2));
        let whole = p1 - p0 == self.panels() && (r1 - r0) * d.n <= TAIL_ROWS;
        let tail_cols = if whole { usize::MAX } else { TAIL_COLS };
        let mut tailed = p0;
        for p in p0..p1 {
            // SAFETY: the panel lies in B, or in the buffer; the chunk owns these columns of its rows.
            unsafe {
                let panel = self.panel_address(x, p, packed.as_mut());
                for t in t0..t1 {
                    let block = [self.blocks.start(t), self.blocks.start(t + 1)];
                    let a = rows.first.wrapping_add((block[0] - r0) * rows.row);
                    let last = p + 1 == p1 || x.panels.is_none();
                    let next = prefetched_part(panel, len, t - t0, last);
                    self.run_block(blocks, (x, to), (a, rows.row), block, p, [panel, next]);
                }
                if !self.kernels.are_bytes() && (p + 1 == p1 || (p + 1 - tailed) * COLS >= tail_cols) {
                    self.run_panel_tail(x, [r0, r1], [tailed, p + 1]);
                    tailed = p + 1;
                }
            }
        }
    }

    /// Panel `p` of B, packed into the buffer if it is not packed already.
    ///
    /// # Safety
    /// B is valid, and the buffer has room for a panel.
    unsafe fn panel_address(&self, x: &MatrixOperands, p: usize, packed: Option<&mut Scratch>) -> *const u16 {
        let d = &self.desc;
        let packed: *mut u16 = packed.map_or(std::ptr::null_mut(), |b| b.as_mut_ptr().cast());
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (x.panels, &self.integers) {
                (Some(b), _) => return b.add(p * self.panel_len()),
                (None, Some(integers)) => integers.unpack_pairs(self.kernels.isa, p, self.run(), packed),
                (None, None) => {
                    let src = x.b.skip(p * COLS * d.b[1]);
                    pack_panel_of(src, d.b, self.panel_cols(p), [d.k, self.run()], packed)
                }
            }
        }
        packed
    }

    /// Computes and stores one block.
    ///
    /// # Safety
    /// As for [`PairMatMulPlan::run_chunk`].
    #[inline]
    unsafe fn run_block(
        &self,
        blocks: &mut PairBlocks,
        (x, to): (&MatrixOperands, &Destination),
        (a, row): (*const u8, usize),
        [r0, r1]: [usize; 2],
        p: usize,
        [panel, next]: [*const u16; 2],
    ) {
        let n = r1 - r0;
        let first = if n > self.kernels.rows { n.div_ceil(2) } else { n };
        let job = PairJob {
            a: [a, a.wrapping_add(first * row)],
            rows: [first, n - first],
            a_row: row,
            segments: &[0],
            groups: self.run() / self.kernels.group(),
            b: panel,
            cols: self.panel_cols(p),
            adds: false,
            next,
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            if self.kernels.are_bytes() && self.kernels.writes_exactly(job.cols) {
                return blocks.compute_into(&job, to.sum_rows([r0, p * COLS]));
            }
            let store = self.store_job((x, to), [r0, n], [p * COLS, job.cols]);
            store.prefetch();
            let sums = blocks.compute(&job);
            StoreJob { sums, ..store }.run(&self.kernels);
        }
    }

    /// The job that stores the sums of a block, once they are known: its first row and their number, its first column and their number.
    #[inline]
    fn store_job(
        &self,
        (x, to): (&MatrixOperands, &Destination),
        [r0, rows]: [usize; 2],
        [c0, cols]: [usize; 2],
    ) -> StoreJob {
        let d = &self.desc;
        let addend = d.addend.filter(|_| d.beta != 0.0).map(|s| {
            let first = x.offsets.addend + r0 * s.row + c0 * s.col;
            (Source::new(x.args.addend, self.is_wide()).skip(first), [s.row, s.col])
        });
        StoreJob {
            sums: std::ptr::null(),
            rows,
            cols,
            c: to.at([r0, c0], d.dtype.size()),
            c_row: to.row,
            wide: self.is_wide(),
            addend,
            alpha: d.alpha as f32,
            beta: d.beta as f32,
            clamp: d.activation.bounds(),
            affine: x.affine.map(|a| a.part(r0 * d.c_row + c0, c0)),
        }
    }

    /// Runs the tail, if there is one, on finished panels.
    ///
    /// # Safety
    /// The panels are finished and belong to this thread.
    unsafe fn run_panel_tail(&self, x: &MatrixOperands, [row, end]: [usize; 2], [p0, p1]: [usize; 2]) {
        let Some(tail) = x.args.tail.as_ref().filter(|_| x.affine.is_none()) else {
            return;
        };
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
