//! Sums that are rounded, scaled and shifted by column before they are stored ([`ColumnAffine`]), with the processor's own rounding.
//!
//! A tail kernel would read and write every element of the result once more.

use super::{COLS, StoreJob, columns};
use crate::math::contract::ColumnAffine;
use crate::math::simd::fours::{self, Fours};
use std::arch::x86_64::*;

/// Stores a block.
///
/// # Safety
/// As for [`StoreJob::run`]. The machine has AVX-512 with BW, VL and BF16. The operands of `a` begin at the block.
pub(super) unsafe fn store(j: &StoreJob, a: &ColumnAffine) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (j.cols == COLS, a.addend.is_null()) {
            (true, true) => store_block::<true, false>(j, a),
            (true, false) => store_block::<true, true>(j, a),
            (false, true) => store_block::<false, false>(j, a),
            (false, false) => store_block::<false, true>(j, a),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
unsafe fn store_block<const WHOLE: bool, const ADDS: bool>(j: &StoreJob, a: &ColumnAffine) {
    let (clamp, bounds) = (j.clamp, a.bounds);
    let mask = u32::MAX >> (COLS - j.cols);
    // SAFETY: the caller provides the rows and columns; masked elements are not accessed.
    unsafe {
        let bias = columns::load_addend(j);
        let (scale, shift) = (load_columns(a.scale, mask), load_columns(a.shift, mask));
        for r in 0..j.rows {
            let mut sums = fours::load(j.sums.add(r * COLS));
            if j.addend.is_some() {
                sums = fours::add(sums, bias);
            }
            let rounded = fours::round_in_memory_order(fours::clamp(sums, clamp));
            // The product and the sum are rounded one after the other, as the kernel of the tail does it.
            let mut y = fours::transform(fours::widen(rounded), scale, shift);
            if ADDS {
                let addend = _mm512_maskz_loadu_epi16(mask, a.addend.wrapping_add(r * j.c_row).cast());
                y = fours::add(fours::widen(fours::round(y)), fours::widen(addend));
            }
            let y = fours::round(fours::clamp(y, bounds));
            let c = j.c.cast::<u16>().add(r * j.c_row);
            match WHOLE {
                true => _mm512_storeu_si512(c.cast(), y),
                false => _mm512_mask_storeu_epi16(c.cast(), mask, y),
            }
        }
    }
}

/// The operand of the columns of the mask.
#[inline(always)]
unsafe fn load_columns(p: *const f32, mask: u32) -> Fours {
    // SAFETY: the caller provides these columns.
    unsafe {
        let first = _mm512_maskz_loadu_ps(mask as __mmask16, p);
        let second = _mm512_maskz_loadu_ps((mask >> 16) as __mmask16, p.wrapping_add(COLS / 2));
        fours::order([first, second])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::pairs::PairKernels;
    use crate::math::pairs::pack::Source;
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
                addend: Some((Source::Wide(bias.as_ptr()), [0, 1])),
                alpha: 1.0,
                beta: 1.0,
                clamp: None,
                affine: None,
            };
            // SAFETY: the buffers hold the rows, and the machine has the instructions.
            unsafe { store(&job, &affine) };
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
