//! Hyperbolic functions and their inverses, after fdlibm, by expm1 and log1p.

use super::exp::half_expm1;
use super::log::{log_series, log1p, split};
use super::{Function, fma, pick};
use std::f64::consts::{LN_2, SQRT_2};

/// Beyond this, `exp(-2x)` is below half an ULP of one.
const LARGE: f64 = 22.0;

pub(super) struct Sinh;
impl Function for Sinh {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        let h = half_expm1::<WIDE>(a);
        let t = 2.0 * h;
        let q = t / (t + 1.0);
        let y = pick(a < 1.0, 0.5 * (2.0 * t - t * q), 0.5 * (t + q));
        // `h` is half of expm1, whose one is above a rounding up to 37.
        pick(a > LARGE, h + 0.5, y).copysign(x)
    }
}

pub(super) struct Cosh;
impl Function for Cosh {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        let h = half_expm1::<WIDE>(a);
        let half = h + 0.5;
        half + 0.25 / half
    }
}

pub(super) struct Tanh;
impl Function for Tanh {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        let h = half_expm1::<WIDE>(2.0 * pick(a > LARGE, LARGE, a));
        pick(a > LARGE, 1.0, h / (h + 1.0)).copysign(x)
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

/// Half of `log((1 + x) / (1 - x))`: `(1 + x) / (1 - x) = 2^e (1 + s) / (1 - s)` with a small s, which is x while e is 0.
pub(super) struct Atanh;
impl Function for Atanh {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        let n = 1.0 + a;
        let (e, m) = split(1.0 - a);
        let more = n > SQRT_2 * m;
        let (e, m) = (pick(more, 1.0, 0.0) - e, pick(more, 2.0 * m, m));
        let small = e == 0.0;
        let s = pick(small, a, n - m) / pick(small, 1.0, n + m);
        let near = s + 0.5 * (s * log_series(s * s));
        let y = fma(e, 0.5 * LN_2, near);
        let y = pick(a == 1.0, f64::INFINITY, y);
        pick(a <= 1.0, y.copysign(x), f64::NAN)
    }
}
