//! Evaluation of scalar expressions: node by node over blocks of elements, so that the cost of looking at a node is paid
//! once per block.
//!
//! This is the reference for what an [`Expr`] means: f32 arithmetic is done in f32, integers wrap, casts are torch's.

use super::math::{self, f32_binary, f32_unary, f64_binary, f64_unary};
use super::{Binary, Compare, Expr, Node, Ref, Unary};
use crate::tensor::{Scalar, Tensor, byte_len, contiguous_strides};
use crate::types::{Category, DType};
use half::{bf16, f16};
use std::fmt;

/// Elements evaluated at a time: a dozen values of this many f64 fit the first-level caches.
const BLOCK: usize = 1024;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvalError {
    /// An integer division or remainder by zero.
    ZeroDivision,
    /// A function that its operand's dtype does not have (a sine of an integer).
    Undefined(String, DType),
    /// The result would be larger than memory can be.
    TooLarge,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // torch's own text.
            EvalError::ZeroDivision => f.write_str("ZeroDivisionError"),
            EvalError::Undefined(op, d) => write!(f, "`{op}` of {d} is not defined"),
            EvalError::TooLarge => f.write_str("the result's size in bytes overflows"),
        }
    }
}

/// The values of one node over a block. Integers of every width are held as i64, f16 and bf16 as f32.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Lane {
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
    pub fn of(dtype: DType) -> Lane {
        match dtype.category() {
            Category::Bool => Lane::Bool(vec![]),
            Category::Int => Lane::Int(vec![]),
            _ if dtype == DType::F64 => Lane::F64(vec![]),
            _ => Lane::F32(vec![]),
        }
    }

    /// Makes this `n` times `v`. The kinds must agree.
    pub fn fill(&mut self, v: Scalar, n: usize) {
        fn set<T: Clone>(l: &mut Vec<T>, v: T, n: usize) {
            l.clear();
            l.resize(n, v);
        }
        match (self, v) {
            (Lane::F64(l), Scalar::F64(x)) => set(l, x, n),
            (Lane::F32(l), Scalar::F32(x) | Scalar::Half(_, x)) => set(l, x, n),
            (Lane::Int(l), Scalar::Int(_, x)) => set(l, x, n),
            (Lane::Bool(l), Scalar::Bool(x)) => set(l, x, n),
            (l, v) => panic!("a {v:?} in a lane of {l:?}"),
        }
    }

    /// Value `i`, as a scalar of `dtype`, which must be a dtype of this lane's kind.
    pub fn get(&self, dtype: DType, i: usize) -> Scalar {
        match self {
            Lane::F64(l) => Scalar::F64(l[i]),
            Lane::F32(l) if dtype == DType::F32 => Scalar::F32(l[i]),
            Lane::F32(l) => Scalar::Half(dtype, l[i]),
            Lane::Int(l) => Scalar::Int(dtype, l[i]),
            Lane::Bool(l) => Scalar::Bool(l[i]),
        }
    }

    fn f64(&mut self) -> &mut Vec<f64> {
        match self {
            Lane::F64(v) => v,
            l => panic!("an f64 lane, not {l:?}"),
        }
    }

    fn f32(&mut self) -> &mut Vec<f32> {
        match self {
            Lane::F32(v) => v,
            l => panic!("an f32 lane, not {l:?}"),
        }
    }

    fn int(&mut self) -> &mut Vec<i64> {
        match self {
            Lane::Int(v) => v,
            l => panic!("an integer lane, not {l:?}"),
        }
    }

    fn bool(&mut self) -> &mut Vec<bool> {
        match self {
            Lane::Bool(v) => v,
            l => panic!("a b8 lane, not {l:?}"),
        }
    }
}

/// What a block's evaluation asks its caller for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The elements of operand `n`.
    Arg(u32),
    /// The indices along output dimension `d`, counted from the last.
    Index(u32),
}

/// An expression with room for the values of a block.
pub struct Evaluator<'e> {
    expr: &'e Expr,
    lanes: Vec<Lane>,
}

impl<'e> Evaluator<'e> {
    /// An evaluator of `expr`.
    pub fn new(expr: &'e Expr) -> Evaluator<'e> {
        let lanes = expr.nodes().map(|(_, _, d)| Lane::of(d)).collect();
        Evaluator { expr, lanes }
    }

    /// Evaluates every node over `n` elements; `load` fills a lane with the values of an argument or index.
    pub fn run(&mut self, n: usize, load: &mut dyn FnMut(Source, &mut Lane)) -> Result<(), EvalError> {
        for (r, node, dtype) in self.expr.nodes() {
            let mut out = std::mem::take(&mut self.lanes[r.0 as usize]);
            match node {
                Node::Arg(k) => load(Source::Arg(k), &mut out),
                Node::Index(d) => load(Source::Index(d), &mut out),
                Node::Const(v) => out.fill(v, n),
                Node::Unary(op, x) => unary(op, self.expr.dtype(x), self.lane(x), &mut out)?,
                Node::Binary(op, x, y) => binary(op, dtype, self.lane(x), self.lane(y), &mut out)?,
                Node::Compare(op, x, y) => compare(op, self.lane(x), self.lane(y), out.bool()),
                Node::Fma(x, y, z) => fma(dtype, self.lane(x), self.lane(y), self.lane(z), &mut out)?,
                Node::Select(c, x, y) => select(self.lane(c), self.lane(x), self.lane(y), &mut out),
                Node::Cast(to, x) => cast(to, self.lane(x), &mut out),
            }
            self.lanes[r.0 as usize] = out;
        }
        Ok(())
    }

    /// The values of `r` in the last block.
    pub fn lane(&self, r: Ref) -> &Lane {
        &self.lanes[r.0 as usize]
    }
}

fn undefined<T>(op: impl fmt::Debug, dtype: DType) -> Result<T, EvalError> {
    Err(EvalError::Undefined(format!("{op:?}").to_lowercase(), dtype))
}

fn map<T: Copy, U>(x: &[T], out: &mut Vec<U>, f: impl Fn(T) -> U) {
    out.clear();
    out.extend(x.iter().map(|&v| f(v)));
}

fn map2<T: Copy, U>(x: &[T], y: &[T], out: &mut Vec<U>, f: impl Fn(T, T) -> U) {
    out.clear();
    out.extend(x.iter().zip(y).map(|(&a, &b)| f(a, b)));
}

fn unary(op: Unary, dtype: DType, x: &Lane, out: &mut Lane) -> Result<(), EvalError> {
    match x {
        Lane::F64(x) => match op {
            Unary::IsNan => map(x, out.bool(), f64::is_nan),
            Unary::IsInf => map(x, out.bool(), f64::is_infinite),
            Unary::SignBit => map(x, out.bool(), f64::is_sign_negative),
            Unary::Neg => map(x, out.f64(), |v| -v),
            _ => match f64_unary(op) {
                Some(f) => map(x, out.f64(), f),
                None => return undefined(op, dtype),
            },
        },
        Lane::F32(x) => match op {
            Unary::IsNan => map(x, out.bool(), f32::is_nan),
            Unary::IsInf => map(x, out.bool(), f32::is_infinite),
            Unary::SignBit => map(x, out.bool(), f32::is_sign_negative),
            Unary::Neg => map(x, out.f32(), |v| -v),
            Unary::Abs => map(x, out.f32(), f32::abs),
            Unary::Recip => map(x, out.f32(), |v| 1.0 / v),
            Unary::Rsqrt => map(x, out.f32(), |v| 1.0 / v.sqrt()),
            _ => match f32_unary(op) {
                Some(f) => map(x, out.f32(), f),
                None => return undefined(op, dtype),
            },
        },
        Lane::Int(x) => match op {
            Unary::IsNan | Unary::IsInf => map(x, out.bool(), |_| false),
            Unary::SignBit => map(x, out.bool(), |v| v < 0),
            _ => {
                let f: fn(i64) -> i64 = match op {
                    Unary::Neg => i64::wrapping_neg,
                    Unary::Abs => i64::wrapping_abs,
                    Unary::Sign => i64::signum,
                    Unary::BitNot => |v| !v,
                    Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => |v| v,
                    _ => return undefined(op, dtype),
                };
                map(x, out.int(), |v| wrap(dtype, f(v)));
            }
        },
        Lane::Bool(x) => match op {
            Unary::Not | Unary::BitNot => map(x, out.bool(), |v| !v),
            Unary::IsNan | Unary::IsInf | Unary::SignBit => map(x, out.bool(), |_| false),
            Unary::Abs | Unary::Sign => map(x, out.bool(), |v| v),
            _ => return undefined(op, dtype),
        },
    }
    Ok(())
}

/// `v` wrapped to the width of the integer type `dtype`.
fn wrap(dtype: DType, v: i64) -> i64 {
    match dtype {
        DType::I32 => v as i32 as i64,
        DType::I16 => v as i16 as i64,
        DType::I8 => v as i8 as i64,
        DType::U8 => v as u8 as i64,
        _ => v,
    }
}

fn binary(op: Binary, dtype: DType, x: &Lane, y: &Lane, out: &mut Lane) -> Result<(), EvalError> {
    match (x, y) {
        (Lane::F64(x), Lane::F64(y)) => match (op, f64_binary(op)) {
            (Binary::Add, _) => map2(x, y, out.f64(), |a, b| a + b),
            (Binary::Sub, _) => map2(x, y, out.f64(), |a, b| a - b),
            (Binary::Mul, _) => map2(x, y, out.f64(), |a, b| a * b),
            (_, Some(f)) => map2(x, y, out.f64(), f),
            _ => return undefined(op, dtype),
        },
        (Lane::F32(x), Lane::F32(y)) => match (op, f32_binary(op)) {
            (Binary::Add, _) => map2(x, y, out.f32(), |a, b| a + b),
            (Binary::Sub, _) => map2(x, y, out.f32(), |a, b| a - b),
            (Binary::Mul, _) => map2(x, y, out.f32(), |a, b| a * b),
            (Binary::Div, _) => map2(x, y, out.f32(), |a, b| a / b),
            (_, Some(f)) => map2(x, y, out.f32(), f),
            _ => return undefined(op, dtype),
        },
        (Lane::Int(x), Lane::Int(y)) => {
            let divides = matches!(op, Binary::FloorDiv | Binary::TruncDiv | Binary::Mod | Binary::Fmod);
            if divides && y.contains(&0) {
                return Err(EvalError::ZeroDivision);
            }
            let Some(f) = int_binary(op) else {
                return undefined(op, dtype);
            };
            let bits = dtype.size() as i64 * 8;
            match op {
                Binary::Shl => map2(x, y, out.int(), |a, n| wrap(dtype, shl(a, n, bits))),
                Binary::Shr => map2(x, y, out.int(), |a, n| shr(a, n, bits)),
                _ => map2(x, y, out.int(), |a, b| wrap(dtype, f(a, b))),
            }
        }
        (Lane::Bool(x), Lane::Bool(y)) => {
            use Binary::*;
            let f: fn(bool, bool) -> bool = match op {
                Add | Max | Or => |a, b| a || b,
                Mul | Min | And => |a, b| a && b,
                Xor => |a, b| a != b,
                _ => return undefined(op, dtype),
            };
            map2(x, y, out.bool(), f);
        }
        _ => panic!("operands of {op:?} of different dtypes"),
    }
    Ok(())
}

fn int_binary(op: Binary) -> Option<fn(i64, i64) -> i64> {
    Some(match op {
        Binary::Add => i64::wrapping_add,
        Binary::Sub => i64::wrapping_sub,
        Binary::Mul => i64::wrapping_mul,
        Binary::FloorDiv => |a, b| {
            let q = a.wrapping_div(b);
            q - (a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)) as i64
        },
        Binary::TruncDiv => i64::wrapping_div,
        Binary::Mod => |a, b| {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        },
        Binary::Fmod => i64::wrapping_rem,
        Binary::Pow => pow_int,
        Binary::Max | Binary::Fmax => i64::max,
        Binary::Min | Binary::Fmin => i64::min,
        Binary::And => |a, b| a & b,
        Binary::Or => |a, b| a | b,
        Binary::Xor => |a, b| a ^ b,
        Binary::Gcd => math::gcd,
        // Need the width; the caller has it.
        Binary::Shl | Binary::Shr => |a, _| a,
        Binary::Div | Binary::Atan2 | Binary::Copysign | Binary::Hypot | Binary::Nextafter | Binary::Zeta => {
            return None;
        }
    })
}

fn shl(a: i64, n: i64, bits: i64) -> i64 {
    if (0..bits).contains(&n) { a << n } else { 0 }
}

fn shr(a: i64, n: i64, bits: i64) -> i64 {
    a >> if (0..bits).contains(&n) { n } else { 63 }
}

/// torch's `powi`: wraps; a negative exponent gives 0 but for the bases 1 and -1.
fn pow_int(base: i64, exp: i64) -> i64 {
    if exp < 0 {
        return match base {
            1 => 1,
            -1 if exp % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut base, mut exp, mut out) = (base, exp, 1i64);
    while exp > 0 {
        if exp & 1 == 1 {
            out = out.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exp >>= 1;
    }
    out
}

fn compare(op: Compare, x: &Lane, y: &Lane, out: &mut Vec<bool>) {
    fn go<T: PartialOrd + Copy>(op: Compare, x: &[T], y: &[T], out: &mut Vec<bool>) {
        match op {
            Compare::Eq => map2(x, y, out, |a, b| a == b),
            Compare::Ne => map2(x, y, out, |a, b| a != b),
            Compare::Lt => map2(x, y, out, |a, b| a < b),
            Compare::Le => map2(x, y, out, |a, b| a <= b),
            Compare::Gt => map2(x, y, out, |a, b| a > b),
            Compare::Ge => map2(x, y, out, |a, b| a >= b),
        }
    }
    match (x, y) {
        (Lane::F64(x), Lane::F64(y)) => go(op, x, y, out),
        (Lane::F32(x), Lane::F32(y)) => go(op, x, y, out),
        (Lane::Int(x), Lane::Int(y)) => go(op, x, y, out),
        (Lane::Bool(x), Lane::Bool(y)) => go(op, x, y, out),
        _ => panic!("operands of {op:?} of different dtypes"),
    }
}

fn fma(dtype: DType, x: &Lane, y: &Lane, z: &Lane, out: &mut Lane) -> Result<(), EvalError> {
    fn go<T: Copy>(x: &[T], y: &[T], z: &[T], out: &mut Vec<T>, f: impl Fn(T, T, T) -> T) {
        out.clear();
        out.extend(x.iter().zip(y).zip(z).map(|((&a, &b), &c)| f(a, b, c)));
    }
    match (x, y, z) {
        (Lane::F64(x), Lane::F64(y), Lane::F64(z)) => go(x, y, z, out.f64(), f64::mul_add),
        (Lane::F32(x), Lane::F32(y), Lane::F32(z)) => go(x, y, z, out.f32(), f32::mul_add),
        (Lane::Int(x), Lane::Int(y), Lane::Int(z)) => go(x, y, z, out.int(), |a, b, c| {
            wrap(dtype, a.wrapping_mul(b).wrapping_add(c))
        }),
        _ => return undefined("fma", dtype),
    }
    Ok(())
}

fn select(c: &Lane, x: &Lane, y: &Lane, out: &mut Lane) {
    fn go<T: Copy>(c: &[bool], x: &[T], y: &[T], out: &mut Vec<T>) {
        out.clear();
        out.extend(
            c.iter()
                .zip(x.iter().zip(y))
                .map(|(&c, (&a, &b))| if c { a } else { b }),
        );
    }
    let Lane::Bool(c) = c else {
        panic!("a condition that is not b8")
    };
    match (x, y) {
        (Lane::F64(x), Lane::F64(y)) => go(c, x, y, out.f64()),
        (Lane::F32(x), Lane::F32(y)) => go(c, x, y, out.f32()),
        (Lane::Int(x), Lane::Int(y)) => go(c, x, y, out.int()),
        (Lane::Bool(x), Lane::Bool(y)) => go(c, x, y, out.bool()),
        _ => panic!("alternatives of different dtypes"),
    }
}

/// The same conversions as [`Scalar::cast`].
fn cast(to: DType, x: &Lane, out: &mut Lane) {
    match to {
        DType::F64 => match x {
            Lane::F64(x) => map(x, out.f64(), |v| v),
            Lane::F32(x) => map(x, out.f64(), |v| v as f64),
            Lane::Int(x) => map(x, out.f64(), |v| v as f64),
            Lane::Bool(x) => map(x, out.f64(), |v| v as u8 as f64),
        },
        DType::F32 => cast_f32(x, out.f32(), |v| v),
        DType::F16 => cast_f32(x, out.f32(), |v| f16::from_f32(v).to_f32()),
        DType::BF16 => cast_f32(x, out.f32(), |v| bf16::from_f32(v).to_f32()),
        DType::B8 => match x {
            Lane::F64(x) => map(x, out.bool(), |v| v != 0.0),
            Lane::F32(x) => map(x, out.bool(), |v| v != 0.0),
            Lane::Int(x) => map(x, out.bool(), |v| v != 0),
            Lane::Bool(x) => map(x, out.bool(), |v| v),
        },
        _ => match x {
            Lane::F64(x) => map(x, out.int(), |v| Scalar::F64(v).cast(to).to_i64()),
            Lane::F32(x) => map(x, out.int(), |v| Scalar::F32(v).cast(to).to_i64()),
            Lane::Int(x) => map(x, out.int(), |v| wrap(to, v)),
            Lane::Bool(x) => map(x, out.int(), |v| v as i64),
        },
    }
}

fn cast_f32(x: &Lane, out: &mut Vec<f32>, f: impl Fn(f32) -> f32) {
    match x {
        Lane::F64(x) => map(x, out, |v| f(v as f32)),
        Lane::F32(x) => map(x, out, f),
        Lane::Int(x) => map(x, out, |v| f(v as f32)),
        Lane::Bool(x) => map(x, out, |v| f(v as u8 as f32)),
    }
}

/// The results of `expr` for one element of each operand, at output index `index` (outermost first).
pub fn eval(expr: &Expr, args: &[Scalar], index: &[i64]) -> Result<Vec<Scalar>, EvalError> {
    let mut e = Evaluator::new(expr);
    e.run(1, &mut |source, lane| match source {
        Source::Arg(k) => lane.fill(args[k as usize], 1),
        Source::Index(d) => lane.fill(Scalar::Int(DType::I64, at_index(index, d)), 1),
    })?;
    let roots = expr.roots.iter();
    Ok(roots.map(|&r| e.lane(r).get(expr.dtype(r), 0)).collect())
}

fn at_index(index: &[i64], d: u32) -> i64 {
    index.len().checked_sub(1 + d as usize).map_or(0, |i| index[i])
}

/// The results of `expr` over a whole tensor of `shape`: argument `n` is `operands[n]`, broadcast to it. Panics if an
/// operand's shape does not broadcast or its dtype is not the argument's.
pub fn eval_tensors(expr: &Expr, operands: &[&Tensor], shape: &[usize]) -> Result<Vec<Tensor>, EvalError> {
    for &r in &expr.roots {
        byte_len(expr.dtype(r), shape).ok_or(EvalError::TooLarge)?;
    }
    let roots = expr.roots.iter();
    let mut out: Vec<Tensor> = roots.map(|&r| Tensor::zeros(expr.dtype(r), shape)).collect();
    let total: usize = shape.iter().product();
    let walks: Vec<Walk> = operands.iter().map(|t| Walk::new(t.shape(), shape)).collect();
    let mut e = Evaluator::new(expr);
    let mut start = 0;
    while start < total {
        let n = BLOCK.min(total - start);
        e.run(n, &mut |source, lane| match source {
            Source::Arg(k) => walks[k as usize].load(operands[k as usize], shape, start, n, lane),
            Source::Index(d) => indices(shape, d, start, n, lane.int()),
        })?;
        for (t, &r) in out.iter_mut().zip(&expr.roots) {
            store(e.lane(r), t, start);
        }
        start += n;
    }
    Ok(out)
}

fn indices(shape: &[usize], d: u32, start: usize, n: usize, out: &mut Vec<i64>) {
    let (size, inner) = match shape.len().checked_sub(1 + d as usize) {
        Some(i) => (shape[i], shape[i + 1..].iter().product::<usize>()),
        None => (1, 1),
    };
    out.clear();
    out.extend((start..start + n).map(|i| (i / inner % size) as i64));
}

/// How an operand is walked for a result of another shape.
enum Walk {
    /// Element for element.
    Same,
    /// One element for all.
    One,
    /// By these strides (0 where it stretches), one per dimension of the result.
    Strided(Vec<usize>),
}

impl Walk {
    fn new(operand: &[usize], shape: &[usize]) -> Walk {
        let lead = shape.len().checked_sub(operand.len());
        let lead = lead.unwrap_or_else(|| panic!("{operand:?} does not broadcast to {shape:?}"));
        if operand.iter().all(|&d| d == 1) {
            return Walk::One;
        }
        if operand == &shape[lead..] && shape[..lead].iter().all(|&d| d == 1) {
            return Walk::Same;
        }
        let strides = contiguous_strides(operand);
        let of = |i: usize| {
            let j = i.checked_sub(lead)?;
            assert!(operand[j] == 1 || operand[j] == shape[i], "{operand:?} to {shape:?}");
            (operand[j] != 1).then(|| strides[j])
        };
        Walk::Strided((0..shape.len()).map(|i| of(i).unwrap_or(0)).collect())
    }

    fn load(&self, t: &Tensor, shape: &[usize], start: usize, n: usize, lane: &mut Lane) {
        match self {
            Walk::One => lane.fill(t.get(0), n),
            Walk::Same => gather(t, start..start + n, lane),
            Walk::Strided(strides) => gather(t, positions(shape, strides, start, n).into_iter(), lane),
        }
    }
}

/// The operand's positions for the result's row-major elements `start..start + n`.
fn positions(shape: &[usize], strides: &[usize], start: usize, n: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    let mut rest = start;
    for i in (0..shape.len()).rev() {
        index[i] = rest % shape[i];
        rest /= shape[i];
    }
    let last = shape.len() - 1;
    let mut out = Vec::with_capacity(n);
    while out.len() < n {
        let base: usize = index.iter().zip(strides).map(|(i, s)| i * s).sum();
        let run = (shape[last] - index[last]).min(n - out.len());
        out.extend((0..run).map(|j| base + j * strides[last]));
        index[last] += run;
        for i in (1..=last).rev() {
            if index[i] == shape[i] {
                index[i] = 0;
                index[i - 1] += 1;
            }
        }
    }
    out
}

fn gather(t: &Tensor, at: impl Iterator<Item = usize>, lane: &mut Lane) {
    fn go<T: Copy, U>(x: &[T], at: impl Iterator<Item = usize>, out: &mut Vec<U>, f: impl Fn(T) -> U) {
        out.clear();
        out.extend(at.map(|i| f(x[i])));
    }
    match t.dtype() {
        DType::F64 => go(t.as_slice::<f64>(), at, lane.f64(), |v| v),
        DType::F32 => go(t.as_slice::<f32>(), at, lane.f32(), |v| v),
        DType::F16 => go(t.as_slice::<f16>(), at, lane.f32(), f16::to_f32),
        DType::BF16 => go(t.as_slice::<bf16>(), at, lane.f32(), bf16::to_f32),
        DType::I64 => go(t.as_slice::<i64>(), at, lane.int(), |v| v),
        DType::I32 => go(t.as_slice::<i32>(), at, lane.int(), |v| v as i64),
        DType::I16 => go(t.as_slice::<i16>(), at, lane.int(), |v| v as i64),
        DType::I8 => go(t.as_slice::<i8>(), at, lane.int(), |v| v as i64),
        DType::U8 => go(t.as_slice::<u8>(), at, lane.int(), |v| v as i64),
        DType::B8 => go(t.bytes(), at, lane.bool(), |v| v != 0),
        d => panic!("{d} has no scalars"),
    }
}

fn store(lane: &Lane, t: &mut Tensor, start: usize) {
    fn go<T: Copy, U>(x: &[T], out: &mut [U], start: usize, f: impl Fn(T) -> U) {
        for (o, &v) in out[start..start + x.len()].iter_mut().zip(x) {
            *o = f(v);
        }
    }
    match (t.dtype(), lane) {
        (DType::F64, Lane::F64(x)) => go(x, t.as_mut_slice::<f64>(), start, |v| v),
        (DType::F32, Lane::F32(x)) => go(x, t.as_mut_slice::<f32>(), start, |v| v),
        (DType::F16, Lane::F32(x)) => go(x, t.as_mut_slice::<f16>(), start, f16::from_f32),
        (DType::BF16, Lane::F32(x)) => go(x, t.as_mut_slice::<bf16>(), start, bf16::from_f32),
        (DType::I64, Lane::Int(x)) => go(x, t.as_mut_slice::<i64>(), start, |v| v),
        (DType::I32, Lane::Int(x)) => go(x, t.as_mut_slice::<i32>(), start, |v| v as i32),
        (DType::I16, Lane::Int(x)) => go(x, t.as_mut_slice::<i16>(), start, |v| v as i16),
        (DType::I8, Lane::Int(x)) => go(x, t.as_mut_slice::<i8>(), start, |v| v as i8),
        (DType::U8, Lane::Int(x)) => go(x, t.as_mut_slice::<u8>(), start, |v| v as u8),
        (DType::B8, Lane::Bool(x)) => go(x, t.bytes_mut(), start, |v| v as u8),
        (d, l) => panic!("{d} results from {l:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_over_block_borders() {
        let (rows, cols) = (37, 91);
        let a: Vec<f32> = (0..cols).map(|i| i as f32).collect();
        let b: Vec<i32> = (0..rows).collect();
        let (a, b) = (
            Tensor::from_slice(&[cols], &a),
            Tensor::from_slice(&[rows as usize, 1], &b),
        );
        let mut e = Expr::new();
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
        let mut e = Expr::new();
        let (x, y) = (e.arg(0, dtype), e.arg(1, dtype));
        let r = e.binary(op, x, y);
        e.roots = vec![r];
        eval(&e, &[Scalar::Int(dtype, a), Scalar::Int(dtype, b)], &[]).map(|r| r[0].to_i64())
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
            let mut e = Expr::new();
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
