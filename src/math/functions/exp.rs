//! Exponentials: `2^n` times a Taylor polynomial over half a unit of the binary exponent either side of zero.

use super::number::Number;
use super::{Function, fma, pick};
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

/// `p * 2^n` for an integer n in -2000..=2000.
#[inline(always)]
pub(super) fn scale(p: f64, n: f64) -> f64 {
    p.scale(n)
}

/// `(exp(r) - 1 - r) / r²` for r from -0.347 to 0.406.
#[inline(always)]
fn tail<N: Number, const WIDE: bool>(r: N) -> N {
    match WIDE {
        true => r.horner(&EXP),
        false => r.horner(&EXP_SHORT),
    }
}

/// The integer n and the exact remainder r, and what to add to it: `x = n ln(2) + r + low`. r is between `bias - 1/2` and
/// `bias + 1/2` times `ln(2)`.
#[inline(always)]
fn reduce<N: Number>(x: N, bias: f64) -> (N, N, N) {
    let n = x.fma(x.constant(LOG2_E), x.constant(-bias)).round_ties_even();
    (n, n.fma(x.constant(-LN_2_HIGH), x), n * -LN_2_LOW)
}

/// `exp(high + low) - high - low`, plus `low`, where low is below an ULP of high.
#[inline(always)]
fn above_high<N: Number, const WIDE: bool>(high: N, low: N) -> N {
    let r = high + low;
    (r * r).fma(tail::<N, WIDE>(r), low)
}

/// `exp(x + low)` without its power of two n, which is the second result.
#[inline(always)]
fn unscaled_exp<const WIDE: bool>(x: f64, low: f64) -> (f64, f64) {
    let (n, high, rest) = reduce(x, 0.0);
    (1.0 + (high + above_high::<f64, WIDE>(high, rest + low)), n)
}

/// `exp(x + low)` for a small `low`.
#[inline(always)]
pub(super) fn exp_of_sum<const WIDE: bool>(x: f64, low: f64) -> f64 {
    let inside = x.abs() < 800.0;
    let (e, n) = unscaled_exp::<WIDE>(x.bounded(-760.0, 711.0), pick(inside, low, 0.0));
    scale(e, n)
}

/// `y exp(x)` for a small y, where the exponential may overflow and the product not.
#[inline(always)]
pub(super) fn times_exp<const WIDE: bool>(y: f64, x: f64) -> f64 {
    let (e, n) = unscaled_exp::<WIDE>(x.bounded(-760.0, 1300.0), 0.0);
    scale(y * e, n)
}

#[inline(always)]
pub(crate) fn exp<N: Number, const WIDE: bool>(x: N) -> N {
    let (n, high, low) = reduce(x.bounded(-760.0, 711.0), 0.0);
    (high + above_high::<N, WIDE>(high, low) + 1.0).scale(n)
}

#[inline(always)]
pub(crate) fn exp2<N: Number, const WIDE: bool>(x: N) -> N {
    let x = x.bounded(-1100.0, 1025.0);
    let n = x.round_ties_even();
    let r = (x - n) * LN_2;
    ((r * r).fma(tail::<N, WIDE>(r), r) + 1.0).scale(n)
}

#[inline(always)]
pub(crate) fn sigmoid<N: Number, const WIDE: bool>(x: N) -> N {
    x.constant(1.0) / (exp::<N, WIDE>(x * -1.0) + 1.0)
}

/// `exp(x) - 1` divided by four. For n = 1 and n = -1, where the result is smaller than its summands, the bias leaves an error of a
/// quarter of an ULP.
#[inline(always)]
fn quarter_expm1<N: Number, const WIDE: bool>(x: N) -> N {
    let (n, high, low) = reduce(x.bounded(-40.0, 710.5), 0.0849625);
    let r = high + low;
    let s = (n - 2.0).power_of_two();
    // `s - 1/4` has one bit more than a number for this n.
    let extra = N::pick(
        n.equals(n.constant(54.0)),
        n.constant(0.25 * f64::EPSILON),
        n.constant(0.0),
    );
    let p = high + (r * r).fma(tail::<N, WIDE>(r), low - extra);
    s.fma(p, s - 0.25)
}

#[inline(always)]
pub(crate) fn expm1<N: Number, const WIDE: bool>(x: N) -> N {
    // Beside 0 a quarter would be denormal, and 0 would lose its sign.
    let y = quarter_expm1::<N, WIDE>(x) * 4.0;
    N::pick(x.abs().below(x.constant(1e-17)), x, y)
}

/// `exp(x) / 2` as two summands, for x from 0 to 710.5.
#[inline(always)]
pub(super) fn half_exp<const WIDE: bool>(x: f64) -> (f64, f64) {
    let (n, high, low) = reduce(x, 0.0);
    let r = high + low;
    let one = 1.0 + high;
    let rest = (1.0 - one) + high;
    // Twice a quarter: 2^1024 is not a number.
    let s = (n - 2.0).power_of_two();
    (s * one * 2.0, s * (rest + fma(r * r, tail::<f64, WIDE>(r), low)) * 2.0)
}

/// `exp(x + low)` for x from -760 to 0 and a small `low`: the first two results are summands, the third is their power of two.
#[inline(always)]
pub(super) fn exp_of_two_parts(x: f64, low: f64) -> (f64, f64, f64) {
    let (n, high, rest) = reduce(x, 0.0);
    let low = rest + low;
    let r = high + low;
    let one = 1.0 + high;
    (one, ((1.0 - one) + high) + fma(r * r, tail::<f64, true>(r), low), n)
}

/// `exp(x) - 1` as two summands, for x from 0 to 50.
#[inline(always)]
pub(super) fn expm1_of_two_parts<const WIDE: bool>(x: f64) -> (f64, f64) {
    let (n, high, low) = reduce(x, 0.0);
    let r = high + low;
    let s = n.power_of_two();
    let (a, b) = (s - 1.0, s * high);
    let sum = a + b;
    let rest = ((a - sum) + b) + s * fma(r * r, tail::<f64, WIDE>(r), low);
    let total = sum + rest;
    (total, (sum - total) + rest)
}

pub(super) struct Exp;
impl Function for Exp {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        exp::<f64, WIDE>(x)
    }
}

pub(super) struct Exp2;
impl Function for Exp2 {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        exp2::<f64, WIDE>(x)
    }
}

pub(super) struct Expm1;
impl Function for Expm1 {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        expm1::<f64, WIDE>(x)
    }
}

pub(super) struct Sigmoid;
impl Function for Sigmoid {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        sigmoid::<f64, WIDE>(x)
    }
}
