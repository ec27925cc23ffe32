//! Chooses the vector width of a kernel: what all of its vector loops can be widened to ([`widen`](super::widen)), and
//! what suits their lengths.

use super::inline::{is_inline_binary, is_inline_f64, is_inline_unary};
use super::integers::divides_or_shifts;
use super::vector_loops::{VectorLoops, VisitLanes, int_unary};
use crate::kernel::{Buf, Index, Inst, Kernel, Loop, Value, Var};
use crate::scalar::{Binary, ScalarOp, Unary};
use crate::target::Target;
use crate::types::DType;
use std::collections::HashSet;

/// The widest vectors that kernels can use on a target, in bytes. [`widen`](super::widen) supports x86-64 on Unix
/// systems only.
pub(super) fn widest_vectors(target: Target) -> usize {
    match cfg!(all(target_arch = "x86_64", unix)) {
        true => 4 * target.isa().lanes(),
        false => 16,
    }
}

/// The vector width for `k`, at most `most`, and the reason if it is less.
pub(super) fn choose_width(k: &Kernel, most: usize) -> (usize, Option<String>) {
    let mut s = WidthSurvey {
        loops: VectorLoops::new(k),
        blocked: None,
        constants: HashSet::new(),
        needs_64: None,
    };
    s.walk(&k.body);
    let none = || "the kernel has no vector loop".to_string();
    if most <= 16 {
        return (16, Some("the target has no wider vectors".into()));
    }
    if let Some(reason) = s.blocked.or_else(|| s.loops.extents().is_empty().then(none)) {
        return (16, Some(reason));
    }
    let widths = [64, 32, 16]
        .into_iter()
        .filter(|&w| w <= most && !(s.needs_64.is_some() && w == 32));
    let steps = |w: usize| match w {
        64 => s.loops.masked_steps(),
        w => (s.loops.steps(w / 4), false),
    };
    let width = widths.min_by_key(|&w| steps(w)).unwrap_or(16);
    let extents = || {
        let texts = s.loops.extents().iter().map(usize::to_string);
        texts.collect::<Vec<_>>().join(", ")
    };
    let reason = match width {
        w if w == most => None,
        16 if s.needs_64.is_some() && most == 32 => s.needs_64.map(|missing| format!("AVX2 cannot {missing}")),
        w => Some(format!(
            "{w}-byte vectors need the fewest steps for loops of {} iterations",
            extents()
        )),
    };
    (width, reason)
}

struct WidthSurvey<'a> {
    loops: VectorLoops<'a>,
    /// The first reason found why the kernel cannot be widened.
    blocked: Option<String>,
    /// The constants.
    constants: HashSet<Value>,
    /// An operation for which AVX2 has no instruction.
    needs_64: Option<&'static str>,
}

/// Whether the dtype's lanes are as wide as its elements in memory.
fn is_full_width(d: DType) -> bool {
    matches!(d, DType::F32 | DType::I32 | DType::F64 | DType::I64)
}

/// Whether the dtype's elements are narrower than their 32-bit lanes.
fn is_narrow(d: DType) -> bool {
    matches!(
        d,
        DType::F16 | DType::BF16 | DType::I16 | DType::I8 | DType::U8 | DType::B8
    )
}

impl<'a> VisitLanes<'a> for WidthSurvey<'a> {
    fn loops(&mut self) -> &mut VectorLoops<'a> {
        &mut self.loops
    }

    fn visit_constant(&mut self, v: Value) {
        self.constants.insert(v);
    }

    fn visit_loop(&mut self, l: &Loop) {
        let k = self.loops.k;
        for r in &l.reduces {
            let known = matches!(
                r.op.as_binary(),
                Some(Binary::Add | Binary::Mul | Binary::Max | Binary::Min)
            );
            let d = k.dtype(r.init[0]);
            let lanes = is_full_width(d) || (d.is_int() && is_narrow(d));
            // Conditions only meet lane by lane: not if the lanes are iterations of this loop.
            let conditions = d == DType::B8 && !l.vector && r.op.as_binary().is_some();
            self.require_wide(known && lanes || conditions, || {
                format!("a reduction ({:?}) of {d} cannot be widened", r.op)
            });
        }
        let carried = |v: Value| is_full_width(k.dtype(v)) || k.dtype(v) == DType::B8;
        let wide = l.carries.iter().all(|c| carried(c.phi));
        self.require_wide(wide, || "a loop-carried value cannot be widened".into());
    }

    fn visit_store(&mut self, b: Buf, i: &Index, stride: i64) {
        let fixed = self.loops.is_fixed(i);
        let varies = stride != 0 || !fixed;
        let buffer = self.loops.k.buffer(b);
        let d = buffer.dtype;
        if varies && is_narrow(d) {
            self.needs_64 = Some("store the low part of each lane");
        }
        let wide = !varies || (stride == 1 && fixed && (is_full_width(d) || is_narrow(d)));
        self.require_wide(wide, || format!("the store to `{}` is not contiguous", buffer.name));
    }

    fn visit_varying(&mut self, v: Value, i: &Inst, lane: Var) {
        self.needs_64 = self.needs_64.or_else(|| self.avx512_only(i));
        let wide = self.is_lane_wise(i, lane);
        let k = self.loops.k;
        self.require_wide(wide, || {
            format!("{} cannot be widened", describe_inst(k, i, k.dtype(v)))
        });
    }
}

impl WidthSurvey<'_> {
    /// Records why the kernel cannot be widened, unless `wide`.
    fn require_wide(&mut self, wide: bool, reason: impl FnOnce() -> String) {
        if !wide && self.blocked.is_none() {
            self.blocked = Some(reason());
        }
    }

    /// What AVX2 cannot do of an instruction.
    fn avx512_only(&self, i: &Inst) -> Option<&'static str> {
        let long = |v: Value| self.loops.k.dtype(v) == DType::I64;
        match i {
            Inst::Op(ScalarOp::Binary(Binary::Shl | Binary::Shr, x, n)) if self.loops.k.dtype(*x).is_int() => {
                (!self.constants.contains(n)).then_some("shift by counts that vary")
            }
            Inst::Op(ScalarOp::Binary(op, x, _)) if long(*x) && divides_or_shifts(*op) => {
                Some("divide 64-bit integers")
            }
            Inst::Op(ScalarOp::Cast(to, x)) => {
                let float = |d: DType| d.is_float();
                let d = self.loops.k.dtype(*x);
                let between = (d == DType::I64 && float(*to)) || (float(d) && *to == DType::I64);
                between.then_some("convert between 64-bit integers and floats")
            }
            _ => None,
        }
    }

    fn is_lane_wise(&self, i: &Inst, lane: Var) -> bool {
        use DType::{B8, BF16, F16, F32, F64, I8, I16, I32, I64, U8};
        let d = |v: Value| self.loops.k.dtype(v);
        match i {
            Inst::Op(ScalarOp::Const(_)) | Inst::Index(_) => true,
            Inst::Bounded(..) => false,
            Inst::Load(b, index, _) => {
                let fixed = self.loops.is_fixed(index);
                let d = self.loops.k.buffer(*b).dtype;
                fixed && index.affine.stride(lane) == 1 && (is_full_width(d) || is_narrow(d))
            }
            Inst::Op(ScalarOp::Unary(op, x)) => match d(*x) {
                F32 => float_unary(*op),
                F64 => simple_unary(*op) || is_inline_f64(*op),
                I32 | I16 | I8 | U8 | I64 => int_unary(*op),
                B8 => matches!(op, Unary::Not | Unary::BitNot),
                F16 | BF16 => matches!(op, Unary::Neg | Unary::Abs),
                _ => false,
            },
            Inst::Op(ScalarOp::Binary(op, x, _)) => is_lane_wise_binary(*op, d(*x)),
            Inst::Op(ScalarOp::Compare(_, x, _)) => matches!(d(*x), F32 | F64 | I32 | I16 | I8 | U8 | I64 | B8),
            Inst::Op(ScalarOp::Select(_, x, _)) => is_full_width(d(*x)) || is_narrow(d(*x)),
            Inst::Op(ScalarOp::Fma(x, ..)) => matches!(d(*x), F32 | F64),
            Inst::Op(ScalarOp::Cast(to, x)) => [*to, d(*x)].into_iter().all(|d| is_full_width(d) || is_narrow(d)),
        }
    }
}

fn is_lane_wise_binary(op: Binary, dtype: DType) -> bool {
    use Binary::*;
    use DType::{B8, BF16, F16, F32, F64, I8, I16, I32, I64, U8};
    match dtype {
        F32 if is_inline_binary(op) => true,
        F32 | F64 => matches!(
            op,
            Add | Sub | Mul | Div | Max | Min | Fmax | Fmin | Copysign | TruncDiv | Fmod | Mod | FloorDiv
        ),
        I32 | I16 | I8 | U8 | I64 => {
            matches!(op, Add | Sub | Mul | Max | Min | Fmax | Fmin | And | Or | Xor) || divides_or_shifts(op)
        }
        B8 => matches!(op, And | Or | Xor | Mul | Add | Max | Min),
        F16 | BF16 => op == Copysign,
        _ => false,
    }
}

/// The name of an instruction, for messages.
fn describe_inst(k: &Kernel, i: &Inst, d: DType) -> String {
    match i {
        Inst::Op(ScalarOp::Const(_)) => "a constant".into(),
        Inst::Index(_) => "a loop index used as a value".into(),
        Inst::Bounded(..) => "an index loaded from memory".into(),
        Inst::Load(b, ..) => format!("a non-contiguous load of `{}`", k.buffer(*b).name),
        Inst::Op(ScalarOp::Unary(op, x)) => format!("{op:?} of {}", k.dtype(*x)),
        Inst::Op(ScalarOp::Binary(op, x, _)) => format!("{op:?} of {}", k.dtype(*x)),
        Inst::Op(ScalarOp::Compare(_, x, _)) => format!("a comparison of {}", k.dtype(*x)),
        Inst::Op(ScalarOp::Select(..)) => format!("a select of {d}"),
        Inst::Op(ScalarOp::Fma(..)) => format!("a fused multiply-add of {d}"),
        Inst::Op(ScalarOp::Cast(to, x)) => format!("a conversion from {} to {to}", k.dtype(*x)),
    }
}

/// Float operations that take one instruction or a few, for f64 too.
fn simple_unary(op: Unary) -> bool {
    use Unary::*;
    matches!(
        op,
        Neg | Abs | Sign | Floor | Ceil | Round | Trunc | Sqrt | Rsqrt | Recip | IsNan | IsInf | SignBit
    )
}

fn float_unary(op: Unary) -> bool {
    simple_unary(op) || is_inline_unary(op)
}
