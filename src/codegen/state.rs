//! The state while a kernel is lowered: the current form of its values, variables and addresses.

use super::folds::Folds;
use super::lanes::{Emitter, Lanes, RegisterClass};
use crate::kernel::{self, Affine, Buf, Kernel, Var};
use crate::tensor::Scalar;
use crate::types::DType;
use cranelift_codegen::ir::types::I8;
use cranelift_codegen::ir::{InstBuilder, Value};
use std::collections::{HashMap, HashSet};

/// The current form of a kernel value.
#[derive(Clone, Debug)]
pub(super) enum LoweredValue {
    /// Not computed here.
    None,
    /// A constant, materialised at each use.
    Const(Scalar),
    /// One scalar, the same for all iterations of the group.
    Uniform(Value),
    /// One lane for each iteration of the group.
    Lanes(Lanes),
}

/// The current form of a loop variable.
#[derive(Clone, Copy, Debug)]
pub(super) enum VarAt {
    /// A known value. Variables of loops that are not open also have this form.
    Const(i64),
    /// In a register. Within a group, the value of the group's first iteration.
    At(Value),
    /// A register plus a constant.
    Past(Value, i64),
}

impl VarAt {
    /// The constant part.
    pub(super) fn constant_part(self) -> i64 {
        match self {
            VarAt::Const(c) | VarAt::Past(_, c) => c,
            VarAt::At(_) => 0,
        }
    }
}

/// The registers of each loop-carried value.
pub(super) type LoopState = Vec<Vec<Value>>;

/// One end of a range of iterations.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Const(i64),
    At(Value),
}

/// Identifies accesses whose addresses differ only by a constant.
pub(super) type AccessKey = (Buf, Vec<(Var, i64)>, Vec<(crate::kernel::Value, i64)>);

/// The part of an address that enclosing loops determine, computed before the inner loop.
#[derive(Clone)]
pub(super) struct Partial {
    pub ptr: Value,
    pub vars: Vec<Var>,
    pub dynamic: bool,
}

pub(super) type Partials = std::collections::HashMap<AccessKey, Partial>;

/// The state that differs between rows in lockstep.
pub(super) struct RowState {
    pub vals: Vec<LoweredValue>,
    pub vars: Vec<VarAt>,
    pub partials: Partials,
    pub splats: HashMap<crate::kernel::Value, Value>,
    pub buffers: Vec<Value>,
}

/// The state while a kernel is lowered.
pub(super) struct FunctionLowering<'a> {
    pub e: Emitter<'a>,
    pub k: &'a Kernel,
    /// The base address of each buffer.
    pub buffers: Vec<Value>,
    pub vars: Vec<VarAt>,
    pub vals: Vec<LoweredValue>,
    /// The vector loop that currently runs in groups.
    pub lane: Option<Var>,
    pub partials: Partials,
    /// Uniform values that were splatted before the loop.
    pub splats: HashMap<kernel::Value, Value>,
    /// The range of the parallel loop that the caller passed.
    pub range: (Value, Value),
    /// Whether groups start at multiples of a cache line.
    pub aligned: bool,
    /// The variable of a vector loop whose guarded loads are out of range, in the iterations being lowered.
    pub outside: Option<Var>,
    /// The variable of a vector loop whose guards hold, in the single iterations being lowered.
    pub inside: Option<Var>,
    /// The comparisons whose results are known, in the iterations being lowered.
    pub decided: HashMap<kernel::Value, bool>,
    /// The values that nothing reads, in the iterations being lowered.
    pub unused: HashSet<kernel::Value>,
    /// Whether a store of two f64 is free to mean a streaming store.
    pub may_stream: bool,
    /// Patterns that are computed as one operation.
    pub folds: Folds,
    /// The values that are indices.
    pub indices: HashMap<kernel::Value, &'a Affine>,
    /// The loads that also prefetch the next row, with its distance in bytes.
    pub prefetches: HashMap<kernel::Value, i64>,
    /// The rows in lockstep, if there are any and none of them is current.
    pub in_step: Vec<RowState>,
    /// Whether instructions record the statement that they come from.
    pub places: bool,
}

impl LoweredValue {
    /// The result of an operation: lanes if it varies over the group.
    pub(super) fn new(varying: bool, r: Lanes) -> LoweredValue {
        if varying {
            LoweredValue::Lanes(r)
        } else {
            LoweredValue::Uniform(r[0])
        }
    }
}

impl FunctionLowering<'_> {
    /// The variable of the vector loop that runs in groups.
    pub(super) fn lane_var(&self) -> Option<Var> {
        self.lane
    }

    /// Runs `f` while the emitter emits vectors (`lanes`) or scalars.
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

    /// The scalar of a value that is the same for the whole group. `None` if it varies or is not known yet.
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

    /// The lanes of a value, splatted if it is uniform.
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
            LoweredValue::None => unreachable!(
                "v{} is used before its definition; the verifier should reject this",
                v.0
            ),
        }
    }

    /// A value's registers: the scalar outside groups, the lanes inside. Conditions get 32-bit lanes.
    pub(super) fn registers_of(&mut self, v: kernel::Value) -> Lanes {
        if self.lane.is_none() {
            return vec![self.scalar_of(v)];
        }
        let x = self.lanes_of(v);
        self.canonicalize_lanes(self.k.dtype(v), LoweredValue::Lanes(x))
    }

    /// A value's registers in the types that block parameters have.
    pub(super) fn canonicalize_lanes(&mut self, dtype: DType, v: LoweredValue) -> Lanes {
        match v {
            LoweredValue::Uniform(x) => vec![x],
            LoweredValue::Lanes(x) if dtype == DType::B8 => self.with_form(true, |l| l.e.mask32(&x)),
            LoweredValue::Lanes(x) => x,
            LoweredValue::Const(_) | LoweredValue::None => unreachable!("a value in registers"),
        }
    }

    /// The inverse of [`FunctionLowering::registers_of`].
    pub(super) fn value_of(&self, x: &[Value]) -> LoweredValue {
        match self.lane {
            None => LoweredValue::Uniform(x[0]),
            Some(_) => LoweredValue::Lanes(x.to_vec()),
        }
    }
}
