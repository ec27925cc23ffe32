//! Tiles of vectors: `vdpbf16ps`, or multiply-adds of elements that are widened in registers.

use super::{COLS, PairJob};
use crate::math::isa::per_isa;
use crate::math::simd::Bf16;
use crate::target::{Isa, PairUnit};

/// Computes the sums of one tile, whose first row is given, into rows of [`COLS`] elements.
///
/// # Safety
/// As for [`PairBlocks::compute`](super::PairBlocks::compute).
pub(super) type PairTileFn = unsafe fn(&PairJob, *const u8, *mut f32);

/// `R` rows by two vectors at a time. Rows of A are f32 and contain pairs side by side.
#[inline(always)]
unsafe fn widening_body<S: Bf16, const R: usize>(j: &PairJob, a: *const u8, sums: *mut f32) {
    // SAFETY: the caller provides the operands.
    unsafe {
        let mut col = 0;
        while col < j.cols {
            let mut acc = [[S::splat(0.0); 2]; R];
            let mut b = j.b.add(2 * col);
            for &offset in j.segments {
                let mut a = a.cast::<f32>().wrapping_add(offset);
                for _ in 0..j.run / 2 {
                    let b0 = S::load_pairs(b);
                    let b1 = S::load_pairs(b.add(2 * S::LANES));
                    for (i, element) in [1, 0].into_iter().enumerate() {
                        for r in 0..R {
                            let x = S::splat(*a.add(r * j.a_row + element));
                            acc[r][0] = S::fma(x, b0[i], acc[r][0]);
                            acc[r][1] = S::fma(x, b1[i], acc[r][1]);
                        }
                    }
                    a = a.wrapping_add(2);
                    b = b.wrapping_add(2 * COLS);
                }
            }
            for r in 0..R {
                S::store(sums.add(r * COLS + col), acc[r][0]);
                S::store(sums.add(r * COLS + col + S::LANES), acc[r][1]);
            }
            col += 2 * S::LANES;
        }
    }
}

per_isa! {
    fn widening_tile = widening_body<R: usize>(j: &PairJob, a: *const u8, sums: *mut f32)
}

/// `R` rows by one panel.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bf16,avx2,fma")]
unsafe fn dot_tile<const R: usize>(j: &PairJob, a: *const u8, sums: *mut f32) {
    use std::arch::x86_64::*;
    // SAFETY: the caller provides the operands. All 512-bit vectors have the same representation.
    unsafe {
        let load = |p: *const u16| std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(p.cast()));
        let mut acc = [[_mm512_setzero_ps(); 2]; R];
        let mut b = j.b;
        for &offset in j.segments {
            let mut a = a.cast::<u16>().wrapping_add(offset);
            for _ in 0..j.run / 2 {
                let (b0, b1) = (load(b), load(b.add(COLS)));
                for r in 0..R {
                    let x = _mm512_set1_epi32(a.add(r * j.a_row).cast::<i32>().read_unaligned());
                    let x = std::mem::transmute::<__m512i, __m512bh>(x);
                    acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, b0);
                    acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, b1);
                }
                a = a.wrapping_add(2);
                b = b.wrapping_add(2 * COLS);
            }
        }
        for r in 0..R {
            _mm512_storeu_ps(sums.add(r * COLS), acc[r][0]);
            _mm512_storeu_ps(sums.add(r * COLS + 16), acc[r][1]);
        }
    }
}

/// The kernel for `rows` rows.
pub(super) fn tile_kernel(unit: PairUnit, isa: Isa, rows: usize) -> PairTileFn {
    macro_rules! by_rows {
        ($($r:literal)*) => {
            match (unit, rows) {
                $(
                    #[cfg(target_arch = "x86_64")]
                    (PairUnit::Dots, $r) => dot_tile::<$r>,
                    (_, $r) => widening_tile::<$r>(isa),
                )*
                _ => panic!("no tile of {rows} rows"),
            }
        };
    }
    by_rows!(1 2 3 4 5 6 7 8 9 10 11 12)
}
