//! Emits operations on groups of lanes: one CLIF instruction per vector of a group, or one scalar instruction.
//!
//! A group is the values of the consecutive loop iterations that run at a time, spread over one or more vectors. Every
//! operation is written once; [`Emitter::scalar`] selects the scalar or the vector type. Constants are loads from a
//! table, one load for each use. CLIF folds such a load into its user, so constants occupy no registers.

use super::table::ConstantTable;
use crate::types::DType;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32, F32X4, F64, F64X2, I8, I8X16, I16X8, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, StackSlot, Type, Value};
use cranelift_frontend::FunctionBuilder;

/// The values of a group: one scalar, or its vectors in lane order.
pub(super) type Lanes = Vec<Value>;

/// How a register holds a value. Integers narrower than 32 bits are I32, sign- or zero-extended. f16 and bf16 are their
/// bits in an I32. b8 is an I8 of 0 or 1 as a scalar and a mask of all ones or all zeros as a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RegisterClass {
    F32,
    F64,
    I32,
    I64,
    Bool,
}

impl RegisterClass {
    /// The register class of a dtype.
    pub(super) fn from_dtype(d: DType) -> RegisterClass {
        match d {
            DType::F64 => RegisterClass::F64,
            DType::F32 => RegisterClass::F32,
            DType::I64 => RegisterClass::I64,
            DType::B8 => RegisterClass::Bool,
            _ => RegisterClass::I32,
        }
    }

    /// The CLIF type of a scalar.
    pub(super) fn scalar_type(self) -> Type {
        match self {
            RegisterClass::F32 => F32,
            RegisterClass::F64 => F64,
            RegisterClass::I32 => I32,
            RegisterClass::I64 => I64,
            RegisterClass::Bool => I8,
        }
    }

    /// The CLIF type of a vector.
    pub(super) fn vector_type(self) -> Type {
        match self {
            RegisterClass::F32 => F32X4,
            RegisterClass::F64 => F64X2,
            RegisterClass::I32 | RegisterClass::Bool => I32X4,
            RegisterClass::I64 => I64X2,
        }
    }

    /// The integer class of the same width.
    pub(super) fn int_class(self) -> RegisterClass {
        match self {
            RegisterClass::F32 => RegisterClass::I32,
            RegisterClass::F64 => RegisterClass::I64,
            c => c,
        }
    }

    /// The size of a lane in bytes.
    pub(super) fn size(self) -> usize {
        if matches!(self, RegisterClass::F64 | RegisterClass::I64) {
            8
        } else {
            4
        }
    }

    /// Whether the class is F32 or F64.
    pub(super) fn is_float(self) -> bool {
        matches!(self, RegisterClass::F32 | RegisterClass::F64)
    }
}

/// The flags of accesses that are proven in bounds. Elements need not be aligned to vectors.
pub(super) const MEM: MemFlagsData = MemFlagsData::new().with_notrap();

/// Emits instructions for groups of lanes.
pub(super) struct Emitter<'a> {
    pub b: FunctionBuilder<'a>,
    pub table: &'a mut ConstantTable,
    pub table_ptr: Value,
    /// The function's one stack slot.
    pub slot: StackSlot,
    /// The offset in the slot where faults are recorded, as an I32 of [`Status`](crate::kernel::Status) bits.
    pub status: i32,
    /// The stack slot through which groups go to vector functions, once there is one.
    pub groups: Option<StackSlot>,
    /// Whether groups are currently single scalars.
    pub scalar: bool,
    /// The number of iterations in a group when not scalar.
    pub elements: usize,
    /// The number of iterations that a group with masks has ([`tails`](super::tails)).
    pub tail: Option<usize>,
    /// The distance between consecutive vectors of a group, in bytes.
    pub width: usize,
    /// The size in bytes of the vector lanes of I32 and Bool: 4, or less in packed kernels ([`packed`](super::packed)).
    pub packed: usize,
    /// Whether the target has instructions that convert f32 to bf16, and those on masks of words.
    pub narrows: bool,
    /// Whether the target has the conversions of F16C ([`f16c`](super::f16c)).
    pub f16c: bool,
    /// Whether a group is one vector: see [`PackedLanes`](super::packed::PackedLanes).
    pub single: bool,
    /// Whether the target has fused multiply-add.
    pub fma: bool,
    /// Whether x86-specific instructions may be used.
    pub x86: bool,
}

impl Emitter<'_> {
    /// The CLIF type of a class in the current form.
    pub(super) fn lane_type(&self, c: RegisterClass) -> Type {
        match (c, self.packed) {
            _ if self.scalar => c.scalar_type(),
            (RegisterClass::I32 | RegisterClass::Bool, 1) => I8X16,
            (RegisterClass::I32 | RegisterClass::Bool, 2) => I16X8,
            _ => c.vector_type(),
        }
    }

    /// The size in bytes of a vector lane of this class.
    pub(super) fn lane_size(&self, c: RegisterClass) -> usize {
        match c {
            RegisterClass::I32 | RegisterClass::Bool => self.packed,
            c => c.size(),
        }
    }

    /// The number of CLIF values in a group of this class.
    pub(super) fn value_count(&self, c: RegisterClass) -> usize {
        if self.scalar {
            1
        } else {
            self.elements * self.lane_size(c) / self.width
        }
    }

    /// Runs `f` with scalar groups.
    pub(super) fn as_scalar<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.scalar, true);
        let r = f(self);
        self.scalar = before;
        r
    }

    // Constants.

    /// A constant of class `c` given by its bits, `n` times. Each is a separate load.
    pub(super) fn constant_bits(&mut self, c: RegisterClass, bits: u64, n: usize) -> Lanes {
        if self.scalar && !c.is_float() {
            let bits = if c == RegisterClass::I32 {
                bits as u32 as i64
            } else {
                bits as i64
            };
            return vec![self.b.ins().iconst(c.scalar_type(), bits); n];
        }
        let size = if self.scalar { c.size() } else { self.lane_size(c) };
        let offset = self.table.constant_offset(bits, size);
        let ty = self.lane_type(c);
        let flags = MEM.with_aligned();
        (0..n)
            .map(|_| self.b.ins().load(ty, flags, self.table_ptr, offset))
            .collect()
    }

    /// An f32 constant for a group shaped like `x`.
    pub(super) fn f32_like(&mut self, x: &Lanes, v: f32) -> Lanes {
        self.constant_bits(RegisterClass::F32, v.to_bits() as u64, x.len())
    }

    /// A float constant of class `c`, F32 or F64, for a group shaped like `x`.
    pub(super) fn float_like(&mut self, c: RegisterClass, x: &Lanes, v: f64) -> Lanes {
        match c {
            RegisterClass::F64 => self.constant_bits(c, v.to_bits(), x.len()),
            _ => self.f32_like(x, v as f32),
        }
    }

    /// An integer constant of class `c`, I32 or I64, for a group shaped like `x`.
    pub(super) fn int_like(&mut self, c: RegisterClass, x: &Lanes, v: i64) -> Lanes {
        let bits = if c == RegisterClass::I32 {
            v as u32 as u64
        } else {
            v as u64
        };
        self.constant_bits(c, bits, x.len())
    }

    /// The lane numbers of a group times `stride`, in the lanes of `c`: I64 or I32.
    pub(super) fn lane_indices(&mut self, c: RegisterClass, stride: i64) -> Lanes {
        let n = self.value_count(c);
        let per = self.width / c.size();
        (0..n)
            .map(|k| {
                let first = stride.wrapping_mul((k * per) as i64);
                let offset = self.table.iota(first, stride, c.size());
                let flags = MEM.with_aligned();
                self.b.ins().load(c.vector_type(), flags, self.table_ptr, offset)
            })
            .collect()
    }

    /// Applies `f` to each value.
    pub(super) fn map1(&mut self, x: &Lanes, f: impl Fn(&mut Self, Value) -> Value) -> Lanes {
        x.iter().map(|&x| f(self, x)).collect()
    }

    /// Applies `f` to each pair of values.
    pub(super) fn map2(&mut self, x: &Lanes, y: &Lanes, f: impl Fn(&mut Self, Value, Value) -> Value) -> Lanes {
        debug_assert_eq!(x.len(), y.len());
        x.iter().zip(y).map(|(&x, &y)| f(self, x, y)).collect()
    }

    /// Applies `f` to one pair of vectors after the other, for code that needs most registers.
    pub(super) fn by_vector(&mut self, x: &Lanes, y: &Lanes, f: impl Fn(&mut Self, &Lanes, &Lanes) -> Lanes) -> Lanes {
        let pairs = x.iter().zip(y);
        pairs.flat_map(|(&x, &y)| f(self, &vec![x], &vec![y])).collect()
    }

    pub(super) fn fadd(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| e.b.ins().fadd(x, y))
    }

    pub(super) fn fsub(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| e.b.ins().fsub(x, y))
    }

    pub(super) fn fmul(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| e.b.ins().fmul(x, y))
    }

    pub(super) fn fdiv(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| e.b.ins().fdiv(x, y))
    }

    /// `x * y + z`, rounded once if the target has fused multiply-add.
    pub(super) fn fma(&mut self, x: &Lanes, y: &Lanes, z: &Lanes) -> Lanes {
        if !self.fma {
            let p = self.fmul(x, y);
            return self.fadd(&p, z);
        }
        (0..x.len()).map(|i| self.b.ins().fma(x[i], y[i], z[i])).collect()
    }

    pub(super) fn iadd(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| e.b.ins().iadd(x, y))
    }

    pub(super) fn isub(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| e.b.ins().isub(x, y))
    }

    pub(super) fn band(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| e.b.ins().band(x, y))
    }

    pub(super) fn bor(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| e.b.ins().bor(x, y))
    }

    pub(super) fn shl(&mut self, x: &Lanes, n: i64) -> Lanes {
        self.map1(x, |e, x| {
            let n = e.b.ins().iconst(I32, n);
            e.b.ins().ishl(x, n)
        })
    }

    pub(super) fn sar(&mut self, x: &Lanes, n: i64) -> Lanes {
        self.map1(x, |e, x| {
            let n = e.b.ins().iconst(I32, n);
            e.b.ins().sshr(x, n)
        })
    }

    pub(super) fn shr(&mut self, x: &Lanes, n: i64) -> Lanes {
        self.map1(x, |e, x| {
            let n = e.b.ins().iconst(I32, n);
            e.b.ins().ushr(x, n)
        })
    }

    /// Reinterprets the bits as another type of the same width.
    pub(super) fn bitcast(&mut self, ty: Type, x: Value) -> Value {
        let from = self.b.func.dfg.value_type(x);
        if from == ty {
            return x;
        }
        let mut flags = MemFlagsData::new();
        if ty.is_vector() || from.is_vector() {
            flags = flags.with_endianness(Endianness::Little);
        }
        self.b.ins().bitcast(ty, flags, x)
    }

    /// Reinterprets the bits of floats as integers, or of integers as floats.
    pub(super) fn bitcast_lanes(&mut self, to: RegisterClass, x: &Lanes) -> Lanes {
        let ty = self.lane_type(to);
        self.map1(x, |e, x| e.bitcast(ty, x))
    }

    /// `x` with its sign bit inverted.
    pub(super) fn fneg(&mut self, c: RegisterClass, x: &Lanes) -> Lanes {
        if self.scalar {
            return self.map1(x, |e, x| e.b.ins().fneg(x));
        }
        let sign = self.sign_mask(c, x);
        self.map2(x, &sign, |e, x, y| e.b.ins().bxor(x, y))
    }

    /// `x` without its sign bit.
    pub(super) fn fabs(&mut self, c: RegisterClass, x: &Lanes) -> Lanes {
        if self.scalar {
            return self.map1(x, |e, x| e.b.ins().fabs(x));
        }
        let bits = if c == RegisterClass::F64 {
            i64::MAX as u64
        } else {
            0x7fff_ffff
        };
        let mask = self.constant_bits(c, bits, x.len());
        self.band(x, &mask)
    }

    fn sign_mask(&mut self, c: RegisterClass, x: &Lanes) -> Lanes {
        let bits = if c == RegisterClass::F64 { 1 << 63 } else { 0x8000_0000 };
        self.constant_bits(c, bits, x.len())
    }

    /// `magnitude`, which must not be negative, with the sign of `sign`.
    pub(super) fn or_sign(&mut self, c: RegisterClass, magnitude: &Lanes, sign: &Lanes) -> Lanes {
        if self.scalar {
            return self.map2(magnitude, sign, |e, m, s| e.b.ins().fcopysign(m, s));
        }
        let mask = self.sign_mask(c, sign);
        let s = self.band(sign, &mask);
        self.bor(magnitude, &s)
    }

    /// `magnitude` with the sign of `sign`.
    pub(super) fn copysign(&mut self, c: RegisterClass, magnitude: &Lanes, sign: &Lanes) -> Lanes {
        if self.scalar {
            return self.or_sign(c, magnitude, sign);
        }
        let m = self.fabs(c, magnitude);
        self.or_sign(c, &m, sign)
    }

    // Comparisons and selects. A condition must come from an `fcmp` or `icmp` of lanes as wide as those selected.

    pub(super) fn fcmp(&mut self, cc: FloatCC, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| e.b.ins().fcmp(cc, x, y))
    }

    pub(super) fn icmp(&mut self, cc: IntCC, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| e.b.ins().icmp(cc, x, y))
    }

    /// `c ? x : y`.
    pub(super) fn choose(&mut self, c: &Lanes, x: &Lanes, y: &Lanes) -> Lanes {
        (0..c.len()).map(|i| self.choose_value(c[i], x[i], y[i])).collect()
    }

    fn choose_value(&mut self, c: Value, x: Value, y: Value) -> Value {
        if self.scalar {
            return self.b.ins().select(c, x, y);
        }
        let ty = self.b.func.dfg.value_type(x);
        let mask = self.bitcast(ty, c);
        self.b.ins().bitselect(mask, x, y)
    }

    /// `x < y ? x : y`: x86's `minps`, which gives `y` if either is NaN.
    pub(super) fn min_xy(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| {
            let c = e.b.ins().fcmp(FloatCC::LessThan, x, y);
            e.choose_value(c, x, y)
        })
    }

    /// `x > y ? x : y`: x86's `maxps`, which gives `y` if either is NaN.
    // Not Cranelift's `fmax`, which orders zeros and propagates NaN by a sequence of about nine instructions.
    pub(super) fn max_xy(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        self.map2(x, y, |e, x, y| {
            let c = e.b.ins().fcmp(FloatCC::LessThan, y, x);
            e.choose_value(c, x, y)
        })
    }
}
