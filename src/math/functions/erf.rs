//! The error function and its relatives.

use super::exp::{exp_of_sum, exp_of_two_parts, scale};
use super::{Function, fma, horner, horner_of_two_parts, pick};
use std::f64::consts::FRAC_2_SQRT_PI;

/// `(1 + 2a) exp(a²) erfc(a)` by `(a - 4) / (a + 4)`, for `a >= 0`. Relative error 4.5e-17.
const ERFC: [f64; 27] = [
    4.335744696880128e-11,
    -1.37212432109558e-10,
    -5.47796315403793e-10,
    1.7887492189077536e-09,
    3.979908209935334e-09,
    -1.470518755238763e-08,
    -2.1917128684776733e-08,
    1.1009041560728304e-07,
    7.89343963476142e-08,
    -8.249127434964572e-07,
    2.909062968371427e-07,
    5.709201212226352e-06,
    -1.1220753452725425e-05,
    -2.4398942309069806e-05,
    0.00015062130746391778,
    -0.0001992567764579197,
    -0.0007577732195352293,
    0.005031969992810925,
    -0.01619773406595253,
    0.03716751553591141,
    -0.0663303658116485,
    0.09373283499843951,
    -0.10103906603632504,
    0.06809705425469036,
    0.015379652102620042,
    -0.1396211168405625,
    1.2329951186255526,
];

/// What the last coefficient of [`ERFC`] lacks.
const ERFC_LOW: f64 = -4.625318921008717e-17;

/// [`ERFC`] for f32. Relative error 1.8e-10.
const ERFC_SHORT: [f64; 15] = [
    -9.714709731988143e-06,
    -8.59703641317568e-06,
    0.0001482094691445721,
    -0.00022049658164202712,
    -0.0007558842570188051,
    0.005047344723414027,
    -0.016198516244698414,
    0.037161413362401655,
    -0.06633020048068222,
    0.09373409380727189,
    -0.1010390813977985,
    0.06809693885725905,
    0.015379652514656337,
    -0.13962111376213265,
    1.2329951186255526,
];

/// `(erf(x) / x - 2 / sqrt(pi)) / x²` by `x²`, for `|x| <= 1`. Error 4.4e-17 of `erf(x) / x`.
const ERF: [f64; 11] = [
    -7.795898827002142e-10,
    1.3720064546777686e-08,
    -1.6208483801871705e-07,
    1.6447424703317362e-06,
    -1.492473690741966e-05,
    0.00012055294904839707,
    -0.0008548325975389692,
    0.0052239776071164225,
    -0.02686617064323777,
    0.11283791670945006,
    -0.37612638903183543,
];

/// `2 / sqrt(pi)` without its f64 number.
const SLOPE_LOW: f64 = 1.533545961316588e-17;

/// [`ERF`] for f32. Relative error 3.7e-11.
const ERF_SHORT: [f64; 8] = [
    -9.667044571486996e-06,
    0.00011265959025606609,
    -0.0008484080405535107,
    0.005221031807858023,
    -0.026865430727670243,
    0.11283782495236845,
    -0.3761263846802871,
    1.1283791670615435,
];

/// `exp(a²) erfc(a)` for `a >= 0`.
#[inline(always)]
fn scaled<const WIDE: bool>(a: f64) -> f64 {
    let big = a > 1e15;
    let b = pick(big, 1.0, a);
    let t = (b - 4.0) / (b + 4.0);
    let p = match WIDE {
        true => horner(t, &ERFC),
        false => horner(t, &ERFC_SHORT),
    };
    pick(big, 0.5 * FRAC_2_SQRT_PI / a, p / (1.0 + 2.0 * b))
}

/// Above this magnitude, `erfc` is 0.
const NOTHING: f64 = 27.4;

/// `erfc(a)` for `a >= 0`. The factors are sums of two numbers: rounded each, they would be over 3 ULP.
#[inline(always)]
fn complement_of_two_parts(a: f64) -> f64 {
    let a = pick(a > NOTHING, NOTHING, a);
    let (p, p_low) = horner_of_two_parts((a - 4.0) / (a + 4.0), &ERFC);
    let d = 1.0 + 2.0 * a;
    let d_low = 2.0 * a - (d - 1.0);
    let u = 1.0 / d;
    let m = p * u;
    let m_low = (fma(-m, d, p) + fma(-m, d_low, p_low + ERFC_LOW)) * u;
    let s = a * a;
    let (e, e_low, n) = exp_of_two_parts(-s, -fma(a, a, -s));
    scale(fma(e, m, fma(e, m_low, e_low * m)), n)
}

/// `erfc(a)` for `a >= 0`.
#[inline(always)]
fn complement<const WIDE: bool>(a: f64) -> f64 {
    if WIDE {
        return complement_of_two_parts(a);
    }
    let s = a * a;
    scaled::<false>(a) * exp_of_sum::<false>(-s, -fma(a, a, -s))
}

/// `erf(x)` for `|x| <= 1`.
#[inline(always)]
fn near_zero<const WIDE: bool>(x: f64) -> f64 {
    let z = x * x;
    match WIDE {
        true => fma(x, FRAC_2_SQRT_PI, x * fma(z, horner(z, &ERF), SLOPE_LOW)),
        false => x * horner(z, &ERF_SHORT),
    }
}

/// `1 - erf(x)` for `|x| < 0.44`, whose largest rounding error is that of the difference.
#[inline(always)]
fn one_minus_near_zero(x: f64) -> f64 {
    let z = x * x;
    let difference = fma(-FRAC_2_SQRT_PI, x, 1.0);
    let lost = fma(-FRAC_2_SQRT_PI, x, 1.0 - difference);
    difference + fma(-x, fma(z, horner(z, &ERF), SLOPE_LOW), lost)
}

pub(super) struct Erf;
impl Function for Erf {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        let far = (1.0 - complement::<WIDE>(a)).copysign(x);
        // Where the summands of the polynomial differ little, the difference from 1 is nearer.
        pick(a <= if WIDE { 0.75 } else { 1.0 }, near_zero::<WIDE>(x), far)
    }
}

pub(super) struct Erfc;
impl Function for Erfc {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let far = complement::<WIDE>(x.abs());
        let far = pick(x < 0.0, 2.0 - far, far);
        match WIDE {
            // Above 0.443, `1 - difference` would not be exact.
            true => pick(x.abs() < 0.44, one_minus_near_zero(x), far),
            false => pick(x.abs() <= 0.5, 1.0 - near_zero::<false>(x), far),
        }
    }
}

pub(super) struct Erfcx;
impl Function for Erfcx {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let s = x * x;
        let near = scaled::<WIDE>(x.abs());
        let below = 2.0 * exp_of_sum::<WIDE>(s, fma(x, x, -s)) - near;
        pick(x < 0.0, below, near)
    }
}
