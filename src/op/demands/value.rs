//! Values in conditions.

use crate::types::{DType, Dim, Val, write_float};
use std::fmt;

/// The value of an expression over arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ArgValue {
    /// Known only at run time, or undefined for this argument.
    Unknown,
    None,
    Bool(bool),
    Int(Dim),
    Float(f64),
    Text(String),
    DType(DType),
    List(Vec<ArgValue>),
    Tensor(DType, Option<Vec<Dim>>),
    /// Any other value, by its kind.
    Other(&'static str),
}

impl ArgValue {
    /// Converts an argument to a value.
    pub(super) fn from_val<T>(v: &Val<T>, tensor: &dyn Fn(&T) -> ArgValue) -> ArgValue {
        match v {
            Val::Leaf(t) => tensor(t),
            Val::None => ArgValue::None,
            Val::Bool(b) => ArgValue::Bool(*b),
            Val::Int(d) => ArgValue::Int(d.clone()),
            Val::Float(x) => ArgValue::Float(*x),
            Val::Str(s) => ArgValue::Text(s.to_string()),
            Val::DType(d) => ArgValue::DType(*d),
            Val::List(items) | Val::Tuple(items) => {
                ArgValue::List(items.iter().map(|v| ArgValue::from_val(v, tensor)).collect())
            }
            Val::Any(_) | Val::Unknown => ArgValue::Unknown,
            v => ArgValue::Other(v.kind_name()),
        }
    }

    /// The name of the value's Python class.
    pub(super) fn class_name(&self) -> ArgValue {
        let name = match self {
            ArgValue::Unknown => return ArgValue::Unknown,
            ArgValue::None => "NoneType",
            ArgValue::Bool(_) => "bool",
            ArgValue::Int(_) => "int",
            ArgValue::Float(_) => "float",
            ArgValue::Text(_) => "str",
            ArgValue::DType(_) => "dtype",
            ArgValue::List(_) => "list",
            ArgValue::Tensor(..) => "Tensor",
            ArgValue::Other(kind) => kind,
        };
        ArgValue::Text(name.into())
    }

    pub(super) fn int(n: i64) -> ArgValue {
        ArgValue::Int(Dim::Const(n))
    }

    /// The value of a known number or bool.
    pub(super) fn as_number(&self) -> Option<f64> {
        match self {
            ArgValue::Bool(b) => Some(f64::from(*b)),
            ArgValue::Int(d) => d.as_const().map(|n| n as f64),
            ArgValue::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// The number as a symbolic or known size.
    pub(super) fn as_dim(&self) -> Option<Dim> {
        match self {
            ArgValue::Bool(b) => Some(Dim::Const(i64::from(*b))),
            ArgValue::Int(d) => Some(d.clone()),
            _ => None,
        }
    }

    /// The difference of two numbers, if it is known.
    pub(super) fn difference(&self, other: &ArgValue) -> Option<f64> {
        match (self.as_number(), other.as_number()) {
            (Some(a), Some(b)) => Some(a - b),
            _ => self.as_dim()?.sub(&other.as_dim()?).as_const().map(|n| n as f64),
        }
    }

    /// Whether two values are equal; `None` if that is unknown.
    pub(super) fn equals(&self, other: &ArgValue) -> Option<bool> {
        match (self, other) {
            (ArgValue::Unknown, _) | (_, ArgValue::Unknown) => None,
            (ArgValue::List(a), ArgValue::List(b)) => {
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
            _ if self.as_dim().is_some() && other.as_dim().is_some() => self.difference(other).map(|d| d == 0.0),
            _ if self.as_number().is_some() && other.as_number().is_some() => {
                Some(self.as_number() == other.as_number())
            }
            _ => Some(self == other),
        }
    }

    pub(super) fn from_truth(known: Option<bool>) -> ArgValue {
        known.map_or(ArgValue::Unknown, ArgValue::Bool)
    }
}

impl fmt::Display for ArgValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgValue::Unknown => f.write_str("?"),
            ArgValue::None => f.write_str("None"),
            ArgValue::Bool(true) => f.write_str("True"),
            ArgValue::Bool(false) => f.write_str("False"),
            ArgValue::Int(d) => d.fmt(f),
            ArgValue::Float(x) => f.write_str(&write_float(*x)),
            ArgValue::Text(s) => f.write_str(s),
            ArgValue::DType(d) => f.write_str(d.scalar_type_name()),
            ArgValue::Other(kind) => f.write_str(kind),
            ArgValue::Tensor(d, _) => write!(f, "a tensor of {d}"),
            ArgValue::List(items) => {
                f.write_str("[")?;
                for (i, v) in items.iter().enumerate() {
                    write!(f, "{}{v}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}
