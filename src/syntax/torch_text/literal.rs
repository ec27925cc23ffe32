//! Words in torch's text that are not strings, and its brackets.

use super::is_ident;
use crate::syntax::ast::ValueKind;
use crate::syntax::resolve::is_torch_name;
use crate::types::{DType, write_complex, write_float};

/// torch's device types.
const DEVICES: [&str; 14] = [
    "cpu",
    "cuda",
    "meta",
    "mps",
    "xpu",
    "hpu",
    "mtia",
    "xla",
    "vulkan",
    "ipu",
    "hip",
    "lazy",
    "maia",
    "privateuseone",
];

pub(super) fn is_identifier(s: &str) -> bool {
    !s.is_empty() && !s.starts_with(|c: char| c.is_ascii_digit()) && s.chars().all(is_ident)
}

pub(super) fn parse_constant(text: &str) -> Option<ValueKind> {
    Some(match text {
        "None" => ValueKind::None,
        "True" => ValueKind::Bool(true),
        "False" => ValueKind::Bool(false),
        "Ellipsis" => ValueKind::Ellipsis,
        _ => return None,
    })
}

/// Parses a number, if Python prints it with exactly this text.
pub(super) fn parse_number(text: &str) -> Option<ValueKind> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | 'i' | 'n' | '(')) {
        return None;
    }
    if let Some(i) = text.parse::<i64>().ok().filter(|i| i.to_string() == text) {
        return Some(ValueKind::Int(i));
    }
    if let Some(x) = text.parse::<f64>().ok().filter(|x| write_float(*x) == text) {
        return Some(ValueKind::Float(x));
    }
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text);
    let body = inner.strip_suffix('j')?;
    // The sign between the two parts is the last one that is not in an exponent.
    let part = |(i, _): &(usize, char)| *i > 0 && !body[..*i].ends_with('e');
    let split = body.char_indices().filter(|(_, c)| matches!(c, '+' | '-')).rfind(part);
    let (re, im) = match split {
        Some((i, _)) if text.starts_with('(') => (body[..i].parse().ok()?, body[i..].parse().ok()?),
        _ => (0.0, body.parse().ok()?),
    };
    (write_complex(re, im) == text).then_some(ValueKind::Complex(re, im))
}

pub(super) fn parse_device(text: &str) -> Option<ValueKind> {
    let (kind, index) = text.split_once(':').map_or((text, None), |(k, i)| (k, Some(i)));
    let index_ok = index.is_none_or(|i| !i.is_empty() && i.bytes().all(|b| b.is_ascii_digit()));
    (DEVICES.contains(&kind) && index_ok).then(|| ValueKind::Device(text.into()))
}

/// `torch.float32` in torch's spelling, or another name of the torch module.
pub(super) fn torch_name(text: &str) -> Option<ValueKind> {
    let known = match DType::from_torch(text) {
        Some(d) => text.strip_prefix("torch.") == Some(d.torch_name()),
        None => is_torch_name(text),
    };
    known.then(|| ValueKind::Name(text.into()))
}

/// Whether the bracket at the start of `text` is closed by its last character, `close`.
pub(super) fn is_bracketed(text: &str, close: char) -> bool {
    text.ends_with(close) && bracket_len(text) == Some(text.len())
}

/// The length of the bracketed text at the start of `text`, ignoring brackets in quoted strings.
pub(super) fn bracket_len(text: &str) -> Option<usize> {
    let mut depth = 0i64;
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}
