//! Exponentials: `2^n` times a Taylor polynomial over half a unit of the binary exponent either side of zero.

use super::{Function, MAGIC, fma, horner, pick};
use std::f64::consts::{LN_2, LOG2_E};

/// `ln(2) - LN_2`.
const LN_2_LOW: f64 = 2.3190468138462996e-17;

/// `(exp(r) - 1 - r) / r²`: Taylor's series, error below 1e-17 for `|r| <= ln(2) / 2`.
const EXP: [f64; 12] = [
    1.6059043836821613e-10,
    2.08767569878681e-9,
    2.505210838544172e-8,
    2.755731922398589e-7,
    2.7557319223985893e-6,
    2.48015873015873e-5,
    1.984126984126984e-4,
    1.388888888888889e-3,
    8.333333333333333e-3,
    4.1666666666666664e-2,
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
fn scale(p: f64, n: f64) -> f64 {
    let half = (n * 0.5).floor();
    p * power_of_two(half) * power_of_two(n - half)
}

/// `exp(r) - 1` for `|r| <= 0.35`.
#[inline(always)]
fn expm1_core<const WIDE: bool>(r: f64) -> f64 {
    let q = match WIDE {
        true => horner(r, &EXP),
        false => horner(r, &EXP_SHORT),
    };
    fma(r * r, q, r)
}

/// `x` held within bounds; NaN stays.
#[inline(always)]
fn bounded(x: f64, low: f64, high: f64) -> f64 {
    let x = pick(x < low, low, x);
    pick(x > high, high, x)
}

/// The integer n and the remainder r with `x = n ln(2) + r`.
#[inline(always)]
fn reduce(x: f64) -> (f64, f64) {
    let n = (x * LOG2_E).round_ties_even();
    let r = fma(-n, LN_2, x);
    (n, fma(-n, LN_2_LOW, r))
}

/// `exp(x + low)` for a small `low`.
#[inline(always)]
pub(super) fn exp_of_sum<const WIDE: bool>(x: f64, low: f64) -> f64 {
    let inside = x.abs() < 800.0;
    let x = bounded(x, -760.0, 711.0);
    let (n, r) = reduce(x);
    let r = r + pick(inside, low, 0.0);
    scale(1.0 + expm1_core::<WIDE>(r), n)
}

#[inline(always)]
pub(super) fn exp<const WIDE: bool>(x: f64) -> f64 {
    exp_of_sum::<WIDE>(x, 0.0)
}

/// `(exp(x) - 1) / 2`, which does not overflow before sinh does.
#[inline(always)]
pub(super) fn half_expm1<const WIDE: bool>(x: f64) -> f64 {
    let (n, r) = reduce(bounded(x, -40.0, 710.5));
    let p = expm1_core::<WIDE>(r);
    let s = power_of_two(n - 2.0);
    let y = 2.0 * fma(s, p, s - 0.25);
    // The sum loses the sign of a zero.
    y.copysign(pick(x.is_nan(), y, x))
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
        2.0 * half_expm1::<WIDE>(x)
    }
}

pub(super) struct Sigmoid;
impl Function for Sigmoid {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        1.0 / (1.0 + exp::<WIDE>(-x))
    }
}
