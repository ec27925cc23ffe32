//! Sine, cosine and tangent.
//!
//! Arguments are reduced by multiples of pi / 2 after Cody and Waite. Where the multiple has too many bits for that, the
//! reduction is out of line.

use super::{MAGIC, Real};
use std::f32::consts::FRAC_2_PI;

/// The largest argument whose reduction is in line.
const LIMIT: f32 = 48000.0;

/// pi / 2 as three parts of 24 bits.
const PARTS: [f32; 3] = [-1.570_796_4, 4.371_139e-8, 1.715_124_5e-15];

/// pi / 2 as four parts. The second has 8 bits, so that its products with multiples below 2^16 are exact.
const EXACT_PARTS: [f32; 4] = [-1.570_796_4, 4.377_216_1e-8, -6.077_100_6e-11, 1.217_705_2e-18];

/// pi / 2 for targets without fused multiply-add: the products of parts of 8 bits with multiples below 2^16 are exact, and the
/// differences from the first two are.
const UNFUSED_PARTS: [f32; 5] = [
    -1.570_312_5,
    -4.844_665_5e-4,
    6.407_499_3e-7,
    -9.895_302_4e-10,
    -2.563_344e-12,
];

/// `(sin(r) - r) / r³` by `r²`: relative error 6e-9 of the sine.
const SIN: [f32; 4] = [2.832_874e-6, -1.985_308_2e-4, 8.333_379e-3, -0.16666667];

/// `(cos(r) - 1 + r² / 2) / r⁴` by `r²`.
const COS: [f32; 3] = [2.4432553e-5, -1.388731e-3, 4.1666646e-2];

/// `(tan(r) - r) / r³` by `r²`, for `|r| <= pi / 4`: relative error 1.3e-9 of the tangent.
const TAN: [f32; 7] = [
    0.00439172005,
    6.25110551e-05,
    0.010852973,
    0.0212776382,
    0.0540602431,
    0.133326679,
    0.333333492,
];

fn is_far<R: Real>(x: R) -> R::Mask {
    x.constant(LIMIT).below(x.abs())
}

/// `x == 0 ? x : y`.
fn keep_zero<R: Real>(x: R, y: R) -> R {
    R::pick(x.equals(x.constant(0.0)), x, y)
}

/// `[r, t]` where `x` is `k pi / 2 + r`, and k is in the low bits of `t`. Relative error 1.2e-7.
fn reduce<R: Real>(x: R) -> [R; 2] {
    let t = x.affine(FRAC_2_PI, MAGIC);
    let n = t - MAGIC;
    let parts: &[f32] = if x.fuses() { &PARTS } else { &UNFUSED_PARTS };
    let r = parts.iter().fold(x, |r, &part| n.axpy(part, r));
    R::replace(is_far(x), [r, t], || {
        let [r, _, t] = x.reduce_quadrants();
        [r, t]
    })
}

/// [`reduce`] with the rounding error of the rest: `[r, low, t]`.
fn reduce_exactly<R: Real>(x: R) -> [R; 3] {
    let t = x.affine(FRAC_2_PI, MAGIC);
    let n = t - MAGIC;
    let (high, [second, third, fourth]) = if x.fuses() {
        let [first, rest @ ..] = EXACT_PARTS;
        (n.axpy(first, x), rest)
    } else {
        let [first, next, rest @ ..] = UNFUSED_PARTS;
        (n.axpy(next, n.axpy(first, x)), rest)
    };
    let product = n * second;
    let sum = high + product;
    // Either `|product| < |high|`, or the sum is exact.
    let low = (high - sum) + product;
    let low = n.axpy(fourth, n.axpy(third, low));
    let r = sum + low;
    let low = (sum - r) + low;
    R::replace(is_far(x), [r, low, t], || x.reduce_quadrants())
}

/// The sine (`quarter` 0) or the cosine (`quarter` 1).
fn wave<R: Real>(x: R, quarter: i32) -> R {
    let [r, t] = reduce(x);
    let t = if quarter == 0 { t } else { t.add_to_bits(quarter) };
    let s = r * r;
    let sin = (s.horner(&SIN) * s).fma(r, r);
    let cos = (s.horner(&COS) * s).fma(s, s.affine(-0.5, 1.0));
    // Odd quadrants swap the two; the upper two change the sign.
    R::pick(t.has_bit(0), cos, sin).flip_sign(t, 1)
}

/// `sin(x)`: 1.6 ULP.
pub(super) fn sin<R: Real>(x: R) -> R {
    // The reduction turns -0 into +0.
    keep_zero(x, wave(x, 0))
}

/// `cos(x)`: 1.6 ULP.
pub(super) fn cos<R: Real>(x: R) -> R {
    wave(x, 1)
}

/// `tan(x)`: 3 ULP.
pub(super) fn tan<R: Real>(x: R) -> R {
    let [r, low, t] = reduce_exactly(x);
    let s = r * r;
    let y = r + (s.horner(&TAN) * s).fma(r, low);
    let y = R::pick(t.has_bit(0), x.constant(-1.0) / y, y);
    keep_zero(x, y)
}
