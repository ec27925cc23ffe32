//! Vectors of f32 behind one trait, so that a kernel is written once and compiled for each [`Isa`](super::Isa).
//!
//! Every method is `#[inline(always)]` and becomes one or a few instructions when it is inlined into a function that
//! has the level's target features (see `per_isa!`). Calling it from any other function would be slow or, if the
//! machine lacks the instructions, undefined. For this reason, and because pointers must be valid, the methods are
//! unsafe.

/// Loads the cache line that contains a byte into all caches, if the address is valid.
#[inline(always)]
pub(super) fn prefetch(p: *const u8) {
    #[cfg(target_arch = "x86_64")]
    hint_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// Loads the cache line that contains a byte into the L2 cache, if the address is valid.
#[inline(always)]
pub(super) fn prefetch_to_l2(p: *const u8) {
    #[cfg(target_arch = "x86_64")]
    hint_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(p);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn hint_prefetch<const HINT: i32>(p: *const u8) {
    // SAFETY: SSE is part of x86-64, and a prefetch does not fault.
    unsafe { std::arch::x86_64::_mm_prefetch::<HINT>(p.cast()) };
}

/// A vector type and its operations.
///
/// # Safety
/// The methods may be called only on a machine that supports the level's instructions. Loads and stores access
/// [`Simd::LANES`] elements, the `_first` forms exactly the first `n`. No alignment is required.
#[allow(clippy::missing_safety_doc, reason = "the requirements above apply to every method")]
pub(super) unsafe trait Simd: Copy + 'static {
    /// The vector type.
    type V: Copy;
    /// The number of elements in a vector.
    const LANES: usize;
    /// The level whose vectors have half as many elements, for cases that would leave half of a vector empty. The level
    /// itself if smaller vectors gain nothing.
    type Half: Simd;

    /// A vector with all lanes `x`, of which [`Simd::lower_half`] takes the first half without an instruction.
    #[inline(always)]
    unsafe fn splat_for_both(x: f32) -> Self::V {
        // SAFETY: as for `splat`.
        unsafe { Self::splat(x) }
    }
    /// `x * y + z` on half a vector, where `x` is the element `index * SCALE + AT` bytes after `base`. For loop bodies
    /// in which the compiler would otherwise compute each address with an addition. `SCALE` is 1, 2, 4 or 8.
    #[inline(always)]
    unsafe fn half_fma_at<const SCALE: usize, const AT: usize>(
        base: *const u8,
        index: usize,
        y: <Self::Half as Simd>::V,
        z: <Self::Half as Simd>::V,
    ) -> <Self::Half as Simd>::V {
        // SAFETY: the caller provides the element.
        unsafe {
            let x = *base.wrapping_add(index * SCALE + AT).cast::<f32>();
            Self::Half::fma(Self::Half::splat(x), y, z)
        }
    }
    /// Four vectors. Vector `i` repeats, in every group of four lanes, lane `i` of the group.
    unsafe fn spread_fours(v: Self::V) -> [Self::V; 4];
    /// The first half of a vector, or all of it if [`Simd::Half`] is the level itself.
    unsafe fn lower_half(v: Self::V) -> <Self::Half as Simd>::V;
    /// A vector with all lanes `x`.
    unsafe fn splat(x: f32) -> Self::V;
    /// Reads a vector.
    unsafe fn load(p: *const f32) -> Self::V;
    /// Writes a vector.
    unsafe fn store(p: *mut f32, v: Self::V);
    /// The lanes to read.
    type Mask: Copy;
    /// The mask of the first `n <= LANES` lanes.
    unsafe fn mask(n: usize) -> Self::Mask;
    /// Reads the lanes of a mask. The others are 0 and are not read.
    unsafe fn load_masked(p: *const f32, m: Self::Mask) -> Self::V;
    /// Reads the first `n <= LANES` lanes. The others are 0.
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V;
    /// Writes the first `n <= LANES` lanes.
    unsafe fn store_first(p: *mut f32, n: usize, v: Self::V);
    /// `a + b`.
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once if the level has the instruction.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a > b ? a : b`: gives `b` if either is NaN or both are zero.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? a : b`: gives `b` if either is NaN or both are zero.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? x : y`.
    unsafe fn select_lt(a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// `2^n` for integral `n` in -126..=127.
    unsafe fn pow2(n: Self::V) -> Self::V;
    /// The elements with even index of the `2 * LANES` at `p`.
    unsafe fn load_even(p: *const f32) -> Self::V;

    /// [`Simd::LANES`] signed bytes as numbers.
    unsafe fn load_i8(p: *const i8) -> Self::V;
    /// [`Simd::LANES`] 16-bit integers as numbers.
    unsafe fn load_i16(p: *const i16) -> Self::V;
    /// The low and the high nibbles of [`Simd::LANES`] bytes, each minus 8, as numbers.
    unsafe fn load_nibbles(p: *const u8) -> [Self::V; 2];
    /// Byte `i` of each of [`Simd::LANES`] words, signed, as numbers.
    #[inline(always)]
    unsafe fn load_byte_of(p: *const u32, i: usize) -> Self::V {
        let mut x = [0f32; 16];
        // SAFETY: the caller provides the words; the array has a vector.
        unsafe {
            for (l, x) in x.iter_mut().enumerate().take(Self::LANES) {
                *x = (*p.add(l) >> (8 * i)) as i8 as f32;
            }
            Self::load(x.as_ptr())
        }
    }
    /// Nibble `i` of each of [`Simd::LANES`] words, minus 8, as numbers.
    #[inline(always)]
    unsafe fn load_nibble_of(p: *const u32, i: usize) -> Self::V {
        let mut x = [0f32; 16];
        // SAFETY: the caller provides the words; the array has a vector.
        unsafe {
            for (l, x) in x.iter_mut().enumerate().take(Self::LANES) {
                *x = (*p.add(l) >> (4 * i) & 15) as f32 - 8.0;
            }
            Self::load(x.as_ptr())
        }
    }

    /// The sum of the lanes, in a fixed tree order.
    #[inline(always)]
    unsafe fn sum_lanes(v: Self::V) -> f32 {
        let mut x = [0f32; 16];
        // SAFETY: the array holds the largest vector.
        unsafe { Self::store(x.as_mut_ptr(), v) };
        let mut n = Self::LANES / 2;
        while n > 0 {
            for i in 0..n {
                x[i] += x[i + n];
            }
            n /= 2;
        }
        x[0]
    }

    /// [`Simd::sum_lanes`] of four vectors, in the same order.
    #[inline(always)]
    unsafe fn sum_lanes_of_four(v: [Self::V; 4]) -> [f32; 4] {
        let mut sums = [0f32; 4];
        for i in 0..4 {
            // SAFETY: as for `sum_lanes`.
            sums[i] = unsafe { Self::sum_lanes(v[i]) };
        }
        sums
    }

    /// The greatest lane. A lane that is NaN may or may not win.
    #[inline(always)]
    unsafe fn max_lane(v: Self::V) -> f32 {
        let mut x = [f32::NEG_INFINITY; 16];
        // SAFETY: the array holds the largest vector.
        unsafe { Self::store(x.as_mut_ptr(), v) };
        let mut n = Self::LANES / 2;
        while n > 0 {
            for i in 0..n {
                x[i] = if x[i + n] > x[i] { x[i + n] } else { x[i] };
            }
            n /= 2;
        }
        x[0]
    }
}

/// Four lanes in plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Portable;

macro_rules! lanewise {
    ($f:expr, $($x:ident),*) => {{
        let mut out = [0f32; 4];
        let mut i = 0;
        while i < 4 {
            out[i] = $f($($x[i]),*);
            i += 1;
        }
        out
    }};
}

// SAFETY: plain Rust; the pointer methods touch what the trait says.
unsafe impl Simd for Portable {
    type V = [f32; 4];
    const LANES: usize = 4;
    type Half = Portable;
    #[inline(always)]
    unsafe fn lower_half(v: [f32; 4]) -> [f32; 4] {
        v
    }
    #[inline(always)]
    unsafe fn spread_fours(v: [f32; 4]) -> [[f32; 4]; 4] {
        v.map(|x| [x; 4])
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 4] {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; 4] {
        // SAFETY: the caller provides four readable elements.
        unsafe { p.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: [f32; 4]) {
        // SAFETY: the caller provides four writable elements.
        unsafe { p.cast::<[f32; 4]>().write_unaligned(v) }
    }
    type Mask = usize;
    #[inline(always)]
    unsafe fn mask(n: usize) -> usize {
        n
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const f32, n: usize) -> [f32; 4] {
        // SAFETY: the caller provides the mask's elements.
        unsafe { Self::load_first(p, n) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> [f32; 4] {
        let mut v = [0f32; 4];
        // SAFETY: the caller provides `n <= 4` readable elements.
        unsafe { std::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), n) };
        v
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, n: usize, v: [f32; 4]) {
        // SAFETY: the caller provides `n <= 4` writable elements.
        unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), p, n) };
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        lanewise!(|x: f32, y: f32| x + y, a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        lanewise!(|x: f32, y: f32| x - y, a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        lanewise!(|x: f32, y: f32| x * y, a, b)
    }
    #[inline(always)]
    unsafe fn div(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        lanewise!(|x: f32, y: f32| x / y, a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        lanewise!(|x: f32, y: f32, z: f32| x * y + z, a, b, c)
    }
    #[inline(always)]
    unsafe fn max(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        lanewise!(|x: f32, y: f32| if x > y { x } else { y }, a, b)
    }
    #[inline(always)]
    unsafe fn min(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        lanewise!(|x: f32, y: f32| if x < y { x } else { y }, a, b)
    }
    #[inline(always)]
    unsafe fn select_lt(a: [f32; 4], b: [f32; 4], x: [f32; 4], y: [f32; 4]) -> [f32; 4] {
        lanewise!(|a: f32, b: f32, x: f32, y: f32| if a < b { x } else { y }, a, b, x, y)
    }
    #[inline(always)]
    unsafe fn pow2(n: [f32; 4]) -> [f32; 4] {
        lanewise!(|n: f32| f32::from_bits(((n as i32).wrapping_add(127) as u32) << 23), n)
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> [f32; 4] {
        // SAFETY: the caller provides four readable elements.
        unsafe { p.cast::<[i8; 4]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn load_i16(p: *const i16) -> [f32; 4] {
        // SAFETY: the caller provides four readable elements.
        unsafe { p.cast::<[i16; 4]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn load_nibbles(p: *const u8) -> [[f32; 4]; 2] {
        // SAFETY: the caller provides four readable elements.
        let bytes = unsafe { p.cast::<[u8; 4]>().read_unaligned() };
        [
            bytes.map(|b| f32::from(b & 15) - 8.0),
            bytes.map(|b| f32::from(b >> 4) - 8.0),
        ]
    }
    #[inline(always)]
    unsafe fn load_even(p: *const f32) -> [f32; 4] {
        // SAFETY: the caller provides eight readable elements.
        unsafe { [*p, *p.add(2), *p.add(4), *p.add(6)] }
    }
}

mod bf16;
pub(super) use bf16::Bf16;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
pub(super) mod fours;
#[cfg(target_arch = "x86_64")]
mod x86;
