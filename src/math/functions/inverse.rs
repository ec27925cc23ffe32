//! Inverse trigonometric functions, after fdlibm.

use super::{Function, fma, horner, outside, pick, upper_half};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

const FRAC_PI_2_LOW: f64 = 6.123233995736766e-17;

const ASIN_ABOVE: [f64; 6] = [
    3.47933107596021167570e-05,
    7.91534994289814532176e-04,
    -4.00555345006794114027e-02,
    2.01212532134862925881e-01,
    -3.25565818622400915405e-01,
    1.66666666666666657415e-01,
];
const ASIN_BELOW: [f64; 5] = [
    7.70381505559019352791e-02,
    -6.88283971605453293030e-01,
    2.02094576023350569471e+00,
    -2.40339491173441421878e+00,
    1.0,
];

/// The parts that asin and acos share: whether `|x| > 1/2`; then `s = sqrt((1 - |x|) / 2)`, its upper half and the rest,
/// else `|x|`, 0 and 0; and the polynomial.
#[inline(always)]
fn parts(x: f64) -> (bool, f64, f64, f64, f64) {
    let a = x.abs();
    let big = a > 0.5;
    let z = pick(big, (1.0 - a) * 0.5, a * a);
    let s = z.sqrt();
    let high = upper_half(s);
    // 0 / 0 at |x| = 1.
    let low = pick(s == 0.0, 0.0, (z - high * high) / (s + high));
    let r = z * horner(z, &ASIN_ABOVE) / horner(z, &ASIN_BELOW);
    (big, pick(big, s, a), high, low, r)
}

pub(super) struct Asin;
impl Function for Asin {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let (big, s, high, low, r) = parts(x);
        let small = fma(s, r, s);
        let far = FRAC_PI_4 - ((2.0 * s * r - (FRAC_PI_2_LOW - 2.0 * low)) - (FRAC_PI_4 - 2.0 * high));
        pick(big, far, small).copysign(x)
    }
}

pub(super) struct Acos;
impl Function for Acos {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let (big, s, high, low, r) = parts(x);
        let small = FRAC_PI_2 - (x - (FRAC_PI_2_LOW - x * r));
        let above = 2.0 * (high + (r * s + low));
        let below = 2.0 * (FRAC_PI_2 - (s + (r * s - FRAC_PI_2_LOW)));
        pick(big, pick(x > 0.0, above, below), small)
    }
}

const ATAN: [f64; 11] = [
    1.62858201153657823623e-02,
    -3.65315727442169155270e-02,
    4.97687799461593236017e-02,
    -5.83357013379057348645e-02,
    6.66107313738753120669e-02,
    -7.69187620504482999495e-02,
    9.09088713343650656196e-02,
    -1.11111104054623557880e-01,
    1.42857142725034663711e-01,
    -1.99999999998764832476e-01,
    3.33333333333329318027e-01,
];

/// `atan(t) / t` by `t²`, for `t <= 1` and f32. Relative error 1.8e-12.
const ATAN_SHORT: [f64; 14] = [
    -0.00026660196719267425,
    0.002162794422156479,
    -0.008241899893996813,
    0.01993744283625617,
    -0.03526772086942244,
    0.050455577528416146,
    -0.06366092236096826,
    0.07614250199003121,
    -0.09076798876650477,
    0.11109428364330506,
    -0.14285592394282529,
    0.19999995340385063,
    -0.333333332624797,
    0.9999999999981967,
];

/// [`angle`] for f32.
#[inline(always)]
fn angle_short(n: f64, d: f64) -> (f64, f64) {
    let steep = n > d;
    let t = pick(steep, d, n) / pick(steep, n, d);
    let r = t * horner(t * t, &ATAN_SHORT);
    (pick(steep, FRAC_PI_2, 0.0), pick(steep, -r, r))
}

/// `atan(n / d)` for `n, d >= 0` far from overflow, not both 0, as two summands: the angle of the nearest of five
/// directions, and the rest.
#[inline(always)]
fn angle<const WIDE: bool>(n: f64, d: f64) -> (f64, f64) {
    if !WIDE {
        return angle_short(n, d);
    }
    let (mut above, mut below, mut high, mut low) = (n, d, 0.0, 0.0);
    let directions = [
        (
            0.4375,
            2.0 * n - d,
            2.0 * d + n,
            4.63647609000806093515e-01,
            2.26987774529616870924e-17,
        ),
        (0.6875, n - d, n + d, FRAC_PI_4, 3.06161699786838301793e-17),
        (
            1.1875,
            fma(-1.5, d, n),
            fma(1.5, n, d),
            9.82793723247329054082e-01,
            1.39033110312309984516e-17,
        ),
        (2.4375, -d, n, FRAC_PI_2, FRAC_PI_2_LOW),
    ];
    for (from, p, q, h, l) in directions {
        let beyond = n >= from * d;
        (above, below) = (pick(beyond, p, above), pick(beyond, q, below));
        (high, low) = (pick(beyond, h, high), pick(beyond, l, low));
    }
    let u = 1.0 / below;
    let t = above * u;
    // What the quotient leaves.
    let low = fma(fma(-t, below, above), u, low);
    let z = t * t;
    (high, t - (t * z * horner(z, &ATAN) - low))
}

pub(super) struct Atan;
impl Function for Atan {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        // Larger arguments have the same result.
        let a = pick(x.abs() > 1e100, 1e100, x.abs());
        let (high, low) = angle::<WIDE>(a, 1.0);
        (high + low).copysign(x)
    }
}

/// The angle of the point with abscissa `y` and ordinate `x`: torch's `atan2(x, y)`.
pub(super) struct Atan2;
impl Atan2 {
    /// The angle of `(d, n)`, mirrored if y is negative.
    #[inline(always)]
    fn of_sides<const WIDE: bool>(n: f64, d: f64, y: f64) -> f64 {
        let (high, low) = angle::<WIDE>(n, d);
        let right = high + low;
        // pi's low part is twice that of pi / 2.
        let left = (PI - high) - (low - 2.0 * FRAC_PI_2_LOW);
        pick(y.is_sign_negative(), left, right)
    }
}
impl Function for Atan2 {
    const BINARY: bool = true;
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, y: f64) -> f64 {
        let (mut n, mut d) = (x.abs(), y.abs());
        let both = n == d && (n == 0.0 || n == f64::INFINITY);
        if WIDE {
            let most = pick(n > d, n, d);
            // Powers of two.
            let down = 1.3552527156068805e-20;
            let scale = pick(most > 1e300, down, pick(most < 1e-280, 9.671406556917033e24, 1.0));
            (n, d) = (n * scale, d * scale);
        }
        let infinite = n == f64::INFINITY;
        let level = d == f64::INFINITY;
        n = pick(both, x.abs().min(1.0), pick(infinite, 1.0, n));
        d = pick(both, 1.0, pick(infinite, 0.0, d));
        (n, d) = (pick(level && !both, 0.0, n), pick(level && !both, 1.0, d));
        let angle = Self::of_sides::<WIDE>(n, d, y).copysign(x);
        pick(x.is_nan() || y.is_nan(), f64::NAN, angle)
    }
    #[inline(always)]
    fn uncommon<const WIDE: bool>(x: f64, y: f64) -> u64 {
        outside(x.abs(), 1e-200, 1e200) | outside(y.abs(), 1e-200, 1e200)
    }
    #[inline(always)]
    fn eval_common<const WIDE: bool>(x: f64, y: f64) -> f64 {
        Self::of_sides::<WIDE>(x.abs(), y.abs(), y).copysign(x)
    }
}
