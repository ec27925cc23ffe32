//! Scalar expressions: the meaning of pointwise ops.
//!
//! A pointwise op means a scalar expression: `gelu` is `0.5 * x * (1 + erf(x * 0.70710678))`. A [`ScalarExpr`] is that
//! expression as a DAG in SSA form. Every node has a dtype and nothing is implicit: promotion and rounding are casts.
//! Four stages use one expression: the interpreter and the constant folder evaluate it, lowering inlines it into
//! kernels, and the Python emitter prints it.
//!
//! f16 and bf16 occur only as the dtypes of arguments, casts and roots. Arithmetic on them is f32 arithmetic between
//! casts, as in torch.

pub(crate) mod bessel;
mod bessel_tables;
mod eval;
pub(crate) mod functions;
pub(crate) mod incomplete_gamma;
pub(crate) mod math;
mod operation;
pub(crate) mod orthogonal;
mod parse;
pub(crate) mod text;
pub(crate) mod zeta;

#[cfg(test)]
pub(crate) use eval::eval_element;
pub(crate) use eval::{EvalError, eval_tensors};
pub(crate) use operation::ScalarOp;
pub(crate) use operation::lower_case;
pub(crate) use parse::{DTypeSettings, ParsedValue, UntypedNumber, parse};

use crate::tensor::Scalar;
use crate::types::DType;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Functions of one operand. The result has the operand's dtype unless stated otherwise. On integer operands the
/// rounding functions are the identity, [`Unary::Neg`] and [`Unary::Abs`] wrap, and the transcendental functions are
/// not defined (cast first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are torch's")]
pub enum Unary {
    Neg,
    Abs,
    /// -1, 0 or 1; NaN gives 0.
    Sign,
    /// Logical not of a b8.
    Not,
    /// Bitwise not of an integer; logical not of a b8.
    BitNot,
    Floor,
    Ceil,
    /// Rounds half to even.
    Round,
    Trunc,
    Sqrt,
    Rsqrt,
    Recip,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    Erfc,
    /// `exp(x * x) * erfc(x)`.
    Erfcx,
    Erfinv,
    Lgamma,
    Digamma,
    /// Modified Bessel function of the first kind, order 0.
    I0,
    /// `exp(-abs(x)) * i0(x)`.
    I0e,
    /// Modified Bessel function of the first kind, order 1.
    I1,
    /// `exp(-abs(x)) * i1(x)`.
    I1e,
    /// Inverse of the normal distribution function.
    Ndtri,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// b8 result.
    IsNan,
    /// b8 result.
    IsInf,
    /// The sign bit, b8 result.
    SignBit,
}

/// Functions of two operands of the same dtype, which is also the result's. Integers wrap. On b8, `Add`, `Max` and `Or`
/// are logical or; `Mul`, `Min` and `And` are logical and.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are torch's")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// True division, for floats only.
    Div,
    /// Division rounded towards minus infinity (`//`). Integer division by zero is an error, which the caller raises.
    FloorDiv,
    /// Division rounded towards zero.
    TruncDiv,
    /// Remainder with the divisor's sign (`%`).
    Mod,
    /// Remainder with the dividend's sign (C's `fmod`).
    Fmod,
    Pow,
    Atan2,
    /// The larger operand: NaN if either is NaN, and the left operand if they are equal.
    Max,
    /// The smaller operand: NaN if either is NaN, and the left operand if they are equal.
    Min,
    /// The larger operand, or the other one if one is NaN.
    Fmax,
    /// The smaller operand, or the other one if one is NaN.
    Fmin,
    And,
    Or,
    Xor,
    /// Left shift. Counts below 0, or not below the width, give 0.
    Shl,
    /// Right shift, arithmetic for signed types. Counts below 0, or not below the width, give 0 or -1 by the sign.
    Shr,
    Copysign,
    Hypot,
    Nextafter,
    /// Greatest common divisor of the magnitudes, for integers only.
    Gcd,
    /// Hurwitz zeta function, for floats only.
    Zeta,
}

/// Comparisons of two operands of the same dtype. The result is b8. If an operand is NaN, it is false, or true for
/// `Ne`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are torch's")]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Compare {
    /// All comparisons.
    pub const ALL: [Compare; 6] = [
        Compare::Eq,
        Compare::Ne,
        Compare::Lt,
        Compare::Le,
        Compare::Gt,
        Compare::Ge,
    ];

    /// Whether operands in this order compare so. Unordered ones (`None`) only do for `Ne`.
    pub(crate) fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Compare::Eq => order.is_some_and(Ordering::is_eq),
            Compare::Ne => order.is_none_or(Ordering::is_ne),
            Compare::Lt => order.is_some_and(Ordering::is_lt),
            Compare::Le => order.is_some_and(Ordering::is_le),
            Compare::Gt => order.is_some_and(Ordering::is_gt),
            Compare::Ge => order.is_some_and(Ordering::is_ge),
        }
    }

    /// The sign in Python.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Compare::Eq => "==",
            Compare::Ne => "!=",
            Compare::Lt => "<",
            Compare::Le => "<=",
            Compare::Gt => ">",
            Compare::Ge => ">=",
        }
    }
}

/// A value within a [`ScalarExpr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ref(pub u32);

/// The definition of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarNode {
    /// The element of operand `n` at the current index.
    Arg(u32),
    /// The current index along dimension `d` of the output, counted from the last (0 is the innermost), as an i64.
    Index(u32),
    /// An operation on earlier values.
    Op(ScalarOp<Ref>),
}

/// A scalar expression: values in evaluation order (operands before users, equal values merged), and the results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalarExpr {
    nodes: Vec<(ScalarNode, DType)>,
    /// The results, usually one.
    pub roots: Vec<Ref>,
    index: FxHashMap<NodeKey, Ref>,
}

/// A node's bits as a key, so that 0.0 and -0.0 differ and NaN equals itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NodeKey(u8, [u64; 4], DType);

fn node_key(node: &ScalarNode, dtype: DType) -> NodeKey {
    match node {
        ScalarNode::Arg(n) => NodeKey(0, [*n as u64, 0, 0, 0], dtype),
        ScalarNode::Index(n) => NodeKey(1, [*n as u64, 0, 0, 0], dtype),
        ScalarNode::Op(op) => NodeKey(2, op.key(|r| r.0 as u64), dtype),
    }
}

impl ScalarExpr {
    /// An empty expression.
    pub fn new() -> ScalarExpr {
        ScalarExpr::default()
    }

    /// Whether the one result is the first operand itself.
    pub fn is_copy(&self) -> bool {
        matches!(self.roots[..], [r] if matches!(self.node(r), ScalarNode::Arg(0)))
    }

    /// Adds a value, or finds an equal one. Only arguments use `dtype`; other nodes determine their own.
    fn add_node(&mut self, node: ScalarNode, dtype: DType) -> Ref {
        let key = node_key(&node, dtype);
        if let Some(&r) = self.index.get(&key) {
            return r;
        }
        let r = Ref(self.nodes.len() as u32);
        self.nodes.push((node, dtype));
        self.index.insert(key, r);
        r
    }

    /// The element of operand `n`, which has dtype `dtype`.
    pub fn arg(&mut self, n: u32, dtype: DType) -> Ref {
        self.add_node(ScalarNode::Arg(n), dtype)
    }

    /// The index along output dimension `d`, counted from the last, as an i64.
    pub fn out_index(&mut self, d: u32) -> Ref {
        self.add_node(ScalarNode::Index(d), DType::I64)
    }

    /// An operation on values of this expression. Panics if it does not accept their dtypes.
    pub fn op(&mut self, op: ScalarOp<Ref>) -> Ref {
        let d = |r| self.dtype(r);
        match op {
            ScalarOp::Binary(_, x, y) | ScalarOp::Compare(_, x, y) => assert_eq!(d(x), d(y), "operands of {op:?}"),
            ScalarOp::Select(c, x, y) => {
                assert_eq!(d(c), DType::B8, "condition");
                assert_eq!(d(x), d(y), "alternatives");
            }
            ScalarOp::Cast(to, x) if d(x) == to => return x,
            _ => {}
        }
        let dtype = op.result_dtype(d);
        self.add_node(ScalarNode::Op(op), dtype)
    }

    /// A constant.
    pub fn constant(&mut self, v: Scalar) -> Ref {
        self.op(ScalarOp::Const(v))
    }

    /// `op(x)`.
    pub fn unary(&mut self, op: Unary, x: Ref) -> Ref {
        self.op(ScalarOp::Unary(op, x))
    }

    /// `op(x, y)`. Panics if the dtypes differ.
    pub fn binary(&mut self, op: Binary, x: Ref, y: Ref) -> Ref {
        self.op(ScalarOp::Binary(op, x, y))
    }

    /// `x op y` as a b8. Panics if the dtypes differ.
    pub fn compare(&mut self, op: Compare, x: Ref, y: Ref) -> Ref {
        self.op(ScalarOp::Compare(op, x, y))
    }

    /// `x * y + z`.
    pub fn fma(&mut self, x: Ref, y: Ref, z: Ref) -> Ref {
        self.op(ScalarOp::Fma(x, y, z))
    }

    /// `c ? x : y`. Panics unless `c` is b8 and the others have the same dtype.
    pub fn select(&mut self, c: Ref, x: Ref, y: Ref) -> Ref {
        self.op(ScalarOp::Select(c, x, y))
    }

    /// `x` converted to `to`; `x` itself if it has that dtype.
    pub fn cast(&mut self, to: DType, x: Ref) -> Ref {
        self.op(ScalarOp::Cast(to, x))
    }

    /// The definition of `r`.
    pub fn node(&self, r: Ref) -> ScalarNode {
        self.nodes[r.0 as usize].0
    }

    /// The dtype of `r`.
    pub fn dtype(&self, r: Ref) -> DType {
        self.nodes[r.0 as usize].1
    }

    /// All values in evaluation order.
    pub fn nodes(&self) -> impl Iterator<Item = (Ref, ScalarNode, DType)> {
        self.nodes.iter().enumerate().map(|(i, &(n, d))| (Ref(i as u32), n, d))
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the expression has no values.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Copies `other` into this expression with its arguments replaced by `args`, and returns its roots here. `args`
    /// are values of this expression with the arguments' dtypes. Fusion composes expressions this way.
    pub fn inline(&mut self, other: &ScalarExpr, args: &[Ref]) -> Vec<Ref> {
        let mut map: Vec<Ref> = Vec::with_capacity(other.len());
        for (_, node, dtype) in other.nodes() {
            let m = |r: Ref| map[r.0 as usize];
            let new = match node {
                ScalarNode::Arg(n) => {
                    assert_eq!(self.dtype(args[n as usize]), dtype, "operand {n}");
                    args[n as usize]
                }
                ScalarNode::Index(_) => self.add_node(node, dtype),
                ScalarNode::Op(op) => self.op(op.map(m)),
            };
            map.push(new);
        }
        other.roots.iter().map(|r| map[r.0 as usize]).collect()
    }
}
