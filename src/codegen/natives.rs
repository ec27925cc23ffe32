//! Vector instructions that CLIF cannot express, in code for 64-byte vectors.
//!
//! Each is emitted as an instruction on vectors of 8-bit or 16-bit integers, of which kernels of this width have no others;
//! [`widen`](super::widen) replaces it. Code that is not widened must not contain them.

use super::lanes::{Emitter, Lanes, RegisterClass};
use crate::types::DType;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8X16, I16X8};
use cranelift_codegen::ir::{InstBuilder, Value};

/// An instruction of AVX-512.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NativeInst {
    /// `x * 2^floor(y)` of F32 lanes.
    ScaleF32,
    /// `x * 2^floor(y)` of F64 lanes.
    ScaleF64,
    /// I32 lanes shifted left by counts. Counts out of range, taken as unsigned, give 0.
    Shl32,
    /// I32 lanes shifted right by counts. Counts out of range, taken as unsigned, give the sign.
    Sar32,
    /// I64 lanes shifted left.
    Shl64,
    /// I64 lanes shifted right.
    Sar64,
    /// I64 to F64, rounded to nearest.
    I64ToF64,
    /// F64 to I64, truncated. What does not fit gives the smallest I64.
    TruncateF64,
    /// F32 to I32, rounded to nearest. What does not fit gives the smallest I32.
    RoundF32,
    /// F64 to I64, rounded to nearest. What does not fit gives the smallest I64.
    RoundF64,
    /// I64 to F32, rounded once, in the lower half of the result.
    I64ToF32,
    /// F32 to bf16, in the lower half of the result. Denormal numbers become zero. Needs [`Emitter::narrows`].
    F32ToBf16,
    /// The same with denormal numbers rounded like others. The second operand is the smallest normal number in all lanes.
    ExactF32ToBf16,
    /// The 16-bit elements in the lower half as I32, with zeros before.
    ExtendHalf,
    /// The low 16 bits of I32 lanes, in the lower half of the result.
    PackHalf,
    /// The f16 elements in the lower half as F32.
    F16ToF32,
    /// F32 to f16, rounded to nearest, in the lower half of the result.
    F32ToF16,
}

impl Emitter<'_> {
    /// Whether [`native`](Self::native) may be used in the current form.
    pub(super) fn has_natives(&self) -> bool {
        !self.scalar && self.width == 64
    }

    /// Whether conversions from f32 to `half`, of the kind that [`Folds::narrowed`](super::folds::Folds) lists, are native
    /// instructions.
    pub(super) fn narrows_natively(&self, half: DType) -> bool {
        self.has_natives() && (self.narrows || half == DType::F16)
    }

    /// F32 lanes as elements of `half` in the lower half of a vector. With `flushes`, denormal elements of bf16 become zero.
    pub(super) fn narrow_natively(&mut self, half: DType, x: &Lanes, flushes: bool) -> Lanes {
        match half {
            DType::F16 => self.native1(NativeInst::F32ToF16, RegisterClass::I32, x),
            _ if flushes => self.native1(NativeInst::F32ToBf16, RegisterClass::I32, x),
            _ => {
                let least = self.f32_like(x, f32::MIN_POSITIVE);
                self.native(NativeInst::ExactF32ToBf16, RegisterClass::I32, x, &least)
            }
        }
    }

    /// The elements of `half` in the lower half of a vector as F32 lanes.
    pub(super) fn extend_natively(&mut self, half: DType, x: &Lanes) -> Lanes {
        if half == DType::F16 {
            return self.native1(NativeInst::F16ToF32, RegisterClass::F32, x);
        }
        let bits = self.native1(NativeInst::ExtendHalf, RegisterClass::I32, x);
        self.cast(DType::BF16, DType::F32, &bits)
    }

    /// `op` on `x` and, if it takes two operands, `y`. The result has class `to`.
    pub(super) fn native(&mut self, op: NativeInst, to: RegisterClass, x: &Lanes, y: &Lanes) -> Lanes {
        debug_assert!(self.has_natives());
        let ty = to.vector_type();
        self.map2(x, y, |e, x, y| {
            let r = e.placeholder(op, x, y);
            e.bitcast(ty, r)
        })
    }

    /// `op` on `x` alone.
    pub(super) fn native1(&mut self, op: NativeInst, to: RegisterClass, x: &Lanes) -> Lanes {
        self.native(op, to, x, x)
    }

    /// The instruction that stands for `op`. It must not be a saturating addition of words, which `widen` takes for an exchange of lanes.
    /// Those of two operands are not commutative, so that Cranelift keeps the order.
    fn placeholder(&mut self, op: NativeInst, x: Value, y: Value) -> Value {
        use NativeInst::*;
        let ty = match op {
            ScaleF32 | ScaleF64 | Shl32 | F32ToBf16 | ExtendHalf | PackHalf | F16ToF32 | F32ToF16 | RoundF32 => I16X8,
            _ => I8X16,
        };
        let (x, y) = (self.bitcast(ty, x), self.bitcast(ty, y));
        let b = self.b.ins();
        match op {
            ScaleF32 => b.usub_sat(x, y),
            ScaleF64 => b.ssub_sat(x, y),
            Shl32 => b.isub(x, y),
            Sar32 => b.ssub_sat(x, y),
            Shl64 => b.usub_sat(x, y),
            Sar64 => b.isub(x, y),
            I64ToF64 => b.sadd_sat(x, y),
            RoundF32 => b.iadd_pairwise(x, y),
            TruncateF64 => b.uadd_sat(x, y),
            RoundF64 => b.iadd(x, y),
            I64ToF32 | F32ToBf16 => b.avg_round(x, y),
            ExtendHalf => b.iadd(x, y),
            PackHalf => b.imul(x, y),
            F16ToF32 => b.snarrow(x, y),
            F32ToF16 => b.unarrow(x, y),
            ExactF32ToBf16 => b.icmp(IntCC::SignedGreaterThan, x, y),
        }
    }
}
