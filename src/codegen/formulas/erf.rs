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

/// `sqrt(pi) / 2` as two summands. The first has so few digits that its difference from a number up to 4 is exact.
const RATIO: f32 = 0.886_226_9;
const RATIO_LOW: f32 = 3.298_144_4e-8;

/// `(erfinv(y) / y - sqrt(pi) / 2) / l` by `l + 5/2`, where `l = ln(1 - y²)` is at least -5: relative error 2.4e-9.
const ERFINV: [f32; 9] = [
    3.15080434e-10,
    9.55056478e-09,
    4.22167226e-08,
    -3.60229421e-07,
    -4.3367495e-06,
    -5.88043667e-06,
    0.000203584816,
    0.00176170736,
    0.000226926612,
];

/// The last coefficient of [`ERFINV`] as two summands.
const ERFINV_LAST: f32 = -0.246072978;
const ERFINV_LAST_LOW: f32 = 6.44482157e-09;

/// `erfinv(y) / (y s)` by `s - 3.1`, where `s = sqrt(-l)` is from 2.2 to 4: relative error 1.5e-9.
const ERFINV_FAR: [f32; 10] = [
    -1.68014794e-05,
    3.10264695e-05,
    7.20192984e-05,
    -0.00038464315,
    0.000874330231,
    -0.00137498637,
    0.00155255687,
    -0.000695640396,
    -0.0035405918,
    0.0184362493,
];

/// The last coefficient of [`ERFINV_FAR`] as two summands.
const ERFINV_FAR_LAST: f32 = 0.946203768;
const ERFINV_FAR_LAST_LOW: f32 = -4.35870762e-09;

/// The largest `|l|` for the first polynomial of erfinv, which serves 99.6 % of the arguments.
const NEAR: f32 = 5.0;

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

/// The polynomial with these coefficients and a last one of two summands, as two summands.
fn horner_in_two<R: Real, const N: usize>(x: R, coefficients: &[f32; N], last: f32, last_low: f32) -> [R; 2] {
    let rest = x.horner(coefficients);
    let last = x.constant(last);
    let p = x.fma(rest, last);
    [p, x.fma(rest, last - p) + last_low]
}

/// `erfinv(y)` where `rest = 1 - y²` has a logarithm `l + l_low` beyond [`NEAR`].
fn inverse_far<R: Real>(y: R, rest: R, l: R, l_low: R) -> R {
    let w = l.negate();
    let s = w.sqrt();
    let s_low = (s.negate().fma(s, w) - l_low) * (s.constant(0.5) / s);
    let [p, p_low] = horner_in_two(s - 3.1, &ERFINV_FAR, ERFINV_FAR_LAST, ERFINV_FAR_LAST_LOW);
    let m = s * p;
    let m_low = s.product_error(p, m) + s.fma(p_low, s_low * p);
    let x = y.fma(m, y * m_low);
    let zero = y.constant(0.0);
    let [infinity, nan] = [f32::INFINITY, f32::NAN].map(|k| y.constant(k));
    R::pick(rest.equals(zero), infinity, R::pick(rest.below(zero), nan, x))
}

/// `erfinv(y)`: 1 ULP. Every factor is the sum of two numbers: rounded each, they would be 2 ULP.
pub(super) fn erfinv<R: Real>(y: R) -> R {
    let one = y.constant(1.0);
    // `1 - y²`, whose square must not be rounded.
    let rest = if y.fuses() {
        y.negate().fma(y, one)
    } else {
        (one - y) * (y + 1.0)
    };
    let [l, l_low] = rest.ln_in_two();
    let [q, q_low] = horner_in_two(l + 2.5, &ERFINV, ERFINV_LAST, ERFINV_LAST_LOW);
    let ratio = l.constant(RATIO);
    let r = l.fma(q, ratio);
    let r_low = l.fma(q, ratio - r) + l_low.fma(q, l.fma(q_low, l.constant(RATIO_LOW)));
    let near = y.fma(r, y * r_low);
    // So are numbers from 1: what the bits of a negative number, or of 0, give for a logarithm is beyond 80.
    let far = l.constant(NEAR).below(l.abs());
    let [x] = R::replace(far, [near], || [inverse_far(y, rest, l, l_low)]);
    // The sum turns -0 into +0, and the ends are positive.
    x.abs().or_sign(y)
}
