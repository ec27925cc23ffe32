//! Sine, cosine and tangent, after fdlibm. The argument is reduced by pi / 2 in two steps with fused multiplications.

use super::{Function, MAGIC, fma, horner, outside, pick};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// `pi / 2 - FRAC_PI_2`.
const FRAC_PI_2_LOW: f64 = 6.123233995736766e-17;

/// Beyond this magnitude, the reduction has too few digits.
const LIMIT: f64 = 1e9;

const SIN: [f64; 5] = [
    1.58969099521155010221e-10,
    -2.50507602534068634195e-08,
    2.75573137070700676789e-06,
    -1.98412698298579493134e-04,
    8.33333333332248946124e-03,
];
const SIN_FIRST: f64 = -1.66666666666666324348e-01;

const COS: [f64; 6] = [
    -1.13596475577881948265e-11,
    2.08757232129817482790e-09,
    -2.75573143513906633035e-07,
    2.48015872894767294178e-05,
    -1.38888888888741095749e-03,
    4.16666666666666019037e-02,
];

/// The sine and the cosine of `x + low`, where `|x| <= pi / 4`, each as two summands.
#[inline(always)]
fn parts(x: f64, low: f64) -> [f64; 4] {
    let z = x * x;
    let v = z * x;
    let r = horner(z, &SIN);
    let sin_rest = -((z * (0.5 * low - v * r) - low) - v * SIN_FIRST);
    let r = z * horner(z, &COS);
    let half = 0.5 * z;
    let w = 1.0 - half;
    [x, sin_rest, w, ((1.0 - w) - half) + (z * r - x * low)]
}

/// The sine and the cosine of `x + low`, where `|x| <= pi / 4`.
#[inline(always)]
pub(super) fn sine_and_cosine(x: f64, low: f64) -> (f64, f64) {
    let [sin, sin_low, cos, cos_low] = parts(x, low);
    (sin + sin_low, cos + cos_low)
}

/// The remainder of `x` by pi / 2 as two summands, and the quadrant in the low bits.
#[inline(always)]
fn reduced(x: f64) -> (f64, f64, u64) {
    let t = fma(x, FRAC_2_PI, MAGIC);
    let n = t - MAGIC;
    let r = fma(-n, FRAC_PI_2, x);
    let w = n * FRAC_PI_2_LOW;
    let high = r - w;
    (high, (r - high) - w, t.to_bits())
}

/// The sine of `x + quadrants pi / 2`.
#[inline(always)]
fn sine(x: f64, quadrants: u64) -> f64 {
    let (high, low, k) = reduced(x);
    let (sin, cos) = sine_and_cosine(high, low);
    let k = k.wrapping_add(quadrants);
    let y = pick(k & 1 == 1, cos, sin);
    f64::from_bits(y.to_bits() ^ (k & 2) << 62)
}

macro_rules! trigonometric {
    ($name:ident, $far:path, |$x:ident| $value:expr) => {
        pub(super) struct $name;
        impl Function for $name {
            #[inline(always)]
            fn eval<const WIDE: bool>($x: f64, _: f64) -> f64 {
                $value
            }
            #[inline(always)]
            fn far(x: f64, _: f64) -> u64 {
                outside(x.abs(), 0.0, LIMIT)
            }
            fn eval_far<const WIDE: bool>(x: f64, _: f64) -> f64 {
                $far(x)
            }
        }
    };
}

// The reduction turns -0.0 into 0.0.
trigonometric!(Sin, f64::sin, |x| pick(x == 0.0, x, sine(x, 0)));
trigonometric!(Cos, f64::cos, |x| sine(x, 1));
trigonometric!(Tan, f64::tan, |x| pick(x == 0.0, x, tangent(x)));

/// The tangent: a quotient, corrected by what it leaves and by what its operands lost.
#[inline(always)]
fn tangent(x: f64) -> f64 {
    let (high, low, k) = reduced(x);
    let [s, s_rest, c, c_rest] = parts(high, low);
    let (sin, cos) = (s + s_rest, c + c_rest);
    let (sin_low, cos_low) = ((s - sin) + s_rest, (c - cos) + c_rest);
    let odd = k & 1 == 1;
    let (n, n_low) = (pick(odd, -cos, sin), pick(odd, -cos_low, sin_low));
    let (d, d_low) = (pick(odd, sin, cos), pick(odd, sin_low, cos_low));
    let u = 1.0 / d;
    let q = n * u;
    fma(fma(-q, d, n) + fma(-q, d_low, n_low), u, q)
}
