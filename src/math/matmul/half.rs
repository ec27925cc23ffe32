//! f16 and bf16 products: converted to f32, multiplied there, and rounded once at the end. Small products and those of few rows or
//! columns are converted piece by piece ([`pieces`], [`dots`]), others as a whole.

mod dots;
mod pieces;

use super::native::F32MatMulPlan;
use super::small;
use super::{Offsets, Rect, run_tail};
use crate::math::contract::{MatMul, MatMulArgs, MatMulConstants, MatMulPlan};
use crate::math::convert::{self, widen_elements};
use crate::math::pairs::PairKernels;
use crate::math::scratch::{self, SharedPtr};
use crate::parallel::Pool;
use crate::target::Isa;
use crate::types::DType;

/// The most product indices and columns of a product of many rows that is faster in f32 than in pairs of bf16, whose panels
/// would be mostly empty.
const NARROW: usize = 8;

/// Whether a bf16 product is faster in f32 than in pairs, although its operands have to be converted.
pub(super) fn is_faster_in_f32(isa: Isa, desc: &MatMul, constants: &MatMulConstants) -> bool {
    let is_dynamic = constants.a.is_none() && constants.b.is_none();
    let is_narrow = desc.k <= NARROW && desc.n <= NARROW;
    is_dynamic && (is_narrow || small::is_applicable(desc, isa, constants))
}

/// Plans a 16-bit product, whose extents were already checked. Constants span at least the extents.
pub(super) fn plan(
    kernels: &PairKernels,
    desc: &MatMul,
    constants: MatMulConstants,
    extents: [usize; 4],
) -> Box<dyn MatMulPlan> {
    if let Some(plan) = pieces::PiecesPlan::new(kernels.isa, desc, &constants) {
        return Box::new(plan);
    }
    match dots::DotsPlan::new(kernels.isa, desc, &constants) {
        Some(plan) => Box::new(plan),
        None => Box::new(HalfPlan::new(kernels, desc, constants, extents)),
    }
}

/// A plan of any 16-bit product.
struct HalfPlan {
    desc: MatMul,
    inner: F32MatMulPlan,
    /// The number of elements to convert of A, B, the addend and C; 0 for constants.
    extents: [usize; 4],
}

impl HalfPlan {
    fn new(kernels: &PairKernels, desc: &MatMul, constants: MatMulConstants, extents: [usize; 4]) -> HalfPlan {
        let inner = MatMul {
            dtype: DType::F32,
            ..desc.clone()
        };
        let MatMulConstants { a, b } = constants;
        let [a, b] = [a, b].map(|c| Some(c?.widen_from(desc.dtype)));
        let mut left = extents;
        left[0] = if a.is_some() { 0 } else { extents[0] };
        left[1] = if a.is_none() && b.is_some() { 0 } else { extents[1] };
        left[2] = if desc.beta == 0.0 { 0 } else { extents[2] };
        let constants = MatMulConstants { a, b };
        HalfPlan {
            desc: desc.clone(),
            inner: F32MatMulPlan::with_quads(kernels.isa, kernels.has_quads, &inner, constants),
            extents: left,
        }
    }
}

impl HalfPlan {
    /// Rounds the f32 product `c` to the result, and runs the tail.
    ///
    /// # Safety
    /// `args` is as for [`MatMulPlan::run`]; `c` has the result's extent.
    unsafe fn round_result(&self, pool: &Pool, c: &[f32], args: &MatMulArgs) {
        let d = &self.desc;
        let rows = d.batch_size() * d.m;
        if args.tail.is_none() && c.len() == rows * d.n {
            // No gaps: rows may be short.
            // SAFETY: guaranteed by the caller.
            return unsafe { convert::narrow_elements(pool, d.dtype, c, args.c) };
        }
        let per = (4096 / d.n.max(1)).max(1);
        let (out, tail) = (SharedPtr(args.c), args.tail);
        pool.run(rows.div_ceil(per), |i| {
            for r in i * per..((i + 1) * per).min(rows) {
                let (batch, row) = (r / d.m, r % d.m);
                let offset = Offsets::for_matrix(d, batch).c;
                let start = offset + row * d.c_row;
                let rect = Rect {
                    batch,
                    row,
                    col: 0,
                    rows: 1,
                    cols: d.n,
                };
                // SAFETY: the row lies in C and belongs to this chunk.
                unsafe {
                    convert::narrow_row(d.dtype, &c[start..start + d.n], out.get().add(2 * start));
                    if let Some(t) = &tail {
                        run_tail(d, t, out.get(), offset, rect);
                    }
                }
            }
        });
    }
}

impl MatMulPlan for HalfPlan {
    unsafe fn run(&self, pool: &Pool, args: &MatMulArgs) {
        let dtype = self.desc.dtype;
        let [na, nb, nd, nc] = self.extents;
        if nc == 0 {
            return;
        }
        let mut a = scratch::take_buffer(na);
        let mut b = scratch::take_buffer(nb);
        let mut addend = scratch::take_buffer(nd);
        let mut c = scratch::take_buffer(nc);
        // SAFETY: the operands are valid for their extents; the buffers are as long.
        unsafe {
            widen_elements(pool, dtype, args.a, &mut a);
            widen_elements(pool, dtype, args.b, &mut b);
            widen_elements(pool, dtype, args.addend, &mut addend);
            let inner = MatMulArgs {
                a: a.as_ptr().cast(),
                b: b.as_ptr().cast(),
                addend: addend.as_ptr().cast(),
                c: c.as_mut_ptr().cast(),
                tail: None,
            };
            self.inner.run(pool, &inner);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.round_result(pool, &c, args) };
    }

    fn describe(&self) -> String {
        self.inner
            .describe()
            .replace("f32", &format!("{} in f32", self.desc.dtype))
    }
}
