//! Calls in values: dtypes, devices, floats.

use super::{Arg, FxirContext};
use crate::diag::{Code, Diagnostic};
use crate::syntax::ast::*;

impl FxirContext {
    /// `name(args)` as a value: `slice`, `range`, `device`, `opaque`, or a function in a rule's condition.
    pub(in crate::syntax) fn call(&mut self, name: Name, list: Vec<Arg>, l: usize, r: usize) -> Value {
        let span = self.span(l, r);
        let args = self.args(list);
        match known_call(&name.text, &args) {
            Ok(Some(kind)) => return Value::new(kind, span),
            Ok(None) => {}
            Err(usage) => {
                let d = Diagnostic::new(Code::E0012, format!("invalid arguments for `{}`", name.text))
                    .at(span, "unknown key or invalid value")
                    .help(format!("write {usage}"));
                self.errors.push(d);
            }
        }
        Value::new(ValueKind::Call(name, args), span)
    }
}

/// Whether calls of `name` are literals.
pub(in crate::syntax) fn is_value_call(name: &str) -> bool {
    matches!(
        name,
        "slice" | "range" | "device" | "torch.device" | "opaque" | "torch.Size" | "float"
    )
}

/// The literal that a call of `name` denotes; `Err` is the correct syntax.
fn known_call(name: &str, args: &Args) -> Result<Option<ValueKind>, &'static str> {
    let none = |span| Value::new(ValueKind::None, span);
    let int = |i, span| Value::new(ValueKind::Int(i), span);
    let p = &args.positional[..];
    if !is_value_call(name) {
        return Ok(None);
    }
    let kind = match (name, p, args.keyword.is_empty()) {
        ("slice", [b], true) => ValueKind::Slice(Box::new([none(b.span), b.clone(), none(b.span)])),
        ("slice", [a, b], true) => ValueKind::Slice(Box::new([a.clone(), b.clone(), none(b.span)])),
        ("slice", [a, b, c], true) => ValueKind::Slice(Box::new([a.clone(), b.clone(), c.clone()])),
        ("slice", ..) => return Err("`slice(start, stop, step)`"),
        ("range", [b], true) => ValueKind::Range(Box::new([int(0, b.span), b.clone(), int(1, b.span)])),
        ("range", [a, b], true) => ValueKind::Range(Box::new([a.clone(), b.clone(), int(1, b.span)])),
        ("range", [a, b, c], true) => ValueKind::Range(Box::new([a.clone(), b.clone(), c.clone()])),
        ("range", ..) => return Err("`range(start, stop, step)`"),
        ("torch.Size", [Value { kind, .. }], true) => match kind {
            ValueKind::List(v) | ValueKind::Tuple(v) => ValueKind::Tuple(v.clone()),
            _ => return Err("`torch.Size([2, 3])`, which is a tuple"),
        },
        ("float", [v], true) => ValueKind::Float(eval_float(&v.kind).ok_or("`float(\"inf\")` or `float(\"nan\")`")?),
        ("float", ..) => return Err("`float(\"inf\")` or `float(\"nan\")`"),
        ("torch.Size", ..) => return Err("`torch.Size([2, 3])`, which is a tuple"),
        ("opaque", [v], true) if let ValueKind::Str(s) = &v.kind => ValueKind::Opaque(s.clone()),
        ("opaque", ..) => return Err("`opaque(\"text\")`"),
        _ => {
            return eval_device(args)
                .map(Some)
                .ok_or("`device(\"cpu\")` or `device(\"cuda:0\")`");
        }
    };
    Ok(Some(kind))
}

/// The result of Python's `float(…)` for a literal.
fn eval_float(v: &ValueKind) -> Option<f64> {
    match v {
        ValueKind::Float(x) => Some(*x),
        ValueKind::Int(i) => Some(*i as f64),
        ValueKind::Str(s) => match s.trim().to_ascii_lowercase().trim_start_matches('+') {
            "nan" | "-nan" => Some(f64::NAN),
            "inf" | "infinity" => Some(f64::INFINITY),
            "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
            text => text.parse().ok(),
        },
        _ => None,
    }
}

/// `device("cuda:0")`, `device("cuda", 0)` or `device(type="cuda", index=0)`.
fn eval_device(args: &Args) -> Option<ValueKind> {
    let argument = |i: usize, name: &str| {
        let by_name = || args.keyword.iter().find(|(k, _)| &*k.text == name).map(|(_, v)| v);
        args.positional.get(i).or_else(by_name)
    };
    let known = |k: &Name| matches!(&*k.text, "type" | "index");
    if args.positional.len() + args.keyword.len() > 2 || !args.keyword.iter().all(|(k, _)| known(k)) {
        return None;
    }
    let ValueKind::Str(kind) = &argument(0, "type")?.kind else {
        return None;
    };
    match argument(1, "index").map(|v| &v.kind) {
        None => Some(ValueKind::Device(kind.clone())),
        Some(ValueKind::Int(i)) => Some(ValueKind::Device(format!("{kind}:{i}").into())),
        Some(_) => None,
    }
}
