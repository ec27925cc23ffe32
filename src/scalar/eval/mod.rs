//! The evaluator of scalar expressions. It evaluates node by node over blocks of elements, so that the cost of
//! dispatching on a node is paid once per block.
//!
//! This is the reference for the meaning of a [`ScalarExpr`]: f32 arithmetic is done in f32, integers wrap, and casts
//! are torch's.

mod lanes;
mod walk;

pub(crate) use walk::eval_tensors;

use super::{Ref, ScalarExpr, ScalarNode, ScalarOp};
use crate::tensor::Scalar;
use crate::types::{Category, DType};
use lanes::{eval_binary, eval_cast, eval_compare, eval_fma, eval_select, eval_unary};
use std::fmt;

/// The reason why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvalError {
    /// An integer division or remainder by zero.
    ZeroDivision,
    /// A function that is not defined for its operand's dtype (the sine of an integer).
    Undefined(String, DType),
    /// The result would not fit in memory.
    TooLarge,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // torch's error message.
            EvalError::ZeroDivision => f.write_str("ZeroDivisionError"),
            EvalError::Undefined(op, d) => write!(f, "`{op}` is not defined for {d}"),
            EvalError::TooLarge => f.write_str("the result's size in bytes overflows"),
        }
    }
}

/// The values of one node over a block. Integers of every width are stored as i64, f16 and bf16 as f32.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub(super) enum Lane {
    F64(Vec<f64>),
    F32(Vec<f32>),
    Int(Vec<i64>),
    Bool(Vec<bool>),
}

impl Default for Lane {
    fn default() -> Lane {
        Lane::Bool(vec![])
    }
}

impl Lane {
    /// An empty lane for values of `dtype`.
    pub(super) fn for_dtype(dtype: DType) -> Lane {
        match dtype.category() {
            Category::Bool => Lane::Bool(vec![]),
            Category::Int => Lane::Int(vec![]),
            _ if dtype == DType::F64 => Lane::F64(vec![]),
            _ => Lane::F32(vec![]),
        }
    }

    /// Fills this with `n` copies of `v`. The kinds must agree.
    pub(super) fn fill(&mut self, v: Scalar, n: usize) {
        fn fill_vec<T: Clone>(l: &mut Vec<T>, v: T, n: usize) {
            l.clear();
            l.resize(n, v);
        }
        match (self, v) {
            (Lane::F64(l), Scalar::F64(x)) => fill_vec(l, x, n),
            (Lane::F32(l), Scalar::F32(x) | Scalar::Half(_, x)) => fill_vec(l, x, n),
            (Lane::Int(l), Scalar::Int(_, x)) => fill_vec(l, x, n),
            (Lane::Bool(l), Scalar::Bool(x)) => fill_vec(l, x, n),
            (l, v) => panic!("a {v:?} in a lane of {l:?}"),
        }
    }

    #[cfg(test)]
    /// Value `i` as a scalar of `dtype`, which must be a dtype of this lane's kind.
    pub(super) fn get(&self, dtype: DType, i: usize) -> Scalar {
        match self {
            Lane::F64(l) => Scalar::F64(l[i]),
            Lane::F32(l) if dtype == DType::F32 => Scalar::F32(l[i]),
            Lane::F32(l) => Scalar::Half(dtype, l[i]),
            Lane::Int(l) => Scalar::Int(dtype, l[i]),
            Lane::Bool(l) => Scalar::Bool(l[i]),
        }
    }

    fn f64_mut(&mut self) -> &mut Vec<f64> {
        match self {
            Lane::F64(v) => v,
            l => panic!("an f64 lane, not {l:?}"),
        }
    }

    fn f32_mut(&mut self) -> &mut Vec<f32> {
        match self {
            Lane::F32(v) => v,
            l => panic!("an f32 lane, not {l:?}"),
        }
    }

    fn int_mut(&mut self) -> &mut Vec<i64> {
        match self {
            Lane::Int(v) => v,
            l => panic!("an integer lane, not {l:?}"),
        }
    }

    fn bool_mut(&mut self) -> &mut Vec<bool> {
        match self {
            Lane::Bool(v) => v,
            l => panic!("a b8 lane, not {l:?}"),
        }
    }
}

/// The inputs that the evaluation of a block requests from its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneSource {
    /// The elements of operand `n`.
    Arg(u32),
    /// The indices along output dimension `d`, counted from the last.
    Index(u32),
}

/// An expression with storage for the values of a block.
pub(super) struct BlockEvaluator<'e> {
    expr: &'e ScalarExpr,
    lanes: Vec<Lane>,
}

impl<'e> BlockEvaluator<'e> {
    /// An evaluator of `expr`.
    pub(super) fn new(expr: &'e ScalarExpr) -> BlockEvaluator<'e> {
        let lanes = expr.nodes().map(|(_, _, d)| Lane::for_dtype(d)).collect();
        BlockEvaluator { expr, lanes }
    }

    /// Evaluates every node over `n` elements. `load` fills a lane with the values of an argument or index.
    pub(super) fn run(&mut self, n: usize, load: &mut dyn FnMut(LaneSource, &mut Lane)) -> Result<(), EvalError> {
        for (r, node, dtype) in self.expr.nodes() {
            let mut out = std::mem::take(&mut self.lanes[r.0 as usize]);
            match node {
                ScalarNode::Arg(k) => load(LaneSource::Arg(k), &mut out),
                ScalarNode::Index(d) => load(LaneSource::Index(d), &mut out),
                ScalarNode::Op(op) => self.apply(op, dtype, n, &mut out)?,
            }
            self.lanes[r.0 as usize] = out;
        }
        Ok(())
    }

    fn apply(&self, op: ScalarOp<Ref>, dtype: DType, n: usize, out: &mut Lane) -> Result<(), EvalError> {
        match op.map(|r| (r, self.lane(r))) {
            ScalarOp::Const(v) => out.fill(v, n),
            ScalarOp::Unary(op, (r, x)) => eval_unary(op, self.expr.dtype(r), x, out)?,
            ScalarOp::Binary(op, (_, x), (_, y)) => eval_binary(op, dtype, x, y, out)?,
            ScalarOp::Compare(op, (_, x), (_, y)) => eval_compare(op, x, y, out.bool_mut()),
            ScalarOp::Fma((_, x), (_, y), (_, z)) => eval_fma(dtype, x, y, z, out)?,
            ScalarOp::Select((_, c), (_, x), (_, y)) => eval_select(c, x, y, out),
            ScalarOp::Cast(to, (_, x)) => eval_cast(to, x, out),
        }
        Ok(())
    }

    /// The values of `r` in the last block.
    pub(super) fn lane(&self, r: Ref) -> &Lane {
        &self.lanes[r.0 as usize]
    }
}

#[cfg(test)]
/// The results of `expr` for one element of each operand, at the output index `index` (outermost first).
pub(crate) fn eval_element(expr: &ScalarExpr, args: &[Scalar], index: &[i64]) -> Result<Vec<Scalar>, EvalError> {
    let mut e = BlockEvaluator::new(expr);
    e.run(1, &mut |source, lane| match source {
        LaneSource::Arg(k) => lane.fill(args[k as usize], 1),
        LaneSource::Index(d) => lane.fill(Scalar::Int(DType::I64, at_index(index, d)), 1),
    })?;
    let roots = expr.roots.iter();
    Ok(roots.map(|&r| e.lane(r).get(expr.dtype(r), 0)).collect())
}

#[cfg(test)]
fn at_index(index: &[i64], d: u32) -> i64 {
    index.len().checked_sub(1 + d as usize).map_or(0, |i| index[i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Binary;
    use crate::tensor::Tensor;

    #[test]
    fn broadcasts_over_block_borders() {
        let (rows, cols) = (37, 91);
        let a: Vec<f32> = (0..cols).map(|i| i as f32).collect();
        let b: Vec<i32> = (0..rows).collect();
        let (a, b) = (
            Tensor::from_slice(&[cols], &a),
            Tensor::from_slice(&[rows as usize, 1], &b),
        );
        let mut e = ScalarExpr::new();
        let x = e.arg(0, DType::F32);
        let y = e.arg(1, DType::I32);
        let y = e.cast(DType::F32, y);
        let (sum, col) = (e.binary(Binary::Add, x, y), e.out_index(0));
        e.roots = vec![sum, col];
        let out = eval_tensors(&e, &[&a, &b], &[rows as usize, cols]).expect("evaluates");
        for i in 0..rows as usize * cols {
            assert_eq!(out[0].as_slice::<f32>()[i], (i % cols + i / cols) as f32);
            assert_eq!(out[1].as_slice::<i64>()[i], (i % cols) as i64);
        }
    }

    fn int(dtype: DType, op: Binary, a: i64, b: i64) -> Result<i64, EvalError> {
        let mut e = ScalarExpr::new();
        let (x, y) = (e.arg(0, dtype), e.arg(1, dtype));
        let r = e.binary(op, x, y);
        e.roots = vec![r];
        eval_element(&e, &[Scalar::Int(dtype, a), Scalar::Int(dtype, b)], &[]).map(|r| r[0].to_i64())
    }

    #[test]
    fn integers_wrap_shift_and_divide_as_torch_does() {
        use DType::*;
        for (d, op, a, b, want) in [
            (I8, Binary::Add, 127, 1, -128),
            (U8, Binary::Sub, 0, 1, 255),
            (I64, Binary::Mul, i64::MAX, 2, -2),
            (I64, Binary::Shl, 1, 64, 0),
            (I64, Binary::Shl, 1, -1, 0),
            (I64, Binary::Shr, -5, 64, -1),
            (I8, Binary::Shl, 1, 7, -128),
            (I32, Binary::FloorDiv, -7, 2, -4),
            (I32, Binary::TruncDiv, -7, 2, -3),
            (I32, Binary::Mod, -7, 3, 2),
            (I32, Binary::Fmod, -7, 3, -1),
            (I64, Binary::FloorDiv, i64::MIN, -1, i64::MIN),
            (I64, Binary::Pow, 2, -1, 0),
            (I64, Binary::Pow, -1, -3, -1),
            (I64, Binary::Gcd, -12, 18, 6),
            (I64, Binary::Gcd, i64::MAX, i64::MIN, -1),
            (I64, Binary::Gcd, i64::MIN, 6, -2),
            (I64, Binary::Gcd, i64::MIN, 0, i64::MIN),
        ] {
            assert_eq!(int(d, op, a, b), Ok(want), "{a} {op:?} {b}");
        }
        assert_eq!(int(I64, Binary::Mod, 1, 0), Err(EvalError::ZeroDivision));
        assert!(matches!(int(I64, Binary::Hypot, 1, 1), Err(EvalError::Undefined(..))));
    }

    #[test]
    fn casts_agree_with_single_scalars() {
        let values = [
            0.0f32,
            -0.0,
            1.5,
            -2.9,
            300.0,
            -1.0,
            70000.0,
            3e9,
            f32::NAN,
            f32::INFINITY,
            -1e30,
            1e-30,
        ];
        for to in DType::COMPUTED {
            let mut e = ScalarExpr::new();
            let x = e.arg(0, DType::F32);
            let r = e.cast(to, x);
            e.roots = vec![r];
            let t = Tensor::from_slice(&[values.len()], &values);
            let out = &eval_tensors(&e, &[&t], t.shape()).expect("evaluates")[0];
            for (i, v) in values.iter().enumerate() {
                let want = Tensor::from_scalars(to, &[], &[Scalar::F32(*v)]).get(0);
                assert_eq!(format!("{:?}", out.get(i)), format!("{want:?}"), "{v} to {to}");
            }
        }
    }
}
