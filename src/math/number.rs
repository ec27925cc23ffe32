//! Arithmetic for the element types that compute in their own precision: floats, and wrapping integers.

use crate::tensor::Element;

/// An element type with wrapping addition and multiplication.
pub(super) trait Number: Element + PartialOrd + Default {
    /// `self + other`.
    fn add(self, other: Self) -> Self;
    /// `self * other`.
    fn mul(self, other: Self) -> Self;
    /// The number nearest to `x`; integers truncate and wrap.
    fn from_f64(x: f64) -> Self;
    /// The number nearest to `x`; integers truncate and saturate.
    fn bound(x: f64) -> Self;
}

/// Clamps elements to `lo..=hi`. NaN stays NaN.
pub(super) fn clamp_elements<T: Number>(elements: &mut [T], lo: T, hi: T) {
    for y in elements {
        let v = if lo > *y { lo } else { *y };
        *y = if hi < v { hi } else { v };
    }
}

macro_rules! floats {
    ($($t:ty),*) => { $(
        impl Number for $t {
            #[inline(always)]
            fn add(self, other: $t) -> $t { self + other }
            #[inline(always)]
            fn mul(self, other: $t) -> $t { self * other }
            fn from_f64(x: f64) -> $t { x as $t }
            fn bound(x: f64) -> $t { x as $t }
        }
    )* };
}
floats!(f32, f64);

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Number for $t {
            #[inline(always)]
            fn add(self, other: $t) -> $t { self.wrapping_add(other) }
            #[inline(always)]
            fn mul(self, other: $t) -> $t { self.wrapping_mul(other) }
            fn from_f64(x: f64) -> $t { x as i64 as $t }
            fn bound(x: f64) -> $t { x as $t }
        }
    )* };
}
integers!(i64, i32, i16, i8, u8);
