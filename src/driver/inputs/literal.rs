//! Literal values: numbers, strings, and lists of them, in Python syntax.

use super::bind::Value;
use crate::diag::Diagnostics;
use crate::source::FileId;
use crate::syntax;
use crate::tensor::{Scalar, Tensor, byte_len, is_available};
use crate::types::{DType, Dim, ScalarKind, Type, Val, promote_types};

/// Help text: how to write inputs.
pub(crate) const HELP: &str = "write NAME=FILE.npy, NAME=zeros, NAME=ones, NAME=arange, NAME=rand:SEED, NAME=randn:SEED, NAME=NUMBER or \
     NAME=[1, 2]; NAME:TYPE sets an input's type, such as x:f32[2,3]";

/// Parses a literal: a number, `None`, `True`, `False`, a quoted string, or a list, tuple or dict of these.
pub(crate) fn parse(text: &str) -> Option<Value> {
    match text {
        "None" => return Some(Val::None),
        "True" | "true" => return Some(Val::Bool(true)),
        "False" | "false" => return Some(Val::Bool(false)),
        _ => {}
    }
    if let Ok(i) = text.parse() {
        return Some(Val::int(i));
    }
    if let Ok(x) = text.parse() {
        return Some(Val::Float(x));
    }
    if !text.trim_start().starts_with(['[', '(', '{', '"', '\'']) {
        return None;
    }
    // Outside of a list, a brace would open the body of a graph.
    let (tree, found) = syntax::parse_value(FileId(0), &format!("[{text}]"));
    let tree = tree.filter(|_| !found.has_errors())?;
    let mut found = Diagnostics::new();
    match syntax::resolve::value(&tree, &mut |_, _| None, &mut found) {
        Val::List(mut v) if !found.has_errors() && v.len() == 1 => v.pop().filter(is_plain),
        _ => None,
    }
}

/// Whether a value consists of numbers and strings only.
fn is_plain(v: &Value) -> bool {
    match v {
        Val::None | Val::Bool(_) | Val::Int(Dim::Const(_)) | Val::Float(_) | Val::Str(_) => true,
        Val::List(v) | Val::Tuple(v) => v.iter().all(is_plain),
        Val::Dict(v) => v.iter().all(|(k, v)| is_plain(k) && is_plain(v)),
        _ => false,
    }
}

/// Whether two values are equal by Python's `==`; `None` only equals itself.
pub(crate) fn is_python_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Val::List(x), Val::List(y)) | (Val::Tuple(x), Val::Tuple(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| is_python_equal(x, y))
        }
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(x), Some(y)) => a.as_int().zip(b.as_int()).map_or(x == y, |(i, j)| i == j),
            (None, None) => a == b,
            _ => false,
        },
    }
}

/// The tensor that nested lists of numbers denote. A single number fills all of `shape`. The error says what does not
/// fit.
pub(crate) fn to_tensor(v: &Value, dtype: DType, shape: Option<&[usize]>) -> Result<Tensor, String> {
    let lists = list_lengths(v);
    let shape = shape.unwrap_or(&lists);
    if !dtype.is_held() {
        return Err(format!("fxc does not support {dtype}"));
    }
    if !byte_len(dtype, shape).is_some_and(is_available) {
        return Err("it is too large".into());
    }
    let wrong = |v: &Value| format!("{} is not a valid element of type {dtype}", v.map(Tensor::ty));
    if v.items().is_none() {
        let x = to_element(v, dtype).ok_or_else(|| wrong(v))?;
        return Ok(Tensor::from_fn(dtype, shape, |_| x));
    }
    let mut elements = vec![];
    visit_elements(v, shape, &mut |v| {
        elements.push(to_element(v, dtype).ok_or_else(|| wrong(v))?);
        Ok(())
    })?;
    Ok(Tensor::from_scalars(dtype, shape, &elements))
}

/// The tensor that `torch.tensor` makes of nested lists of numbers; `None` if the value is not such a list.
pub(crate) fn natural_tensor(v: &Value) -> Option<Tensor> {
    fn infer_dtype(v: &Value) -> Option<DType> {
        match v {
            Val::Bool(_) => Some(DType::B8),
            Val::Int(_) => Some(DType::I64),
            Val::Float(_) => Some(DType::F32),
            Val::List(items) | Val::Tuple(items) => {
                let all: Vec<DType> = items.iter().map(infer_dtype).collect::<Option<_>>()?;
                all.into_iter()
                    .reduce(|a, b| promote_types(a, b).unwrap_or(a))
                    .or(Some(DType::F32))
            }
            _ => None,
        }
    }
    v.items()?;
    to_tensor(v, infer_dtype(v)?, None).ok()
}

/// The lengths of nested lists, outermost first, according to their first items.
fn list_lengths(v: &Value) -> Vec<usize> {
    let mut out = vec![];
    let mut level = v;
    while let Some(items) = level.items() {
        out.push(items.len());
        match items.first() {
            Some(first) => level = first,
            None => break,
        }
    }
    out
}

fn visit_elements(v: &Value, shape: &[usize], out: &mut dyn FnMut(&Value) -> Result<(), String>) -> Result<(), String> {
    match (v.items(), shape) {
        (None, []) => out(v),
        (Some(items), [n, rest @ ..]) if items.len() == *n => {
            items.iter().try_for_each(|v| visit_elements(v, rest, out))
        }
        (Some(items), [n, ..]) => Err(format!("it has a list of {} items, but {n} are expected", items.len())),
        (Some(_), []) => Err("it has more dimensions than its type".into()),
        (None, _) => Err("it has fewer dimensions than its type".into()),
    }
}

/// The number as an element. An integer must be in the dtype's range, and integer dtypes accept no floats.
fn to_element(v: &Value, dtype: DType) -> Option<Scalar> {
    match v {
        Val::Bool(b) => Some(Scalar::Bool(*b).cast(dtype)),
        Val::Int(Dim::Const(i)) if dtype == DType::B8 => (0..=1).contains(i).then_some(Scalar::Bool(*i == 1)),
        Val::Int(Dim::Const(i)) if dtype.is_int() => Some(Scalar::from_i64(dtype, *i)).filter(|s| s.to_i64() == *i),
        Val::Int(Dim::Const(i)) => Some(Scalar::Int(DType::I64, *i).cast(dtype)),
        Val::Float(x) if dtype.is_float() => Some(Scalar::from_f64(dtype, *x)),
        _ => None,
    }
}

/// Converts the value to a Python type: `k:float=3` is `3.0`.
pub(crate) fn of_kind(v: &Value, ty: &Type) -> Option<Value> {
    match (ty, v) {
        (Val::Any(ScalarKind::Float), v) => v.as_f64().map(Val::Float),
        (Val::Any(ScalarKind::Int), Val::Int(_))
        | (Val::Any(ScalarKind::Bool), Val::Bool(_))
        | (Val::Any(ScalarKind::Str), Val::Str(_))
        | (Val::None, Val::None) => Some(v.clone()),
        (Val::List(t) | Val::Tuple(t), Val::List(x) | Val::Tuple(x)) if t.len() == x.len() => {
            let items = t.iter().zip(x).map(|(t, x)| of_kind(x, t)).collect::<Option<_>>()?;
            Some(match ty {
                Val::List(_) => Val::List(items),
                _ => Val::Tuple(items),
            })
        }
        (Val::Leaf(t), v) => {
            let shape = t.fixed_shape()?;
            to_tensor(v, t.dtype, Some(&shape)).ok().map(Val::Leaf)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_python_writes_them() {
        for (text, want) in [
            ("3", Some(Val::int(3))),
            ("-2.5", Some(Val::Float(-2.5))),
            ("true", Some(Val::Bool(true))),
            ("[1, 2.5]", Some(Val::List(vec![Val::int(1), Val::Float(2.5)]))),
            ("(1,)", Some(Val::Tuple(vec![Val::int(1)]))),
            ("{\"a\": None}", Some(Val::Dict(vec![(Val::str("a"), Val::None)]))),
            ("\"mean\"", Some(Val::str("mean"))),
            ("mean", None),
            (
                "{\"a\": [1], 3: {}}",
                Some(Val::Dict(vec![
                    (Val::str("a"), Val::List(vec![Val::int(1)])),
                    (Val::int(3), Val::Dict(vec![])),
                ])),
            ),
            ("[1, 2", None),
            ("[1], [2]", None),
            ("[x]", None),
            ("[%x]", None),
            ("x.npy", None),
        ] {
            assert_eq!(parse(text), want, "{text}");
        }
    }

    #[test]
    fn lists_of_numbers_are_tensors() {
        let of = |text: &str, dtype, shape: Option<&[usize]>| to_tensor(&parse(text).unwrap(), dtype, shape);
        let t = of("[[1, 2], [3, 4]]", DType::F32, None).unwrap();
        assert_eq!(
            (t.shape(), t.as_slice::<f32>()),
            (&[2, 2][..], &[1.0, 2.0, 3.0, 4.0][..])
        );
        assert_eq!(of("2", DType::I64, Some(&[3])).unwrap().as_slice::<i64>(), [2, 2, 2]);
        assert_eq!(of("[True, 0]", DType::B8, None).unwrap().numel(), 2);
        for (text, dtype, shape) in [
            ("[[1], [2, 3]]", DType::F32, None),
            ("[1.5]", DType::I64, None),
            ("[300]", DType::U8, None),
            ("[\"a\"]", DType::F32, None),
            ("[1, 2]", DType::F32, Some(&[3][..])),
            ("[1, 2]", DType::F32, Some(&[2, 1][..])),
            ("1", DType::F32, Some(&[1 << 40, 1 << 40][..])),
        ] {
            assert!(of(text, dtype, shape).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_equal_as_in_python() {
        let eq = |a: &str, b: &str| is_python_equal(&parse(a).unwrap(), &parse(b).unwrap());
        assert!(eq("3", "3.0") && eq("1", "True") && eq("[1, 2]", "[1, 2.0]") && eq("\"a\"", "'a'"));
        assert!(
            !eq("3", "True") && !eq("None", "0") && !eq("\"3\"", "3") && !eq("9007199254740993", "9007199254740992")
        );
    }
}
