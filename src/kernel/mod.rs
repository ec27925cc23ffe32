//! Kernel IR: loop nests over typed buffers.
//!
//! A [`Kernel`] reads and writes flat, typed buffers. Its body is loops ([`Loop`]) around values in SSA form; what a
//! value is ([`Inst`]) is a [`scalar`](crate::scalar) operation, an index, or a load. Indices are affine in the loop variables
//! ([`Affine`]), which is how strided, broadcast, permuted and sliced views cost nothing, plus terms in values
//! read from memory (gathers), which are bounded first so that no access leaves its buffer. [`verify()`] proves it.
//!
//! A loop is serial, or *parallel* (its iterations are independent; at most one per kernel, outermost; the runtime
//! hands out ranges of it), or *vector* (its iterations are independent and may run many at a time; innermost, or around serial loops),
//! or both. Results come out of a loop as reductions ([`Reduce`]: order is the compiler's choice, the same in every run) or as
//! carried values ([`LoopCarry`]: in order, serial loops only).
//!
//! Buffers with the role [`BufferRole::Local`] are a thread's own scratch memory: rows that stay in the L1 cache between the
//! phases of a softmax. They hold nothing at the start of a parallel iteration.
//!
//! [`KernelBuilder`] writes kernels; its documentation has examples. [`python`] prints them as Python that runs under numpy,
//! [`interpret`] runs them statement by statement and is what compiled code is tested against.

mod affine;
mod apply;
mod build;
pub mod estimate;
mod hoist;
mod interp;
mod key;
pub mod python;
mod text;
mod verify;

pub use affine::{Affine, Cond, Index};
pub use build::KernelBuilder;
pub use hoist::hoist_invariants;
pub use interp::interpret;
pub use key::{LARGE, structural_key};
pub use verify::{VerifyError, verify};

use crate::scalar::{Binary, ScalarOp};
use crate::tensor::Scalar;
use crate::types::DType;
use std::sync::Arc;

/// A buffer of a kernel, by its position in [`Kernel::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buf(pub u32);

/// A loop variable; it runs from 0 to its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub u32);

/// An SSA value, defined once, visible to the end of the loop body that defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// What a buffer is to its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferRole {
    /// Read only.
    In,
    /// Written; what it holds before is not defined. Elements written in the same iteration may be read back.
    Out,
    /// Read and written.
    InOut,
    /// Scratch memory of the thread. Not among the buffers that the caller passes.
    Local,
}

/// A typed buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelBuffer {
    /// An identifier, for print.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes, for print; their product is the number of elements.
    pub shape: Vec<usize>,
    /// What the kernel does with it.
    pub role: BufferRole,
    /// Whether it is written past the caches, where the machine can: it would only displace what is needed there.
    pub streams: bool,
}

impl KernelBuffer {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }
}

/// How a value read from memory is made an index in `0..size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexBound {
    /// Out of range is [`Fault::Index`], as in `torch.gather` and `embedding`; the value is then 0.
    Check,
    /// As `Check`, but `-size..0` counts from the end, as in `x[i]`.
    Wrap,
    /// Out of range becomes the nearest end: for indices that are computed, as by interpolation and reflection.
    Clamp,
}

/// A condition on a load: where one of `conds` fails the value is `other` and memory is not touched.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadGuard {
    /// All must hold.
    pub conds: Vec<Cond>,
    /// The value elsewhere, of the buffer's dtype.
    pub other: Scalar,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Inst {
    /// An affine expression of the loop variables, as an i64.
    Index(Affine),
    /// An element of a buffer.
    Load(Buf, Index, Option<LoadGuard>),
    /// The i64 value, brought into `0..size`.
    Bounded(Value, usize, IndexBound),
    /// An operation on scalars.
    Op(ScalarOp<Value>),
}

impl Inst {
    /// Calls `f` with every value this uses.
    pub fn visit_operands(&self, f: &mut dyn FnMut(Value)) {
        match self {
            Inst::Index(_) => {}
            Inst::Load(_, i, _) => i.dynamic.iter().for_each(|d| f(d.0)),
            Inst::Bounded(x, ..) => f(*x),
            Inst::Op(op) => op.operands().for_each(f),
        }
    }

    /// Calls `f` with every affine expression of loop variables in this.
    pub fn visit_affines(&self, f: &mut dyn FnMut(&Affine)) {
        match self {
            Inst::Index(a) => f(a),
            Inst::Load(_, i, g) => {
                f(&i.affine);
                g.iter().flat_map(|g| &g.conds).for_each(|c| f(&c.expr));
            }
            _ => {}
        }
    }
}

/// How a reduction combines. The dtype is the operands'; integers wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum.
    Add,
    /// Product.
    Mul,
    /// Largest; NaN if any is.
    Max,
    /// Smallest; NaN if any is.
    Min,
    /// Bitwise and; on b8 "all".
    And,
    /// Bitwise or; on b8 "any".
    Or,
    /// Of pairs (value, i64 index): the largest value and its index. NaN counts as largest; of equals the smaller index wins.
    ArgMax,
    /// Of pairs (value, i64 index): the smallest value and its index. NaN counts as smallest; of equals the smaller index wins.
    ArgMin,
}

impl ReduceOp {
    /// How many values one element is: 2 for pairs.
    pub fn arity(self) -> usize {
        match self {
            ReduceOp::ArgMax | ReduceOp::ArgMin => 2,
            _ => 1,
        }
    }

    /// The function of two values that this repeats; none for pairs.
    pub fn as_binary(self) -> Option<Binary> {
        match self {
            ReduceOp::Add => Some(Binary::Add),
            ReduceOp::Mul => Some(Binary::Mul),
            ReduceOp::Max => Some(Binary::Max),
            ReduceOp::Min => Some(Binary::Min),
            ReduceOp::And => Some(Binary::And),
            ReduceOp::Or => Some(Binary::Or),
            ReduceOp::ArgMax | ReduceOp::ArgMin => None,
        }
    }

    /// What leaves every other value of `dtype` as it is: the usual initial value. Pairs have index `i64::MAX` with it.
    pub fn identity(self, dtype: DType) -> Scalar {
        let float = dtype.is_float();
        match self {
            ReduceOp::Add if float => Scalar::from_f64(dtype, -0.0),
            ReduceOp::Add | ReduceOp::Or => Scalar::from_i64(dtype, 0),
            ReduceOp::Mul => Scalar::from_i64(dtype, 1),
            ReduceOp::And if dtype == DType::B8 => Scalar::Bool(true),
            ReduceOp::And => Scalar::from_i64(dtype, -1),
            ReduceOp::Max | ReduceOp::ArgMax => lowest_value(dtype),
            ReduceOp::Min | ReduceOp::ArgMin => highest_value(dtype),
        }
    }
}

/// The smallest value of `dtype`: -inf, `INT_MIN`, False.
pub fn lowest_value(dtype: DType) -> Scalar {
    match dtype {
        DType::B8 => Scalar::Bool(false),
        d if d.is_float() => Scalar::from_f64(d, f64::NEG_INFINITY),
        DType::U8 => Scalar::from_i64(dtype, 0),
        d => Scalar::from_i64(d, i64::MIN >> (64 - 8 * d.size())),
    }
}

/// The largest value of `dtype`: inf, `INT_MAX`, True.
pub fn highest_value(dtype: DType) -> Scalar {
    match dtype {
        DType::B8 => Scalar::Bool(true),
        d if d.is_float() => Scalar::from_f64(d, f64::INFINITY),
        DType::U8 => Scalar::from_i64(dtype, 255),
        d => Scalar::from_i64(d, i64::MAX >> (64 - 8 * d.size())),
    }
}

/// A reduction over a loop: `out = init ⊕ value of iteration 0 ⊕ value of iteration 1 …`, in an order that codegen
/// chooses. `value` is defined in the loop's body, `init` before the loop; `out` is defined after it. Each list has
/// [`ReduceOp::arity`] values.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduce {
    /// How to combine.
    pub op: ReduceOp,
    /// Before the first iteration.
    pub init: Vec<Value>,
    /// What an iteration adds.
    pub value: Vec<Value>,
    /// The result.
    pub out: Vec<Value>,
}

/// A value that goes from iteration to iteration in order: `phi` is `init` in the first and the previous one's `next` in the others;
/// `out` is the last `next` (or `init` if there was no iteration).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopCarry {
    /// Before the first iteration.
    pub init: Value,
    /// Within an iteration, before it changes.
    pub phi: Value,
    /// Within an iteration, after it changed.
    pub next: Value,
    /// After the loop.
    pub out: Value,
}

/// A loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Its variables, outermost first. More than one only in a parallel loop, which then runs over all their
    /// combinations as one range.
    pub vars: Vec<Var>,
    /// Iterations are independent and are split over threads.
    pub parallel: bool,
    /// Iterations are independent and may run several at a time.
    pub vector: bool,
    /// Reductions over it.
    pub reduces: Vec<Reduce>,
    /// Values carried through it.
    pub carries: Vec<LoopCarry>,
    /// What an iteration does.
    pub body: Vec<Stmt>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// Defines a value.
    Let(Value, Inst),
    /// Writes a value, of the buffer's dtype, to an element.
    Store(Buf, Index, Value),
    /// A loop.
    Loop(Loop),
}

/// A kernel: buffers and a loop nest over them. If it has a parallel loop, that is the last statement of `body` and
/// only constants come before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// An identifier, for print and profiles.
    pub name: String,
    /// The buffers. The caller passes all but the locals, in this order.
    pub buffers: Vec<KernelBuffer>,
    /// Extent of each loop variable.
    pub extents: Vec<usize>,
    /// Dtype of each value.
    pub values: Vec<DType>,
    /// What it does.
    pub body: Vec<Stmt>,
    /// Exponentials of differences from the largest element of a row, as a softmax takes them: of nothing above zero, and to be divided by
    /// their sum. Compiled code may compute them to 4e-7 of their value only.
    pub shares: Vec<Value>,
    /// For each value the node of the graph that it was computed for first, if the kernel was made for a graph.
    pub nodes: Vec<Option<Arc<str>>>,
}

impl Kernel {
    /// The node of the graph that a value was computed for first, if the kernel was made for one.
    pub fn node_of(&self, v: Value) -> Option<&str> {
        self.nodes.get(v.0 as usize)?.as_deref()
    }

    /// The buffer `b`.
    pub fn buffer(&self, b: Buf) -> &KernelBuffer {
        &self.buffers[b.0 as usize]
    }

    /// The extent of `v`.
    pub fn extent(&self, v: Var) -> usize {
        self.extents[v.0 as usize]
    }

    /// The dtype of `v`.
    pub fn dtype(&self, v: Value) -> DType {
        self.values[v.0 as usize]
    }

    /// The parallel loop, if there is one.
    pub fn parallel_loop(&self) -> Option<&Loop> {
        match self.body.last() {
            Some(Stmt::Loop(l)) if l.parallel => Some(l),
            _ => None,
        }
    }

    /// How many iterations the parallel loop has; 1 for a kernel without one. The runtime runs `0..this` in chunks.
    pub fn parallel_extent(&self) -> usize {
        self.parallel_loop()
            .map_or(1, |l| l.vars.iter().map(|&v| self.extent(v)).product())
    }

    /// The buffers that the caller passes, in order.
    pub fn params(&self) -> impl Iterator<Item = (Buf, &KernelBuffer)> {
        let all = self.buffers.iter().enumerate().map(|(i, b)| (Buf(i as u32), b));
        all.filter(|(_, b)| b.role != BufferRole::Local)
    }

    /// Byte offset of each local buffer in the scratch memory (others: 0), and how much of it the kernel needs. Every
    /// local begins at a multiple of 64 bytes.
    pub fn scratch_layout(&self) -> (Vec<usize>, usize) {
        let mut end = 0usize;
        let offsets = self.buffers.iter().map(|b| {
            let at = end;
            if b.role == BufferRole::Local {
                end += (b.numel() * b.dtype.size()).next_multiple_of(crate::tensor::ALIGN);
                at
            } else {
                0
            }
        });
        (offsets.collect(), end)
    }
}

/// What can go wrong while a kernel runs. A kernel never stops at a fault: it records it (the results are then
/// unspecified) and the runtime reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// An index is out of range: torch's `IndexError: index out of range`.
    Index,
    /// An integer division by zero: torch's `RuntimeError: ZeroDivisionError`.
    ZeroDivision,
}

/// The set of faults a run met, as bits: what compiled code returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    /// No fault.
    pub const OK: Status = Status(0);

    /// The bit of a fault.
    pub const fn fault_bit(f: Fault) -> u32 {
        match f {
            Fault::Index => 1,
            Fault::ZeroDivision => 2,
        }
    }

    /// Adds a fault.
    pub fn record(&mut self, f: Fault) {
        self.0 |= Self::fault_bit(f);
    }

    /// The faults of both.
    pub fn union(self, other: Status) -> Status {
        Status(self.0 | other.0)
    }

    /// One of the faults, if there are any.
    pub fn first_fault(self) -> Option<Fault> {
        [Fault::Index, Fault::ZeroDivision]
            .into_iter()
            .find(|&f| self.0 & Self::fault_bit(f) != 0)
    }
}
