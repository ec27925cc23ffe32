//! Airy's function and Bessel functions as torch computes them, after Cephes: rational approximations near 0,
//! asymptotic ones far from it, and Chebyshev series for the modified functions of the second kind.

use super::bessel_tables::*;
use super::math::bessel_i;
use std::f64::consts::{FRAC_2_PI, FRAC_PI_4, PI};

/// The square root of 2 / pi.
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
/// 1 / sqrt(pi).
const FRAC_1_SQRT_PI: f64 = 0.564_189_583_547_756_3;

/// The order of a Bessel function.
#[derive(Clone, Copy)]
enum BesselOrder {
    Zero = 0,
    One = 1,
}

fn eval_polynomial(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().fold(0.0, |p, c| p * x + c)
}

/// Cephes' `chbevl`: evaluates a Chebyshev series in `x / 2`. The constant term is the last coefficient and counts
/// half.
fn eval_chebyshev(x: f64, coefficients: &[f64]) -> f64 {
    let (mut p, mut q, mut a) = (0.0, 0.0, coefficients[0]);
    for c in &coefficients[1..] {
        p = q;
        q = a;
        a = x * q - p + c;
    }
    0.5 * (a - p)
}

/// Airy's function Ai. NaN at infinities, 0 from 103.892 on.
pub(crate) fn airy_ai(x: f64) -> f64 {
    if x.is_infinite() {
        return f64::NAN;
    }
    if x > 103.892 {
        return 0.0;
    }
    if x < -2.09 {
        let t = -2.0 * x * (-x).sqrt() / 3.0;
        let z = 1.0 / t;
        let ratio = |p: &[f64], q: &[f64]| eval_polynomial(z * z, p) / eval_polynomial(z * z, q);
        let (even, odd) = (
            1.0 + z * z * ratio(&AIRY_AFN, &AIRY_AFD),
            z * ratio(&AIRY_AGN, &AIRY_AGD),
        );
        let (sin, cos) = (t + FRAC_PI_4).sin_cos();
        return FRAC_1_SQRT_PI / (-x).sqrt().sqrt() * (sin * even - cos * odd);
    }
    if x >= 2.09 {
        let zeta = 2.0 * x * x.sqrt() / 3.0;
        let (p, q) = (
            eval_polynomial(1.0 / zeta, &AIRY_AN),
            eval_polynomial(1.0 / zeta, &AIRY_AD),
        );
        return FRAC_1_SQRT_PI * (p / q) / (2.0 * x.sqrt().sqrt() * zeta.exp());
    }
    airy_series(x)
}

fn airy_series(x: f64) -> f64 {
    let (mut f, mut g, mut k) = (1.0, x, 1.0);
    let (mut m, mut n, mut t, z) = (1.0, x, 1.0, x * x * x);
    while t > f64::EPSILON {
        m *= z;
        k += 1.0;
        m /= k;
        n *= z;
        k += 1.0;
        n /= k;
        m /= k;
        f += m;
        k += 1.0;
        n /= k;
        g += n;
        t = f64::abs(m / f);
    }
    0.355_028_053_887_817_2 * f - 0.258_819_403_792_806_8 * g
}

/// The amplitudes of cosine and sine, and the phase, far from 0, for order 0 or 1.
fn eval_asymptotic(x: f64, order: BesselOrder) -> (f64, f64, f64) {
    let z = 25.0 / (x * x);
    let ratio = |p: &[f64], q: &[f64]| eval_polynomial(z, p) / eval_polynomial(z, q);
    let (p, q, turns) = match order {
        BesselOrder::Zero => (ratio(&J0_PP, &J0_PQ), ratio(&J0_QP, &J0_QQ), 0.25),
        BesselOrder::One => (ratio(&J1_PP, &J1_PQ), ratio(&J1_QP, &J1_QQ), 0.75),
    };
    (p, 5.0 / x * q, x - turns * PI)
}

/// The Bessel function of the first kind of order 0.
pub(crate) fn bessel_j0(x: f64) -> f64 {
    let x = x.abs();
    if x < 0.00001 {
        return 1.0 - x * x / 4.0;
    }
    let z = x * x;
    if x <= 5.0 {
        let ratio = eval_polynomial(z, &J0_RP) / eval_polynomial(z, &J0_RQ);
        return (z - 5.783_185_962_946_785) * (z - 30.471_262_343_662_087) * ratio;
    }
    let (p, q, phase) = eval_asymptotic(x, BesselOrder::Zero);
    (p * phase.cos() - q * phase.sin()) * SQRT_2_OVER_PI / x.sqrt()
}

/// The Bessel function of the first kind of order 1.
pub(crate) fn bessel_j1(x: f64) -> f64 {
    if x < 0.0 {
        return -bessel_j1(-x);
    }
    let z = x * x;
    if x <= 5.0 {
        let ratio = eval_polynomial(z, &J1_RP) / eval_polynomial(z, &J1_RQ);
        return ratio * x * (z - 14.681_970_642_123_893) * (z - 49.218_456_321_694_6);
    }
    let (p, q, phase) = eval_asymptotic(x, BesselOrder::One);
    (p * phase.cos() - q * phase.sin()) * SQRT_2_OVER_PI / x.sqrt()
}

/// The Bessel function of the second kind of order 0: -inf at 0, NaN below 0.
pub(crate) fn bessel_y0(x: f64) -> f64 {
    second_kind(x, BesselOrder::Zero, |x, z| {
        eval_polynomial(z, &Y0_YP) / eval_polynomial(z, &Y0_YQ) + FRAC_2_PI * x.ln() * bessel_j0(x)
    })
}

/// The Bessel function of the second kind of order 1: -inf at 0, NaN below 0.
pub(crate) fn bessel_y1(x: f64) -> f64 {
    second_kind(x, BesselOrder::One, |x, z| {
        x * (eval_polynomial(z, &Y1_YP) / eval_polynomial(z, &Y1_YQ)) + FRAC_2_PI * (bessel_j1(x) * x.ln() - 1.0 / x)
    })
}

fn second_kind(x: f64, order: BesselOrder, small: fn(f64, f64) -> f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x < 0.0 {
        return f64::NAN;
    }
    if x <= 5.0 {
        return small(x, x * x);
    }
    let (p, q, phase) = eval_asymptotic(x, order);
    (p * phase.sin() + q * phase.cos()) * SQRT_2_OVER_PI / x.sqrt()
}

/// The modified Bessel function of the second kind, multiplied by `exp(x)` if `scaled`: inf at 0, NaN below 0.
fn modified_k(x: f64, order: BesselOrder, scaled: bool) -> f64 {
    if x == 0.0 {
        return f64::INFINITY;
    }
    if x < 0.0 {
        return f64::NAN;
    }
    if x <= 2.0 {
        let log = (0.5 * x).ln();
        let k = match order {
            BesselOrder::Zero => eval_chebyshev(x * x - 2.0, &K0_A) - log * bessel_i(order as u32, x, true),
            BesselOrder::One => log * bessel_i(order as u32, x, true) + eval_chebyshev(x * x - 2.0, &K1_A) / x,
        };
        return if scaled { k * x.exp() } else { k };
    }
    let series: &[f64] = match order {
        BesselOrder::Zero => &K0_B,
        BesselOrder::One => &K1_B,
    };
    let k = eval_chebyshev(8.0 / x - 2.0, series) / x.sqrt();
    if scaled { k } else { (-x).exp() * k }
}

/// The modified Bessel function of the second kind of order 0.
pub(crate) fn modified_bessel_k0(x: f64) -> f64 {
    modified_k(x, BesselOrder::Zero, false)
}

/// The modified Bessel function of the second kind of order 1.
pub(crate) fn modified_bessel_k1(x: f64) -> f64 {
    modified_k(x, BesselOrder::One, false)
}

/// `exp(x) * modified_bessel_k0(x)`.
pub(crate) fn scaled_modified_bessel_k0(x: f64) -> f64 {
    modified_k(x, BesselOrder::Zero, true)
}

/// `exp(x) * modified_bessel_k1(x)`.
pub(crate) fn scaled_modified_bessel_k1(x: f64) -> f64 {
    modified_k(x, BesselOrder::One, true)
}

/// `sin(x) / x`, computed by its series near 0.
pub(crate) fn spherical_bessel_j0(x: f64) -> f64 {
    if x.is_infinite() {
        return 0.0;
    }
    if x.abs() < 0.5 {
        let inverse_factorials = [6_227_020_800.0, -39_916_800.0, 362_880.0, -5040.0, 120.0, -6.0, 1.0].map(f64::recip);
        return eval_polynomial(x * x, &inverse_factorials);
    }
    x.sin() / x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of torch.special in f64: a function, an argument and the function's value.
    type Case = (fn(f64) -> f64, f64, f64);

    #[test]
    fn values_are_torch_s() {
        let cases: [Case; 18] = [
            (airy_ai, -3.7, -0.2820130619411203),
            (airy_ai, 7.9, 6.23964009728394e-08),
            (bessel_j0, 1.3, 0.620085989561509),
            (bessel_j0, 7.9, 0.19436184693964004),
            (bessel_j1, 1.3, 0.5220232474146604),
            (bessel_j1, 7.9, 0.21917940419030413),
            (bessel_y0, 1.3, 0.2865353571655702),
            (bessel_y0, 7.9, 0.2065209462307687),
            (bessel_y1, 1.3, -0.548519729980776),
            (bessel_y1, 7.9, -0.18172107259990053),
            (modified_bessel_k0, 1.3, 0.27824764630002696),
            (modified_bessel_k0, 7.9, 0.00016286766768765324),
            (modified_bessel_k1, 1.3, 0.37254749563196204),
            (modified_bessel_k1, 7.9, 0.0001728843064923898),
            (scaled_modified_bessel_k0, 1.3, 1.020973161341587),
            (scaled_modified_bessel_k0, 7.9, 0.43930008190021524),
            (spherical_bessel_j0, 1.3, 0.7411986041670715),
            (spherical_bessel_j0, 7.9, 0.12644827111895848),
        ];
        for (i, (f, x, want)) in cases.into_iter().enumerate() {
            let got = f(x);
            assert!(
                (got - want).abs() <= 1e-14 * want.abs().max(1e-3),
                "case {i}: f({x}) = {got}, not {want}"
            );
        }
        assert!(bessel_y0(-1.0).is_nan() && bessel_y1(0.0) == f64::NEG_INFINITY && airy_ai(f64::INFINITY).is_nan());
    }
}
