//! What points read as positions, orders of lanes and masks.

use super::lanes::transpose_quarters;
use super::{GROUP, Neighbours, Reads};
use std::arch::x86_64::*;

impl<const K: usize, const R: usize> Neighbours<K, R> {
    /// Plans what `n` points read. Returns false if the columns of a point are not among `K` next to each other.
    ///
    /// # Safety
    /// The machine has AVX-512 F, DQ and VL. All lists have `n` elements, of which there are at most `POINTS`; rows have at least `K`
    /// elements, and there is a row; `K` is 1, 2 or 4.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    #[expect(clippy::needless_range_loop, reason = "indices belong to several lists")]
    pub(super) unsafe fn plan(&mut self, reads: Reads<'_, K, R>, n: usize) -> bool {
        let width = _mm512_set1_epi32(reads.size[1] as i32);
        let last_row = _mm512_set1_epi32(reads.size[0] as i32 - 1);
        let last = _mm512_set1_epi32((reads.size[1] - K) as i32);
        let none = _mm512_set1_epi32(-1);
        for (g, from) in (0..n).step_by(GROUP).enumerate() {
            let lanes = u16::MAX >> (GROUP - (n - from).min(GROUP));
            // SAFETY: only lanes below `n` are read.
            let read = |l: &[i32]| unsafe { _mm512_mask_loadu_epi32(none, lanes, l.as_ptr().add(from)) };
            let (mut columns, mut rows) = ([none; K], [none; R]);
            // As unsigned numbers, negative ones are large. What is outside reads something that is inside.
            let mut first = last;
            for k in 0..K {
                columns[k] = read(reads.columns[k]);
                first = _mm512_min_epu32(first, columns[k]);
            }
            for k in 0..K {
                let far = _mm512_cmpge_epu32_mask(_mm512_sub_epi32(columns[k], first), _mm512_set1_epi32(K as i32));
                if far & !_mm512_movepi32_mask(columns[k]) != 0 {
                    return false;
                }
            }
            for r in 0..R {
                rows[r] = read(reads.rows[r]);
            }
            for (starts, &row) in self.starts.iter_mut().zip(&rows) {
                let row = _mm512_max_epi32(_mm512_min_epi32(row, last_row), _mm512_setzero_si512());
                let start = _mm512_add_epi32(_mm512_mullo_epi32(row, width), first);
                // SAFETY: the list has `POINTS` elements, which are whole groups.
                unsafe { _mm512_storeu_si512(starts.as_mut_ptr().add(from).cast(), start) };
            }
            match K {
                1 | 2 => self.order_pairs(g, columns, rows, first),
                _ => self.order_quads(g, columns, rows, first),
            }
        }
        true
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    #[expect(clippy::needless_range_loop, reason = "indices belong to several lists")]
    fn order_pairs(&mut self, g: usize, columns: [__m512i; K], rows: [__m512i; R], first: __m512i) {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        for k in 0..K {
            let order = _mm512_add_epi32(even, _mm512_sub_epi32(columns[k], first));
            // SAFETY: the list has as many elements as a vector.
            unsafe { _mm512_storeu_si512(self.order[g][k].as_mut_ptr().cast(), order) };
            for r in 0..R {
                // Either is negative if the sign of both together is.
                let outside = _mm512_movepi32_mask(_mm512_or_si512(columns[k], rows[r]));
                self.inside[g][r][k] = !outside;
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
    #[expect(clippy::needless_range_loop, reason = "indices belong to several lists")]
    fn order_quads(&mut self, g: usize, columns: [__m512i; K], rows: [__m512i; R], first: __m512i) {
        let mut order = [first; 4];
        for k in 0..K.min(4) {
            let relative = _mm512_sub_epi32(columns[k], first);
            // What is outside stays negative.
            order[k] = _mm512_mask_mov_epi32(relative, _mm512_movepi32_mask(columns[k]), columns[k]);
        }
        let [a, b, c, d] = order;
        let order = transpose_quarters([
            _mm512_castsi512_ps(a),
            _mm512_castsi512_ps(b),
            _mm512_castsi512_ps(c),
            _mm512_castsi512_ps(d),
        ]);
        for k in 0..K.min(4) {
            let q = _mm512_castps_si512(order[k]);
            // SAFETY: the list has as many elements as a vector.
            unsafe { _mm512_storeu_si512(self.order[g][k].as_mut_ptr().cast(), q) };
            for r in 0..R {
                let row = match k {
                    0 => _mm512_shuffle_epi32::<0x00>(rows[r]),
                    1 => _mm512_shuffle_epi32::<0x55>(rows[r]),
                    2 => _mm512_shuffle_epi32::<0xaa>(rows[r]),
                    _ => _mm512_shuffle_epi32::<0xff>(rows[r]),
                };
                self.inside[g][r][k] = !_mm512_movepi32_mask(_mm512_or_si512(q, row));
            }
        }
    }
}
