//! Sine, cosine and tangent.
//!
//! Arguments are reduced by multiples of pi / 2 after Cody and Waite. Where the multiple has too many bits for that, the
//! reduction is out of line.

use super::{MAGIC, Real};
use std::f32::consts::FRAC_2_PI;

/// The largest argument whose reduction is in line: up to it, the multiple of the second part below 2^-10.
const LIMIT: f32 = 35000.0;

/// pi / 2 as three parts. What the first one leaves is a multiple of 2^-23. The second one is a multiple of 2^-34, so that the
/// rounding error of its difference is one, too, and exact. What the three leave is below 1e-19.
const PARTS: [f32; 3] = [-1.570_796_4, 4.371_395_3e-8, -2.563_344_2e-12];

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

/// `(cos(r) - 1) / r²` by `r²`.
const COS: [f32; 4] = [2.4432553e-5, -1.388731e-3, 4.1666646e-2, -0.5];

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

/// `[r, low, t]` where `x` is `k pi / 2 + r + low`, and k is in the low bits of `t`. `low` is below 1e-7.
fn reduce<R: Real>(x: R) -> [R; 3] {
    let t = x.affine(FRAC_2_PI, MAGIC);
    let n = t - MAGIC;
    let [r, low] = if x.fuses() {
        let high = n.axpy(PARTS[0], x);
        let r = n.axpy(PARTS[1], high);
        [r, n.axpy(PARTS[2], n.axpy(PARTS[1], high - r))]
    } else {
        reduce_unfused(x, n)
    };
    R::replace(is_far(x), [r, low, t], || x.reduce_quadrants())
}

/// `[r, low]` of [`reduce`] from x and the multiple.
fn reduce_unfused<R: Real>(x: R, n: R) -> [R; 2] {
    let [first, next, second, third, fourth] = UNFUSED_PARTS;
    let high = n.axpy(next, n.axpy(first, x));
    let product = n * second;
    let sum = high + product;
    // Either `|product| < |high|`, or the sum is exact.
    let low = (high - sum) + product;
    let low = n.axpy(fourth, n.axpy(third, low));
    let r = sum + low;
    [r, (sum - r) + low]
}

/// The sine (`quarter` 0) or the cosine (`quarter` 1).
fn wave<R: Real>(x: R, quarter: i32) -> R {
    let [r, low, t] = reduce(x);
    let t = if quarter == 0 { t } else { t.add_to_bits(quarter) };
    // `(r + low)²`.
    let s = r.fma(r, (r + r) * low);
    let sin = r + (s.horner(&SIN) * s).fma(r, low);
    let cos = s.horner(&COS).fma(s, s.constant(1.0));
    // Odd quadrants swap the two; the upper two change the sign.
    R::pick(t.has_bit(0), cos, sin).flip_sign(t, 1)
}

/// `sin(x)`: 1 ULP.
pub(super) fn sin<R: Real>(x: R) -> R {
    // The reduction turns -0 into +0.
    keep_zero(x, wave(x, 0))
}

/// `cos(x)`: 1 ULP.
pub(super) fn cos<R: Real>(x: R) -> R {
    wave(x, 1)
}

/// `tan(x)`: 1 ULP.
pub(super) fn tan<R: Real>(x: R) -> R {
    let [r, low, t] = reduce(x);
    let s = r * r;
    let s_low = r.product_error(r, s);
    // The slopes are those at the ends of the interval, where the low parts matter.
    let low = (s_low * r).fma(r.constant(0.59), low.fma(s * 1.6, low));
    let rest = s.horner(&TAN).fma(s * r, low);
    let y = r + rest;
    let y_low = (r - y) + rest;
    // The inverse with what its rounding and that of y leave, by Newton's step.
    let one = x.constant(1.0);
    let inverse = x.constant(-1.0) / y;
    let inverse = inverse.fma(inverse.fma(y_low, inverse.fma(y, one)), inverse);
    keep_zero(x, R::pick(t.has_bit(0), inverse, y))
}
