//! Products of integers, which wrap, and of f64: the kernels for one instruction set each ([`tile`]), and the blocks that a product is
//! cut into ([`blocks`]). Matrix products, convolutions and the attention of f64 use both.
//!
//! Bytes are multiplied in lanes of 16 bits, because no instruction multiplies bytes lane by lane. The low bits of sums of products do
//! not depend on the high ones.

mod blocks;
mod few;
mod method;
mod pack;
mod placed;
#[cfg(test)]
mod tests;
mod tile;
mod vectors;

pub(super) use blocks::{Columns, Product, StridedColumns, multiply, multiply_by};
pub(super) use method::ProductMethod;
pub(super) use placed::{PackedRows, PlacedRows};

/// Evaluates `$body` with `$t` as the element type of a dtype, which is f64 or an integer of 8 to 64 bits.
macro_rules! with_lane_element {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $crate::types::DType::F64 => {
                type $t = f64;
                $body
            }
            $crate::types::DType::I64 => {
                type $t = i64;
                $body
            }
            $crate::types::DType::I32 => {
                type $t = i32;
                $body
            }
            $crate::types::DType::I16 => {
                type $t = i16;
                $body
            }
            $crate::types::DType::I8 => {
                type $t = i8;
                $body
            }
            _ => {
                type $t = u8;
                $body
            }
        }
    };
}
pub(super) use with_lane_element;

use super::number::Number;
use crate::target::Isa;
use tile::Kernels;

/// A type that is multiplied.
pub(super) trait LaneElement: Number {
    /// The type in which it is multiplied.
    type Lane: LaneElement<Lane = Self::Lane>;
    /// Whether it is its own lane.
    const IS_LANE: bool;
    /// Whether sums are the same in any order, so that the way to compute a product may depend on how threads divide it.
    const IN_ANY_ORDER: bool;
    /// The element in a lane.
    fn widen(self) -> Self::Lane;
    /// The low bits of a lane.
    fn narrow(lane: Self::Lane) -> Self;
    /// The kernels for an instruction set.
    fn kernels(isa: Isa) -> &'static Kernels<Self>;
}

/// Defines the kernels of a type for one instruction set.
macro_rules! kernels {
    ($t:ty, $lanes:ty $(, $features:literal)?) => {{
        type L = $lanes;
        $(#[target_feature(enable = $features)])?
        unsafe fn panel(j: &tile::PanelJob<$t>) {
            // SAFETY: guaranteed by the caller, who chose the instructions because the machine has them.
            unsafe { tile::panel_body::<$t, L>(j) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn sums(j: &tile::RowsJob<<$t as LaneElement>::Lane>) {
            // SAFETY: as above.
            unsafe { tile::sums_body::<L>(j) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn dots(j: &tile::RowsJob<<$t as LaneElement>::Lane>) {
            // SAFETY: as above.
            unsafe { tile::dots_body::<L>(j) }
        }
        const KERNELS: Kernels<$t> = Kernels {
            lanes: <L as vectors::Lanes>::COUNT,
            rows: <L as vectors::Lanes>::ROWS,
            panel,
            sums,
            dots,
        };
        &KERNELS
    }};
}

macro_rules! elements {
    ($($t:ty, $lane:ty, $wide:ident, $narrow:ident, $plain:literal, $wraps:literal;)*) => { $(
        impl LaneElement for $t {
            type Lane = $lane;
            const IS_LANE: bool = size_of::<$t>() == size_of::<$lane>();
            const IN_ANY_ORDER: bool = $wraps;
            #[inline(always)]
            fn widen(self) -> $lane {
                self as $lane
            }
            #[inline(always)]
            fn narrow(lane: $lane) -> $t {
                lane as $t
            }
            fn kernels(isa: Isa) -> &'static Kernels<$t> {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => kernels!($t, vectors::$wide, "avx512f,avx512dq,avx512vl,avx2,fma"),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => kernels!($t, vectors::$narrow, "avx2,fma"),
                    _ => kernels!($t, vectors::Plain<$lane, $plain>),
                }
            }
        }
    )* };
}
elements! {
    i64, i64, I64x8, I64x4, 2, true;
    i32, i32, I32x16, I32x8, 4, true;
    i16, i16, I16x16, I16x16, 8, true;
    i8, i16, I16x16, I16x16, 8, true;
    u8, i16, I16x16, I16x16, 8, true;
    f64, f64, F64x8, F64x4, 2, false;
}
