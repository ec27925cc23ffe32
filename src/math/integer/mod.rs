//! Products of integers, which wrap: the kernels for one instruction set each ([`tile`]), and the blocks that a product is cut into
//! ([`blocks`]). Matrix products and convolutions use both.
//!
//! Bytes are multiplied in lanes of 16 bits, because no instruction multiplies bytes lane by lane. The low bits of sums of products do
//! not depend on the high ones.

mod blocks;
mod lanes;
#[cfg(test)]
mod tests;
mod tile;

pub(super) use blocks::{Columns, Product, StridedColumns, multiply};

use super::number::Number;
use crate::target::Isa;
use tile::Kernels;

/// An integer type that is multiplied.
pub(super) trait IntegerElement: Number {
    /// The type in which it is multiplied.
    type Lane: IntegerElement<Lane = Self::Lane>;
    /// Whether it is its own lane.
    const IS_LANE: bool;
    /// The integer in a lane.
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
        unsafe fn sums(j: &tile::RowsJob<<$t as IntegerElement>::Lane>) {
            // SAFETY: as above.
            unsafe { tile::sums_body::<L>(j) }
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn dots(j: &tile::RowsJob<<$t as IntegerElement>::Lane>) {
            // SAFETY: as above.
            unsafe { tile::dots_body::<L>(j) }
        }
        const KERNELS: Kernels<$t> = Kernels {
            lanes: <L as lanes::Lanes>::COUNT,
            rows: <L as lanes::Lanes>::ROWS,
            panel,
            sums,
            dots,
        };
        &KERNELS
    }};
}

macro_rules! elements {
    ($($t:ty, $lane:ty, $wide:ident, $narrow:ident, $plain:literal;)*) => { $(
        impl IntegerElement for $t {
            type Lane = $lane;
            const IS_LANE: bool = size_of::<$t>() == size_of::<$lane>();
            fn widen(self) -> $lane {
                self as $lane
            }
            fn narrow(lane: $lane) -> $t {
                lane as $t
            }
            fn kernels(isa: Isa) -> &'static Kernels<$t> {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => kernels!($t, lanes::$wide, "avx512f,avx512dq,avx512vl,avx2,fma"),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => kernels!($t, lanes::$narrow, "avx2,fma"),
                    _ => kernels!($t, lanes::Plain<$lane, $plain>),
                }
            }
        }
    )* };
}
elements! {
    i64, i64, I64x8, I64x4, 2;
    i32, i32, I32x16, I32x8, 4;
    i16, i16, I16x16, I16x16, 8;
    i8, i16, I16x16, I16x16, 8;
    u8, i16, I16x16, I16x16, 8;
}
