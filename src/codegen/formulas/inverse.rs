//! Inverse trigonometric functions.

use super::Real;

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

/// Whether `|x| > 1/2`; the number y whose arcsine is to be computed, which is `|x|` or `sqrt((1 - |x|) / 2)`; and
/// `asin(y) / y - 1`.
fn half_angle<R: Real>(x: R) -> (R::Mask, R, R) {
    let a = x.abs();
    let large = a.constant(0.5).below(a);
    let z = R::pick(large, a.affine(-0.5, 0.5), a * a);
    // The sign of the NaN that the root of a negative number is would differ between vectors and scalars.
    let y = R::pick(large, z.sqrt().abs(), a);
    (large, y, z.horner(&ASIN) * z)
}

/// `asin(x)`: 1.2 ULP.
pub(super) fn asin<R: Real>(x: R) -> R {
    let (large, y, p) = half_angle(x);
    let small = y.fma(p, y);
    // pi / 2 - 2 asin(y), with the rounding error of `pi / 2 - 2 y`.
    let right = y.constant(HALF_PI);
    let difference = y.axpy(-2.0, right);
    let error = y.axpy(-2.0, right - difference);
    let rest = (y + y).fma(p, y.constant(-HALF_PI_LOW));
    let far = difference - (rest - error);
    R::pick(large, far, small).or_sign(x)
}

/// `acos(x)`: 1.2 ULP.
pub(super) fn acos<R: Real>(x: R) -> R {
    let (large, y, p) = half_angle(x);
    let y = y.or_sign(x);
    let angle = y.fma(p, y);
    let above = angle + angle;
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

/// `atan(t)` for `0 <= t <= 1`.
fn angle<R: Real>(t: R) -> R {
    let s = t * t;
    t.fma(s.horner(&ATAN) * s, t)
}

/// `pi / 2 - angle`.
fn complement<R: Real>(angle: R) -> R {
    angle.constant(HALF_PI) - (angle + -HALF_PI_LOW)
}

/// `atan(x)`: 1.5 ULP.
pub(super) fn atan<R: Real>(x: R) -> R {
    let a = x.abs();
    let one = a.constant(1.0);
    let steep = one.below(a);
    let r = angle(R::pick(steep, one / a, a));
    R::pick(steep, complement(r), r).or_sign(x)
}

/// The angle of the point with abscissa `y` and ordinate `x`, torch's `atan2(x, y)`: 1.5 ULP.
pub(super) fn atan2<R: Real>(x: R, y: R) -> R {
    let (n, d) = (x.abs(), y.abs());
    let zero = x.constant(0.0);
    let steep = d.below(n);
    let (most, least) = (R::pick(steep, n, d), R::pick(steep, d, n));
    // The quotient of equal infinities is 1, that of zeros 0.
    let same = R::pick(zero.below(n), x.constant(1.0), zero);
    let r = angle(R::pick(n.equals(d), same, least / most));
    let r = R::pick(steep, complement(r), r);
    let left = r.constant(2.0 * HALF_PI) - (r + -2.0 * HALF_PI_LOW);
    let r = R::pick(y.has_sign(), left, r).or_sign(x);
    R::pick(x.unordered(y), x + y, r)
}
