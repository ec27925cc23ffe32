//! The error function, its relatives and inverses.

use super::exp::exp_of_sum;
use super::log::log;
use super::{Function, fma, horner, pick};
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

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

/// `erf(x) / x` by `x²`, for `|x| <= 1`. Relative error 4.4e-17.
const ERF: [f64; 12] = [
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
    FRAC_2_SQRT_PI,
];

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

/// `erfinv(y) / y` by `w - 3`, where `w = -log(1 - y²)` is at most 6. Relative error 3.8e-11.
const ERFINV_NEAR: [f64; 15] = [
    1.2961748038399046e-13,
    1.1892146350213194e-12,
    -1.863748238551682e-11,
    -1.2401858242457118e-11,
    1.1186909237483739e-09,
    -5.593270701360593e-09,
    -2.371560306891766e-08,
    4.504397688878656e-07,
    -1.7479536683526028e-06,
    -1.2717270191855453e-05,
    0.00019506128514561083,
    -0.0008361810758538487,
    -0.005738135211645762,
    0.24163040399766883,
    1.6235420064648298,
];

/// `erfinv(y) / (y s)` by `s - 3.3`, where `s = sqrt(w)` is at most 4.3. Relative error 7.6e-11.
const ERFINV_FAR: [f64; 13] = [
    -9.415857943249503e-07,
    5.269443215090905e-06,
    -8.763842782654271e-06,
    -1.0765442991064024e-05,
    8.626270200484483e-05,
    -0.00023625614641601124,
    0.0004378494753335937,
    -0.0006128768797676678,
    0.0006021609247882906,
    0.00011631939816619181,
    -0.003676708259567445,
    0.016976727814197748,
    0.9497459188559566,
];

/// `erfinv(y) / (y s)` by `8 / s - 1`, where `s` is at most 28. Relative error 4.7e-10.
const ERFINV_TAIL: [f64; 13] = [
    -2.146565589261241e-05,
    4.8333177376110124e-05,
    -2.8250086709006334e-05,
    6.532167730192105e-06,
    -3.7341892185537994e-05,
    8.260795389073646e-05,
    -0.0001323707574342429,
    0.00024900206051820054,
    -0.0006703715362529529,
    0.002536703423180719,
    -0.003759085507328505,
    -0.022967655166806145,
    0.9846392009491005,
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

/// `exp(-a²)`.
#[inline(always)]
fn gaussian<const WIDE: bool>(a: f64) -> f64 {
    let s = a * a;
    exp_of_sum::<WIDE>(-s, -fma(a, a, -s))
}

/// `erfc(a)` for `a >= 0`.
#[inline(always)]
fn complement<const WIDE: bool>(a: f64) -> f64 {
    scaled::<WIDE>(a) * gaussian::<WIDE>(a)
}

/// `erf(x)` for `|x| <= 1`.
#[inline(always)]
fn near_zero<const WIDE: bool>(x: f64) -> f64 {
    let z = x * x;
    x * match WIDE {
        true => horner(z, &ERF),
        false => horner(z, &ERF_SHORT),
    }
}

pub(super) struct Erf;
impl Function for Erf {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        let far = (1.0 - complement::<WIDE>(a)).copysign(x);
        pick(a <= 1.0, near_zero::<WIDE>(x), far)
    }
}

pub(super) struct Erfc;
impl Function for Erfc {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let far = complement::<WIDE>(x.abs());
        let far = pick(x < 0.0, 2.0 - far, far);
        pick(x.abs() <= 0.5, 1.0 - near_zero::<WIDE>(x), far)
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

/// `erfinv(y) / y`, with error 5e-10, where `w = -log(1 - y²)`.
#[inline(always)]
fn inverse_ratio(w: f64) -> f64 {
    let s = w.sqrt();
    let near = horner(w - 3.0, &ERFINV_NEAR);
    let far = s * horner(s - 3.3, &ERFINV_FAR);
    let tail = s * horner(8.0 / s - 1.0, &ERFINV_TAIL);
    pick(w <= 6.0, near, pick(s <= 4.3, far, tail))
}

/// A step of Halley's method from `x` near the root, where `error` is `erf(x)` minus its target.
#[inline(always)]
fn improve(x: f64, error: f64) -> f64 {
    let d = error / (FRAC_2_SQRT_PI * gaussian::<true>(x));
    x - d / (1.0 + x * d)
}

pub(super) struct Erfinv;
impl Function for Erfinv {
    #[inline(always)]
    fn eval<const WIDE: bool>(y: f64, _: f64) -> f64 {
        let a = y.abs();
        let mut x = a * inverse_ratio(-log((1.0 - a) * (1.0 + a)));
        if WIDE {
            let upper = (1.0 - a) - complement::<true>(x);
            let lower = near_zero::<true>(x) - a;
            x = improve(x, pick(a > 0.5, upper, lower));
        }
        let x = pick(a == 1.0, f64::INFINITY, x);
        pick(a <= 1.0, x.copysign(y), f64::NAN)
    }
}

pub(super) struct Ndtri;
impl Function for Ndtri {
    #[inline(always)]
    fn eval<const WIDE: bool>(p: f64, _: f64) -> f64 {
        // erfc(x) is q.
        let q = 2.0 * pick(p > 0.5, 1.0 - p, p);
        let a = 1.0 - q;
        let mut x = a * inverse_ratio(-log(q * (2.0 - q)));
        if WIDE {
            let upper = q - complement::<true>(x);
            let lower = near_zero::<true>(x) - a;
            x = improve(x, pick(a > 0.5, upper, lower));
        }
        let x = pick(q == 0.0, f64::INFINITY, x * SQRT_2);
        let x = pick(p > 0.5, x, -x);
        pick((0.0..=1.0).contains(&p), pick(p == 0.5, 0.0, x), f64::NAN)
    }
    #[inline(always)]
    fn is_far(p: f64, _: f64) -> bool {
        // The step would divide by a number that is denormal.
        p > 0.0 && p < 1e-290
    }
    fn eval_far(p: f64, _: f64) -> f64 {
        crate::scalar::math::ndtri(p)
    }
}
