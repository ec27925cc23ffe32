//! Vectors of integers that wrap, or of f64, and sums of products in them.

use crate::math::number::Number;

/// A vector type and its operations.
///
/// # Safety
/// The methods may be called only on a machine that supports their instructions, inlined into a function that has them enabled.
/// Loads and stores access [`Lanes::COUNT`] elements, the `_first` forms exactly the first `n`. No alignment is required.
#[allow(clippy::missing_safety_doc, reason = "the requirements above apply to every method")]
pub(super) unsafe trait Lanes: 'static {
    /// The elements.
    type Element: Copy;
    /// The vector.
    type V: Copy;
    /// A factor, in the form in which it multiplies many others.
    type Factor: Copy;
    /// A sum of products that is not finished.
    type Sum: Copy;
    /// The number of elements in a vector.
    const COUNT: usize;
    /// The number of rows, a power of two, whose sums in two vectors fit the registers.
    const ROWS: usize;

    /// A vector with all lanes `x`.
    unsafe fn splat(x: Self::Element) -> Self::V;
    /// The vector at `p`.
    unsafe fn load(p: *const Self::Element) -> Self::V;
    /// The vector at `p`, whose other lanes are zeros.
    unsafe fn load_first(p: *const Self::Element, n: usize) -> Self::V;
    /// Stores the vector at `p`.
    unsafe fn store(v: Self::V, p: *mut Self::Element);
    /// Stores the first elements at `p`.
    unsafe fn store_first(v: Self::V, p: *mut Self::Element, n: usize);
    /// `x + y`.
    unsafe fn add(x: Self::V, y: Self::V) -> Self::V;
    /// The vector as a factor.
    unsafe fn factor(v: Self::V) -> Self::Factor;
    /// An empty sum.
    unsafe fn zero() -> Self::Sum;
    /// `sum + x * y`.
    unsafe fn add_product(sum: Self::Sum, x: Self::V, y: Self::Factor) -> Self::Sum;
    /// The finished sum.
    unsafe fn finish(sum: Self::Sum) -> Self::V;
}

/// A plain array, which the compiler makes vectors of.
pub(super) struct Plain<E, const N: usize>(std::marker::PhantomData<E>);

macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: the methods access the elements that the trait names.
        unsafe impl<const N: usize> Lanes for Plain<$t, N> {
            type Element = $t;
            type V = [$t; N];
            type Factor = [$t; N];
            type Sum = [$t; N];
            const COUNT: usize = N;
            const ROWS: usize = 2;

            #[inline(always)]
            unsafe fn splat(x: $t) -> [$t; N] {
                [x; N]
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> [$t; N] {
                // SAFETY: guaranteed by the caller.
                unsafe { p.cast::<[$t; N]>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn load_first(p: *const $t, n: usize) -> [$t; N] {
                // SAFETY: as above.
                unsafe { copy_first(p, n) }
            }
            #[inline(always)]
            unsafe fn store(v: [$t; N], p: *mut $t) {
                // SAFETY: as above.
                unsafe { p.cast::<[$t; N]>().write_unaligned(v) }
            }
            #[inline(always)]
            unsafe fn store_first(v: [$t; N], p: *mut $t, n: usize) {
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), p, n.min(N)) }
            }
            #[inline(always)]
            unsafe fn add(x: [$t; N], y: [$t; N]) -> [$t; N] {
                std::array::from_fn(|i| x[i].add(y[i]))
            }
            #[inline(always)]
            unsafe fn factor(v: [$t; N]) -> [$t; N] {
                v
            }
            #[inline(always)]
            unsafe fn zero() -> [$t; N] {
                [<$t>::default(); N]
            }
            #[inline(always)]
            unsafe fn add_product(mut sum: [$t; N], x: [$t; N], y: [$t; N]) -> [$t; N] {
                for i in 0..N {
                    sum[i] = sum[i].add(x[i].mul(y[i]));
                }
                sum
            }
            #[inline(always)]
            unsafe fn finish(sum: [$t; N]) -> [$t; N] {
                sum
            }
        }
    )* };
}
plain!(i64, i32, i16, f64);

/// The first `n` elements at `p`, followed by zeros.
///
/// # Safety
/// `p` is readable for `n` elements.
#[inline(always)]
unsafe fn copy_first<T: Copy + Default, const N: usize>(p: *const T, n: usize) -> [T; N] {
    let mut v = [T::default(); N];
    // SAFETY: guaranteed by the caller; the array has N elements.
    unsafe { std::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), n.min(N)) };
    v
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::*;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Lanes, copy_first};
    use std::arch::x86_64::*;

    /// Eight i64 of AVX-512.
    pub(in crate::math::lanes) struct I64x8;
    /// Sixteen i32 of AVX-512.
    pub(in crate::math::lanes) struct I32x16;
    /// Four i64 of AVX2.
    pub(in crate::math::lanes) struct I64x4;
    /// Eight i32 of AVX2.
    pub(in crate::math::lanes) struct I32x8;
    /// Sixteen i16 of AVX2. AVX-512 has wider ones, but this set of instructions does not include them.
    pub(in crate::math::lanes) struct I16x16;
    /// Eight f64 of AVX-512.
    pub(in crate::math::lanes) struct F64x8;
    /// Four f64 of AVX2.
    pub(in crate::math::lanes) struct F64x4;

    /// The methods that are single instructions.
    macro_rules! instructions {
        ($v:ty: $count:literal of $e:ty, rows $rows:literal, splat $splat:ident, load $load:ident, store $store:ident, add $add:ident) => {
            type Element = $e;
            type V = $v;
            const COUNT: usize = $count;
            const ROWS: usize = $rows;

            #[inline(always)]
            unsafe fn splat(x: $e) -> $v {
                // SAFETY: see the trait.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $e) -> $v {
                // SAFETY: see the trait.
                unsafe { $load(p.cast()) }
            }
            #[inline(always)]
            unsafe fn store(v: $v, p: *mut $e) {
                // SAFETY: see the trait.
                unsafe { $store(p.cast(), v) }
            }
            #[inline(always)]
            unsafe fn add(x: $v, y: $v) -> $v {
                // SAFETY: see the trait.
                unsafe { $add(x, y) }
            }
        };
    }

    /// The methods of sums that are vectors.
    macro_rules! sums {
        ($v:ty, zero $zero:ident, add $add:ident, multiply $mul:ident) => {
            sums! { $v, zero $zero, |sum, x, y| $add(sum, $mul(x, y)) }
        };
        ($v:ty, zero $zero:ident, |$sum:ident, $x:ident, $y:ident| $add_product:expr) => {
            type Factor = $v;
            type Sum = $v;

            #[inline(always)]
            unsafe fn factor(v: $v) -> $v {
                v
            }
            #[inline(always)]
            unsafe fn zero() -> $v {
                // SAFETY: see the trait.
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn add_product($sum: $v, $x: $v, $y: $v) -> $v {
                // SAFETY: see the trait.
                unsafe { $add_product }
            }
            #[inline(always)]
            unsafe fn finish(sum: $v) -> $v {
                sum
            }
        };
    }

    /// The `_first` methods by masked instructions of AVX-512.
    macro_rules! masked {
        ($v:ty: $e:ty, mask $mask:ty, load $load:ident, store $store:ident) => {
            #[inline(always)]
            unsafe fn load_first(p: *const $e, n: usize) -> $v {
                // SAFETY: see the trait.
                unsafe { $load(((1u32 << n) - 1) as $mask, p.cast()) }
            }
            #[inline(always)]
            unsafe fn store_first(v: $v, p: *mut $e, n: usize) {
                // SAFETY: see the trait.
                unsafe { $store(p.cast(), ((1u32 << n) - 1) as $mask, v) }
            }
        };
    }

    /// The `_first` methods through memory.
    macro_rules! copied {
        ($v:ty: $count:literal of $e:ty) => {
            #[inline(always)]
            unsafe fn load_first(p: *const $e, n: usize) -> $v {
                // SAFETY: see the trait.
                unsafe { Self::load(copy_first::<$e, $count>(p, n).as_ptr()) }
            }
            #[inline(always)]
            unsafe fn store_first(v: $v, p: *mut $e, n: usize) {
                let mut elements = [<$e>::default(); $count];
                // SAFETY: see the trait.
                unsafe {
                    Self::store(v, elements.as_mut_ptr());
                    std::ptr::copy_nonoverlapping(elements.as_ptr(), p, n.min($count));
                }
            }
        };
    }

    // SAFETY: the methods access the elements that the trait names.
    unsafe impl Lanes for I64x8 {
        instructions! {
            __m512i: 8 of i64, rows 8,
            splat _mm512_set1_epi64, load _mm512_loadu_si512, store _mm512_storeu_si512, add _mm512_add_epi64
        }
        sums! { __m512i, zero _mm512_setzero_si512, add _mm512_add_epi64, multiply _mm512_mullo_epi64 }
        masked! { __m512i: i64, mask __mmask8, load _mm512_maskz_loadu_epi64, store _mm512_mask_storeu_epi64 }
    }

    // SAFETY: as above.
    unsafe impl Lanes for I32x16 {
        instructions! {
            __m512i: 16 of i32, rows 8,
            splat _mm512_set1_epi32, load _mm512_loadu_si512, store _mm512_storeu_si512, add _mm512_add_epi32
        }
        sums! { __m512i, zero _mm512_setzero_si512, add _mm512_add_epi32, multiply _mm512_mullo_epi32 }
        masked! { __m512i: i32, mask __mmask16, load _mm512_maskz_loadu_epi32, store _mm512_mask_storeu_epi32 }
    }

    // SAFETY: as above.
    unsafe impl Lanes for I16x16 {
        instructions! {
            __m256i: 16 of i16, rows 4,
            splat _mm256_set1_epi16, load _mm256_loadu_si256, store _mm256_storeu_si256, add _mm256_add_epi16
        }
        sums! { __m256i, zero _mm256_setzero_si256, add _mm256_add_epi16, multiply _mm256_mullo_epi16 }
        copied! { __m256i: 16 of i16 }
    }

    // SAFETY: as above.
    unsafe impl Lanes for I32x8 {
        instructions! {
            __m256i: 8 of i32, rows 4,
            splat _mm256_set1_epi32, load _mm256_loadu_si256, store _mm256_storeu_si256, add _mm256_add_epi32
        }
        sums! { __m256i, zero _mm256_setzero_si256, add _mm256_add_epi32, multiply _mm256_mullo_epi32 }
        copied! { __m256i: 8 of i32 }
    }

    // SAFETY: as above.
    unsafe impl Lanes for F64x8 {
        instructions! {
            __m512d: 8 of f64, rows 8,
            splat _mm512_set1_pd, load _mm512_loadu_pd, store _mm512_storeu_pd, add _mm512_add_pd
        }
        sums! { __m512d, zero _mm512_setzero_pd, |sum, x, y| _mm512_fmadd_pd(x, y, sum) }
        masked! { __m512d: f64, mask __mmask8, load _mm512_maskz_loadu_pd, store _mm512_mask_storeu_pd }
    }

    // SAFETY: as above.
    unsafe impl Lanes for F64x4 {
        instructions! {
            __m256d: 4 of f64, rows 4,
            splat _mm256_set1_pd, load _mm256_loadu_pd, store _mm256_storeu_pd, add _mm256_add_pd
        }
        sums! { __m256d, zero _mm256_setzero_pd, |sum, x, y| _mm256_fmadd_pd(x, y, sum) }
        copied! { __m256d: 4 of f64 }
    }

    // SAFETY: as above. AVX2 multiplies only 32 bits. With `x = 2^32 * a + b` and `y = 2^32 * c + d`, `x * y` is
    // `2^32 * (a * d + b * c) + b * d` without what wraps. The parts are summed apart, and moved to their places in the end.
    unsafe impl Lanes for I64x4 {
        instructions! {
            __m256i: 4 of i64, rows 2,
            splat _mm256_set1_epi64x, load _mm256_loadu_si256, store _mm256_storeu_si256, add _mm256_add_epi64
        }
        copied! { __m256i: 4 of i64 }
        type Factor = [__m256i; 2];
        type Sum = [__m256i; 2];

        #[inline(always)]
        unsafe fn factor(v: __m256i) -> [__m256i; 2] {
            // SAFETY: see the trait.
            unsafe { [v, _mm256_shuffle_epi32::<0xb1>(v)] }
        }
        #[inline(always)]
        unsafe fn zero() -> [__m256i; 2] {
            // SAFETY: see the trait.
            unsafe { [_mm256_setzero_si256(); 2] }
        }
        #[inline(always)]
        unsafe fn add_product(sum: [__m256i; 2], x: __m256i, y: [__m256i; 2]) -> [__m256i; 2] {
            // SAFETY: see the trait.
            unsafe {
                [
                    _mm256_add_epi64(sum[0], _mm256_mul_epu32(x, y[0])),
                    _mm256_add_epi32(sum[1], _mm256_mullo_epi32(x, y[1])),
                ]
            }
        }
        #[inline(always)]
        unsafe fn finish(sum: [__m256i; 2]) -> __m256i {
            // SAFETY: see the trait.
            unsafe {
                let swapped = _mm256_shuffle_epi32::<0xb1>(sum[1]);
                let high = _mm256_slli_epi64::<32>(_mm256_add_epi32(sum[1], swapped));
                _mm256_add_epi64(sum[0], high)
            }
        }
    }
}
