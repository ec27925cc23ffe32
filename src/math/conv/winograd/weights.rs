//! Winograd's transforms of weights: once, in f64, or in every run, in f32. [`transform`](super::transform) has the points.

use super::transform::{A, B};
use crate::math::isa::per_isa;
use crate::math::simd::Simd;
use crate::target::Isa;

/// The weights of one panel.
pub(super) struct PanelWeights {
    /// `[cols][channels][3][3]`.
    pub src: *const f32,
    /// The number of input channels.
    pub channels: usize,
    /// The number of output channels that exist.
    pub cols: usize,
    /// The number of output channels of a panel, at most 32.
    pub nr: usize,
    /// `[point][channels][nr]`.
    pub dst: *mut f32,
}

/// Weights of some input channels of one panel that are transformed as they are used.
pub(super) struct Fresh {
    /// `[3][3][channels][nr]`, where `nr` is two vectors.
    pub src: *const f32,
    /// The stride from one tap to the next.
    pub tap: usize,
    /// The number of input channels.
    pub channels: usize,
    /// `[point][channels][nr]`.
    pub dst: *mut f32,
    /// The stride from one point to the next.
    pub point: usize,
}

/// The weight transform.
pub(super) fn weights_kernel(isa: Isa, side: usize) -> unsafe fn(&PanelWeights) {
    match side {
        2 => weights_of::<4>(isa),
        _ => weights_of::<6>(isa),
    }
}

/// The transform of weights as they are used.
pub(super) fn fresh_kernel(isa: Isa, side: usize) -> unsafe fn(&Fresh) {
    match side {
        2 => fresh_of::<4>(isa),
        _ => fresh_of::<6>(isa),
    }
}

per_isa! {
    /// See [`fresh_body`].
    fn fresh_of = fresh_body<N: usize>(j: &Fresh)
}
per_isa! {
    /// See [`weights_body`].
    fn weights_of = weights_body<N: usize>(j: &PanelWeights)
}

/// The rows of the weight transform: each point times `1 / N(point)`.
#[rustfmt::skip]
fn weight_rows<const N: usize>() -> [[f64; 3]; N] {
    let mut rows = [[0.0; 3]; N];
    let two = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];
    // N(±a) = 2 a² (a² - b²), N(±b) = 2 b² (b² - a²), N(0) = a² b² = 1.
    let (na, nb) = (2.0 * 0.5 * -1.5, 2.0 * 2.0 * 1.5);
    let four = [
        [1.0, 0.0, 0.0],
        [1.0 / na, A / na, 0.5 / na], [1.0 / na, -A / na, 0.5 / na],
        [1.0 / nb, B / nb, 2.0 / nb], [1.0 / nb, -B / nb, 2.0 / nb],
        [0.0, 0.0, 1.0],
    ];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = if N == 4 { two[i] } else { four[i] };
    }
    rows
}

/// Transforms three weights in one dimension, by [`weight_rows`].
#[inline(always)]
unsafe fn transform_weights_1d<S: Simd, const N: usize>(g: [S::V; 3]) -> [S::V; N] {
    let mut y = [g[0]; N];
    // SAFETY: the machine supports the level.
    unsafe {
        let k = |x: f64| S::splat(x as f32);
        // A point and its opposite share these terms: their results are the sum and the difference.
        let (na, nb) = (2.0 * 0.5 * -1.5, 2.0 * 2.0 * 1.5);
        let points: [[f64; 3]; 2] = if N == 4 {
            [[0.5; 3]; 2]
        } else {
            [[1.0 / na, A / na, 0.5 / na], [1.0 / nb, B / nb, 2.0 / nb]]
        };
        for i in 0..(N - 2) / 2 {
            let [one, odd, square] = points[i];
            let even = S::fma(k(square), g[2], S::mul(k(one), g[0]));
            let odd = S::mul(k(odd), g[1]);
            y[1 + 2 * i] = S::add(even, odd);
            y[2 + 2 * i] = S::sub(even, odd);
        }
        y[N - 1] = g[2];
    }
    y
}

/// Transforms the weights of a panel, both of its vectors.
#[inline(always)]
unsafe fn fresh_body<S: Simd, const N: usize>(j: &Fresh) {
    let nr = 2 * S::LANES;
    for c in 0..j.channels {
        for v in [0, S::LANES] {
            // SAFETY: the source and the destination hold every channel.
            unsafe {
                let src = j.src.add(c * nr + v);
                let mut t = [[S::splat(0.0); 3]; N];
                for col in 0..3 {
                    let mut g = [S::splat(0.0); 3];
                    for row in 0..3 {
                        g[row] = S::load(src.add((row * 3 + col) * j.tap));
                    }
                    let y = transform_weights_1d::<S, N>(g);
                    for row in 0..N {
                        t[row][col] = y[row];
                    }
                }
                for row in 0..N {
                    let y = transform_weights_1d::<S, N>(t[row]);
                    for col in 0..N {
                        S::store(j.dst.add((row * N + col) * j.point + c * nr + v), y[col]);
                    }
                }
            }
        }
    }
}

/// The maximum number of columns in a panel.
const COLS: usize = 32;

/// Transforms one panel of weights in f64 and rounds once. Columns after the last become 0.
#[inline(always)]
unsafe fn weights_body<S: Simd, const N: usize>(j: &PanelWeights) {
    let g = weight_rows::<N>();
    let (c, nr) = (j.channels, 2 * S::LANES);
    debug_assert!(nr == j.nr && nr <= COLS);
    let mut w = [[0f64; COLS]; 9];
    for i in 0..c {
        // SAFETY: there are `cols` output channels.
        unsafe {
            for l in 0..j.cols {
                for t in 0..9 {
                    w[t][l] = *j.src.add((l * c + i) * 9 + t) as f64;
                }
            }
        }
        for row in 0..N {
            let mut h = [[0f64; COLS]; 3];
            for t in 0..3 {
                h[t] = combine_columns(g[row], [&w[t], &w[3 + t], &w[6 + t]]);
            }
            for col in 0..N {
                let sums = combine_columns(g[col], [&h[0], &h[1], &h[2]]);
                // SAFETY: the destination holds every point of every channel.
                unsafe {
                    let dst = j.dst.add(((row * N + col) * c + i) * nr);
                    for l in 0..nr {
                        *dst.add(l) = sums[l] as f32;
                    }
                }
            }
        }
    }
}

/// `g[0] * w[0] + g[1] * w[1] + g[2] * w[2]` for each column.
#[inline(always)]
fn combine_columns(g: [f64; 3], w: [&[f64; COLS]; 3]) -> [f64; COLS] {
    std::array::from_fn(|l| g[0] * w[0][l] + g[1] * w[1][l] + g[2] * w[2][l])
}
