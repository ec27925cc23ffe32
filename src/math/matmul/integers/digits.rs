//! Products of rows with integers by `vpdpbusd`, which multiplies four bytes at a time.
//!
//! The elements of a row are rounded to integers of 23 bits, with a power of two for each [`BLOCK`] of them as their scale, and the
//! integers are taken apart into three signed bytes, the digits. The integers of B, with an offset that makes them unsigned, are multiplied by
//! each digit. These sums are exact. An element is off by at most 2⁻²² of the largest of its block, which is less than what rounding
//! loses when numbers of this size are summed in f32. Rows with infinities or NaN have no digits.

use super::form::StoredWidth;
use super::kernels::{AHEAD, FewRows, ProductJob, multiply_in_fours};
use crate::math::scratch::{self, Scratch};
use crate::math::simd::{Avx512, prefetch};
use std::arch::x86_64::*;

/// The number of product indices whose elements share a scale.
const BLOCK: usize = super::QUAD_BLOCK;
/// The number of digits of an element.
const DIGITS: usize = 3;
/// The number of lanes of a vector.
const LANES: usize = 16;

/// Some rows as digits.
pub(in crate::math::matmul) struct Digits {
    k: usize,
    /// For each row and digit, a byte for each element, from the lowest digit on.
    bytes: Scratch,
    /// For each row and block: the sum of each digit, i32, and the scale.
    blocks: Scratch,
}

/// What a block of a row has besides its digits.
#[derive(Clone, Copy)]
#[repr(C)]
struct BlockSums {
    sums: [i32; DIGITS],
    scale: f32,
}

impl BlockSums {
    /// The sum of the block's integers.
    fn sum(&self) -> f32 {
        let [low, middle, high] = self.sums.map(i64::from);
        ((high << 16) + (middle << 8) + low) as f32
    }
}

impl Digits {
    /// The digits of the rows of A, whose length is `k`, a multiple of [`BLOCK`]. `None` if an element is not finite.
    ///
    /// # Safety
    /// The pointers of `rows` are valid. The machine has AVX-512.
    pub(super) unsafe fn new(rows: &FewRows, k: usize) -> Option<Digits> {
        let mut digits = Digits {
            k,
            bytes: scratch::take_buffer((rows.count * DIGITS * k).div_ceil(4)),
            blocks: scratch::take_buffer(rows.count * (k / BLOCK) * (size_of::<BlockSums>() / 4)),
        };
        let [a_row, a_k] = rows.a_strides;
        let mut block = [0f32; BLOCK];
        for (r, b) in (0..rows.count).flat_map(|r| (0..k / BLOCK).map(move |b| (r, b))) {
            let mut x = rows.a.wrapping_add(r * a_row + b * BLOCK * a_k);
            // SAFETY: guaranteed by the caller; the buffers have the block.
            unsafe {
                if a_k != 1 {
                    for (i, to) in block.iter_mut().enumerate() {
                        *to = *x.add(i * a_k);
                    }
                    x = block.as_ptr();
                }
                let to = digits.bytes.as_mut_ptr().cast::<i8>().add(r * DIGITS * k + b * BLOCK);
                let sums = split_block(x, to, k)?;
                let blocks = digits.blocks.as_mut_ptr().cast::<BlockSums>();
                *blocks.add(r * (k / BLOCK) + b) = sums;
            }
        }
        Some(digits)
    }

    fn row(&self, r: usize) -> DigitRow {
        DigitRow {
            bytes: self.bytes.as_ptr().cast::<i8>().wrapping_add(r * DIGITS * self.k),
            blocks: self
                .blocks
                .as_ptr()
                .cast::<BlockSums>()
                .wrapping_add(r * (self.k / BLOCK)),
        }
    }
}

/// A row of [`Digits`].
#[derive(Clone, Copy)]
struct DigitRow {
    bytes: *const i8,
    blocks: *const BlockSums,
}

/// Writes the digits of [`BLOCK`] elements from `x` on to three places that are `plane` bytes apart. `None` if an element is not
/// finite.
///
/// # Safety
/// The pointers are valid. The machine has AVX-512.
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
unsafe fn split_block(x: *const f32, to: *mut i8, plane: usize) -> Option<BlockSums> {
    // SAFETY: guaranteed by the caller.
    let x = unsafe { [_mm512_loadu_ps(x), _mm512_loadu_ps(x.add(LANES))] };
    let largest = _mm512_reduce_max_epi32(_mm512_max_epi32(
        _mm512_castps_si512(_mm512_abs_ps(x[0])),
        _mm512_castps_si512(_mm512_abs_ps(x[1])),
    ));
    // Of the largest element, with the bias of 127. With the scale that belongs to it, elements are below 2^22. The least scale is the
    // smallest normal number.
    let exponent = (largest >> 23).max(22);
    if exponent == 255 {
        return None;
    }
    let power = |e: i32| f32::from_bits((e as u32) << 23);
    let factor = _mm512_set1_ps(power(127 + 127 + 21 - exponent));
    let mut sums = [_mm512_setzero_si512(); DIGITS];
    for (v, x) in x.into_iter().enumerate() {
        let mut rest = _mm512_cvtps_epi32(_mm512_mul_ps(x, factor));
        for (d, sum) in sums.iter_mut().enumerate() {
            let digit = _mm512_srai_epi32::<24>(_mm512_slli_epi32::<24>(rest));
            rest = _mm512_srai_epi32::<8>(_mm512_sub_epi32(rest, digit));
            *sum = _mm512_add_epi32(*sum, digit);
            // SAFETY: guaranteed by the caller.
            unsafe { _mm_storeu_si128(to.add(d * plane + v * LANES).cast(), _mm512_cvtepi32_epi8(digit)) };
        }
    }
    Some(BlockSums {
        sums: [
            _mm512_reduce_add_epi32(sums[0]),
            _mm512_reduce_add_epi32(sums[1]),
            _mm512_reduce_add_epi32(sums[2]),
        ],
        scale: power(exponent - 21),
    })
}

/// Multiplies all rows of a job with its panel, whose integers are in groups of four.
///
/// # Safety
/// The job's pointers are valid, and the digits are those of its rows. The machine has AVX-512 VNNI.
pub(super) unsafe fn multiply(j: &ProductJob, digits: &Digits) {
    // SAFETY: guaranteed by the caller.
    unsafe { multiply_in_fours!(j, digits) }
}

/// `R` rows from row `row` on, of nibbles or bytes.
#[target_feature(enable = "avx512f,avx512vl,avx512vnni,avx2,fma")]
unsafe fn multiply_rows<const R: usize, const NIBBLES: bool>(j: &ProductJob, digits: &Digits, row: usize) {
    let mut rows = [digits.row(row); R];
    for (r, to) in rows.iter_mut().enumerate() {
        *to = digits.row(row + r);
    }
    let blocks = j.groups.size / BLOCK;
    let mut total = [[_mm512_setzero_ps(); 2]; R];
    // SAFETY: the caller provides operands valid for the job.
    unsafe {
        for g in 0..j.k / j.groups.size {
            let mut sums = [[_mm512_setzero_ps(); 2]; R];
            j.groups.prefetch_next_panel(g, j.k);
            let zeros = j.groups.load_zeros::<Avx512>(g);
            for b in g * blocks..(g + 1) * blocks {
                add_block::<R, NIBBLES>(j.data, &rows, [b, digits.k], zeros, &mut sums);
            }
            let scales = j.groups.load_scales::<Avx512>(g);
            for r in 0..R {
                for v in 0..2 {
                    total[r][v] = _mm512_fmadd_ps(sums[r][v], scales[v], total[r][v]);
                }
            }
        }
        for r in 0..R {
            super::kernels::store_row::<Avx512>(&j.rows, row + r, total[r]);
        }
    }
}

/// The sums of a row's products with two vectors of columns, by digit.
type DigitSums = [[__m512i; 2]; DIGITS];

/// Adds the products of block `b` of rows of `k` elements, without the scales of B.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512vnni,avx2,fma")]
unsafe fn add_block<const R: usize, const NIBBLES: bool>(
    data: *const u8,
    rows: &[DigitRow; R],
    [b, k]: [usize; 2],
    zeros: Option<[__m512; 2]>,
    sums: &mut [[__m512; 2]; R],
) {
    // SAFETY: the caller provides the rows and the panel.
    unsafe {
        let acc = multiply_block::<R, NIBBLES>(data, rows, [b, k]);
        for r in 0..R {
            let block = *rows[r].blocks.add(b);
            for v in 0..2 {
                let mut sum = join_digits([acc[r][0][v], acc[r][1][v], acc[r][2][v]]);
                if let Some(zeros) = zeros {
                    sum = _mm512_fmadd_ps(_mm512_set1_ps(-block.sum()), zeros[v], sum);
                }
                sums[r][v] = _mm512_fmadd_ps(sum, _mm512_set1_ps(block.scale), sums[r][v]);
            }
        }
    }
}

/// The sums of block `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512vnni,avx2,fma")]
unsafe fn multiply_block<const R: usize, const NIBBLES: bool>(
    data: *const u8,
    rows: &[DigitRow; R],
    [b, k]: [usize; 2],
) -> [DigitSums; R] {
    // What the stored integers are off from unsigned ones, and the number of groups of four product indices in a vector.
    let (offset, step) = if NIBBLES { (8, 2) } else { (128, 1) };
    // SAFETY: the caller provides the rows and the panel.
    unsafe {
        let mut acc = start_sums(rows, b, -offset);
        let data = data.add(b * BLOCK * 2 * LANES / step);
        for q in (0..BLOCK / 4).step_by(step) {
            let at = data.add(q / step * 8 * LANES);
            let w = [
                _mm512_loadu_si512(at.cast()),
                _mm512_loadu_si512(at.add(4 * LANES).cast()),
            ];
            prefetch(at.wrapping_add(AHEAD));
            prefetch(at.wrapping_add(AHEAD + 4 * LANES));
            let i = b * BLOCK + 4 * q;
            if NIBBLES {
                let [low, high] = split_nibbles(w);
                add_quad(&mut acc, low, rows, [i, k]);
                add_quad(&mut acc, high, rows, [i + 4, k]);
            } else {
                let flip = _mm512_set1_epi8(-128);
                let w = [_mm512_xor_si512(w[0], flip), _mm512_xor_si512(w[1], flip)];
                add_quad(&mut acc, w, rows, [i, k]);
            }
        }
        acc
    }
}

/// What the sums of block `b` start with: `offset` times the sum of the digits.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
unsafe fn start_sums<const R: usize>(rows: &[DigitRow; R], b: usize, offset: i32) -> [DigitSums; R] {
    let mut acc = [[[_mm512_setzero_si512(); 2]; DIGITS]; R];
    for r in 0..R {
        // SAFETY: the caller provides the rows.
        let block = unsafe { *rows[r].blocks.add(b) };
        for d in 0..DIGITS {
            acc[r][d] = [_mm512_set1_epi32(offset * block.sums[d]); 2];
        }
    }
    acc
}

/// The low nibbles and the high nibbles.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
pub(super) fn split_nibbles(w: [__m512i; 2]) -> [[__m512i; 2]; 2] {
    let mask = _mm512_set1_epi8(15);
    let high = [_mm512_srli_epi32::<4>(w[0]), _mm512_srli_epi32::<4>(w[1])];
    [
        [_mm512_and_si512(w[0], mask), _mm512_and_si512(w[1], mask)],
        [_mm512_and_si512(high[0], mask), _mm512_and_si512(high[1], mask)],
    ]
}

/// Adds the products of four product indices from `i` on of rows of `k` elements.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512vnni,avx2,fma")]
unsafe fn add_quad<const R: usize>(
    acc: &mut [DigitSums; R],
    w: [__m512i; 2],
    rows: &[DigitRow; R],
    [i, k]: [usize; 2],
) {
    for r in 0..R {
        for d in 0..DIGITS {
            // SAFETY: the caller provides the rows.
            let x = unsafe { rows[r].bytes.add(d * k + i).cast::<i32>().read_unaligned() };
            for v in 0..2 {
                acc[r][d][v] = _mm512_dpbusd_epi32(acc[r][d][v], w[v], _mm512_set1_epi32(x));
            }
        }
    }
}

/// The sums of products with integers, given those with their digits.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
fn join_digits([low, middle, high]: [__m512i; DIGITS]) -> __m512 {
    let [low, middle, high] = [
        _mm512_cvtepi32_ps(low),
        _mm512_cvtepi32_ps(middle),
        _mm512_cvtepi32_ps(high),
    ];
    let sum = _mm512_fmadd_ps(middle, _mm512_set1_ps(256.0), low);
    _mm512_fmadd_ps(high, _mm512_set1_ps(65536.0), sum)
}
