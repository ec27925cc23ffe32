//! Hyperbolic functions and their inverses.

use super::{MAGIC, Real};
use crate::codegen::exp::EXP;
use std::f32::consts::{LN_2, LOG2_E};

/// `(sinh(x) - x) / x³` by `x²`, for `|x| <= 1`: relative error 3e-10 of the sine.
const SINH: [f32; 4] = [2.78221319e-06, 0.000198428956, 0.00833331048, 0.166666672];

/// `(asinh(x) - x) / x³` by `x²`, for `|x| <= 1`: relative error 5.2e-10 of the result.
const ASINH: [f32; 9] = [
    -0.000386073196,
    0.00239016092,
    -0.00700793602,
    0.0135745723,
    -0.0209883191,
    0.0300599243,
    -0.0445991904,
    0.0749970451,
    -0.166666597,
];

/// `(acosh(1 + u) / sqrt(2 u) - 1) / u`, for `u <= 1`: relative error 3.3e-10 of the result.
const ACOSH: [f32; 7] = [
    -2.67918276e-05,
    0.000175152352,
    -0.000631266448,
    0.00187066279,
    -0.00557387155,
    0.0187492799,
    -0.083333306,
];

/// `(atanh(x) - x) / x³` by `x²`, for `|x| <= 1/2`: relative error 1.3e-10 of the result.
const ATANH: [f32; 7] = [
    0.185139626,
    0.0169596933,
    0.105244763,
    0.109294005,
    0.142978147,
    0.199996218,
    0.333333373,
];

/// Above this magnitude, squares are not computed: the other summands would be lost.
const HUGE: f32 = 1e18;

/// `exp(a) / 2` for `a >= 0`, which overflows later than `exp(a)`.
fn half_of_exp<R: Real>(a: R) -> R {
    let a = a.at_most(100.0);
    let t = a.affine(LOG2_E, MAGIC);
    let n = t - MAGIC;
    let r = n.axpy(2.1219444e-4, n.axpy(-0.693359375, a));
    r.horner(&EXP).times_power(n - 1.0, t - 1.0)
}

/// `sinh(x)`: 1.7 ULP.
pub(super) fn sinh<R: Real>(x: R) -> R {
    let a = x.abs();
    let s = x * x;
    let near = a.fma(s.horner(&SINH) * s, a);
    let e = half_of_exp(a);
    let far = e - e.constant(0.25) / e;
    R::pick(a.below(a.constant(1.0)), near, far).or_sign(x)
}

/// `cosh(x)`: 1.5 ULP.
pub(super) fn cosh<R: Real>(x: R) -> R {
    let e = half_of_exp(x.abs());
    e + e.constant(0.25) / e
}

/// `ln(a + root)`, where `root` is at least `a` / 2, and about `a` where `a` is [`HUGE`].
fn ln_of_sum<R: Real>(a: R, root: R) -> R {
    let huge = a.constant(HUGE).below(a);
    let l = R::pick(huge, a, a + root).ln();
    R::pick(huge, l + LN_2, l)
}

/// Above this magnitude, `asinh` is the logarithm of twice the number.
const STEEP: f32 = 4096.0;

/// `asinh(x)`: 0.9 ULP.
pub(super) fn asinh<R: Real>(x: R) -> R {
    let a = x.abs();
    let s = x * x;
    let near = a.fma(s.horner(&ASINH) * s, a);
    let one = a.constant(1.0);
    let square = a.fma(a, one);
    let root = square.sqrt();
    let sum = a + root;
    // What the square, the root and the sum lost, in proportion to the sum. `root - a` is its inverse, of which 0.92 is near
    // enough to that of twice the root.
    let lost = root.negate().fma(root, square) + a.fma(a, one - square);
    let inverse = root - a;
    let low = (inverse * 0.92).fma(lost, a - (sum - root)) * inverse;
    let steep = a.constant(STEEP).below(a);
    let far = R::pick(steep, a, sum).ln_plus(R::pick(steep, a.constant(LN_2), low));
    R::pick(a.below(one), near, far).or_sign(x)
}

/// `acosh(x)`: 1.6 ULP.
pub(super) fn acosh<R: Real>(x: R) -> R {
    let u = x - 1.0;
    let root = (u + u).sqrt();
    let near = root.fma(u.horner(&ACOSH) * u, root);
    let far = ln_of_sum(x, x.fma(x, x.constant(-1.0)).sqrt());
    R::pick(x.constant(2.0).below(x), far, near)
}

/// `atanh(x)`: 0.8 ULP.
pub(super) fn atanh<R: Real>(x: R) -> R {
    let a = x.abs();
    let s = x * x;
    let near = a.fma(s.horner(&ATANH) * s, a);
    let one = a.constant(1.0);
    let (sum, rest) = (one + a, one - a);
    let q = sum / rest;
    // What the sum and the quotient lost, relative to the sum, which is about 1.7.
    let lost = (a - (sum - one)) + q.negate().fma(rest, sum);
    let far = q.ln_plus(lost * 0.58) * 0.5;
    // The quotient of infinities is a NaN with a sign, which `ln` may keep or not.
    R::pick(a.below(a.constant(0.5)), near, far).abs().or_sign(x)
}
