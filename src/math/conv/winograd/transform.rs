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
pub(super) const A: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// The larger point of `F(4, 3)`, √2.
pub(super) const B: f64 = std::f64::consts::SQRT_2;

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

per_isa! {
    /// See [`forth_body`].
    fn forth_of = forth_body<N: usize, NARROW: bool>(j: &Forth)
}
per_isa! {
    /// See [`back_body`].
    fn back_of = back_body<N: usize, M: usize, NARROW: bool>(j: &Back)
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
