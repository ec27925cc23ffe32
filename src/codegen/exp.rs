//! The exponential and the functions built on it: sigmoid, tanh, erf.
//!
//! `exp` is `2^n` times a polynomial of degree six over an interval of half a unit either side of zero. sigmoid, tanh
//! and erf combine the result with one, so their argument may carry the error of one rounding and needs no two-step
//! reduction. With 64-byte vectors, `vscalefps` applies the power of two. It rounds once, as do the two products of the
//! other widths. It needs no bounds check: it scales NaN by an infinite power to infinity or zero.

// The coefficients have all the digits that the fits produced.
#![allow(clippy::excessive_precision)]

use super::lanes::{Emitter, Lanes};
use super::natives::NativeInst;
use super::poly::{F, I, MAGIC};
use crate::scalar::Unary;
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::FloatCC;
use std::f32::consts::{LN_2, LOG2_E};

/// `exp(r)` for `|r| <= ln(2) / 2`: a minimax fit (Lawson's algorithm) with error 3e-9.
pub(super) const EXP: [f32; 7] = [
    1.381455920636654e-3,
    8.368735201656818e-3,
    4.166838899254799e-2,
    0.16666522,
    0.49999994,
    1.0,
    1.0,
];

/// `exp(r)` for `|r| <= ln(2) / 2` with one multiplication less: error 9.2e-8, and exact at 0.
const EXP_SHARE: [f32; 6] = [
    8.289500139653683e-3,
    4.1898176074028015e-2,
    0.16667650640010834,
    0.4999914765357971,
    0.9999997019767761,
    1.0,
];

/// `2^r` for `|r| <= 1/2`: a minimax fit with error 2e-9.
pub(super) const EXP2: [f32; 7] = [
    1.5353361959569156e-4,
    1.3398875016719103e-3,
    9.61843691766262e-3,
    5.5503323674201965e-2,
    0.24022648,
    LN_2,
    1.0,
];

/// `2^r` for `|r| <= 1/2`: [`EXP_SHARE`] in powers of two, with error 1.1e-7.
#[allow(clippy::approx_constant, reason = "a coefficient of the fit, not the constant")]
const EXP2_SHORT: [f32; 6] = [0.0013263423, 0.00967157, 0.055507384, 0.24022241, 0.693147, 1.0];

/// `(tanh(x) - x) / x³` by `x²`, for `|x| <= 0.88`: error 8.2e-10 of the result.
const TANH: [f32; 7] = [
    -0.000478359434,
    0.00264146551,
    -0.00832339283,
    0.0216924343,
    -0.0539364591,
    0.133330598,
    -0.333333254,
];

/// `erf(x) / x - 1` by `x²`, for `|x| <= 1`: error 1.4e-9 of the result.
const ERF: [f32; 7] = [
    7.80690389e-05,
    -0.00079978531,
    0.0051871622,
    -0.0268533472,
    0.112835787,
    -0.37612626,
    0.128379166,
];

/// `log2(1 - erf(t)) / t` for `1 <= t`: a fit weighted by the error in `1 - erf(t)`, which is 7e-10 up to 4.2. Beyond, it keeps
/// decreasing. The last digits are those with the least error of the rounded result. The form is N. Juffa's.
const ERFC: [f32; 7] = [
    -1.6619502e-5,
    0.00046982078,
    -0.0052712974,
    0.034315098,
    -0.15330546,
    -0.91630733,
    -1.6283009,
];

/// `log2(1 - erf(t)) / t` for `0 <= t`: a fit weighted by the error in `1 - erf(t)`, which is 6e-8. Beyond 4.2, where
/// `1 - erf(t)` is below 3e-9, the fit keeps decreasing.
const ERFC_ALL: [f32; 8] = [
    -2.1814830688526854e-5,
    2.561190049163997e-4,
    -8.994999807327986e-4,
    -1.684705843217671e-3,
    2.8990035876631737e-2,
    -0.14878514,
    -0.9183601,
    -1.6279119,
];

/// The polynomial of the negated argument, of degree six.
fn alternate(mut coefs: [f32; 7]) -> [f32; 7] {
    coefs.iter_mut().skip(1).step_by(2).for_each(|c| *c = -*c);
    coefs
}

impl Emitter<'_> {
    /// Whether [`Emitter::times_power`] is one instruction.
    fn has_scale_inst(&self) -> bool {
        self.has_natives()
    }

    /// `p * 2^n` for integers `n`, where `t` is `MAGIC + n`. `normal` asserts that the result is neither denormal nor
    /// infinite.
    pub(super) fn times_power(&mut self, p: &Lanes, n: &Lanes, t: &Lanes, normal: bool) -> Lanes {
        if self.has_scale_inst() {
            return self.native(NativeInst::ScaleF32, F, p, n);
        }
        let t = self.bitcast_lanes(I, t);
        if normal {
            // The low bits of t are n. The shift drops the bits of MAGIC.
            let s = self.power_of_two(&t);
            return self.fmul(p, &s);
        }
        let zero = self.int_like(I, &t, MAGIC.to_bits() as i64);
        let n = self.isub(&t, &zero);
        let half = self.sar(&n, 1);
        let rest = self.isub(&n, &half);
        // Multiplies instead of adding exponents, so that NaN stays NaN whatever its payload.
        let half = self.power_of_two(&half);
        let p = self.fmul(p, &half);
        let rest = self.power_of_two(&rest);
        self.fmul(&p, &rest)
    }

    /// A polynomial with an even number of coefficients, whose terms are added in pairs: one multiplication more than Horner's method,
    /// and little more than half of its latency.
    fn polynomial_in_pairs(&mut self, x: &Lanes, coefs: &[f32]) -> Lanes {
        let square = self.fmul(x, x);
        let [first, rest @ ..] = coefs.as_chunks::<2>().0 else {
            return square;
        };
        let mut p = self.affine_k(x, first[0], first[1]);
        for [a, b] in rest {
            let pair = self.affine_k(x, *a, *b);
            p = self.fma(&p, &square, &pair);
        }
        p
    }

    /// `2^y` with relative error 3e-7, for results that are rounded to 16 bits soon.
    fn exp2_of_half(&mut self, y: &Lanes) -> Lanes {
        let (r, n, t) = self.split_power(y);
        let p = self.polynomial_in_pairs(&r, &EXP2_SHORT);
        self.times_power(&p, &n, &t, false)
    }

    /// `exp(x)` or `sigmoid(x)` with relative error 3e-7, and 6e-8 more for each unit of `x`: less than a hundredth of the error of rounding
    /// to f16 where the result is not zero or infinite.
    pub(super) fn exp_or_sigmoid_of_half(&mut self, op: Unary, x: &Lanes) -> Lanes {
        let is_exp = op == Unary::Exp;
        let y = self.mul_k(x, if is_exp { LOG2_E } else { -LOG2_E });
        let e = self.exp2_of_half(&y);
        if is_exp {
            return e;
        }
        let d = self.add_k(&e, 1.0);
        let one = self.f32_like(x, 1.0);
        self.fdiv(&one, &d)
    }

    /// `y` as `r + n` with `|r| <= 1/2`, and the last operand of [`Emitter::times_power`] for `n`.
    fn split_power(&mut self, y: &Lanes) -> (Lanes, Lanes, Lanes) {
        if self.has_scale_inst() {
            // `vscalefps` handles every exponent, including infinities.
            let n = self.map1(y, |e, y| e.b.ins().nearest(y));
            return (self.fsub(y, &n), n.clone(), n);
        }
        let y = self.clamp_k(y, -151.0, 129.0);
        let t = self.add_k(&y, MAGIC);
        let n = self.add_k(&t, -MAGIC);
        (self.fsub(&y, &n), n, t)
    }

    /// `2^y`.
    fn exp2_core(&mut self, y: &Lanes) -> Lanes {
        let (r, n, t) = self.split_power(y);
        let p = self.horner(&r, &EXP2);
        self.times_power(&p, &n, &t, false)
    }

    /// `2^(x y)`, which must be a normal number, from y and `-y`: the product is not rounded.
    fn exp2_of_product(&mut self, x: &Lanes, y: &Lanes, minus_y: &Lanes) -> Lanes {
        let magic = self.f32_like(x, MAGIC);
        let t = self.fma(x, y, &magic);
        let n = self.add_k(&t, -MAGIC);
        // The remainder is negated, and so is every second coefficient.
        let r = self.fma(x, minus_y, &n);
        let p = self.horner(&r, &alternate(EXP2));
        self.times_power(&p, &n, &t, true)
    }

    /// `max(k, x)`. NaN stays NaN.
    fn at_least(&mut self, x: &Lanes, k: f32) -> Lanes {
        let k = self.f32_like(x, k);
        self.max_xy(&k, x)
    }

    /// `min(k, x)`. NaN stays NaN.
    fn at_most(&mut self, x: &Lanes, k: f32) -> Lanes {
        let k = self.f32_like(x, k);
        self.min_xy(&k, x)
    }

    /// `exp(x)`: 1 ULP.
    pub(super) fn exp_f32(&mut self, x: &Lanes) -> Lanes {
        let mut x = self.at_least(x, -104.0);
        if !self.has_scale_inst() {
            x = self.at_most(&x, 89.0);
        }
        let t = self.affine_k(&x, LOG2_E, MAGIC);
        let n = self.add_k(&t, -MAGIC);
        let r = self.axpy(&n, -0.693359375, &x);
        let r = self.axpy(&n, 2.1219444e-4, &r);
        let p = self.horner(&r, &EXP);
        self.times_power(&p, &n, &t, false)
    }

    /// `exp(x)` for `x <= 0`, with relative error 3e-7 (4e-7 where the result is below 1e-20), and exact at 0. This is
    /// the accuracy that a softmax keeps after dividing by the sum. The reduction takes one step, whose error is `2e-9`
    /// for each unit of the result's exponent.
    pub(super) fn exp_share(&mut self, x: &Lanes) -> Lanes {
        let x = self.at_least(x, -104.0);
        let t = self.affine_k(&x, LOG2_E, MAGIC);
        let n = self.add_k(&t, -MAGIC);
        let r = self.axpy(&n, -LN_2, &x);
        let p = self.horner(&r, &EXP_SHARE);
        self.times_power(&p, &n, &t, false)
    }

    /// `exp(-x)`: 1 ULP.
    fn exp_of_negative(&mut self, x: &Lanes) -> Lanes {
        let mut x = self.at_most(x, 104.0);
        if !self.has_scale_inst() {
            x = self.at_least(&x, -89.0);
        }
        let t = self.affine_k(&x, -LOG2_E, MAGIC);
        let n = self.add_k(&t, -MAGIC);
        // The remainder is negated, and so is every second coefficient.
        let r = self.axpy(&n, 0.693359375, &x);
        let r = self.axpy(&n, -2.1219444e-4, &r);
        let p = self.horner(&r, &alternate(EXP));
        self.times_power(&p, &n, &t, false)
    }

    /// `2^x`: 1 ULP.
    pub(super) fn exp2_f32(&mut self, x: &Lanes) -> Lanes {
        self.exp2_core(x)
    }

    /// `1 / (1 + exp(-x))`, as torch computes it.
    pub(super) fn sigmoid_f32(&mut self, x: &Lanes) -> Lanes {
        let e = self.exp_of_negative(x);
        let d = self.add_k(&e, 1.0);
        let one = self.f32_like(x, 1.0);
        self.fdiv(&one, &d)
    }

    /// `tanh(x)`: 1.1 ULP.
    pub(super) fn tanh_f32(&mut self, x: &Lanes) -> Lanes {
        let a = self.fabs(F, x);
        // Beyond 20 the result is 1. `vscalefps` has no need of the limit.
        let far = if self.has_scale_inst() {
            a.clone()
        } else {
            self.at_most(&a, 20.0)
        };
        let [k, minus_k] = [2.0 * LOG2_E, -2.0 * LOG2_E].map(|k| self.f32_like(x, k));
        let e = self.exp2_of_product(&far, &k, &minus_k);
        let d = self.add_k(&e, 1.0);
        let two = self.f32_like(x, 2.0);
        let q = self.fdiv(&two, &d);
        let one = self.f32_like(x, 1.0);
        let big = self.fsub(&one, &q);
        let s = self.fmul(x, x);
        let p = self.horner(&s, &TANH);
        let cube = self.fmul(&s, &a);
        let small = self.fma(&p, &cube, &a);
        let size = self.choose_below(&a, 0.88, &small, &big);
        // Keeps the sign of a zero as well.
        self.or_sign(F, &size, x)
    }

    /// `1 + tanh(c x)`, computed as `2 / (1 + exp(-2 c x))`: error 1.8e-7. The sum with a rounded tanh has error
    /// 1.2e-7. Without `whole`, returns the denominator alone.
    pub(super) fn one_plus_tanh(&mut self, x: &Lanes, c: f32, whole: bool) -> Lanes {
        let y = self.mul_k(x, (-2.0 * std::f64::consts::LOG2_E * c as f64) as f32);
        let e = self.exp2_core(&y);
        let d = self.add_k(&e, 1.0);
        if !whole {
            return d;
        }
        let two = self.f32_like(x, 2.0);
        self.fdiv(&two, &d)
    }

    /// `erf(x)`: 1 ULP.
    pub(super) fn erf_f32(&mut self, x: &Lanes) -> Lanes {
        let t = self.fabs(F, x);
        // Beyond 5 the result is 1, and exponentials would be denormal, which takes much longer. NaN stays.
        let far = self.f32_like(x, 5.0);
        let far = self.max_known(false, &far, &t);
        let y = self.horner(&far, &ERFC);
        let minus_y = self.fneg(F, &y);
        let e = self.exp2_of_product(&far, &y, &minus_y);
        let one = self.f32_like(x, 1.0);
        let big = self.fsub(&one, &e);
        let big = self.or_sign(F, &big, x);
        let s = self.fmul(x, x);
        let q = self.horner(&s, &ERF);
        let small = self.fma(&q, x, x);
        let k = self.f32_like(x, 1.0);
        let c = self.fcmp(FloatCC::LessThan, &k, &t);
        self.choose(&c, &big, &small)
    }

    /// `1 + erf(x)`: error 1.8e-7. The sum with a rounded erf has error 1.2e-7. With `soon`, for results that are rounded to 16 bits
    /// soon, the error is 5e-7.
    pub(super) fn one_plus_erf(&mut self, x: &Lanes, soon: bool) -> Lanes {
        let t = self.fabs(F, x);
        let y = self.horner(&t, &ERFC_ALL);
        let y = self.fmul(&y, &t);
        let e = if soon {
            self.exp2_of_half(&y)
        } else {
            self.exp2_core(&y)
        };
        let two = self.f32_like(x, 2.0);
        let other = self.fsub(&two, &e);
        self.choose_below(x, 0.0, &e, &other)
    }
}
