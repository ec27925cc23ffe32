//! Powers and the hypotenuse.

use super::{MAGIC, Real};
use crate::codegen::exp::EXP2;
use std::f32::consts::LN_2;

/// `2 log2(e)` and a third of it, each as two summands.
const LINEAR: f32 = 2.885_390_0;
const LINEAR_LOW: f32 = 3.851_926e-8;
const CUBIC: f32 = 0.961_796_7;
const CUBIC_LOW: f32 = -7.028_461_7e-9;

/// The rest of `log2((1 + s) / (1 - s))` after the linear and the cubic term, divided by `s⁵`, by `s²`.
const REST: [f32; 4] = [0.296232313, 0.319229811, 0.412215322, 0.577077985];

/// `log2(a)` for `a > 0` as two summands, with error 2^-33: by `s = (m - 1) / (m + 1)`, for the significand m in 0.6668..1.3336.
fn log2<R: Real>(a: R) -> [R; 2] {
    let tiny = a.below(a.constant(f32::MIN_POSITIVE));
    let [e, m] = R::pick(tiny, a * 8388608.0, a).split_power();
    let e = R::pick(tiny, e - 23.0, e);
    let (n, d) = (m - 1.0, m + 1.0);
    let u = d.constant(1.0) / d;
    let s = n * u;
    let minus = s.negate();
    // What the quotient leaves of n.
    let left = if s.fuses() {
        minus.fma(d, n)
    } else {
        let product = s * d;
        (n - product) - s.product_error(d, product)
    };
    let s_low = minus.fma(m - (d - 1.0), left) * u;
    let z = s * s;
    let z_low = s.product_error(s, z);
    let cube = z * s;
    let cube_low = z_low.fma(s, z.product_error(s, cube));
    let rest = z.horner(&REST) * (z * cube);
    // Each product with its rounding error.
    let (linear, third) = (s.constant(LINEAR), s.constant(CUBIC));
    let q = cube * CUBIC;
    let q_low = cube_low.fma(third, cube.axpy(CUBIC_LOW, cube.product_error(third, q)));
    let p = s * LINEAR;
    let p_low = s.axpy(LINEAR_LOW, s.product_error(linear, p));
    let slope = z.axpy(3.0 * CUBIC, linear);
    let low = s_low.fma(slope, p_low) + (q_low + rest);
    let f = p + q;
    let f_low = (p - f) + q;
    // Without an exponent, the sum is exact.
    let high = e + f;
    let low = ((e - high) + f) + (f_low + low);
    let sum = high + low;
    [sum, (high - sum) + low]
}

/// `a ^ y` for finite `a > 0` and finite y.
fn power<R: Real>(a: R, y: R) -> R {
    const LIMIT: f32 = 160.0;
    let [l, l_low] = log2(a);
    let w = y * l;
    let zero = w.constant(0.0);
    // Beyond the limit the product may be infinite, and its error NaN.
    let w_low = y.fma(l_low, y.product_error(l, w));
    // The halves of a huge y overflow. Then w is beyond the limit, or 0.
    let w_low = if y.fuses() {
        w_low
    } else {
        R::pick(y.abs().below(w.constant(1e30)), w_low, zero)
    };
    let w_low = R::pick(w.abs().below(w.constant(LIMIT)), w_low, zero);
    let w = w.at_most(LIMIT);
    let least = w.constant(-LIMIT);
    let w = R::pick(w.below(least), least, w);
    let t = w + MAGIC;
    let n = t - MAGIC;
    // The powers above the first as one summand, the first one with its rounding errors.
    let (one, slope) = (w.constant(1.0), w.constant(LN_2));
    let high = w - n;
    let r = high + w_low;
    let [rest @ .., _, _] = &EXP2;
    let e = high.fma(slope, one);
    let e_low = w_low.fma(slope, high.fma(slope, one - e));
    let e = e + (r * r).fma(r.horner(rest), e_low);
    e.times_power(n, t)
}

/// C's `pow(x, y)` where one of the two is zero, infinite or NaN, or x is negative. `size` is `|x| ^ y` where both are finite
/// and x is not 0.
fn special_power<R: Real>(x: R, y: R, size: R) -> R {
    let a = x.abs();
    let [zero, one, infinity] = [0.0, 1.0, f32::INFINITY].map(|k| x.constant(k));
    let grows = zero.below(y);
    let above = R::pick(grows, infinity, zero);
    let below = R::pick(grows, zero, infinity);
    let limit = R::pick(one.below(a), above, R::pick(a.equals(one), one, below));
    let size = R::pick(y.abs().equals(infinity), limit, size);
    let size = R::pick(a.equals(infinity), limit, R::pick(a.equals(zero), limit, size));
    let half = y * 0.5;
    let negated = R::pick(x.has_sign(), size.negate(), size);
    let whole = R::pick(half.equals(half.floor()), size, negated);
    let undefined = R::pick(a.equals(infinity), size, x.constant(f32::NAN));
    let broken = R::pick(x.below(zero), undefined, size);
    let value = R::pick(y.equals(y.floor()), whole, broken);
    let value = R::pick(x.unordered(y), x.constant(f32::NAN), value);
    R::pick(y.equals(zero), one, R::pick(x.equals(one), one, value))
}

/// `x ^ y`: 0.9 ULP.
#[allow(clippy::eq_op, reason = "infinities and NaN minus themselves are NaN")]
pub(super) fn pow<R: Real>(x: R, y: R) -> R {
    let size = power(x.abs(), y);
    let [zero, one] = [0.0, 1.0].map(|k| x.constant(k));
    // 0 if both are finite, else NaN.
    let finite = (x - x) + (y - y);
    let special = R::pick(finite.below(x), zero, one);
    let [value] = R::replace(zero.below(special), [size], || [special_power(x, y, size)]);
    value
}

/// `sqrt(x² + y²)`: 1 ULP.
pub(super) fn hypot<R: Real>(x: R, y: R) -> R {
    let (a, b) = (x.abs(), y.abs());
    let less = a.below(b);
    let (most, least) = (R::pick(less, b, a), R::pick(less, a, b));
    let one = x.constant(1.0);
    // Powers of two, which keep the squares from overflow and underflow.
    let (large, small) = (x.constant(1e15).below(most), most.below(x.constant(1e-15)));
    let scale = R::pick(large, x.constant(DOWN), R::pick(small, x.constant(UP), one));
    let back = R::pick(large, x.constant(UP), R::pick(small, x.constant(DOWN), one));
    // The square of the larger number is not rounded.
    let (c, d) = (most * scale, least * scale);
    let root = c.fma(c, d * d).sqrt() * back;
    let infinity = x.constant(f32::INFINITY);
    R::pick(
        a.equals(infinity),
        infinity,
        R::pick(b.equals(infinity), infinity, root),
    )
}

/// 2^100 and its inverse.
pub(super) const UP: f32 = 1.267_650_6e30;
pub(super) const DOWN: f32 = 7.888_609e-31;
