//! The kernels of depthwise convolution of bf16 where the processor multiplies pairs: a row of output pixels, block by block of channels.
//!
//! `vdpbf16ps` multiplies two rows of the input at once. A block is 32 channels. Interleaving them with those of the row below gives
//! two vectors of pairs, in the order of [`fours`]. A row without a partner, at the border or as the last row of the kernel, is
//! interleaved with zeros. The processor rounds the sums: a third of the instructions that rounding in integers takes.
//!
//! All functions of a tile are inlined by force. A call would move the sums to memory.

use super::taps::RowJob;
use crate::math::conv::taps::call_for_pixels;
use crate::math::simd::fours::{self, Fours};
use crate::math::tile::Tiles;
use std::arch::x86_64::*;

/// The number of channels in a block.
pub(super) const BLOCK: usize = 32;
/// The lanes of a vector.
const LANES: usize = BLOCK / 2;
/// The maximum number of pixels in a tile: as many as have their sums in registers.
const TILE_PIXELS: usize = 8;

/// A block of a missing row, in one line of the cache.
#[repr(align(64))]
struct ZeroBlock([u16; BLOCK]);

static ZEROS: ZeroBlock = ZeroBlock([0; BLOCK]);

/// The kernel for a kernel size and a stride between columns.
pub(super) fn pair_kernel(size: usize, stride: usize) -> unsafe fn(&RowJob) {
    match (size, stride) {
        (3, 1) => convolve_row::<3, 1>,
        (3, _) => convolve_row::<3, 2>,
        (5, 1) => convolve_row::<5, 1>,
        (5, _) => convolve_row::<5, 2>,
        _ => convolve_row::<7, 1>,
    }
}

/// Some channels of neighbouring output pixels, at most [`BLOCK`].
struct Block<'a> {
    job: &'a RowJob,
    /// The first channel.
    channel: usize,
    /// Which channels exist.
    mask: __mmask32,
    /// The input pixel under the first tap. Negative before the row.
    input: isize,
    /// The range of input pixels that exist, counted from there.
    there: [usize; 2],
}

/// A row of the input from the pixel under the first tap on, and the stride between its pixels.
type InputRow = (*const u16, usize);

impl Block<'_> {
    /// The input under row `h` of the kernel. Zeros if there is none.
    #[inline(always)]
    fn input_row(&self, h: usize) -> InputRow {
        let (j, [h0, h1]) = (self.job, self.job.taps);
        if h < h0 || h >= h1 {
            return (ZEROS.0.as_ptr(), 0);
        }
        let [row, pixel] = j.strides;
        let x = j.x.wrapping_add((h - h0) * row + self.channel);
        (x.wrapping_offset(self.input * pixel as isize), pixel)
    }
}

/// `K` columns of the kernel, for windows that are `ST` pixels apart. Beyond the ends of the row the input is zero.
///
/// # Safety
/// The job's pointers are valid for its rows, pixels and channels, with weights in pairs. The machine has AVX-512 with BW, VL and BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")]
unsafe fn convolve_row<const K: usize, const ST: usize>(j: &RowJob) {
    let tiles = Tiles::new(j.pixels, TILE_PIXELS);
    for t in 0..tiles.count() {
        let (p, count) = (tiles.start(t), tiles.start(t + 1) - tiles.start(t));
        // SAFETY: the pixels lie in the row.
        unsafe { call_for_pixels!(count, convolve_tile::<K, ST>(j, p)) };
    }
}

/// Computes `R` pixels from `p` on, for all channels.
#[inline(always)]
unsafe fn convolve_tile<const K: usize, const ST: usize, const R: usize>(j: &RowJob, p: usize) {
    let input = (p * ST) as isize - j.before as isize;
    let inside = |i: isize| (i - input).clamp(0, ((R - 1) * ST + K) as isize) as usize;
    for channel in (0..j.channels).step_by(BLOCK) {
        let block = Block {
            job: j,
            channel,
            mask: u32::MAX >> (BLOCK - (j.channels - channel).min(BLOCK)),
            input,
            there: [inside(0), inside(j.width as isize)],
        };
        // SAFETY: the pixels and channels lie in the row; weights and bias are padded to whole blocks.
        unsafe {
            let bias = j.bias.add(channel);
            let mut acc = [fours::load(bias); R];
            // The kernel may have more rows than columns, or fewer.
            for h in (j.taps[0] / 2 * 2..j.taps[1]).step_by(2) {
                let weight = j.weight.add(h / 2 * K * j.weight_tap + channel);
                let rows = [block.input_row(h), block.input_row(h + 1)];
                accumulate_rows::<K, ST, R>(&block, rows, weight, &mut acc);
            }
            store_pixels::<R>(&block, &acc, j.y.add(p * j.strides[1] + channel));
        }
    }
}

/// Accumulates two rows of `K` taps. Each of the input pixels that exist is loaded once for all its outputs.
#[inline(always)]
unsafe fn accumulate_rows<const K: usize, const ST: usize, const R: usize>(
    block: &Block,
    [(a, a_pixel), (b, b_pixel)]: [InputRow; 2],
    weight: *const f32,
    acc: &mut [Fours; R],
) {
    let ([i0, i1], mask, tap) = (block.there, block.mask, block.job.weight_tap);
    // SAFETY: the caller provides the pixels and the weights of `K` taps. All 512-bit vectors have the same representation.
    unsafe {
        let load = |p: *const f32| std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(p.cast()));
        let mut w = [[load(weight); 2]; K];
        for k in 0..K {
            let weight = weight.add(k * tap);
            w[k] = [load(weight), load(weight.add(LANES))];
        }
        // Unrolled by a macro: the compiler does not unroll loops this long, and then cannot keep the sums in registers.
        macro_rules! pixels {
            ($($i:literal)*) => { $(
                if $i < (R - 1) * ST + K && i0 <= $i && $i < i1 {
                    let a = _mm512_maskz_loadu_epi16(mask, a.wrapping_add($i * a_pixel).cast());
                    let b = _mm512_maskz_loadu_epi16(mask, b.wrapping_add($i * b_pixel).cast());
                    let low = std::mem::transmute::<__m512i, __m512bh>(_mm512_unpacklo_epi16(a, b));
                    let high = std::mem::transmute::<__m512i, __m512bh>(_mm512_unpackhi_epi16(a, b));
                    for r in 0..R {
                        if $i >= r * ST && $i < r * ST + K {
                            let w = w[$i - r * ST];
                            acc[r] = [_mm512_dpbf16_ps(acc[r][0], low, w[0]), _mm512_dpbf16_ps(acc[r][1], high, w[1])];
                        }
                    }
                }
            )* };
        }
        pixels!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
    }
}

/// Rounds the sums, scales and shifts them if the job says so, and stores them from `y` on.
#[inline(always)]
unsafe fn store_pixels<const R: usize>(block: &Block, acc: &[Fours; R], y: *mut u16) {
    let j = block.job;
    // SAFETY: the caller provides the pixels, and operands that are padded to whole blocks.
    unsafe {
        for r in 0..R {
            let mut rounded = fours::round(fours::clamp(acc[r], j.clamp));
            if let Some(a) = &j.affine {
                let [scale, shift] = [a.scale.add(block.channel), a.shift.add(block.channel)];
                // Results are rounded before they are scaled, as separate ops round them.
                let x = fours::transform(fours::widen(rounded), fours::load(scale), fours::load(shift));
                rounded = fours::round(fours::clamp(x, a.bounds));
            }
            let y = y.add(r * j.strides[1]);
            match block.mask {
                u32::MAX => _mm512_storeu_si512(y.cast(), rounded),
                mask => _mm512_mask_storeu_epi16(y.cast(), mask, rounded),
            }
        }
    }
}
