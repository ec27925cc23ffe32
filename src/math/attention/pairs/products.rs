//! The operands of the products, and the products.

use super::{Bf16Attention, HeadOperands, KeyBlock, Rows, Work};
use crate::math::pairs::pack::{Source, pack_pairs, pack_row, packed_row};
use crate::math::pairs::store::StoreJob;
use crate::math::pairs::{COLS, PairBlocks, PairJob, padded_run};

impl Bf16Attention {
    /// `n` queries from `q0` on, as rows of a product.
    ///
    /// # Safety
    /// As for [`Bf16Attention::run_range`].
    pub(super) unsafe fn query_rows(&self, h: &HeadOperands, q0: usize, n: usize, w: &mut Work) -> Rows {
        let d = &self.desc;
        if self.queries_in_place() {
            return Rows {
                first: h.q.wrapping_add(q0 * d.q[2]).cast(),
                row: d.q[2],
            };
        }
        let row = packed_row(padded_run(d.size));
        let first = w.queries.as_mut_ptr().cast::<u8>();
        for r in 0..n {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let src = Source::Narrow(h.q.add((q0 + r) * d.q[2]));
                let dst = first.add(r * row * self.kernels.row_element());
                pack_row(&self.kernels, src, 1, d.size, padded_run(d.size), dst);
            }
        }
        Rows { first, row }
    }

    /// Packs a block of keys and its values.
    ///
    /// # Safety
    /// As for [`Bf16Attention::run_range`].
    pub(super) unsafe fn pack_key_block(&self, h: &HeadOperands, b: KeyBlock, w: &mut Work) {
        let d = &self.desc;
        let (keys, values) = (w.keys.as_mut_ptr().cast::<u16>(), w.values.as_mut_ptr().cast::<u16>());
        // SAFETY: the keys and values lie in the operands, the panels in the buffers.
        unsafe {
            for p in 0..b.count.div_ceil(COLS) {
                let src = Source::Narrow(h.k.add((b.first + p * COLS) * d.k[2]));
                let dst = keys.add(p * COLS * padded_run(d.size));
                pack_pairs(src, [1, d.k[2]], COLS.min(b.count - p * COLS), d.size, dst);
            }
            for p in 0..d.value_size.div_ceil(COLS) {
                let src = Source::Narrow(h.v.add(b.first * d.v[2] + p * COLS));
                let dst = values.add(p * COLS * padded_run(b.count));
                pack_pairs(src, [d.v[2], 1], COLS.min(d.value_size - p * COLS), b.count, dst);
            }
        }
    }

    /// Computes or adds the product of `n` rows with panels, which have the given number of product indices and together
    /// `cols` columns.
    ///
    /// # Safety
    /// The operands are valid for these rows and columns.
    #[allow(clippy::too_many_arguments, reason = "the operands of a product")]
    pub(super) unsafe fn multiply(
        &self,
        blocks: &mut PairBlocks,
        a: Rows,
        n: usize,
        (b, run): (*const u16, usize),
        cols: usize,
        (c, c_row): (*mut f32, usize),
        adds: bool,
    ) {
        let first = if n > self.kernels.rows { n.div_ceil(2) } else { n };
        for p in 0..cols.div_ceil(COLS) {
            let job = PairJob {
                a: [
                    a.first,
                    a.first.wrapping_add(first * a.row * self.kernels.row_element()),
                ],
                rows: [first, n - first],
                a_row: a.row,
                segments: &[0],
                run,
                b: b.wrapping_add(p * run * COLS),
                cols: COLS.min(cols - p * COLS),
                next: b,
            };
            // SAFETY: guaranteed by the caller.
            unsafe {
                let c = c.add(p * COLS);
                let store = StoreJob {
                    sums: blocks.compute(&job),
                    rows: n,
                    cols: job.cols,
                    c: c.cast(),
                    c_row,
                    wide: true,
                    addend: adds.then_some((Source::Wide(c), [c_row, 1])),
                    alpha: 1.0,
                    beta: 1.0,
                    clamp: None,
                };
                store.run(&self.kernels);
            }
        }
    }
}
