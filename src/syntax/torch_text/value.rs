//! Reads values in the formats in which torch prints them.
//!
//! Inside `args` and `kwargs`, torch writes `str(value)`: strings without quotes, nodes with `%`. Inside `slice(…)`,
//! `return` and containers in defaults, it writes Python's repr: strings quoted, nodes without `%`.
//! [`TorchReader::read_token`] reads the former, [`TorchReader::read_repr`] the latter.

use super::is_ident;
use super::literal::{is_bracketed, is_identifier, parse_constant, parse_device, parse_number, torch_name};
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use crate::syntax::ast::*;
use crate::syntax::delimiters::{MAX_DEPTH, too_deep};
use crate::syntax::resolve::{is_torch_symbol, size};
use crate::syntax::token::too_large;
use crate::syntax::{parse_value, spans};
use std::collections::HashSet;
use std::ops::Range;

/// Reads the values in a text.
pub(super) struct TorchReader<'a> {
    /// The file.
    pub file: FileId,
    /// The whole text, which byte ranges refer to.
    pub text: &'a str,
    /// The names of the nodes that the graph defines.
    pub defined: HashSet<&'a str>,
    /// The names of the nodes in the header.
    pub headed: HashSet<String>,
    /// The errors found so far.
    pub errors: Vec<Diagnostic>,
    pub(super) depth: usize,
}

/// Functions with an argument that is always a string, and the position of that argument.
const STRING_ARGUMENTS: [(&str, usize); 5] = [
    ("einsum", 0),
    ("getattr", 1),
    ("hasattr", 1),
    ("setattr", 1),
    ("delattr", 1),
];

/// The position of the string argument of `target`, if it has one.
fn string_argument(target: &str) -> Option<usize> {
    let path = target.strip_suffix(".default").unwrap_or(target);
    let last = path.rsplit('.').next().unwrap_or(path);
    STRING_ARGUMENTS.iter().find(|(n, _)| *n == last).map(|r| r.1)
}

impl<'a> TorchReader<'a> {
    /// A reader of `text`, the content of `file`.
    pub(super) fn new(file: FileId, text: &'a str) -> TorchReader<'a> {
        TorchReader {
            file,
            text,
            defined: HashSet::new(),
            headed: HashSet::new(),
            errors: vec![],
            depth: 0,
        }
    }

    /// The span of bytes `start..end`.
    pub(super) fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.file, start, end)
    }

    pub(super) fn value_at(&self, kind: ValueKind, range: &Range<usize>) -> Value {
        Value::new(kind, self.span(range.start, range.end))
    }

    /// Reads the positional arguments of a call. `target` determines which of them are strings.
    pub(super) fn read_arguments(&mut self, target: &str, range: Range<usize>) -> Option<Vec<Value>> {
        let mut items = self.split_items(range.clone(), true)?;
        let string = string_argument(target);
        if string == Some(0) && items.len() > 1 {
            // einsum's equation may contain `, `. It continues up to the first operand.
            let operand = |r: &Range<usize>| self.text[r.clone()].starts_with(['%', '[', '(']);
            let n = items.iter().position(operand).unwrap_or(items.len());
            if n > 1 {
                let whole = items[0].start..items[n - 1].end;
                items.splice(..n, std::iter::once(whole));
            }
        }
        let mut out = vec![];
        for (i, item) in items.into_iter().enumerate() {
            out.push(match string {
                Some(s) if s == i && !self.text[item.clone()].starts_with('%') => self.string_value(&item),
                _ => self.read_token(item)?,
            });
        }
        Some(out)
    }

    /// Reads the keyword arguments of a call.
    pub(super) fn read_keywords(&mut self, range: Range<usize>) -> Option<Vec<(Name, Value)>> {
        let mut out = vec![];
        for item in self.split_items(range, false)? {
            let Some(colon) = self.text[item.clone()].find(": ") else {
                return self.report_malformed(item, "a keyword argument is written `name: value`");
            };
            let key = item.start..item.start + colon;
            let name = Name::new(&self.text[key.clone()], self.span(key.start, key.end));
            let value = self.read_token(key.end + 2..item.end)?;
            out.push((name, value));
        }
        Some(out)
    }

    /// Reads `%a,%b` in a `return`: one node, or several as a tuple.
    pub(super) fn percent_list(&mut self, range: Range<usize>) -> Option<Value> {
        let mut out = vec![];
        let mut start = range.start;
        for item in self.text[range.clone()].split(',') {
            let r = start..start + item.len();
            start = r.end + 1;
            match item.trim().strip_prefix('%').filter(|n| is_identifier(n)) {
                Some(n) => out.push(self.value_at(ValueKind::Node(n.into()), &r)),
                None => return self.report_malformed(range, "expected `%a` or `%a,%b`"),
            }
        }
        if out.len() == 1 {
            return out.pop();
        }
        Some(self.value_at(ValueKind::Tuple(out), &range))
    }

    /// Reads the default of a placeholder: unquoted if it is a string, else in the format of Python's repr.
    pub(super) fn read_default(&mut self, range: Range<usize>) -> Option<Value> {
        let text = &self.text[range.clone()];
        let bare = text.starts_with(['\'', '"']) || text.starts_with(|c: char| is_ident(c) || c == '-');
        if bare {
            return match self.read_atom(&range) {
                Some(v) if !matches!(v.kind, ValueKind::Node(_) | ValueKind::Device(_)) => Some(v),
                _ if text.starts_with("slice(") || text.starts_with("range(") => self.read_repr(range),
                _ => Some(self.string_value(&range)),
            };
        }
        let errors = self.errors.len();
        match self.read_repr(range.clone()) {
            Some(v) => Some(v),
            // Text that is not a repr is a string.
            None if self.errors[errors..].iter().all(|e| e.code == Code::E0013) => {
                self.errors.truncate(errors);
                Some(self.string_value(&range))
            }
            None => None,
        }
    }

    pub(super) fn string_value(&self, range: &Range<usize>) -> Value {
        self.value_at(ValueKind::Str(self.text[range.clone()].into()), range)
    }

    /// Splits at `, ` outside of brackets; a comma without a space is part of a string. A tuple of one item ends with a
    /// comma.
    pub(super) fn split_items(&mut self, range: Range<usize>, tuple: bool) -> Option<Vec<Range<usize>>> {
        let text = &self.text[range.clone()];
        let mut out = vec![];
        let (mut depth, mut start) = (0i64, 0);
        for (i, c) in text.char_indices() {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                ',' if depth == 0 && text[i + 1..].starts_with(' ') => {
                    out.push(range.start + start..range.start + i);
                    start = i + 2;
                }
                _ => {}
            }
        }
        if depth != 0 {
            return self.report_malformed(range, "the end of a string with unpaired brackets is ambiguous");
        }
        if text.is_empty() {
            return Some(out);
        }
        let single = tuple && out.is_empty() && text.ends_with(',');
        let end = if single { range.end - 1 } else { range.end };
        out.push((range.start + start).min(end)..end);
        Some(out)
    }

    /// Reads a value in `args` or `kwargs`.
    pub(super) fn read_token(&mut self, range: Range<usize>) -> Option<Value> {
        self.depth += 1;
        let out = match self.depth > MAX_DEPTH {
            true => {
                self.errors.push(too_deep(self.span(range.start, range.start + 1)));
                None
            }
            false => self.token_within(range),
        };
        self.depth -= 1;
        out
    }

    pub(super) fn token_within(&mut self, range: Range<usize>) -> Option<Value> {
        let text = &self.text[range.clone()];
        if let Some(v) = self.read_atom(&range) {
            return Some(v);
        }
        let inner = range.start + 1..range.end.max(range.start + 2) - 1;
        let enclosed = |open: char, close: char| text.len() >= 2 && text.starts_with(open) && is_bracketed(text, close);
        if enclosed('[', ']') {
            let v = self.read_items(inner, false)?;
            return Some(self.value_at(ValueKind::List(v), &range));
        }
        if enclosed('(', ')') && (text == "()" || text.ends_with(",)") || text.contains(", ")) {
            let v = self.read_items(inner, true)?;
            return Some(self.value_at(ValueKind::Tuple(v), &range));
        }
        if enclosed('{', '}')
            && let Some(v) = self.read_entries(inner)?
        {
            return Some(self.value_at(ValueKind::Dict(v), &range));
        }
        let call = (text.starts_with("slice(") || text.starts_with("range(")) && text.ends_with(')');
        if call {
            return self.read_repr(range);
        }
        let opaque =
            (text.starts_with('<') && text.ends_with('>')) || (text.starts_with("tensor(") && text.ends_with(')'));
        let kind = if opaque {
            ValueKind::Opaque(text.into())
        } else {
            ValueKind::Str(text.into())
        };
        Some(self.value_at(kind, &range))
    }

    fn read_items(&mut self, inner: Range<usize>, tuple: bool) -> Option<Vec<Value>> {
        self.split_items(inner, tuple)?
            .into_iter()
            .map(|r| self.read_token(r))
            .collect()
    }

    /// Reads the entries of a dict; `Some(None)` if the text in braces is not a dict.
    fn read_entries(&mut self, inner: Range<usize>) -> Option<Option<Vec<(Value, Value)>>> {
        let items = self.split_items(inner, false)?;
        if !items.iter().all(|r| self.text[r.clone()].contains(": ")) {
            return Some(None);
        }
        let mut out = vec![];
        for r in items {
            let colon = r.start + self.text[r.clone()].find(": ").unwrap_or(0);
            let key = r.start..colon;
            let key = match self.read_atom(&key) {
                Some(v) if !matches!(v.kind, ValueKind::Node(_)) => v,
                _ => self.string_value(&key),
            };
            out.push((key, self.read_token(colon + 2..r.end)?));
        }
        Some(Some(out))
    }

    /// Reads a literal without brackets that prints as exactly this text: number, constant, node, dtype, device, size.
    pub(super) fn read_atom(&mut self, range: &Range<usize>) -> Option<Value> {
        let text = &self.text[range.clone()];
        if let Some(n) = text.strip_prefix('%').filter(|n| is_identifier(n)) {
            return Some(self.value_at(ValueKind::Node(n.into()), range));
        }
        if let Some(kind) = parse_constant(text).or_else(|| parse_number(text)) {
            return Some(self.value_at(kind, range));
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.len() > 18 && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0') {
            self.errors.push(too_large(self.span(range.start, range.end)));
            return Some(self.value_at(ValueKind::Int(0), range));
        }
        let kind = parse_device(text).or_else(|| torch_name(text));
        match kind {
            Some(kind) => Some(self.value_at(kind, range)),
            None => self.read_symbolic(range),
        }
    }

    /// Reads a symbolic size as torch prints it: `s77`, `2*s96 + 1`.
    pub(super) fn read_symbolic(&self, range: &Range<usize>) -> Option<Value> {
        let text = &self.text[range.clone()];
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-' || c == '(')
            || !text.contains(['s', 'u', 'z'])
        {
            return None;
        }
        let words = text.split(|c: char| !is_ident(c)).filter(|w| !w.is_empty());
        let symbolic = |w: &str| {
            let number = w.bytes().all(|b| b.is_ascii_digit());
            number || is_torch_symbol(w)
        };
        if !words.clone().all(symbolic) || !words.clone().any(is_torch_symbol) {
            return None;
        }
        let (value, errors) = parse_value(self.file, text);
        let mut value = value.filter(|_| errors.is_empty())?;
        let mut wrong = crate::diag::Diagnostics::new();
        let same = size(&value, &mut wrong).to_string() == text && wrong.is_empty();
        let span = self.span(range.start, range.end);
        spans::visit_value(&mut value, &mut |s| *s = span);
        same.then_some(value)
    }
}
