//! Exponentials: `2^n` times a Taylor polynomial over half a unit of the binary exponent either side of zero.

use super::{Function, MAGIC, fma, horner, pick};
use std::f64::consts::{LN_2, LOG2_E};

/// ln(2), whose first part has so few digits that its product with n is exact.
const LN_2_HIGH: f64 = 6.93147180369123816490e-01;
const LN_2_LOW: f64 = 1.90821492927058770002e-10;

/// `(exp(r) - 1 - r) / r²`, for r from -0.347 to 0.406: relative error 6.5e-18.
const EXP: [f64; 12] = [
    1.650297756054014e-10,
    2.091900167305854e-09,
    2.5050664301258454e-08,
    2.7557259948605215e-07,
    2.7557320971869398e-06,
    2.480158734076581e-05,
    0.00019841269840342287,
    0.001388888888887686,
    0.008333333333333533,
    0.04166666666666668,
    0.16666666666666666,
    0.5,
];

/// [`EXP`] for f32: error below 1e-11.
const EXP_SHORT: [f64; 8] = [
    2.7557319223985893e-6,
    2.48015873015873e-5,
    1.984126984126984e-4,
    1.388888888888889e-3,
    8.333333333333333e-3,
    4.1666666666666664e-2,
    0.16666666666666666,
    0.5,
];

/// `2^n` for an integer n in -1022..=1023.
#[inline(always)]
fn power_of_two(n: f64) -> f64 {
    let bits = (n + MAGIC).to_bits() << 52;
    f64::from_bits(bits.wrapping_add(1.0f64.to_bits()))
}

/// `p * 2^n` for an integer n in -2000..=2000.
#[inline(always)]
pub(super) fn scale(p: f64, n: f64) -> f64 {
    let half = (n * 0.5).floor();
    p * power_of_two(half) * power_of_two(n - half)
}

/// `(exp(r) - 1 - r) / r²` for r from -0.347 to 0.406.
#[inline(always)]
fn tail<const WIDE: bool>(r: f64) -> f64 {
    match WIDE {
        true => horner(r, &EXP),
        false => horner(r, &EXP_SHORT),
    }
}

/// `exp(r) - 1`.
#[inline(always)]
fn expm1_core<const WIDE: bool>(r: f64) -> f64 {
    fma(r * r, tail::<WIDE>(r), r)
}

/// `x` held within bounds; NaN stays.
#[inline(always)]
fn bounded(x: f64, low: f64, high: f64) -> f64 {
    let x = pick(x < low, low, x);
    pick(x > high, high, x)
}

/// The integer n and the exact remainder r, and what to add to it: `x = n ln(2) + r + low`. r is between `bias - 1/2` and
/// `bias + 1/2` times `ln(2)`.
#[inline(always)]
fn reduce(x: f64, bias: f64) -> (f64, f64, f64) {
    let n = fma(x, LOG2_E, -bias).round_ties_even();
    (n, fma(-n, LN_2_HIGH, x), -n * LN_2_LOW)
}

/// `exp(x + low)` without its power of two n, which is the second result.
#[inline(always)]
fn unscaled_exp<const WIDE: bool>(x: f64, low: f64) -> (f64, f64) {
    let (n, high, rest) = reduce(x, 0.0);
    let low = rest + low;
    let r = high + low;
    (1.0 + (high + fma(r * r, tail::<WIDE>(r), low)), n)
}

/// `exp(x + low)` for a small `low`.
#[inline(always)]
pub(super) fn exp_of_sum<const WIDE: bool>(x: f64, low: f64) -> f64 {
    let inside = x.abs() < 800.0;
    let (e, n) = unscaled_exp::<WIDE>(bounded(x, -760.0, 711.0), pick(inside, low, 0.0));
    scale(e, n)
}

/// `y exp(x)` for a small y, where the exponential may overflow and the product not.
#[inline(always)]
pub(super) fn times_exp<const WIDE: bool>(y: f64, x: f64) -> f64 {
    let (e, n) = unscaled_exp::<WIDE>(bounded(x, -760.0, 1300.0), 0.0);
    scale(y * e, n)
}

#[inline(always)]
pub(super) fn exp<const WIDE: bool>(x: f64) -> f64 {
    exp_of_sum::<WIDE>(x, 0.0)
}

/// `exp(x) - 1` divided by four. For n = 1 and n = -1, where the result is smaller than its summands, the bias leaves an error of a
/// quarter of an ULP.
#[inline(always)]
fn quarter_expm1<const WIDE: bool>(x: f64) -> f64 {
    let (n, high, low) = reduce(bounded(x, -40.0, 710.5), 0.0849625);
    let r = high + low;
    let s = power_of_two(n - 2.0);
    // `s - 1/4` has one bit more than a number for this n.
    let low = low - pick(n == 54.0, 0.25 * f64::EPSILON, 0.0);
    let p = high + fma(r * r, tail::<WIDE>(r), low);
    fma(s, p, s - 0.25)
}

/// `exp(x) / 2` as two summands, for x from 0 to 710.5.
#[inline(always)]
pub(super) fn half_exp<const WIDE: bool>(x: f64) -> (f64, f64) {
    let (n, high, low) = reduce(x, 0.0);
    let r = high + low;
    let one = 1.0 + high;
    let rest = (1.0 - one) + high;
    // Twice a quarter: 2^1024 is not a number.
    let s = power_of_two(n - 2.0);
    (s * one * 2.0, s * (rest + fma(r * r, tail::<WIDE>(r), low)) * 2.0)
}

/// `exp(x + low)` for x from -760 to 0 and a small `low`: the first two results are summands, the third is their power of two.
#[inline(always)]
pub(super) fn exp_of_two_parts(x: f64, low: f64) -> (f64, f64, f64) {
    let (n, high, rest) = reduce(x, 0.0);
    let low = rest + low;
    let r = high + low;
    let one = 1.0 + high;
    (one, ((1.0 - one) + high) + fma(r * r, tail::<true>(r), low), n)
}

/// `exp(x) - 1` as two summands, for x from 0 to 50.
#[inline(always)]
pub(super) fn expm1_of_two_parts<const WIDE: bool>(x: f64) -> (f64, f64) {
    let (n, high, low) = reduce(x, 0.0);
    let r = high + low;
    let s = power_of_two(n);
    let (a, b) = (s - 1.0, s * high);
    let sum = a + b;
    let rest = ((a - sum) + b) + s * fma(r * r, tail::<WIDE>(r), low);
    let total = sum + rest;
    (total, (sum - total) + rest)
}

pub(super) struct Exp;
impl Function for Exp {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        exp::<WIDE>(x)
    }
}

pub(super) struct Exp2;
impl Function for Exp2 {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let x = bounded(x, -1100.0, 1025.0);
        let n = x.round_ties_even();
        scale(1.0 + expm1_core::<WIDE>((x - n) * LN_2), n)
    }
}

pub(super) struct Expm1;
impl Function for Expm1 {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        // Beside 0 a quarter would be denormal, and 0 would lose its sign.
        let y = 4.0 * quarter_expm1::<WIDE>(x);
        pick(x.abs() < 1e-17, x, y)
    }
}

pub(super) struct Sigmoid;
impl Function for Sigmoid {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        1.0 / (1.0 + exp::<WIDE>(-x))
    }
}
