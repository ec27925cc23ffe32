//! Lowers instructions of a kernel to Cranelift instructions, in scalars or in lanes.

use super::integers::divides_or_shifts;
use super::lanes::{Lanes, RegisterClass};
use super::natives::NativeInst;
use super::state::{FunctionLowering, LoweredValue};
use crate::kernel::{self, Fault, IndexBound, Inst};
use crate::scalar::{Binary, ScalarOp, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{InstBuilder, Value};

impl FunctionLowering<'_> {
    /// Whether an operand varies over the group.
    fn is_varying(&self, i: &Inst) -> bool {
        let mut any = false;
        i.visit_operands(&mut |v| any |= matches!(self.vals[v.0 as usize], LoweredValue::Lanes(_)));
        any
    }

    pub(super) fn lower_inst(&mut self, v: kernel::Value, i: &Inst) -> LoweredValue {
        match i {
            Inst::Op(ScalarOp::Const(s)) => return LoweredValue::Const(*s),
            Inst::Load(b, i, g) => {
                let x = self.lower_load(*b, i, g);
                if let Some(&distance) = self.prefetches.get(&v) {
                    self.emit_prefetch(*b, i, distance);
                }
                return x;
            }
            Inst::Index(a) => {
                let stride = self.lane.map_or(0, |v| a.stride(v));
                let first = self.lower_affine(a);
                return match stride {
                    0 => LoweredValue::Uniform(first),
                    s => LoweredValue::Lanes(self.with_form(true, |l| l.lane_index(RegisterClass::I64, first, s))),
                };
            }
            // Not from lanes of 64 bits.
            Inst::Op(ScalarOp::Cast(DType::I32, x)) if self.is_lanes(*x) && self.indices.contains_key(x) => {
                return self.lower_index_in_32_bits(*x);
            }
            Inst::Op(ScalarOp::Compare(..)) if self.decided.contains_key(&v) => {
                return LoweredValue::Const(Scalar::Bool(self.decided[&v]));
            }
            Inst::Op(ScalarOp::Select(c, x, y)) if self.known_condition(*c).is_some() => {
                let chosen = if self.known_condition(*c) == Some(true) { x } else { y };
                return self.vals[chosen.0 as usize].clone();
            }
            Inst::Op(op) => {
                if let Some(x) = self.lower_fold(v, op) {
                    return x;
                }
            }
            _ => {}
        }
        let varying = self.is_varying(i);
        let r = self.with_form(varying, |l| l.lower_by_uses(v, i, varying));
        LoweredValue::new(varying, r)
    }

    /// The conversion of an index to 32 bits, without lanes of 64 bits.
    fn lower_index_in_32_bits(&mut self, index: kernel::Value) -> LoweredValue {
        let a = self.indices[&index];
        let stride = self.lane.map_or(0, |v| a.stride(v));
        let first = self.lower_affine(a);
        let first = self.e.b.ins().ireduce(I32, first);
        LoweredValue::Lanes(self.with_form(true, |l| l.lane_index(RegisterClass::I32, first, stride)))
    }

    /// The value of a condition that is known while the kernel is compiled.
    fn known_condition(&self, c: kernel::Value) -> Option<bool> {
        match self.vals[c.0 as usize] {
            LoweredValue::Const(Scalar::Bool(b)) => Some(b),
            _ => None,
        }
    }

    /// Lowers an operation in the current form, in a cheaper way if its uses allow it.
    fn lower_by_uses(&mut self, v: kernel::Value, i: &Inst, varying: bool) -> Lanes {
        match i {
            Inst::Op(ScalarOp::Unary(Unary::Erf, x)) if self.folds.plus_one.contains(&v) => {
                let x = self.operand_lanes(*x, varying);
                self.e.one_plus_erf(&x, self.folds.rounded_soon.contains(&v))
            }
            Inst::Op(ScalarOp::Cast(to, x)) if self.is_narrowed(v, *to) => {
                let x = self.operand_lanes(*x, varying);
                self.narrow(v, *to, &x)
            }
            Inst::Op(ScalarOp::Cast(DType::F32, x))
                if self.is_narrowed(*x, self.k.dtype(*x)) && self.folds.narrowed[x] && self.is_lanes(*x) =>
            {
                let half = self.operand_lanes(*x, varying);
                self.e.extend_natively(self.k.dtype(*x), &half)
            }
            Inst::Op(ScalarOp::Cast(to, _)) if self.e.has_natives() && self.folds.rounded.contains_key(&v) => {
                let x = self.operand_lanes(self.folds.rounded[&v], varying);
                self.round_to_integer(v, *to, &x)
            }
            // A store of wide lanes takes the low bits.
            Inst::Op(ScalarOp::Cast(_, x)) if self.folds.only_stored.contains(&v) && self.e.stores_low_bits() => {
                let x = self.operand_lanes(*x, varying);
                self.e.cast(DType::F32, DType::I32, &x)
            }
            Inst::Op(ScalarOp::Unary(op @ (Unary::Exp | Unary::Sigmoid), x))
                if self.folds.rounded_soon.contains(&v) =>
            {
                let x = self.operand_lanes(*x, varying);
                self.e.exp_or_sigmoid_of_half(*op, &x)
            }
            Inst::Op(ScalarOp::Unary(Unary::Exp, x)) if self.k.shares.contains(&v) => {
                let x = self.operand_lanes(*x, varying);
                self.e.exp_share(&x)
            }
            _ => self.lower_operation(i, varying),
        }
    }

    /// The conversion `v` of `x` to `half`.
    fn narrow(&mut self, v: kernel::Value, half: DType, x: &Lanes) -> Lanes {
        let lanes = self.e.narrow_natively(half, x, self.k.flushing.contains(&v));
        match self.folds.narrowed[&v] {
            // See `lower_store`.
            true => lanes,
            false => self.e.native1(NativeInst::ExtendHalf, RegisterClass::I32, &lanes),
        }
    }

    /// The conversion `v` of `x`, which is rounded, to an integer.
    fn round_to_integer(&mut self, v: kernel::Value, to: DType, x: &Lanes) -> Lanes {
        let x = self.e.native1(NativeInst::RoundF32, RegisterClass::I32, x);
        // A store of wide lanes takes the low bits.
        match self.folds.only_stored.contains(&v) && self.e.stores_low_bits() {
            true => x,
            false => self.e.wrap_to_width(to, &x),
        }
    }

    /// Whether `v` was computed in lanes rather than once.
    pub(super) fn is_lanes(&self, v: kernel::Value) -> bool {
        matches!(self.vals[v.0 as usize], LoweredValue::Lanes(_))
    }

    /// Whether `v`, a conversion to `half`, is a native instruction in the current form.
    fn is_narrowed(&self, v: kernel::Value, half: DType) -> bool {
        self.e.narrows_natively(half) && self.folds.narrowed.contains_key(&v)
    }

    /// Lowers an operation that is part of a pattern: computed with another operation, or from other values.
    fn lower_fold(&mut self, v: kernel::Value, op: &ScalarOp<kernel::Value>) -> Option<LoweredValue> {
        let folds = &self.folds;
        match op {
            // The operand is computed with the one already added.
            ScalarOp::Binary(Binary::Add, x, y) => {
                let sum = [x, y].into_iter().find(|s| folds.plus_one.contains(s))?;
                Some(self.vals[sum.0 as usize].clone())
            }
            ScalarOp::Binary(Binary::Mul, ..) if folds.gone.contains(&v) || folds.added_up.contains_key(&v) => {
                Some(LoweredValue::None)
            }
            ScalarOp::Binary(Binary::Mul, ..) => {
                let (x, d) = *folds.quotients.get(&v)?;
                Some(self.lower_folded(&[x, d], |l, args| l.e.fdiv(&args[0], &args[1])))
            }
            ScalarOp::Unary(Unary::Tanh, x) if folds.plus_one.contains(&v) => {
                let (x, c) = folds.scaled.get(&v).copied().unwrap_or((*x, 1.0));
                let whole = !folds.denominators.contains(&v);
                Some(self.lower_folded(&[x], |l, args| l.e.one_plus_tanh(&args[0], c, whole)))
            }
            _ => None,
        }
    }

    /// Lowers an operation on values other than its instruction's operands.
    fn lower_folded(&mut self, args: &[kernel::Value], f: impl FnOnce(&mut Self, &[Lanes]) -> Lanes) -> LoweredValue {
        let varying = args.iter().any(|v| self.is_lanes(*v));
        let r = self.with_form(varying, |l| {
            let args: Vec<Lanes> = args.iter().map(|&a| l.operand_lanes(a, varying)).collect();
            f(l, &args)
        });
        LoweredValue::new(varying, r)
    }

    /// `first + stride * lane`.
    fn lane_index(&mut self, c: RegisterClass, first: Value, stride: i64) -> Lanes {
        let base = self.e.splat(c, first);
        let lanes = self.e.lane_indices(c, stride);
        self.e.iadd(&base, &lanes)
    }

    fn operand_lanes(&mut self, v: kernel::Value, varying: bool) -> Lanes {
        if varying {
            self.lanes_of(v)
        } else {
            vec![self.scalar_of(v)]
        }
    }

    /// Lowers an operation in the current form.
    fn lower_operation(&mut self, i: &Inst, varying: bool) -> Lanes {
        match i {
            Inst::Bounded(x, n, bound) => {
                let x = self.operand_lanes(*x, varying);
                self.lower_bounded(&x, *n as i64, *bound)
            }
            Inst::Op(ScalarOp::Unary(op, x)) => {
                let d = self.k.dtype(*x);
                let x = self.operand_lanes(*x, varying);
                self.e.unary(*op, d, &x)
            }
            Inst::Op(ScalarOp::Binary(op, x, y)) => self.lower_binary(*op, *x, *y, varying),
            Inst::Op(ScalarOp::Compare(op, x, y)) => {
                let d = self.k.dtype(*x);
                let (x, y) = (self.operand_lanes(*x, varying), self.operand_lanes(*y, varying));
                self.e.compare(*op, d, &x, &y)
            }
            Inst::Op(ScalarOp::Fma(x, y, z)) => {
                let [x, y, z] = [*x, *y, *z].map(|v| self.operand_lanes(v, varying));
                self.e.fma(&x, &y, &z)
            }
            Inst::Op(ScalarOp::Select(c, x, y)) => {
                let d = self.k.dtype(*x);
                let [c, x, y] = [*c, *x, *y].map(|v| self.operand_lanes(v, varying));
                self.e.select(d, &c, &x, &y)
            }
            Inst::Op(ScalarOp::Cast(DType::BF16, x)) if self.folds.exact_in_bf16.contains(x) => {
                let x = self.operand_lanes(*x, varying);
                self.e.exact_f32_to_bf16(&x)
            }
            Inst::Op(ScalarOp::Cast(to, x)) => {
                let d = self.k.dtype(*x);
                let x = self.operand_lanes(*x, varying);
                self.e.cast(d, *to, &x)
            }
            Inst::Op(ScalarOp::Const(_)) | Inst::Load(..) | Inst::Index(_) => unreachable!("handled by `inst`"),
        }
    }

    /// Lowers an operation on two values, in fewer instructions if one of them is a suitable constant.
    fn lower_binary(&mut self, op: Binary, x: kernel::Value, y: kernel::Value, varying: bool) -> Lanes {
        let short = self
            .max_with_constant(op, x, y, varying)
            .or_else(|| self.by_power_of_two(op, x, y, varying))
            .or_else(|| self.by_int_constant(op, x, y, varying));
        short.unwrap_or_else(|| {
            let d = self.k.dtype(x);
            let (x, y) = (self.operand_lanes(x, varying), self.operand_lanes(y, varying));
            self.e.binary(op, d, &x, &y)
        })
    }

    /// Max or min of floats where one operand is a constant that is not NaN: one instruction. A zero result has the
    /// right sign because the constant is the first operand of the comparison, or is not zero.
    fn max_with_constant(&mut self, op: Binary, x: kernel::Value, y: kernel::Value, varying: bool) -> Option<Lanes> {
        let larger = match op {
            Binary::Max => true,
            Binary::Min => false,
            _ => return None,
        };
        let number = |l: &Self, v: kernel::Value| match l.vals[v.0 as usize] {
            LoweredValue::Const(s @ (Scalar::F32(_) | Scalar::F64(_))) if !s.to_f64().is_nan() => Some(s.to_f64()),
            _ => None,
        };
        let (k, x) = match (number(self, x), number(self, y)) {
            (_, Some(_)) => (y, x),
            (Some(k), None) if k != 0.0 => (x, y),
            _ => return None,
        };
        let (k, x) = (self.operand_lanes(k, varying), self.operand_lanes(x, varying));
        Some(self.e.max_known(larger, &k, &x))
    }

    /// An f32 quotient by a power of two, as the product with its inverse. Both are exact up to one rounding and so are
    /// equal.
    fn by_power_of_two(&mut self, op: Binary, x: kernel::Value, y: kernel::Value, varying: bool) -> Option<Lanes> {
        let LoweredValue::Const(Scalar::F32(d)) = self.vals[y.0 as usize] else {
            return None;
        };
        let inverse = 1.0 / d;
        let power = d.is_normal() && inverse.is_normal() && d.to_bits() << 9 == 0;
        if op != Binary::Div || !power {
            return None;
        }
        let x = self.operand_lanes(x, varying);
        let inverse = self.with_form(varying, |l| l.e.f32_like(&x, inverse));
        Some(self.e.fmul(&x, &inverse))
    }

    /// A quotient, remainder or shift of integers by a constant.
    fn by_int_constant(&mut self, op: Binary, x: kernel::Value, y: kernel::Value, varying: bool) -> Option<Lanes> {
        let LoweredValue::Const(k) = self.vals[y.0 as usize] else {
            return None;
        };
        let d = self.k.dtype(x);
        if !d.is_int() || !divides_or_shifts(op) {
            return None;
        }
        let x = self.operand_lanes(x, varying);
        self.e.by_int_constant(op, d, &x, k.to_i64())
    }

    fn lower_bounded(&mut self, x: &Lanes, n: i64, bound: IndexBound) -> Lanes {
        let c = RegisterClass::I64;
        let e = &mut self.e;
        let zero = e.int_like(c, x, 0);
        let mut x = x.clone();
        if bound == IndexBound::Wrap {
            let neg = e.icmp(IntCC::SignedLessThan, &x, &zero);
            let size = e.int_like(c, &x, n);
            let moved = e.iadd(&x, &size);
            x = e.choose(&neg, &moved, &x);
        }
        let last = e.int_like(c, &x, n - 1);
        if bound != IndexBound::Clamp && n > 0 && e.scalar {
            // As unsigned numbers, negative ones are above all indices. One comparison also leaves no condition in a register: writing
            // a byte of it would wait for the element that was loaded into the same register before.
            let bad = e.icmp(IntCC::UnsignedGreaterThan, &x, &last);
            e.fault_if(bad[0], Fault::Index);
            return e.choose(&bad, &zero, &x);
        }
        let below = e.icmp(IntCC::SignedLessThan, &x, &zero);
        let above = e.icmp(IntCC::SignedGreaterThan, &x, &last);
        if bound == IndexBound::Clamp {
            let last = e.int_like(c, &x, (n - 1).max(0));
            x = e.choose(&above, &last, &x);
            return e.choose(&below, &zero, &x);
        }
        let bad = e.bor(&below, &above);
        let any = e.any_true(&bad);
        e.fault_if(any, Fault::Index);
        e.choose(&bad, &zero, &x)
    }
}
