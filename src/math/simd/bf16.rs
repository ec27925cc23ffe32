//! Vectors of f32 that are bf16 in memory.

use super::{Portable, Simd};

/// Loads and stores of bf16. The vectors are f32: widening is exact, narrowing rounds to nearest, ties to even. Denormals
/// and NaN are kept.
///
/// # Safety
/// As for [`Simd`]. Pointers have any alignment.
#[allow(clippy::missing_safety_doc, reason = "the requirements above apply to every method")]
pub(in crate::math) unsafe trait Bf16: Simd {
    /// Reads a vector.
    unsafe fn load_bf16(p: *const u16) -> Self::V;
    /// Rounds and writes a vector.
    unsafe fn store_bf16(p: *mut u16, v: Self::V);
    /// Reads `LANES` pairs. Returns the second elements of the pairs, and the first ones.
    unsafe fn load_pairs(p: *const u16) -> [Self::V; 2];
    /// Rounds and writes `LANES` pairs, given as [`Bf16::load_pairs`] returns them.
    unsafe fn store_pairs(p: *mut u16, pairs: [Self::V; 2]);

    /// Reads the first `n <= 2 * LANES` elements of `LANES` pairs. The others are 0.
    #[inline(always)]
    unsafe fn load_pairs_first(p: *const u16, n: usize) -> [Self::V; 2] {
        let mut elements = [0u16; 32];
        // SAFETY: the caller provides `n` readable elements; the array holds the largest vector.
        unsafe {
            std::ptr::copy_nonoverlapping(p, elements.as_mut_ptr(), n);
            Self::load_pairs(elements.as_ptr())
        }
    }

    /// Rounds and writes the first `n <= 2 * LANES` elements of pairs.
    #[inline(always)]
    unsafe fn store_pairs_first(p: *mut u16, n: usize, pairs: [Self::V; 2]) {
        let mut elements = [0u16; 32];
        // SAFETY: the caller provides `n` writable elements; the array holds the largest vector.
        unsafe {
            Self::store_pairs(elements.as_mut_ptr(), pairs);
            std::ptr::copy_nonoverlapping(elements.as_ptr(), p, n);
        }
    }

    /// Reads the first `n <= LANES` lanes. The others are 0.
    #[inline(always)]
    unsafe fn load_bf16_first(p: *const u16, n: usize) -> Self::V {
        let mut lanes = [0u16; 16];
        // SAFETY: the caller provides `n` readable elements; the array holds the largest vector.
        unsafe {
            std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), n);
            Self::load_bf16(lanes.as_ptr())
        }
    }

    /// Rounds and writes the first `n <= LANES` lanes.
    #[inline(always)]
    unsafe fn store_bf16_first(p: *mut u16, n: usize, v: Self::V) {
        let mut lanes = [0u16; 16];
        // SAFETY: the caller provides `n` writable elements; the array holds the largest vector.
        unsafe {
            Self::store_bf16(lanes.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(lanes.as_ptr(), p, n);
        }
    }
}

// SAFETY: plain Rust; the methods touch what the trait says.
unsafe impl Bf16 for Portable {
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> [f32; 4] {
        // SAFETY: the caller provides four readable elements.
        let bits = unsafe { p.cast::<[u16; 4]>().read_unaligned() };
        bits.map(|b| f32::from_bits((b as u32) << 16))
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: [f32; 4]) {
        let bits = v.map(|x| half::bf16::from_f32(x).to_bits());
        // SAFETY: the caller provides four writable elements.
        unsafe { p.cast::<[u16; 4]>().write_unaligned(bits) }
    }
    #[inline(always)]
    unsafe fn load_pairs(p: *const u16) -> [[f32; 4]; 2] {
        // SAFETY: the caller provides four readable pairs.
        let bits = unsafe { p.cast::<[[u16; 2]; 4]>().read_unaligned() };
        [1, 0].map(|i| bits.map(|b| f32::from_bits((b[i] as u32) << 16)))
    }
    #[inline(always)]
    unsafe fn store_pairs(p: *mut u16, [second, first]: [[f32; 4]; 2]) {
        let bits = |x: f32| half::bf16::from_f32(x).to_bits();
        let pairs: [[u16; 2]; 4] = std::array::from_fn(|i| [bits(first[i]), bits(second[i])]);
        // SAFETY: the caller provides four writable pairs.
        unsafe { p.cast::<[[u16; 2]; 4]>().write_unaligned(pairs) }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Bf16;
    use crate::math::simd::{Avx2, Avx512};
    use std::arch::x86_64::*;

    /// Rounds to bf16, whose bits are the upper halves of the lanes. The lower halves are undefined.
    #[inline(always)]
    unsafe fn round_half_256(v: __m256) -> __m256i {
        // SAFETY: the caller runs on a machine with the instructions.
        unsafe {
            let x = _mm256_castps_si256(v);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(x), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd);
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
            let quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x40_0000));
            _mm256_blendv_epi8(_mm256_add_epi32(x, half), quiet, nan)
        }
    }

    /// [`round_half_256`] for wider vectors.
    #[inline(always)]
    unsafe fn round_half_512(v: __m512) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let x = _mm512_castps_si512(v);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(x), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
            _mm512_mask_or_epi32(_mm512_add_epi32(x, half), nan, x, _mm512_set1_epi32(0x40_0000))
        }
    }

    // SAFETY: the instructions are the level's; the methods touch what the trait says.
    unsafe impl Bf16 for Avx2 {
        #[inline(always)]
        unsafe fn load_bf16(p: *const u16) -> __m256 {
            // SAFETY: the caller provides eight readable elements.
            unsafe {
                let x = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(x))
            }
        }
        #[inline(always)]
        unsafe fn store_bf16(p: *mut u16, v: __m256) {
            // SAFETY: the caller provides eight writable elements.
            unsafe {
                let y = _mm256_srli_epi32::<16>(round_half_256(v));
                let y = _mm256_packus_epi32(y, y);
                let y = _mm256_permute4x64_epi64::<0b10_00>(y);
                _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(y));
            }
        }
        #[inline(always)]
        unsafe fn load_pairs(p: *const u16) -> [__m256; 2] {
            // SAFETY: the caller provides eight readable pairs.
            unsafe {
                let x = _mm256_loadu_si256(p.cast());
                let odd = _mm256_and_si256(x, _mm256_set1_epi32(0xffff_0000_u32 as i32));
                [
                    _mm256_castsi256_ps(odd),
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(x)),
                ]
            }
        }
        #[inline(always)]
        unsafe fn store_pairs(p: *mut u16, pairs: [__m256; 2]) {
            // SAFETY: the caller provides eight writable pairs.
            unsafe {
                // Not by `map`, whose closure would have no vector instructions.
                let (second, first) = (round_half_256(pairs[0]), round_half_256(pairs[1]));
                let high = _mm256_and_si256(second, _mm256_set1_epi32(0xffff_0000_u32 as i32));
                _mm256_storeu_si256(p.cast(), _mm256_or_si256(high, _mm256_srli_epi32::<16>(first)));
            }
        }
    }

    // SAFETY: as above.
    unsafe impl Bf16 for Avx512 {
        #[inline(always)]
        unsafe fn load_bf16(p: *const u16) -> __m512 {
            // SAFETY: the caller provides sixteen readable elements.
            unsafe {
                let x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(x))
            }
        }
        #[inline(always)]
        unsafe fn store_bf16(p: *mut u16, v: __m512) {
            // SAFETY: the caller provides sixteen writable elements.
            unsafe {
                let y = _mm512_srli_epi32::<16>(round_half_512(v));
                _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(y));
            }
        }
        #[inline(always)]
        unsafe fn load_pairs(p: *const u16) -> [__m512; 2] {
            // SAFETY: the caller provides sixteen readable pairs.
            unsafe {
                let x = _mm512_loadu_si512(p.cast());
                let odd = _mm512_and_si512(x, _mm512_set1_epi32(0xffff_0000_u32 as i32));
                [
                    _mm512_castsi512_ps(odd),
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(x)),
                ]
            }
        }
        #[inline(always)]
        unsafe fn store_pairs(p: *mut u16, pairs: [__m512; 2]) {
            // SAFETY: the caller provides sixteen writable pairs.
            unsafe {
                // See above.
                let (second, first) = (round_half_512(pairs[0]), round_half_512(pairs[1]));
                let high = _mm512_and_si512(second, _mm512_set1_epi32(0xffff_0000_u32 as i32));
                _mm512_storeu_si512(p.cast(), _mm512_or_si512(high, _mm512_srli_epi32::<16>(first)));
            }
        }
        #[inline(always)]
        unsafe fn load_pairs_first(p: *const u16, n: usize) -> [__m512; 2] {
            // SAFETY: the caller provides `n` readable elements; the array holds the largest vector.
            unsafe {
                let whole = (1u32 << (n / 2)) - 1;
                let mut x = _mm512_maskz_loadu_epi32(whole as u16, p.cast());
                if n % 2 == 1 {
                    x = _mm512_mask_set1_epi32(x, 1 << (n / 2), *p.add(n - 1) as i32);
                }
                let odd = _mm512_and_si512(x, _mm512_set1_epi32(0xffff_0000_u32 as i32));
                [
                    _mm512_castsi512_ps(odd),
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(x)),
                ]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Isa;
    use crate::math::isa::per_isa;

    #[inline(always)]
    unsafe fn convert_body<S: Bf16>(
        x: &[f32; 16],
        narrow: &mut [u16; 16],
        wide: &mut [f32; 16],
        pairs: &mut [f32; 16],
    ) {
        // SAFETY: the arrays hold the vectors.
        unsafe {
            for i in (0..16).step_by(S::LANES) {
                S::store_bf16(narrow.as_mut_ptr().add(i), S::load(x.as_ptr().add(i)));
                S::store(wide.as_mut_ptr().add(i), S::load_bf16(narrow.as_ptr().add(i)));
            }
            for i in (0..8).step_by(S::LANES.min(8)) {
                let n = S::LANES.min(8);
                let mut both = [0u16; 32];
                both[..2 * n].copy_from_slice(&narrow[2 * i..2 * (i + n)]);
                let [odd, even] = S::load_pairs(both.as_ptr());
                S::store_first(pairs.as_mut_ptr().add(i), n, odd);
                S::store_first(pairs.as_mut_ptr().add(8 + i), n, even);
            }
            // All of it again from the numbers themselves, in pairs.
            for i in (0..16).step_by((2 * S::LANES).min(16)) {
                let n = S::LANES.min(8);
                let split: [[f32; 16]; 2] =
                    [1, 0].map(|k| std::array::from_fn(|j| if j < n { x[i + 2 * j + k] } else { 0.0 }));
                let stored = split.map(|half| S::load(half.as_ptr()));
                let mut again = [0u16; 16];
                S::store_pairs_first(again.as_mut_ptr(), 2 * n - 1, stored);
                assert_eq!(again[..2 * n - 1], narrow[i..i + 2 * n - 1]);
                for len in 0..=2 * n {
                    let vectors = S::load_pairs_first(narrow.as_ptr().add(i), len);
                    S::store_pairs_first(again.as_mut_ptr(), 2 * n, vectors);
                    let kept = |j: usize| if j < len { narrow[i + j] } else { 0 };
                    assert!((0..2 * n).all(|j| again[j] == kept(j) || kept(j) & 0x7fff > 0x7f80));
                }
            }
        }
    }

    per_isa! {
        fn convert = convert_body(x: &[f32; 16], narrow: &mut [u16; 16], wide: &mut [f32; 16], pairs: &mut [f32; 16])
    }

    #[test]
    fn vectors_round_as_scalars_do() {
        let special = [
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_1234,
            0xffc1_2345,
            0x7f80_0001,
            0x0040_0000,
            0x8000_0001,
            0x7f7f_ffff,
        ];
        let random = (0u32..4096).map(|i| i.wrapping_mul(0x9e37_79b9) ^ (i << 13));
        let ties = (0u32..64).map(|i| 0x3f80_8000 + (i << 16));
        let bits: Vec<u32> = special.into_iter().chain(random).chain(ties).collect();
        for isa in Isa::available() {
            for block in bits.chunks_exact(16) {
                let x: [f32; 16] = std::array::from_fn(|i| f32::from_bits(block[i]));
                let (mut narrow, mut wide, mut pairs) = ([0; 16], [0.0; 16], [0.0; 16]);
                // SAFETY: the machine has the level.
                unsafe { convert(isa)(&x, &mut narrow, &mut wide, &mut pairs) };
                for i in 0..16 {
                    let want = half::bf16::from_f32(x[i]);
                    assert_eq!(narrow[i], want.to_bits(), "{isa} {:#x}", block[i]);
                    assert_eq!(wide[i].to_bits(), want.to_f32().to_bits());
                    let pair = if i % 2 == 1 { pairs[i / 2] } else { pairs[8 + i / 2] };
                    assert_eq!(pair.to_bits(), wide[i].to_bits(), "{isa} pair {i}");
                }
            }
        }
    }
}
