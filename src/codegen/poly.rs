//! f32 functions as polynomials over groups of lanes, within 1 to 1.5 ULP of the true value. NaN, infinities, zeros and
//! denormals give torch's values.
//!
//! Argument reductions are Cody and Waite's. The coefficients of exp, expm1 and tanh are minimax fits made
//! with Lawson's algorithm and rounded to f32 one after the other (`tools/fit_formulas.py`), as are those of the logarithms and erf,
//! whose forms follow N. Juffa's published approximations.

// The coefficients have all their published digits.
#![allow(clippy::excessive_precision)]

use super::lanes::{Emitter, Lanes, RegisterClass};
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder};
use std::f32::consts::{LN_2, LOG2_E};

pub(super) const F: RegisterClass = RegisterClass::F32;
pub(super) const I: RegisterClass = RegisterClass::I32;

/// 1.5 * 2^23. Adding it rounds a float to an integer, whose value is then in the low bits.
pub(super) const MAGIC: f32 = 12582912.0;

/// `(exp(r) - 1 - r) / r²` for r from -0.288 to 0.406: error 3.8e-10 of `exp(r) - 1`.
const EXPM1: [f32; 6] = [
    0.000209442907,
    0.00139182142,
    0.00833203457,
    0.041666586,
    0.166666701,
    0.5,
];

/// `(log(1 + f) - f) / f²` for `|f| <= 1/3`: error 4.9e-9 of the logarithm.
const LOG: [f32; 9] = [
    -0.130327553,
    0.140052915,
    -0.121552013,
    0.140018135,
    -0.166822657,
    0.200106382,
    -0.249997675,
    0.333332121,
    -0.5,
];

/// [`LOG`] of base 2: error 7.3e-9.
const LOG2: [f32; 9] = [
    -0.189865738,
    0.201818705,
    -0.174775004,
    0.202061221,
    -0.240741029,
    0.288687944,
    -0.360667259,
    0.480896711,
    -0.72134757,
];

/// [`LOG`] of base 10: error 2.1e-9.
const LOG10: [f32; 9] = [
    -0.0568784215,
    0.0609083027,
    -0.0527048521,
    0.0607901476,
    -0.0724591389,
    0.0869064108,
    -0.10857223,
    0.144764274,
    -0.217147246,
];

/// ln(2) as two summands. The first has so few digits that its product with an exponent is exact.
const LN_2_HIGH: f32 = 0.693359375;
const LN_2_LOW: f32 = -2.1219444e-4;

/// A number as two summands.
fn in_two(x: f64) -> [f32; 2] {
    [x as f32, (x - x as f32 as f64) as f32]
}

impl Emitter<'_> {
    /// The polynomial with these coefficients, from the highest power down, by Horner's method.
    pub(super) fn horner(&mut self, x: &Lanes, coefs: &[f32]) -> Lanes {
        let mut p = self.f32_like(x, coefs[0]);
        for &c in &coefs[1..] {
            let c = self.f32_like(x, c);
            p = self.fma(&p, x, &c);
        }
        p
    }

    /// `x * a + b` with constants `a` and `b`.
    pub(super) fn affine_k(&mut self, x: &Lanes, a: f32, b: f32) -> Lanes {
        let (a, b) = (self.f32_like(x, a), self.f32_like(x, b));
        self.fma(x, &a, &b)
    }

    /// `x * a + y` with a constant `a`.
    pub(super) fn axpy(&mut self, x: &Lanes, a: f32, y: &Lanes) -> Lanes {
        let a = self.f32_like(x, a);
        self.fma(x, &a, y)
    }

    pub(super) fn add_k(&mut self, x: &Lanes, k: f32) -> Lanes {
        let k = self.f32_like(x, k);
        self.fadd(x, &k)
    }

    pub(super) fn mul_k(&mut self, x: &Lanes, k: f32) -> Lanes {
        let k = self.f32_like(x, k);
        self.fmul(x, &k)
    }

    /// `x` clamped to `lo..=hi`. NaN stays NaN.
    pub(super) fn clamp_k(&mut self, x: &Lanes, lo: f32, hi: f32) -> Lanes {
        let lo = self.f32_like(x, lo);
        let x = self.max_xy(&lo, x);
        let hi = self.f32_like(&x, hi);
        self.min_xy(&hi, &x)
    }

    /// `x < k ? a : b`.
    pub(super) fn choose_below(&mut self, x: &Lanes, k: f32, a: &Lanes, b: &Lanes) -> Lanes {
        let k = self.f32_like(x, k);
        let c = self.fcmp(FloatCC::LessThan, x, &k);
        self.choose(&c, a, b)
    }

    /// `2^n` for an integer n from -126 to 127.
    pub(super) fn power_of_two(&mut self, n: &Lanes) -> Lanes {
        let s = self.shl(n, 23);
        let one = self.int_like(I, &s, 0x3f80_0000);
        let s = self.iadd(&s, &one);
        self.bitcast_lanes(F, &s)
    }

    /// `exp(x) - 1`: 1.2 ULP, also near 0. `x = n ln 2 + r` with r from -0.288 to 0.405: for n = 1 and n = -1, where the result is
    /// smaller than its summands, the polynomial has an error of a quarter of a ULP only.
    pub(super) fn expm1_f32(&mut self, x0: &Lanes) -> Lanes {
        let x = self.clamp_k(x0, -18.0, 89.0);
        let y = self.affine_k(&x, LOG2_E, -0.084_962_5);
        let t = self.add_k(&y, MAGIC);
        let n = self.add_k(&t, -MAGIC);
        // The high part of r is exact. The low one is added to the smaller powers.
        let high = self.axpy(&n, -0.693359375, &x);
        let low = self.mul_k(&n, 2.1219444e-4);
        let r = self.fadd(&high, &low);
        let q = self.horner(&r, &EXPM1);
        let r2 = self.fmul(&r, &r);
        let p = self.fma(&q, &r2, &low);
        let p = self.fadd(&p, &high);
        // (2^(n-1) p + (2^(n-1) - 1/2)) * 2, because 2^n may overflow where the result does not.
        let ti = self.bitcast_lanes(I, &t);
        let zero = self.int_like(I, &ti, MAGIC.to_bits() as i64 + 1);
        let n = self.isub(&ti, &zero);
        let s = self.power_of_two(&n);
        let c = self.add_k(&s, -0.5);
        let y = self.fma(&s, &p, &c);
        let y = self.fadd(&y, &y);
        self.copysign(F, &y, x0)
    }

    /// Splits a normal positive `a = 2^e m`, with m in 0.6668..1.3336, into e as a float and m - 1.
    fn split_log(&mut self, a: &Lanes) -> (Lanes, Lanes) {
        let (e, m) = self.split_exponent(a);
        let e = self.int_to_f32(&e);
        let e = self.mul_k(&e, 1.1920929e-7);
        let f = self.add_k(&m, -1.0);
        (e, f)
    }

    /// The exponent times 2^23 (in its bit position), and the mantissa m in 0.6668..1.3336: just above 2/3, so that `log10(2 m)` is not
    /// below 1/8, where the same error is twice as many ULP.
    pub(super) fn split_exponent(&mut self, a: &Lanes) -> (Lanes, Lanes) {
        let ai = self.bitcast_lanes(I, a);
        let c = self.int_like(I, &ai, 0x3f2a_b400);
        let e = self.isub(&ai, &c);
        let mask = self.int_like(I, &e, 0xff80_0000u32 as i32 as i64);
        let e = self.band(&e, &mask);
        let m = self.isub(&ai, &e);
        (e, self.bitcast_lanes(F, &m))
    }

    pub(super) fn int_to_f32(&mut self, x: &Lanes) -> Lanes {
        let ty = self.lane_type(F);
        self.map1(x, |e, x| e.b.ins().fcvt_from_sint(ty, x))
    }

    /// The powers of `log_b(1 + f)` above the first, divided by `f²`, and `f²`, for f in -1/3..1/3.
    fn log_core(&mut self, f: &Lanes, coefs: &[f32; 9]) -> (Lanes, Lanes) {
        let s = self.fmul(f, f);
        let mut r = self.affine_k(&s, coefs[0], coefs[2]);
        let mut t = self.affine_k(&s, coefs[1], coefs[3]);
        let k = self.f32_like(f, coefs[4]);
        r = self.fma(&r, &s, &k);
        let k = self.f32_like(f, coefs[5]);
        t = self.fma(&t, &s, &k);
        let k = self.f32_like(f, coefs[6]);
        r = self.fma(&r, &s, &k);
        r = self.fma(&t, f, &r);
        for k in &coefs[7..] {
            let k = self.f32_like(f, *k);
            r = self.fma(&r, f, &k);
        }
        (r, s)
    }

    /// [`Emitter::split_log`] of any number above zero.
    fn split_any(&mut self, x: &Lanes) -> (Lanes, Lanes) {
        let tiny = f32::MIN_POSITIVE;
        let up = self.mul_k(x, 8388608.0);
        let a = self.choose_below(x, tiny, &up, x);
        let (e, f) = self.split_log(&a);
        let down = self.add_k(&e, -23.0);
        (self.choose_below(x, tiny, &down, &e), f)
    }

    /// A logarithm of base `b`: `e * log_b(2) + log_b(1 + f)`. Each factor is given as two summands. The first one of `log_b(2)` has
    /// so few digits that its product with e is exact.
    fn log_base(&mut self, x: &Lanes, of_2: [f32; 2], of_e: [f32; 2], coefs: &[f32; 9]) -> Lanes {
        let (e, f) = self.split_any(x);
        let (p, z) = self.log_core(&f, coefs);
        let whole = if of_2[0] == 1.0 {
            e.clone()
        } else {
            self.mul_k(&e, of_2[0])
        };
        let sum = self.axpy(&f, of_e[0], &whole);
        // The rounding error of the sum: the difference is exact, because f has the smaller part or the only one.
        let rest = self.fsub(&whole, &sum);
        let rest = self.axpy(&f, of_e[0], &rest);
        let mut low = self.axpy(&f, of_e[1], &rest);
        if of_2[1] != 0.0 {
            low = self.axpy(&e, of_2[1], &low);
        }
        let low = self.fma(&p, &z, &low);
        let y = self.fadd(&sum, &low);
        self.log_specials(x, 0.0, &y)
    }

    /// Special values of a logarithm with its pole at `pole`: -inf at the pole, NaN below it, infinity and NaN
    /// unchanged.
    fn log_specials(&mut self, x: &Lanes, pole: f32, y: &Lanes) -> Lanes {
        let inf = self.f32_like(x, f32::INFINITY);
        let c = self.fcmp(FloatCC::LessThan, x, &inf);
        let y = self.choose(&c, y, x);
        let zero = self.f32_like(x, pole);
        let c = self.fcmp(FloatCC::LessThan, x, &zero);
        let nan = self.f32_like(x, f32::NAN);
        let y = self.choose(&c, &nan, &y);
        let zero = self.f32_like(x, pole);
        let c = self.fcmp(FloatCC::Equal, x, &zero);
        let ninf = self.f32_like(x, f32::NEG_INFINITY);
        self.choose(&c, &ninf, &y)
    }

    /// `log(x)`: 1 ULP.
    pub(super) fn log_f32(&mut self, x: &Lanes) -> Lanes {
        self.log_plus(x, None)
    }

    /// `log(x) + low`. With a `low`, which is small, x must not be a denormal.
    pub(super) fn log_plus(&mut self, x: &Lanes, low: Option<&Lanes>) -> Lanes {
        let (e, f) = match low {
            Some(_) => self.split_log(x),
            None => self.split_any(x),
        };
        let (p, z) = self.log_core(&f, &LOG);
        let p = self.fmul(&p, &z);
        let p = low.map_or(p.clone(), |low| self.fadd(&p, low));
        let y = self.fadd(&p, &f);
        let y = self.axpy(&e, LN_2, &y);
        self.log_specials(x, 0.0, &y)
    }

    /// `log2(x)`: 1 ULP.
    pub(super) fn log2_f32(&mut self, x: &Lanes) -> Lanes {
        self.log_base(x, [1.0, 0.0], in_two(std::f64::consts::LOG2_E), &LOG2)
    }

    /// `log10(x)`: 1 ULP.
    pub(super) fn log10_f32(&mut self, x: &Lanes) -> Lanes {
        let high = 0.301_025_39_f32;
        let of_2 = [high, (std::f64::consts::LOG10_2 - high as f64) as f32];
        self.log_base(x, of_2, in_two(std::f64::consts::LOG10_E), &LOG10)
    }

    /// `log(x)` of a positive normal number, as two summands.
    pub(super) fn log_in_two(&mut self, x: &Lanes) -> [Lanes; 2] {
        let (e, f) = self.split_log(x);
        let (p, z) = self.log_core(&f, &LOG);
        let whole = self.mul_k(&e, LN_2_HIGH);
        let sum = self.fadd(&whole, &f);
        let rest = self.fsub(&whole, &sum);
        let rest = self.fadd(&rest, &f);
        let low = self.axpy(&e, LN_2_LOW, &rest);
        let low = self.fma(&p, &z, &low);
        let high = self.fadd(&sum, &low);
        let rest = self.fsub(&sum, &high);
        [high, self.fadd(&rest, &low)]
    }

    /// `log(1 + x)`: 1.1 ULP, also near 0.
    pub(super) fn log1p_f32(&mut self, x: &Lanes) -> Lanes {
        let u = self.add_k(x, 1.0);
        let (e, m) = self.split_exponent(&u);
        // 2^-e. For the largest e the bits are those of -inf; there, 1 + x loses nothing.
        let one = self.int_like(I, &e, 0x3f80_0000);
        let s = self.isub(&one, &e);
        let s = self.bitcast_lanes(F, &s);
        let zero = self.f32_like(x, 0.0);
        let s = self.max_xy(&zero, &s);
        // m - 1, and what 1 + x lost. Both are exact.
        let near = self.add_k(&m, -1.0);
        let back = self.add_k(&u, -1.0);
        let lost = self.fsub(x, &back);
        let f = self.fma(&lost, &s, &near);
        let (p, z) = self.log_core(&f, &LOG);
        let e = self.int_to_f32(&e);
        let whole = self.mul_k(&e, 1.1920929e-7 * LN_2_HIGH);
        let sum = self.fadd(&f, &whole);
        // What f and the sum lost together.
        let rest = self.fsub(&whole, &sum);
        let rest = self.fadd(&rest, &near);
        let low = self.fma(&lost, &s, &rest);
        let low = self.axpy(&e, 1.1920929e-7 * LN_2_LOW, &low);
        let low = self.fma(&p, &z, &low);
        let y = self.fadd(&sum, &low);
        let y = self.copysign(F, &y, x);
        self.log_specials(x, -1.0, &y)
    }

    /// `y`, or the result of `other`, computed out of line, if the condition holds in any lane of the group.
    pub(super) fn unless_any(&mut self, c: &Lanes, y: &Lanes, other: impl FnOnce(&mut Self) -> Lanes) -> Lanes {
        let cold = self.open_cold(c, y);
        let other = other(self);
        self.close_cold(cold, &other)
    }

    /// Begins code out of line that runs if the condition holds in any lane of the group. It replaces the values `y`.
    pub(super) fn open_cold(&mut self, c: &Lanes, y: &Lanes) -> ColdCode {
        let any = self.any_true(c);
        let (cold, join) = (self.b.create_block(), self.b.create_block());
        let mut results = vec![];
        for &v in y {
            let ty = self.b.func.dfg.value_type(v);
            results.push(self.b.append_block_param(join, ty));
        }
        let args: Vec<BlockArg> = y.iter().map(|&v| v.into()).collect();
        self.b.ins().brif(any, cold, &[], join, &args);
        self.b.seal_block(cold);
        self.b.set_cold_block(cold);
        self.b.switch_to_block(cold);
        ColdCode { join, results }
    }

    /// Ends code out of line, whose results are `other`. Returns the values on both paths.
    pub(super) fn close_cold(&mut self, cold: ColdCode, other: &Lanes) -> Lanes {
        let args: Vec<BlockArg> = other.iter().map(|&v| v.into()).collect();
        self.b.ins().jump(cold.join, &args);
        self.b.seal_block(cold.join);
        self.b.switch_to_block(cold.join);
        cold.results
    }
}

/// Code out of line that was begun.
pub(super) struct ColdCode {
    join: Block,
    results: Lanes,
}
