//! The language of conditions.
//!
//! `and`, `or`, `not`; `==`, `!=`, `<`, `<=`, `>`, `>=`, `in [..]`; `+`, `-`, `*`, `//`, `%`; numbers, `'texts'`, `none`, `true`,
//! `false`, dtypes (`f32`), lists, parameters; and functions:
//!
//! * of tensors: `dtype`, `rank`, `numel`, `shape`, `size(x, dim)`, `lead(x, n)` (the shape without the last `n`),
//!   `without(x, dim)` (the shape without a dim), `is_float`,
//!   `is_int`, `is_bool` (their dtype), `same(x, y, …)` (one dtype for all that are tensors), `cpp` (C++'s name of the dtype),
//!   `fits(x, shape)` (whether it broadcasts to the shape);
//! * of values: `kind` (Python's name of the class), `len`, `least` and `most` (of the numbers of a list), `ranks` (of a list of
//!   tensors), `item(x, n)`, `min(a, b)`, `broadcast(a, b)` (of two shapes).
//!
//! A question that means nothing for an argument (the size of `None`) has no answer, and a condition that hangs on it holds.

use super::value::Value;
use crate::types::{DType, Dim, broadcast_dims};

#[derive(Debug)]
pub(super) enum Expr {
    Value(Value),
    Name(&'static str),
    Call(&'static str, Vec<Expr>),
    List(Vec<Expr>),
    Not(Box<Expr>),
    Two(&'static str, Box<Expr>, Box<Expr>),
}

/// Operators by how strongly they bind, the weakest first.
const LEVELS: [&[&str]; 5] = [
    &["or"],
    &["and"],
    &["==", "!=", "<=", ">=", "<", ">", "in"],
    &["+", "-"],
    &["*", "//", "%"],
];

const FUNCTIONS: [&str; 21] = [
    "dtype",
    "rank",
    "numel",
    "shape",
    "size",
    "lead",
    "is_float",
    "is_int",
    "is_bool",
    "same",
    "cpp",
    "fits",
    "kind",
    "len",
    "least",
    "most",
    "ranks",
    "item",
    "min",
    "broadcast",
    "without",
];

struct Parser {
    tokens: Vec<&'static str>,
    at: usize,
}

fn tokens(text: &'static str) -> Vec<&'static str> {
    let mut out = vec![];
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
        let end = match first {
            '\'' => rest[1..].find('\'').map_or(rest.len(), |e| e + 2),
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            _ if ["==", "!=", "<=", ">=", "//"].iter().any(|o| rest.starts_with(o)) => 2,
            c => c.len_utf8(),
        };
        out.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    out
}

impl Parser {
    fn eat(&mut self, token: &str) -> bool {
        let found = self.tokens.get(self.at) == Some(&token);
        self.at += usize::from(found);
        found
    }

    fn level(&mut self, level: usize) -> Result<Expr, String> {
        let Some(operators) = LEVELS.get(level) else {
            return self.atom();
        };
        if level == 2 && self.eat("not") {
            return Ok(Expr::Not(Box::new(self.level(2)?)));
        }
        let mut left = self.level(level + 1)?;
        while let Some(o) = self
            .tokens
            .get(self.at)
            .and_then(|t| operators.iter().find(|o| *o == t))
        {
            self.at += 1;
            left = Expr::Two(o, Box::new(left), Box::new(self.level(level + 1)?));
        }
        Ok(left)
    }

    fn list(&mut self, end: &str) -> Result<Vec<Expr>, String> {
        let mut items = vec![];
        while !self.eat(end) {
            items.push(self.level(0)?);
            self.eat(",");
        }
        Ok(items)
    }

    fn atom(&mut self) -> Result<Expr, String> {
        let token = *self.tokens.get(self.at).ok_or("an expression ends early")?;
        self.at += 1;
        Ok(match token {
            "(" => {
                let inner = self.level(0)?;
                match self.eat(")") {
                    true => inner,
                    false => return Err("expected `)`".into()),
                }
            }
            "[" => Expr::List(self.list("]")?),
            "-" => Expr::Two("-", Box::new(Expr::Value(Value::int(0))), Box::new(self.atom()?)),
            "none" => Expr::Value(Value::None),
            "true" | "false" => Expr::Value(Value::Bool(token == "true")),
            t if t.starts_with('\'') => Expr::Value(Value::Text(t.trim_matches('\'').into())),
            t if t.starts_with(|c: char| c.is_ascii_digit()) => match (t.parse(), t.parse()) {
                (Ok(n), _) => Expr::Value(Value::int(n)),
                (_, Ok(x)) => Expr::Value(Value::Float(x)),
                _ => return Err(format!("{t:?} is not a number")),
            },
            t if self.eat("(") => match FUNCTIONS.iter().find(|f| **f == t) {
                Some(f) => Expr::Call(f, self.list(")")?),
                None => return Err(format!("no function {t:?}")),
            },
            t => match DType::from_short(t) {
                Some(d) => Expr::Value(Value::DType(d)),
                None if t.starts_with(|c: char| c.is_alphabetic() || c == '_') => Expr::Name(t),
                None => return Err(format!("{t:?} is not expected")),
            },
        })
    }
}

impl Expr {
    pub(super) fn parse(text: &'static str) -> Result<Expr, String> {
        let mut p = Parser {
            tokens: tokens(text),
            at: 0,
        };
        let found = p.level(0)?;
        match p.tokens.get(p.at) {
            None => Ok(found),
            Some(t) => Err(format!("{t:?} is not expected")),
        }
    }

    /// The parameters it asks for.
    pub(super) fn names(&self) -> Vec<&'static str> {
        match self {
            Expr::Value(_) => vec![],
            Expr::Name(n) => vec![n],
            Expr::Call(_, items) | Expr::List(items) => items.iter().flat_map(Expr::names).collect(),
            Expr::Not(e) => e.names(),
            Expr::Two(_, a, b) => [a.names(), b.names()].concat(),
        }
    }

    /// The value for these arguments.
    pub(super) fn value(&self, of: &dyn Fn(&str) -> Value) -> Value {
        match self {
            Expr::Value(v) => v.clone(),
            Expr::Name(n) => of(n),
            Expr::List(items) => Value::List(items.iter().map(|e| e.value(of)).collect()),
            Expr::Not(e) => match e.value(of) {
                Value::Bool(b) => Value::Bool(!b),
                _ => Value::Unknown,
            },
            Expr::Call(f, items) => {
                let args: Vec<Value> = items.iter().map(|e| e.value(of)).collect();
                call(f, &args).unwrap_or(Value::Unknown)
            }
            Expr::Two(o, a, b) => two(o, &a.value(of), &b.value(of)),
        }
    }
}

fn two(operator: &str, a: &Value, b: &Value) -> Value {
    let truth = |v: &Value| match v {
        Value::Bool(b) => Some(*b),
        _ => None,
    };
    let order = |holds: &dyn Fn(f64) -> bool| Value::truth(a.less(b).map(holds));
    match operator {
        "and" | "or" => {
            let decides = operator == "or";
            match (truth(a), truth(b)) {
                (Some(x), _) | (_, Some(x)) if x == decides => Value::Bool(decides),
                (Some(_), Some(_)) => Value::Bool(!decides),
                _ => Value::Unknown,
            }
        }
        "==" => Value::truth(a.equals(b)),
        "!=" => Value::truth(a.equals(b).map(|e| !e)),
        "<" => order(&|d| d < 0.0),
        "<=" => order(&|d| d <= 0.0),
        ">" => order(&|d| d > 0.0),
        ">=" => order(&|d| d >= 0.0),
        "in" => {
            let Value::List(items) = b else { return Value::Unknown };
            let found: Vec<Option<bool>> = items.iter().map(|v| a.equals(v)).collect();
            match found.contains(&Some(true)) {
                true => Value::Bool(true),
                false => Value::truth(found.iter().all(Option::is_some).then_some(false)),
            }
        }
        _ => arithmetic(operator, a, b).unwrap_or(Value::Unknown),
    }
}

fn arithmetic(operator: &str, a: &Value, b: &Value) -> Option<Value> {
    if let (Value::List(a), Value::List(b), "+") = (a, b, operator) {
        return Some(Value::List([a.as_slice(), b].concat()));
    }
    if let (Some(x), Some(y)) = (a.dim(), b.dim()) {
        let zero = y == Dim::Const(0);
        return Some(Value::Int(match operator {
            "+" => x.add(&y),
            "-" => x.sub(&y),
            "*" => x.mul(&y),
            "//" if !zero => x.floordiv(&y),
            "%" if !zero => x.modulo(&y),
            _ => return None,
        }));
    }
    let (x, y) = (a.number()?, b.number()?);
    Some(Value::Float(match operator {
        "+" => x + y,
        "-" => x - y,
        "*" => x * y,
        _ => return None,
    }))
}

/// The value of a function; `None` where it has none.
fn call(f: &str, args: &[Value]) -> Option<Value> {
    let dtype = |v: &Value| match v {
        Value::Tensor(d, _) | Value::DType(d) => Some(*d),
        _ => None,
    };
    let first = args.first()?;
    Some(match f {
        "dtype" => Value::DType(dtype(first)?),
        "cpp" => Value::Text(dtype(first)?.cpp_name().into()),
        "is_float" => Value::Bool(dtype(first)?.is_float()),
        "is_int" => Value::Bool(dtype(first)?.is_int()),
        "is_bool" => Value::Bool(dtype(first)? == DType::B8),
        "same" => {
            let items = args.iter().flat_map(|v| match v {
                Value::List(items) => items.as_slice(),
                v => std::slice::from_ref(v),
            });
            let tensors = items.filter(|v| matches!(v, Value::Tensor(..)));
            let found: Vec<DType> = tensors.filter_map(dtype).collect();
            Value::Bool(found.windows(2).all(|w| w[0] == w[1]))
        }
        "kind" => first.kind(),
        "len" => match first {
            Value::List(items) => Value::int(items.len() as i64),
            _ => return None,
        },
        "least" => extreme(first, f64::min)?,
        "most" => extreme(first, f64::max)?,
        "ranks" => match first {
            Value::List(items) => Value::List(
                items
                    .iter()
                    .map(|v| call("rank", std::slice::from_ref(v)))
                    .collect::<Option<_>>()?,
            ),
            _ => return None,
        },
        "item" => match first {
            Value::List(items) => items.get(at(args.get(1)?, items.len())?)?.clone(),
            _ => return None,
        },
        "min" => match first.less(args.get(1)?)? <= 0.0 {
            true => first.clone(),
            false => args[1].clone(),
        },
        _ => return of_shape(f, args),
    })
}

/// The smallest or greatest of a list of numbers, or the one number.
fn extreme(v: &Value, of: fn(f64, f64) -> f64) -> Option<Value> {
    let numbers: Option<Vec<f64>> = match v {
        Value::List(items) => items.iter().map(Value::number).collect(),
        v => v.number().map(|x| vec![x]),
    };
    numbers?.into_iter().reduce(of).map(Value::Float)
}

/// A place counted from either end.
fn at(place: &Value, len: usize) -> Option<usize> {
    let n = place.dim()?.as_const()?;
    usize::try_from(if n < 0 { n + len as i64 } else { n }).ok()
}

fn dims(v: &Value) -> Option<Vec<Dim>> {
    match v {
        Value::Tensor(_, shape) => shape.clone(),
        Value::List(items) => items.iter().map(Value::dim).collect(),
        _ => None,
    }
}

fn list(dims: &[Dim]) -> Value {
    Value::List(dims.iter().cloned().map(Value::Int).collect())
}

fn of_shape(f: &str, args: &[Value]) -> Option<Value> {
    let shape = dims(args.first()?)?;
    Some(match f {
        "rank" => Value::int(shape.len() as i64),
        "numel" => Value::Int(shape.iter().fold(Dim::Const(1), |a, n| a.mul(n))),
        "shape" => list(&shape),
        "size" => Value::Int(shape.get(at(args.get(1)?, shape.len())?)?.clone()),
        "lead" => {
            let n = usize::try_from(args.get(1)?.dim()?.as_const()?).ok()?;
            list(&shape[..shape.len().checked_sub(n)?])
        }
        "without" => {
            let mut rest = shape.clone();
            rest.remove(at(args.get(1)?, shape.len()).filter(|&d| d < shape.len())?);
            list(&rest)
        }
        "broadcast" => list(&broadcast_dims(&shape, &dims(args.get(1)?)?).ok()?),
        "fits" => {
            let to = dims(args.get(1)?)?;
            let fitting = broadcast_dims(&shape, &to).is_ok_and(|b| list(&b).equals(&list(&to)) != Some(false));
            Value::Bool(fitting)
        }
        _ => return None,
    })
}
