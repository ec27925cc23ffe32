//! The kernels of depthwise convolution of bytes: `vpdpbusd` multiplies four rows of the input at once.
//!
//! A quad is the bytes of one channel in four input rows, one below the other. A tile reads the rows under some output pixels once,
//! 64 channels at a time, and interleaves them into vectors of 16 quads. Each vector is multiplied with one column of the kernel for each
//! output pixel that it belongs to. Two output rows share quads if the stride is 1: their columns of the kernel are one byte apart.

use crate::math::tile::Tiles;
use std::arch::x86_64::*;

/// The number of channels that are interleaved at once.
pub(super) const BLOCK: usize = 64;
/// The number of quads in a vector.
pub(super) const LANES: usize = 16;
/// The number of bytes of a vector.
pub(super) const VECTOR: usize = 64;
/// The maximum number of output pixels in a row of a tile: as many as have their sums in registers, for two rows.
pub(super) const TILE_PIXELS: usize = 8;
/// The maximum number of groups of four input rows.
pub(super) const GROUPS: usize = 2;
/// The number of bytes of the buffer for quads: 19 columns under eight pixels of 5x5 with stride 2.
pub(super) const QUADS: usize = GROUPS * 19 * (BLOCK / LANES) * VECTOR;

/// Some neighbouring output pixels of one or two rows, for a block of channels. Strides are in elements.
pub(super) struct QuadJob {
    /// The block's first channel in the column under the first tap, for each input row. Null for rows of padding.
    pub rows: [*const u8; 4 * GROUPS],
    /// The number of groups of four rows.
    pub groups: usize,
    /// The range of columns that exist, counted from there.
    pub there: [usize; 2],
    /// The stride between input pixels.
    pub x_pixel: usize,
    /// The number of channels, at most [`BLOCK`].
    pub channels: usize,
    /// Whether the input is signed.
    pub signed: bool,
    /// Working memory of [`QUADS`] bytes.
    pub quads: *mut u8,
    /// The weights of the block: for each vector of channels and group of rows, each column's vector for each output row.
    pub weight: *const u8,
    /// What sums of the block's channels start with.
    pub start: *const i32,
    /// The first sum, and the strides between output rows and pixels.
    pub y: *mut i32,
    pub y_strides: [usize; 2],
    /// The number of output rows and pixels to store.
    pub out: [usize; 2],
}

/// Computes a tile.
pub(super) type QuadFn = unsafe fn(&QuadJob);

/// The kernel for a kernel size, a stride between columns, and a number of output rows.
pub(super) fn tile_kernel(size: usize, stride: usize, rows: usize) -> QuadFn {
    match (size, stride, rows) {
        (3, 1, 1) => convolve_tile::<3, 1, 1>,
        (3, 1, _) => convolve_tile::<3, 1, 2>,
        (3, _, 1) => convolve_tile::<3, 2, 1>,
        (3, _, _) => convolve_tile::<3, 2, 2>,
        (5, 1, 1) => convolve_tile::<5, 1, 1>,
        (5, 1, _) => convolve_tile::<5, 1, 2>,
        (5, _, 1) => convolve_tile::<5, 2, 1>,
        (5, _, _) => convolve_tile::<5, 2, 2>,
        (_, _, 1) => convolve_tile::<7, 1, 1>,
        _ => convolve_tile::<7, 1, 2>,
    }
}

/// The tiles of a row of output pixels.
pub(super) fn row_tiles(pixels: usize) -> Tiles {
    Tiles::new(pixels, TILE_PIXELS)
}

/// `K` columns of the kernel, for windows that are `ST` pixels apart, for `Q` output rows.
///
/// # Safety
/// The job's pointers are valid for its rows, columns and channels. The machine has AVX-512 VNNI and BW.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
unsafe fn convolve_tile<const K: usize, const ST: usize, const Q: usize>(j: &QuadJob) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match j.out[1] {
            0..=4 => convolve_pixels::<K, ST, Q, 4>(j),
            5..=7 => convolve_pixels::<K, ST, Q, 7>(j),
            _ => convolve_pixels::<K, ST, Q, 8>(j),
        }
    }
}

/// Computes `R` pixels, of which the job's are stored.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
unsafe fn convolve_pixels<const K: usize, const ST: usize, const Q: usize, const R: usize>(j: &QuadJob) {
    let columns = (R - 1) * ST + K;
    // SAFETY: guaranteed by the caller.
    unsafe {
        for g in 0..j.groups {
            interleave_rows(j, g, columns);
        }
        for v in 0..j.channels.div_ceil(LANES) {
            convolve_vector::<K, ST, Q, R>(j, v);
        }
    }
}

/// Writes the quads of group `g`: for each column, the vectors of a block of channels.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
unsafe fn interleave_rows(j: &QuadJob, g: usize, columns: usize) {
    let mask = u64::MAX >> (BLOCK - j.channels);
    // Transposes four by four groups of four channels, because unpacking works within lanes of 128 bits.
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let flip = _mm512_set1_epi8(if j.signed { -128 } else { 0 });
    for i in 0..columns {
        let exists = j.there[0] <= i && i < j.there[1];
        let mut x = [_mm512_setzero_si512(); 4];
        for r in 0..4 {
            let row = j.rows[4 * g + r];
            if exists && !row.is_null() {
                // SAFETY: the caller provides the row's pixels.
                x[r] = unsafe { _mm512_maskz_loadu_epi8(mask, row.wrapping_add(i * j.x_pixel).cast()) };
            }
            x[r] = _mm512_permutexvar_epi32(order, _mm512_xor_si512(x[r], flip));
        }
        let low = [_mm512_unpacklo_epi8(x[0], x[1]), _mm512_unpacklo_epi8(x[2], x[3])];
        let high = [_mm512_unpackhi_epi8(x[0], x[1]), _mm512_unpackhi_epi8(x[2], x[3])];
        let quads = [
            _mm512_unpacklo_epi16(low[0], low[1]),
            _mm512_unpackhi_epi16(low[0], low[1]),
            _mm512_unpacklo_epi16(high[0], high[1]),
            _mm512_unpackhi_epi16(high[0], high[1]),
        ];
        for (v, quads) in quads.into_iter().enumerate() {
            // SAFETY: the caller provides the working memory.
            unsafe { _mm512_store_si512(j.quads.add(quad_offset(g, i, v)).cast(), quads) };
        }
    }
}

/// The offset of a vector of quads in the working memory.
#[inline(always)]
fn quad_offset(group: usize, column: usize, vector: usize) -> usize {
    ((group * (QUADS / GROUPS / (BLOCK / LANES) / VECTOR) + column) * (BLOCK / LANES) + vector) * VECTOR
}

/// Computes vector `v` of the block's channels from its quads.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
unsafe fn convolve_vector<const K: usize, const ST: usize, const Q: usize, const R: usize>(j: &QuadJob, v: usize) {
    // SAFETY: the caller provides weights and quads.
    unsafe {
        let mut acc = [[_mm512_loadu_si512(j.start.add(v * LANES).cast()); R]; Q];
        for g in 0..j.groups {
            let weight = j.weight.add((v * j.groups + g) * K * Q * VECTOR);
            let mut w = [[_mm512_setzero_si512(); Q]; K];
            for k in 0..K {
                for q in 0..Q {
                    w[k][q] = _mm512_loadu_si512(weight.add((k * Q + q) * VECTOR).cast());
                }
            }
            // Unrolled by a macro: the compiler does not unroll loops this long, and then cannot keep the sums in registers.
            macro_rules! columns {
                ($($i:literal)*) => { $(
                    if $i < (R - 1) * ST + K {
                        let x = _mm512_load_si512(j.quads.add(quad_offset(g, $i, v)).cast());
                        for r in 0..R {
                            if $i >= r * ST && $i < r * ST + K {
                                for q in 0..Q {
                                    acc[q][r] = _mm512_dpbusd_epi32(acc[q][r], x, w[$i - r * ST][q]);
                                }
                            }
                        }
                    }
                )* };
            }
            columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
        }
        store_sums(j, v, &acc);
    }
}

/// Stores the sums of vector `v` of the block's channels.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
unsafe fn store_sums<const Q: usize, const R: usize>(j: &QuadJob, v: usize, acc: &[[__m512i; R]; Q]) {
    let lanes = (j.channels - v * LANES).min(LANES);
    let mask = u16::MAX >> (LANES - lanes);
    for q in 0..Q {
        for r in 0..R {
            if q < j.out[0] && r < j.out[1] {
                // SAFETY: the caller provides the result.
                unsafe {
                    let y = j.y.add(q * j.y_strides[0] + r * j.y_strides[1] + v * LANES);
                    _mm512_mask_storeu_epi32(y, mask, acc[q][r]);
                }
            }
        }
    }
}
