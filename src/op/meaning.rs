//! The meanings of ops, in the few forms that all later stages understand.

use super::call::{Call, OpError, OpResult};
use super::contraction::Contraction;
use super::{Op, OpId};
use crate::control::Control;
use crate::diag::Code;
use crate::parallel::Pool;
use crate::scalar::ScalarExpr;
use crate::tensor::{SavedBytes, Tensor, ViewMut};
use crate::types::{DType, Dim, TensorType, Val};

/// What an op computes, in exactly one of these forms.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// `out[i] = expr(a[i], b[i], …)` with broadcasting.
    Pointwise(Pointwise),
    /// A combination of the elements along some dims.
    Reduce(fn(&Call<TensorType>) -> OpResult<Reduction>),
    /// A rearrangement of the operand's elements; nothing is computed.
    View(fn(&Call<TensorType>) -> OpResult<View>),
    /// A composition of other ops.
    Decompose(Decompose),
    /// A matrix product or convolution.
    Contract(fn(&Call<TensorType>) -> OpResult<Contraction>),
    /// A computation on whole tensors, implemented in Rust.
    Routine(fn(&Call<Tensor>) -> OpResult<Val<Tensor>>),
    /// As `Routine`, but writes to the caller's memory: one view per result, of the type from the row's rule, with
    /// undefined contents. The thread pool is for large operands.
    Fill(FillFn),
    /// Calls of the graphs among the arguments.
    Control(Control),
    /// Not a tensor: the type rule already returns the value (sizes, dtypes, Python arithmetic on them).
    Host,
}

/// The function of a [`Meaning::Fill`].
pub(crate) type FillFn = fn(&Call<Tensor>, &mut [ViewMut<'_>], &Pool) -> OpResult<()>;

/// The function of a row that overwrites elements of its first operand ([`Op::overwrites`](super::Op::overwrites)). The operand is
/// the view; the call has `None` in its place. The function saves the bytes that it overwrites, and fails before it writes any.
pub(crate) type OverwriteFn = fn(&Call<Tensor>, &mut ViewMut<'_>, &mut SavedBytes) -> OpResult<()>;

/// A pointwise meaning: a scalar expression over the parameters that hold tensors or numbers.
///
/// `Tensor` parameters take part in promotion, even if a number is given for the tensor; `Scalar`, `int` and `float` parameters
/// are constants. Parameters called `condition` and `mask` are b8 and do not take part in promotion.
#[derive(Clone, Copy)]
pub struct Pointwise {
    /// How the operands' dtypes determine the compute dtype and the result dtype.
    pub dtypes: DtypeRule,
    /// The result's shape.
    pub shape: ShapeRule,
    /// The expression.
    pub expr: ExprText,
    /// Whether numbers and 0-dim tensors given for `Tensor` parameters keep f32 precision in f16 and bf16. Otherwise
    /// they are first rounded to the dtype. (torch does one or the other, depending on the op.)
    pub wide_numbers: bool,
}

/// The source of a scalar expression. The language is that of [`scalar::parse`](crate::scalar::parse) over the
/// parameters' names.
#[derive(Clone, Copy)]
pub enum ExprText {
    /// A fixed expression.
    Fixed(&'static str),
    /// An expression that depends on the arguments (a mode, an optional bound, a dtype).
    By(fn(&Call<TensorType>) -> OpResult<&'static str>),
}

/// The shape of a pointwise op's result.
#[derive(Clone, Copy)]
pub enum ShapeRule {
    /// The broadcast of the tensors' shapes.
    Broadcast,
    /// A shape computed from the arguments (creation ops).
    By(fn(&Call<TensorType>) -> OpResult<Vec<Dim>>),
}

/// How a pointwise op's dtypes follow from those of its operands. The strings are torch's error texts: the name of a
/// kernel, which becomes `"NAME" not implemented for 'Long'`, or a whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtypeRule {
    /// The promoted dtype, for computing and for the result.
    Promote,
    /// As `Promote`, but integers and bools first become f32.
    PromoteFloat,
    /// As `PromoteFloat`; f16 and bf16 are an error of this kernel.
    WideFloat(&'static str),
    /// As `Promote`; integer and bool operands are an error of this kernel.
    FloatOnly(&'static str),
    /// As `Promote`; bool is an error of this kernel.
    NoBool(&'static str),
    /// As `Promote`; a bool result is an error with this message.
    NoBoolMessage(&'static str),
    /// Subtraction: bool operands are an error, with different messages for one and for two of them.
    Subtract,
    /// As `Promote`; floats are an error of this kernel.
    IntOrBool(&'static str),
    /// As `Promote`; floats and bools are an error of this kernel.
    IntOnly(&'static str),
    /// True division (`PromoteFloat`), or `NoBool` with a `rounding_mode`.
    Division,
    /// As `Promote`, but two integer operands of the division are an error.
    Addcdiv,
    /// As `Promote`, but bools become i64 (`square`, which is a power).
    BoolToInt,
    /// f64, for computing and for the result.
    Double,
    /// Computes in the promoted dtype; the result is b8.
    Compare,
    /// Operands are converted to bool; the result is b8.
    Logical,
    /// Computes in the dtype of the operand; the result is b8 (`isnan`).
    Predicate,
    /// The dtype given by the `dtype` parameter, else that of the first tensor, else f32.
    Given,
    /// As `Given`, but without a `dtype` the category of the numbers decides: f32, i64 or b8.
    GivenByValue,
    /// The dtype of the first tensor.
    First,
    /// The dtype that all tensors share, which must be a float; otherwise it is an error of this kernel.
    Same(&'static str),
}

/// A pointwise op instantiated for given types.
#[derive(Clone, Debug)]
pub(crate) struct PointwiseCall {
    /// The expression, with its casts; argument `n` is `operands[n]`.
    pub expr: ScalarExpr,
    /// For each argument of the expression, the parameter that provides it. It is always a tensor; numbers became
    /// constants.
    pub operands: Vec<usize>,
    /// The result's type.
    pub out: TensorType,
}

/// How a reduction combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Sum, from 0.
    Sum,
    /// Product, from 1.
    Prod,
    /// Maximum, from the lowest value; NaN wins.
    Max,
    /// Minimum, from the highest value; NaN wins.
    Min,
    /// Logical or.
    Any,
    /// Logical and.
    All,
}

/// A reduction: `out[o] = post(combine over the reduced dims of pre(x[o, r]))`.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// The parameter that holds the tensor.
    pub operand: usize,
    /// The reduced dims, sorted, counted from the front.
    pub dims: Vec<usize>,
    /// Whether the reduced dims are kept, with size 1.
    pub keepdim: bool,
    /// The combining operation.
    pub combine: Combine,
    /// Applied before combining: one argument (of the operand's dtype), one root (of the accumulator's dtype).
    pub pre: ScalarExpr,
    /// Applied after combining: one argument (of the accumulator's dtype), one root (of the result's dtype).
    pub post: ScalarExpr,
    /// The accumulator's dtype.
    pub acc: DType,
    /// The result's type.
    pub out: TensorType,
}

/// A view: each result element is an element of the operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The parameter that holds the tensor.
    pub operand: usize,
    /// The operand's element for each element of the result.
    pub map: IndexMap,
    /// The result's shape.
    pub shape: Vec<usize>,
}

/// Maps each element of a view's result to an element of its operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexMap {
    /// The element at the same row-major position.
    Reshape,
    /// An index per dim of the operand: `offset + Σ coefficient * out_index[dim]`. Covers permute, expand, slice,
    /// select, flip, diagonal, unfold.
    Affine(Vec<AffineIndex>),
    /// Strides over the operand's storage: `offset + Σ out_index[d] * strides[d]` (`as_strided`).
    Strided {
        /// The position of the first element; if absent, that of the operand.
        offset: Option<i64>,
        /// One stride per dim of the result.
        strides: Vec<i64>,
    },
}

/// An index into one dim of a view's operand.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AffineIndex {
    /// Constant part.
    pub offset: i64,
    /// Pairs of a result dim and its coefficient.
    pub terms: Vec<(usize, i64)>,
}

/// A value within a decomposition: an opaque id and its type.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The id that the builder assigned.
    pub id: u32,
    /// Its type.
    pub ty: TensorType,
}

/// The role of a value in the computation of a softmax. Only the decomposition knows it, and compiled code is faster
/// with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftmaxPart {
    /// `exp(x - m)` with `m` the maximum of the row: the exponent is never positive, and the value will be divided by
    /// the row's sum.
    Exponential,
    /// An exponential divided by the sum of its row.
    Share,
}

/// The target of a decomposition: a graph, an evaluator, or a type computation.
pub trait Build {
    /// Applies a row (of the table, or registered) to arguments in parameter order. Omitted trailing parameters take
    /// their defaults.
    fn call_row(&mut self, op: &'static Op, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>>;

    /// [`Build::call_row`] for a row of the table.
    fn call(&mut self, op: OpId, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>> {
        self.call_row(op.op(), args)
    }

    /// Tells the builder the role of a value in a softmax; builders may ignore it.
    fn note_softmax(&mut self, _value: &Traced, _part: SoftmaxPart) {}
}

impl dyn Build + '_ {
    /// [`Build::call`] for an op with one tensor as its result.
    pub fn op(&mut self, op: OpId, args: impl Into<Vec<Val<Traced>>>) -> OpResult<Traced> {
        match self.call(op, args.into())? {
            Val::Leaf(t) => Ok(t),
            // So is an operand of a parameter that takes values of any kind.
            Val::Unknown => Err(OpError::new(
                Code::E0304,
                format!("the type of the result of `{op}` is unknown"),
            )),
            v => panic!("`{op}` in a decomposition returns a {}", v.kind_name()),
        }
    }
}

/// A decomposition.
pub(crate) type Decompose = fn(&mut dyn Build, &Call<Traced>) -> OpResult<Val<Traced>>;

impl From<&Traced> for Val<Traced> {
    fn from(t: &Traced) -> Val<Traced> {
        Val::Leaf(t.clone())
    }
}

impl From<Traced> for Val<Traced> {
    fn from(t: Traced) -> Val<Traced> {
        Val::Leaf(t)
    }
}
