//! Logarithms, after fdlibm: `x = 2^e (1 + f)` with `1 + f` between the square roots of 1/2 and 2.

use super::number::Number;
use super::{Function, fma, upper_half};

const LN_2_HIGH: f64 = 6.93147180369123816490e-01;
const LN_2_LOW: f64 = 1.90821492927058770002e-10;

/// `log(1 + f) = f - f²/2 + s (f²/2 + R)`, where `s = f / (2 + f)` and `R = s² P(s²)`.
const LOG: [f64; 7] = [
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
];

/// The exponent and the significand, in sqrt(1/2)..sqrt(2), of a positive number.
#[inline(always)]
pub(super) fn split(x: f64) -> (f64, f64) {
    x.split_power()
}

/// R by the square of s: `log((1 + s) / (1 - s)) = 2s + sR`.
#[inline(always)]
pub(super) fn log_series<N: Number>(z: N) -> N {
    z * z.horner(&LOG)
}

/// `R + f²/2` times s, and `f²/2`.
#[inline(always)]
fn core<N: Number>(f: N) -> (N, N) {
    let s = f / (f + 2.0);
    let z = s * s;
    let half = f * 0.5 * f;
    (s * (half + log_series(z)), half)
}

/// A logarithm's values at 0, below 0 and at infinity and NaN, else `y`.
#[inline(always)]
fn specials<N: Number>(x: N, pole: f64, y: N) -> N {
    let [infinite, zero, lowest, nan] = [f64::INFINITY, pole, f64::NEG_INFINITY, f64::NAN].map(|k| x.constant(k));
    let y = N::pick(x.below(infinite), y, x);
    let y = N::pick(x.equals(zero), lowest, y);
    N::pick(x.below(zero), nan, y)
}

/// `log(x)` for positive normal and denormal numbers.
#[inline(always)]
pub(super) fn log_of_positive<N: Number>(x: N) -> N {
    let (e, m) = x.split_power();
    let f = m - 1.0;
    let (r, half) = core(f);
    e.fma(e.constant(LN_2_HIGH), f - (half - (r + e * LN_2_LOW)))
}

/// `log(x)` for positive normal numbers, as two summands.
#[inline(always)]
pub(super) fn log_of_two_parts(x: f64) -> (f64, f64) {
    let (e, m) = split(x);
    let f = m - 1.0;
    let (r, half) = core(f);
    // This product is exact.
    let whole = e * LN_2_HIGH;
    let sum = whole + f;
    let low = ((whole - sum) + f) + (fma(e, LN_2_LOW, r) - half);
    let high = sum + low;
    (high, (sum - high) + low)
}

#[inline(always)]
pub(crate) fn log<N: Number>(x: N) -> N {
    specials(x, 0.0, log_of_positive(x))
}

/// `log(1 + x)`, also near 0.
#[inline(always)]
pub(crate) fn log1p<N: Number>(x: N) -> N {
    let u = x + 1.0;
    let (e, m) = u.split_power();
    // What the sum lost.
    let one = x.constant(1.0);
    let lost = N::pick(x.below(one), x - (u - 1.0), one - (u - x)) / u;
    let f = m - 1.0;
    let (r, half) = core(f);
    let y = e.fma(
        e.constant(LN_2_HIGH),
        f - (half - (r + e.fma(e.constant(LN_2_LOW), lost))),
    );
    specials(x, -1.0, y.copysign(x))
}

/// A logarithm of another base, after FreeBSD's `k_log.h`: the factors are given as two summands.
#[inline(always)]
fn log_base(x: f64, of_e: [f64; 2], of_2: [f64; 2]) -> f64 {
    let (e, m) = split(x);
    let f = m - 1.0;
    let (r, half) = core(f);
    let high = upper_half(f - half);
    let low = (f - high) - half + r;
    let sum = e * of_2[0];
    let part = high * of_e[0];
    let total = sum + part;
    let rest = e * of_2[1] + (low + high) * of_e[1] + low * of_e[0];
    specials(x, 0.0, rest + ((sum - total) + part) + total)
}

pub(super) struct Log;
impl Function for Log {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        log(x)
    }
}

pub(super) struct Log2;
impl Function for Log2 {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        log_base(x, [1.44269504072144627571e+00, 1.67517131648865118353e-10], [1.0, 0.0])
    }
}

pub(super) struct Log10;
impl Function for Log10 {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let of_e = [4.34294481878168880939e-01, 2.50829467116452752298e-11];
        log_base(x, of_e, [3.01029995663611771306e-01, 3.69423907715893078616e-13])
    }
}

pub(super) struct Log1p;
impl Function for Log1p {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        log1p(x)
    }
}
