//! Tiles of vectors: `vdpbf16ps` and `vpdpbusd`, or multiply-adds of elements that are widened in registers.

use super::{COLS, Factors, PairJob, PairKernels, SumRows};
use crate::math::contract::ByteInput;
use crate::math::isa::per_isa;
use crate::math::simd::{Bf16, prefetch};
#[cfg(target_arch = "x86_64")]
use crate::target::PairUnit;

/// How far ahead of B tiles of vectors prefetch, in words of 16 bits: the panel is often in the L2 cache or farther away, and the processor's
/// own prefetcher stops at the end of a page.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 1024;

/// Prefetches a group of `V` vectors of columns of B.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_groups<const V: usize>(b: *const u16) {
    for v in 0..V {
        prefetch(b.wrapping_add(AHEAD + v * COLS).cast());
    }
}

/// Computes the sums of one tile, whose first row is given.
///
/// # Safety
/// As for [`PairBlocks::compute`](super::PairBlocks::compute).
pub(super) type PairTileFn = unsafe fn(&PairJob, *const u8, SumRows);

/// `R` rows by two vectors at a time. Rows of A are f32 and contain pairs side by side.
#[inline(always)]
unsafe fn widening_body<S: Bf16, const R: usize>(j: &PairJob, a: *const u8, sums: SumRows) {
    // SAFETY: the caller provides the operands.
    unsafe {
        let mut col = 0;
        while col < j.cols {
            let mut acc = [[S::splat(0.0); 2]; R];
            if j.adds {
                for r in 0..R {
                    acc[r] = [S::load(sums.at(r, col)), S::load(sums.at(r, col + S::LANES))];
                }
            }
            let mut b = j.b.add(2 * col);
            for &offset in j.segments {
                let mut a = a.wrapping_add(offset).cast::<f32>();
                for _ in 0..j.groups {
                    let b0 = S::load_pairs(b);
                    let b1 = S::load_pairs(b.add(2 * S::LANES));
                    for (i, element) in [1, 0].into_iter().enumerate() {
                        for r in 0..R {
                            let x = S::splat(*a.byte_add(r * j.a_row).add(element));
                            acc[r][0] = S::fma(x, b0[i], acc[r][0]);
                            acc[r][1] = S::fma(x, b1[i], acc[r][1]);
                        }
                    }
                    a = a.wrapping_add(2);
                    b = b.wrapping_add(2 * COLS);
                }
            }
            for r in 0..R {
                S::store(sums.at(r, col), acc[r][0]);
                S::store(sums.at(r, col + S::LANES), acc[r][1]);
            }
            col += 2 * S::LANES;
        }
    }
}

per_isa! {
    fn widening_tile = widening_body<R: usize>(j: &PairJob, a: *const u8, sums: SumRows)
}

/// `R` rows by the first `V` vectors of a panel.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bf16,avx2,fma")]
unsafe fn dot_tile<const R: usize, const V: usize>(j: &PairJob, a: *const u8, sums: SumRows) {
    use std::arch::x86_64::*;
    // SAFETY: the caller provides the operands. All 512-bit vectors have the same representation.
    unsafe {
        let load = |p: *const u16| std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(p.cast()));
        let mut acc = [[_mm512_setzero_ps(); V]; R];
        if j.adds {
            for r in 0..R {
                for v in 0..V {
                    acc[r][v] = _mm512_loadu_ps(sums.at(r, 16 * v));
                }
            }
        }
        let mut b = j.b;
        for &offset in j.segments {
            let mut a = a.wrapping_add(offset);
            for _ in 0..j.groups {
                let mut columns = [load(b); V];
                (1..V).for_each(|v| columns[v] = load(b.add(v * COLS)));
                prefetch_groups::<V>(b);
                for r in 0..R {
                    let x = _mm512_set1_epi32(a.add(r * j.a_row).cast::<i32>().read_unaligned());
                    let x = std::mem::transmute::<__m512i, __m512bh>(x);
                    for v in 0..V {
                        acc[r][v] = _mm512_dpbf16_ps(acc[r][v], x, columns[v]);
                    }
                }
                a = a.wrapping_add(4);
                b = b.wrapping_add(2 * COLS);
            }
        }
        for r in 0..R {
            for v in 0..V {
                _mm512_storeu_ps(sums.at(r, 16 * v), acc[r][v]);
            }
        }
    }
}

/// `R` rows of bytes by the first `V` vectors of a panel. `vpdpbusd` takes unsigned bytes: 128 is added to `SIGNED` ones, by changing their highest
/// bit, and 128 times the sum of the column is subtracted from its results.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512vnni,avx2,fma")]
unsafe fn byte_dot_tile<const R: usize, const V: usize, const SIGNED: bool>(j: &PairJob, a: *const u8, sums: SumRows) {
    use std::arch::x86_64::*;
    // SAFETY: the caller provides the operands.
    unsafe {
        let offset = _mm512_set1_epi8(if SIGNED { -128 } else { 0 });
        let mut acc = [[_mm512_setzero_si512(); V]; R];
        let mut excess = [_mm512_setzero_si512(); V];
        let mut b = j.b;
        for &segment in j.segments {
            let mut a = a.wrapping_add(segment);
            for _ in 0..j.groups {
                let mut columns = [_mm512_loadu_si512(b.cast()); V];
                (1..V).for_each(|v| columns[v] = _mm512_loadu_si512(b.add(v * COLS).cast()));
                prefetch_groups::<V>(b);
                for r in 0..R {
                    let x = _mm512_set1_epi32(a.add(r * j.a_row).cast::<i32>().read_unaligned());
                    let x = if SIGNED { _mm512_xor_si512(x, offset) } else { x };
                    for v in 0..V {
                        acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], x, columns[v]);
                    }
                }
                if SIGNED {
                    for v in 0..V {
                        excess[v] = _mm512_dpbusd_epi32(excess[v], offset, columns[v]);
                    }
                }
                a = a.wrapping_add(4);
                b = b.wrapping_add(2 * COLS);
            }
        }
        for r in 0..R {
            for v in 0..V {
                let sum = _mm512_sub_epi32(acc[r][v], excess[v]);
                _mm512_storeu_si512(sums.at(r, 16 * v).cast(), sum);
            }
        }
    }
}

/// `R` rows of bytes by one panel, in plain Rust.
///
/// # Safety
/// As for [`PairTileFn`].
unsafe fn byte_loop_tile<const R: usize, const SIGNED: bool>(j: &PairJob, a: *const u8, sums: SumRows) {
    for r in 0..R {
        let mut acc = [0i32; COLS];
        let mut b = j.b.cast::<[[i8; 4]; COLS]>();
        for &segment in j.segments {
            let mut a = a.wrapping_add(segment + r * j.a_row);
            for _ in 0..j.groups {
                // SAFETY: the caller provides the operands.
                let (x, columns) = unsafe { (a.cast::<[u8; 4]>().read(), &*b) };
                let x = x.map(|x| if SIGNED { x as i8 as i32 } else { x as i32 });
                for (acc, column) in acc.iter_mut().zip(columns) {
                    let products = x.iter().zip(column).map(|(x, &w)| x * w as i32);
                    *acc = products.fold(*acc, i32::wrapping_add);
                }
                (a, b) = (a.wrapping_add(4), b.wrapping_add(1));
            }
        }
        // SAFETY: the caller provides the sums, whose bits are integers.
        unsafe { sums.at(r, 0).cast::<[i32; COLS]>().write_unaligned(acc) };
    }
}

/// The kernel for `rows` rows and `cols` columns.
pub(super) fn tile_kernel(kernels: &PairKernels, rows: usize, cols: usize) -> PairTileFn {
    #[cfg(target_arch = "x86_64")]
    let narrow = cols <= COLS / 2;
    #[cfg(not(target_arch = "x86_64"))]
    let _ = cols;
    let signed = kernels.factors == Factors::Bytes(ByteInput::Signed);
    macro_rules! by_rows {
        ($($r:literal)*) => {
            match (kernels.unit, rows) {
                $(
                    #[cfg(target_arch = "x86_64")]
                    (PairUnit::Dots, $r) => match (kernels.are_bytes(), signed, narrow) {
                        (false, _, true) => dot_tile::<$r, 1>,
                        (false, _, false) => dot_tile::<$r, 2>,
                        (true, true, true) => byte_dot_tile::<$r, 1, true>,
                        (true, true, false) => byte_dot_tile::<$r, 2, true>,
                        (true, false, true) => byte_dot_tile::<$r, 1, false>,
                        (true, false, false) => byte_dot_tile::<$r, 2, false>,
                    },
                    (_, $r) if signed => byte_loop_tile::<$r, true>,
                    (_, $r) if kernels.are_bytes() => byte_loop_tile::<$r, false>,
                    (_, $r) => widening_tile::<$r>(kernels.isa),
                )*
                _ => panic!("no tile of {rows} rows"),
            }
        };
    }
    by_rows!(1 2 3 4 5 6 7 8 9 10 11 12)
}
