//! Lowers scalar operations for each dtype.

use super::lanes::{Emitter, Lanes, RegisterClass};
use crate::kernel::{Fault, Status};
use crate::scalar::{Binary, Compare, Unary};
use crate::types::DType;
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::Value;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{I32, I64};

impl Emitter<'_> {
    /// `op(x)` on values of `dtype`.
    pub(super) fn unary(&mut self, op: Unary, dtype: DType, x: &Lanes) -> Lanes {
        let c = RegisterClass::from_dtype(dtype);
        match c {
            RegisterClass::F32 | RegisterClass::F64 => self.unary_float(op, c, x),
            RegisterClass::Bool => match op {
                Unary::Not | Unary::BitNot => self.not(x),
                Unary::IsNan | Unary::IsInf | Unary::SignBit => self.all_false(x),
                _ => x.clone(),
            },
            _ if dtype.is_float() => self.change_sign_bits(op, x),
            _ => self.unary_int(op, dtype, x),
        }
    }

    /// The negation of a condition.
    pub(super) fn not(&mut self, x: &Lanes) -> Lanes {
        if self.scalar {
            return self.map1(x, |e, x| e.b.ins().bxor_imm_u(x, 1));
        }
        self.map1(x, |e, x| e.b.ins().bnot(x))
    }

    /// A condition shaped like `x` that never holds.
    fn all_false(&mut self, x: &Lanes) -> Lanes {
        self.map1(x, |e, x| e.b.ins().bxor(x, x))
    }

    fn unary_int(&mut self, op: Unary, dtype: DType, x: &Lanes) -> Lanes {
        let c = RegisterClass::from_dtype(dtype);
        let zero = |e: &mut Self| e.int_like(c, x, 0);
        match op {
            Unary::Neg => {
                let r = self.map1(x, |e, x| e.b.ins().ineg(x));
                self.wrap_to_width(dtype, &r)
            }
            Unary::Abs if dtype == DType::U8 => x.clone(),
            Unary::Abs => {
                let r = self.map1(x, |e, x| e.b.ins().iabs(x));
                self.wrap_to_width(dtype, &r)
            }
            Unary::BitNot => {
                let r = self.map1(x, |e, x| e.b.ins().bnot(x));
                self.wrap_to_width(dtype, &r)
            }
            Unary::Sign => {
                let z = zero(self);
                let above = self.compare(Compare::Gt, dtype, x, &z);
                let below = self.compare(Compare::Lt, dtype, x, &z);
                let (one, minus) = (self.int_like(c, x, 1), self.int_like(c, x, -1));
                let r = self.choose(&below, &minus, &z);
                self.choose(&above, &one, &r)
            }
            Unary::SignBit => {
                let z = zero(self);
                self.compare(Compare::Lt, dtype, x, &z)
            }
            Unary::IsNan | Unary::IsInf => self.icmp(IntCC::NotEqual, x, x),
            _ => x.clone(),
        }
    }

    fn unary_float(&mut self, op: Unary, c: RegisterClass, x: &Lanes) -> Lanes {
        match op {
            Unary::Neg => self.fneg(c, x),
            Unary::Abs => self.fabs(c, x),
            Unary::Sign => self.sign_of_float(c, x),
            Unary::Floor => self.map1(x, |e, x| e.b.ins().floor(x)),
            Unary::Ceil => self.map1(x, |e, x| e.b.ins().ceil(x)),
            Unary::Round => self.map1(x, |e, x| e.b.ins().nearest(x)),
            Unary::Trunc => self.map1(x, |e, x| e.b.ins().trunc(x)),
            Unary::Sqrt => self.map1(x, |e, x| e.b.ins().sqrt(x)),
            Unary::Rsqrt => {
                let s = self.map1(x, |e, x| e.b.ins().sqrt(x));
                let one = self.float_like(c, x, 1.0);
                self.fdiv(&one, &s)
            }
            Unary::Recip => {
                let one = self.float_like(c, x, 1.0);
                self.fdiv(&one, x)
            }
            Unary::IsNan => self.fcmp(FloatCC::Unordered, x, x),
            Unary::IsInf => {
                let a = self.fabs(c, x);
                let inf = self.float_like(c, x, f64::INFINITY);
                self.fcmp(FloatCC::Equal, &a, &inf)
            }
            Unary::SignBit => {
                let bits = self.bitcast_lanes(c.int_class(), x);
                let z = self.int_like(c.int_class(), &bits, 0);
                self.icmp(IntCC::SignedLessThan, &bits, &z)
            }
            _ if c == RegisterClass::F32 => self.unary_polynomial(op, x),
            _ => match self.unary_f64(op, x) {
                Some(y) => y,
                None => self.call_unary(op, c, x),
            },
        }
    }

    fn sign_of_float(&mut self, c: RegisterClass, x: &Lanes) -> Lanes {
        let z = self.float_like(c, x, 0.0);
        let above = self.fcmp(FloatCC::GreaterThan, x, &z);
        let below = self.fcmp(FloatCC::LessThan, x, &z);
        let (one, minus) = (self.float_like(c, x, 1.0), self.float_like(c, x, -1.0));
        let r = self.choose(&below, &minus, &z);
        self.choose(&above, &one, &r)
    }

    fn unary_polynomial(&mut self, op: Unary, x: &Lanes) -> Lanes {
        match op {
            Unary::Exp => self.exp_f32(x),
            Unary::Exp2 => self.exp2_f32(x),
            Unary::Expm1 => self.expm1_f32(x),
            Unary::Log => self.log_f32(x),
            Unary::Log2 => self.log2_f32(x),
            Unary::Log10 => self.log10_f32(x),
            Unary::Log1p => self.log1p_f32(x),
            Unary::Tanh => self.tanh_f32(x),
            Unary::Erf => self.erf_f32(x),
            Unary::Sigmoid => self.sigmoid_f32(x),
            _ => match self.unary_formula(op, x) {
                Some(y) => y,
                None => self.call_unary(op, RegisterClass::F32, x),
            },
        }
    }

    /// `op(x, y)` on values of `dtype`.
    pub(super) fn binary(&mut self, op: Binary, dtype: DType, x: &Lanes, y: &Lanes) -> Lanes {
        let c = RegisterClass::from_dtype(dtype);
        match c {
            RegisterClass::F32 | RegisterClass::F64 => self.binary_float(op, c, x, y),
            RegisterClass::Bool => self.binary_bool(op, x, y),
            // Kernels have no other function of two 16-bit floats.
            _ if dtype.is_float() => self.copy_sign_bits(x, y),
            _ => self.binary_int(op, dtype, x, y),
        }
    }

    fn binary_bool(&mut self, op: Binary, x: &Lanes, y: &Lanes) -> Lanes {
        let (x, y) = (self.mask32(x), self.mask32(y));
        match op {
            Binary::Mul | Binary::Min | Binary::Fmin | Binary::And => self.band(&x, &y),
            Binary::Xor => self.map2(&x, &y, |e, x, y| e.b.ins().bxor(x, y)),
            Binary::Pow => {
                let n = self.not(&y);
                self.bor(&x, &n)
            }
            _ => self.bor(&x, &y),
        }
    }

    fn binary_float(&mut self, op: Binary, c: RegisterClass, x: &Lanes, y: &Lanes) -> Lanes {
        match op {
            Binary::Add => self.fadd(x, y),
            Binary::Sub => self.fsub(x, y),
            Binary::Mul => self.fmul(x, y),
            Binary::Div => self.fdiv(x, y),
            Binary::TruncDiv => {
                let q = self.fdiv(x, y);
                self.map1(&q, |e, x| e.b.ins().trunc(x))
            }
            // The larger (smaller) operand, or the left one if they are equal or unordered. Then the right one where
            // only it is NaN.
            Binary::Max => {
                let m = self.max_xy(y, x);
                self.nan_of(y, &m)
            }
            Binary::Min => {
                let m = self.min_xy(y, x);
                self.nan_of(y, &m)
            }
            Binary::Fmax => {
                let m = self.max_xy(y, x);
                self.unless_nan(x, y, &m)
            }
            Binary::Fmin => {
                let m = self.min_xy(y, x);
                self.unless_nan(x, y, &m)
            }
            Binary::Copysign => self.copysign(c, x, y),
            Binary::Fmod if self.fma => self.by_vector(x, y, |e, x, y| e.fmod(c, x, y)),
            Binary::Mod if self.fma => self.by_vector(x, y, |e, x, y| e.float_mod(c, x, y)),
            Binary::FloorDiv if self.fma => self.by_vector(x, y, |e, x, y| e.float_floor_div(c, x, y)),
            _ if c == RegisterClass::F32 => match self.binary_formula(op, x, y) {
                Some(r) => r,
                None => self.call_binary(op, c, x, y),
            },
            _ => self.call_binary(op, c, x, y),
        }
    }

    /// `x` where `x` is NaN, else `y`.
    fn nan_of(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        let nan = self.fcmp(FloatCC::Unordered, x, x);
        self.choose(&nan, x, y)
    }

    /// `m`, the larger (or smaller) of `x` and `y`, where `x` is not NaN; `y` elsewhere.
    fn unless_nan(&mut self, x: &Lanes, y: &Lanes, m: &Lanes) -> Lanes {
        let nan = self.fcmp(FloatCC::Unordered, x, x);
        self.choose(&nan, y, m)
    }

    /// `max(k, x)` (or min) where `k` is not NaN and the sign of a zero does not matter: one instruction.
    pub(super) fn max_known(&mut self, larger: bool, k: &Lanes, x: &Lanes) -> Lanes {
        if larger { self.max_xy(k, x) } else { self.min_xy(k, x) }
    }

    fn binary_int(&mut self, op: Binary, dtype: DType, x: &Lanes, y: &Lanes) -> Lanes {
        let c = RegisterClass::from_dtype(dtype);
        let r = match op {
            Binary::Add => self.iadd(x, y),
            Binary::Sub => self.isub(x, y),
            Binary::Mul if self.is_packed() => self.multiply_packed(x, y),
            Binary::Mul => self.map2(x, y, |e, x, y| e.b.ins().imul(x, y)),
            Binary::And => self.band(x, y),
            Binary::Or => self.bor(x, y),
            Binary::Xor => self.map2(x, y, |e, x, y| e.b.ins().bxor(x, y)),
            Binary::Max | Binary::Fmax | Binary::Min | Binary::Fmin => {
                self.int_extremum(matches!(op, Binary::Max | Binary::Fmax), dtype, x, y)
            }
            Binary::Shl | Binary::Shr => self.int_shift(op, dtype, x, y),
            Binary::Pow | Binary::Gcd => self.per_lane(&[(c, x), (c, y)], c, |e, a| {
                let wide = |e: &mut Self, v| {
                    if c == RegisterClass::I64 {
                        v
                    } else {
                        e.b.ins().sextend(I64, v)
                    }
                };
                let (x, y) = (wide(e, a[0]), wide(e, a[1]));
                let r = e.call_int(op, x, y);
                if c == RegisterClass::I64 {
                    r
                } else {
                    e.b.ins().ireduce(I32, r)
                }
            }),
            _ => self.int_division(op, dtype, x, y),
        };
        self.wrap_to_width(dtype, &r)
    }

    /// The larger or smaller of integers.
    fn int_extremum(&mut self, larger: bool, dtype: DType, x: &Lanes, y: &Lanes) -> Lanes {
        if self.is_packed() {
            return self.extremum_packed(larger, dtype, x, y);
        }
        let cc = match larger {
            true => IntCC::SignedLessThan,
            false => IntCC::SignedGreaterThan,
        };
        let other = self.icmp(cc, x, y);
        self.choose(&other, y, x)
    }

    /// A scalar shift. Counts out of range shift out every bit: a left shift gives 0, a right shift 0 or -1 by the
    /// sign.
    pub(super) fn shift_scalar(&mut self, op: Binary, dtype: DType, x: Value, n: Value) -> Value {
        let c = RegisterClass::from_dtype(dtype);
        let width = 8 * dtype.size() as i64;
        let ok = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, n, width);
        let (shifted, out) = if op == Binary::Shl {
            (self.b.ins().ishl(x, n), self.b.ins().iconst(c.scalar_type(), 0))
        } else {
            (
                self.b.ins().sshr(x, n),
                self.b.ins().sshr_imm_u(x, 8 * c.size() as i64 - 1),
            )
        };
        self.b.ins().select(ok, shifted, out)
    }

    /// A scalar integer division or remainder. Division by zero records a fault and gives 0. The smallest integer
    /// divided by -1 wraps; the machine instruction would trap on it, so division by -1 is a negation.
    pub(super) fn divide_scalar(&mut self, op: Binary, c: RegisterClass, x: Value, y: Value) -> Value {
        let ty = c.scalar_type();
        let zero = self.b.ins().icmp_imm_s(IntCC::Equal, y, 0);
        self.fault_if(zero, Fault::ZeroDivision);
        let minus = self.b.ins().icmp_imm_s(IntCC::Equal, y, -1);
        let special = self.b.ins().bor(zero, minus);
        let one = self.b.ins().iconst(ty, 1);
        let safe = self.b.ins().select(special, one, y);
        let q = self.b.ins().sdiv(x, safe);
        let p = self.b.ins().imul(q, safe);
        let r = self.b.ins().isub(x, p);
        let (q, r) = match op {
            Binary::TruncDiv | Binary::Fmod => (q, r),
            _ => {
                // Round towards minus infinity: adjust where the remainder is nonzero and its sign differs from the
                // divisor's.
                let sign = self.b.ins().bxor(r, safe);
                let differ = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, sign, 0);
                let some = self.b.ins().icmp_imm_s(IntCC::NotEqual, r, 0);
                let adjust = self.b.ins().band(differ, some);
                let moved = self.b.ins().iadd(r, safe);
                let r = self.b.ins().select(adjust, moved, r);
                let less = self.b.ins().iadd_imm_s(q, -1);
                (self.b.ins().select(adjust, less, q), r)
            }
        };
        let none = self.b.ins().iconst(ty, 0);
        if matches!(op, Binary::Mod | Binary::Fmod) {
            return self.b.ins().select(special, none, r);
        }
        let negated = self.b.ins().ineg(x);
        let q = self.b.ins().select(minus, negated, q);
        self.b.ins().select(zero, none, q)
    }

    /// Records `fault` if the I8 `cond` is nonzero.
    pub(super) fn fault_if(&mut self, cond: Value, fault: Fault) {
        let (cold, join) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(cond, cold, &[], join, &[]);
        self.b.seal_block(cold);
        self.b.set_cold_block(cold);
        self.b.switch_to_block(cold);
        let address = self.status_address();
        let flags = super::lanes::MEM.with_aligned();
        let old = self.b.ins().load(I32, flags, address, 0);
        let new = self.b.ins().bor_imm_u(old, Status::fault_bit(fault) as i64);
        self.b.ins().store(flags, new, address, 0);
        self.b.ins().jump(join, &[]);
        self.b.seal_block(join);
        self.b.switch_to_block(join);
    }

    /// The address where faults are recorded.
    pub(super) fn status_address(&mut self) -> Value {
        self.b.ins().stack_addr(I64, self.slot, self.status)
    }

    /// `x op y` on values of `dtype`.
    pub(super) fn compare(&mut self, op: Compare, dtype: DType, x: &Lanes, y: &Lanes) -> Lanes {
        if RegisterClass::from_dtype(dtype).is_float() {
            let cc = match op {
                Compare::Eq => FloatCC::Equal,
                Compare::Ne => FloatCC::NotEqual,
                Compare::Lt => FloatCC::LessThan,
                Compare::Le => FloatCC::LessThanOrEqual,
                Compare::Gt => FloatCC::GreaterThan,
                Compare::Ge => FloatCC::GreaterThanOrEqual,
            };
            return self.fcmp(cc, x, y);
        }
        let (mut x, mut y) = (x.clone(), y.clone());
        let mut op = op;
        if dtype == DType::B8 {
            (x, y) = (self.mask32(&x), self.mask32(&y));
            if !self.scalar {
                // True is -1 in a mask, which reverses the order.
                op = match op {
                    Compare::Lt => Compare::Gt,
                    Compare::Gt => Compare::Lt,
                    Compare::Le => Compare::Ge,
                    Compare::Ge => Compare::Le,
                    op => op,
                };
            }
        }
        let unsigned = dtype == DType::U8 && self.is_packed();
        let cc = match op {
            Compare::Eq => IntCC::Equal,
            Compare::Ne => IntCC::NotEqual,
            Compare::Lt => IntCC::SignedLessThan,
            Compare::Le => IntCC::SignedLessThanOrEqual,
            Compare::Gt => IntCC::SignedGreaterThan,
            Compare::Ge => IntCC::SignedGreaterThanOrEqual,
        };
        let cc = if unsigned { cc.unsigned() } else { cc };
        self.icmp(cc, &x, &y)
    }

    /// `c ? x : y` on values of `dtype`.
    pub(super) fn select(&mut self, dtype: DType, c: &Lanes, x: &Lanes, y: &Lanes) -> Lanes {
        let class = RegisterClass::from_dtype(dtype);
        let m = self.mask_for(class, c);
        if class == RegisterClass::Bool {
            let (x, y) = (self.mask32(x), self.mask32(y));
            return self.choose(&m, &x, &y);
        }
        self.choose(&m, x, y)
    }
}
