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

/// `log2(1 - erf(t)) / t` for `0.92 <= t`: N. Juffa's approximation of the natural logarithm, scaled.
const ERFC: [f32; 7] = [
    -2.4937484340625815e-5,
    5.528365727514029e-4,
    -5.603376310318708e-3,
    3.4992024302482605e-2,
    -0.1540479,
    -0.91589016,
    -1.6283952,
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

    /// `2^y`. If `normal`, a result outside the normal range may be another number that is about as large or as small,
    /// which saves a step.
    fn exp2_core(&mut self, y: &Lanes, normal: bool) -> Lanes {
        let y = match (self.has_scale_inst(), normal) {
            // `vscalefps` handles every exponent, including infinities.
            (true, _) => y.clone(),
            (false, true) => self.clamp_k(y, -126.0, 126.0),
            (false, false) => self.clamp_k(y, -151.0, 129.0),
        };
        if self.has_scale_inst() {
            let n = self.map1(&y, |e, y| e.b.ins().nearest(y));
            let r = self.fsub(&y, &n);
            let p = self.horner(&r, &EXP2);
            return self.times_power(&p, &n, &n, normal);
        }
        let t = self.add_k(&y, MAGIC);
        let n = self.add_k(&t, -MAGIC);
        let r = self.fsub(&y, &n);
        let p = self.horner(&r, &EXP2);
        self.times_power(&p, &n, &t, normal)
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
        let mut alternating = EXP;
        alternating.iter_mut().skip(1).step_by(2).for_each(|c| *c = -*c);
        let p = self.horner(&r, &alternating);
        self.times_power(&p, &n, &t, false)
    }

    /// `2^x`: 1 ULP.
    pub(super) fn exp2_f32(&mut self, x: &Lanes) -> Lanes {
        self.exp2_core(x, false)
    }

    /// `1 / (1 + exp(-x))`, as torch computes it.
    pub(super) fn sigmoid_f32(&mut self, x: &Lanes) -> Lanes {
        let e = self.exp_of_negative(x);
        let d = self.add_k(&e, 1.0);
        let one = self.f32_like(x, 1.0);
        self.fdiv(&one, &d)
    }

    /// `tanh(x)`: 2 ULP.
    pub(super) fn tanh_f32(&mut self, x: &Lanes) -> Lanes {
        let a = self.fabs(F, x);
        let y = self.mul_k(&a, 2.0 * LOG2_E);
        let e = self.exp2_core(&y, true);
        let d = self.add_k(&e, 1.0);
        let two = self.f32_like(x, 2.0);
        let q = self.fdiv(&two, &d);
        let one = self.f32_like(x, 1.0);
        let big = self.fsub(&one, &q);
        let s = self.fmul(x, x);
        let p = self.horner(
            &s,
            &[
                2.1526812e-3,
                -8.190013e-3,
                2.1706894e-2,
                -5.394818e-2,
                0.13333221,
                -0.3333333,
            ],
        );
        let p = self.fmul(&p, &s);
        let small = self.fma(&p, &a, &a);
        let size = self.choose_below(&a, 0.625, &small, &big);
        // Keeps the sign of a zero as well.
        self.or_sign(F, &size, x)
    }

    /// `1 + tanh(c x)`, computed as `2 / (1 + exp(-2 c x))`: error 1.8e-7. The sum with a rounded tanh has error
    /// 1.2e-7. Without `whole`, returns the denominator alone.
    pub(super) fn one_plus_tanh(&mut self, x: &Lanes, c: f32, whole: bool) -> Lanes {
        let y = self.mul_k(x, (-2.0 * std::f64::consts::LOG2_E * c as f64) as f32);
        let e = self.exp2_core(&y, false);
        let d = self.add_k(&e, 1.0);
        if !whole {
            return d;
        }
        let two = self.f32_like(x, 2.0);
        self.fdiv(&two, &d)
    }

    /// `erf(x)`: 1.3 ULP.
    pub(super) fn erf_f32(&mut self, x: &Lanes) -> Lanes {
        let t = self.fabs(F, x);
        // Beyond 5 the result is 1, and exponentials would be denormal, which takes much longer. NaN stays.
        let far = self.f32_like(x, 5.0);
        let far = self.max_known(false, &far, &t);
        let y = self.horner(&far, &ERFC);
        let y = self.fmul(&y, &far);
        let e = self.exp2_core(&y, true);
        let one = self.f32_like(x, 1.0);
        let big = self.fsub(&one, &e);
        let big = self.or_sign(F, &big, x);
        let s = self.fmul(x, x);
        let q = self.horner(
            &s,
            &[
                -5.96761703e-4,
                4.99119423e-3,
                -2.67681349e-2,
                1.12819925e-1,
                -3.76125336e-1,
                1.28379166e-1,
            ],
        );
        let small = self.fma(&q, x, x);
        let k = self.f32_like(x, 0.927734375);
        let c = self.fcmp(FloatCC::LessThan, &k, &t);
        self.choose(&c, &big, &small)
    }

    /// `1 + erf(x)`: error 1.8e-7. The sum with a rounded erf has error 1.2e-7.
    pub(super) fn one_plus_erf(&mut self, x: &Lanes) -> Lanes {
        let t = self.fabs(F, x);
        let y = self.horner(&t, &ERFC_ALL);
        let y = self.fmul(&y, &t);
        let e = self.exp2_core(&y, false);
        let two = self.f32_like(x, 2.0);
        let other = self.fsub(&two, &e);
        self.choose_below(x, 0.0, &e, &other)
    }
}
