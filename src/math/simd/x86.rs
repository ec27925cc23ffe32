//! Vectors of x86-64: 256 and 512 bits.

use super::Simd;
use std::arch::x86_64::*;

/// AVX2 with FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// Masks for `_mm256_maskload_ps`. In the eight lanes from index `8 - n` on, the first `n` are set.
static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

macro_rules! simple {
    ($v:ty; $($name:ident = $op:ident ( $($a:ident),* );)*) => { $(
        #[inline(always)]
        unsafe fn $name($($a: $v),*) -> $v {
            // SAFETY: the caller runs on a machine with the instructions.
            unsafe { $op($($a),*) }
        }
    )* };
}

// SAFETY: each method is the instruction it names; the pointer methods touch what the trait says.
unsafe impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    type Half = Avx2;
    #[inline(always)]
    unsafe fn lower_half(v: __m256) -> __m256 {
        v
    }
    #[inline(always)]
    unsafe fn spread_fours(v: __m256) -> [__m256; 4] {
        // SAFETY: the machine supports AVX2.
        unsafe {
            [
                _mm256_permute_ps::<0x00>(v),
                _mm256_permute_ps::<0x55>(v),
                _mm256_permute_ps::<0xaa>(v),
                _mm256_permute_ps::<0xff>(v),
            ]
        }
    }
    simple! { __m256;
        add = _mm256_add_ps(a, b);
        sub = _mm256_sub_ps(a, b);
        mul = _mm256_mul_ps(a, b);
        div = _mm256_div_ps(a, b);
        fma = _mm256_fmadd_ps(a, b, c);
        max = _mm256_max_ps(a, b);
        min = _mm256_min_ps(a, b);
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        // SAFETY: the machine supports AVX2.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m256 {
        // SAFETY: the caller provides eight readable elements.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m256) {
        // SAFETY: the caller provides eight writable elements.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    type Mask = __m256i;
    #[inline(always)]
    unsafe fn mask(n: usize) -> __m256i {
        // SAFETY: `n <= 8`, so eight elements from `8 - n` lie in the table.
        unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - n).cast()) }
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const f32, m: __m256i) -> __m256 {
        // SAFETY: lanes that are masked off are not read.
        unsafe { _mm256_maskload_ps(p, m) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> __m256 {
        // SAFETY: as above.
        unsafe { Self::load_masked(p, Self::mask(n)) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, n: usize, v: __m256) {
        // SAFETY: lanes that are masked off are not written.
        unsafe { _mm256_maskstore_ps(p, Self::mask(n), v) }
    }
    #[inline(always)]
    unsafe fn select_lt(a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
        // SAFETY: the machine supports AVX2.
        unsafe { _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) }
    }
    #[inline(always)]
    unsafe fn sum_lanes_of_four(v: [__m256; 4]) -> [f32; 4] {
        // SAFETY: the machine supports AVX2 with FMA.
        unsafe { sum_eights(v) }
    }
    #[inline(always)]
    unsafe fn pow2(n: __m256) -> __m256 {
        // SAFETY: the machine supports AVX2.
        unsafe {
            let e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(e))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> __m256 {
        // SAFETY: the caller provides eight readable elements.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_i16(p: *const i16) -> __m256 {
        // SAFETY: the caller provides eight readable elements.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_nibbles(p: *const u8) -> [__m256; 2] {
        // SAFETY: the caller provides eight readable elements.
        unsafe {
            let v = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()));
            let low = _mm256_and_si256(v, _mm256_set1_epi32(15));
            let centred = |x| _mm256_cvtepi32_ps(_mm256_sub_epi32(x, _mm256_set1_epi32(8)));
            [centred(low), centred(_mm256_srli_epi32::<4>(v))]
        }
    }
    #[inline(always)]
    unsafe fn load_even(p: *const f32) -> __m256 {
        // SAFETY: the caller provides sixteen readable elements.
        unsafe {
            let x = _mm256_shuffle_ps::<0b10_00_10_00>(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8)));
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(x)))
        }
    }
}

/// The sums of four vectors of eight lanes: of lanes four apart, of lanes two apart, then of neighbours.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn sum_eights(v: [__m256; 4]) -> [f32; 4] {
    let mut q = [_mm_setzero_ps(); 4];
    for i in 0..4 {
        q[i] = _mm_add_ps(_mm256_castps256_ps128(v[i]), _mm256_extractf128_ps::<1>(v[i]));
    }
    let a = _mm_add_ps(_mm_movelh_ps(q[0], q[1]), _mm_movehl_ps(q[1], q[0]));
    let b = _mm_add_ps(_mm_movelh_ps(q[2], q[3]), _mm_movehl_ps(q[3], q[2]));
    let [even, odd] = [
        _mm_shuffle_ps::<0b10_00_10_00>(a, b),
        _mm_shuffle_ps::<0b11_01_11_01>(a, b),
    ];
    let mut sums = [0f32; 4];
    // SAFETY: the array has four elements.
    unsafe { _mm_storeu_ps(sums.as_mut_ptr(), _mm_add_ps(even, odd)) };
    sums
}

/// The same for sixteen lanes, of which those eight apart are added first.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
fn sum_sixteens(v: [__m512; 4]) -> [f32; 4] {
    let mut halves = [_mm256_setzero_ps(); 4];
    for i in 0..4 {
        let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v[i])));
        halves[i] = _mm256_add_ps(_mm512_castps512_ps256(v[i]), high);
    }
    sum_eights(halves)
}

/// AVX-512F.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// Returns the vector, but hides from the compiler that all its lanes are equal. Otherwise the compiler would load
/// the half and build the whole vector by a shuffle, which competes with the sums.
#[inline]
#[target_feature(enable = "avx512f")]
fn opaque_value(mut v: __m512) -> __m512 {
    // SAFETY: the assembly text contains no instruction.
    unsafe { std::arch::asm!("/* {0} */", inout(zmm_reg) v, options(pure, nomem, nostack, preserves_flags)) };
    v
}

/// See [`Simd::half_fma_at`].
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
unsafe fn fma_broadcast<const SCALE: usize, const AT: usize>(
    base: *const u8,
    index: usize,
    y: __m256,
    mut z: __m256,
) -> __m256 {
    // SAFETY: reads only the element that the caller provides.
    unsafe {
        std::arch::asm!(
            "vfmadd231ps {z}, {y}, dword ptr [{base} + {index}*{scale} + {at}]{{1to8}}",
            z = inout(ymm_reg) z, y = in(ymm_reg) y, base = in(reg) base, index = in(reg) index,
            scale = const SCALE, at = const AT, options(pure, readonly, nostack, preserves_flags)
        );
    }
    z
}

// SAFETY: each method is the instruction it names; the pointer methods touch what the trait says.
unsafe impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    type Half = Avx2;
    #[inline(always)]
    unsafe fn splat_for_both(x: f32) -> __m512 {
        // SAFETY: the machine supports AVX-512F.
        unsafe { opaque_value(_mm512_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn half_fma_at<const SCALE: usize, const AT: usize>(
        base: *const u8,
        index: usize,
        y: __m256,
        z: __m256,
    ) -> __m256 {
        // SAFETY: the caller provides the element; the machine has AVX-512VL.
        unsafe { fma_broadcast::<SCALE, AT>(base, index, y, z) }
    }
    #[inline(always)]
    unsafe fn spread_fours(v: __m512) -> [__m512; 4] {
        // SAFETY: the machine supports AVX-512F.
        unsafe {
            [
                _mm512_permute_ps::<0x00>(v),
                _mm512_permute_ps::<0x55>(v),
                _mm512_permute_ps::<0xaa>(v),
                _mm512_permute_ps::<0xff>(v),
            ]
        }
    }
    #[inline(always)]
    unsafe fn lower_half(v: __m512) -> __m256 {
        // SAFETY: the machine supports AVX-512F.
        unsafe { _mm512_castps512_ps256(v) }
    }
    simple! { __m512;
        add = _mm512_add_ps(a, b);
        sub = _mm512_sub_ps(a, b);
        mul = _mm512_mul_ps(a, b);
        div = _mm512_div_ps(a, b);
        fma = _mm512_fmadd_ps(a, b, c);
        max = _mm512_max_ps(a, b);
        min = _mm512_min_ps(a, b);
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        // SAFETY: the machine supports AVX-512F.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        // SAFETY: the caller provides sixteen readable elements.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        // SAFETY: the caller provides sixteen writable elements.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    type Mask = __mmask16;
    #[inline(always)]
    unsafe fn mask(n: usize) -> __mmask16 {
        ((1u32 << n) - 1) as u16
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const f32, m: __mmask16) -> __m512 {
        // SAFETY: lanes that are masked off are not read.
        unsafe { _mm512_maskz_loadu_ps(m, p) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> __m512 {
        // SAFETY: as above.
        unsafe { Self::load_masked(p, Self::mask(n)) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, n: usize, v: __m512) {
        // SAFETY: lanes that are masked off are not written.
        unsafe { _mm512_mask_storeu_ps(p, Self::mask(n), v) }
    }
    #[inline(always)]
    unsafe fn select_lt(a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        // SAFETY: the machine supports AVX-512F.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x) }
    }
    #[inline(always)]
    unsafe fn sum_lanes_of_four(v: [__m512; 4]) -> [f32; 4] {
        // SAFETY: the machine supports the level.
        unsafe { sum_sixteens(v) }
    }
    #[inline(always)]
    unsafe fn pow2(n: __m512) -> __m512 {
        // SAFETY: the machine supports AVX-512F.
        unsafe {
            let e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(e))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> __m512 {
        // SAFETY: the caller provides sixteen readable elements.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_i16(p: *const i16) -> __m512 {
        // SAFETY: the caller provides sixteen readable elements.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_nibbles(p: *const u8) -> [__m512; 2] {
        // SAFETY: the caller provides sixteen readable elements.
        unsafe {
            let v = _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()));
            [
                _mm512_permutexvar_ps(v, nibble_numbers()),
                _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(v), nibble_numbers()),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_byte_of(p: *const u32, i: usize) -> __m512 {
        // SAFETY: the caller provides sixteen words.
        unsafe {
            let up = _mm_cvtsi32_si128(24 - 8 * i as i32);
            let v = _mm512_sll_epi32(_mm512_loadu_si512(p.cast()), up);
            _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(v))
        }
    }
    #[inline(always)]
    unsafe fn load_nibble_of(p: *const u32, i: usize) -> __m512 {
        // SAFETY: the caller provides sixteen words.
        unsafe {
            let v = _mm512_srl_epi32(_mm512_loadu_si512(p.cast()), _mm_cvtsi32_si128(4 * i as i32));
            _mm512_permutexvar_ps(v, nibble_numbers())
        }
    }
    #[inline(always)]
    unsafe fn load_even(p: *const f32) -> __m512 {
        // SAFETY: the caller provides thirty-two readable elements.
        unsafe {
            let i = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            _mm512_permutex2var_ps(_mm512_loadu_ps(p), i, _mm512_loadu_ps(p.add(16)))
        }
    }
}

/// The numbers of nibbles, which are stored with an offset of 8. A permutation of these uses only the low four bits of an index, so it
/// needs no mask and no conversion.
#[inline(always)]
unsafe fn nibble_numbers() -> __m512 {
    // SAFETY: called where AVX-512 is available.
    unsafe {
        _mm512_setr_ps(
            -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0,
        )
    }
}
