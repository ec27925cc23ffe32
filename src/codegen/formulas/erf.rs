//! The complementary error function and the inverse of the error function.

use super::{MAGIC, Real};
use crate::codegen::exp::EXP;
use std::f32::consts::LOG2_E;

/// `(a + 2) exp(a²) erfc(a)` by `(a - 2) / (a + 2)`, for a from 1/2 to 10: relative error 1.7e-8.
const ERFC: [f32; 9] = [
    -0.000456153357,
    -0.000809732883,
    0.00298928563,
    0.00647506956,
    -0.021490857,
    -0.0364423171,
    0.279470712,
    -0.687160671,
    1.02158272,
];

/// `2 / sqrt(pi)` as two summands.
const SLOPE: f32 = std::f32::consts::FRAC_2_SQRT_PI;
const SLOPE_LOW: f32 = -5.863_538_3e-8;

/// `2 / sqrt(pi) / x² - erf(x) / x³` by `x²`, for `|x| <= 1/2`.
const ERF: [f32; 4] = [-0.00469264016, 0.0267446432, -0.112826385, 0.376126021];

/// `sqrt(pi) / 2` as two summands.
const RATIO: f32 = 0.886_226_95;
const RATIO_LOW: f32 = -2.662_32e-8;

/// `(erfinv(y) / y - sqrt(pi) / 2) / l` by `l + 5/2`, where `l = ln(1 - y²)` is at least -5: relative error 1.3e-8.
const ERFINV: [f32; 9] = [
    8.77664341e-09,
    4.6415682e-08,
    -3.50422425e-07,
    -4.35361289e-06,
    -5.91698745e-06,
    0.000203606527,
    0.00176174799,
    0.00022692082,
    -0.246072978,
];

/// `erfinv(y) / (y s)` by `s - 3.1`, where `s = sqrt(-l)` is from 2.2 to 4: relative error 4.5e-8.
const ERFINV_FAR: [f32; 9] = [
    3.96503165e-05,
    -0.000331694668,
    0.000896505022,
    -0.00140477275,
    0.00154634262,
    -0.000689586741,
    -0.00354003813,
    0.018435942,
    0.946203768,
];

/// The least l for the first polynomial of erfinv, which serves 99.6 % of the arguments.
const NEAR: f32 = -5.0;

/// `exp(-a²)` as `(e + e_low) 2^n`: `[e, e_low, n, MAGIC + n]`.
fn gaussian<R: Real>(a: R) -> [R; 4] {
    let z = a * a.negate();
    let lost = a.product_error(a, z.negate());
    let t = z.affine(LOG2_E, MAGIC);
    let n = t - MAGIC;
    let r = n.axpy(2.1219444e-4, n.axpy(-0.693359375, z));
    let p = r.horner(&EXP[..6]);
    let one = r.constant(1.0);
    let e = p.fma(r, one);
    let e_low = p.fma(r, one - e) - e * lost;
    [e, e_low, n, t]
}

/// `erfc(a)` for a from 1/2 to 10. The factors are products of two summands: three roundings would be over 2 ULP.
fn tail<R: Real>(a: R) -> R {
    let d = a + 2.0;
    let u = d.constant(1.0) / d;
    // The relative error of u.
    let rest = if u.fuses() {
        u.negate().fma(d, u.constant(1.0))
    } else {
        let product = u * d;
        (u.constant(1.0) - product) - u.product_error(d, product)
    };
    let lost = rest - u * (a - (d - 2.0));
    let t = (a - 2.0) * u;
    let [coefficients @ .., last] = &ERFC;
    let p = t.horner(coefficients);
    let q = p.fma(t, t.constant(*last));
    let q_low = p.fma(t, t.constant(*last) - q);
    let m = q * u;
    let m_low = q.product_error(u, m) + m.fma(lost, q_low * u);
    let [e, e_low, n, magic] = gaussian(a);
    e.fma(m, e.fma(m_low, e_low * m)).times_power(n, magic)
}

/// `erfc(x)`: 1.8 ULP.
pub(super) fn erfc<R: Real>(x: R) -> R {
    let a = x.abs();
    let y = tail(a.at_most(10.1));
    let one = x.constant(1.0);
    let far = R::pick(x.has_sign(), y.constant(2.0) - y, y);
    let s = x * x;
    let p = s.horner(&ERF) * s - SLOPE_LOW;
    let difference = x.axpy(-SLOPE, one);
    let error = x.axpy(-SLOPE, one - difference);
    let near = difference + p.fma(x, error);
    R::pick(a.below(a.constant(0.5)), near, far)
}

/// `erfinv(y)`: 2 ULP.
pub(super) fn erfinv<R: Real>(y: R) -> R {
    let one = y.constant(1.0);
    // `1 - y²`, whose square must not be rounded.
    let rest = if y.fuses() {
        y.negate().fma(y, one)
    } else {
        (one - y) * (y + 1.0)
    };
    let l = rest.ln();
    let q = l.fma((l + 2.5).horner(&ERFINV), l.constant(RATIO_LOW));
    let near = y.axpy(RATIO, y * q);
    let far = l.below(l.constant(NEAR));
    let [x] = R::replace(far, [near], || {
        let s = l.negate().sqrt();
        let ratio = (s - 3.1).horner(&ERFINV_FAR) * s;
        let ends = s.equals(s.constant(f32::INFINITY));
        [R::pick(ends, s, ratio * y)]
    });
    // The sum turns -0 into +0, and the ends are positive.
    x.abs().or_sign(y)
}
