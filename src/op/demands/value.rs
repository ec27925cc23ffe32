//! The values of conditions.

use crate::types::{DType, Dim, Val, write_float};
use std::fmt;

/// What an expression over arguments comes to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Only the run shows it, or the question means nothing for this argument.
    Unknown,
    None,
    Bool(bool),
    Int(Dim),
    Float(f64),
    Text(String),
    DType(DType),
    List(Vec<Value>),
    Tensor(DType, Option<Vec<Dim>>),
    /// Anything else: its kind.
    Other(&'static str),
}

impl Value {
    /// An argument as a value.
    pub(super) fn of<T>(v: &Val<T>, tensor: &dyn Fn(&T) -> Value) -> Value {
        match v {
            Val::Leaf(t) => tensor(t),
            Val::None => Value::None,
            Val::Bool(b) => Value::Bool(*b),
            Val::Int(d) => Value::Int(d.clone()),
            Val::Float(x) => Value::Float(*x),
            Val::Str(s) => Value::Text(s.to_string()),
            Val::DType(d) => Value::DType(*d),
            Val::List(items) | Val::Tuple(items) => Value::List(items.iter().map(|v| Value::of(v, tensor)).collect()),
            Val::Any(_) | Val::Unknown => Value::Unknown,
            v => Value::Other(v.kind_name()),
        }
    }

    /// Python's name of the value's class.
    pub(super) fn kind(&self) -> Value {
        let name = match self {
            Value::Unknown => return Value::Unknown,
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "str",
            Value::DType(_) => "dtype",
            Value::List(_) => "list",
            Value::Tensor(..) => "Tensor",
            Value::Other(kind) => kind,
        };
        Value::Text(name.into())
    }

    pub(super) fn int(n: i64) -> Value {
        Value::Int(Dim::Const(n))
    }

    /// The size of a known number; bools count.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Value::Bool(b) => Some(f64::from(*b)),
            Value::Int(d) => d.as_const().map(|n| n as f64),
            Value::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// The number as a size.
    pub(super) fn dim(&self) -> Option<Dim> {
        match self {
            Value::Bool(b) => Some(Dim::Const(i64::from(*b))),
            Value::Int(d) => Some(d.clone()),
            _ => None,
        }
    }

    /// The difference of two numbers, if it is known.
    pub(super) fn less(&self, other: &Value) -> Option<f64> {
        match (self.number(), other.number()) {
            (Some(a), Some(b)) => Some(a - b),
            _ => self.dim()?.sub(&other.dim()?).as_const().map(|n| n as f64),
        }
    }

    /// Whether two values are the same; `None` where that is not known.
    pub(super) fn equals(&self, other: &Value) -> Option<bool> {
        match (self, other) {
            (Value::Unknown, _) | (_, Value::Unknown) => None,
            (Value::List(a), Value::List(b)) => {
                let mut known = true;
                for (x, y) in a.iter().zip(b) {
                    match x.equals(y) {
                        Some(false) => return Some(false),
                        Some(true) => {}
                        None => known = false,
                    }
                }
                (a.len() != b.len()).then_some(false).or(known.then_some(true))
            }
            _ if self.dim().is_some() && other.dim().is_some() => self.less(other).map(|d| d == 0.0),
            _ if self.number().is_some() && other.number().is_some() => Some(self.number() == other.number()),
            _ => Some(self == other),
        }
    }

    pub(super) fn truth(known: Option<bool>) -> Value {
        known.map_or(Value::Unknown, Value::Bool)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unknown => f.write_str("?"),
            Value::None => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Int(d) => d.fmt(f),
            Value::Float(x) => f.write_str(&write_float(*x)),
            Value::Text(s) => f.write_str(s),
            Value::DType(d) => f.write_str(d.scalar_type_name()),
            Value::Other(kind) => f.write_str(kind),
            Value::Tensor(d, _) => write!(f, "a tensor of {d}"),
            Value::List(items) => {
                f.write_str("[")?;
                for (i, v) in items.iter().enumerate() {
                    write!(f, "{}{v}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}
