//! Logarithms, after fdlibm: `x = 2^e (1 + f)` with `1 + f` between the square roots of 1/2 and 2.

use super::{Function, fma, horner, pick, upper_half};

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
    let small = x < f64::MIN_POSITIVE;
    let x = pick(small, x * 18014398509481984.0, x);
    // Both sides of the difference are positive, so the shift need not be arithmetic.
    let t = x
        .to_bits()
        .wrapping_add(1.0f64.to_bits())
        .wrapping_sub(0x3fe6_a09e_0000_0000);
    let e = t >> 52;
    let m = f64::from_bits(x.to_bits().wrapping_sub((e << 52).wrapping_sub(1.0f64.to_bits())));
    // The bits of 2^52 + e.
    let e = f64::from_bits(e | 0x4330_0000_0000_0000) - 4503599627370496.0;
    (e - pick(small, 1077.0, 1023.0), m)
}

/// R by the square of s: `log((1 + s) / (1 - s)) = 2s + sR`.
#[inline(always)]
pub(super) fn log_series(z: f64) -> f64 {
    z * horner(z, &LOG)
}

/// `R + f²/2` times s, and `f²/2`.
#[inline(always)]
fn core(f: f64) -> (f64, f64) {
    let s = f / (2.0 + f);
    let z = s * s;
    let half = 0.5 * f * f;
    (s * (half + log_series(z)), half)
}

/// A logarithm's values at 0, below 0 and at infinity and NaN, else `y`.
#[inline(always)]
fn specials(x: f64, pole: f64, y: f64) -> f64 {
    let y = pick(x < f64::INFINITY, y, x);
    let y = pick(x == pole, f64::NEG_INFINITY, y);
    pick(x < pole, f64::NAN, y)
}

/// `log(x)` for positive normal and denormal numbers.
#[inline(always)]
pub(super) fn log_of_positive(x: f64) -> f64 {
    let (e, m) = split(x);
    let f = m - 1.0;
    let (r, half) = core(f);
    fma(e, LN_2_HIGH, -((half - (r + e * LN_2_LOW)) - f))
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
pub(super) fn log(x: f64) -> f64 {
    specials(x, 0.0, log_of_positive(x))
}

/// `log(1 + x)`, also near 0.
#[inline(always)]
pub(super) fn log1p(x: f64) -> f64 {
    let u = 1.0 + x;
    let (e, m) = split(u);
    // What the sum lost.
    let c = pick(x >= 1.0, 1.0 - (u - x), x - (u - 1.0)) / u;
    let f = m - 1.0;
    let (r, half) = core(f);
    let y = fma(e, LN_2_HIGH, -((half - (r + fma(e, LN_2_LOW, c))) - f));
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
