//! Arithmetic and comparisons of values, as in Python.

use super::V;
use crate::syntax::ast::{BinaryOp, UnaryOp};
use crate::types::{Dim, SizeExpr, Val};
use std::cmp::Ordering;

/// The common difference, modulo `n`, of consecutive elements; 1 for a single element. `None` if the differences are
/// not equal or an element is outside of `0..n`.
pub(super) fn common_step(v: &[i64], n: i64) -> Option<i64> {
    if v.is_empty() || !v.iter().all(|i| (0..n).contains(i)) {
        return None;
    }
    let mut steps = v.windows(2).map(|w| (w[1] - w[0]).rem_euclid(n));
    let first = steps.next().unwrap_or(1);
    steps.all(|s| s == first).then_some(first)
}

pub(super) fn item_at<T>(items: &[T], i: i64) -> Option<&T> {
    let i = if i < 0 { i.checked_add(items.len() as i64)? } else { i };
    items.get(usize::try_from(i).ok()?)
}

pub(super) fn truth_value(v: &V) -> Option<bool> {
    match v {
        Val::Bool(b) => Some(*b),
        Val::Int(d) => d.as_const().map(|c| c != 0),
        Val::Float(x) => Some(*x != 0.0),
        Val::None => Some(false),
        _ => None,
    }
}

pub(super) fn eval_unary(op: UnaryOp, a: &V) -> Result<V, String> {
    Ok(match (op, a) {
        (UnaryOp::Not, a) => truth_value(a).map_or(Val::Unknown, |b| Val::Bool(!b)),
        (_, Val::Unknown) => Val::Unknown,
        (UnaryOp::Neg, Val::Float(x)) => Val::Float(-x),
        (UnaryOp::Neg, a) => {
            let d = to_dim(a).ok_or_else(|| format!("`-` of {}", crate::diag::words::with_article(a.kind_name())))?;
            checked_int(d.neg())?
        }
    })
}

/// An int as a size. Bools are ints, as in Python.
pub(super) fn to_dim(v: &V) -> Option<Dim> {
    match v {
        Val::Int(d) => Some(d.clone()),
        Val::Bool(b) => Some(Dim::Const(*b as i64)),
        _ => None,
    }
}

fn checked_int(d: Dim) -> Result<V, String> {
    match d {
        Dim::Unknown => Err("integer overflow or division by zero".into()),
        d => Ok(Val::Int(d)),
    }
}

pub(super) fn eval_binary(op: BinaryOp, a: &V, b: &V) -> Result<V, String> {
    use BinaryOp::*;
    let known = |t: Option<bool>| t.map_or(Val::Unknown, Val::Bool);
    match op {
        Eq => Ok(known(values_equal(a, b))),
        Ne => Ok(known(values_equal(a, b).map(|e| !e))),
        Lt => Ok(known(compare_values(a, b).map(|o| o == Ordering::Less))),
        Le => Ok(known(compare_values(a, b).map(|o| o != Ordering::Greater))),
        Gt => Ok(known(compare_values(a, b).map(|o| o == Ordering::Greater))),
        Ge => Ok(known(compare_values(a, b).map(|o| o != Ordering::Less))),
        In => Ok(known(list_contains(b, a))),
        NotIn => Ok(known(list_contains(b, a).map(|c| !c))),
        _ => eval_arithmetic(op, a, b),
    }
}

fn eval_arithmetic(op: BinaryOp, a: &V, b: &V) -> Result<V, String> {
    use BinaryOp::*;
    if matches!((a, b), (Val::Unknown, _) | (_, Val::Unknown)) {
        return Ok(Val::Unknown);
    }
    if let (Some(x), Some(y)) = (a.items(), b.items())
        && op == Add
    {
        return Ok(Val::List([x, y].concat()));
    }
    if let (Some(x), Some(y)) = (to_dim(a), to_dim(b))
        && op != Div
    {
        return checked_int(size_arithmetic(op, x, y));
    }
    let (Some(x), Some(y)) = (a.as_f64(), b.as_f64()) else {
        return Err(format!("`{}` of {} and {}", op.symbol(), a.kind_name(), b.kind_name()));
    };
    if y == 0.0 && matches!(op, Div | FloorDiv | Mod) {
        return Err("division by zero".into());
    }
    Ok(Val::Float(match op {
        Add => x + y,
        Sub => x - y,
        Mul => x * y,
        Div => x / y,
        FloorDiv => (x / y).floor(),
        Pow => x.powf(y),
        _ => x - y * (x / y).floor(),
    }))
}

/// `x op y` for sizes, where `op` is not a true division.
fn size_arithmetic(op: BinaryOp, x: Dim, y: Dim) -> Dim {
    match op {
        BinaryOp::Add => x.add(&y),
        BinaryOp::Sub => x.sub(&y),
        BinaryOp::Mul => x.mul(&y),
        BinaryOp::FloorDiv => x.floordiv(&y),
        BinaryOp::Pow => {
            let power = SizeExpr::Int(x).pow(&SizeExpr::Int(y));
            power.into_dim().unwrap_or(Dim::Unknown)
        }
        _ => x.modulo(&y),
    }
}

/// Python's `==`; `None` if the result depends on unknown values.
fn values_equal(a: &V, b: &V) -> Option<bool> {
    if let (Some(x), Some(y)) = (to_dim(a), to_dim(b)) {
        return match x.sub(&y) {
            Dim::Const(c) => Some(c == 0),
            _ => None,
        };
    }
    match (a, b) {
        (Val::Unknown | Val::Any(_), _) | (_, Val::Unknown | Val::Any(_)) => None,
        (Val::List(x) | Val::Tuple(x), Val::List(y) | Val::Tuple(y)) => {
            if x.len() != y.len() {
                return Some(false);
            }
            let each: Vec<Option<bool>> = x.iter().zip(y).map(|(x, y)| values_equal(x, y)).collect();
            if each.contains(&Some(false)) {
                return Some(false);
            }
            each.iter().all(|e| e.is_some()).then_some(true)
        }
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(x), Some(y)) => Some(x == y),
            _ => Some(a == b),
        },
    }
}

fn compare_values(a: &V, b: &V) -> Option<Ordering> {
    if let (Some(x), Some(y)) = (to_dim(a), to_dim(b)) {
        return x.sub(&y).as_const().map(|c| c.cmp(&0));
    }
    a.as_f64()?.partial_cmp(&b.as_f64()?)
}

fn list_contains(list: &V, x: &V) -> Option<bool> {
    let items = list.items()?;
    let each: Vec<Option<bool>> = items.iter().map(|y| values_equal(x, y)).collect();
    if each.contains(&Some(true)) {
        return Some(true);
    }
    each.iter().all(|e| e.is_some()).then_some(false)
}

pub(super) fn pick_extremum(greatest: bool, a: &V, b: &V) -> V {
    if let (Some(x), Some(y)) = (to_dim(a), to_dim(b)) {
        let d = if greatest { x.max_of(&y) } else { x.min_of(&y) };
        return if d == Dim::Unknown { Val::Unknown } else { Val::Int(d) };
    }
    match compare_values(a, b) {
        Some(o) => (if (o == Ordering::Greater) == greatest { a } else { b }).clone(),
        None => Val::Unknown,
    }
}
