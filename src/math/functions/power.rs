//! Powers and the hypotenuse.

use super::exp::exp_of_sum;
use super::log::{log_of_positive, split};
use super::{Function, LEAST, fma, horner, outside, pick};

/// `ln(2)`, whose first part times an exponent is exact.
const LN_2: [f64; 2] = [6.93147180369123816490e-01, 1.90821492927058770002e-10];

/// 1/3 as two summands.
const THIRD: [f64; 2] = [1.0 / 3.0, 1.850371707708594e-17];

/// `1 / (2k + 1)` for k from 2 up, by the square of `(m - 1) / (m + 1)`.
const ARTANH: [f64; 10] = [
    1.0 / 23.0,
    1.0 / 21.0,
    1.0 / 19.0,
    1.0 / 17.0,
    1.0 / 15.0,
    1.0 / 13.0,
    1.0 / 11.0,
    1.0 / 9.0,
    1.0 / 7.0,
    1.0 / 5.0,
];

/// The sum of two numbers, and its rounding error, where `|a| >= |b|`.
#[inline(always)]
fn sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    (s, (a - s) + b)
}

/// The logarithm of a positive finite number as two summands, with relative error 2^-62: `2 artanh((m - 1) / (m + 1))`, whose first
/// two terms are computed in two summands.
#[inline(always)]
fn log_of_two_parts(x: f64) -> (f64, f64) {
    let (e, m) = split(x);
    let (n, d) = (m - 1.0, m + 1.0);
    let s = n / d;
    // `d - 1` is exact. `m - d` would not be: just beyond -1 there are half as many numbers as below m.
    let rest = fma(-s, d, n) - s * (m - (d - 1.0));
    let s_low = rest / d;
    let z = s * s;
    let z_low = fma(s, s, -z) + 2.0 * s * s_low;
    let t = z * THIRD[0];
    let t_low = fma(z, THIRD[0], -t) + (z_low * THIRD[0] + z * THIRD[1]);
    let (t, t_low) = (t, t_low + z * z * horner(z, &ARTANH));
    let (a, a_low) = (2.0 * s, 2.0 * s_low);
    let b = a * t;
    let b_low = fma(a, t, -b) + (a * t_low + a_low * t);
    let (h, h_low) = sum(a, b);
    let exponent = e * LN_2[0];
    // Without an exponent, the other summand is the larger.
    let (total, lost) = sum(pick(e == 0.0, h, exponent), pick(e == 0.0, 0.0, h));
    (total, lost + (fma(e, LN_2[1], h_low) + (a_low + b_low)))
}

/// `x ** y` for finite positive x and finite y.
#[inline(always)]
pub(super) fn pow<const WIDE: bool>(x: f64, y: f64) -> f64 {
    if !WIDE {
        return exp_of_sum::<false>(y * log_of_positive(x), 0.0);
    }
    let (l, l_low) = log_of_two_parts(x);
    let p = y * l;
    exp_of_sum::<true>(p, fma(y, l, -p) + y * l_low)
}

pub(super) struct Pow;
impl Function for Pow {
    const BINARY: bool = true;
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, y: f64) -> f64 {
        let a = x.abs();
        let size = pow::<WIDE>(a, y);
        // Zero and infinity, as bases and as exponents.
        let grows = (a > 1.0) == (y > 0.0);
        let limit = pick(a == 1.0, 1.0, pick(grows, f64::INFINITY, 0.0));
        let extreme = a == 0.0 || a == f64::INFINITY || y.abs() == f64::INFINITY;
        let size = pick(extreme, limit, size);
        let whole = y == y.floor();
        let odd = whole && (0.5 * y) != (0.5 * y).floor();
        let negative = x.is_sign_negative();
        let signed = pick(negative && odd, -size, size);
        let undefined = (x < 0.0 && x != f64::NEG_INFINITY && !whole) || x.is_nan() || y.is_nan();
        let value = pick(undefined, f64::NAN, signed);
        pick(y == 0.0 || x == 1.0, 1.0, value)
    }
    #[inline(always)]
    fn uncommon<const WIDE: bool>(x: f64, y: f64) -> u64 {
        outside(x, LEAST, f64::INFINITY) | outside(y.abs(), 0.0, f64::INFINITY)
    }
    #[inline(always)]
    fn eval_common<const WIDE: bool>(x: f64, y: f64) -> f64 {
        pow::<WIDE>(x, y)
    }
}

pub(super) struct Hypot;
impl Function for Hypot {
    const BINARY: bool = true;
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, y: f64) -> f64 {
        let infinite = x.abs() == f64::INFINITY || y.abs() == f64::INFINITY;
        if !WIDE {
            return pick(infinite, f64::INFINITY, fma(x, x, y * y).sqrt());
        }
        let more = x.abs() > y.abs();
        let (most, least) = (pick(more, x, y).abs(), pick(more, y, x).abs());
        let large = most > 1e150;
        let small = most < 1e-140;
        let scale = pick(large, 2.409919865102884e-181, pick(small, 4.149515568880993e180, 1.0));
        let back = pick(large, 4.149515568880993e180, pick(small, 2.409919865102884e-181, 1.0));
        let (most, least) = (most * scale, least * scale);
        // The square of the larger number is not rounded.
        pick(infinite, f64::INFINITY, fma(most, most, least * least).sqrt() * back)
    }
}
