//! f32 functions as polynomials over groups of lanes, within 1 to 3 ULP of the true value. NaN, infinities, zeros and
//! denormals give torch's values.
//!
//! Argument reductions are Cody and Waite's. The coefficients of exp, expm1 and tanh are minimax fits made
//! with Lawson's algorithm and rounded to f32 one after the other. Those of log and erf follow N. Juffa's published
//! approximations.

// The coefficients have all their published digits.
#![allow(clippy::excessive_precision)]

use super::lanes::{Emitter, Lanes, RegisterClass};
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder};
use std::f32::consts::{LN_2, LOG2_10, LOG2_E};

pub(super) const F: RegisterClass = RegisterClass::F32;
pub(super) const I: RegisterClass = RegisterClass::I32;

/// 1.5 * 2^23. Adding it rounds a float to an integer, whose value is then in the low bits.
pub(super) const MAGIC: f32 = 12582912.0;

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

    /// `expm1(r)` for `|r| <= ln(2) / 2`.
    fn expm1_core(&mut self, r: &Lanes) -> Lanes {
        let q = self.horner(
            r,
            &[1.9764353e-4, 1.3932366e-3, 8.333544e-3, 4.1666493e-2, 0.16666666, 0.5],
        );
        let r2 = self.fmul(r, r);
        self.fma(&q, &r2, r)
    }

    /// Splits `x = n ln 2 + r` into the rounded n (as MAGIC + n) and r. `x` must be clamped.
    fn reduce_ln2(&mut self, x: &Lanes) -> (Lanes, Lanes) {
        let t = self.affine_k(x, LOG2_E, MAGIC);
        let n = self.add_k(&t, -MAGIC);
        let r = self.axpy(&n, -0.693359375, x);
        let r = self.axpy(&n, 2.1219444e-4, &r);
        (t, r)
    }

    /// `2^n` for an integer n from -126 to 127.
    pub(super) fn power_of_two(&mut self, n: &Lanes) -> Lanes {
        let s = self.shl(n, 23);
        let one = self.int_like(I, &s, 0x3f80_0000);
        let s = self.iadd(&s, &one);
        self.bitcast_lanes(F, &s)
    }

    /// `exp(x) - 1`: 1 ULP, also near 0.
    pub(super) fn expm1_f32(&mut self, x0: &Lanes) -> Lanes {
        let x = self.clamp_k(x0, -18.0, 89.0);
        let (t, r) = self.reduce_ln2(&x);
        let p = self.expm1_core(&r);
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

    /// Splits a normal positive `a = 2^e m`, with m in 2/3..4/3, into e as a float and m - 1.
    fn split_log(&mut self, a: &Lanes) -> (Lanes, Lanes) {
        let (e, m) = self.split_exponent(a);
        let e = self.int_to_f32(&e);
        let e = self.mul_k(&e, 1.1920929e-7);
        let f = self.add_k(&m, -1.0);
        (e, f)
    }

    /// The exponent times 2^23 (in its bit position), and the mantissa m in 2/3..4/3.
    pub(super) fn split_exponent(&mut self, a: &Lanes) -> (Lanes, Lanes) {
        let ai = self.bitcast_lanes(I, a);
        let c = self.int_like(I, &ai, 0x3f2a_aaab);
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

    /// `log(1 + f) - f` for f in -1/3..1/3.
    fn log_core(&mut self, f: &Lanes) -> Lanes {
        let s = self.fmul(f, f);
        let mut r = self.affine_k(&s, -0.130310059, -0.121483512);
        let mut t = self.affine_k(&s, 0.140869141, 0.139814854);
        let k = self.f32_like(f, -0.166846126);
        r = self.fma(&r, &s, &k);
        let k = self.f32_like(f, 0.200120345);
        t = self.fma(&t, &s, &k);
        let k = self.f32_like(f, -0.249996200);
        r = self.fma(&r, &s, &k);
        r = self.fma(&t, f, &r);
        for k in [0.333331972, -0.5] {
            let k = self.f32_like(f, k);
            r = self.fma(&r, f, &k);
        }
        self.fmul(&r, &s)
    }

    /// A logarithm of base `b`: `e * log_b(2) + log_b(1 + f)`. Each factor is given as two summands.
    fn log_base(&mut self, x: &Lanes, of_2: [f32; 2], of_e: [f32; 2]) -> Lanes {
        let tiny = f32::MIN_POSITIVE;
        let up = self.mul_k(x, 8388608.0);
        let a = self.choose_below(x, tiny, &up, x);
        let (e, f) = self.split_log(&a);
        let down = self.add_k(&e, -23.0);
        let e = self.choose_below(x, tiny, &down, &e);
        let p = self.log_core(&f);
        let y = if of_e == [1.0, 0.0] {
            let y = self.fadd(&p, &f);
            self.axpy(&e, of_2[0], &y)
        } else {
            // f * hi is exact enough only because hi has few significant bits. The other terms are small.
            let low = self.mul_k(&p, of_e[0] + of_e[1]);
            let low = self.axpy(&f, of_e[1], &low);
            let low = if of_2[1] != 0.0 {
                self.axpy(&e, of_2[1], &low)
            } else {
                low
            };
            let y = self.axpy(&f, of_e[0], &low);
            self.axpy(&e, of_2[0], &y)
        };
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
        self.log_base(x, [LN_2, 0.0], [1.0, 0.0])
    }

    /// `log2(x)`: 1 to 2 ULP. `log2(e)` is 1.4423828 + 3.12…e-4.
    pub(super) fn log2_f32(&mut self, x: &Lanes) -> Lanes {
        let hi = 1.442_382_8;
        self.log_base(x, [1.0, 0.0], [hi, (std::f64::consts::LOG2_E - hi as f64) as f32])
    }

    /// `log10(x)`: 1 to 2 ULP.
    pub(super) fn log10_f32(&mut self, x: &Lanes) -> Lanes {
        let (two, e) = (0.301_025_39_f32, 0.434_326_17_f32);
        let low = |exact: f64, hi: f32| (exact - hi as f64) as f32;
        debug_assert!((two * LOG2_10 - 1.0).abs() < 1e-3);
        self.log_base(
            x,
            [two, low(std::f64::consts::LOG10_2, two)],
            [e, low(std::f64::consts::LOG10_E, e)],
        )
    }

    /// `log(1 + x)`: 1 to 2 ULP, also near 0.
    pub(super) fn log1p_f32(&mut self, x: &Lanes) -> Lanes {
        let u = self.add_k(x, 1.0);
        let (e, m) = self.split_exponent(&u);
        // m - 1 = x 2^-e + (2^-e - 1), without rounding 1 + x. For large x that rounding does not matter, and 2^-e may
        // underflow.
        let one = self.int_like(I, &e, 0x3f80_0000);
        let s = self.isub(&one, &e);
        let s = self.bitcast_lanes(F, &s);
        let c = self.add_k(&s, -1.0);
        let exact = self.fma(x, &s, &c);
        let rounded = self.add_k(&m, -1.0);
        let f = self.choose_below(x, 1e18, &exact, &rounded);
        let p = self.log_core(&f);
        let y = self.fadd(&p, &f);
        let e = self.int_to_f32(&e);
        let y = self.axpy(&e, 1.1920929e-7 * LN_2, &y);
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
