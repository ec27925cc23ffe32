//! The numbers that matrices are computed in.

use super::batch::Results;
use crate::tensor::{Element, Product};
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// f32 or f64. Large matrices are factorised in the dtype that they are stored in, as LAPACK does. What takes little time, such as
/// the factors of rotations, is computed in f64 for both.
pub(crate) trait Real:
    Product
    + Element
    + Default
    + PartialOrd
    + From<f32>
    + Into<f64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Whether a vector register holds twice as many of these numbers as f64.
    const NARROW: bool;
    /// A sum of squares below this counts as zero beside elements of about one. Its terms may have underflowed, and a reflection by them
    /// would not be orthogonal.
    const NEGLIGIBLE: Self;

    /// The nearest number.
    fn nearest(x: f64) -> Self;
    /// The magnitude.
    fn abs(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// The numbers as results.
    fn results(v: Vec<Self>) -> Results;
}

macro_rules! real {
    ($t:ty, $dtype:ident, $narrow:literal, $nothing:literal) => {
        impl Real for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const NARROW: bool = $narrow;
            const NEGLIGIBLE: $t = $nothing;

            #[inline(always)]
            fn nearest(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn abs(self) -> $t {
                self.abs()
            }
            #[inline(always)]
            fn sqrt(self) -> $t {
                self.sqrt()
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                self.is_finite()
            }
            fn results(v: Vec<$t>) -> Results {
                Results::$dtype(v)
            }
        }
    };
}

real!(f32, F32, true, 1e-36);
real!(f64, F64, false, 1e-280);

/// Evaluates an expression with `T` as the type that some [`Matrices`](super::batch::Matrices) are computed in.
macro_rules! in_dtype {
    ($matrices:expr, T => $body:expr) => {
        match $matrices.are_narrow() {
            true => {
                type T = f32;
                $body
            }
            false => {
                type T = f64;
                $body
            }
        }
    };
}
pub(super) use in_dtype;
