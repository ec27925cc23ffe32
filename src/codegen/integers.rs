//! Integer division, remainders and shifts over groups of lanes.
//!
//! Integers of up to 32 bits divide as floats with more bits than the quotient: F32 for at most 16 bits, F64 for 32. A
//! quotient that is not an integer is farther from the next one than its rounding error. A constant divisor becomes a
//! multiplication, a power of two a shift or a mask. 64-bit integers divide in two steps, each of which takes the
//! nearest integer to a quotient in F64; products and differences wrap, so intermediate overflow does no harm.

use super::lanes::{Emitter, Lanes, RegisterClass};
use super::natives::NativeInst;
use crate::kernel::Fault;
use crate::scalar::Binary;
use crate::types::DType;
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;

/// 1.5 * 2^52. Adding it to an integer leaves the integer in the low bits.
const MAGIC_F64: f64 = 6755399441055744.0;

/// Whether an operation on integers is a quotient, a remainder or a shift.
pub(super) fn divides_or_shifts(op: Binary) -> bool {
    use Binary::{FloorDiv, Fmod, Mod, Shl, Shr, TruncDiv};
    matches!(op, FloorDiv | TruncDiv | Mod | Fmod | Shl | Shr)
}

/// Whether the operation rounds towards minus infinity.
fn rounds_down(op: Binary) -> bool {
    matches!(op, Binary::FloorDiv | Binary::Mod)
}

/// Whether the operation gives the remainder.
fn is_remainder(op: Binary) -> bool {
    matches!(op, Binary::Mod | Binary::Fmod)
}

impl Emitter<'_> {
    /// A quotient or remainder of integers. Division by zero records a fault and gives 0. The smallest integer divided
    /// by -1 wraps.
    pub(super) fn int_division(&mut self, op: Binary, dtype: DType, x: &Lanes, y: &Lanes) -> Lanes {
        let c = RegisterClass::from_dtype(dtype);
        if self.scalar || (c == RegisterClass::I64 && !self.has_natives()) {
            return self.per_lane(&[(c, x), (c, y)], c, |e, a| e.divide_scalar(op, c, a[0], a[1]));
        }
        let zero = self.int_like(c, y, 0);
        let bad = self.icmp(IntCC::Equal, y, &zero);
        let any = self.any_true(&bad);
        self.fault_if(any, Fault::ZeroDivision);
        let one = self.int_like(c, y, 1);
        let y = self.choose(&bad, &one, y);
        let r = match c {
            RegisterClass::I64 => self.divide64(op, x, &y),
            _ => self.divide32(op, dtype, x, &y),
        };
        let zero = self.int_like(c, &y, 0);
        self.choose(&bad, &zero, &r)
    }

    /// The class in which integers of a dtype of up to 32 bits divide.
    fn quotient_class(dtype: DType) -> RegisterClass {
        match dtype {
            DType::I32 => RegisterClass::F64,
            _ => RegisterClass::F32,
        }
    }

    fn divide32(&mut self, op: Binary, dtype: DType, x: &Lanes, y: &Lanes) -> Lanes {
        let f = Self::quotient_class(dtype);
        let (a, b) = (self.lanes_to_float(f, x), self.lanes_to_float(f, y));
        let q = self.fdiv(&a, &b);
        let q = self.quotient_bits(op, f, &q);
        self.quotient_or_rest(op, x, y, &q)
    }

    fn lanes_to_float(&mut self, f: RegisterClass, x: &Lanes) -> Lanes {
        let to = if f == RegisterClass::F64 {
            DType::F64
        } else {
            DType::F32
        };
        self.cast(DType::I32, to, x)
    }

    /// A quotient, rounded as `op` does, as I32 lanes.
    fn quotient_bits(&mut self, op: Binary, f: RegisterClass, q: &Lanes) -> Lanes {
        let q = match rounds_down(op) {
            true => self.map1(q, |e, q| e.b.ins().floor(q)),
            false => self.map1(q, |e, q| e.b.ins().trunc(q)),
        };
        self.whole_to_i32(f, &q)
    }

    /// Whole numbers as I32 lanes. F64 numbers wrap to 32 bits; F32 numbers must have at most 22.
    pub(super) fn whole_to_i32(&mut self, f: RegisterClass, x: &Lanes) -> Lanes {
        if f == RegisterClass::F32 {
            let t = self.add_k(x, super::poly::MAGIC);
            let t = self.bitcast_lanes(RegisterClass::I32, &t);
            let zero = self.int_like(RegisterClass::I32, &t, super::poly::MAGIC.to_bits() as i64);
            return self.isub(&t, &zero);
        }
        let magic = self.float_like(f, x, MAGIC_F64);
        let t = self.fadd(x, &magic);
        let t = self.bitcast_lanes(RegisterClass::I64, &t);
        if self.scalar {
            return self.map1(&t, |e, t| e.b.ins().ireduce(cranelift_codegen::ir::types::I32, t));
        }
        self.narrow64(&t)
    }

    /// `q`, or the remainder `x - q y`.
    fn quotient_or_rest(&mut self, op: Binary, x: &Lanes, y: &Lanes, q: &Lanes) -> Lanes {
        if !is_remainder(op) {
            return q.clone();
        }
        let p = self.map2(q, y, |e, q, y| e.b.ins().imul(q, y));
        self.isub(x, &p)
    }

    fn divide64(&mut self, op: Binary, x: &Lanes, y: &Lanes) -> Lanes {
        let c = RegisterClass::I64;
        let divisor = self.native1(NativeInst::I64ToF64, RegisterClass::F64, y);
        let (mut q, mut r) = (self.int_like(c, x, 0), x.clone());
        for _ in 0..2 {
            let f = self.native1(NativeInst::I64ToF64, RegisterClass::F64, &r);
            let f = self.fdiv(&f, &divisor);
            let step = self.native1(NativeInst::RoundF64, c, &f);
            let p = self.map2(&step, y, |e, a, b| e.b.ins().imul(a, b));
            q = self.iadd(&q, &step);
            r = self.isub(&r, &p);
        }
        // The remainder is at most half the divisor. First round down.
        let up = self.iadd(&r, y);
        let moved = self.signs_differ(&r, y);
        q = self.iadd(&q, &moved);
        r = self.choose(&moved, &up, &r);
        if !rounds_down(op) {
            let down = self.isub(&r, y);
            let negative = self.signs_differ(x, y);
            let zero = self.int_like(c, &r, 0);
            let some = self.icmp(IntCC::NotEqual, &r, &zero);
            let some = self.bitcast_lanes(c, &some);
            let moved = self.band(&negative, &some);
            q = self.isub(&q, &moved);
            r = self.choose(&moved, &down, &r);
        }
        if is_remainder(op) { r } else { q }
    }

    /// -1 where `x` is not zero and its sign differs from that of `y`, 0 elsewhere, for I64 lanes.
    fn signs_differ(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        let c = RegisterClass::I64;
        let sign = self.map2(x, y, |e, x, y| e.b.ins().bxor(x, y));
        let zero = self.int_like(c, x, 0);
        let differ = self.icmp(IntCC::SignedLessThan, &sign, &zero);
        let zero = self.int_like(c, x, 0);
        let none = self.icmp(IntCC::Equal, x, &zero);
        let (differ, none) = (self.bitcast_lanes(c, &differ), self.bitcast_lanes(c, &none));
        self.map2(&differ, &none, |e, d, n| e.b.ins().band_not(d, n))
    }

    /// A quotient, remainder or shift by a constant, if it has a form of its own.
    pub(super) fn by_int_constant(&mut self, op: Binary, dtype: DType, x: &Lanes, k: i64) -> Option<Lanes> {
        let r = match op {
            Binary::Shl | Binary::Shr => self.shift_by_constant(op, dtype, x, k),
            _ if k > 0 && k & (k - 1) == 0 => self.divide_by_power(op, dtype, x, k),
            _ if k == 0 || self.scalar || dtype == DType::I64 => return None,
            _ => self.divide_by_constant(op, dtype, x, k),
        };
        Some(self.wrap_to_width(dtype, &r))
    }

    fn shift_by_constant(&mut self, op: Binary, dtype: DType, x: &Lanes, n: i64) -> Lanes {
        let c = RegisterClass::from_dtype(dtype);
        match ((0..8 * dtype.size() as i64).contains(&n), op) {
            (true, Binary::Shl) => self.shl(x, n),
            (true, _) => self.sar(x, n),
            (false, Binary::Shl) => self.int_like(c, x, 0),
            (false, _) => self.sar(x, 8 * c.size() as i64 - 1),
        }
    }

    fn divide_by_power(&mut self, op: Binary, dtype: DType, x: &Lanes, d: i64) -> Lanes {
        let c = RegisterClass::from_dtype(dtype);
        let n = d.trailing_zeros() as i64;
        let mask = self.int_like(c, x, d - 1);
        if op == Binary::Mod {
            return self.band(x, &mask);
        }
        if op == Binary::FloorDiv {
            return self.sar(x, n);
        }
        let sign = self.sar(x, 8 * c.size() as i64 - 1);
        let bias = self.band(&sign, &mask);
        let biased = self.iadd(x, &bias);
        let q = self.sar(&biased, n);
        if op == Binary::TruncDiv {
            return q;
        }
        let p = self.shl(&q, n);
        self.isub(x, &p)
    }

    /// By a multiplication with the inverse. Half a unit is added to the magnitude first, so that no quotient is near
    /// an integer.
    fn divide_by_constant(&mut self, op: Binary, dtype: DType, x: &Lanes, d: i64) -> Lanes {
        let f = Self::quotient_class(dtype);
        let a = self.lanes_to_float(f, x);
        let half = self.float_like(f, &a, 0.5);
        let q = if rounds_down(op) {
            // floor(x / d) is floor(-x / -d).
            let inverse = self.float_like(f, &a, 1.0 / d.abs() as f64);
            let a = if d < 0 {
                self.fsub(&half, &a)
            } else {
                self.fadd(&a, &half)
            };
            self.fmul(&a, &inverse)
        } else {
            let half = self.or_sign(f, &half, &a);
            let a = self.fadd(&a, &half);
            let inverse = self.float_like(f, &a, 1.0 / d as f64);
            self.fmul(&a, &inverse)
        };
        let q = self.quotient_bits(op, f, &q);
        let y = self.int_like(RegisterClass::I32, x, d);
        self.quotient_or_rest(op, x, &y, &q)
    }

    /// A shift by counts that vary.
    pub(super) fn int_shift(&mut self, op: Binary, dtype: DType, x: &Lanes, n: &Lanes) -> Lanes {
        let c = RegisterClass::from_dtype(dtype);
        if !self.has_natives() {
            return self.per_lane(&[(c, x), (c, n)], c, |e, a| e.shift_scalar(op, dtype, a[0], a[1]));
        }
        let native = match (op, c) {
            (Binary::Shl, RegisterClass::I64) => NativeInst::Shl64,
            (Binary::Shl, _) => NativeInst::Shl32,
            (_, RegisterClass::I64) => NativeInst::Sar64,
            _ => NativeInst::Sar32,
        };
        self.native(native, c, x, n)
    }
}
