//! The products of attention: queries with a block of keys, and weights with its values.

use super::{BlockedAttention, FEW, HeadOperands, KeyBlock, SCORE_ROW};
use crate::math::matmul::dot::{self, DotJob};
use crate::math::tile::{Init, ONE_SEGMENT, Prefetch, TileJob, Tiles};

impl BlockedAttention {
    /// Computes `scores = q · kᵀ` for `n` rows from query `row` on.
    ///
    /// # Safety
    /// As for [`BlockedAttention::attend_rows`].
    pub(super) unsafe fn score_rows(
        &self,
        h: &HeadOperands<f32>,
        b: &KeyBlock,
        row: usize,
        n: usize,
        scores: *mut f32,
    ) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let q = h.q.add(row * d.q[2]);
            if d.queries <= FEW {
                let job = DotJob {
                    a: q,
                    a_row: d.q[2],
                    rows: n,
                    b: h.k.add(b.first * d.k[2]),
                    b_col: d.k[2],
                    cols: b.count,
                    k: d.size,
                    c: scores,
                    c_row: SCORE_ROW,
                };
                dot::kernel(self.kernels.isa)(&job);
                return;
            }
            for p in 0..b.count.div_ceil(nr) {
                let cols = nr.min(b.count - p * nr);
                let keys = b.keys.add(p * nr * d.size);
                self.run_tiles(
                    (q, d.q[2], d.size),
                    (keys, nr),
                    (scores.add(p * nr), SCORE_ROW, cols),
                    n,
                    Init::Zero,
                );
            }
        }
    }

    /// Adds `weights · v` to `n` rows of the result from query `row` on.
    ///
    /// # Safety
    /// As for [`BlockedAttention::attend_rows`].
    pub(super) unsafe fn add_values(
        &self,
        h: &HeadOperands<f32>,
        b: &KeyBlock,
        row: usize,
        n: usize,
        weights: *const f32,
    ) {
        let (d, nr) = (&self.desc, self.kernels.nr);
        let init = if b.first == 0 { Init::Zero } else { Init::Output };
        for p in 0..d.value_size.div_ceil(nr) {
            let cols = nr.min(d.value_size - p * nr);
            // SAFETY: guaranteed by the caller.
            unsafe {
                let values = match cols == nr {
                    true => (h.v.add(b.first * d.v[2] + p * nr), d.v[2]),
                    false => (b.last_values, nr),
                };
                let out = h.out.add(row * d.out[2] + p * nr);
                self.run_tiles((weights, SCORE_ROW, b.count), values, (out, d.out[2], cols), n, init);
            }
        }
    }

    /// Computes `n` rows of one panel. A is given as (pointer, row stride, product size), B as (pointer, stride), C as
    /// (pointer, row stride, columns).
    ///
    /// # Safety
    /// The operands are valid for these rows and columns.
    unsafe fn run_tiles(
        &self,
        a: (*const f32, usize, usize),
        b: (*const f32, usize),
        c: (*mut f32, usize, usize),
        n: usize,
        init: Init,
    ) {
        let halves = self.kernels.half_vectors(c.2);
        let tiles = Tiles::new(n, self.kernels.mr);
        for t in 0..tiles.count() {
            let (r, rows) = (tiles.start(t), tiles.start(t + 1) - tiles.start(t));
            let job = TileJob {
                a: a.0.wrapping_add(r * a.1),
                a_row: a.1,
                a_k: 1,
                segments: ONE_SEGMENT.as_ptr(),
                segment_count: 1,
                run: a.2,
                b: b.0,
                b_k: b.1,
                b_panel: 0,
                c: c.0.wrapping_add(r * c.1),
                c_row: c.1,
                cols: c.2,
                init,
                bias: std::ptr::null(),
                clamp: None,
                next: Prefetch::nothing(b.0),
            };
            // SAFETY: guaranteed by the caller.
            unsafe { self.kernels.tile_kernel(rows, halves, false)(&job) };
        }
    }
}
