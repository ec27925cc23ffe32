//! lgamma, digamma and the Hurwitz zeta function.

use super::log::log;
use super::power::pow;
use super::trig::sine_and_cosine;
use super::{Function, LEAST, MAGIC, fma, horner, outside, pick};
use crate::scalar::zeta::{zeta, zeta_f32};
use std::f64::consts::PI;

/// `lgamma(x) / ((x - 1) (x - 2))` by `x - 7/4`, for x in 1..2.5. Relative error 5.5e-17.
const LOG_GAMMA: [f64; 25] = [
    8.702854149462274e-08,
    -1.577723410210679e-07,
    -1.9561462574604242e-08,
    3.404324894896923e-08,
    4.142761109248788e-07,
    -7.562612463459416e-07,
    9.597109616498142e-07,
    -1.76764375827818e-06,
    3.5071990932812468e-06,
    -6.487859797094674e-06,
    1.194925036645649e-05,
    -2.226821449897537e-05,
    4.170547456941329e-05,
    -7.8464050392945e-05,
    0.0001485167612603942,
    -0.00028319036037842405,
    0.0005448969907212743,
    -0.0010605660937984334,
    0.0020955338799232407,
    -0.004226194125189418,
    0.008776370425257302,
    -0.019053957830260832,
    0.044520447198509644,
    -0.11948158662524268,
    0.4501393121092563,
];

/// [`LOG_GAMMA`] for f32. Relative error 1.4e-10.
const LOG_GAMMA_SHORT: [f64; 14] = [
    -4.103235798071492e-05,
    7.642463139430277e-05,
    -6.219408827013557e-05,
    0.00011841553982718153,
    -0.0002897803401132994,
    0.0005570866433380852,
    -0.0010592287072555212,
    0.002093060442418449,
    -0.0042263216971169274,
    0.008776606342725842,
    -0.019053953306080625,
    0.044520438832376955,
    -0.11948158665125458,
    0.4501393121573572,
];

/// Half the logarithm of 2 pi.
const HALF_LN_2PI: f64 = 0.918_938_533_204_672_8;

/// Stirling's series `B(2k) / (2k (2k - 1))` by `1 / x²`, times `1 / x`.
const STIRLING: [f64; 8] = [
    -3617.0 / 122400.0,
    1.0 / 156.0,
    -691.0 / 360360.0,
    1.0 / 1188.0,
    -1.0 / 1680.0,
    1.0 / 1260.0,
    -1.0 / 360.0,
    1.0 / 12.0,
];

/// [`LOG_GAMMA`] or, for f32, the shorter one.
#[inline(always)]
fn log_gamma_ratio<const WIDE: bool>(z: f64) -> f64 {
    match WIDE {
        true => horner(z, &LOG_GAMMA),
        false => horner(z, &LOG_GAMMA_SHORT),
    }
}

/// `lgamma(x)` for `x >= 0`: from 1..2.5 by recurrence and `ratio`, and Stirling's series from 9.
#[inline(always)]
fn log_gamma_of_positive(x: f64, ratio: impl Fn(f64) -> f64) -> f64 {
    let (mut y, mut product) = (pick(x < 1.0, x + 1.0, x), 1.0);
    for _ in 0..7 {
        let above = y > 2.5;
        let less = y - 1.0;
        product *= pick(above, less, 1.0);
        y = pick(above, less, y);
    }
    let large = x >= 9.0;
    let l = log(pick(large, x, pick(x < 1.0, x, product)));
    let near = (y - 1.0) * (y - 2.0) * ratio(y - 1.75);
    let near = near + pick(x < 1.0, -l, l);
    let v = 1.0 / x;
    let series = v * horner(v * v, &STIRLING);
    let far = fma(x - 0.5, l - 1.0, (HALF_LN_2PI - 0.5) + series);
    let far = pick(x == f64::INFINITY, x, far);
    pick(large, far, near)
}

/// `|sin(pi x)|`, and the cosine with the sine's sign taken from it, so that their quotient is the tangent's inverse.
#[inline(always)]
fn sine_of_pi(x: f64) -> (f64, f64) {
    let r = x - x.round_ties_even();
    let a = r.abs();
    let past = a > 0.25;
    let (sin, cos) = sine_and_cosine(PI * pick(past, 0.5 - a, a), 0.0);
    (pick(past, cos, sin), pick(past, sin, cos).copysign(r))
}

pub(super) struct Lgamma;
impl Function for Lgamma {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let a = x.abs();
        // Below zero, two logarithms nearly cancel beside a root, so f32 needs the long polynomial, too.
        let long = log_gamma_ratio::<true>;
        let l = log_gamma_of_positive(a, |z| pick(x < 0.0, long(z), log_gamma_ratio::<WIDE>(z)));
        let (sin, _) = sine_of_pi(a);
        // The reflection formula; near 0, -log|x|, which is what `l` is.
        let below = log(PI / (a * sin)) - l;
        let below = pick(a < 1e-17, l, below);
        let y = pick(x < 0.0, below, l);
        // Numbers of this size are integers.
        pick(x < -4503599627370496.0, f64::INFINITY, y)
    }
    #[inline(always)]
    fn uncommon<const WIDE: bool>(x: f64, _: f64) -> u64 {
        outside(x, LEAST, f64::INFINITY)
    }
    #[inline(always)]
    fn eval_common<const WIDE: bool>(x: f64, _: f64) -> f64 {
        log_gamma_of_positive(x, log_gamma_ratio::<WIDE>)
    }
}

/// `B(2k) / 2k` by `1 / x²`.
const DIGAMMA: [f64; 8] = [
    -3617.0 / 8160.0,
    1.0 / 12.0,
    -691.0 / 32760.0,
    1.0 / 132.0,
    -1.0 / 240.0,
    1.0 / 252.0,
    -1.0 / 120.0,
    1.0 / 12.0,
];

/// `digamma(x)` for `x > 0`: the recurrence up to 10, and the asymptotic series.
#[inline(always)]
fn digamma_of_positive(x: f64) -> f64 {
    // above / below is the sum of 1 / x over the steps.
    let (mut y, mut above, mut below) = (x, 0.0, 1.0);
    for _ in 0..10 {
        let step = y < 10.0;
        above = pick(step, fma(above, y, below), above);
        below *= pick(step, y, 1.0);
        y += pick(step, 1.0, 0.0);
    }
    let v = 1.0 / y;
    let z = v * v;
    let tail = z * horner(z, &DIGAMMA);
    let far = log(y) - 0.5 * v - tail;
    pick(x == f64::INFINITY, x, far - above / below)
}

pub(super) struct Digamma;
impl Function for Digamma {
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, _: f64) -> f64 {
        let d = digamma_of_positive(pick(x < 0.0, 1.0 - x, x));
        let (sin, cos) = sine_of_pi(x);
        let below = d - PI * cos / sin;
        let below = pick(x == x.trunc(), f64::NAN, below);
        let y = pick(x < 0.0, below, d);
        pick(x == 0.0, f64::INFINITY.copysign(-x), y)
    }
    #[inline(always)]
    fn uncommon<const WIDE: bool>(x: f64, _: f64) -> u64 {
        outside(x, LEAST, f64::INFINITY)
    }
    #[inline(always)]
    fn eval_common<const WIDE: bool>(x: f64, _: f64) -> f64 {
        digamma_of_positive(x)
    }
}

/// `(2k)! / B(2k)`, inverted.
const ZETA: [f64; 12] = [
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30240.0,
    -1.0 / 1209600.0,
    1.0 / 47900160.0,
    -1.0 / 1.8924375803183792e9,
    1.0 / 7.47242496e10,
    -1.0 / 2.950130727918164e12,
    1.0 / 1.1646782814350067e14,
    -1.0 / 4.597978722407473e15,
    1.0 / 1.8152105401943546e17,
    -1.0 / 7.166165256175667e18,
];

/// `base^-x` for a whole x below `2^BITS`.
#[inline(always)]
fn whole_power<const BITS: usize>(base: f64, x: f64) -> f64 {
    let bits = (x + MAGIC).to_bits();
    let (mut power, mut product) = (base, 1.0);
    for i in 0..BITS {
        product *= pick(bits >> i & 1 == 1, power, 1.0);
        power *= power;
    }
    1.0 / product
}

/// `c ? a : b` of words.
#[inline(always)]
fn pick_word(c: bool, a: u64, b: u64) -> u64 {
    if c { a } else { b }
}

/// The greatest exponent for [`whole_power`] with five bits.
const WHOLE: f64 = 31.0;

/// The greatest exponent for [`zeta_sum_short`].
const FEW: f64 = 8.0;

/// Adds terms to a sum while conditions hold. Written out, because the loop over elements around it becomes vector code only if it
/// is the innermost.
macro_rules! step {
    ($power:ident, $sum:ident, $a:ident: $($more:expr),*) => {
        $(
            let more: bool = $more;
            $sum += pick(more, $power($a), 0.0);
            $a += pick(more, 1.0, 0.0);
        )*
    };
}

/// The sum of `(q + k)^-x` over k, of the first ten and on as long as `q + k < 10`, which is at most ten more, and Euler-Maclaurin's
/// terms for the rest.
#[inline(always)]
fn zeta_sum(x: f64, q: f64, power: impl Fn(f64) -> f64) -> f64 {
    let (mut sum, mut a) = (0.0, q);
    step!(power, sum, a: true, true, true, true, true, true, true, true, true, true);
    step!(power, sum, a: a < 10.0, a < 10.0, a < 10.0, a < 10.0, a < 10.0);
    step!(power, sum, a: a < 10.0, a < 10.0, a < 10.0, a < 10.0, a < 10.0);
    sum + zeta_rest(x, a, power(a))
}

/// [`zeta_sum`] for f32, exponents up to [`FEW`] and `q > 0`: the terms as long as `q + k < 8`.
#[inline(always)]
fn zeta_sum_short(x: f64, q: f64) -> f64 {
    let power = |a| whole_power::<4>(a, x);
    let (mut sum, mut a) = (0.0, q);
    step!(power, sum, a: a < 8.0, a < 8.0, a < 8.0, a < 8.0, a < 8.0, a < 8.0, a < 8.0, a < 8.0);
    sum + zeta_rest(x, a, power(a))
}

/// The sum of `(a + k)^-x` over all k, by Euler and Maclaurin's formula. `last` is `a^-x`.
#[inline(always)]
fn zeta_rest(x: f64, a: f64, last: f64) -> f64 {
    let v = 1.0 / a;
    let mut sum = last * a / (x - 1.0) + 0.5 * last;
    let (mut factor, mut k, mut term) = (1.0, 0.0, last);
    for c in ZETA {
        factor *= x + k;
        term *= v;
        sum = fma(factor * term, c, sum);
        factor *= x + k + 1.0;
        term *= v;
        k += 2.0;
    }
    sum
}

/// The Hurwitz zeta function `Σ (q + k)^-x` by Euler-Maclaurin summation, after Cephes, as in torch. Exponents are most often whole:
/// polygamma's are.
pub(super) struct Zeta;
impl Zeta {
    #[inline(always)]
    fn is_whole(x: f64) -> bool {
        (x == x.trunc()) & (x <= WHOLE)
    }
    /// Whether [`zeta_sum_short`] is for these operands.
    #[inline(always)]
    fn is_short(x: f64, q: f64) -> bool {
        Self::is_whole(x) & (x > 1.0) & (x <= FEW) & (q > 0.0) & (q < 1e9)
    }
}
impl Function for Zeta {
    const BINARY: bool = true;
    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, q: f64) -> f64 {
        // `pow` is for positive bases; others are far unless the exponent is whole.
        let power = |a| pick(Self::is_whole(x), whole_power::<5>(a, x), pow::<WIDE>(a, -x));
        let sum = zeta_sum(x, q, power);
        match WIDE {
            true => sum,
            false => pick(Self::is_short(x, q), zeta_sum_short(x, q), sum),
        }
    }
    #[inline(always)]
    fn uncommon<const WIDE: bool>(x: f64, q: f64) -> u64 {
        match WIDE {
            true => Self::far(x, q) | pick_word(Self::is_whole(x), 0, u64::MAX),
            false => pick_word(Self::is_short(x, q), 0, u64::MAX),
        }
    }
    #[inline(always)]
    fn eval_common<const WIDE: bool>(x: f64, q: f64) -> f64 {
        match WIDE {
            true => zeta_sum(x, q, |a| whole_power::<5>(a, x)),
            false => zeta_sum_short(x, q),
        }
    }
    #[inline(always)]
    fn far(x: f64, q: f64) -> u64 {
        // Poles, many terms, and factors that overflow.
        let whole = Self::is_whole(x) & (q > -10.0) & (q != q.trunc());
        let few = (q > 0.0) | whole;
        pick_word((x > 1.0) & (x < 100.0) & few & (q.abs() < 1e9), 0, u64::MAX)
    }
    fn eval_far<const WIDE: bool>(x: f64, q: f64) -> f64 {
        match WIDE {
            true => zeta(x, q),
            false => zeta_f32(x, q),
        }
    }
}
