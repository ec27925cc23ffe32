//! The inverse of the error function, and that of the normal distribution.

use super::log::{log, log_of_two_parts};
use super::{Function, fma, horner, horner_of_two_parts, outside, pick};
use std::f64::consts::SQRT_2;

/// `(erfinv(y) / y - sqrt(pi) / 2) / w` by `w - 3`, where `w = -log(1 - y²)` is at most 6. Relative error 2.6e-17.
const ERFINV_NEAR: [f64; 27] = [
    3.596756807162142e-25,
    9.805917672126436e-24,
    -1.000230239392227e-22,
    -6.121215571869063e-22,
    9.395880886825732e-21,
    -6.993896809633715e-21,
    -4.421781397595174e-19,
    2.765437877913678e-18,
    5.518502266902029e-18,
    -1.7186611955755598e-16,
    7.817157152877397e-16,
    3.936318660415934e-15,
    -6.46940610423045e-14,
    2.0058254004927244e-13,
    2.097049649808e-12,
    -2.362081610194646e-11,
    3.9437314771638286e-11,
    9.92488215315237e-10,
    -8.444644291252821e-09,
    1.6452023693821735e-09,
    4.450498189694461e-07,
    -3.0831515497125964e-06,
    -3.466967989886511e-06,
    0.00020546222838152577,
    -0.0014525684620538342,
    -0.0013804298348441156,
    0.24577169367069063,
];

/// What the last coefficient of [`ERFINV_NEAR`] lacks.
const NEAR_LOW: f64 = 5.213450969802143e-18;

/// `sqrt(pi) / 2` as two summands. The first has so few digits that its difference from a number up to 4 is exact.
const RATIO: f64 = 0.8862269254527582;
const RATIO_LOW: f64 = -1.4935523496164464e-16;

/// `erfinv(y) / y` by `w - 3` for f32. Relative error 3.8e-11.
const ERFINV_NEAR_SHORT: [f64; 15] = [
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

/// `erfinv(y) / (y s)` by `s - 3.3`, where `s = sqrt(w)` is at most 4.3. Relative error 2.8e-17.
const ERFINV_FAR: [f64; 24] = [
    -1.8465112767078927e-11,
    2.399221301123389e-10,
    -8.686046650426044e-10,
    7.251531043104616e-10,
    3.917499080922372e-09,
    -1.606532417808598e-08,
    2.500988352557891e-08,
    2.0513044679664148e-08,
    -2.1518367038371278e-07,
    5.306167836252672e-07,
    -3.5050358387704697e-07,
    -1.8151670688473467e-06,
    6.663930711205708e-06,
    -8.476613854271994e-06,
    -1.214127543532023e-05,
    8.647067251414887e-05,
    -0.00023565147956716237,
    0.00043768703670790557,
    -0.000613002162973868,
    0.0006021972814311027,
    0.00011633029573586003,
    -0.003676710888293894,
    0.0169767275490354,
    0.9497459188850894,
];

/// What the last coefficient of [`ERFINV_FAR`] lacks.
const FAR_LOW: f64 = 2.316024764263932e-17;

/// [`ERFINV_FAR`] for f32. Relative error 7.6e-11.
const ERFINV_FAR_SHORT: [f64; 13] = [
    -9.415857943249506e-07,
    5.269443215090903e-06,
    -8.763842782654261e-06,
    -1.076544299106404e-05,
    8.626270200484481e-05,
    -0.0002362561464160111,
    0.00043784947533359337,
    -0.0006128768797676673,
    0.00060216092478829,
    0.00011631939816619223,
    -0.003676708259567445,
    0.016976727814197748,
    0.9497459188559566,
];

/// `erfinv(y) / (y s)` by `8 / s - 1`, where `s` is at most 28. Relative error 5.6e-17.
const ERFINV_TAIL: [f64; 30] = [
    6.752577603593264e-06,
    -2.229413849138677e-05,
    9.00981530577387e-06,
    4.3919836449369536e-05,
    -4.178691011646209e-05,
    -4.133333228217771e-05,
    6.267085568762761e-05,
    1.4594355280254024e-05,
    -4.6129110438052615e-05,
    -2.2850889645921325e-06,
    2.6877130848052347e-05,
    -6.501287662629357e-06,
    -4.3533332964424536e-06,
    -2.849337296389706e-06,
    7.651787364162008e-06,
    -7.688624486099181e-06,
    8.807961539923742e-06,
    -1.1764601976706665e-05,
    1.5851829863840868e-05,
    -2.1765976801226336e-05,
    3.10887633720312e-05,
    -4.668104955506243e-05,
    7.470068085553471e-05,
    -0.00012898376607005577,
    0.0002501778354835549,
    -0.0006708528987128495,
    0.002536630631798874,
    -0.0037590620169015566,
    -0.022967653900834002,
    0.9846392007703668,
];

/// What the last coefficient of [`ERFINV_TAIL`] lacks.
const TAIL_LOW: f64 = -3.806412776186932e-17;

/// [`ERFINV_TAIL`] for f32. Relative error 4.7e-10.
const ERFINV_TAIL_SHORT: [f64; 13] = [
    -2.1465655892612417e-05,
    4.833317737611013e-05,
    -2.8250086709006324e-05,
    6.532167730192099e-06,
    -3.7341892185538e-05,
    8.260795389073648e-05,
    -0.0001323707574342429,
    0.00024900206051820054,
    -0.0006703715362529529,
    0.002536703423180719,
    -0.003759085507328505,
    -0.022967655166806145,
    0.9846392009491005,
];

/// `erfinv(y) / y` for `w = -log(1 - y²)` up to [`NEAR`].
#[inline(always)]
fn inverse_ratio_near<const WIDE: bool>(w: f64) -> f64 {
    match WIDE {
        true => fma(w, horner(w - 3.0, &ERFINV_NEAR), RATIO),
        false => horner(w - 3.0, &ERFINV_NEAR_SHORT),
    }
}

/// `erfinv(y) / (y s)` for `s = sqrt(-log(1 - y²))`, as two summands.
#[inline(always)]
fn inverse_ratio_beyond<const WIDE: bool>(s: f64) -> (f64, f64) {
    let (t, v) = (s - 3.3, 8.0 / s - 1.0);
    let near = s <= MIDDLE;
    if !WIDE {
        let (far, tail) = (horner(t, &ERFINV_FAR_SHORT), horner(v, &ERFINV_TAIL_SHORT));
        return (pick(near, far, tail), 0.0);
    }
    let (far, far_low) = horner_of_two_parts(t, &ERFINV_FAR);
    let (tail, tail_low) = horner_of_two_parts(v, &ERFINV_TAIL);
    (
        pick(near, far, tail),
        pick(near, far_low + FAR_LOW, tail_low + TAIL_LOW),
    )
}

/// `erfinv(y) / y` for `w = -log(1 - y²)`.
#[inline(always)]
fn inverse_ratio<const WIDE: bool>(w: f64) -> f64 {
    let s = w.sqrt();
    let beyond = s * inverse_ratio_beyond::<WIDE>(s).0;
    pick(w <= NEAR, inverse_ratio_near::<WIDE>(w), beyond)
}

/// The limit of the first polynomial.
const NEAR: f64 = 6.0;

/// The root of the limit of the second polynomial.
const MIDDLE: f64 = 4.3;

/// `|y|` for which w is below [`NEAR`], with a margin.
const NEAR_ARGUMENT: f64 = 0.9987;

/// `-log(1 - y²)` as two summands.
#[inline(always)]
fn width_of_two_parts(y: f64) -> (f64, f64) {
    let (l, l_low) = log_of_two_parts(fma(-y, y, 1.0));
    (-l, -l_low)
}

/// `erfinv(y)` for a width up to [`NEAR`]. Factors that were rounded would make it 2 ULP.
#[inline(always)]
fn wide_near(y: f64, w: f64, w_low: f64) -> f64 {
    let (q, q_low) = horner_of_two_parts(w - 3.0, &ERFINV_NEAR);
    let p = fma(w, q, RATIO);
    let rest = fma(w, q_low + NEAR_LOW, fma(w_low, q, RATIO_LOW));
    let p_low = fma(w, q, RATIO - p) + rest;
    fma(y, p, y * p_low)
}

/// `erfinv(a)` for `a >= 0`.
#[inline(always)]
fn wide(a: f64) -> f64 {
    let (w, w_low) = width_of_two_parts(a);
    let s = w.sqrt();
    let s_low = (fma(-s, s, w) + w_low) * (0.5 / s);
    let (r, r_low) = inverse_ratio_beyond::<true>(s);
    let m = s * r;
    let m_low = fma(s, r, -m) + fma(s, r_low, s_low * r);
    pick(w <= NEAR, wide_near(a, w, w_low), fma(a, m, a * m_low))
}

/// `-log(1 - a²)`.
#[inline(always)]
fn width(a: f64) -> f64 {
    -log((1.0 - a) * (1.0 + a))
}

pub(super) struct Erfinv;
impl Function for Erfinv {
    #[inline(always)]
    fn eval<const WIDE: bool>(y: f64, _: f64) -> f64 {
        let a = y.abs();
        let x = match WIDE {
            true => wide(a),
            false => a * inverse_ratio::<false>(width(a)),
        };
        let x = pick(a == 1.0, f64::INFINITY, x);
        pick(a <= 1.0, x.copysign(y), f64::NAN)
    }
    #[inline(always)]
    fn uncommon<const WIDE: bool>(y: f64, _: f64) -> u64 {
        outside(y.abs(), 0.0, NEAR_ARGUMENT)
    }
    #[inline(always)]
    fn eval_common<const WIDE: bool>(y: f64, _: f64) -> f64 {
        if WIDE {
            let (w, w_low) = width_of_two_parts(y);
            // Of -0, the low product is +0.
            return wide_near(y, w, w_low).copysign(y);
        }
        y * inverse_ratio_near::<false>(width(y.abs()))
    }
}

/// The complementary argument of erfinv for the probability p: erfc(x) is q.
#[inline(always)]
fn tail_of(p: f64) -> f64 {
    2.0 * pick(p > 0.5, 1.0 - p, p)
}

pub(super) struct Ndtri;
impl Function for Ndtri {
    #[inline(always)]
    fn eval<const WIDE: bool>(p: f64, _: f64) -> f64 {
        let q = tail_of(p);
        let x = (1.0 - q) * inverse_ratio::<WIDE>(-log(q * (2.0 - q))) * SQRT_2;
        let x = pick(q == 0.0, f64::INFINITY, x);
        let x = pick(p > 0.5, x, -x);
        pick((0.0..=1.0).contains(&p), pick(p == 0.5, 0.0, x), f64::NAN)
    }
    #[inline(always)]
    fn uncommon<const WIDE: bool>(p: f64, _: f64) -> u64 {
        outside((p - 0.5).abs(), 0.0, 0.5 * NEAR_ARGUMENT)
    }
    #[inline(always)]
    fn in_domain(p: f64, _: f64) -> u64 {
        !outside(p.abs(), 0.0, 1.0 + f64::EPSILON)
    }
    #[inline(always)]
    fn eval_common<const WIDE: bool>(p: f64, _: f64) -> f64 {
        let q = tail_of(p);
        let x = (1.0 - q) * inverse_ratio_near::<WIDE>(-log(q * (2.0 - q))) * SQRT_2;
        pick(p > 0.5, x, pick(p == 0.5, 0.0, -x))
    }
}
