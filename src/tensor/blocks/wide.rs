//! Transposes of blocks of whole vectors, with AVX2 and AVX-512: blocks of 32 or 64 bytes by as many lines as these have elements.
//!
//! The lanes of a vector, 16 bytes each, belong to blocks of 16 bytes beside each other, which the same instructions transpose. Then these
//! blocks change places. A cache line of the source is read once, and with AVX-512 each line of the result is written once: a tile
//! whose rows are a power of two apart has more lines than the set of the cache that they share.

use super::Word;
use crate::target::{Isa, thread_target};
use std::arch::x86_64::*;

/// A function that transposes the whole blocks of a tile. The other arguments are instructions for vectors of this many lanes: zero, a
/// load, a store, the exchange of lanes and both halves of an interleaving.
macro_rules! blocks {
    ($name:ident, $features:literal, $T:ty, $lanes:literal, $zero:ident $load:ident $store:ident $exchange:ident $low:ident $high:ident) => {
        #[target_feature(enable = $features)]
        unsafe fn $name(src: *const u8, line: isize, dst: *mut u8, row: isize, size: [usize; 2]) -> [usize; 2] {
            const SIDE: usize = <$T as Word>::SIDE;
            const BLOCK: usize = $lanes * SIDE;
            let [rows, columns] = size.map(|n| n / BLOCK * BLOCK);
            for (r, c) in blocks_of([rows, columns], BLOCK) {
                // SAFETY: the block lies in the tile, for which the caller vouches.
                unsafe {
                    let src = src.offset(c as isize * line + (r * size_of::<$T>()) as isize);
                    let dst = dst.offset(r as isize * row + (c * size_of::<$T>()) as isize);
                    let mut parts = [[$zero(); SIDE]; $lanes];
                    for i in 0..SIDE {
                        let lines = std::array::from_fn(|l| src.offset((l * SIDE + i) as isize * line));
                        let lines = lines.map(|p: *const u8| $load(p.cast()));
                        for (l, v) in $exchange(lines).into_iter().enumerate() {
                            parts[l][i] = v;
                        }
                    }
                    for (l, part) in parts.iter().enumerate() {
                        let mut a = *part;
                        for _ in 0..SIDE.ilog2() {
                            let b = a;
                            for i in 0..SIDE / 2 {
                                a[2 * i] = $low(b[i], b[i + SIDE / 2]);
                                a[2 * i + 1] = $high(b[i], b[i + SIDE / 2]);
                            }
                        }
                        for (i, v) in a.into_iter().enumerate() {
                            $store(dst.offset((l * SIDE + i) as isize * row).cast(), v);
                        }
                    }
                }
            }
            [rows, columns]
        }
    };
}

/// The first row and column of each block. Rows of blocks are outermost, so that the rows of the result are written whole.
#[inline(always)]
fn blocks_of([rows, columns]: [usize; 2], side: usize) -> impl Iterator<Item = (usize, usize)> {
    let columns = move || (0..columns).step_by(side);
    (0..rows)
        .step_by(side)
        .flat_map(move |r| columns().map(move |c| (r, c)))
}

/// Lane `i` of vector `j` becomes lane `j` of vector `i`.
#[inline]
#[target_feature(enable = "avx512f")]
fn exchange_four([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    const LOW: i32 = 0x44;
    const HIGH: i32 = 0xee;
    const EVEN: i32 = 0x88;
    const ODD: i32 = 0xdd;
    let low = [_mm512_shuffle_i32x4::<LOW>(a, b), _mm512_shuffle_i32x4::<LOW>(c, d)];
    let high = [_mm512_shuffle_i32x4::<HIGH>(a, b), _mm512_shuffle_i32x4::<HIGH>(c, d)];
    [
        _mm512_shuffle_i32x4::<EVEN>(low[0], low[1]),
        _mm512_shuffle_i32x4::<ODD>(low[0], low[1]),
        _mm512_shuffle_i32x4::<EVEN>(high[0], high[1]),
        _mm512_shuffle_i32x4::<ODD>(high[0], high[1]),
    ]
}

/// Lane `i` of vector `j` becomes lane `j` of vector `i`.
#[inline]
#[target_feature(enable = "avx2")]
fn exchange_two([a, b]: [__m256i; 2]) -> [__m256i; 2] {
    const LOW: i32 = 0x20;
    const HIGH: i32 = 0x31;
    [
        _mm256_permute2x128_si256::<LOW>(a, b),
        _mm256_permute2x128_si256::<HIGH>(a, b),
    ]
}

/// Functions that transpose the whole blocks of a tile with the vectors of the target: see [`Word::whole_blocks`].
macro_rules! whole_blocks {
    ($($name:ident: $T:ty, $low:ident $high:ident, $low2:ident $high2:ident;)*) => {
        $(
            /// See [`Word::whole_blocks`].
            ///
            /// # Safety
            /// As for [`TransposeFn`](super::TransposeFn).
            pub(super) unsafe fn $name(
                src: *const u8,
                line: isize,
                dst: *mut u8,
                row: isize,
                size: [usize; 2],
            ) -> [usize; 2] {
                blocks!(avx512, "avx512f,avx512bw", $T, 4,
                    _mm512_setzero_si512 _mm512_loadu_si512 _mm512_storeu_si512 exchange_four $low $high);
                blocks!(avx2, "avx2", $T, 2,
                    _mm256_setzero_si256 _mm256_loadu_si256 _mm256_storeu_si256 exchange_two $low2 $high2);
                let is_large = size.iter().all(|&n| n * size_of::<$T>() >= 64);
                match thread_target().isa() {
                    // SAFETY: the machine has the features of every thread's target; the caller vouches for the memory.
                    Isa::Avx512 if is_large => unsafe { avx512(src, line, dst, row, size) },
                    // SAFETY: as above.
                    Isa::Avx512 | Isa::Avx2 => unsafe { avx2(src, line, dst, row, size) },
                    Isa::Portable => [0, 0],
                }
            }
        )*
    };
}

whole_blocks! {
    whole_blocks_of_u16: u16, _mm512_unpacklo_epi16 _mm512_unpackhi_epi16, _mm256_unpacklo_epi16 _mm256_unpackhi_epi16;
    whole_blocks_of_u32: u32, _mm512_unpacklo_epi32 _mm512_unpackhi_epi32, _mm256_unpacklo_epi32 _mm256_unpackhi_epi32;
    whole_blocks_of_u64: u64, _mm512_unpacklo_epi64 _mm512_unpackhi_epi64, _mm256_unpacklo_epi64 _mm256_unpackhi_epi64;
}
