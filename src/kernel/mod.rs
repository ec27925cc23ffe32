//! Kernel IR: loop nests over typed buffers.
//!
//! A [`Kernel`] reads and writes flat, typed buffers. Its body is loops ([`Loop`]) around values in SSA form. A value
//! ([`Inst`]) is a [`scalar`](crate::scalar) operation, an index, or a load. Indices are affine in the loop variables
//! ([`Affine`]), so strided, broadcast, permuted and sliced views cost nothing. An index may also have terms in values
//! read from memory (gathers). Those values are bounded first, so no access leaves its buffer; [`verify()`] proves it.
//!
//! A loop has one of these kinds:
//!
//! * serial: iterations run in order;
//! * *parallel*: iterations are independent, and the runtime hands out ranges of them to threads. Parallel
//!   loops are outermost and end the kernel; the iterations of all of them form one range;
//! * *vector*: iterations are independent and several may run at a time. A vector loop is innermost or contains serial loops;
//! * both parallel and vector.
//!
//! A loop's results are reductions ([`Reduce`]: the compiler chooses the order, which is the same in every run) or
//! carried values ([`LoopCarry`]: in order, serial loops only).
//!
//! Buffers with the role [`BufferRole::Local`] are a thread's own scratch memory, for example rows that stay in the L1
//! cache between the phases of a softmax. Their contents are undefined at the start of a parallel iteration.
//!
//! [`KernelBuilder`] builds kernels; its documentation has examples. [`python`] prints kernels as Python that runs
//! under numpy. [`interpret`] runs them statement by statement; compiled code is tested against it.

mod affine;
#[cfg(test)]
mod apply;
mod build;
pub(crate) mod estimate;
mod hoist;
#[cfg(test)]
mod interp;
mod key;
mod parallel;
pub(crate) mod python;
mod status;
mod text;
mod verify;

pub(crate) use affine::Affine;
pub use affine::{Cond, Index};
pub use build::KernelBuilder;
pub(crate) use hoist::hoist_invariants;
#[cfg(test)]
pub(crate) use interp::interpret;
pub use key::LARGE;
pub(crate) use key::{structural_key, structural_key_with};
pub(crate) use status::{Fault, Status};
pub(crate) use text::IrTextError;
pub(crate) use verify::VerifyError;
pub use verify::verify;

use crate::scalar::{Binary, ScalarOp};
use crate::tensor::Scalar;
use crate::types::DType;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A buffer of a kernel: its position in [`Kernel::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Buf(pub u32);

/// A loop variable. It runs from 0 up to, but not including, its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Var(pub u32);

/// An SSA value. It is defined once and visible up to the end of the loop body that defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Value(pub u32);

/// How a kernel uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BufferRole {
    /// Read only.
    In,
    /// Written. The contents before are undefined. Elements written in the same iteration may be read back.
    Out,
    /// Read and written.
    InOut,
    /// The thread's scratch memory. The caller does not pass it.
    Local,
}

/// A typed buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelBuffer {
    /// An identifier, for printing.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// The sizes. Their product is the number of elements; otherwise they are only printed.
    pub shape: Vec<usize>,
    /// How the kernel uses it.
    pub role: BufferRole,
    /// Whether stores to it bypass the caches where the machine can do so. Set for buffers so large that caching them
    /// would only displace other data.
    pub streams: bool,
}

impl KernelBuffer {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }
}

/// How a value read from memory is turned into an index in `0..size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IndexBound {
    /// An index out of range is a [`Fault::Index`], as in `torch.gather` and `embedding`. The value is then 0.
    Check,
    /// As `Check`, but `-size..0` counts from the end, as in `x[i]`.
    Wrap,
    /// An index out of range becomes the nearest bound. For computed indices, as in interpolation and reflection
    /// padding.
    Clamp,
}

/// The condition of a load. Where one of `conds` fails, the value is `other` and memory is not accessed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadGuard {
    /// All of these must hold.
    pub conds: Vec<Cond>,
    /// The value where they do not, of the buffer's dtype.
    pub other: Scalar,
}

/// The instruction that defines a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Inst {
    /// An affine expression of the loop variables, as an i64.
    Index(Affine),
    /// An element of a buffer.
    Load(Buf, Index, Option<LoadGuard>),
    /// An i64 value brought into `0..size`.
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

    /// Calls `f` with every affine expression of loop variables that this contains.
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

/// How a reduction combines values. The result has the operands' dtype; integers wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// Sum.
    Add,
    /// Product.
    Mul,
    /// Largest value; NaN if any value is NaN.
    Max,
    /// Smallest value; NaN if any value is NaN.
    Min,
    /// Bitwise and; on b8 "all".
    And,
    /// Bitwise or; on b8 "any".
    Or,
    /// The largest value and its index, over pairs (value, i64 index). NaN counts as largest; among equal values the
    /// smaller index wins.
    ArgMax,
    /// The smallest value and its index, over pairs (value, i64 index). NaN counts as smallest; among equal values the
    /// smaller index wins.
    ArgMin,
}

impl ReduceOp {
    /// The number of values in one element: 2 for pairs, else 1.
    pub fn arity(self) -> usize {
        match self {
            ReduceOp::ArgMax | ReduceOp::ArgMin => 2,
            _ => 1,
        }
    }

    /// The binary operation that this repeats; `None` for pairs.
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

    /// The identity element for `dtype`, which is the usual initial value. Pairs combine it with the index `i64::MAX`.
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
pub(crate) fn lowest_value(dtype: DType) -> Scalar {
    match dtype {
        DType::B8 => Scalar::Bool(false),
        d if d.is_float() => Scalar::from_f64(d, f64::NEG_INFINITY),
        DType::U8 => Scalar::from_i64(dtype, 0),
        d => Scalar::from_i64(d, i64::MIN >> (64 - 8 * d.size())),
    }
}

/// The largest value of `dtype`: inf, `INT_MAX`, True.
pub(crate) fn highest_value(dtype: DType) -> Scalar {
    match dtype {
        DType::B8 => Scalar::Bool(true),
        d if d.is_float() => Scalar::from_f64(d, f64::INFINITY),
        DType::U8 => Scalar::from_i64(dtype, 255),
        d => Scalar::from_i64(d, i64::MAX >> (64 - 8 * d.size())),
    }
}

/// A reduction over a loop: `out = init ⊕ value of iteration 0 ⊕ value of iteration 1 …`, in an order that codegen
/// chooses. `value` is defined in the loop's body, `init` before the loop, and `out` after it. Each list has
/// [`ReduceOp::arity`] values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduce {
    /// The combining operation.
    pub op: ReduceOp,
    /// The values before the first iteration.
    pub init: Vec<Value>,
    /// The values that an iteration contributes.
    pub value: Vec<Value>,
    /// The results.
    pub out: Vec<Value>,
}

/// A value carried from iteration to iteration, in order. `phi` is `init` in the first iteration and the previous
/// iteration's `next` in the others. `out` is the last `next`, or `init` if there was no iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopCarry {
    /// The value before the loop.
    pub init: Value,
    /// The value at the start of an iteration.
    pub phi: Value,
    /// The value at the end of an iteration.
    pub next: Value,
    /// The value after the loop.
    pub out: Value,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// The loop variables, outermost first. Only a parallel loop has more than one; it runs over all their combinations
    /// as one range.
    pub vars: Vec<Var>,
    /// Whether iterations are independent and split over threads.
    pub parallel: bool,
    /// Whether iterations are independent and several may run at a time.
    pub vector: bool,
    /// The reductions over the loop.
    pub reduces: Vec<Reduce>,
    /// The values carried through the loop.
    pub carries: Vec<LoopCarry>,
    /// The statements of one iteration.
    #[serde(deserialize_with = "crate::types::nested")]
    pub body: Vec<Stmt>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stmt {
    /// Defines a value.
    Let(Value, Inst),
    /// Stores a value, of the buffer's dtype, to an element.
    Store(Buf, Index, Value),
    /// A loop.
    Loop(Loop),
}

/// A kernel: buffers and a loop nest over them. Parallel loops, if there are any, are the last statements of `body`, and
/// only constants come before them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// An identifier, for printing and profiles.
    pub name: String,
    /// The buffers. The caller passes all except the locals, in this order.
    pub buffers: Vec<KernelBuffer>,
    /// Extent of each loop variable.
    pub extents: Vec<usize>,
    /// Dtype of each value.
    pub values: Vec<DType>,
    /// The statements.
    pub body: Vec<Stmt>,
    /// The exponentials that a softmax divides by their sum: `exp(x - max)`, with `max` the largest element of the row,
    /// so the exponent is never positive. Compiled code may compute them with a relative error of up to 4e-7.
    pub shares: Vec<Value>,
    /// Conversions from f32 to bf16 that may turn denormal numbers to zeros of their sign, as the processor's instruction
    /// does: those after products and convolutions of bf16, whose own results are converted by this instruction, as in torch.
    pub flushing: Vec<Value>,
    /// The graph node that each value was first computed for, if the kernel was made for a graph.
    pub nodes: Vec<Option<Arc<str>>>,
}

impl Kernel {
    /// The graph node that a value was first computed for, if the kernel was made for a graph.
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

    /// The buffers that the caller passes, in order.
    pub fn params(&self) -> impl Iterator<Item = (Buf, &KernelBuffer)> {
        let all = self.buffers.iter().enumerate().map(|(i, b)| (Buf(i as u32), b));
        all.filter(|(_, b)| b.role != BufferRole::Local)
    }

    /// The byte offset of each local buffer in the scratch memory (0 for the others), and the scratch bytes that the
    /// kernel needs. Every local buffer starts at a multiple of 64 bytes.
    pub fn scratch_layout(&self) -> (Vec<usize>, usize) {
        let mut end = 0usize;
        let offsets = self.buffers.iter().map(|b| {
            let offset = end;
            if b.role == BufferRole::Local {
                end += (b.numel() * b.dtype.size()).next_multiple_of(crate::tensor::ALIGN);
                offset
            } else {
                0
            }
        });
        (offsets.collect(), end)
    }
}
