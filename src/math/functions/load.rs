//! Reads operands for the vector code.
//!
//! Compiled code has just written the operands to its stack, 16 bytes at a time. A wider load of such memory would wait until the
//! stores have left the store buffer, and with them everything before: no two groups would overlap. So all loads have 16 bytes.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Reads `N` elements as f64.
pub(super) trait Load<T> {
    /// # Safety
    /// `from` points to `N` elements, and the machine has the instructions of the level. `N` is a multiple of 8.
    unsafe fn load<const N: usize>(from: *const T) -> [f64; N];
}

/// Loads without special instructions.
pub(super) struct Portable;

impl Load<f32> for Portable {
    #[inline(always)]
    unsafe fn load<const N: usize>(from: *const f32) -> [f64; N] {
        // SAFETY: the caller provides `N` elements.
        std::array::from_fn(|i| unsafe { *from.add(i) as f64 })
    }
}

impl Load<f64> for Portable {
    #[inline(always)]
    unsafe fn load<const N: usize>(from: *const f64) -> [f64; N] {
        // SAFETY: the caller provides `N` elements.
        std::array::from_fn(|i| unsafe { *from.add(i) })
    }
}

/// 16 bytes anywhere in memory.
#[cfg(target_arch = "x86_64")]
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Unaligned<T>(T);

/// A load that is not combined with its neighbours.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn part<T, V: Copy>(from: *const T, i: usize) -> V {
    // SAFETY: the caller provides the elements; they need no alignment.
    unsafe { from.add(i).cast::<Unaligned<V>>().read_volatile().0 }
}

#[cfg(target_arch = "x86_64")]
pub(super) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Load<f32> for Avx2 {
    #[inline(always)]
    unsafe fn load<const N: usize>(from: *const f32) -> [f64; N] {
        let mut a = [0.0; N];
        for i in (0..N).step_by(4) {
            // SAFETY: see `Load::load`.
            unsafe { _mm256_storeu_pd(&mut a[i], _mm256_cvtps_pd(part(from, i))) };
        }
        a
    }
}

#[cfg(target_arch = "x86_64")]
impl Load<f64> for Avx2 {
    #[inline(always)]
    unsafe fn load<const N: usize>(from: *const f64) -> [f64; N] {
        let mut a = [0.0; N];
        for i in (0..N).step_by(4) {
            // SAFETY: see `Load::load`.
            unsafe { _mm256_storeu_pd(&mut a[i], _mm256_set_m128d(part(from, i + 2), part(from, i))) };
        }
        a
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Load<f32> for Avx512 {
    #[inline(always)]
    unsafe fn load<const N: usize>(from: *const f32) -> [f64; N] {
        let mut a = [0.0; N];
        for i in (0..N).step_by(8) {
            // SAFETY: see `Load::load`.
            unsafe {
                let both = _mm256_set_m128(part(from, i + 4), part(from, i));
                _mm512_storeu_pd(&mut a[i], _mm512_cvtps_pd(both));
            }
        }
        a
    }
}

#[cfg(target_arch = "x86_64")]
impl Load<f64> for Avx512 {
    #[inline(always)]
    unsafe fn load<const N: usize>(from: *const f64) -> [f64; N] {
        let mut a = [0.0; N];
        for i in (0..N).step_by(8) {
            // SAFETY: see `Load::load`.
            unsafe {
                let low = _mm256_set_m128d(part(from, i + 2), part(from, i));
                let high = _mm256_set_m128d(part(from, i + 6), part(from, i + 4));
                let all = _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(low), high);
                _mm512_storeu_pd(&mut a[i], all);
            }
        }
        a
    }
}
