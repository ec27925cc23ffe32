//! The common structure of arguments, values and types.
//!
//! torch.fx arguments, run-time values and inferred types share a structure: scalars, strings, dtypes, nested lists,
//! tuples, dicts and slices around tensors. [`Val`] is that structure, generic over the representation of tensors:
//!
//! * `Val<NodeId>` is a graph argument (`graph::Arg`): the leaf refers to a node;
//! * `Val<Tensor>` is a run-time value (`interp::RuntimeValue`);
//! * `Val<TensorType>` is a type ([`Type`](super::Type)): what inference knows of a value in advance.

use super::{DType, Dim, TensorType};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A value with leaves of type `T`; the module documentation lists the choices of `T`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub enum Val<T> {
    /// The leaf: a node, a tensor, or a tensor's type.
    Leaf(T),
    /// `None`.
    None,
    /// A Python `bool`.
    Bool(bool),
    /// A Python `int`, symbolic if it is computed from symbolic sizes.
    Int(Dim),
    /// A Python `float`.
    Float(f64),
    /// A Python `complex`.
    Complex(f64, f64),
    /// A string.
    Str(Arc<str>),
    /// `torch.float32` and its like.
    DType(DType),
    /// `torch.device("cpu")`.
    Device(Arc<str>),
    /// Another name from the `torch` module: `torch.contiguous_format`, `torch.strided`, `torch.per_tensor_affine`.
    TorchName(Arc<str>),
    /// `Ellipsis`.
    Ellipsis,
    /// A graph of the same file, by name: `@then_graph`.
    Graph(Arc<str>),
    /// A list.
    List(#[serde(deserialize_with = "super::nested")] Vec<Val<T>>),
    /// A tuple.
    Tuple(#[serde(deserialize_with = "super::nested")] Vec<Val<T>>),
    /// A dict, in insertion order.
    Dict(#[serde(deserialize_with = "super::nested")] Vec<(Val<T>, Val<T>)>),
    /// `slice(start, stop, step)`.
    Slice(#[serde(deserialize_with = "super::nested")] Box<[Val<T>; 3]>),
    /// `range(start, stop, step)`.
    Range(#[serde(deserialize_with = "super::nested")] Box<[Val<T>; 3]>),
    /// The text that torch prints for an object without a literal: `<built-in function add>`, `tensor([1., 1.])`.
    Opaque(Arc<str>),
    /// In types: a scalar of this kind whose value is unknown.
    Any(ScalarKind),
    /// In types: nothing is known, because an error was already reported here or no type rule covers the op.
    Unknown,
}

/// The kinds of scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
#[non_exhaustive]
pub enum ScalarKind {
    Int,
    Float,
    Bool,
    Str,
}

impl<T> Val<T> {
    /// A constant int.
    pub fn int(v: i64) -> Val<T> {
        Val::Int(Dim::Const(v))
    }

    /// A string.
    pub fn str(s: &str) -> Val<T> {
        Val::Str(s.into())
    }

    /// The leaf, if this is one.
    pub fn as_leaf(&self) -> Option<&T> {
        match self {
            Val::Leaf(t) => Some(t),
            _ => None,
        }
    }

    /// The constant int (bools count as 0 and 1, as in Python).
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Val::Int(d) => d.as_const(),
            Val::Bool(b) => Some(*b as i64),
            _ => None,
        }
    }

    /// The number as f64: int, float or bool.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Val::Float(f) => Some(*f),
            _ => self.as_int().map(|i| i as f64),
        }
    }

    /// The string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Val::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The items of a list or tuple.
    pub fn items(&self) -> Option<&[Val<T>]> {
        match self {
            Val::List(v) | Val::Tuple(v) => Some(v),
            _ => None,
        }
    }

    /// Whether this is `None`.
    pub fn is_none(&self) -> bool {
        matches!(self, Val::None)
    }

    /// The kind of this value, as a word for diagnostics.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Val::Leaf(_) => "Tensor",
            Val::None => "None",
            Val::Bool(_) | Val::Any(ScalarKind::Bool) => "bool",
            Val::Int(_) | Val::Any(ScalarKind::Int) => "int",
            Val::Float(_) | Val::Any(ScalarKind::Float) => "float",
            Val::Complex(..) => "complex",
            Val::Str(_) | Val::Any(ScalarKind::Str) => "str",
            Val::DType(_) => "dtype",
            Val::Device(_) => "device",
            Val::TorchName(_) => "torch constant",
            Val::Ellipsis => "Ellipsis",
            Val::Graph(_) => "graph",
            Val::List(_) => "list",
            Val::Tuple(_) => "tuple",
            Val::Dict(_) => "dict",
            Val::Slice(_) => "slice",
            Val::Range(_) => "range",
            Val::Opaque(_) => "object",
            Val::Unknown => "unknown",
        }
    }

    /// Rebuilds the value, replacing every leaf by the value that `f` returns.
    pub fn try_map<U, E>(&self, f: &mut dyn FnMut(&T) -> Result<Val<U>, E>) -> Result<Val<U>, E> {
        let mut seq = |v: &[Val<T>]| v.iter().map(|x| x.try_map(f)).collect::<Result<Vec<_>, E>>();
        Ok(match self {
            Val::Leaf(t) => f(t)?,
            Val::List(v) => Val::List(seq(v)?),
            Val::Tuple(v) => Val::Tuple(seq(v)?),
            Val::Dict(v) => {
                let mut out = Vec::with_capacity(v.len());
                for (k, x) in v {
                    out.push((k.try_map(f)?, x.try_map(f)?));
                }
                Val::Dict(out)
            }
            Val::Slice(v) => Val::Slice(Box::new([v[0].try_map(f)?, v[1].try_map(f)?, v[2].try_map(f)?])),
            Val::Range(v) => Val::Range(Box::new([v[0].try_map(f)?, v[1].try_map(f)?, v[2].try_map(f)?])),
            Val::None => Val::None,
            Val::Bool(b) => Val::Bool(*b),
            Val::Int(d) => Val::Int(d.clone()),
            Val::Float(x) => Val::Float(*x),
            Val::Complex(a, b) => Val::Complex(*a, *b),
            Val::Str(s) => Val::Str(s.clone()),
            Val::DType(d) => Val::DType(*d),
            Val::Device(s) => Val::Device(s.clone()),
            Val::TorchName(s) => Val::TorchName(s.clone()),
            Val::Ellipsis => Val::Ellipsis,
            Val::Graph(s) => Val::Graph(s.clone()),
            Val::Opaque(s) => Val::Opaque(s.clone()),
            Val::Any(k) => Val::Any(*k),
            Val::Unknown => Val::Unknown,
        })
    }

    /// [`Val::try_map`] for a function that cannot fail and maps leaves to leaves.
    pub fn map<U>(&self, mut f: impl FnMut(&T) -> U) -> Val<U> {
        let r: Result<Val<U>, std::convert::Infallible> = self.try_map(&mut |t| Ok(Val::Leaf(f(t))));
        match r {
            Ok(v) => v,
        }
    }

    /// Calls `f` with every leaf, in the order in which they are written. As in torch.fx, dict keys contain none.
    pub fn visit<'a>(&'a self, f: &mut dyn FnMut(&'a T)) {
        match self {
            Val::Leaf(t) => f(t),
            Val::List(v) | Val::Tuple(v) => v.iter().for_each(|x| x.visit(f)),
            Val::Dict(v) => v.iter().for_each(|(_, x)| x.visit(f)),
            Val::Slice(v) | Val::Range(v) => v.iter().for_each(|x| x.visit(f)),
            _ => {}
        }
    }

    /// The leaves, in the order in which they are written.
    pub fn leaves(&self) -> Vec<&T> {
        let mut out = Vec::new();
        self.visit(&mut |t| out.push(t));
        out
    }

    /// torch's pytree flattening: the non-container values in order (dict values in insertion order).
    pub fn flatten(&self) -> Vec<&Val<T>> {
        fn push_flat<'a, T>(v: &'a Val<T>, out: &mut Vec<&'a Val<T>>) {
            match v {
                Val::List(v) | Val::Tuple(v) => v.iter().for_each(|x| push_flat(x, out)),
                Val::Dict(v) => v.iter().for_each(|(_, x)| push_flat(x, out)),
                _ => out.push(v),
            }
        }
        let mut out = Vec::new();
        push_flat(self, &mut out);
        out
    }
}

/// A type as FXIR writes it: `f32[N, 3]`, `int`, `(f32[], i64[])`, `{"k": int}`.
impl fmt::Display for Val<TensorType> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seq = |f: &mut fmt::Formatter<'_>, v: &[Val<TensorType>]| -> fmt::Result {
            for (i, x) in v.iter().enumerate() {
                write!(f, "{}{x}", if i > 0 { ", " } else { "" })?;
            }
            Ok(())
        };
        match self {
            Val::Leaf(t) => t.fmt(f),
            Val::Tuple(v) => {
                f.write_str("(")?;
                seq(f, v)?;
                f.write_str(if v.len() == 1 { ",)" } else { ")" })
            }
            Val::List(v) if v.len() > 1 && v.windows(2).all(|w| w[0].to_string() == w[1].to_string()) => {
                write!(f, "[{}]", v[0])
            }
            Val::List(v) => {
                f.write_str("[")?;
                seq(f, v)?;
                f.write_str("]")
            }
            Val::Dict(v) => {
                f.write_str("{")?;
                for (i, (k, x)) in v.iter().enumerate() {
                    f.write_str(if i > 0 { ", " } else { "" })?;
                    match k {
                        Val::Str(s) => write!(f, "{}: {x}", write_str(s))?,
                        Val::Int(d) => write!(f, "{d}: {x}")?,
                        _ => write!(f, "{k}: {x}")?,
                    }
                }
                f.write_str("}")
            }
            Val::Unknown => f.write_str("?"),
            _ => f.write_str(self.kind_name()),
        }
    }
}

/// A float as Python's `repr` writes it: `1.0`, `1e-05`, `inf`, `-0.0`, `nan`.
pub(crate) fn write_float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let sci = format!("{x:e}");
    let (mantissa, exp) = sci.split_once('e').unwrap_or((&sci, "0"));
    let exp: i32 = exp.parse().unwrap_or(0);
    if (-4..16).contains(&exp) {
        let s = format!("{x}");
        if s.contains('.') { s } else { s + ".0" }
    } else {
        format!("{mantissa}e{}{:02}", if exp < 0 { '-' } else { '+' }, exp.abs())
    }
}

/// A complex number as Python's `repr` writes it: `1j`, `(1+2j)`, `(-0-infj)`.
pub(crate) fn write_complex(re: f64, im: f64) -> String {
    let short = |x: f64| {
        let s = write_float(x);
        s.strip_suffix(".0").map(str::to_string).unwrap_or(s)
    };
    let im_text = short(im);
    if re == 0.0 && re.is_sign_positive() {
        return format!("{im_text}j");
    }
    let plus = if im_text.starts_with('-') { "" } else { "+" };
    format!("({}{plus}{im_text}j)", short(re))
}

/// A string as Python's `repr` writes it, except that double quotes are the usual ones, as in FXIR.
pub(crate) fn write_str(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_python_does() {
        for (x, s) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
            (0.1, "0.1"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(write_float(x), s);
        }
    }
}
