//! How written elements are combined with the existing ones, for single elements of any dtype and for loops over one element type.

use crate::op::rows::dense::native;
use crate::op::{OpError, OpResult};
use crate::tensor::{
    Element, F16c, Scalar, round_one_to_f16, round_to_bf16, round_to_f16, widen_bf16, widen_f16, widen_one_f16,
};
use crate::types::DType;
use half::{bf16, f16};
use std::hint::{black_box, select_unpredictable};

/// How a written element is combined with the existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::op::rows) enum Reduce {
    Replace,
    Sum,
    Prod,
    Max,
    Min,
}

impl Reduce {
    pub(in crate::op::rows) fn parse(s: &str) -> OpResult<Reduce> {
        Ok(match s {
            "add" | "sum" | "mean" => Reduce::Sum,
            "multiply" | "prod" => Reduce::Prod,
            "amax" => Reduce::Max,
            "amin" => Reduce::Min,
            _ => {
                return Err(OpError::arg(
                    "reduce",
                    format!("reduce argument must be either sum, prod, mean, amax or amin, got {s}"),
                ));
            }
        })
    }

    pub(in crate::op::rows) fn combine(self, dtype: DType, a: Scalar, b: Scalar) -> Scalar {
        if self == Reduce::Replace {
            return b;
        }
        if native(dtype) == DType::I64 {
            let v = self.combine_cells(a.to_i64(), b.to_i64());
            return Scalar::Int(DType::I64, v).cast(dtype);
        }
        // For f32 operands, rounding the f64 sum or product to f32 gives the f32 result.
        Scalar::from_f64(dtype, self.combine_cells(a.to_f64(), b.to_f64()))
    }

    /// Combines elements of one type. Loops are compiled for each way, because the caller's `self` does not change in them.
    #[inline(always)]
    pub(in crate::op::rows) fn combine_cells<T: Cell>(self, a: T, b: T) -> T {
        match self {
            Reduce::Replace => b,
            Reduce::Sum => a.plus(b),
            Reduce::Prod => a.times(b),
            Reduce::Max => a.larger(b),
            Reduce::Min => a.smaller(b),
        }
    }

    /// Combines `v` with element `index` of `bytes`.
    pub(in crate::op::rows) fn update_element(self, dtype: DType, bytes: &mut [u8], index: usize, v: Scalar) {
        let old = Scalar::read(dtype, bytes, index);
        self.combine(dtype, old, v.cast(dtype)).write(bytes, index);
    }
}

/// An element type whose loops are compiled. The other dtypes go through [`Scalar`].
pub(in crate::op::rows) trait Cell: Element + PartialOrd {
    fn is_nan(self) -> bool;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The larger of two, or NaN if one is NaN.
    fn larger(self, other: Self) -> Self;
    /// The smaller of two, or NaN if one is NaN.
    fn smaller(self, other: Self) -> Self;
    /// [`Cell::plus`] in loops that are not vector code, such as those over elements in any places.
    #[inline(always)]
    fn plus_alone(self, other: Self, _: Option<F16c>) -> Self {
        self.plus(other)
    }
    /// [`Cell::times`] in such loops.
    #[inline(always)]
    fn times_alone(self, other: Self, _: Option<F16c>) -> Self {
        self.times(other)
    }
    /// [`Cell::larger`] in such loops.
    #[inline(always)]
    fn larger_alone(self, other: Self, _: Option<F16c>) -> Self {
        self.larger(other)
    }
    /// [`Cell::smaller`] in such loops.
    #[inline(always)]
    fn smaller_alone(self, other: Self, _: Option<F16c>) -> Self {
        self.smaller(other)
    }
    /// The sum `self` of `n` elements, divided by `n`.
    fn over(self, n: u32) -> Self;
    /// The operand that leaves the other one of a sum, product, maximum or minimum unchanged.
    fn identity(reduce: Reduce) -> Self;
    fn from_scalar(v: Scalar) -> Self;
}

macro_rules! float_cells {
    ($($t:ident),*) => { $(impl Cell for $t {
        #[inline(always)]
        fn is_nan(self) -> bool { $t::is_nan(self) }
        fn plus(self, o: $t) -> $t { self + o }
        fn times(self, o: $t) -> $t { self * o }
        fn larger(self, o: $t) -> $t {
            if self.is_nan() || o.is_nan() { $t::NAN } else if o > self { o } else { self }
        }
        fn smaller(self, o: $t) -> $t {
            if self.is_nan() || o.is_nan() { $t::NAN } else if o < self { o } else { self }
        }
        fn over(self, n: u32) -> $t { (self as f64 / n as f64) as $t }
        fn identity(how: Reduce) -> $t {
            match how {
                Reduce::Prod => 1.0,
                Reduce::Max => $t::NEG_INFINITY,
                Reduce::Min => $t::INFINITY,
                Reduce::Sum | Reduce::Replace => 0.0,
            }
        }
        fn from_scalar(v: Scalar) -> $t { v.to_f64() as $t }
    })* };
}
float_cells!(f32, f64);

macro_rules! int_cells {
    ($($t:ident $pick:ident),*) => { $(impl Cell for $t {
        fn is_nan(self) -> bool { false }
        fn plus(self, o: $t) -> $t { self.wrapping_add(o) }
        fn times(self, o: $t) -> $t { self.wrapping_mul(o) }
        // Elements come in any order, so that branches would be mispredicted.
        fn larger(self, o: $t) -> $t { select_unpredictable(o > self, o, self) }
        fn smaller(self, o: $t) -> $t { select_unpredictable(o < self, o, self) }
        fn larger_alone(self, o: $t, _: Option<F16c>) -> $t { int_cells!(@$pick larger $t, self, o) }
        fn smaller_alone(self, o: $t, _: Option<F16c>) -> $t { int_cells!(@$pick smaller $t, self, o) }
        fn over(self, n: u32) -> $t { (self as i64).div_euclid(n as i64) as $t }
        fn identity(how: Reduce) -> $t {
            match how {
                Reduce::Prod => 1,
                Reduce::Max => $t::MIN,
                Reduce::Min => $t::MAX,
                Reduce::Sum | Reduce::Replace => 0,
            }
        }
        fn from_scalar(v: Scalar) -> $t { v.to_i64() as $t }
    })* };
    (@select larger $t:ident, $x:ident, $y:ident) => { $x.larger($y) };
    (@select smaller $t:ident, $x:ident, $y:ident) => { $x.smaller($y) };
    // x86 selects no bytes, so the compiler would branch. The part of a difference on one side of 0 takes no selection, if the compiler does
    // not see what the difference is.
    (@add larger $t:ident, $x:ident, $y:ident) => { ($x as i32 + black_box($y as i32 - $x as i32).max(0)) as $t };
    (@add smaller $t:ident, $x:ident, $y:ident) => { ($x as i32 + black_box($y as i32 - $x as i32).min(0)) as $t };
}
int_cells!(i64 select, i32 select, i16 select, i8 add, u8 add);

#[inline(always)]
fn widen_one_bf16(x: bf16, _: Option<F16c>) -> f32 {
    widen_bf16(x)
}

#[inline(always)]
fn round_one_to_bf16(x: f32, _: Option<F16c>) -> bf16 {
    round_to_bf16(x)
}

/// Half types are computed in f32 and rounded after each step.
macro_rules! half_cells {
    ($($t:ident $widen:path, $round:path, $widen_one:path, $round_one:path);*) => { $(impl Cell for $t {
        #[inline(always)]
        fn is_nan(self) -> bool { $t::is_nan(self) }
        #[inline(always)]
        fn plus_alone(self, o: $t, c: Option<F16c>) -> $t { $round_one($widen_one(self, c) + $widen_one(o, c), c) }
        #[inline(always)]
        fn times_alone(self, o: $t, c: Option<F16c>) -> $t { $round_one($widen_one(self, c) * $widen_one(o, c), c) }
        #[inline(always)]
        fn larger_alone(self, o: $t, c: Option<F16c>) -> $t { $round_one($widen_one(self, c).larger($widen_one(o, c)), c) }
        #[inline(always)]
        fn smaller_alone(self, o: $t, c: Option<F16c>) -> $t { $round_one($widen_one(self, c).smaller($widen_one(o, c)), c) }
        fn plus(self, o: $t) -> $t { $round($widen(self) + $widen(o)) }
        fn times(self, o: $t) -> $t { $round($widen(self) * $widen(o)) }
        fn larger(self, o: $t) -> $t { $round($widen(self).larger($widen(o))) }
        fn smaller(self, o: $t) -> $t { $round($widen(self).smaller($widen(o))) }
        fn over(self, n: u32) -> $t { $round($widen(self).over(n)) }
        fn identity(how: Reduce) -> $t { $t::from_f32(f32::identity(how)) }
        fn from_scalar(v: Scalar) -> $t { $t::from_f32(v.to_f64() as f32) }
    })* };
}
half_cells!(f16 widen_f16, round_to_f16, widen_one_f16, round_one_to_f16; bf16 bf16::to_f32, round_to_bf16, widen_one_bf16, round_one_to_bf16);

/// Runs `$body` with the type `$t` of a dtype's elements, or `$other` for dtypes that are no [`Cell`].
macro_rules! with_cell {
    ($dtype:expr, $t:ident => $body:expr, else $other:expr) => {
        with_cell!(@arms $dtype, $t, $body, $other; F32 f32, F64 f64, F16 f16, BF16 bf16, I64 i64, I32 i32, I16 i16, I8 i8, U8 u8)
    };
    (@arms $dtype:expr, $t:ident, $body:expr, $other:expr; $($d:ident $e:ident),*) => {
        match $dtype {
            $($crate::types::DType::$d => {
                #[allow(unused_imports, reason = "only two types are named by it")]
                use half::{bf16, f16};
                type $t = $e;
                $body
            })*
            _ => $other,
        }
    };
}
pub(in crate::op::rows) use with_cell;
