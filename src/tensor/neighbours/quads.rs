//! Sums over four neighbours in each of four rows.

use super::lanes::{product, read_quads, sum, transpose_quarters};
use super::{GROUP, Neighbours};
use std::arch::x86_64::*;

impl Neighbours<4, 4> {
    /// Writes the sums of the points in `src`, first along rows, then of these.
    ///
    /// # Safety
    /// The machine has AVX-512 F, DQ and VL. `src` has the elements of a plane, and the weights and `out` those of the points.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    #[expect(clippy::needless_range_loop, reason = "indices belong to several lists")]
    pub(super) unsafe fn sum_quads<const FORMAT: u8>(
        &self,
        src: *const f32,
        columns: [*const f32; 4],
        rows: [*const f32; 4],
        out: *mut f32,
    ) {
        for (g, from) in (0..self.n).step_by(GROUP).enumerate() {
            let lanes = u16::MAX >> (GROUP - (self.n - from).min(GROUP));
            // SAFETY: only lanes of points are read.
            let weight = |w: *const f32| unsafe { _mm512_maskz_loadu_ps(lanes, w.add(from)) };
            let [w0, w1, w2, w3] = columns;
            let across = [weight(w0), weight(w1), weight(w2), weight(w3)];
            let mut total = _mm512_setzero_ps();
            for r in 0..4 {
                // SAFETY: positions are within the plane, with the three elements that follow them.
                let mut quads = unsafe { read_quads(src, self.starts[r].as_ptr().add(from)) };
                for k in 0..4 {
                    // SAFETY: the list has as many elements as a vector.
                    let order = unsafe { _mm512_loadu_si512(self.order[g][k].as_ptr().cast()) };
                    quads[k] = _mm512_maskz_permutevar_ps(self.inside[g][r][k], quads[k], order);
                }
                let values = transpose_quarters(quads);
                let mut line = product::<FORMAT>(values[0], across[0]);
                for k in 1..4 {
                    line = sum::<FORMAT>(line, product::<FORMAT>(values[k], across[k]));
                }
                total = sum::<FORMAT>(total, product::<FORMAT>(line, weight(rows[r])));
            }
            // SAFETY: only lanes of points are written.
            unsafe { _mm512_mask_storeu_ps(out.add(from), lanes, total) };
        }
    }
}
