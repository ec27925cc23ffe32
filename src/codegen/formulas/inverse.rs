//! Inverse trigonometric functions.

use super::Real;
use super::power::{DOWN, UP};

/// pi / 2 is `HALF_PI + HALF_PI_LOW`.
const HALF_PI: f32 = 1.570_796_4;
const HALF_PI_LOW: f32 = -4.371_139e-8;

/// `(asin(y) - y) / y³` by `y²`, for `|y| <= 1/2`: relative error 4.9e-9 of the arcsine.
const ASIN: [f32; 5] = [0.0421583056, 0.0241847783, 0.0454691499, 0.0749530941, 0.166667521];

/// `(atan(t) - t) / t³` by `t²`, for `|t| <= 1`: relative error 2.7e-9 of the arctangent.
const ATAN: [f32; 9] = [
    -0.00178217597,
    0.0108663626,
    -0.0310936309,
    0.0578789152,
    -0.0839920864,
    0.109508611,
    -0.142640144,
    0.199985296,
    -0.333332986,
];

/// Whether `|x| > 1/2`; the number y whose arcsine is to be computed, which is `|x|` or `sqrt((1 - |x|) / 2)`; twice the rounding
/// error of the root; and `asin(y) / y - 1`.
fn half_angle<R: Real>(x: R) -> (R::Mask, [R; 3]) {
    let a = x.abs();
    let large = a.constant(0.5).below(a);
    let z = R::pick(large, a.affine(-0.5, 0.5), a * a);
    // The sign of the NaN that the root of a negative number is would differ between vectors and scalars.
    let y = R::pick(large, z.sqrt().abs(), a);
    // A line is near enough to the inverse of y where the error of the root matters.
    let low = y.negate().fma(y, z) * y.affine(-6.4, 5.22);
    (large, [y, low, z.horner(&ASIN) * z])
}

/// `asin(x)`: 1 ULP.
pub(super) fn asin<R: Real>(x: R) -> R {
    let (large, [y, low, p]) = half_angle(x);
    let small = y.fma(p, y);
    // pi / 2 - 2 asin(y), with the rounding error of `pi / 2 - 2 y`.
    let right = y.constant(HALF_PI);
    let difference = y.axpy(-2.0, right);
    let error = y.axpy(-2.0, right - difference);
    let rest = (y + y).fma(p, low - HALF_PI_LOW);
    let far = difference - (rest - error);
    R::pick(large, far, small).or_sign(x)
}

/// `acos(x)`: 1 ULP.
pub(super) fn acos<R: Real>(x: R) -> R {
    let (large, [y, low, p]) = half_angle(x);
    let above = (y + y) + (y + y).fma(p, low);
    let y = y.or_sign(x);
    let right = y.constant(HALF_PI);
    let difference = right - y;
    let rest = y.fma(p, y.constant(-HALF_PI_LOW)) - ((right - difference) - y);
    let small = difference - rest;
    // y is negative: twice the sum of pi / 2 and asin(y).
    let sum = y + HALF_PI;
    let half = sum + (y.fma(p, y.constant(HALF_PI_LOW)) + ((right - sum) + y));
    let below = half + half;
    R::pick(large, R::pick(x.has_sign(), below, above), small)
}

/// `base + atan(t + t_low)` for `|t| <= 1` and a multiple of pi / 2, which is 0 or at least t. `slope` is `1 / (1 + t²)`, which need
/// not be near.
fn angle<R: Real>(base: R, t: R, t_low: R, slope: R) -> R {
    let s = t * t;
    let sum = base + t;
    let error = t_low.fma(slope, (base - sum) + t);
    // The low part of pi / 2 is in proportion.
    let low = base.axpy(HALF_PI_LOW / HALF_PI, error);
    sum + s.horner(&ATAN).fma(s * t, low)
}

/// `atan(x)`: 1.1 ULP.
pub(super) fn atan<R: Real>(x: R) -> R {
    let a = x.abs();
    let [zero, one] = [0.0, 1.0].map(|k| a.constant(k));
    let steep = one.below(a);
    let t = R::pick(steep, a.constant(-1.0) / a, a);
    let base = R::pick(steep, a.constant(HALF_PI), zero);
    // What the quotient leaves. It is at least 1 where there is none, and NaN for infinities.
    let rest = t.fma(a, one);
    let rest = R::pick(rest.below(a.constant(0.5)), rest, zero);
    angle(base, t, t * rest, a.constant(0.53)).or_sign(x)
}

/// The limits of the operands of [`atan2`] whose quotient has an inverse and a rounding error that are normal numbers.
const SHORT: f32 = 1e-30;
const LONG: f32 = 1e30;

/// The quotient in [`atan2`] for sides of any length, and its rounding error.
fn quotient<R: Real>(num: R, den: R) -> [R; 2] {
    let (n, d) = (num.abs(), den.abs());
    let zero = num.constant(0.0);
    // The quotient of equal infinities is 1, that of zeros 0.
    let same = R::pick(zero.below(n), num.constant(1.0), zero).or_sign(num);
    let same = R::pick(den.has_sign(), same.negate(), same);
    let equal = n.equals(d);
    let t = R::pick(equal, same, num / den);
    // Powers of two.
    let scale = R::pick(d.below(num.constant(1.0)), num.constant(UP), num.constant(DOWN));
    let (num, den) = (num * scale, den * scale);
    let low = t.negate().fma(den, num) / den;
    // Small ones have no use for it.
    let useful = R::pick(num.constant(1e-4).below(t.abs()), low, zero);
    [t, R::pick(equal, zero, useful)]
}

/// The angle of the point with abscissa `y` and ordinate `x`, torch's `atan2(x, y)`: 1 ULP.
pub(super) fn atan2<R: Real>(x: R, y: R) -> R {
    let n = x.abs();
    let zero = x.constant(0.0);
    let steep = y.abs().below(n);
    let num = R::pick(steep, y.negate(), n);
    let den = R::pick(steep, n, y);
    let left = R::pick(y.has_sign(), x.constant(2.0 * HALF_PI), zero);
    let base = R::pick(steep, x.constant(HALF_PI), left);
    let u = x.constant(1.0) / den;
    let t = num * u;
    let t_low = t.negate().fma(den, num) * u;
    let least = R::pick(den.abs().below(x.constant(LONG)), num.abs(), zero);
    let [t, t_low] = R::replace(least.below(x.constant(SHORT)), [t, t_low], || quotient(num, den));
    let slope = (t * t).affine(-0.5, 1.0);
    let r = angle(base, t, t_low, slope).or_sign(x);
    R::pick(x.unordered(y), x + y, r)
}
