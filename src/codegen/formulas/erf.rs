//! The complementary error function and the inverse of the error function.

use super::{MAGIC, Real};
use crate::codegen::exp::EXP;
use std::f32::consts::LOG2_E;

/// `(a + 2) exp(a²) erfc(a)` by `(a - 2) / (a + 2)`, for a from 0.44 to 10: relative error 9.6e-9.
const ERFC: [f32; 9] = [
    -0.000493175699,
    -0.000792965409,
    0.00301599875,
    0.00646526599,
    -0.0214972198,
    -0.0364407189,
    0.279471248,
    -0.68716073,
    1.02158272,
];

/// What the last coefficient lacks.
const ERFC_LOW: f32 = -8.153709707414691e-09;

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
    let high = n.axpy(-0.693359375, z);
    let r = n.axpy(2.1219444e-4, high);
    // The sum of the first two powers, with its rounding error and the low part of r.
    let [rest @ .., _, _] = &EXP;
    let one = r.constant(1.0);
    let e = high + one;
    let e_low = n.axpy(2.1219444e-4, (one - e) + high);
    let e_low = (r * r).fma(r.horner(rest), e_low);
    [e, (e + e_low).negate().fma(lost, e_low), n, t]
}

/// `erfc(a)` for a from 0.44 to 10. The factors are products of two summands: three roundings would be over 2 ULP.
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
    // What `a + 2` lost, and what `4 - d` did not.
    let far = u * (a - (d - 2.0));
    let lost = rest - far;
    let difference = d - 4.0;
    let t = difference * u;
    let t_low = t.fma(lost, difference.product_error(u, t)) + far;
    let [coefficients @ .., next, last] = &ERFC;
    let [next, last] = [*next, *last].map(|k| t.constant(k));
    let first = t.horner(coefficients);
    let p = first.fma(t, next);
    let q = p.fma(t, last);
    // The slope of the polynomial is near to this line.
    let low = t_low.fma(t.affine(0.56, -0.69), t.constant(ERFC_LOW));
    let low = first.fma(t, next - p).fma(t, low);
    let q_low = p.fma(t, last - q) + low;
    let m = q * u;
    let m_low = q.product_error(u, m) + m.fma(lost, q_low * u);
    let [e, e_low, n, magic] = gaussian(a);
    e.fma(m, e.fma(m_low, e_low * m)).times_power(n, magic)
}

/// `erfc(x)`: 1 ULP.
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
    // Above 0.443, `1 - difference` would not be exact.
    R::pick(a.below(a.constant(0.44)), near, far)
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
