//! The kernels of depthwise convolution of bf16: a row of output pixels, block by block of channels.
//!
//! A block is two vectors of channels. The processor reads it as one vector of pairs, of which one operation each gives the
//! second and the first elements as f32: half of what widening sixteen elements at a time takes. Weights have this order, too.

use crate::math::conv::taps::call_for_pixels;
use crate::math::isa::per_isa;
use crate::math::simd::Bf16;
use crate::math::tile::Tiles;

/// A row of output pixels, for some channels. Strides are in elements.
pub(super) struct RowJob {
    /// The first channel of the first pixel of the first input row that a tap reads.
    pub x: *const u16,
    /// The stride between input rows, and between pixels.
    pub strides: [usize; 2],
    /// The number of pixels in an input row.
    pub width: usize,
    /// The number of pixels missing before it.
    pub before: usize,
    /// The rows of the kernel that overlap the input.
    pub taps: [usize; 2],
    /// The weights of the first channels, and the stride between taps.
    pub weight: *const f32,
    pub weight_tap: usize,
    /// The bias of the first channels, in the order of the weights.
    pub bias: *const f32,
    /// The first channel of the first output pixel.
    pub y: *mut u16,
    pub pixels: usize,
    pub channels: usize,
    pub clamp: Option<(f32, f32)>,
    pub affine: Option<RowAffine>,
}

/// Applied to the rounded results: `clamp(x * scale[channel] + shift[channel])`.
#[derive(Clone, Copy)]
pub(super) struct RowAffine {
    /// The factor and the summand of the first channels, in the order of the weights.
    pub scale: *const f32,
    pub shift: *const f32,
    pub bounds: Option<(f32, f32)>,
}

// SAFETY: threads only read the operands.
unsafe impl Sync for RowAffine {}

impl RowAffine {
    /// The same from channel `c` on, with which a block begins.
    pub(super) fn skip(self, c: usize) -> RowAffine {
        RowAffine {
            scale: self.scale.wrapping_add(c),
            shift: self.shift.wrapping_add(c),
            bounds: self.bounds,
        }
    }
}

/// Neighbouring output pixels, and which of their input pixels exist.
#[derive(Clone, Copy)]
struct PixelTile {
    first: usize,
    /// The input pixel under the first tap. Negative before the row.
    input: isize,
    /// The range of input pixels that exist, counted from there.
    there: [usize; 2],
}

/// `K` taps along the row, for windows that are `ST` pixels apart. Beyond the ends of the row the input is zero.
#[inline(always)]
unsafe fn row_body<S: Bf16, const K: usize, const ST: usize>(j: &RowJob) {
    // As many as have their sums in registers.
    let tiles = Tiles::new(j.pixels, if S::LANES == 16 { 8 } else { 4 });
    for t in 0..tiles.count() {
        let (p, rows) = (tiles.start(t), tiles.start(t + 1) - tiles.start(t));
        // SAFETY: the pixels lie in the row.
        unsafe { call_for_pixels!(rows, convolve_tile::<S, K, ST>(j, p)) };
    }
}

/// Computes `R` pixels from `p` on, for all channels.
#[inline(always)]
unsafe fn convolve_tile<S: Bf16, const K: usize, const ST: usize, const R: usize>(j: &RowJob, p: usize) {
    let input = (p * ST) as isize - j.before as isize;
    let inside = |i: isize| (i - input).clamp(0, ((R - 1) * ST + K) as isize) as usize;
    let tile = PixelTile {
        first: p,
        input,
        there: [inside(0), inside(j.width as isize)],
    };
    for c in (0..j.channels).step_by(2 * S::LANES) {
        // SAFETY: the pixels and channels lie in the row.
        unsafe { convolve_block::<S, K, ST, R>(j, &tile, c) };
    }
}

/// Computes the block of channels from `c` on of `R` pixels.
#[inline(always)]
unsafe fn convolve_block<S: Bf16, const K: usize, const ST: usize, const R: usize>(
    j: &RowJob,
    tile: &PixelTile,
    c: usize,
) {
    let n = (j.channels - c).min(2 * S::LANES);
    let ([row, pixel], [h0, h1]) = (j.strides, j.taps);
    // SAFETY: the caller provides pixels and channels of the row; weights and bias are padded to whole blocks.
    unsafe {
        let bias = j.bias.add(c);
        let mut acc = [[S::load(bias), S::load(bias.add(S::LANES))]; R];
        for h in h0..h1 {
            let x = j.x.wrapping_add((h - h0) * row + c);
            let x = x.wrapping_offset(tile.input * pixel as isize);
            let weight = j.weight.add(h * K * j.weight_tap + c);
            accumulate_row::<S, K, ST, R>((x, pixel, n), (weight, j.weight_tap), tile.there, &mut acc);
        }
        let y = j.y.add(tile.first * pixel + c);
        clamp_all::<S, R>(&mut acc, j.clamp);
        store_all::<S, R>(&acc, y, pixel, n);
        if let Some(a) = &j.affine {
            // Results are rounded before they are scaled, as separate ops round them. They are still in the L1 cache.
            transform_all::<S, R>(&mut acc, a, c, (y, pixel, n));
            clamp_all::<S, R>(&mut acc, a.bounds);
            store_all::<S, R>(&acc, y, pixel, n);
        }
    }
}

#[inline(always)]
unsafe fn clamp_all<S: Bf16, const R: usize>(acc: &mut [[S::V; 2]; R], bounds: Option<(f32, f32)>) {
    let Some((lo, hi)) = bounds else { return };
    // SAFETY: the caller has the vectors' instructions.
    unsafe {
        let (lo, hi) = (S::splat(lo), S::splat(hi));
        // Loops rather than closures, which would have no vector instructions.
        for sums in acc {
            for s in sums {
                *s = S::min(hi, S::max(lo, *s));
            }
        }
    }
}

/// Stores the first `n` channels of each pixel.
#[inline(always)]
unsafe fn store_all<S: Bf16, const R: usize>(acc: &[[S::V; 2]; R], y: *mut u16, pixel: usize, n: usize) {
    // SAFETY: the caller provides the pixels.
    unsafe {
        for r in 0..R {
            match n == 2 * S::LANES {
                true => S::store_pairs(y.add(r * pixel), acc[r]),
                false => S::store_pairs_first(y.add(r * pixel), n, acc[r]),
            }
        }
    }
}

/// Scales and shifts stored results, from channel `c` of the row on.
#[inline(always)]
unsafe fn transform_all<S: Bf16, const R: usize>(
    acc: &mut [[S::V; 2]; R],
    a: &RowAffine,
    c: usize,
    (y, pixel, n): (*const u16, usize, usize),
) {
    // SAFETY: the caller provides the pixels, and operands that are padded to whole blocks.
    unsafe {
        let [scale, shift] = [a.scale, a.shift].map(|p| p.add(c));
        for v in 0..2 {
            let (scale, shift) = (S::load(scale.add(v * S::LANES)), S::load(shift.add(v * S::LANES)));
            for r in 0..R {
                let x = match n == 2 * S::LANES {
                    true => S::load_pairs(y.add(r * pixel)),
                    false => S::load_pairs_first(y.add(r * pixel), n),
                };
                acc[r][v] = S::add(S::mul(x[v], scale), shift);
            }
        }
    }
}

/// Accumulates one row of `K` taps. Each of the input pixels that are `there` is loaded once for all its outputs: the first
/// `n` channels from `x` on, in steps of `pixel`.
#[inline(always)]
unsafe fn accumulate_row<S: Bf16, const K: usize, const ST: usize, const R: usize>(
    (x, pixel, n): (*const u16, usize, usize),
    (weight, tap): (*const f32, usize),
    [i0, i1]: [usize; 2],
    acc: &mut [[S::V; 2]; R],
) {
    // SAFETY: the caller provides the pixels and `K` weights.
    unsafe {
        let zero = S::splat(0.0);
        let mut w = [[zero; 2]; K];
        for k in 0..K {
            let weight = weight.add(k * tap);
            w[k] = [S::load(weight), S::load(weight.add(S::LANES))];
        }
        // Unrolled by a macro: the compiler does not unroll loops this long, and then cannot keep the sums in registers.
        macro_rules! pixels {
            ($($i:literal)*) => { $(
                if $i < (R - 1) * ST + K && i0 <= $i && $i < i1 {
                    let x = x.wrapping_add($i * pixel);
                    let v = if n == 2 * S::LANES { S::load_pairs(x) } else { S::load_pairs_first(x, n) };
                    for r in 0..R {
                        if $i >= r * ST && $i < r * ST + K {
                            let w = w[$i - r * ST];
                            acc[r] = [S::fma(v[0], w[0], acc[r][0]), S::fma(v[1], w[1], acc[r][1])];
                        }
                    }
                }
            )* };
        }
        pixels!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
    }
}

per_isa! {
    /// See [`row_body`].
    pub(super) fn row_kernel = row_body<K: usize, ST: usize>(j: &RowJob)
}
