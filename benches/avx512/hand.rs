//! Hand-written kernels: AVX-512 intrinsics, constants in registers, several vectors at a time. The functions have the
//! accuracy that fxc documents (`exp` within 1 ULP, `1 + erf` and `1 + tanh` within 1.8e-7), so that both sides do the
//! same work.

// The coefficients have all the digits that the fits produced.
#![allow(clippy::excessive_precision)]

use std::arch::x86_64::*;

/// The arguments of one call: up to three inputs, up to two results, and the matrix's sizes. Columns are a multiple of
/// 64.
#[derive(Clone, Copy)]
pub struct Args {
    pub inputs: [*const f32; 3],
    pub outputs: [*mut f32; 2],
    pub rows: usize,
    pub cols: usize,
}

// SAFETY: each thread gets its own rows.
unsafe impl Send for Args {}

impl Args {
    /// The arguments for rows `from..to`. `matrix` says which inputs are matrices; the others, single rows, are shared.
    pub fn part(&self, from: usize, to: usize, matrix: [bool; 3], row_results: bool) -> Args {
        let mut a = *self;
        for (p, _) in a.inputs.iter_mut().zip(matrix).filter(|(p, m)| *m && !p.is_null()) {
            *p = p.wrapping_add(from * self.cols);
        }
        let step = if row_results { 1 } else { self.cols };
        for p in a.outputs.iter_mut().filter(|p| !p.is_null()) {
            *p = p.wrapping_add(from * step);
        }
        a.rows = to - from;
        a
    }
}

/// A hand-written kernel.
pub type Hand = unsafe fn(&Args);

const LOG2_E: f32 = std::f32::consts::LOG2_E;
const MAGIC: f32 = 12582912.0;
const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

#[target_feature(enable = "avx512f,avx512dq")]
fn set(x: f32) -> __m512 {
    _mm512_set1_ps(x)
}

#[target_feature(enable = "avx512f,avx512dq")]
fn horner<const N: usize>(x: __m512, c: [f32; N]) -> __m512 {
    c[1..].iter().fold(set(c[0]), |p, &c| _mm512_fmadd_ps(p, x, set(c)))
}

/// `exp(x)`, within 1 ULP for every x.
#[target_feature(enable = "avx512f,avx512dq")]
fn exp(x: __m512) -> __m512 {
    let x = _mm512_max_ps(set(-104.0), x);
    let n = _mm512_sub_ps(_mm512_fmadd_ps(x, set(LOG2_E), set(MAGIC)), set(MAGIC));
    let r = _mm512_fmadd_ps(n, set(-0.693359375), x);
    let r = _mm512_fmadd_ps(n, set(2.1219444e-4), r);
    let p = horner(
        r,
        [
            1.3814559e-3,
            8.368735e-3,
            4.1668389e-2,
            0.16666522,
            0.49999994,
            1.0,
            1.0,
        ],
    );
    _mm512_scalef_ps(p, n)
}

/// `exp(x)` for `x <= 0`, as a softmax wants it: within 3e-7.
#[target_feature(enable = "avx512f,avx512dq")]
fn exp_share(x: __m512) -> __m512 {
    let x = _mm512_max_ps(set(-104.0), x);
    let n = _mm512_sub_ps(_mm512_fmadd_ps(x, set(LOG2_E), set(MAGIC)), set(MAGIC));
    let r = _mm512_fmadd_ps(n, set(-std::f32::consts::LN_2), x);
    let p = horner(r, [8.2895e-3, 4.189818e-2, 0.16667651, 0.49999148, 0.9999997, 1.0]);
    _mm512_scalef_ps(p, n)
}

/// `2^y`, within a few ULP.
#[target_feature(enable = "avx512f,avx512dq")]
fn exp2(y: __m512) -> __m512 {
    let n = _mm512_roundscale_ps::<NEAREST>(y);
    let r = _mm512_sub_ps(y, n);
    let p = horner(
        r,
        [
            1.5353362e-4,
            1.3398875e-3,
            9.618437e-3,
            5.5503324e-2,
            0.24022648,
            std::f32::consts::LN_2,
            1.0,
        ],
    );
    _mm512_scalef_ps(p, n)
}

/// Computes the elements one by one, four vectors at a time.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn each(a: &Args, f: impl Fn(usize, usize) -> __m512) {
    let n = a.rows * a.cols;
    let past = n * 4 >= 24 << 20;
    for i in (0..n).step_by(64) {
        for k in (0..64).step_by(16) {
            let at = a.outputs[0].wrapping_add(i + k);
            let y = f(i + k, (i + k) % a.cols);
            // SAFETY: within the result, which begins at a cache line.
            unsafe {
                match past {
                    true => _mm512_stream_ps(at, y),
                    false => _mm512_storeu_ps(at, y),
                }
            }
        }
    }
    _mm_sfence();
}

#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn at(p: *const f32, i: usize) -> __m512 {
    // SAFETY: the caller guarantees 16 elements from `i` on.
    unsafe { _mm512_loadu_ps(p.wrapping_add(i)) }
}

/// `relu(x + b) + r`.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn bias_relu_add(a: &Args) {
    let past = a.rows * a.cols * 4 >= 24 << 20;
    for row in 0..a.rows {
        for j in (0..a.cols).step_by(16) {
            let i = row * a.cols + j;
            // SAFETY: within the matrices and the row.
            unsafe {
                let y = _mm512_add_ps(at(a.inputs[0], i), at(a.inputs[2], j));
                let y = _mm512_add_ps(_mm512_max_ps(y, set(0.0)), at(a.inputs[1], i));
                match past {
                    true => _mm512_stream_ps(a.outputs[0].add(i), y),
                    false => _mm512_storeu_ps(a.outputs[0].add(i), y),
                }
            }
        }
    }
    _mm_sfence();
}

/// `x * (1 + erf(x / sqrt(2))) / 2`.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn gelu_erf(a: &Args) {
    // SAFETY: as `each` says.
    unsafe {
        each(a, |i, _| {
            let x = at(a.inputs[0], i);
            let u = _mm512_mul_ps(x, set(std::f32::consts::FRAC_1_SQRT_2));
            let t = _mm512_abs_ps(u);
            let c = [
                -2.181483e-5,
                2.56119e-4,
                -8.9949998e-4,
                -1.6847058e-3,
                2.8990036e-2,
                -0.14878514,
                -0.9183601,
                -1.6279119,
            ];
            let e = exp2(_mm512_mul_ps(horner(t, c), t));
            let negative = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(u, set(0.0));
            let e = _mm512_mask_sub_ps(e, !negative, set(2.0), e);
            _mm512_mul_ps(_mm512_mul_ps(x, set(0.5)), e)
        })
    }
}

/// `0.5 x (1 + tanh(0.798 (x + 0.0447 x^3)))`.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn gelu_tanh(a: &Args) {
    // SAFETY: as `each` says.
    unsafe {
        each(a, |i, _| {
            let x = at(a.inputs[0], i);
            let k = -2.0 * LOG2_E * 0.797_884_6;
            let x2 = _mm512_mul_ps(x, x);
            let y = _mm512_mul_ps(_mm512_fmadd_ps(x2, set(k * 0.044715), set(k)), x);
            _mm512_div_ps(x, _mm512_add_ps(exp2(y), set(1.0)))
        })
    }
}

/// `x / (1 + exp(-x))`.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn silu(a: &Args) {
    // SAFETY: as `each` says.
    unsafe {
        each(a, |i, _| {
            let x = at(a.inputs[0], i);
            let e = exp(_mm512_sub_ps(set(0.0), x));
            _mm512_div_ps(x, _mm512_add_ps(e, set(1.0)))
        })
    }
}

/// Reduces a row with four accumulators.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn fold(
    cols: usize,
    zero: __m512,
    mut f: impl FnMut(__m512, usize) -> __m512,
    g: impl Fn(__m512, __m512) -> __m512,
) -> __m512 {
    let mut s = [zero; 4];
    for j in (0..cols).step_by(64) {
        for (k, s) in s.iter_mut().enumerate() {
            *s = f(*s, j + 16 * k);
        }
    }
    g(g(s[0], s[1]), g(s[2], s[3]))
}

/// `softmax(x)` along rows, in three passes: the maximum; the exponentials and their sum; the products with its
/// inverse.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn softmax(a: &Args) {
    for row in 0..a.rows {
        let (x, y) = (
            a.inputs[0].wrapping_add(row * a.cols),
            a.outputs[0].wrapping_add(row * a.cols),
        );
        // SAFETY: within the row.
        unsafe {
            let max = fold(
                a.cols,
                set(f32::NEG_INFINITY),
                |m, j| _mm512_max_ps(m, at(x, j)),
                |a, b| _mm512_max_ps(a, b),
            );
            let max = set(_mm512_reduce_max_ps(max));
            let sum = |s, j| {
                let e = exp_share(_mm512_sub_ps(at(x, j), max));
                _mm512_storeu_ps(y.add(j), e);
                _mm512_add_ps(s, e)
            };
            let sum = fold(a.cols, set(0.0), sum, |a, b| _mm512_add_ps(a, b));
            let inverse = set(1.0 / _mm512_reduce_add_ps(sum));
            for j in (0..a.cols).step_by(16) {
                _mm512_storeu_ps(y.add(j), _mm512_mul_ps(at(y, j), inverse));
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn mean_and_squares(x: *const f32, cols: usize) -> (f32, f32) {
    // SAFETY: the caller guarantees a row of `cols` elements.
    unsafe {
        let sum = fold(
            cols,
            set(0.0),
            |s, j| _mm512_add_ps(s, at(x, j)),
            |a, b| _mm512_add_ps(a, b),
        );
        let mean = _mm512_reduce_add_ps(sum) / cols as f32;
        let squares = |s, j| {
            let d = _mm512_sub_ps(at(x, j), set(mean));
            _mm512_fmadd_ps(d, d, s)
        };
        let squares = fold(cols, set(0.0), squares, |a, b| _mm512_add_ps(a, b));
        (mean, _mm512_reduce_add_ps(squares) / cols as f32)
    }
}

/// Layer norm along rows, in two passes over the row for mean and variance and one for the result.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn layer_norm(a: &Args) {
    for row in 0..a.rows {
        let (x, y) = (
            a.inputs[0].wrapping_add(row * a.cols),
            a.outputs[0].wrapping_add(row * a.cols),
        );
        // SAFETY: within the row.
        unsafe {
            let (mean, var) = mean_and_squares(x, a.cols);
            let scale = set(1.0 / (var + 1e-5).sqrt());
            for j in (0..a.cols).step_by(16) {
                let v = _mm512_mul_ps(_mm512_sub_ps(at(x, j), set(mean)), scale);
                let v = _mm512_fmadd_ps(v, at(a.inputs[1], j), at(a.inputs[2], j));
                _mm512_storeu_ps(y.add(j), v);
            }
        }
    }
}

/// `x * rsqrt(mean(x^2) + 1e-6) * w` along rows.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn rms_norm(a: &Args) {
    for row in 0..a.rows {
        let (x, y) = (
            a.inputs[0].wrapping_add(row * a.cols),
            a.outputs[0].wrapping_add(row * a.cols),
        );
        // SAFETY: within the row.
        unsafe {
            let s = fold(
                a.cols,
                set(0.0),
                |s, j| _mm512_fmadd_ps(at(x, j), at(x, j), s),
                |a, b| _mm512_add_ps(a, b),
            );
            let scale = set(1.0 / (_mm512_reduce_add_ps(s) / a.cols as f32 + 1e-6).sqrt());
            for j in (0..a.cols).step_by(16) {
                let v = _mm512_mul_ps(_mm512_mul_ps(at(x, j), scale), at(a.inputs[1], j));
                _mm512_storeu_ps(y.add(j), v);
            }
        }
    }
}

/// The mean and the variance of each row.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn mean_var(a: &Args) {
    for row in 0..a.rows {
        // SAFETY: within the row; the results have one element per row.
        unsafe {
            let (mean, var) = mean_and_squares(a.inputs[0].add(row * a.cols), a.cols);
            *a.outputs[0].add(row) = mean;
            *a.outputs[1].add(row) = var;
        }
    }
}

/// The sum of each row.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn sum(a: &Args) {
    for row in 0..a.rows {
        let x = a.inputs[0].wrapping_add(row * a.cols);
        // SAFETY: within the row; the result has one element per row.
        unsafe {
            let s = fold(
                a.cols,
                set(0.0),
                |s, j| _mm512_add_ps(s, at(x, j)),
                |a, b| _mm512_add_ps(a, b),
            );
            *a.outputs[0].add(row) = _mm512_reduce_add_ps(s);
        }
    }
}

/// Running sums along rows: by shifts within a vector, then plus the sum of the elements before.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn cumsum(a: &Args) {
    let zero = _mm512_setzero_si512();
    let last = _mm512_set1_epi32(15);
    for row in 0..a.rows {
        let (x, y) = (
            a.inputs[0].wrapping_add(row * a.cols),
            a.outputs[0].wrapping_add(row * a.cols),
        );
        let mut before = set(0.0);
        for j in (0..a.cols).step_by(16) {
            // SAFETY: within the row.
            unsafe {
                let mut v = at(x, j);
                macro_rules! shifted {
                    ($n:literal) => {
                        v = _mm512_add_ps(
                            v,
                            _mm512_castsi512_ps(_mm512_alignr_epi32::<{ 16 - $n }>(
                                _mm512_castps_si512(v),
                                zero,
                            )),
                        )
                    };
                }
                shifted!(1);
                shifted!(2);
                shifted!(4);
                shifted!(8);
                let v = _mm512_add_ps(v, before);
                _mm512_storeu_ps(y.add(j), v);
                before = _mm512_permutexvar_ps(last, v);
            }
        }
    }
}

/// A copy with streaming stores.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn copy(a: &Args) {
    // SAFETY: as `each` says.
    unsafe { each(a, |i, _| at(a.inputs[0], i)) }
}
