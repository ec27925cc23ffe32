//! The expressions of rules: conditions, and what replacements compute from literals and sizes.
//!
//! Python's arithmetic on numbers; sizes may be symbolic. What cannot be told is [`Val::Unknown`], and a condition that
//! is not known does not hold.

use crate::graph::{Graph, GraphModule};
use crate::infer::{self, Operand};
use crate::syntax::ast::{BinaryOp, UnaryOp, Value, ValueKind};
use crate::syntax::resolve;
use crate::tensor::Scalar;
use crate::types::{Dim, TensorType, Type, Val};
use std::cmp::Ordering;

/// A value of an expression.
pub type V = Val<Operand>;

/// The functions of conditions, each with its number of arguments and what it gives.
pub const FUNCTIONS: [(&str, usize, &str); 11] = [
    ("dtype", 1, "the element type of a tensor"),
    ("shape", 1, "the sizes of a tensor, as a list"),
    ("rank", 1, "how many sizes a tensor has"),
    ("size", 2, "one size of a tensor, from the end if negative"),
    ("numel", 1, "how many elements a tensor has"),
    ("users", 1, "how many nodes use a value"),
    (
        "is_const",
        1,
        "whether a value is a literal, parameter, buffer or constant",
    ),
    ("value", 1, "the number that a literal or a constant of one element is"),
    ("len", 1, "how many items a list has"),
    ("min", 2, "the lesser of two numbers"),
    ("max", 2, "the greater of two numbers"),
];

/// What names of an expression stand for.
pub trait Scope {
    /// The value of `%name`, `$name` (with its sign), or of a size's name.
    fn lookup(&self, name: &str) -> Option<V>;
}

/// Evaluates expressions over one match.
pub struct Eval<'a> {
    /// The module.
    pub module: &'a GraphModule,
    /// The graph in which a match was found.
    pub graph: &'a Graph,
    /// The names.
    pub scope: &'a dyn Scope,
}

/// The type of an operand.
pub fn operand_type(module: &GraphModule, graph: &Graph, o: &Operand) -> Type {
    let node = |n: &crate::graph::NodeId| graph[*n].meta.ty.clone().unwrap_or(Val::Unknown);
    match o {
        Operand::Node(n) => node(n),
        Operand::Item(n, path) => path.iter().fold(node(n), |t, &i| {
            t.items().and_then(|v| v.get(i)).cloned().unwrap_or(Val::Unknown)
        }),
        Operand::Attr(path) => infer::attribute_type(module, path),
    }
}

impl Eval<'_> {
    /// Whether a condition holds; `None` if that cannot be told.
    pub fn holds(&self, v: &Value) -> Result<Option<bool>, String> {
        Ok(truth(&self.value(v)?))
    }

    /// The value of an expression. An error says why there is none.
    pub fn value(&self, v: &Value) -> Result<V, String> {
        let all = |x: &[Value]| x.iter().map(|x| self.value(x)).collect::<Result<Vec<_>, _>>();
        let three = |x: &[Value; 3]| -> Result<Box<[V; 3]>, String> {
            Ok(Box::new([self.value(&x[0])?, self.value(&x[1])?, self.value(&x[2])?]))
        };
        Ok(match &v.kind {
            ValueKind::Node(n) => match self.scope.lookup(n) {
                Some(v) => v,
                // `%xs` is the list of what `*%xs` stands for.
                None => self.lookup(&format!("*{n}"))?,
            },
            ValueKind::Literal(n) => self.lookup(&format!("${n}"))?,
            ValueKind::Rest(n) => self.lookup(&format!("*{n}"))?,
            ValueKind::Name(n) => match self.scope.lookup(n) {
                Some(v) => v,
                None => self.plain(v),
            },
            ValueKind::List(x) => Val::List(self.items(x)?),
            ValueKind::Tuple(x) => Val::Tuple(all(x)?),
            ValueKind::Slice(x) => Val::Slice(three(x)?),
            ValueKind::Range(x) => Val::Range(three(x)?),
            ValueKind::Unary(op, a) => unary(*op, &self.value(a)?)?,
            ValueKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => self.logic(*op, a, b)?,
            ValueKind::Binary(op, a, b) => binary(*op, &self.value(a)?, &self.value(b)?)?,
            ValueKind::Call(f, args) => self.call(&f.text, &all(args)?)?,
            _ => self.plain(v),
        })
    }

    /// The items of a list, with those that `*%xs` stands for.
    fn items(&self, list: &[Value]) -> Result<Vec<V>, String> {
        let mut out = vec![];
        for x in list {
            match (&x.kind, self.value(x)?) {
                (ValueKind::Rest(_), Val::List(more)) => out.extend(more),
                (_, v) => out.push(v),
            }
        }
        Ok(out)
    }

    fn plain(&self, v: &Value) -> V {
        resolve::value(v, &mut |_, _| None, &mut Default::default())
    }

    fn lookup(&self, name: &str) -> Result<V, String> {
        self.scope
            .lookup(name)
            .ok_or_else(|| format!("`{name}` is bound to nothing"))
    }

    /// `and` and `or`, which need not know both sides.
    fn logic(&self, op: BinaryOp, a: &Value, b: &Value) -> Result<V, String> {
        let stop = op == BinaryOp::Or;
        let left = self.holds(a)?;
        if left == Some(stop) {
            return Ok(Val::Bool(stop));
        }
        let right = self.holds(b)?;
        Ok(match (left, right) {
            (_, Some(x)) if x == stop => Val::Bool(stop),
            (Some(_), Some(_)) => Val::Bool(!stop),
            _ => Val::Unknown,
        })
    }

    fn ty(&self, v: &V) -> Type {
        match v {
            Val::Leaf(o) => operand_type(self.module, self.graph, o),
            _ => Val::Unknown,
        }
    }

    fn tensor(&self, v: &V) -> Option<TensorType> {
        self.ty(v).as_leaf().cloned()
    }

    fn call(&self, name: &str, args: &[V]) -> Result<V, String> {
        let first = args.first().unwrap_or(&Val::Unknown);
        let tensor = || self.tensor(first);
        let int = |d: Dim| match d {
            Dim::Unknown => Val::Unknown,
            d => Val::Int(d),
        };
        let shape = || tensor().and_then(|t| t.shape);
        Ok(match name {
            "dtype" => tensor().map_or(Val::Unknown, |t| Val::DType(t.dtype)),
            "shape" => shape().map_or(Val::Unknown, |s| Val::List(s.into_iter().map(int).collect())),
            "rank" => shape().map_or(Val::Unknown, |s| Val::int(s.len() as i64)),
            "numel" => tensor().map_or(Val::Unknown, |t| int(t.numel())),
            "size" => match (shape(), args.get(1).and_then(Val::as_int)) {
                (Some(s), Some(i)) => item(&s, i).map_or(Val::Unknown, |d| int(d.clone())),
                _ => Val::Unknown,
            },
            "users" => match first {
                Val::Leaf(Operand::Node(n) | Operand::Item(n, _)) => Val::int(self.graph[*n].users().len() as i64),
                _ => Val::Unknown,
            },
            "is_const" => Val::Bool(self.is_const(first)),
            "value" => self.number(first),
            "len" => first.items().map_or(Val::Unknown, |v| Val::int(v.len() as i64)),
            "min" | "max" => match args {
                [a, b] => extreme(name == "max", a, b),
                _ => Val::Unknown,
            },
            _ => return Err(format!("`{name}` is no function of rules")),
        })
    }

    fn is_const(&self, v: &V) -> bool {
        match v {
            Val::Leaf(Operand::Attr(_)) => true,
            Val::Leaf(Operand::Node(n)) => self.graph[*n].op() == crate::graph::Opcode::GetAttr,
            Val::Leaf(_) => false,
            v => infer::is_value(v),
        }
    }

    /// A literal, or the element of a constant that has one.
    fn number(&self, v: &V) -> V {
        let path = match v {
            Val::Leaf(Operand::Attr(p)) => p.clone(),
            Val::Leaf(Operand::Node(n)) if self.graph[*n].op() == crate::graph::Opcode::GetAttr => {
                self.graph[*n].target().into()
            }
            Val::Leaf(_) => return Val::Unknown,
            v => return v.clone(),
        };
        let value = self.module.attributes.get(&path).and_then(|a| a.value.as_ref());
        match value.and_then(|t| t.item()) {
            Some(Scalar::Int(_, i)) => Val::int(i),
            Some(Scalar::Bool(b)) => Val::Bool(b),
            Some(x) => Val::Float(x.to_f64()),
            None => Val::Unknown,
        }
    }
}

fn item<T>(items: &[T], i: i64) -> Option<&T> {
    let i = if i < 0 { i.checked_add(items.len() as i64)? } else { i };
    items.get(usize::try_from(i).ok()?)
}

fn truth(v: &V) -> Option<bool> {
    match v {
        Val::Bool(b) => Some(*b),
        Val::Int(d) => d.as_const().map(|c| c != 0),
        Val::Float(x) => Some(*x != 0.0),
        Val::None => Some(false),
        _ => None,
    }
}

fn unary(op: UnaryOp, a: &V) -> Result<V, String> {
    Ok(match (op, a) {
        (UnaryOp::Not, a) => truth(a).map_or(Val::Unknown, |b| Val::Bool(!b)),
        (_, Val::Unknown) => Val::Unknown,
        (UnaryOp::Neg, Val::Float(x)) => Val::Float(-x),
        (UnaryOp::Neg, a) => {
            let d = dim(a).ok_or_else(|| format!("`-` of a {}", a.kind_name()))?;
            whole(d.neg())?
        }
    })
}

/// An int as a size; bools are ints, as in Python.
fn dim(v: &V) -> Option<Dim> {
    match v {
        Val::Int(d) => Some(d.clone()),
        Val::Bool(b) => Some(Dim::Const(*b as i64)),
        _ => None,
    }
}

fn whole(d: Dim) -> Result<V, String> {
    match d {
        Dim::Unknown => Err("a number overflows 64 bits, or is divided by zero".into()),
        d => Ok(Val::Int(d)),
    }
}

fn binary(op: BinaryOp, a: &V, b: &V) -> Result<V, String> {
    use BinaryOp::*;
    let known = |t: Option<bool>| t.map_or(Val::Unknown, Val::Bool);
    match op {
        Eq => Ok(known(equal(a, b))),
        Ne => Ok(known(equal(a, b).map(|e| !e))),
        Lt => Ok(known(order(a, b).map(|o| o == Ordering::Less))),
        Le => Ok(known(order(a, b).map(|o| o != Ordering::Greater))),
        Gt => Ok(known(order(a, b).map(|o| o == Ordering::Greater))),
        Ge => Ok(known(order(a, b).map(|o| o != Ordering::Less))),
        In => Ok(known(contains(b, a))),
        NotIn => Ok(known(contains(b, a).map(|c| !c))),
        _ => arithmetic(op, a, b),
    }
}

fn arithmetic(op: BinaryOp, a: &V, b: &V) -> Result<V, String> {
    use BinaryOp::*;
    if matches!((a, b), (Val::Unknown, _) | (_, Val::Unknown)) {
        return Ok(Val::Unknown);
    }
    if let (Some(x), Some(y)) = (a.items(), b.items())
        && op == Add
    {
        return Ok(Val::List([x, y].concat()));
    }
    if let (Some(x), Some(y)) = (dim(a), dim(b))
        && op != Div
    {
        return whole(match op {
            Add => x.add(&y),
            Sub => x.sub(&y),
            Mul => x.mul(&y),
            FloorDiv => x.floordiv(&y),
            _ => x.modulo(&y),
        });
    }
    let (Some(x), Some(y)) = (a.as_f64(), b.as_f64()) else {
        return Err(format!("`{}` of {} and {}", op.symbol(), a.kind_name(), b.kind_name()));
    };
    if y == 0.0 && matches!(op, Div | FloorDiv | Mod) {
        return Err("a number is divided by zero".into());
    }
    Ok(Val::Float(match op {
        Add => x + y,
        Sub => x - y,
        Mul => x * y,
        Div => x / y,
        FloorDiv => (x / y).floor(),
        _ => x - y * (x / y).floor(),
    }))
}

/// Python's `==`; `None` if it depends on what is not known.
fn equal(a: &V, b: &V) -> Option<bool> {
    if let (Some(x), Some(y)) = (dim(a), dim(b)) {
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
            let each: Vec<Option<bool>> = x.iter().zip(y).map(|(x, y)| equal(x, y)).collect();
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

fn order(a: &V, b: &V) -> Option<Ordering> {
    if let (Some(x), Some(y)) = (dim(a), dim(b)) {
        return x.sub(&y).as_const().map(|c| c.cmp(&0));
    }
    a.as_f64()?.partial_cmp(&b.as_f64()?)
}

fn contains(list: &V, x: &V) -> Option<bool> {
    let items = list.items()?;
    let each: Vec<Option<bool>> = items.iter().map(|y| equal(x, y)).collect();
    if each.contains(&Some(true)) {
        return Some(true);
    }
    each.iter().all(|e| e.is_some()).then_some(false)
}

fn extreme(greatest: bool, a: &V, b: &V) -> V {
    if let (Some(x), Some(y)) = (dim(a), dim(b)) {
        let d = if greatest { x.max_of(&y) } else { x.min_of(&y) };
        return if d == Dim::Unknown { Val::Unknown } else { Val::Int(d) };
    }
    match order(a, b) {
        Some(o) => (if (o == Ordering::Greater) == greatest { a } else { b }).clone(),
        None => Val::Unknown,
    }
}
