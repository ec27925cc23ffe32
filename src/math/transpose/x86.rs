//! Transposes in blocks of 8 x 8 elements.

use super::transpose_in_fours;
use std::arch::x86_64::*;

/// See [`super::transpose`].
///
/// # Safety
/// The machine supports AVX2; memory as for [`super::transpose`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose(
    src: *const f32,
    src_row: usize,
    rows: usize,
    cols: usize,
    dst: *mut f32,
    dst_row: usize,
) {
    let (r8, c8) = (rows / 8 * 8, cols / 8 * 8);
    // SAFETY: blocks and edges cover the rectangle.
    unsafe {
        // Two adjacent blocks of rows write whole cache lines of the result.
        for r in (0..r8).step_by(16) {
            for c in (0..c8).step_by(8) {
                for r in (r..(r + 16).min(r8)).step_by(8) {
                    transpose_8x8(src.add(r * src_row + c), src_row, dst.add(c * dst_row + r), dst_row);
                }
            }
        }
        match cols - c8 {
            0 => {}
            // Blocks of four, or single elements, have no columns too many.
            1 | 4 => transpose_in_fours(src, src_row, [0, r8], [c8, cols], dst, dst_row),
            n => {
                for r in (0..r8).step_by(8) {
                    transpose_8xn(
                        src.add(r * src_row + c8),
                        src_row,
                        n,
                        dst.add(c8 * dst_row + r),
                        dst_row,
                    );
                }
            }
        }
        transpose_in_fours(src, src_row, [r8, rows], [0, cols], dst, dst_row);
    }
}

/// Transposes eight rows of eight elements.
#[target_feature(enable = "avx2")]
unsafe fn transpose_8x8(src: *const f32, src_row: usize, dst: *mut f32, dst_row: usize) {
    // SAFETY: the caller provides eight rows on each side.
    unsafe {
        let mut a = [_mm256_setzero_ps(); 8];
        for (i, a) in a.iter_mut().enumerate() {
            *a = _mm256_loadu_ps(src.add(i * src_row));
        }
        let b = transpose_registers(a);
        for i in 0..8 {
            _mm256_storeu_ps(dst.add(i * dst_row), b[i]);
        }
    }
}

/// Transposes eight rows of `n < 8` elements.
#[target_feature(enable = "avx2")]
unsafe fn transpose_8xn(src: *const f32, src_row: usize, n: usize, dst: *mut f32, dst_row: usize) {
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes);
    // SAFETY: the caller provides eight rows of `n` elements, of which no more are read, and `n` rows of eight.
    unsafe {
        let mut a = [_mm256_setzero_ps(); 8];
        for (i, a) in a.iter_mut().enumerate() {
            *a = _mm256_maskload_ps(src.add(i * src_row), mask);
        }
        let b = transpose_registers(a);
        // Unrolled by a macro, so that all are registers.
        macro_rules! rows {
            ($($i:literal)*) => { $(
                if $i < n {
                    _mm256_storeu_ps(dst.add($i * dst_row), b[$i]);
                }
            )* };
        }
        rows!(0 1 2 3 4 5 6);
    }
}

/// Element `j` of register `i` of the result is element `i` of register `j`.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_registers(mut a: [__m256; 8]) -> [__m256; 8] {
    let mut b = a;
    for i in 0..4 {
        b[2 * i] = _mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]);
    }
    for i in 0..2 {
        let (x, y) = (4 * i, 4 * i + 2);
        a[x] = _mm256_shuffle_ps::<0x44>(b[x], b[y]);
        a[x + 1] = _mm256_shuffle_ps::<0xee>(b[x], b[y]);
        a[x + 2] = _mm256_shuffle_ps::<0x44>(b[x + 1], b[y + 1]);
        a[x + 3] = _mm256_shuffle_ps::<0xee>(b[x + 1], b[y + 1]);
    }
    for i in 0..4 {
        b[i] = _mm256_permute2f128_ps::<0x20>(a[i], a[i + 4]);
        b[i + 4] = _mm256_permute2f128_ps::<0x31>(a[i], a[i + 4]);
    }
    b
}
