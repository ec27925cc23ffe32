//! Hyperbolic functions and their inverses, after fdlibm, by expm1 and log1p.

use super::exp::{expm1_of_two_parts, half_exp};
use super::log::{log_series, log1p, split};
use super::{Function, fma, horner, pick};
use std::f64::consts::{LN_2, SQRT_2};

/// Beyond this, `exp(-2x)` is below half an ULP of one.
const LARGE: f64 = 22.0;

/// Beyond this, the functions are infinite.
const INFINITE: f64 = 710.5;

/// `(sinh(x) - x) / x³` by `x²`, for `|x| <= 1`. Error 1e-18 of the sine.
const SINH: [f64; 8] = [
    2.8445264169895285e-15,
    7.646625361656657e-13,
    1.6059048396350562e-10,
    2.505210836405804e-08,
    2.755731922404034e-06,
    0.00019841269841269773,
    0.008333333333333333,
    0.16666666666666666,
];

/// `exp(a) / 2` as two summands, and half of its inverse.
#[inline(always)]
fn halves<const WIDE: bool>(a: f64) -> (f64, f64, f64) {
    let (high, low) = half_exp::<WIDE>(pick(a > INFINITE, INFINITE, a));
    (high, low, 0.25 / (high + low))
}

pub(super) struct Sinh;
impl Function for Sinh {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        let (high, low, less) = halves::<WIDE>(a);
        let z = a * a;
        let near = fma(z * a, horner(z, &SINH), a);
        pick(a < 1.0, near, high + (low - less)).copysign(x)
    }
}

pub(super) struct Cosh;
impl Function for Cosh {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let (high, low, less) = halves::<WIDE>(x.abs());
        high + (low + less)
    }
}

/// `(e - 1) / (e + 1)` with `e = exp(2 |x|)`. The quotient is corrected by what it leaves.
pub(super) struct Tanh;
impl Function for Tanh {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        let (n, n_low) = expm1_of_two_parts::<WIDE>(2.0 * pick(a > LARGE, LARGE, a));
        let d = n + 2.0;
        let d_low = pick(n > 2.0, (n - d) + 2.0, (2.0 - d) + n) + n_low;
        let u = 1.0 / d;
        let q = n * u;
        let rest = fma(-q, d, n) + fma(-q, d_low, n_low);
        // Products of denormals have no rest.
        let y = pick(a < 1e-8, a, fma(rest, u, q));
        pick(a > LARGE, 1.0, y).copysign(x)
    }
}

/// Beyond this, `sqrt(x² + 1)` is x.
const HUGE: f64 = 268435456.0;

pub(super) struct Asinh;
impl Function for Asinh {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        let s = a * a;
        let near = a + s / (1.0 + (1.0 + s).sqrt());
        let far = a > HUGE;
        let y = log1p(pick(far, a - 1.0, near));
        (y + pick(far, LN_2, 0.0)).copysign(x)
    }
}

pub(super) struct Acosh;
impl Function for Acosh {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let t = x - 1.0;
        let near = t + (2.0 * t + t * t).sqrt();
        let far = x > HUGE;
        let y = log1p(pick(far, t, near)) + pick(far, LN_2, 0.0);
        pick(x < 1.0, f64::NAN, y)
    }
}

/// `(atanh(x) - x) / x³` by `x²`, for `|x| <= 1/2`. Relative error 5.6e-17.
const ATANH: [f64; 14] = [
    0.21098097885975797,
    -0.14450491183414468,
    0.13557903913692299,
    0.012292448728540531,
    0.05441915418234587,
    0.05160769881147162,
    0.05893099692590042,
    0.06665886352701884,
    0.07692345940270638,
    0.09090907881509189,
    0.11111111133938968,
    0.14285714285490106,
    0.20000000000000864,
    0.3333333333333333,
];

/// Half of `log((1 + x) / (1 - x))`: from 1/2, `(1 + x) / (1 - x) = 2^e (1 + s) / (1 - s)` with a small s.
pub(super) struct Atanh;
impl Function for Atanh {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        let n = 1.0 + a;
        // What the sum lost, times about `1 / (n + m)`.
        let lost = (a - (n - 1.0)) * 0.4;
        let (e, m) = split(1.0 - a);
        let more = n > SQRT_2 * m;
        let (e, m) = (pick(more, 1.0, 0.0) - e, pick(more, 2.0 * m, m));
        let s = (n - m) / (n + m);
        let far = s + fma(0.5 * s, log_series(s * s), lost);
        let far = fma(e, 0.5 * LN_2, far);
        let z = a * a;
        let near = fma(z * a, horner(z, &ATANH), a);
        let y = pick(a < 0.5, near, far);
        let y = pick(a == 1.0, f64::INFINITY, y);
        pick(a <= 1.0, y.copysign(x), f64::NAN)
    }
}
