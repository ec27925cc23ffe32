//! Conversions between dtypes, with torch's cast semantics.

use super::lanes::{Emitter, Lanes, RegisterClass};
use super::natives::NativeInst;
use crate::types::DType;
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32X4, F64, F64X2, I32, I32X4, I64};

const F: RegisterClass = RegisterClass::F32;
const I: RegisterClass = RegisterClass::I32;

impl Emitter<'_> {
    /// `x` of `from` converted to `to`.
    pub(super) fn cast(&mut self, from: DType, to: DType, x: &Lanes) -> Lanes {
        if from == to {
            return x.clone();
        }
        match (from, to) {
            (_, DType::B8) => self.is_nonzero(from, x),
            (DType::F16, _) => {
                let x = self.f16_to_f32(x);
                self.cast(DType::F32, to, &x)
            }
            (DType::BF16, _) => {
                let x = self.shl(x, 16);
                let x = self.bitcast_lanes(F, &x);
                self.cast(DType::F32, to, &x)
            }
            // Bytes have no more bits than a bf16.
            (DType::U8 | DType::I8 | DType::B8, DType::BF16) => {
                let x = self.cast(from, DType::F32, x);
                self.exact_f32_to_bf16(&x)
            }
            (_, DType::F16 | DType::BF16) => {
                let x = self.cast(from, DType::F32, x);
                if to == DType::F16 {
                    self.f32_to_f16(&x)
                } else {
                    self.f32_to_bf16(&x)
                }
            }
            (DType::B8, _) => self.bool_to(to, x),
            _ => match (from.is_float(), to.is_float()) {
                (true, true) => self.float_to_float(to, x),
                (true, false) => self.float_to_int(from, to, x),
                (false, true) => self.int_to_float(from, to, x),
                (false, false) => self.int_to_int(from, to, x),
            },
        }
    }

    fn int_to_int(&mut self, from: DType, to: DType, x: &Lanes) -> Lanes {
        match (RegisterClass::from_dtype(from), RegisterClass::from_dtype(to)) {
            (RegisterClass::I32, RegisterClass::I64) if self.scalar => self.map1(x, |e, x| e.b.ins().sextend(I64, x)),
            (RegisterClass::I32, RegisterClass::I64) => self.widen32(x),
            (RegisterClass::I64, _) => {
                let x = match self.scalar {
                    true => self.map1(x, |e, x| e.b.ins().ireduce(I32, x)),
                    false => self.narrow64(x),
                };
                self.wrap_to_width(to, &x)
            }
            _ => self.wrap_to_width(to, x),
        }
    }

    /// The I32 lanes `x`, wrapped to the width of `to`.
    pub(super) fn wrap_to_width(&mut self, to: DType, x: &Lanes) -> Lanes {
        match to {
            _ if self.is_packed() => x.clone(),
            DType::I16 => {
                let x = self.shl(x, 16);
                self.sar(&x, 16)
            }
            DType::I8 => {
                let x = self.shl(x, 24);
                self.sar(&x, 24)
            }
            DType::U8 => {
                let mask = self.int_like(I, x, 255);
                self.band(x, &mask)
            }
            _ => x.clone(),
        }
    }

    /// Whether `x` is nonzero. NaN counts as nonzero.
    fn is_nonzero(&mut self, from: DType, x: &Lanes) -> Lanes {
        let c = RegisterClass::from_dtype(from);
        if c.is_float() {
            let zero = self.float_like(c, x, 0.0);
            return self.fcmp(FloatCC::NotEqual, x, &zero);
        }
        let mut x = x.clone();
        if from.is_half() {
            let magnitude = self.int_like(I, &x, 0x7fff);
            x = self.band(&x, &magnitude);
        }
        let zero = self.int_like(c, &x, 0);
        self.icmp(IntCC::NotEqual, &x, &zero)
    }

    /// 0 or 1 in a dtype other than a 16-bit float.
    fn bool_to(&mut self, to: DType, x: &Lanes) -> Lanes {
        let c = RegisterClass::from_dtype(to);
        if self.scalar {
            let ty = c.int_class().scalar_type();
            let i = self.map1(x, |e, x| e.b.ins().uextend(ty, x));
            return match c {
                RegisterClass::F32 | RegisterClass::F64 => {
                    let ty = c.scalar_type();
                    self.map1(&i, |e, x| e.b.ins().fcvt_from_sint(ty, x))
                }
                _ => i,
            };
        }
        let m = self.mask_for(c, x);
        let one = match c {
            RegisterClass::F32 | RegisterClass::F64 => self.float_like(c, &m, 1.0),
            _ => self.int_like(c, &m, 1),
        };
        let m = self.bitcast_lanes(c, &m);
        self.band(&m, &one)
    }

    fn float_to_float(&mut self, to: DType, x: &Lanes) -> Lanes {
        if self.scalar {
            return self.map1(x, |e, x| {
                if to == DType::F64 {
                    e.b.ins().fpromote(F64, x)
                } else {
                    e.b.ins().fdemote(cranelift_codegen::ir::types::F32, x)
                }
            });
        }
        if to == DType::F64 {
            let halves = self.split_halves(x);
            return self.map1(&halves, |e, x| e.b.ins().fvpromote_low(x));
        }
        let mut out = vec![];
        for p in x.chunks_exact(2) {
            let (a, b) = (self.b.ins().fvdemote(p[0]), self.b.ins().fvdemote(p[1]));
            out.push(self.shuffle32(a, b, [0, 1, 4, 5]));
        }
        out
    }

    fn int_to_float(&mut self, from: DType, to: DType, x: &Lanes) -> Lanes {
        let (ci, cf) = (RegisterClass::from_dtype(from), RegisterClass::from_dtype(to));
        if ci == RegisterClass::I64 && self.has_natives() {
            return self.long_to_float(cf, x);
        }
        let ty = self.lane_type(cf);
        if self.scalar || (ci.size() == 4 && cf == F) || (ci.size() == 8 && cf == RegisterClass::F64) {
            return self.map1(x, |e, x| e.b.ins().fcvt_from_sint(ty, x));
        }
        if ci.size() == 4 {
            let halves = self.split_halves(x);
            return self.map1(&halves, |e, x| {
                let wide = e.b.ins().swiden_low(x);
                e.b.ins().fcvt_from_sint(F64X2, wide)
            });
        }
        // i64 to f32 must round once, and only a scalar instruction does that.
        self.per_lane(&[(ci, x)], cf, |e, x| e.b.ins().fcvt_from_sint(cf.scalar_type(), x[0]))
    }

    fn long_to_float(&mut self, to: RegisterClass, x: &Lanes) -> Lanes {
        if to == RegisterClass::F64 {
            return self.native1(NativeInst::I64ToF64, to, x);
        }
        let halves = self.native1(NativeInst::I64ToF32, to, x);
        let pairs = halves.chunks_exact(2);
        pairs.map(|p| self.join_halves(p[0], p[1])).collect()
    }

    /// Truncates floats to integers: directly for i64, through i32 for narrower types. Out-of-range values and NaN
    /// become the smallest integer of that width.
    fn float_to_int(&mut self, from: DType, to: DType, x: &Lanes) -> Lanes {
        let c = RegisterClass::from_dtype(from);
        if to == DType::I64 && self.has_natives() {
            let x = self.cast(from, DType::F64, x);
            return self.native1(NativeInst::TruncateF64, RegisterClass::I64, &x);
        }
        if to == DType::I64 {
            return self.per_lane(&[(c, x)], RegisterClass::I64, |e, x| {
                e.truncate_scalar(c, RegisterClass::I64, x[0])
            });
        }
        let x = match (c, self.x86) {
            (RegisterClass::F32, true) if self.scalar => self.map1(x, |e, x| {
                let v = e.b.ins().scalar_to_vector(F32X4, x);
                let v = e.b.ins().x86_cvtt2dq(I32X4, v);
                e.b.ins().extractlane(v, 0)
            }),
            (RegisterClass::F32, true) => self.map1(x, |e, x| e.b.ins().x86_cvtt2dq(I32X4, x)),
            (RegisterClass::F64, _) if !self.scalar => self.truncate_lanes(x),
            _ => self.per_lane(&[(c, x)], I, |e, x| e.truncate_scalar(c, I, x[0])),
        };
        self.wrap_to_width(to, &x)
    }

    /// F64 lanes truncated to I32. What does not fit gives the smallest I32.
    fn truncate_lanes(&mut self, x: &Lanes) -> Lanes {
        let c = RegisterClass::F64;
        let whole = self.map1(x, |e, x| e.b.ins().trunc(x));
        let (lo, hi) = (
            self.float_like(c, x, -2147483648.0),
            self.float_like(c, x, 2147483648.0),
        );
        let above = self.fcmp(FloatCC::GreaterThanOrEqual, &whole, &lo);
        let under = self.fcmp(FloatCC::LessThan, &whole, &hi);
        let fits = self.band(&above, &under);
        let lo = self.float_like(c, x, -2147483648.0);
        let whole = self.choose(&fits, &whole, &lo);
        self.whole_to_i32(c, &whole)
    }

    /// A scalar truncated to `to`, I32 or I64. Gives the type's smallest value where the result does not fit.
    fn truncate_scalar(
        &mut self,
        from: RegisterClass,
        to: RegisterClass,
        x: cranelift_codegen::ir::Value,
    ) -> cranelift_codegen::ir::Value {
        let x = &vec![x];
        let ty = to.scalar_type();
        let sat = self.map1(x, |e, x| e.b.ins().fcvt_to_sint_sat(ty, x));
        let whole = self.map1(x, |e, x| e.b.ins().trunc(x));
        let bound = if to == RegisterClass::I64 {
            9223372036854775808.0
        } else {
            2147483648.0
        };
        let (lo, hi) = (self.float_like(from, x, -bound), self.float_like(from, x, bound));
        let above = self.fcmp(FloatCC::GreaterThanOrEqual, &whole, &lo);
        let under = self.fcmp(FloatCC::LessThan, &whole, &hi);
        let fits = self.band(&above, &under);
        let min = if to == RegisterClass::I64 {
            i64::MIN
        } else {
            i32::MIN as i64
        };
        let min = self.int_like(to, x, min);
        self.choose(&fits, &sat, &min)[0]
    }

    /// Converts the bits of an f16 to an f32: shifts the exponent into place and corrects its bias with a
    /// multiplication, which also handles denormals (F. Giesen's conversion).
    fn f16_to_f32(&mut self, h: &Lanes) -> Lanes {
        if self.has_natives() {
            let halves = self.native1(NativeInst::PackHalf, I, h);
            return self.native1(NativeInst::F16ToF32, F, &halves);
        }
        if self.has_f16c() {
            return self.widen_by_f16c(h);
        }
        let mask = self.int_like(I, h, 0x7fff);
        let magnitude = self.band(h, &mask);
        let shifted = self.shl(&magnitude, 13);
        let scaled = self.bitcast_lanes(F, &shifted);
        let k = self.constant_bits(F, (254 - 15) << 23, h.len());
        let scaled = self.fmul(&scaled, &k);
        let scaled = self.bitcast_lanes(I, &scaled);
        let limit = self.int_like(I, h, 0x7bff);
        let special = self.icmp(IntCC::SignedGreaterThan, &magnitude, &limit);
        // NaN becomes quiet, as the processor's own conversion makes it.
        let infinity = self.int_like(I, h, 0x7c00);
        let nan = self.icmp(IntCC::SignedGreaterThan, &magnitude, &infinity);
        let (quiet, ones) = (self.int_like(I, h, 511 << 22), self.int_like(I, h, 255 << 23));
        let ones = self.choose(&nan, &quiet, &ones);
        let full = self.bor(&scaled, &ones);
        let r = self.choose(&special, &full, &scaled);
        let sign = self.int_like(I, h, 0x8000);
        let sign = self.band(h, &sign);
        let sign = self.shl(&sign, 16);
        let r = self.bor(&r, &sign);
        self.bitcast_lanes(F, &r)
    }

    /// Rounds an f32 to the bits of an f16, half to even. Normal results add the rounding bias to the bits; denormal
    /// results add a float that aligns the mantissa (F. Giesen's conversion).
    fn f32_to_f16(&mut self, x: &Lanes) -> Lanes {
        if self.has_natives() {
            let halves = self.narrow_natively(DType::F16, x, false);
            return self.native1(NativeInst::ExtendHalf, I, &halves);
        }
        if self.has_f16c() {
            return self.round_by_f16c(x);
        }
        let bits = self.bitcast_lanes(I, x);
        let mask = self.int_like(I, &bits, 0x7fff_ffff);
        let f = self.band(&bits, &mask);
        let sign = self.shr(&bits, 16);
        let mask = self.int_like(I, &bits, 0x8000);
        let sign = self.band(&sign, &mask);
        // Normal results.
        let high = self.shr(&f, 13);
        let one = self.int_like(I, &f, 1);
        let odd = self.band(&high, &one);
        let bias = self.int_like(I, &f, ((15 - 127) << 23) + 0xfff);
        let normal = self.iadd(&f, &bias);
        let normal = self.iadd(&normal, &odd);
        let normal = self.shr(&normal, 13);
        // Denormal results.
        let magic = ((127 - 15) + (23 - 10) + 1) << 23;
        let k = self.constant_bits(F, magic, f.len());
        let ff = self.bitcast_lanes(F, &f);
        let d = self.fadd(&ff, &k);
        let d = self.bitcast_lanes(I, &d);
        let k = self.int_like(I, &d, magic as i64);
        let denormal = self.isub(&d, &k);
        let small = self.int_like(I, &f, 113 << 23);
        let small = self.icmp(IntCC::SignedLessThan, &f, &small);
        let r = self.choose(&small, &denormal, &normal);
        let r = self.choose_special_f16(&f, &high, &r);
        self.bor(&r, &sign)
    }

    /// The f16 `r` that was rounded from a magnitude `f`, or infinity or NaN if `f` is too large. `high` is `f` shifted right by 13.
    fn choose_special_f16(&mut self, f: &Lanes, high: &Lanes, r: &Lanes) -> Lanes {
        let inf = self.int_like(I, f, 255 << 23);
        let nan = self.icmp(IntCC::SignedGreaterThan, f, &inf);
        // NaN keeps the high bits of its payload, as in the processor's own conversion.
        let mask = self.int_like(I, f, 0x1ff);
        let payload = self.band(high, &mask);
        let (qnan, inf) = (self.int_like(I, f, 0x7e00), self.int_like(I, f, 0x7c00));
        let qnan = self.bor(&payload, &qnan);
        let special = self.choose(&nan, &qnan, &inf);
        let max = self.int_like(I, f, ((127 + 16) << 23) - 1);
        let large = self.icmp(IntCC::SignedGreaterThan, f, &max);
        self.choose(&large, &special, r)
    }

    /// The bits of the bf16 that equals an f32, for values that bf16 represents.
    pub(super) fn exact_f32_to_bf16(&mut self, x: &Lanes) -> Lanes {
        let bits = self.bitcast_lanes(I, x);
        self.shr(&bits, 16)
    }

    /// Rounds an f32 to the bits of a bf16, half to even.
    fn f32_to_bf16(&mut self, x: &Lanes) -> Lanes {
        let bits = self.bitcast_lanes(I, x);
        let high = self.shr(&bits, 16);
        let one = self.int_like(I, &bits, 1);
        let odd = self.band(&high, &one);
        let bias = self.int_like(I, &bits, 0x7fff);
        let r = self.iadd(&bits, &bias);
        let r = self.iadd(&r, &odd);
        let r = self.shr(&r, 16);
        let quiet = self.int_like(I, &high, 0x40);
        let quiet = self.bor(&high, &quiet);
        let nan = self.fcmp(FloatCC::Unordered, x, x);
        self.choose(&nan, &quiet, &r)
    }
}
