//! What ops mean, in the few forms that every later stage understands.

use super::call::{Call, OpResult};
use super::contraction::Contraction;
use super::{Op, OpId};
use crate::control::Control;
use crate::scalar::ScalarExpr;
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType, Val};

/// What an op computes: exactly one of these.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// `out[i] = expr(a[i], b[i], …)` with broadcasting.
    Pointwise(Pointwise),
    /// A combination of the elements along some dimensions.
    Reduce(fn(&Call<TensorType>) -> OpResult<Reduction>),
    /// The same elements at other places; nothing is computed.
    View(fn(&Call<TensorType>) -> OpResult<View>),
    /// Other ops.
    Decompose(Decompose),
    /// A matrix product or convolution.
    Contract(fn(&Call<TensorType>) -> OpResult<Contraction>),
    /// A computation on whole tensors, written out in Rust.
    Routine(fn(&Call<Tensor>) -> OpResult<Val<Tensor>>),
    /// Calls of the graphs among the arguments.
    Control(Control),
    /// No tensor is computed: the type rule already gives the value (sizes, dtypes, Python arithmetic on them).
    Host,
}

/// A pointwise meaning: a scalar expression over the parameters that hold tensors or numbers.
///
/// `Tensor` parameters take part in promotion, also where a number stands for the tensor; `Scalar`, `int` and `float`
/// parameters are constants. Parameters called `condition` and `mask` are b8 and promote nothing.
#[derive(Clone, Copy)]
pub struct Pointwise {
    /// How the operands' dtypes decide the dtype of computing and of the result.
    pub dtypes: DtypeRule,
    /// The result's shape.
    pub shape: ShapeRule,
    /// The expression.
    pub expr: ExprText,
    /// In f16 and bf16, numbers and 0-d tensors given for `Tensor` parameters keep f32 precision. Otherwise they are
    /// rounded to the dtype first. (torch does one or the other, op by op.)
    pub wide_numbers: bool,
}

/// Where a scalar expression's text comes from. The language is that of [`scalar::parse`](crate::scalar::parse) over
/// the parameters' names.
#[derive(Clone, Copy)]
pub enum ExprText {
    /// Always this one.
    Fixed(&'static str),
    /// Depending on the arguments (a mode, an optional bound, a dtype).
    By(fn(&Call<TensorType>) -> OpResult<&'static str>),
}

/// A pointwise op's shape.
#[derive(Clone, Copy)]
pub enum ShapeRule {
    /// The broadcast of the tensors' shapes.
    Broadcast,
    /// What this says (creation ops).
    By(fn(&Call<TensorType>) -> OpResult<Vec<Dim>>),
}

/// How a pointwise op's dtypes follow from its operands'. The strings are what torch says when it refuses: a kernel's
/// name, which becomes `"NAME" not implemented for 'Long'`, or a whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtypeRule {
    /// Compute in and give the promoted dtype.
    Promote,
    /// The same, but integers and bools become f32 first.
    PromoteFloat,
    /// The same as `PromoteFloat`; f16 and bf16 are an error of this kernel.
    WideFloat(&'static str),
    /// The same as `Promote`; integer and bool operands are an error of this kernel.
    FloatOnly(&'static str),
    /// The same as `Promote`; bool is an error of this kernel.
    NoBool(&'static str),
    /// The same as `Promote`; a bool result is an error with this message.
    NoBoolMessage(&'static str),
    /// Subtraction: bool operands are an error, with one message for two and another for one of them.
    Subtract,
    /// The same as `Promote`; floats are an error of this kernel.
    IntOrBool(&'static str),
    /// The same as `Promote`; floats and bools are an error of this kernel.
    IntOnly(&'static str),
    /// True division (`PromoteFloat`), or with a `rounding_mode` as `NoBool`.
    Division,
    /// `Promote`, but two integer divisors are an error.
    Addcdiv,
    /// `Promote`, but bools become i64 (`square`, which is a power).
    BoolToInt,
    /// Compute in and give f64.
    Double,
    /// Compute in the promoted dtype, give b8.
    Compare,
    /// Operands become bools; gives b8.
    Logical,
    /// Compute in the dtype of the operand, give b8 (`isnan`).
    Predicate,
    /// Compute in and give what the `dtype` parameter says; without one, the dtype of the first tensor; without one,
    /// f32.
    Given,
    /// The same, but without a `dtype` the category of the numbers decides: f32, i64 or b8.
    GivenByValue,
    /// Compute in and give the dtype of the first tensor.
    First,
    /// Compute in and give the one dtype of all tensors, which must be a float (an error of this kernel) and the same.
    Same(&'static str),
}

/// A pointwise op made concrete for given types.
#[derive(Clone, Debug)]
pub struct PointwiseCall {
    /// The expression, with its casts; argument `n` is `operands[n]`.
    pub expr: ScalarExpr,
    /// For each argument of the expression, the parameter that gives it (always a tensor; numbers became constants).
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
    /// Maximum; NaN wins; from the lowest value.
    Max,
    /// Minimum; NaN wins; from the highest value.
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
    /// The dims reduced, sorted, counted from the front.
    pub dims: Vec<usize>,
    /// Whether the reduced dims stay with size 1.
    pub keepdim: bool,
    /// How to combine.
    pub combine: Combine,
    /// Before combining: one argument (the operand's dtype), one root (the accumulator's dtype).
    pub pre: ScalarExpr,
    /// After combining: one argument (the accumulator's dtype), one root (the result's dtype).
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
    /// Which element.
    pub map: IndexMap,
    /// The result's shape.
    pub shape: Vec<usize>,
}

/// Which element of a view's operand an element of the result is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexMap {
    /// The element at the same row-major position.
    Reshape,
    /// Per operand dimension: `offset + Σ coefficient * out_index[dim]`. Covers permute, expand, slice, select, flip,
    /// diagonal, unfold.
    Affine(Vec<AffineIndex>),
    /// Strides over the operand's storage: `offset + Σ out_index[d] * strides[d]` (`as_strided`).
    Strided {
        /// The first element; the operand's own where it is not given.
        offset: Option<i64>,
        /// One stride per result dimension.
        strides: Vec<i64>,
    },
}

/// An index into one dimension of a view's operand.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AffineIndex {
    /// Constant part.
    pub offset: i64,
    /// `(result dimension, coefficient)`.
    pub terms: Vec<(usize, i64)>,
}

/// A value within a decomposition: an opaque id and its type.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The builder's own number for it.
    pub id: u32,
    /// Its type.
    pub ty: TensorType,
}

/// What a value is to the softmax that computes it. Only who writes the softmax knows, and compiled code gains by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftmaxPart {
    /// `exp(x - m)`, with `m` the largest `x` of the row: of nothing above zero, and to be divided by the row's sum.
    Exponential,
    /// An exponential over the sum of its row.
    Share,
}

/// What a decomposition writes to: a graph, an evaluator, or only types.
pub trait Build {
    /// Applies a row, of the table or registered, to arguments in parameter order; trailing parameters that are left
    /// out take their defaults.
    fn call_row(&mut self, op: &'static Op, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>>;

    /// [`Build::call_row`] for a row of the table.
    fn call(&mut self, op: OpId, args: Vec<Val<Traced>>) -> OpResult<Val<Traced>> {
        self.call_row(op.op(), args)
    }

    /// Says what a value is to a softmax, to a builder that can use it.
    fn note_softmax(&mut self, _value: &Traced, _part: SoftmaxPart) {}
}

impl dyn Build + '_ {
    /// [`Build::call`] for an op with one tensor as its result.
    pub fn op(&mut self, op: OpId, args: impl Into<Vec<Val<Traced>>>) -> OpResult<Traced> {
        match self.call(op, args.into())? {
            Val::Leaf(t) => Ok(t),
            v => panic!("`{op}` in a decomposition gives a {}", v.kind_name()),
        }
    }
}

/// A decomposition.
pub type Decompose = fn(&mut dyn Build, &Call<Traced>) -> OpResult<Val<Traced>>;

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
