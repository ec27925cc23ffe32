//! The language of conditions.
//!
//! `and`, `or`, `not`; `==`, `!=`, `<`, `<=`, `>`, `>=`, `in [..]`; `+`, `-`, `*`, `//`, `%`; numbers, `'texts'`, `none`, `true`,
//! `false`, dtypes (`f32`), lists, parameters; and functions:
//!
//! * of tensors: `dtype`, `rank`, `numel`, `shape`, `size(x, dim)`, `lead(x, n)` (the shape without the last `n` dims),
//!   `without(x, dim)` (the shape without a dim), `is_float`, `is_int`, `is_bool` (tests of the dtype), `same(x, y, …)` (whether all
//!   arguments that are tensors have one dtype), `cpp` (the C++ name of the dtype), `fits(x, shape)` (whether `x` broadcasts to the
//!   shape);
//! * of values: `kind` (the name of the Python class), `len`, `least` and `most` (of a list of numbers), `ranks` (of a list of
//!   tensors), `item(x, n)`, `min(a, b)`, `broadcast(a, b)` (of two shapes).
//!
//! A function that does not apply to an argument (the size of `None`) has an unknown value, and a condition that depends on an
//! unknown value holds.

use super::value::ArgValue;
use crate::types::{DType, Dim, broadcast_dims};

#[derive(Debug)]
pub(super) enum DemandExpr {
    Value(ArgValue),
    Name(&'static str),
    Call(&'static str, Vec<DemandExpr>),
    List(Vec<DemandExpr>),
    Not(Box<DemandExpr>),
    Two(&'static str, Box<DemandExpr>, Box<DemandExpr>),
}

/// Operators by precedence, lowest first.
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

struct DemandParser {
    tokens: Vec<&'static str>,
    position: usize,
}

fn split_tokens(text: &'static str) -> Vec<&'static str> {
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

impl DemandParser {
    fn eat(&mut self, token: &str) -> bool {
        let found = self.tokens.get(self.position) == Some(&token);
        self.position += usize::from(found);
        found
    }

    fn parse_level(&mut self, level: usize) -> Result<DemandExpr, String> {
        let Some(operators) = LEVELS.get(level) else {
            return self.parse_atom();
        };
        if level == 2 && self.eat("not") {
            return Ok(DemandExpr::Not(Box::new(self.parse_level(2)?)));
        }
        let mut left = self.parse_level(level + 1)?;
        while let Some(o) = self
            .tokens
            .get(self.position)
            .and_then(|t| operators.iter().find(|o| *o == t))
        {
            self.position += 1;
            left = DemandExpr::Two(o, Box::new(left), Box::new(self.parse_level(level + 1)?));
        }
        Ok(left)
    }

    fn parse_list(&mut self, end: &str) -> Result<Vec<DemandExpr>, String> {
        let mut items = vec![];
        while !self.eat(end) {
            items.push(self.parse_level(0)?);
            self.eat(",");
        }
        Ok(items)
    }

    fn parse_atom(&mut self) -> Result<DemandExpr, String> {
        let token = *self.tokens.get(self.position).ok_or("an expression ends early")?;
        self.position += 1;
        Ok(match token {
            "(" => {
                let inner = self.parse_level(0)?;
                match self.eat(")") {
                    true => inner,
                    false => return Err("expected `)`".into()),
                }
            }
            "[" => DemandExpr::List(self.parse_list("]")?),
            "-" => DemandExpr::Two(
                "-",
                Box::new(DemandExpr::Value(ArgValue::int(0))),
                Box::new(self.parse_atom()?),
            ),
            "none" => DemandExpr::Value(ArgValue::None),
            "true" | "false" => DemandExpr::Value(ArgValue::Bool(token == "true")),
            t if t.starts_with('\'') => DemandExpr::Value(ArgValue::Text(t.trim_matches('\'').into())),
            t if t.starts_with(|c: char| c.is_ascii_digit()) => match (t.parse(), t.parse()) {
                (Ok(n), _) => DemandExpr::Value(ArgValue::int(n)),
                (_, Ok(x)) => DemandExpr::Value(ArgValue::Float(x)),
                _ => return Err(format!("{t:?} is not a number")),
            },
            t if self.eat("(") => match FUNCTIONS.iter().find(|f| **f == t) {
                Some(f) => DemandExpr::Call(f, self.parse_list(")")?),
                None => return Err(format!("no function {t:?}")),
            },
            t => match DType::from_short(t) {
                Some(d) => DemandExpr::Value(ArgValue::DType(d)),
                None if t.starts_with(|c: char| c.is_alphabetic() || c == '_') => DemandExpr::Name(t),
                None => return Err(format!("{t:?} is not expected")),
            },
        })
    }
}

impl DemandExpr {
    pub(super) fn parse(text: &'static str) -> Result<DemandExpr, String> {
        let mut p = DemandParser {
            tokens: split_tokens(text),
            position: 0,
        };
        let parsed = p.parse_level(0)?;
        match p.tokens.get(p.position) {
            None => Ok(parsed),
            Some(t) => Err(format!("{t:?} is not expected")),
        }
    }

    /// The parameters that the expression refers to.
    pub(super) fn param_names(&self) -> Vec<&'static str> {
        match self {
            DemandExpr::Value(_) => vec![],
            DemandExpr::Name(n) => vec![n],
            DemandExpr::Call(_, items) | DemandExpr::List(items) => {
                items.iter().flat_map(DemandExpr::param_names).collect()
            }
            DemandExpr::Not(e) => e.param_names(),
            DemandExpr::Two(_, a, b) => [a.param_names(), b.param_names()].concat(),
        }
    }

    /// Evaluates the expression; `value_of` returns the values of parameters.
    pub(super) fn eval_with(&self, value_of: &dyn Fn(&str) -> ArgValue) -> ArgValue {
        match self {
            DemandExpr::Value(v) => v.clone(),
            DemandExpr::Name(n) => value_of(n),
            DemandExpr::List(items) => ArgValue::List(items.iter().map(|e| e.eval_with(value_of)).collect()),
            DemandExpr::Not(e) => match e.eval_with(value_of) {
                ArgValue::Bool(b) => ArgValue::Bool(!b),
                _ => ArgValue::Unknown,
            },
            DemandExpr::Call(f, items) => {
                let args: Vec<ArgValue> = items.iter().map(|e| e.eval_with(value_of)).collect();
                eval_call(f, &args).unwrap_or(ArgValue::Unknown)
            }
            DemandExpr::Two(o, a, b) => eval_binary(o, &a.eval_with(value_of), &b.eval_with(value_of)),
        }
    }
}

fn eval_binary(operator: &str, a: &ArgValue, b: &ArgValue) -> ArgValue {
    let truth = |v: &ArgValue| match v {
        ArgValue::Bool(b) => Some(*b),
        _ => None,
    };
    let order = |holds: &dyn Fn(f64) -> bool| ArgValue::from_truth(a.difference(b).map(holds));
    match operator {
        "and" | "or" => {
            let decides = operator == "or";
            match (truth(a), truth(b)) {
                (Some(x), _) | (_, Some(x)) if x == decides => ArgValue::Bool(decides),
                (Some(_), Some(_)) => ArgValue::Bool(!decides),
                _ => ArgValue::Unknown,
            }
        }
        "==" => ArgValue::from_truth(a.equals(b)),
        "!=" => ArgValue::from_truth(a.equals(b).map(|e| !e)),
        "<" => order(&|d| d < 0.0),
        "<=" => order(&|d| d <= 0.0),
        ">" => order(&|d| d > 0.0),
        ">=" => order(&|d| d >= 0.0),
        "in" => {
            let ArgValue::List(items) = b else {
                return ArgValue::Unknown;
            };
            let equal: Vec<Option<bool>> = items.iter().map(|v| a.equals(v)).collect();
            match equal.contains(&Some(true)) {
                true => ArgValue::Bool(true),
                false => ArgValue::from_truth(equal.iter().all(Option::is_some).then_some(false)),
            }
        }
        _ => eval_arithmetic(operator, a, b).unwrap_or(ArgValue::Unknown),
    }
}

fn eval_arithmetic(operator: &str, a: &ArgValue, b: &ArgValue) -> Option<ArgValue> {
    if let (ArgValue::List(a), ArgValue::List(b), "+") = (a, b, operator) {
        return Some(ArgValue::List([a.as_slice(), b].concat()));
    }
    if let (Some(x), Some(y)) = (a.as_dim(), b.as_dim()) {
        let zero = y == Dim::Const(0);
        return Some(ArgValue::Int(match operator {
            "+" => x.add(&y),
            "-" => x.sub(&y),
            "*" => x.mul(&y),
            "//" if !zero => x.floordiv(&y),
            "%" if !zero => x.modulo(&y),
            _ => return None,
        }));
    }
    let (x, y) = (a.as_number()?, b.as_number()?);
    Some(ArgValue::Float(match operator {
        "+" => x + y,
        "-" => x - y,
        "*" => x * y,
        _ => return None,
    }))
}

fn known_dtype(v: &ArgValue) -> Option<DType> {
    match v {
        ArgValue::Tensor(d, _) | ArgValue::DType(d) => Some(*d),
        _ => None,
    }
}

/// Whether all tensors among the arguments, and in lists among them, have one dtype.
fn have_same_dtype(args: &[ArgValue]) -> bool {
    let items = args.iter().flat_map(|v| match v {
        ArgValue::List(items) => items.as_slice(),
        v => std::slice::from_ref(v),
    });
    let tensors = items.filter(|v| matches!(v, ArgValue::Tensor(..)));
    let dtypes: Vec<DType> = tensors.filter_map(known_dtype).collect();
    dtypes.windows(2).all(|w| w[0] == w[1])
}

/// The value of a function call; `None` if it is undefined.
fn eval_call(f: &str, args: &[ArgValue]) -> Option<ArgValue> {
    let first = args.first()?;
    Some(match f {
        "dtype" => ArgValue::DType(known_dtype(first)?),
        "cpp" => ArgValue::Text(known_dtype(first)?.cpp_name().into()),
        "is_float" => ArgValue::Bool(known_dtype(first)?.is_float()),
        "is_int" => ArgValue::Bool(known_dtype(first)?.is_int()),
        "is_bool" => ArgValue::Bool(known_dtype(first)? == DType::B8),
        "same" => ArgValue::Bool(have_same_dtype(args)),
        "kind" => first.class_name(),
        "len" => match first {
            ArgValue::List(items) => ArgValue::int(items.len() as i64),
            _ => return None,
        },
        "least" => extreme_number(first, f64::min)?,
        "most" => extreme_number(first, f64::max)?,
        "ranks" => match first {
            ArgValue::List(items) => ArgValue::List(
                items
                    .iter()
                    .map(|v| eval_call("rank", std::slice::from_ref(v)))
                    .collect::<Option<_>>()?,
            ),
            _ => return None,
        },
        "item" => match first {
            ArgValue::List(items) => items.get(wrap_index(args.get(1)?, items.len())?)?.clone(),
            _ => return None,
        },
        "min" => match first.difference(args.get(1)?)? <= 0.0 {
            true => first.clone(),
            false => args[1].clone(),
        },
        _ => return of_shape(f, args),
    })
}

/// The minimum or maximum of a list of numbers, or the number itself.
fn extreme_number(v: &ArgValue, combine: fn(f64, f64) -> f64) -> Option<ArgValue> {
    let numbers: Option<Vec<f64>> = match v {
        ArgValue::List(items) => items.iter().map(ArgValue::as_number).collect(),
        v => v.as_number().map(|x| vec![x]),
    };
    numbers?.into_iter().reduce(combine).map(ArgValue::Float)
}

/// Converts an index that may count from the end.
fn wrap_index(place: &ArgValue, len: usize) -> Option<usize> {
    let n = place.as_dim()?.as_const()?;
    usize::try_from(if n < 0 { n + len as i64 } else { n }).ok()
}

fn shape_dims(v: &ArgValue) -> Option<Vec<Dim>> {
    match v {
        ArgValue::Tensor(_, shape) => shape.clone(),
        ArgValue::List(items) => items.iter().map(ArgValue::as_dim).collect(),
        _ => None,
    }
}

fn dims_list(dims: &[Dim]) -> ArgValue {
    ArgValue::List(dims.iter().cloned().map(ArgValue::Int).collect())
}

fn of_shape(f: &str, args: &[ArgValue]) -> Option<ArgValue> {
    let shape = shape_dims(args.first()?)?;
    Some(match f {
        "rank" => ArgValue::int(shape.len() as i64),
        "numel" => ArgValue::Int(shape.iter().fold(Dim::Const(1), |a, n| a.mul(n))),
        "shape" => dims_list(&shape),
        "size" => ArgValue::Int(shape.get(wrap_index(args.get(1)?, shape.len())?)?.clone()),
        "lead" => {
            let n = usize::try_from(args.get(1)?.as_dim()?.as_const()?).ok()?;
            dims_list(&shape[..shape.len().checked_sub(n)?])
        }
        "without" => {
            let mut rest = shape.clone();
            rest.remove(wrap_index(args.get(1)?, shape.len()).filter(|&d| d < shape.len())?);
            dims_list(&rest)
        }
        "broadcast" => dims_list(&broadcast_dims(&shape, &shape_dims(args.get(1)?)?).ok()?),
        "fits" => {
            let to = shape_dims(args.get(1)?)?;
            let fitting =
                broadcast_dims(&shape, &to).is_ok_and(|b| dims_list(&b).equals(&dims_list(&to)) != Some(false));
            ArgValue::Bool(fitting)
        }
        _ => return None,
    })
}
