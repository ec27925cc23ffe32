//! Python's `repr` of argument values, as torch's printers use it.

use super::{DType, Dim, Val, write_complex, write_float};
use std::borrow::Cow;
use std::fmt::Write;

/// The styles in which torch's printers write values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// `repr`: strings quoted, `device(type='cpu')`.
    Repr,
    /// `_format_arg` of `print(graph)`: strings, devices and dict keys as `str` returns them; `repr` again inside
    /// slices and ranges.
    Plain,
    /// `_get_repr` of generated code: `repr`, except that complex numbers whose `repr` is not valid source become
    /// calls.
    Code,
}

/// Writes `v` in `style`. `leaf` writes a leaf in the style that applies at its position.
pub fn write_val<T>(v: &Val<T>, style: Style, leaf: &dyn Fn(&T, Style) -> String) -> String {
    let mut out = String::new();
    push_val(&mut out, v, style, leaf);
    out
}

/// `repr(v)`.
pub fn repr<T>(v: &Val<T>, leaf: &dyn Fn(&T) -> String) -> String {
    write_val(v, Style::Repr, &|t, _| leaf(t))
}

/// `str(v)`: `repr`, except of a string or device itself.
pub fn str_of<T>(v: &Val<T>, leaf: &dyn Fn(&T) -> String) -> String {
    match v {
        Val::Str(s) | Val::Device(s) => s.to_string(),
        _ => repr(v, leaf),
    }
}

fn push_val<T>(out: &mut String, v: &Val<T>, style: Style, leaf: &dyn Fn(&T, Style) -> String) {
    match v {
        Val::Leaf(t) => out.push_str(&leaf(t, style)),
        Val::Str(s) | Val::Device(s) if style == Style::Plain => out.push_str(s),
        Val::Str(s) => out.push_str(&quote(s)),
        Val::Device(s) => out.push_str(&device_repr(s)),
        Val::None => out.push_str("None"),
        Val::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        Val::Int(d) => out.push_str(&dim_repr(d)),
        Val::Float(x) => out.push_str(&write_float(*x)),
        Val::Complex(re, im) => out.push_str(&complex_repr(*re, *im, style)),
        Val::DType(d) => out.push_str(&dtype_repr(*d)),
        Val::TorchName(n) => {
            let _ = write!(out, "torch.{n}");
        }
        Val::Ellipsis => out.push_str("Ellipsis"),
        Val::Opaque(text) if style == Style::Code => out.push_str(&object_source(text)),
        Val::Graph(n) | Val::Opaque(n) => out.push_str(n),
        Val::List(items) => push_sequence(out, "[", items, "]", style, leaf),
        Val::Tuple(items) => {
            push_sequence(out, "(", items, if items.len() == 1 { ",)" } else { ")" }, style, leaf);
        }
        Val::Dict(items) => push_dict(out, items, style, leaf),
        Val::Slice(v) => push_sequence(out, "slice(", &v[..], ")", inner_style(style), leaf),
        Val::Range(v) => {
            // `repr(range(0, 3, 1))` is `range(0, 3)`.
            let n = if v[2].as_int() == Some(1) { 2 } else { 3 };
            push_sequence(out, "range(", &v[..n], ")", inner_style(style), leaf);
        }
        Val::Any(_) | Val::Unknown => out.push('?'),
    }
}

/// Writes an object as source. `print(graph)` writes text that cannot be run.
fn object_source(text: &str) -> Cow<'_, str> {
    if text.starts_with("aten.") || text.starts_with("prims.") {
        return format!("torch.ops.{text}").into();
    }
    if text.starts_with("tensor(") && !text.contains("...") {
        return format!("torch.{text}").into();
    }
    let class = text.strip_prefix("<class '").and_then(|t| t.strip_suffix("'>"));
    class.unwrap_or(text).into()
}

fn inner_style(style: Style) -> Style {
    if style == Style::Plain { Style::Repr } else { style }
}

fn push_sequence<T>(
    out: &mut String,
    open: &str,
    items: &[Val<T>],
    close: &str,
    style: Style,
    leaf: &dyn Fn(&T, Style) -> String,
) {
    out.push_str(open);
    for (i, x) in items.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        push_val(out, x, style, leaf);
    }
    out.push_str(close);
}

fn push_dict<T>(out: &mut String, items: &[(Val<T>, Val<T>)], style: Style, leaf: &dyn Fn(&T, Style) -> String) {
    // Generated code writes a whole dict by `repr`.
    let style = if style == Style::Code { Style::Repr } else { style };
    out.push('{');
    for (i, (k, x)) in items.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        match k {
            // `f"{k}"` of a key that is not a string is its `str`, which inside containers is `repr`.
            Val::Str(_) | Val::Device(_) => push_val(out, k, style, leaf),
            _ => push_val(out, k, inner_style(style), leaf),
        }
        out.push_str(": ");
        push_val(out, x, style, leaf);
    }
    out.push('}');
}

/// A size as torch prints symbolic integers: `2*s96 + 1`, `(s0//2)`.
pub fn dim_repr(d: &Dim) -> String {
    match d {
        Dim::Const(c) => c.to_string(),
        d => d.to_string().replace(" // ", "//"),
    }
}

/// The dtype's `repr`: `torch.float32`.
pub fn dtype_repr(d: DType) -> String {
    format!("torch.{}", d.torch_name())
}

fn device_repr(s: &str) -> String {
    match s.split_once(':') {
        Some((ty, index)) => format!("device(type='{ty}', index={index})"),
        None => format!("device(type='{s}')"),
    }
}

fn complex_repr(re: f64, im: f64, style: Style) -> String {
    if style == Style::Code && (re == 0.0 || im == 0.0 || !re.is_finite() || !im.is_finite()) {
        return format!("complex({}, {})", write_float(re), write_float(im));
    }
    write_complex(re, im)
}

/// `repr` of a string: single quotes, unless it contains a single quote and no double quote.
pub fn quote(s: &str) -> String {
    let q = if s.contains('\'') && !s.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::with_capacity(s.len() + 2);
    out.push(q);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == q => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => {
                let n = c as u32;
                let _ = match n {
                    0..=0xff => write!(out, "\\x{n:02x}"),
                    0x100..=0xffff => write!(out, "\\u{n:04x}"),
                    _ => write!(out, "\\U{n:08x}"),
                };
            }
        }
    }
    out.push(q);
    out
}

/// Python's `str.isprintable` for one character: no control, format, private or separator characters other than the
/// space.
fn is_printable(c: char) -> bool {
    let n = c as u32;
    !(c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(n, 0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x8e2 | 0x180e | 0x200b..=0x200f)
        || matches!(n, 0x202a..=0x202e | 0x2060..=0x206f | 0xe000..=0xf8ff | 0xfeff | 0xfff0..=0xfffb | 0xfffe | 0xffff)
        || n >= 0xe0000)
}

/// Whether `s` is a Python identifier (keywords count, as in `str.isidentifier`).
pub fn is_identifier(s: &str) -> bool {
    let mut chars = s.chars();
    chars.next().is_some_and(|c| c == '_' || c.is_alphabetic()) && chars.all(|c| c == '_' || c.is_alphanumeric())
}

/// Whether `s` is a reserved word of Python.
pub fn is_keyword(s: &str) -> bool {
    const WORDS: &[&str] = &[
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
        "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
        "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
    ];
    WORDS.contains(&s)
}

#[cfg(test)]
mod tests {
    use super::*;

    type V = Val<&'static str>;

    fn leaf(s: &&'static str) -> String {
        s.to_string()
    }

    #[test]
    fn values_as_python_writes_them() {
        let n = |d: f64| V::Float(d);
        for (v, want) in [
            (V::str("a'b"), "\"a'b\""),
            (V::str("a'b\"c\n\u{200b}é"), "'a\\'b\"c\\n\\u200bé'"),
            (V::Complex(0.0, 1.0), "1j"),
            (V::Complex(1.0, 2.0), "(1+2j)"),
            (V::Complex(-0.0, 1.0), "(-0+1j)"),
            (V::Complex(f64::NAN, 0.0), "(nan+0j)"),
            (V::Complex(0.0, f64::INFINITY), "infj"),
            (V::Device("cuda:0".into()), "device(type='cuda', index=0)"),
            (V::Tuple(vec![n(1e-5)]), "(1e-05,)"),
            (V::Range(Box::new([V::int(0), V::int(3), V::int(1)])), "range(0, 3)"),
            (
                V::Slice(Box::new([V::Leaf("x"), V::None, V::int(2)])),
                "slice(x, None, 2)",
            ),
            (
                V::Dict(vec![(V::str("k"), V::Leaf("x")), (V::int(1), V::DType(DType::F32))]),
                "{'k': x, 1: torch.float32}",
            ),
        ] {
            assert_eq!(repr(&v, &leaf), want);
        }
        assert_eq!(
            write_val(&V::Complex(0.0, -1.0), Style::Code, &|s, _| leaf(s)),
            "complex(0.0, -1.0)"
        );
    }
}
