//! Rows of a phase whose groups are one channel each, over vectors of channels.

use crate::math::contract::Conv;
use crate::math::conv::panels::Panel;
use crate::math::conv::row::PixelRow;
use crate::math::isa::per_isa;
use crate::math::simd::Simd;
use crate::target::Isa;

/// The channels in panels of at most `width`.
pub(super) fn cut_panels(conv: &Conv, width: usize) -> Vec<Panel> {
    let panel = |channel: usize| Panel {
        input: channel,
        channel,
        cols: width.min(conv.groups - channel),
    };
    (0..conv.groups).step_by(width).map(panel).collect()
}

/// Computes a row, which is complete: its weights have one product index for each segment.
///
/// # Safety
/// The machine supports `isa`. The pixels lie in the output and belong to the caller. Their windows lie in the input.
pub(super) unsafe fn run_row(isa: Isa, row: &PixelRow) {
    // SAFETY: guaranteed by the caller.
    unsafe { kernel(isa)(row) };
}

#[inline(always)]
unsafe fn kernel_body<S: Simd>(j: &PixelRow) {
    let mut p = 0;
    while p < j.pixels {
        // SAFETY: the caller provides the pixels.
        unsafe {
            if p + 4 <= j.pixels {
                convolve_pixels::<S, 4>(j, p);
                p += 4;
            } else {
                convolve_pixels::<S, 1>(j, p);
                p += 1;
            }
        }
    }
}

/// Computes all channels of `R` pixels.
#[inline(always)]
unsafe fn convolve_pixels<S: Simd, const R: usize>(j: &PixelRow, p: usize) {
    let mut c = 0;
    while c < j.cols {
        // SAFETY: the caller provides the pixels; the channels are theirs.
        unsafe {
            if c + S::LANES <= j.cols {
                convolve_vector::<S, R, true>(j, p, c, S::LANES);
            } else {
                convolve_vector::<S, R, false>(j, p, c, j.cols - c);
            }
        }
        c += S::LANES;
    }
}

/// Computes `n` channels, a whole vector if `ALL`, of `R` pixels.
#[inline(always)]
unsafe fn convolve_vector<S: Simd, const R: usize, const ALL: bool>(j: &PixelRow, p: usize, c: usize, n: usize) {
    // SAFETY: the caller provides the pixels and channels.
    unsafe {
        let bias = if j.bias.is_null() {
            S::splat(0.0)
        } else {
            load_lanes::<S, ALL>(j.bias.add(c), n)
        };
        let mut acc = [bias; R];
        let x = j.x.add(p * j.x_pixel + c);
        for (s, &segment) in j.segments.iter().enumerate() {
            let w = load_lanes::<S, ALL>(j.weight.0.add(s * j.weight.1 + c), n);
            for r in 0..R {
                acc[r] = S::fma(load_lanes::<S, ALL>(x.add(segment + r * j.x_pixel), n), w, acc[r]);
            }
        }
        for r in 0..R {
            let y = j.y.add((p + r) * j.y_pixel + c);
            let v = match j.activation.bounds() {
                Some((lo, hi)) => S::min(S::splat(hi), S::max(S::splat(lo), acc[r])),
                None => acc[r],
            };
            if ALL {
                S::store(y, v);
            } else {
                S::store_first(y, n, v);
            }
        }
    }
}

/// A whole vector if `ALL`, otherwise its first `n` lanes.
#[inline(always)]
unsafe fn load_lanes<S: Simd, const ALL: bool>(p: *const f32, n: usize) -> S::V {
    // SAFETY: the caller provides the elements.
    unsafe { if ALL { S::load(p) } else { S::load_first(p, n) } }
}

per_isa! {
    /// See [`kernel_body`].
    fn kernel = kernel_body(j: &PixelRow)
}
