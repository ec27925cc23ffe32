//! What products on register tiles share: how they are split into chunks and run.

use super::grid::Grid;
use crate::math::contract::{Constant, MatMul, MatMulArgs, MatMulPlan};
use crate::math::scratch::SharedPtr;
use crate::parallel::Pool;

/// Small matrices with fewer multiply-adds than this in all form one chunk, because handing them out one by one would cost more.
const LEAST_WORK: f64 = 100e3;

/// A product that is computed in chunks of row tiles and column panels.
pub(super) trait TiledProduct: Send + Sync {
    /// What is computed.
    fn desc(&self) -> &MatMul;
    /// The multiply-adds per cycle, relative to f32.
    fn rate(&self) -> usize;
    /// The split for `threads` threads, if there are `matrices` matrices.
    fn choose_grid(&self, threads: usize, matrices: usize) -> Grid;
    /// Computes some row tiles and column panels of one matrix of the batch.
    ///
    /// # Safety
    /// The operands are valid for the descriptor; no other thread writes this part of C.
    unsafe fn run_part(&self, args: &MatMulArgs, matrix: usize, tiles: [usize; 2], panels: [usize; 2]);
    /// A description of the method, for reports.
    fn method(&self) -> String;
}

impl<P: TiledProduct> MatMulPlan for P {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let d = self.desc();
        let batch = d.batch_size();
        if d.m == 0 || d.n == 0 || batch == 0 {
            return;
        }
        let work = d.m as f64 * d.n as f64 * d.k.max(1) as f64 / self.rate() as f64;
        let together = ((LEAST_WORK / work).ceil().min(batch as f64) as usize).max(1);
        let shared = SharedPtr(args as *const MatMulArgs as *mut MatMulArgs);
        let grid = self.choose_grid(pool.threads(), batch);
        grid.run_batch(pool, batch, together, |matrix, tiles, panels| {
            // SAFETY: guaranteed by the caller; `args` outlives the job, and chunks own disjoint parts of C.
            unsafe { self.run_part(&*shared.get(), matrix, tiles, panels) };
        });
    }

    fn describe(&self) -> String {
        self.method()
    }
}

/// The number of bytes of a constant that are packed before the file's pages are released.
const RELEASED: usize = 1 << 20;

/// Releases the pages of a constant piece by piece while it is packed, so that a large matrix never exists twice in memory.
pub(super) struct PageRelease<'a> {
    constant: Constant<'a>,
    /// The first byte that is not released.
    kept: usize,
}

impl<'a> PageRelease<'a> {
    /// For a matrix whose first byte is `start`.
    pub(super) fn new(constant: Constant<'a>, start: usize) -> PageRelease<'a> {
        PageRelease { constant, kept: start }
    }

    /// Declares that the bytes before `end` were packed.
    pub(super) fn advance(&mut self, end: usize) {
        if end - self.kept >= RELEASED {
            self.constant.release(self.kept..end);
            self.kept = end;
        }
    }
}
