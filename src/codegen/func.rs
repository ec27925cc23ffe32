//! One kernel as one CLIF function.

use super::asm::CodeSource;
use super::folds::{Folds, find_folds};
use super::lanes::{Emitter, Lanes, MEM, RegisterClass};
use super::memory::Partials;
use super::prefetch::find_prefetches;
use super::rows::RowState;
use super::table::ConstantTable;
use crate::kernel::{self, BufferRole, Fault, IndexBound, Inst, Kernel, Stmt, Var};
use crate::scalar::{Binary, ScalarOp, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{AbiParam, InstBuilder, SourceLoc, StackSlotData, StackSlotKind, Value};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use std::collections::HashMap;

/// What a kernel value is at this place of the code.
#[derive(Clone, Debug)]
pub(super) enum LoweredValue {
    /// Not computed here.
    None,
    /// A constant, made where it is used.
    Const(Scalar),
    /// One scalar, the same for all iterations of the group.
    Uniform(Value),
    /// One lane for each iteration of the group.
    Lanes(Lanes),
}

/// What a loop variable is.
#[derive(Clone, Copy, Debug)]
pub(super) enum VarAt {
    /// Known; also what variables of loops that are not open are.
    Const(i64),
    /// In a register; in a group the first iteration's value.
    At(Value),
    /// So much more than a register.
    Past(Value, i64),
}

impl VarAt {
    /// The known part of it.
    pub(super) fn constant_part(self) -> i64 {
        match self {
            VarAt::Const(c) | VarAt::Past(_, c) => c,
            VarAt::At(_) => 0,
        }
    }
}

/// The state of writing one kernel.
pub(super) struct FunctionLowering<'a> {
    pub e: Emitter<'a>,
    pub k: &'a Kernel,
    /// Base addresses.
    pub buffers: Vec<Value>,
    pub vars: Vec<VarAt>,
    pub vals: Vec<LoweredValue>,
    /// The vector loop whose iterations run in groups at the moment.
    pub lane: Option<Var>,
    pub partials: Partials,
    /// Uniform values that were spread over lanes before the loop.
    pub splats: HashMap<kernel::Value, Value>,
    /// The chunk of the parallel loop.
    pub range: (Value, Value),
    /// Whether groups begin at multiples of a cache line.
    pub aligned: bool,
    /// Whether stores of two f64 are free to mean stores past the caches.
    pub may_stream: bool,
    /// What is computed together.
    pub folds: Folds,
    /// Loads at which the next row is asked for, with its distance in bytes.
    pub prefetches: HashMap<kernel::Value, i64>,
    /// The rows in step, if there are any and none of them is current.
    pub in_step: Vec<RowState>,
    /// Whether the code says which statement it comes from.
    pub places: bool,
}

/// The signature of compiled kernels: `(buffers, begin, end, scratch, constants) -> status`.
pub(super) fn kernel_signature(isa: &dyn TargetIsa) -> cranelift_codegen::ir::Signature {
    let mut s = cranelift_codegen::ir::Signature::new(isa.default_call_conv());
    s.params.extend([AbiParam::new(I64); 5]);
    s.returns.push(AbiParam::new(I32));
    s
}

/// Whether a kernel has no f64 and so may say by a store of two that it goes past the caches; see [`widen`](super::widen).
pub(super) fn may_stream(k: &Kernel) -> bool {
    let buffers = k.buffers.iter().map(|b| b.dtype);
    !k.values.iter().copied().chain(buffers).any(|d| d == DType::F64)
}

/// Whether a flag of the target is set.
fn has_isa_flag(isa: &dyn TargetIsa, name: &str) -> bool {
    isa.isa_flags()
        .iter()
        .any(|f| f.name == name && f.as_bool() == Some(true))
}

/// Writes `k`, with vectors `width` bytes apart, into `func`, whose signature is [`signature`]'s. `places` keeps which statement the
/// code comes from.
pub(super) fn define_function(
    k: &Kernel,
    isa: &dyn TargetIsa,
    width: usize,
    func: &mut cranelift_codegen::ir::Function,
    frontend: &mut FunctionBuilderContext,
    table: &mut ConstantTable,
    places: bool,
) {
    let x86 = isa.name() == "x64";
    let mut b = FunctionBuilder::new(func, frontend);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    b.seal_block(entry);
    let p = b.block_params(entry).to_vec();
    // One slot: the status, and in front of it room to take a wide vector apart.
    let (bytes, status) = if width > 16 { (super::widen::SLOT, 64) } else { (4, 0) };
    let slot = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 2));
    let e = Emitter {
        b,
        table,
        table_ptr: p[4],
        slot,
        status,
        scalar: true,
        elements: 1,
        width,
        fma: !x86 || has_isa_flag(isa, "has_fma"),
        x86,
    };
    let mut s = FunctionLowering {
        e,
        k,
        buffers: vec![],
        vars: vec![VarAt::Const(0); k.extents.len()],
        vals: vec![LoweredValue::None; k.values.len()],
        lane: None,
        partials: HashMap::new(),
        splats: HashMap::new(),
        range: (p[1], p[2]),
        aligned: false,
        may_stream: may_stream(k),
        folds: find_folds(k),
        prefetches: find_prefetches(k),
        in_step: vec![],
        places,
    };
    s.bind_buffers(p[0], p[3]);
    let zero = s.e.b.ins().iconst(I32, 0);
    let at = s.e.status_address();
    s.e.b.ins().store(MEM.with_aligned(), zero, at, 0);
    s.lower_body(&k.body);
    let at = s.e.status_address();
    let r = s.e.b.ins().load(I32, MEM.with_aligned(), at, 0);
    s.e.b.ins().return_(&[r]);
    s.e.b.finalize(isa.frontend_config());
}

impl FunctionLowering<'_> {
    fn bind_buffers(&mut self, list: Value, scratch: Value) {
        let (offsets, _) = self.k.scratch_layout();
        let mut n = 0;
        for (b, off) in self.k.buffers.iter().zip(offsets) {
            self.buffers.push(if b.role == BufferRole::Local {
                self.e.b.ins().iadd_imm_s(scratch, off as i64)
            } else {
                n += 1;
                self.e.b.ins().load(I64, MEM.with_aligned(), list, 8 * (n - 1))
            });
        }
    }

    /// Statements in order.
    pub(super) fn lower_body(&mut self, body: &[Stmt]) {
        for s in body {
            self.note_place(s);
            match s {
                Stmt::Let(v, i) => {
                    let x = self.lower_inst(*v, i);
                    self.vals[v.0 as usize] = x;
                }
                Stmt::Store(b, i, v) => self.lower_store(*b, i, *v),
                Stmt::Loop(l) => self.lower_loop(l),
            }
        }
        if self.places {
            self.e.b.set_srcloc(SourceLoc::default());
        }
    }

    /// What is written from now on comes from this statement.
    fn note_place(&mut self, s: &Stmt) {
        if self.places {
            self.e.b.set_srcloc(match s {
                Stmt::Let(v, _) => CodeSource::Value(v.0).to_srcloc(),
                Stmt::Store(b, ..) => CodeSource::Store(b.0).to_srcloc(),
                Stmt::Loop(_) => SourceLoc::default(),
            });
        }
    }

    /// What a body defined is gone at its end.
    pub(super) fn forget(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let(v, _) => self.vals[v.0 as usize] = LoweredValue::None,
                Stmt::Store(..) => {}
                Stmt::Loop(l) => {
                    let outs = l.reduces.iter().flat_map(|r| r.out.iter().copied());
                    for v in outs.chain(l.carries.iter().flat_map(|c| [c.phi, c.out])) {
                        self.vals[v.0 as usize] = LoweredValue::None;
                    }
                    self.forget(&l.body);
                }
            }
        }
    }

    /// The variable of the vector loop that runs in groups.
    pub(super) fn lane_var(&self) -> Option<Var> {
        self.lane
    }

    /// `f` while the emitter writes vectors or scalars.
    pub(super) fn with_form<R>(&mut self, lanes: bool, f: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.e.scalar, !lanes);
        let r = f(self);
        self.e.scalar = before;
        r
    }

    /// A constant in the current form, `n` times.
    pub(super) fn constant_lanes(&mut self, s: Scalar, n: usize) -> Lanes {
        let (class, bits) = match s {
            Scalar::F32(x) => (RegisterClass::F32, x.to_bits() as u64),
            Scalar::F64(x) => (RegisterClass::F64, x.to_bits()),
            Scalar::Half(DType::F16, x) => (RegisterClass::I32, half::f16::from_f32(x).to_bits() as u64),
            Scalar::Half(_, x) => (RegisterClass::I32, half::bf16::from_f32(x).to_bits() as u64),
            Scalar::Int(DType::I64, x) => (RegisterClass::I64, x as u64),
            Scalar::Int(_, x) => (RegisterClass::I32, x as u32 as u64),
            Scalar::Bool(x) if self.e.scalar => return vec![self.e.b.ins().iconst(I8, x as i64); n],
            Scalar::Bool(x) => (RegisterClass::I32, if x { u32::MAX as u64 } else { 0 }),
        };
        self.e.constant_bits(class, bits, n)
    }

    /// The scalar of a value that is the same for the whole group; `None` if it is not, or not known yet.
    pub(super) fn uniform_scalar(&mut self, v: kernel::Value) -> Option<Value> {
        match self.vals[v.0 as usize] {
            LoweredValue::Uniform(x) => Some(x),
            LoweredValue::Const(s) => Some(self.with_form(false, |l| l.constant_lanes(s, 1))[0]),
            LoweredValue::None | LoweredValue::Lanes(_) => None,
        }
    }

    /// The scalar of a uniform value.
    pub(super) fn scalar_of(&mut self, v: kernel::Value) -> Value {
        self.uniform_scalar(v)
            .expect("a value that does not vary over the group")
    }

    /// The lanes of a value, spread if it is uniform.
    pub(super) fn lanes_of(&mut self, v: kernel::Value) -> Lanes {
        let class = RegisterClass::from_dtype(self.k.dtype(v));
        let n = self.with_form(true, |l| l.e.value_count(class));
        match self.vals[v.0 as usize].clone() {
            LoweredValue::Lanes(x) => x,
            LoweredValue::Const(s) => match self.splats.get(&v) {
                Some(&x) => vec![x; n],
                None => self.with_form(true, |l| l.constant_lanes(s, n)),
            },
            LoweredValue::Uniform(x) => match self.splats.get(&v) {
                Some(&s) => vec![s; n],
                None => self.with_form(true, |l| l.e.splat(class, x)),
            },
            LoweredValue::None => unreachable!("the verifier saw v{} defined", v.0),
        }
    }

    /// A value's registers: the scalar outside groups, the lanes inside. Conditions have 32-bit lanes.
    pub(super) fn registers_of(&mut self, v: kernel::Value) -> Lanes {
        if self.lane.is_none() {
            return vec![self.scalar_of(v)];
        }
        let x = self.lanes_of(v);
        self.canonicalize_lanes(self.k.dtype(v), LoweredValue::Lanes(x))
    }

    /// Registers as block parameters take them.
    pub(super) fn canonicalize_lanes(&mut self, dtype: DType, v: LoweredValue) -> Lanes {
        match v {
            LoweredValue::Uniform(x) => vec![x],
            LoweredValue::Lanes(x) if dtype == DType::B8 => self.with_form(true, |l| l.e.mask32(&x)),
            LoweredValue::Lanes(x) => x,
            LoweredValue::Const(_) | LoweredValue::None => unreachable!("a value in registers"),
        }
    }

    /// The inverse of [`Lowering::registers`].
    pub(super) fn value_of(&self, x: &[Value]) -> LoweredValue {
        match self.lane {
            None => LoweredValue::Uniform(x[0]),
            Some(_) => LoweredValue::Lanes(x.to_vec()),
        }
    }

    /// Whether an operand differs over the group.
    fn is_varying(&self, i: &Inst) -> bool {
        let mut any = false;
        i.visit_operands(&mut |v| any |= matches!(self.vals[v.0 as usize], LoweredValue::Lanes(_)));
        any
    }

    fn lower_inst(&mut self, v: kernel::Value, i: &Inst) -> LoweredValue {
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
                let s = self.lane.map_or(0, |v| a.stride(v));
                let first = self.lower_affine(a);
                if s == 0 {
                    return LoweredValue::Uniform(first);
                }
                return LoweredValue::Lanes(self.with_form(true, |l| l.lane_index(first, s)));
            }
            // The one is in the value already.
            Inst::Op(ScalarOp::Binary(Binary::Add, x, y))
                if self.folds.plus_one.contains(x) || self.folds.plus_one.contains(y) =>
            {
                let sum = if self.folds.plus_one.contains(x) { x } else { y };
                return self.vals[sum.0 as usize].clone();
            }
            Inst::Op(ScalarOp::Binary(Binary::Mul, ..))
                if self.folds.gone.contains(&v) || self.folds.added_up.contains_key(&v) =>
            {
                return LoweredValue::None;
            }
            Inst::Op(ScalarOp::Binary(Binary::Mul, ..)) if self.folds.quotients.contains_key(&v) => {
                let (x, d) = self.folds.quotients[&v];
                return self.lower_folded(&[x, d], |l, args| l.e.fdiv(&args[0], &args[1]));
            }
            Inst::Op(ScalarOp::Unary(Unary::Tanh, x)) if self.folds.plus_one.contains(&v) => {
                let (x, c) = self.folds.scaled.get(&v).copied().unwrap_or((*x, 1.0));
                let whole = !self.folds.denominators.contains(&v);
                return self.lower_folded(&[x], |l, args| l.e.one_plus_tanh(&args[0], c, whole));
            }
            _ => {}
        }
        let varying = self.is_varying(i);
        let r = self.with_form(varying, |l| match i {
            Inst::Op(ScalarOp::Unary(Unary::Erf, x)) if l.folds.plus_one.contains(&v) => {
                let x = l.operand_lanes(*x, varying);
                l.e.one_plus_erf(&x)
            }
            Inst::Op(ScalarOp::Unary(Unary::Exp, x)) if l.k.shares.contains(&v) => {
                let x = l.operand_lanes(*x, varying);
                l.e.exp_share(&x)
            }
            _ => l.lower_operation(i, varying),
        });
        if varying {
            LoweredValue::Lanes(r)
        } else {
            LoweredValue::Uniform(r[0])
        }
    }

    /// A function of values that are not its instruction's operands.
    fn lower_folded(&mut self, args: &[kernel::Value], f: impl FnOnce(&mut Self, &[Lanes]) -> Lanes) -> LoweredValue {
        let lanes = |v: &kernel::Value| matches!(self.vals[v.0 as usize], LoweredValue::Lanes(_));
        let varying = args.iter().any(lanes);
        let r = self.with_form(varying, |l| {
            let args: Vec<Lanes> = args.iter().map(|&a| l.operand_lanes(a, varying)).collect();
            f(l, &args)
        });
        if varying {
            LoweredValue::Lanes(r)
        } else {
            LoweredValue::Uniform(r[0])
        }
    }

    /// `first + stride * lane`.
    fn lane_index(&mut self, first: Value, stride: i64) -> Lanes {
        let base = self.e.splat(RegisterClass::I64, first);
        let mut lanes = self.e.lane_indices();
        if stride != 1 {
            let s = self.e.int_like(RegisterClass::I64, &lanes, stride);
            lanes = self.e.map2(&lanes, &s, |e, x, y| e.b.ins().imul(x, y));
        }
        self.e.iadd(&base, &lanes)
    }

    fn operand_lanes(&mut self, v: kernel::Value, varying: bool) -> Lanes {
        if varying {
            self.lanes_of(v)
        } else {
            vec![self.scalar_of(v)]
        }
    }

    /// An operation in the current form.
    fn lower_operation(&mut self, i: &Inst, varying: bool) -> Lanes {
        match i {
            Inst::Bounded(x, n, how) => {
                let x = self.operand_lanes(*x, varying);
                self.lower_bounded(&x, *n as i64, *how)
            }
            Inst::Op(ScalarOp::Unary(op, x)) => {
                let d = self.k.dtype(*x);
                let x = self.operand_lanes(*x, varying);
                self.e.unary(*op, d, &x)
            }
            Inst::Op(ScalarOp::Binary(op, x, y)) => {
                if let Some(r) = self.max_with_constant(*op, *x, *y, varying) {
                    return r;
                }
                if let Some(r) = self.by_power_of_two(*op, *x, *y, varying) {
                    return r;
                }
                let d = self.k.dtype(*x);
                let (x, y) = (self.operand_lanes(*x, varying), self.operand_lanes(*y, varying));
                self.e.binary(*op, d, &x, &y)
            }
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
            Inst::Op(ScalarOp::Cast(to, x)) => {
                let d = self.k.dtype(*x);
                let x = self.operand_lanes(*x, varying);
                self.e.cast(d, *to, &x)
            }
            Inst::Op(ScalarOp::Const(_)) | Inst::Load(..) | Inst::Index(_) => unreachable!("handled by `inst`"),
        }
    }

    /// Max or min of floats where one operand is a constant that is not NaN: one instruction. The sign of a zero result
    /// is right because the constant is compared first, or is not zero.
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

    /// A quotient of f32 by a power of two as the product with its inverse: the same number, rounded once.
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

    fn lower_bounded(&mut self, x: &Lanes, n: i64, how: IndexBound) -> Lanes {
        let c = RegisterClass::I64;
        let e = &mut self.e;
        let zero = e.int_like(c, x, 0);
        let mut x = x.clone();
        if how == IndexBound::Wrap {
            let neg = e.icmp(IntCC::SignedLessThan, &x, &zero);
            let size = e.int_like(c, &x, n);
            let moved = e.iadd(&x, &size);
            x = e.choose(&neg, &moved, &x);
        }
        let below = e.icmp(IntCC::SignedLessThan, &x, &zero);
        let last = e.int_like(c, &x, n - 1);
        let above = e.icmp(IntCC::SignedGreaterThan, &x, &last);
        if how == IndexBound::Clamp {
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
