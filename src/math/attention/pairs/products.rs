//! The operands of the products, and the products.

use super::{Bf16Attention, HeadOperands, KeyBlock, Rows, Work};
use crate::math::pairs::pack::{Source, pack_pairs, pack_row, packed_row};
use crate::math::pairs::store::StoreJob;
use crate::math::pairs::{COLS, PairBlocks, PairJob, SumRows, padded_run};

/// A product of rows with panels of pairs.
pub(super) struct PanelProduct {
    pub a: Rows,
    /// The number of rows.
    pub rows: usize,
    pub panels: *const u16,
    /// The number of product indices of a panel.
    pub run: usize,
    /// The number of columns of all panels together.
    pub cols: usize,
    /// The result, and the stride between its rows.
    pub out: *mut f32,
    pub out_row: usize,
    /// Whether the product is added to the result's elements.
    pub adds: bool,
}

impl Bf16Attention {
    /// `n` queries from `q0` on, as rows of a product.
    ///
    /// # Safety
    /// As for [`Bf16Attention::run_range`].
    pub(super) unsafe fn query_rows(&self, h: &HeadOperands<u16>, q0: usize, n: usize, w: &mut Work) -> Rows {
        let d = &self.desc;
        if self.queries_in_place() {
            return Rows {
                first: h.q.wrapping_add(q0 * d.q[2]).cast(),
                row: d.q[2],
            };
        }
        let size = self.kernels.row_element();
        let row = packed_row(padded_run(d.size) * size) / size;
        let first = w.queries.as_mut_ptr().cast::<u8>();
        for r in 0..n {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let src = Source::Narrow(h.q.add((q0 + r) * d.q[2]));
                let dst = first.add(r * row * size);
                pack_row(&self.kernels, src, 1, d.size, padded_run(d.size), dst);
            }
        }
        Rows { first, row }
    }

    /// Packs a block of keys and its values.
    ///
    /// # Safety
    /// As for [`Bf16Attention::run_range`].
    pub(super) unsafe fn pack_key_block(&self, h: &HeadOperands<u16>, b: KeyBlock, w: &mut Work) {
        let d = &self.desc;
        let (keys, values) = (w.keys.as_mut_ptr().cast::<u16>(), w.values.as_mut_ptr().cast::<u16>());
        // SAFETY: the keys and values lie in the operands, the panels in the buffers.
        unsafe {
            for p in 0..b.count.div_ceil(COLS) {
                let src = Source::Narrow(h.k.add((b.first + p * COLS) * d.k[2]));
                let dst = keys.add(p * COLS * padded_run(d.size));
                pack_pairs(
                    src,
                    [1, d.k[2]],
                    COLS.min(b.count - p * COLS),
                    [d.size, padded_run(d.size)],
                    dst,
                );
            }
            for p in 0..d.value_size.div_ceil(COLS) {
                let src = Source::Narrow(h.v.add(b.first * d.v[2] + p * COLS));
                let dst = values.add(p * COLS * padded_run(b.count));
                pack_pairs(
                    src,
                    [d.v[2], 1],
                    COLS.min(d.value_size - p * COLS),
                    [b.count, padded_run(b.count)],
                    dst,
                );
            }
        }
    }

    /// Computes or adds a product of rows with panels.
    ///
    /// # Safety
    /// The operands are valid for these rows and columns.
    pub(super) unsafe fn multiply(&self, blocks: &mut PairBlocks, p: &PanelProduct) {
        for panel in 0..p.cols.div_ceil(COLS) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.multiply_panel(blocks, p, panel) };
        }
    }

    /// # Safety
    /// As for [`Bf16Attention::multiply`].
    #[inline]
    unsafe fn multiply_panel(&self, blocks: &mut PairBlocks, p: &PanelProduct, panel: usize) {
        let c = p.out.wrapping_add(panel * COLS);
        // The elements after the last column are not part of another row.
        let has_room = (panel + 1) * COLS <= p.out_row;
        let in_place = has_room && (!p.adds || self.kernels.adds_to_sums());
        let job = self.panel_job(p, panel, p.adds && in_place);
        // SAFETY: guaranteed by the caller.
        unsafe {
            if in_place {
                let sums = SumRows {
                    first: c,
                    row: p.out_row,
                };
                return blocks.compute_into(&job, sums);
            }
            let store = StoreJob {
                sums: blocks.compute(&job),
                rows: p.rows,
                cols: job.cols,
                c: c.cast(),
                c_row: p.out_row,
                wide: true,
                addend: p.adds.then_some((Source::Wide(c), [p.out_row, 1])),
                alpha: 1.0,
                beta: 1.0,
                clamp: None,
                affine: None,
            };
            store.run(&self.kernels);
        }
    }

    /// The product of all rows with one panel.
    fn panel_job(&self, p: &PanelProduct, panel: usize, adds: bool) -> PairJob<'static> {
        let (a, n) = (p.a, p.rows);
        let first = if n > self.kernels.rows { n.div_ceil(2) } else { n };
        let a_row = a.row * self.kernels.row_element();
        PairJob {
            a: [a.first, a.first.wrapping_add(first * a_row)],
            rows: [first, n - first],
            a_row,
            segments: &[0],
            groups: p.run / self.kernels.group(),
            b: p.panels.wrapping_add(panel * p.run * COLS),
            cols: COLS.min(p.cols - panel * COLS),
            adds,
            next: p.panels,
        }
    }
}
