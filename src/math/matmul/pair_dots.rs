//! bf16 products of a few rows with contiguous columns, as in the product with a transposed matrix: dot products without packing. See
//! [`dots`](crate::math::pairs::dots).

use super::{Offsets, Rect, run_tail};
use crate::math::contract::{MatMul, MatMulArgs, MatMulConstants, MatMulPlan};
use crate::math::pairs::COLS;
use crate::math::pairs::PairKernels;
use crate::math::pairs::dots::{self, DotJob};
use crate::math::pairs::pack::Source;
use crate::math::pairs::store::StoreJob;
use crate::math::scratch::SharedPtr;
use crate::parallel::Pool;

/// The maximum number of rows: more would read a column so often that packing it pays.
const ROWS: usize = 4;
/// The minimum number of product indices: half of a vector.
const LEAST: usize = 16;
/// The number of multiply-adds in a chunk.
const CHUNK_MACS: usize = 200_000;

/// A plan of such a product.
pub(super) struct PairDotsPlan {
    desc: MatMul,
    kernels: PairKernels,
}

/// Whether a bf16 product is of this kind.
pub(super) fn is_applicable(kernels: &PairKernels, d: &MatMul, constants: &MatMulConstants) -> bool {
    let is_dynamic = constants.a.is_none() && constants.b.is_none();
    let is_contiguous = d.a[1] == 1 && d.b[0] == 1;
    is_dynamic && is_contiguous && d.m <= ROWS && d.n > 1 && d.k >= LEAST && dots::are_available(kernels)
}

impl PairDotsPlan {
    /// Plans `desc`, for which [`is_applicable`] holds and whose extents were checked.
    pub(super) fn new(kernels: PairKernels, desc: &MatMul) -> PairDotsPlan {
        PairDotsPlan {
            desc: desc.clone(),
            kernels,
        }
    }

    /// The job that stores the sums of some columns of the matrix at `o`: the first column, and their number.
    fn store_job(&self, args: &MatMulArgs, o: &Offsets, sums: &[[f32; COLS]], [col, cols]: [usize; 2]) -> StoreJob {
        let d = &self.desc;
        let addend = d.addend.filter(|_| d.beta != 0.0).map(|s| {
            let first = args.addend.cast::<u16>().wrapping_add(o.addend + col * s.col);
            (Source::Narrow(first), [s.row, s.col])
        });
        StoreJob {
            sums: sums.as_ptr().cast(),
            rows: d.m,
            cols,
            c: args.c.wrapping_add(2 * (o.c + col)),
            c_row: d.c_row,
            wide: false,
            addend,
            alpha: d.alpha as f32,
            beta: d.beta as f32,
            clamp: d.activation.bounds(),
            affine: None,
        }
    }

    /// Computes the columns `c0..c1` of a matrix, and runs the tail on them.
    ///
    /// # Safety
    /// `args` is as for [`MatMulPlan::run`]; no other thread writes these columns.
    unsafe fn run_columns(&self, args: &MatMulArgs, batch: usize, [c0, c1]: [usize; 2]) {
        let (d, o) = (&self.desc, Offsets::for_matrix(&self.desc, batch));
        let mut sums = [[0f32; COLS]; ROWS];
        for col in (c0..c1).step_by(COLS) {
            let cols = COLS.min(c1 - col);
            let job = DotJob {
                a: args.a.cast::<u16>().wrapping_add(o.a),
                a_row: d.a[0],
                rows: d.m,
                b: args.b.cast::<u16>().wrapping_add(o.b + col * d.b[1]),
                b_col: d.b[1],
                cols,
                k: d.k,
                sums: sums.as_mut_ptr().cast(),
            };
            // SAFETY: guaranteed by the caller; the sums have the rows.
            unsafe {
                dots::multiply(&job);
                self.store_job(args, &o, &sums, [col, cols]).run(&self.kernels);
            }
        }
        if let Some(tail) = &args.tail {
            let rect = Rect {
                batch,
                row: 0,
                col: c0,
                rows: d.m,
                cols: c1 - c0,
            };
            // SAFETY: the columns are finished.
            unsafe { run_tail(d, tail, args.c, o.c, rect) };
        }
    }
}

impl MatMulPlan for PairDotsPlan {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let (d, batch) = (&self.desc, self.desc.batch_size());
        if d.m == 0 || d.n == 0 || batch == 0 {
            return;
        }
        let column = d.m.saturating_mul(d.k);
        let cols = (CHUNK_MACS / column).max(1).next_multiple_of(COLS).min(d.n);
        let pieces = d.n.div_ceil(cols);
        let together = (CHUNK_MACS / column.saturating_mul(d.n)).max(1);
        let shared = SharedPtr(args as *const MatMulArgs as *mut MatMulArgs);
        pool.run((batch * pieces).div_ceil(together), |chunk| {
            for i in chunk * together..((chunk + 1) * together).min(batch * pieces) {
                let c0 = i % pieces * cols;
                // SAFETY: guaranteed by the caller; `args` outlives the job, and chunks own different columns.
                unsafe { self.run_columns(&*shared.get(), i / pieces, [c0, (c0 + cols).min(d.n)]) };
            }
        });
    }

    fn describe(&self) -> String {
        "matmul bf16 dots avx512bf16".to_owned()
    }
}
