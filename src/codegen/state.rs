//! The state of writing one kernel: what its values, variables and addresses are at this place of the code.

use super::folds::Folds;
use super::lanes::{Emitter, Lanes, RegisterClass};
use crate::kernel::{self, Buf, Kernel, Var};
use crate::tensor::Scalar;
use crate::types::DType;
use cranelift_codegen::ir::types::I8;
use cranelift_codegen::ir::{InstBuilder, Value};
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

/// The registers of each value that goes from iteration to iteration.
pub(super) type LoopState = Vec<Vec<Value>>;

/// One end of a range of iterations.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Const(i64),
    At(Value),
}

/// What accesses with equal addresses up to a constant have in common.
pub(super) type AccessKey = (Buf, Vec<(Var, i64)>, Vec<(crate::kernel::Value, i64)>);

/// The part of an address that enclosing loops decide, computed before the loop inside.
#[derive(Clone)]
pub(super) struct Partial {
    pub ptr: Value,
    pub vars: Vec<Var>,
    pub dynamic: bool,
}

pub(super) type Partials = std::collections::HashMap<AccessKey, Partial>;

/// What differs from row to row while rows run in step.
pub(super) struct RowState {
    pub vals: Vec<LoweredValue>,
    pub vars: Vec<VarAt>,
    pub partials: Partials,
    pub splats: HashMap<crate::kernel::Value, Value>,
    pub buffers: Vec<Value>,
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

impl FunctionLowering<'_> {
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

    /// The inverse of [`FunctionLowering::registers_of`].
    pub(super) fn value_of(&self, x: &[Value]) -> LoweredValue {
        match self.lane {
            None => LoweredValue::Uniform(x[0]),
            Some(_) => LoweredValue::Lanes(x.to_vec()),
        }
    }
}
