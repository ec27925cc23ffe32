//! f64 products, with the `gemm` crate.

use super::{Offsets, Rect, run_tail};
use crate::math::contract::{Activation, MatMul, MatMulArgs, MatMulConstants, MatMulPlan};
use crate::math::number::Number;
use crate::math::scratch::SharedPtr;
use crate::parallel::Pool;
use crate::tensor::{AlignedBytes, matmul_f64_strided};
use std::sync::Arc;

/// A plan of an f64 product. Constants are copied, not packed.
pub(super) struct OtherPlan {
    desc: MatMul,
    a: Option<Arc<AlignedBytes>>,
    b: Option<Arc<AlignedBytes>>,
}

impl OtherPlan {
    /// Plans `desc`, whose extents were already checked.
    pub(super) fn new(desc: &MatMul, constants: MatMulConstants) -> OtherPlan {
        OtherPlan {
            desc: desc.clone(),
            a: constants.a.map(|a| a.aligned_bytes()),
            b: constants.b.filter(|_| constants.a.is_none()).map(|b| b.aligned_bytes()),
        }
    }

    /// Computes rows `r0..r1` of one matrix.
    ///
    /// # Safety
    /// `args` is as for [`MatMulPlan::run`]; nothing else writes these rows.
    unsafe fn run_rows(&self, args: &MatMulArgs, batch: usize, r0: usize, r1: usize) {
        let d = &self.desc;
        let o = Offsets::for_matrix(d, batch);
        let a = self.a.as_ref().map_or(args.a, |c| c.bytes().as_ptr()).cast::<f64>();
        let b = self.b.as_ref().map_or(args.b, |c| c.bytes().as_ptr()).cast::<f64>();
        let c = args.c.cast::<f64>();
        // SAFETY: the operands are valid for the descriptor's extents.
        unsafe {
            let c0 = c.add(o.c + r0 * d.c_row);
            product(d, r1 - r0, a.wrapping_add(o.a + r0 * d.a[0]), b.wrapping_add(o.b), c0);
            let rect = Rect {
                batch,
                row: r0,
                col: 0,
                rows: r1 - r0,
                cols: d.n,
            };
            finish_rows(d, args.addend.cast::<f64>().wrapping_add(o.addend), c.add(o.c), &rect);
            if let Some(t) = &args.tail {
                run_tail(d, t, args.c, o.c, rect);
            }
        }
    }
}

/// `c = activation(alpha * c + beta * addend)` on a rectangle.
///
/// # Safety
/// `addend` and `c` are those of a valid matrix.
pub(super) unsafe fn finish_rows<T: Number>(d: &MatMul, addend: *const T, c: *mut T, r: &Rect) {
    let s = d.addend.filter(|_| d.beta != 0.0);
    if s.is_none() && d.alpha == 1.0 && d.activation == Activation::None {
        return;
    }
    let (alpha, beta) = (T::from_f64(d.alpha), T::from_f64(d.beta));
    let bounds = d
        .activation
        .bounds()
        .map(|(lo, hi)| (T::bound(lo as f64), T::bound(hi as f64)));
    for i in r.row..r.row + r.rows {
        for j in r.col..r.col + r.cols {
            // SAFETY: the indices lie in the matrix.
            unsafe {
                let p = c.add(i * d.c_row + j);
                let mut y = alpha.mul(*p);
                if let Some(s) = s {
                    y = y.add(beta.mul(*addend.add(i * s.row + j * s.col)));
                }
                if let Some((lo, hi)) = bounds {
                    y = if lo > y { lo } else { y };
                    y = if hi < y { hi } else { y };
                }
                *p = y;
            }
        }
    }
}

/// The number of rows in a chunk. It depends only on the problem: `gemm` may sum in another order for another number of
/// rows, and results must not depend on the number of threads.
fn block_rows(d: &MatMul) -> usize {
    let macs_per_row = (d.n * d.k).max(1);
    (1_000_000 / macs_per_row).clamp(1, 128).max(d.m.div_ceil(64))
}

/// Computes `rows` rows of the plain product, with the descriptor's strides.
///
/// # Safety
/// The pointers are valid for `rows` rows.
unsafe fn product(d: &MatMul, rows: usize, a: *const f64, b: *const f64, c: *mut f64) {
    if d.k == 0 {
        for i in 0..rows {
            // SAFETY: the row lies in C.
            unsafe { c.add(i * d.c_row).write_bytes(0, d.n) };
        }
        return;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { matmul_f64_strided([rows, d.n, d.k], a, d.a, b, d.b, c, d.c_row) }
}

impl MatMulPlan for OtherPlan {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let d = &self.desc;
        if d.m == 0 || d.n == 0 || d.batch_size() == 0 {
            return;
        }
        let (step, batch) = (block_rows(d), d.batch_size());
        let per = d.m.div_ceil(step);
        let shared = SharedPtr(args as *const MatMulArgs as *mut MatMulArgs);
        pool.run(batch * per, |i| {
            let r0 = i % per * step;
            // SAFETY: guaranteed by the caller; chunks own disjoint rows.
            unsafe { self.run_rows(&*shared.get(), i / per, r0, (r0 + step).min(d.m)) };
        });
    }

    fn describe(&self) -> String {
        format!("matmul {} gemm", self.desc.dtype)
    }
}
