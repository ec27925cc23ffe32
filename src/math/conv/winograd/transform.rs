//! Winograd's transforms in one dimension, and their two-dimensional forms over vectors of channels.
//!
//! `F(2, 3)` uses the points 0, 1, -1 and infinity. `F(4, 3)` uses the points 0, ±√½, ±√2 and infinity: they are
//! symmetric and their product is 1, which keeps the transforms short. Their root mean square error is twice that of a
//! plain sum of products in f32, where the usual points 0, ±1, ±2 give four times (measured on normal inputs over 256
//! channels, against f64). `F(2, 3)` is a little more accurate than the plain sum because it adds fewer products.

use crate::math::isa::per_isa;
use crate::math::simd::{Bf16, Simd};
use crate::target::Isa;

/// The smaller point of `F(4, 3)`, √½.
const A: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// The larger point of `F(4, 3)`, √2.
const B: f64 = std::f64::consts::SQRT_2;

/// The input of one tile, for all channels: f32, or bf16.
pub(super) struct Forth {
    /// The address of the first channel of each input of the tile, row by row: 16 or 36.
    pub src: [*const u8; 36],
    /// The number of channels.
    pub channels: usize,
    /// The first transformed point.
    pub dst: *mut f32,
    /// The stride from one point to the next.
    pub point: usize,
}

/// The products of one tile, for some channels.
pub(super) struct Back {
    /// The products of the first point.
    pub src: *const f32,
    /// The stride from one point to the next.
    pub point: usize,
    /// The tile's first output: f32, or bf16.
    pub dst: *mut u8,
    /// The stride from one row of outputs to the next, in elements.
    pub row: usize,
    /// The stride from one output to the next in a row, in elements.
    pub pixel: usize,
    /// The number of rows that lie in the image.
    pub rows: usize,
    /// The number of columns that lie in the image.
    pub cols: usize,
    /// The number of channels to write. Products are readable up to whole vectors.
    pub channels: usize,
    /// One element per channel, or null.
    pub bias: *const f32,
    /// Bounds to clamp the results to, if any.
    pub clamp: Option<(f32, f32)>,
}

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

/// The input transform for tiles of `side x side` outputs. Inputs are bf16 if `narrow`.
pub(super) fn forth_kernel(isa: Isa, side: usize, narrow: bool) -> unsafe fn(&Forth) {
    match (side, narrow) {
        (2, false) => forth_of::<4, false>(isa),
        (2, true) => forth_of::<4, true>(isa),
        (_, false) => forth_of::<6, false>(isa),
        (_, true) => forth_of::<6, true>(isa),
    }
}

/// The output transform. Outputs are bf16 if `narrow`.
pub(super) fn back_kernel(isa: Isa, side: usize, narrow: bool) -> unsafe fn(&Back) {
    match (side, narrow) {
        (2, false) => back_of::<4, 2, false>(isa),
        (2, true) => back_of::<4, 2, true>(isa),
        (_, false) => back_of::<6, 4, false>(isa),
        (_, true) => back_of::<6, 4, true>(isa),
    }
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
    /// See [`forth_body`].
    fn forth_of = forth_body<N: usize, NARROW: bool>(j: &Forth)
}
per_isa! {
    /// See [`back_body`].
    fn back_of = back_body<N: usize, M: usize, NARROW: bool>(j: &Back)
}
per_isa! {
    /// See [`weights_body`].
    fn weights_of = weights_body<N: usize>(j: &PanelWeights)
}

/// The input transform in one dimension.
#[inline(always)]
unsafe fn transform_inputs_1d<S: Simd, const N: usize>(d: [S::V; N]) -> [S::V; N] {
    let mut y = d;
    // SAFETY: the machine supports the level.
    unsafe {
        if N == 4 {
            y[0] = S::sub(d[0], d[2]);
            y[1] = S::add(d[1], d[2]);
            y[2] = S::sub(d[2], d[1]);
            y[3] = S::sub(d[1], d[3]);
        } else {
            // a² = 1/2, b² = 2, a² b² = 1, a² + b² = 5/2.
            let c = S::splat(-2.5);
            y[0] = S::fma(c, d[2], S::add(d[0], d[4]));
            y[5] = S::fma(c, d[3], S::add(d[1], d[5]));
            let even = S::fma(S::splat(-2.0), d[2], d[4]);
            let odd = S::mul(S::splat(A as f32), S::fma(S::splat(-2.0), d[1], d[3]));
            y[1] = S::add(even, odd);
            y[2] = S::sub(even, odd);
            let even = S::fma(S::splat(-0.5), d[2], d[4]);
            let odd = S::mul(S::splat(B as f32), S::fma(S::splat(-0.5), d[1], d[3]));
            y[3] = S::add(even, odd);
            y[4] = S::sub(even, odd);
        }
    }
    y
}

/// The output transform in one dimension.
#[inline(always)]
unsafe fn transform_outputs_1d<S: Simd, const N: usize, const M: usize>(m: [S::V; N]) -> [S::V; M] {
    // SAFETY: the machine supports the level.
    unsafe {
        let mut y = [m[0]; M];
        if N == 4 {
            y[0] = S::add(S::add(m[0], m[1]), m[2]);
            y[1] = S::sub(S::sub(m[1], m[2]), m[3]);
        } else {
            let (s1, d1) = (S::add(m[1], m[2]), S::sub(m[1], m[2]));
            let (s2, d2) = (S::add(m[3], m[4]), S::sub(m[3], m[4]));
            let k = |x: f64| S::splat(x as f32);
            y[0] = S::add(S::add(m[0], s1), s2);
            y[1] = S::fma(k(B), d2, S::mul(k(A), d1));
            y[2] = S::fma(k(B * B), s2, S::mul(k(A * A), s1));
            y[3] = S::add(m[5], S::fma(k(B * B * B), d2, S::mul(k(A * A * A), d1)));
        }
        y
    }
}

/// Transforms `N x N` inputs to as many points.
#[inline(always)]
unsafe fn forth_body<S: Bf16, const N: usize, const NARROW: bool>(j: &Forth) {
    let mut c = 0;
    while c < j.channels {
        let n = (j.channels - c).min(S::LANES);
        // SAFETY: `n` channels are readable at each pointer and writable at each point.
        unsafe {
            let mut t = [[S::splat(0.0); N]; N];
            for col in 0..N {
                let mut d = [S::splat(0.0); N];
                for row in 0..N {
                    d[row] = load_lanes::<S, NARROW>(j.src[row * N + col], c, n);
                }
                let y = transform_inputs_1d::<S, N>(d);
                for row in 0..N {
                    t[row][col] = y[row];
                }
            }
            for row in 0..N {
                let y = transform_inputs_1d::<S, N>(t[row]);
                for col in 0..N {
                    store_lanes::<S, false>(j.dst.cast(), (row * N + col) * j.point + c, n, y[col]);
                }
            }
        }
        c += n;
    }
}

/// Transforms `N x N` products to `M x M` outputs, with bias and clamp.
#[inline(always)]
unsafe fn back_body<S: Bf16, const N: usize, const M: usize, const NARROW: bool>(j: &Back) {
    let mut c = 0;
    while c < j.channels {
        let n = (j.channels - c).min(S::LANES);
        // SAFETY: products are readable up to whole vectors, `n` channels of the outputs in the image writable.
        unsafe {
            let mut t = [[S::splat(0.0); N]; M];
            for col in 0..N {
                let mut m = [S::splat(0.0); N];
                for row in 0..N {
                    m[row] = S::load(j.src.add((row * N + col) * j.point + c));
                }
                let y = transform_outputs_1d::<S, N, M>(m);
                for row in 0..M {
                    t[row][col] = y[row];
                }
            }
            let bias = if j.bias.is_null() {
                S::splat(0.0)
            } else {
                S::load_first(j.bias.add(c), n)
            };
            for row in 0..M {
                let mut y = transform_outputs_1d::<S, N, M>(t[row]);
                for col in 0..M {
                    y[col] = S::add(y[col], bias);
                    if let Some((lo, hi)) = j.clamp {
                        y[col] = S::min(S::splat(hi), S::max(S::splat(lo), y[col]));
                    }
                }
                if row < j.rows {
                    store_row::<S, M, NARROW>(j, row * j.row + c, n, &y);
                }
            }
        }
        c += n;
    }
}

/// Stores `n` channels of those outputs of a row that lie in the image. `first` is the index of the first element.
#[inline(always)]
unsafe fn store_row<S: Bf16, const M: usize, const NARROW: bool>(j: &Back, first: usize, n: usize, y: &[S::V; M]) {
    for col in 0..M {
        if col < j.cols {
            // SAFETY: the caller provides the row.
            unsafe { store_lanes::<S, NARROW>(j.dst, first + col * j.pixel, n, y[col]) };
        }
    }
}

/// Loads `n` elements from index `at` on as the first lanes of a vector.
#[inline(always)]
unsafe fn load_lanes<S: Bf16, const NARROW: bool>(p: *const u8, at: usize, n: usize) -> S::V {
    // SAFETY: the caller provides the elements.
    unsafe {
        let (wide, narrow) = (p.cast::<f32>().wrapping_add(at), p.cast::<u16>().wrapping_add(at));
        match (NARROW, n == S::LANES) {
            (false, true) => S::load(wide),
            (false, false) => S::load_first(wide, n),
            (true, true) => S::load_bf16(narrow),
            (true, false) => S::load_bf16_first(narrow, n),
        }
    }
}

/// Stores the first `n` lanes of a vector from index `at` on.
#[inline(always)]
unsafe fn store_lanes<S: Bf16, const NARROW: bool>(p: *mut u8, at: usize, n: usize, v: S::V) {
    // SAFETY: the caller provides room for the elements.
    unsafe {
        let (wide, narrow) = (p.cast::<f32>().wrapping_add(at), p.cast::<u16>().wrapping_add(at));
        match (NARROW, n == S::LANES) {
            (false, true) => S::store(wide, v),
            (false, false) => S::store_first(wide, n, v),
            (true, true) => S::store_bf16(narrow, v),
            (true, false) => S::store_bf16_first(narrow, n, v),
        }
    }
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
