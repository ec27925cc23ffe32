//! Sums that are rounded, scaled and shifted by column before they are stored ([`ColumnAffine`]), with the processor's own rounding.
//!
//! A tail kernel would read and write every element of the result once more.

use super::{COLS, StoreJob};
use crate::math::contract::ColumnAffine;
use std::arch::x86_64::*;

/// Stores a block.
///
/// # Safety
/// As for [`StoreJob::run`]. The machine has AVX-512 with BW, VL and BF16. The operands of `a` begin at the block.
pub(super) unsafe fn store(j: &StoreJob, bias: &[f32; COLS], a: &ColumnAffine) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (j.cols == COLS, a.addend.is_null()) {
            (true, true) => store_block::<true, false>(j, bias, a),
            (true, false) => store_block::<true, true>(j, bias, a),
            (false, true) => store_block::<false, false>(j, bias, a),
            (false, false) => store_block::<false, true>(j, bias, a),
        }
    }
}

/// The operands of one vector of columns.
struct ColumnVectors {
    bias: __m512,
    scale: __m512,
    shift: __m512,
    /// The columns that exist.
    mask: __mmask16,
}

/// The bounds of both clamps.
struct Bounds {
    /// Of sums.
    first: Option<(__m512, __m512)>,
    /// Of the results.
    last: Option<(__m512, __m512)>,
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
unsafe fn store_block<const WHOLE: bool, const ADDS: bool>(j: &StoreJob, bias: &[f32; COLS], a: &ColumnAffine) {
    let bounds = Bounds {
        first: j.clamp.map(|(lo, hi)| (_mm512_set1_ps(lo), _mm512_set1_ps(hi))),
        last: a.bounds.map(|(lo, hi)| (_mm512_set1_ps(lo), _mm512_set1_ps(hi))),
    };
    // SAFETY: the caller provides the rows and columns; masked elements are not accessed.
    unsafe {
        let columns = [0, 16].map(|first| column_vectors(j, bias, a, first));
        for r in 0..j.rows {
            let sums = j.sums.add(r * COLS);
            let (c, addend) = (j.c.cast::<u16>().add(r * j.c_row), a.addend.wrapping_add(r * j.c_row));
            let mut y = [_mm512_setzero_ps(); 2];
            for v in 0..2 {
                let x = _mm512_loadu_ps(sums.add(16 * v));
                y[v] = transform::<ADDS>(x, &columns[v], &bounds, addend.wrapping_add(16 * v));
            }
            if WHOLE {
                let y = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(y[1], y[0]));
                _mm512_storeu_si512(c.cast(), y);
            } else {
                for v in 0..2 {
                    _mm256_mask_storeu_epi16(c.add(16 * v).cast(), columns[v].mask, round(y[v]));
                }
            }
        }
    }
}

/// The operands of the columns from `first` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
unsafe fn column_vectors(j: &StoreJob, bias: &[f32; COLS], a: &ColumnAffine, first: usize) -> ColumnVectors {
    let count = j.cols.saturating_sub(first).min(16);
    let mask = ((1u32 << count) - 1) as __mmask16;
    // SAFETY: the caller provides the columns of the mask.
    unsafe {
        ColumnVectors {
            bias: _mm512_loadu_ps(bias.as_ptr().add(first)),
            scale: _mm512_maskz_loadu_ps(mask, a.scale.wrapping_add(first)),
            shift: _mm512_maskz_loadu_ps(mask, a.shift.wrapping_add(first)),
            mask,
        }
    }
}

/// The results, in f32, of a vector of sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
unsafe fn transform<const ADDS: bool>(sums: __m512, c: &ColumnVectors, bounds: &Bounds, addend: *const u16) -> __m512 {
    let mut y = _mm512_add_ps(sums, c.bias);
    if let Some((lo, hi)) = bounds.first {
        y = _mm512_min_ps(hi, _mm512_max_ps(lo, y));
    }
    // The product and the sum are rounded one after the other, as the kernel of the tail does it.
    y = _mm512_add_ps(_mm512_mul_ps(widen(round(y)), c.scale), c.shift);
    if ADDS {
        // SAFETY: the caller provides the columns of the mask.
        let addend = unsafe { _mm256_maskz_loadu_epi16(c.mask, addend.cast()) };
        y = _mm512_add_ps(widen(round(y)), widen(addend));
    }
    match bounds.last {
        Some((lo, hi)) => _mm512_min_ps(hi, _mm512_max_ps(lo, y)),
        None => y,
    }
}

/// bf16 elements of f32 ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
fn round(x: __m512) -> __m256i {
    // SAFETY: all 256-bit vectors have the same representation.
    unsafe { std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(x)) }
}

/// f32 elements of bf16 ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
fn widen(x: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(x)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::pairs::PairKernels;
    use crate::math::pairs::store::applies_affine;
    use crate::target::Target;
    use half::bf16;

    #[test]
    fn blocks_are_scaled_and_shifted_as_one_element_after_the_other() {
        if !applies_affine(&PairKernels::for_target(Target::native()), false) {
            return;
        }
        let number = |i: usize| (i * 37 % 101) as f32 / 7.0 - 6.0;
        let [sums, columns]: [Vec<f32>; 2] = [
            (0..3 * COLS).map(number).collect(),
            (5..5 + 3 * COLS).map(number).collect(),
        ];
        let (bias, scale, shift) = (&columns[..COLS], &columns[COLS..2 * COLS], &columns[2 * COLS..]);
        let addend: Vec<bf16> = (0..200).map(|i| bf16::from_f32(number(3 * i))).collect();
        for (cols, adds, bounds) in [
            (32, false, None),
            (32, true, Some((0.0, 6.0))),
            (21, true, None),
            (7, false, Some((-1.0, 2.5))),
        ] {
            let mut c = vec![bf16::ZERO; 3 * 40];
            let affine = ColumnAffine {
                scale: scale.as_ptr(),
                shift: shift.as_ptr(),
                addend: if adds { addend.as_ptr().cast() } else { std::ptr::null() },
                bounds,
            };
            let job = StoreJob {
                sums: sums.as_ptr(),
                rows: 3,
                cols,
                c: c.as_mut_ptr().cast(),
                c_row: 40,
                wide: false,
                addend: None,
                alpha: 1.0,
                beta: 1.0,
                clamp: None,
                affine: None,
            };
            // SAFETY: the buffers hold the rows, and the machine has the instructions.
            unsafe { store(&job, bias.first_chunk().unwrap(), &affine) };
            let round = |x: f32| bf16::from_f32(x).to_f32();
            for (i, c) in c.iter().enumerate() {
                let (r, col) = (i / 40, i % 40);
                let mut want = 0.0;
                if col < cols {
                    want = round(sums[r * COLS + col] + bias[col]) * scale[col] + shift[col];
                    want = if adds { round(want) + addend[i].to_f32() } else { want };
                    want = bounds.map_or(want, |(lo, hi)| want.clamp(lo, hi));
                }
                assert_eq!(*c, bf16::from_f32(want), "{cols} columns, row {r}, column {col}");
            }
        }
    }
}
