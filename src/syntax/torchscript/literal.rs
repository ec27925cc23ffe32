//! Converts constants, types and locations of TorchScript to FXIR.

use super::tree::Ty;
use crate::diag::Diagnostic;
use crate::source::Span;
use crate::syntax::ast::{Loc, Name, Type, TypeKind, Value, ValueKind};
use crate::syntax::token::unescape;

/// The function of `operator` for an ATen operator on Python numbers.
pub(super) fn on_numbers(op: &str) -> Option<&'static str> {
    Some(match op {
        "add" => "add",
        "sub" => "sub",
        "mul" => "mul",
        "div" => "truediv",
        "floordiv" | "floor_divide" => "floordiv",
        "remainder" => "mod",
        "pow" => "pow",
        "neg" => "neg",
        "eq" => "eq",
        "ne" => "ne",
        "lt" => "lt",
        "le" => "le",
        "gt" => "gt",
        "ge" => "ge",
        "__and__" => "and_",
        "__or__" => "or_",
        "__not__" => "not_",
        _ => return None,
    })
}

/// Parses a constant; `None` for a tensor whose elements are not in the text as Python numbers.
pub(super) fn parse_literal(text: &str, ty: &Ty, span: Span, errors: &mut Vec<Diagnostic>) -> Option<ValueKind> {
    let text = text.trim();
    if let Some(value) = annotated_value(text) {
        return parse_literal(value, &Ty::named("item"), span, errors);
    }
    // A tensor of no dimensions, which tracing made from a number.
    let number = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    if let Some(body) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
        let body = unescape(body, span.file, span.start as usize, errors);
        return Some(match &*ty.name {
            "Device" => ValueKind::Device(body.into()),
            _ => ValueKind::Str(body.into()),
        });
    }
    let within = |open: char, close: char| text.strip_prefix(open).and_then(|t| t.strip_suffix(close));
    if let Some(inner) = within('[', ']') {
        return parse_items(inner, "", span, errors).map(ValueKind::List);
    }
    if let Some(inner) = within('(', ')') {
        return parse_items(inner, "item", span, errors).map(ValueKind::Tuple);
    }
    match text {
        "None" => return Some(ValueKind::None),
        "True" | "true" => return Some(ValueKind::Bool(true)),
        "False" | "false" => return Some(ValueKind::Bool(false)),
        _ => {}
    }
    if &*ty.name == "NoneType" {
        return Some(ValueKind::None);
    }
    let float = matches!(&*ty.name, "float" | "Float" | "Double" | "Half" | "BFloat16");
    match (number_of(number, float)?, &*ty.name) {
        (ValueKind::Int(i), "bool" | "Bool") => Some(ValueKind::Bool(i != 0)),
        (kind, _) => Some(kind),
    }
}

/// Parses the items of a list or tuple, of the type named `item_type`.
fn parse_items(text: &str, item_type: &str, span: Span, errors: &mut Vec<Diagnostic>) -> Option<Vec<Value>> {
    let item_type = Ty::named(item_type);
    let mut values = vec![];
    for item in split_items(text)? {
        values.push(Value::new(parse_literal(item, &item_type, span, errors)?, span));
    }
    Some(values)
}

/// The value in `annotate(TYPE, VALUE)`.
pub(super) fn annotated_value(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("annotate(")?.strip_suffix(')')?;
    let ty = split_items(inner)?.first()?.len();
    Some(inner.get(ty..)?.trim_start().strip_prefix(',')?.trim())
}

/// Splits at commas outside of quotes and brackets. `None` if brackets nest deeper than in constants.
fn split_items(inner: &str) -> Option<Vec<&str>> {
    const DEEPEST: usize = 4;
    let (mut items, mut from, mut depth) = (vec![], 0, 0usize);
    let (mut quoted, mut escaped) = (false, false);
    for (i, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                items.push(&inner[from..i]);
                from = i + 1;
            }
            _ => {}
        }
        if depth > DEEPEST {
            return None;
        }
    }
    items.push(&inner[from..]);
    items.retain(|t| !t.trim().is_empty());
    Some(items)
}

fn number_of(text: &str, float: bool) -> Option<ValueKind> {
    match text {
        "inf" => return Some(ValueKind::Float(f64::INFINITY)),
        "-inf" => return Some(ValueKind::Float(f64::NEG_INFINITY)),
        "nan" | "-nan" => return Some(ValueKind::Float(f64::NAN)),
        _ => {}
    }
    if let (Ok(i), false) = (text.parse::<i64>(), float) {
        return Some(ValueKind::Int(i));
    }
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    text.parse::<f64>().ok().filter(|_| plain).map(ValueKind::Float)
}

/// The FXIR type of a tensor with known sizes.
pub(super) fn tensor_type(t: &Ty, span: Span) -> Option<Type> {
    let dtype = t.dtype().filter(|_| t.shaped)?;
    let size = |s: &Option<i64>| {
        let kind = s.map_or(ValueKind::Unknown, ValueKind::Int);
        Value::new(kind, span)
    };
    let kind = TypeKind::Tensor {
        dtype: Name::new(dtype, span),
        shape: Some(t.sizes.iter().map(size).collect()),
    };
    Some(Type { kind, span })
}

/// `# model.py:12:0`
pub(super) fn parse_loc(comment: &str, span: Span) -> Option<Loc> {
    let place = comment.trim_start_matches('#').trim();
    let (rest, _column) = place.rsplit_once(':')?;
    let (file, line) = rest.rsplit_once(':')?;
    Some(Loc {
        file: file.into(),
        line: line.parse().ok()?,
        function: None,
        code: None,
        span,
    })
}
