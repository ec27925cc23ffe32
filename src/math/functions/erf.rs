//! The error function, its relatives and inverses.

use super::exp::exp_of_sum;
use super::log::log;
use super::{Function, fma, horner, outside, pick};
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

/// `erfinv(y) / y` by `w - 3`, where `w = -log(1 - y²)` is at most 6. Relative error 5.7e-17.
const ERFINV_NEAR: [f64; 27] = [
    1.0884944714275079e-23,
    -4.875497331933339e-23,
    -9.121906290045745e-22,
    6.969558179970243e-21,
    2.1193745850843483e-20,
    -4.538311187553199e-19,
    1.438903458635126e-18,
    1.371899381037917e-17,
    -1.553106127568499e-16,
    2.667876756919632e-16,
    6.2814658062791536e-15,
    -5.288836089657302e-14,
    6.500356922358951e-15,
    2.6988082584006852e-12,
    -1.7329667152522458e-11,
    -3.142515890883365e-11,
    1.1108001596301519e-09,
    -5.46717960654031e-09,
    -2.3688730504376288e-08,
    4.499854260406501e-07,
    -1.7480020928042582e-06,
    -1.2716422639004465e-05,
    0.00019506132441186625,
    -0.0008361817769092617,
    -0.0057381352210056176,
    0.24163040416615827,
    1.6235420064648298,
];

/// [`ERFINV_NEAR`] for f32. Relative error 3.8e-11.
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
    match WIDE {
        true => fma(x, FRAC_2_SQRT_PI, x * fma(z, horner(z, &ERF), SLOPE_LOW)),
        false => x * horner(z, &ERF_SHORT),
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

/// `erfinv(y) / y` for `w = -log(1 - y²)` up to [`NEAR`].
#[inline(always)]
fn inverse_ratio_near<const WIDE: bool>(w: f64) -> f64 {
    match WIDE {
        true => horner(w - 3.0, &ERFINV_NEAR),
        false => horner(w - 3.0, &ERFINV_NEAR_SHORT),
    }
}

/// `erfinv(y) / y` for `w = -log(1 - y²)`.
#[inline(always)]
fn inverse_ratio<const WIDE: bool>(w: f64) -> f64 {
    let s = w.sqrt();
    let (far, tail) = match WIDE {
        true => (horner(s - 3.3, &ERFINV_FAR), horner(8.0 / s - 1.0, &ERFINV_TAIL)),
        false => (
            horner(s - 3.3, &ERFINV_FAR_SHORT),
            horner(8.0 / s - 1.0, &ERFINV_TAIL_SHORT),
        ),
    };
    let beyond = s * pick(s <= 4.3, far, tail);
    pick(w <= NEAR, inverse_ratio_near::<WIDE>(w), beyond)
}

/// The limit of the first polynomial.
const NEAR: f64 = 6.0;

/// `|y|` for which w is below [`NEAR`], with a margin.
const NEAR_ARGUMENT: f64 = 0.9987;

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
        let x = a * inverse_ratio::<WIDE>(width(a));
        let x = pick(a == 1.0, f64::INFINITY, x);
        pick(a <= 1.0, x.copysign(y), f64::NAN)
    }
    #[inline(always)]
    fn uncommon<const WIDE: bool>(y: f64, _: f64) -> u64 {
        outside(y.abs(), 0.0, NEAR_ARGUMENT)
    }
    #[inline(always)]
    fn eval_common<const WIDE: bool>(y: f64, _: f64) -> f64 {
        y * inverse_ratio_near::<WIDE>(width(y.abs()))
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
