//! bf16 products that read the rows of B where they are: products of few rows or with few product indices, and batches of small
//! ones. See [`lines`](crate::math::pairs::lines). Operands whose rows are not contiguous are copied before, if that takes much
//! less time than the product.

mod copied;

use super::{Offsets, Rect, run_tail};
use crate::math::contract::{MatMul, MatMulArgs, MatMulConstants, MatMulPlan};
use crate::math::pairs::PairKernels;
use crate::math::pairs::lines::{self, LineJob, Lines, SHALLOW, TILE};
use crate::math::scratch::SharedPtr;
use crate::parallel::Pool;
use crate::target::PairUnit;
use copied::{CopiedRows, Factor};

/// The maximum number of product indices: each has an offset.
const DEEPEST: usize = 64 << 10;
/// The maximum number of rows that multiply a line of a deep product.
const FEW_ROWS: usize = 6 * TILE;
/// The maximum number of product indices of a product of more rows, which packing B would not make faster.
const FEW_INDICES: usize = 512;
/// The same for AMX, which multiplies packed operands much faster.
const FEW_INDICES_OF_TILES: usize = 16;
/// The same if the elements of a column are a multiple of [`SET`] bytes apart, and so in one set of the L1 cache.
const FEW_INDICES_OF_A_SET: usize = 64;
const SET: usize = 4096;
/// The maximum number of multiply-adds of a small matrix.
const SMALL: usize = 32 << 10;
/// The number of elements of the result in a chunk, which is still in the L2 cache for the tail.
const CHUNK: usize = 32 << 10;
/// The maximum number of rows in a chunk of a deep product. Elements of them and of the lines are read again from the L2 cache.
const MOST_ROWS: usize = 20 * TILE;
/// The number of multiply-adds in a chunk of small matrices.
const CHUNK_MACS: usize = 200_000;
/// The minimum number of rows or columns that read a copied element, unless there are at most [`TINY`] columns and product indices.
const MANY: usize = 32;
const TINY: usize = 8;
/// Chunks of a row have a multiple of this number of columns.
const COLS: usize = 128;

/// A plan of such a product.
pub(super) struct LinePlan {
    desc: MatMul,
    lines: Lines,
    /// What is copied of A and of B.
    copies: [Option<CopiedRows>; 2],
}

/// How the result is divided.
struct Chunks {
    rows: usize,
    cols: usize,
    /// The number of chunks along the rows and along the columns of a matrix.
    counts: [usize; 2],
    /// The number of matrices in a chunk, which is 1 unless matrices are whole.
    matrices: usize,
}

/// Whether a bf16 product is of this kind.
pub(super) fn is_applicable(kernels: &PairKernels, d: &MatMul, constants: &MatMulConstants) -> bool {
    let is_dynamic = constants.a.is_none() && constants.b.is_none();
    // A column is multiplied as a vector elsewhere, unless it is short.
    let has_lines = (1..=DEEPEST).contains(&d.k) && (d.n > 1 || d.k <= SHALLOW);
    let has_addend = d.addend.is_none_or(|a| a.col <= 1 || d.n == 1);
    if !is_dynamic || !has_lines || !has_addend || !lines::are_available(kernels) || !copies_are_worthwhile(d) {
        return false;
    }
    let macs = d.m.saturating_mul(d.n).saturating_mul(d.k);
    match kernels.unit {
        PairUnit::Tiles => d.m <= TILE || d.k <= FEW_INDICES_OF_TILES || macs <= SMALL,
        _ => d.m <= FEW_ROWS || d.k <= most_indices(d) || macs <= SMALL,
    }
}

/// The maximum number of product indices of a product of many rows.
fn most_indices(d: &MatMul) -> usize {
    match (2 * d.b[0]).is_multiple_of(SET) {
        true => FEW_INDICES_OF_A_SET,
        false => FEW_INDICES,
    }
}

/// Whether rows of A and B that are not contiguous can be copied in little time.
fn copies_are_worthwhile(d: &MatMul) -> bool {
    let [a, b] = [Factor::A, Factor::B].map(|f| CopiedRows::new(d, f));
    let is_tiny = d.n <= TINY && d.k <= TINY;
    let a_fits = a.is_none() || d.n >= MANY || is_tiny;
    let b_fits = b.is_none() || d.k <= FEW_INDICES_OF_A_SET && d.m >= MANY || is_tiny;
    let is_possible = [a, b].iter().flatten().all(CopiedRows::is_possible);
    a_fits && b_fits && is_possible
}

impl LinePlan {
    /// Plans `desc`, for which [`is_applicable`] holds and whose extents were checked.
    pub(super) fn new(desc: &MatMul) -> LinePlan {
        let copies = [Factor::A, Factor::B].map(|f| CopiedRows::new(desc, f));
        let row = if copies[1].is_some() { desc.n } else { desc.b[0] };
        LinePlan {
            lines: Lines::new((0..desc.k).map(|k| k * row).collect()),
            copies,
            desc: desc.clone(),
        }
    }

    fn chunks(&self, threads: usize) -> Chunks {
        let d = &self.desc;
        let macs = d.m.saturating_mul(d.n).saturating_mul(d.k);
        if macs < CHUNK_MACS || threads == 1 && d.m * d.n <= CHUNK {
            return Chunks {
                rows: d.m,
                cols: d.n,
                counts: [1; 2],
                matrices: (CHUNK_MACS / macs).max(1),
            };
        }
        let enough = 4 * threads;
        let (mut rows, mut cols) = (d.m, d.n);
        if d.k > SHALLOW || d.n > CHUNK / TILE {
            rows = rows.min(if d.k > SHALLOW { MOST_ROWS } else { FEW_ROWS });
            cols = (2 * CHUNK / rows)
                .min(cols.div_ceil(enough))
                .next_multiple_of(COLS)
                .min(d.n);
        } else {
            rows = (CHUNK / cols)
                .min(rows.div_ceil(enough))
                .next_multiple_of(TILE)
                .min(d.m);
        }
        Chunks {
            rows,
            cols,
            counts: [d.m.div_ceil(rows), d.n.div_ceil(cols)],
            matrices: 1,
        }
    }

    /// Rows `r0..r1` and columns `c0..c1` of one matrix. `factors` are A and B, or their copies.
    fn job(
        &self,
        (args, factors): (&MatMulArgs, [*const u16; 2]),
        (batch, o): (usize, Offsets),
        [r0, r1]: [usize; 2],
        [c0, c1]: [usize; 2],
    ) -> LineJob<'_> {
        let d = &self.desc;
        let (a, a_row) = match &self.copies[0] {
            Some(copied) => (copied.offset(batch), d.k),
            None => (o.a, d.a[0]),
        };
        let b = self.copies[1].as_ref().map_or(o.b, |copied| copied.offset(batch));
        let addend = d.addend.filter(|_| d.beta != 0.0).map(|s| {
            let col = if d.n == 1 { 0 } else { s.col };
            let first = o.addend + r0 * s.row + c0 * col;
            (args.addend.cast::<u16>().wrapping_add(first), [s.row, col])
        });
        LineJob {
            a: factors[0].wrapping_add(a + r0 * a_row),
            a_row,
            rows: r1 - r0,
            b: factors[1].wrapping_add(b + c0),
            lines: &self.lines,
            cols: c1 - c0,
            c: args.c.cast::<u16>().wrapping_add(o.c + r0 * d.c_row + c0),
            c_row: d.c_row,
            addend,
            alpha: d.alpha as f32,
            beta: d.beta as f32,
            clamp: d.activation.bounds(),
        }
    }

    /// Computes rows `r0..r1` and columns `c0..c1` of one matrix.
    ///
    /// # Safety
    /// `operands` are as for [`MatMulPlan::run`], with A and B or their copies; no other thread writes this part.
    unsafe fn run_part(
        &self,
        operands: (&MatMulArgs, [*const u16; 2]),
        batch: usize,
        [r0, r1]: [usize; 2],
        [c0, c1]: [usize; 2],
    ) {
        let (d, o) = (&self.desc, Offsets::for_matrix(&self.desc, batch));
        let job = self.job(operands, (batch, o), [r0, r1], [c0, c1]);
        // SAFETY: guaranteed by the caller; the part is finished before the tail runs.
        unsafe {
            lines::multiply(&job);
            if let Some(tail) = &operands.0.tail {
                let rect = Rect {
                    batch,
                    row: r0,
                    col: c0,
                    rows: r1 - r0,
                    cols: c1 - c0,
                };
                run_tail(d, tail, operands.0.c, o.c, rect);
            }
        }
    }
}

impl MatMulPlan for LinePlan {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let (d, batch) = (&self.desc, self.desc.batch_size());
        if d.m == 0 || d.n == 0 || batch == 0 {
            return;
        }
        let chunks = self.chunks(pool.threads());
        let per = chunks.counts[0] * chunks.counts[1];
        let given = [args.a, args.b];
        // SAFETY: guaranteed by the caller.
        let copies = [0, 1].map(|i| self.copies[i].as_ref().map(|c| unsafe { c.copy(pool, given[i]) }));
        let factors: [*const u16; 2] =
            [0, 1].map(|i| copies[i].as_ref().map_or(given[i].cast(), |c| c.as_ptr().cast()));
        let operands = (*args, factors);
        let shared = SharedPtr(&operands as *const _ as *mut (MatMulArgs, [*const u16; 2]));
        pool.run((batch * per).div_ceil(chunks.matrices), |i| {
            let part = |i: usize, len: usize, all: usize| [i * len, ((i + 1) * len).min(all)];
            for i in i * chunks.matrices..((i + 1) * chunks.matrices).min(batch * per) {
                let (row, col) = (i % per / chunks.counts[1], i % per % chunks.counts[1]);
                let (rows, cols) = (part(row, chunks.rows, d.m), part(col, chunks.cols, d.n));
                // SAFETY: guaranteed by the caller; the operands outlive the job, and chunks own different parts.
                unsafe {
                    let (args, factors) = &*shared.get();
                    self.run_part((args, *factors), i / per, rows, cols);
                }
            }
        });
    }

    fn describe(&self) -> String {
        format!("matmul bf16 lines {TILE}x{} avx512bf16", lines::COLS)
    }
}
