//! The kernels of depthwise convolution over channels: some pixels of a row, all channels, vector by vector.

use crate::math::isa::per_isa;
use crate::math::simd::Simd;
use crate::math::tile::Tiles;

/// The maximum number of pixels in a tile.
const PIXELS: usize = 8;
/// The maximum number of input pixels in a row under a tile: five taps at stride 2.
const MOST: usize = (PIXELS - 1) * 2 + 5;

/// Calls the tile function for `$pixels` pixels, 1 to 8: that number is the function's last generic argument.
macro_rules! call_for_pixels {
    ($pixels:expr, $tile:ident::<$($generic:ident),*>($($arg:expr),*)) => {
        match $pixels {
            1 => $tile::<$($generic,)* 1>($($arg),*),
            2 => $tile::<$($generic,)* 2>($($arg),*),
            3 => $tile::<$($generic,)* 3>($($arg),*),
            4 => $tile::<$($generic,)* 4>($($arg),*),
            5 => $tile::<$($generic,)* 5>($($arg),*),
            6 => $tile::<$($generic,)* 6>($($arg),*),
            7 => $tile::<$($generic,)* 7>($($arg),*),
            _ => $tile::<$($generic,)* 8>($($arg),*),
        }
    };
}
pub(super) use call_for_pixels;

/// Neighbouring pixels of a row that use the same taps, for some channels. Strides are in elements.
pub(super) struct TapsJob {
    /// The input under the first tap of the first pixel. For kernels with shared loads, the row's first input pixel.
    pub x: *const f32,
    /// The stride between taps along each dimension.
    pub step: [usize; 3],
    /// The stride between the windows of adjacent pixels.
    pub pixel: usize,
    pub pixels: usize,
    /// For kernels with shared loads: the number of input pixels missing before the row.
    pub before: usize,
    /// The number of input pixels in the row.
    pub width: usize,
    /// The range of taps that overlap the input, along each dimension.
    pub taps: [[usize; 2]; 3],
    pub kernel: [usize; 3],
    pub weight: *const f32,
    pub weight_tap: usize,
    pub bias: *const f32,
    pub y: *mut f32,
    pub y_pixel: usize,
    pub channels: usize,
    pub clamp: Option<(f32, f32)>,
}

/// `K` taps along the row. Windows are `ST` pixels apart and share their loads; beyond the ends of the row the input is
/// zero. With `K == 0`, any number of taps and any step, for pixels that use all of the given taps.
#[inline(always)]
unsafe fn kernel_body<S: Simd, const K: usize, const ST: usize>(j: &TapsJob) {
    let tiles = Tiles::new(j.pixels, PIXELS);
    for t in 0..tiles.count() {
        let (p, rows) = (tiles.start(t), tiles.start(t + 1) - tiles.start(t));
        // SAFETY: the pixels lie in the row.
        unsafe { call_for_pixels!(rows, convolve_tile::<S, K, ST>(j, p)) };
    }
}

/// Computes `R` pixels from `p` on, for all channels.
#[inline(always)]
unsafe fn convolve_tile<S: Simd, const K: usize, const ST: usize, const R: usize>(j: &TapsJob, p: usize) {
    // The positions of those of the tile's `N` input pixels that lie in the row.
    let first = (p * ST) as isize - j.before as isize;
    let n_in = if K > 0 { (R - 1) * ST + K } else { 0 };
    let inside = |i: isize| (i - first).clamp(0, n_in as isize) as usize;
    let (i0, i1) = (inside(0), inside(j.width as isize));
    let x = match K {
        0 => j.x.wrapping_add(p * j.pixel),
        _ => j.x.wrapping_offset(first * j.step[2] as isize),
    };
    let (whole, rest) = (j.channels / S::LANES, j.channels % S::LANES);
    // SAFETY: the pixels and channels lie in the row; masks restrict reads to existing input.
    unsafe {
        if (i0, i1) == (0, n_in) {
            for v in 0..whole {
                convolve_vector::<S, K, ST, R, true>(j, x, p, v * S::LANES, S::LANES, &There::new(0, 0, 0));
            }
        } else {
            let there = There::new(i0, i1, S::LANES);
            for v in 0..whole {
                convolve_vector::<S, K, ST, R, false>(j, x, p, v * S::LANES, S::LANES, &there);
            }
        }
        if rest > 0 {
            convolve_vector::<S, K, ST, R, false>(j, x, p, whole * S::LANES, rest, &There::new(i0, i1, rest));
        }
    }
}

/// Which of a tile's input pixels exist. Pixels beyond the ends of the row read as zeros, without a branch for each.
struct There<S: Simd> {
    /// The mask of the lanes to load, for each pixel.
    masks: [S::Mask; MOST],
    /// The position to load from, in pixels. A pixel that does not exist has the position of one that does, because
    /// even a fully masked load from an unmapped page takes hundreds of cycles.
    at: [usize; MOST],
    /// Whether no pixel exists.
    none: bool,
}

impl<S: Simd> There<S> {
    /// Pixels `i0..i1` exist, with their first `n` lanes.
    #[inline(always)]
    unsafe fn new(i0: usize, i1: usize, n: usize) -> There<S> {
        // SAFETY: the caller runs on a machine that supports the level.
        let mut t = unsafe {
            There {
                masks: [S::mask(0); MOST],
                at: [i0; MOST],
                none: i0 >= i1,
            }
        };
        let end = i1.min(MOST);
        for i in i0..end {
            // SAFETY: as above.
            t.masks[i] = unsafe { S::mask(n) };
            t.at[i] = i;
        }
        t
    }
}

/// Computes `R` pixels from `p` on, whose windows start at `x`, for `n` channels from `c` on. Unless `ALL`, loads only
/// the input that is `there`.
#[inline(always)]
unsafe fn convolve_vector<S: Simd, const K: usize, const ST: usize, const R: usize, const ALL: bool>(
    j: &TapsJob,
    x: *const f32,
    p: usize,
    c: usize,
    n: usize,
    there: &There<S>,
) {
    // SAFETY: the caller provides pixels and channels of the row.
    unsafe {
        let start = if j.bias.is_null() {
            S::splat(0.0)
        } else {
            load_partial::<S>(j.bias.add(c), n)
        };
        let mut acc = [start; R];
        let [[d0, d1], [h0, h1], [w0, w1]] = j.taps;
        for d in d0..d1 {
            for h in h0..h1 {
                if K > 0 && !ALL && there.none {
                    break;
                }
                let x = x.wrapping_add((d - d0) * j.step[0] + (h - h0) * j.step[1] + c);
                let w = j
                    .weight
                    .add(((d * j.kernel[1] + h) * j.kernel[2] + w0) * j.weight_tap + c);
                if K > 0 {
                    accumulate_row::<S, K, ST, R, ALL>(x, j.step[2], w, j.weight_tap, there, n, &mut acc);
                } else {
                    accumulate_taps::<S, R>(j, x, w, w1 - w0, n, &mut acc);
                }
            }
        }
        let y = j.y.add(p * j.y_pixel + c);
        store_clamped::<S, R>(j, y, if ALL { S::LANES } else { n }, acc);
    }
}

/// Clamps `R` pixels and stores their first `n` lanes.
#[inline(always)]
unsafe fn store_clamped<S: Simd, const R: usize>(j: &TapsJob, y: *mut f32, n: usize, mut acc: [S::V; R]) {
    // SAFETY: the caller provides `n` channels of the pixels.
    unsafe {
        if let Some((lo, hi)) = j.clamp {
            let (lo, hi) = (S::splat(lo), S::splat(hi));
            for r in 0..R {
                acc[r] = S::min(hi, S::max(lo, acc[r]));
            }
        }
        for r in 0..R {
            let y = y.add(r * j.y_pixel);
            if n == S::LANES {
                S::store(y, acc[r]);
            } else {
                S::store_first(y, n, acc[r]);
            }
        }
    }
}

/// Accumulates `taps` taps of one row, all of which overlap the input.
#[inline(always)]
unsafe fn accumulate_taps<S: Simd, const R: usize>(
    j: &TapsJob,
    x: *const f32,
    w: *const f32,
    taps: usize,
    n: usize,
    acc: &mut [S::V; R],
) {
    // SAFETY: the caller provides the input under the taps, and their weights.
    unsafe {
        for t in 0..taps {
            let w = load_partial::<S>(w.add(t * j.weight_tap), n);
            for r in 0..R {
                acc[r] = S::fma(load_partial::<S>(x.add(t * j.step[2] + r * j.pixel), n), w, acc[r]);
            }
        }
    }
}

/// Accumulates one row of `K` taps. Each input pixel is loaded once for all the outputs it contributes to. Unless
/// `ALL`, loads only the pixels that are `there` and the first `n` lanes of the weights.
#[inline(always)]
unsafe fn accumulate_row<S: Simd, const K: usize, const ST: usize, const R: usize, const ALL: bool>(
    x: *const f32,
    step: usize,
    w: *const f32,
    weight_tap: usize,
    there: &There<S>,
    n: usize,
    acc: &mut [S::V; R],
) {
    // SAFETY: the caller provides `(R - 1) * ST + K` pixels, or those of them that are `there`, and `K` weights.
    unsafe {
        let mut wv = [S::splat(0.0); K];
        for k in 0..K {
            let w = w.add(k * weight_tap);
            wv[k] = if ALL { S::load(w) } else { load_partial::<S>(w, n) };
        }
        // Unrolled by a macro: the compiler does not unroll loops this long, and then cannot keep the sums in
        // registers.
        macro_rules! pixels {
            ($($i:literal)*) => { $(
                if $i < (R - 1) * ST + K {
                    let v = match ALL {
                        true => S::load(x.wrapping_add($i * step)),
                        false => S::load_masked(x.wrapping_add(there.at[$i] * step), there.masks[$i]),
                    };
                    for r in 0..R {
                        if $i >= r * ST && $i < r * ST + K {
                            acc[r] = S::fma(v, wv[$i - r * ST], acc[r]);
                        }
                    }
                }
            )* };
        }
        pixels!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
    }
}

/// The first `n` lanes of a vector.
#[inline(always)]
unsafe fn load_partial<S: Simd>(p: *const f32, n: usize) -> S::V {
    // SAFETY: the caller provides `n` elements.
    unsafe { if n == S::LANES { S::load(p) } else { S::load_first(p, n) } }
}

per_isa! {
    /// See [`kernel_body`].
    pub(super) fn kernel = kernel_body<K: usize, ST: usize>(j: &TapsJob)
}
