//! Values as torch prints them.
//!
//! Inside of `args` and `kwargs` torch writes `str(value)`: strings bare, nodes with `%`. Inside of `slice(…)`,
//! `return` and the containers of defaults it writes Python's repr: strings quoted, nodes without `%`.
//! [`Reader::token`] reads the first, [`Reader::repr`] the second.

use super::is_ident;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use crate::syntax::ast::*;
use crate::syntax::delimiters::{MAX_DEPTH, too_deep};
use crate::syntax::resolve::{is_torch_name, is_torch_symbol, size};
use crate::syntax::token::{too_large, unescape};
use crate::syntax::{parse_value, spans};
use crate::types::{DType, write_complex, write_float};
use std::collections::HashSet;
use std::ops::Range;

/// Reads values out of one text.
pub struct Reader<'a> {
    /// The file.
    pub file: FileId,
    /// The whole text; ranges are of its bytes.
    pub text: &'a str,
    /// The names of the nodes that the graph defines.
    pub defined: HashSet<&'a str>,
    /// Those of the header.
    pub headed: HashSet<String>,
    /// What cannot be read.
    pub errors: Vec<Diagnostic>,
    depth: usize,
}

/// Functions of which an argument is a string whatever it looks like, with its position.
const STRING_ARGUMENTS: [(&str, usize); 5] = [
    ("einsum", 0),
    ("getattr", 1),
    ("hasattr", 1),
    ("setattr", 1),
    ("delattr", 1),
];

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

/// The position of an argument of `target` that is a string.
fn string_argument(target: &str) -> Option<usize> {
    let path = target.strip_suffix(".default").unwrap_or(target);
    let last = path.rsplit('.').next().unwrap_or(path);
    STRING_ARGUMENTS.iter().find(|(n, _)| *n == last).map(|r| r.1)
}

impl<'a> Reader<'a> {
    /// A reader of `text`, the content of `file`.
    pub fn new(file: FileId, text: &'a str) -> Reader<'a> {
        Reader {
            file,
            text,
            defined: HashSet::new(),
            headed: HashSet::new(),
            errors: vec![],
            depth: 0,
        }
    }

    /// The span of bytes `start..end`.
    pub fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.file, start, end)
    }

    fn at(&self, kind: ValueKind, range: &Range<usize>) -> Value {
        Value::new(kind, self.span(range.start, range.end))
    }

    /// The positional arguments of a call, by the rules of `target` where it takes strings.
    pub fn arguments(&mut self, target: &str, range: Range<usize>) -> Option<Vec<Value>> {
        let mut items = self.split(range.clone(), true)?;
        let string = string_argument(target);
        if string == Some(0) && items.len() > 1 {
            // einsum's equation may hold `, `: it goes up to the first operand.
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
                Some(s) if s == i && !self.text[item.clone()].starts_with('%') => self.string(&item),
                _ => self.token(item)?,
            });
        }
        Some(out)
    }

    /// The keyword arguments of a call.
    pub fn keywords(&mut self, range: Range<usize>) -> Option<Vec<(Name, Value)>> {
        let mut out = vec![];
        for item in self.split(range, false)? {
            let Some(colon) = self.text[item.clone()].find(": ") else {
                return self.malformed(item, "a keyword argument is written `name: value`");
            };
            let key = item.start..item.start + colon;
            let name = Name::new(&self.text[key.clone()], self.span(key.start, key.end));
            let value = self.token(key.end + 2..item.end)?;
            out.push((name, value));
        }
        Some(out)
    }

    /// `%a,%b` of a `return`: one node, or several as a tuple.
    pub fn percent_list(&mut self, range: Range<usize>) -> Option<Value> {
        let mut out = vec![];
        let mut at = range.start;
        for item in self.text[range.clone()].split(',') {
            let r = at..at + item.len();
            at = r.end + 1;
            match item.trim().strip_prefix('%').filter(|n| identifier(n)) {
                Some(n) => out.push(self.at(ValueKind::Node(n.into()), &r)),
                None => return self.malformed(range, "expected `%a` or `%a,%b`"),
            }
        }
        if out.len() == 1 {
            return out.pop();
        }
        Some(self.at(ValueKind::Tuple(out), &range))
    }

    /// The default of a placeholder: bare if it is a string, else as Python's repr.
    pub fn default(&mut self, range: Range<usize>) -> Option<Value> {
        let text = &self.text[range.clone()];
        let bare = text.starts_with(['\'', '"']) || text.starts_with(|c: char| is_ident(c) || c == '-');
        if bare {
            return match self.atom(&range) {
                Some(v) if !matches!(v.kind, ValueKind::Node(_) | ValueKind::Device(_)) => Some(v),
                _ if text.starts_with("slice(") || text.starts_with("range(") => self.repr(range),
                _ => Some(self.string(&range)),
            };
        }
        let errors = self.errors.len();
        match self.repr(range.clone()) {
            Some(v) => Some(v),
            // Text that is no repr is a string.
            None if self.errors[errors..].iter().all(|e| e.code == Code::E0013) => {
                self.errors.truncate(errors);
                Some(self.string(&range))
            }
            None => None,
        }
    }

    fn string(&self, range: &Range<usize>) -> Value {
        self.at(ValueKind::Str(self.text[range.clone()].into()), range)
    }

    /// Splits at `, ` outside of brackets: a bare comma belongs to a string. A tuple of one ends with a comma.
    pub fn split(&mut self, range: Range<usize>, tuple: bool) -> Option<Vec<Range<usize>>> {
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
            return self.malformed(
                range,
                "a string with unpaired brackets cannot be told from what follows it",
            );
        }
        if text.is_empty() {
            return Some(out);
        }
        let one = tuple && out.is_empty() && text.ends_with(',');
        let end = if one { range.end - 1 } else { range.end };
        out.push((range.start + start).min(end)..end);
        Some(out)
    }

    /// A value in `args` or `kwargs`.
    pub fn token(&mut self, range: Range<usize>) -> Option<Value> {
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

    fn token_within(&mut self, range: Range<usize>) -> Option<Value> {
        let text = &self.text[range.clone()];
        if let Some(v) = self.atom(&range) {
            return Some(v);
        }
        let inner = range.start + 1..range.end.max(range.start + 2) - 1;
        let enclosed = |open: char, close: char| text.len() >= 2 && text.starts_with(open) && closes(text, close);
        if enclosed('[', ']') {
            let v = self.items(inner, false)?;
            return Some(self.at(ValueKind::List(v), &range));
        }
        if enclosed('(', ')') && (text == "()" || text.ends_with(",)") || text.contains(", ")) {
            let v = self.items(inner, true)?;
            return Some(self.at(ValueKind::Tuple(v), &range));
        }
        if enclosed('{', '}')
            && let Some(v) = self.entries(inner)?
        {
            return Some(self.at(ValueKind::Dict(v), &range));
        }
        let call = (text.starts_with("slice(") || text.starts_with("range(")) && text.ends_with(')');
        if call {
            return self.repr(range);
        }
        let opaque =
            (text.starts_with('<') && text.ends_with('>')) || (text.starts_with("tensor(") && text.ends_with(')'));
        let kind = if opaque {
            ValueKind::Opaque(text.into())
        } else {
            ValueKind::Str(text.into())
        };
        Some(self.at(kind, &range))
    }

    fn items(&mut self, inner: Range<usize>, tuple: bool) -> Option<Vec<Value>> {
        self.split(inner, tuple)?.into_iter().map(|r| self.token(r)).collect()
    }

    /// The entries of a dict; `Some(None)` if the text in braces is none.
    fn entries(&mut self, inner: Range<usize>) -> Option<Option<Vec<(Value, Value)>>> {
        let items = self.split(inner, false)?;
        if !items.iter().all(|r| self.text[r.clone()].contains(": ")) {
            return Some(None);
        }
        let mut out = vec![];
        for r in items {
            let colon = r.start + self.text[r.clone()].find(": ").unwrap_or(0);
            let key = r.start..colon;
            let key = match self.atom(&key) {
                Some(v) if !matches!(v.kind, ValueKind::Node(_)) => v,
                _ => self.string(&key),
            };
            out.push((key, self.token(colon + 2..r.end)?));
        }
        Some(Some(out))
    }

    /// A literal without brackets that prints as the very text: number, constant, node, dtype, device, size.
    fn atom(&mut self, range: &Range<usize>) -> Option<Value> {
        let text = &self.text[range.clone()];
        if let Some(n) = text.strip_prefix('%').filter(|n| identifier(n)) {
            return Some(self.at(ValueKind::Node(n.into()), range));
        }
        if let Some(kind) = constant(text).or_else(|| number(text)) {
            return Some(self.at(kind, range));
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.len() > 18 && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0') {
            self.errors.push(too_large(self.span(range.start, range.end)));
            return Some(self.at(ValueKind::Int(0), range));
        }
        let kind = device(text).or_else(|| torch_name(text));
        match kind {
            Some(kind) => Some(self.at(kind, range)),
            None => self.symbolic(range),
        }
    }

    /// A symbolic size as torch prints it: `s77`, `2*s96 + 1`.
    fn symbolic(&self, range: &Range<usize>) -> Option<Value> {
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
        spans::of_value(&mut value, &mut |s| *s = span);
        same.then_some(value)
    }

    /// A value as Python's repr writes it; the whole range is one.
    pub fn repr(&mut self, range: Range<usize>) -> Option<Value> {
        let mut at = range.start;
        let v = self.repr_value(&mut at, range.end)?;
        if self.skip(at, range.end) != range.end {
            return self.malformed(range, "not a value as Python prints it");
        }
        Some(v)
    }

    fn skip(&self, mut at: usize, end: usize) -> usize {
        while at < end && self.text[at..].starts_with([' ', '\n']) {
            at += 1;
        }
        at
    }

    fn repr_value(&mut self, at: &mut usize, end: usize) -> Option<Value> {
        self.depth += 1;
        let out = if self.depth > MAX_DEPTH {
            self.errors.push(too_deep(self.span(*at, *at + 1)));
            None
        } else {
            *at = self.skip(*at, end);
            self.repr_within(at, end)
        };
        self.depth -= 1;
        out
    }

    fn repr_within(&mut self, at: &mut usize, end: usize) -> Option<Value> {
        let start = *at;
        let text = &self.text[start..end];
        match text.chars().next() {
            Some(q @ ('\'' | '"')) => self.quoted(at, end, q),
            Some('<') => {
                let len = angle(text).unwrap_or(0);
                if len == 0 {
                    return self.malformed(start..end, "`<` is not closed");
                }
                *at += len;
                Some(self.at(ValueKind::Opaque(text[..len].into()), &(start..*at)))
            }
            Some('(') if complex_len(text).is_some() => {
                *at += complex_len(text).unwrap_or(0);
                let kind = number(&self.text[start..*at])?;
                Some(self.at(kind, &(start..*at)))
            }
            Some('(') => self.repr_list(at, end, ')'),
            Some('[') => self.repr_list(at, end, ']'),
            Some('{') => self.repr_dict(at, end),
            Some(_) => self.repr_word(at, end),
            None => self.malformed(start..end, "a value is missing"),
        }
    }

    fn quoted(&mut self, at: &mut usize, end: usize, quote: char) -> Option<Value> {
        let start = *at;
        let mut escaped = false;
        for (i, c) in self.text[start + 1..end].char_indices() {
            if c == quote && !escaped {
                let body = &self.text[start + 1..start + 1 + i];
                *at = start + i + 2;
                let s = unescape(body, self.file, start + 1, &mut self.errors);
                return Some(self.at(ValueKind::Str(s.into()), &(start..*at)));
            }
            escaped = c == '\\' && !escaped;
        }
        self.malformed(start..end, "the string is not closed")
    }

    fn repr_list(&mut self, at: &mut usize, end: usize, close: char) -> Option<Value> {
        let start = *at;
        let mut items = vec![];
        let mut comma = false;
        *at += 1;
        loop {
            *at = self.skip(*at, end);
            if self.text[*at..end].starts_with(close) {
                *at += 1;
                break;
            }
            if !items.is_empty() && !comma {
                return self.malformed(start..end, "expected `, ` or a closing bracket");
            }
            items.push(self.repr_value(at, end)?);
            comma = self.text[*at..end].starts_with(',');
            *at += comma as usize;
        }
        let kind = if close == ')' {
            ValueKind::Tuple(items)
        } else {
            ValueKind::List(items)
        };
        Some(self.at(kind, &(start..*at)))
    }

    fn repr_dict(&mut self, at: &mut usize, end: usize) -> Option<Value> {
        let start = *at;
        let mut entries = vec![];
        *at += 1;
        loop {
            *at = self.skip(*at, end);
            if self.text[*at..end].starts_with('}') {
                *at += 1;
                return Some(self.at(ValueKind::Dict(entries), &(start..*at)));
            }
            let key = self.repr_value(at, end)?;
            *at = self.skip(*at, end);
            if !self.text[*at..end].starts_with(':') {
                return self.malformed(start..end, "expected `: ` after the key");
            }
            *at += 1;
            let value = self.repr_value(at, end)?;
            entries.push((key, value));
            match self.text[*at..end].chars().next() {
                Some(',') => *at += 1,
                Some('}') => {}
                _ => return self.malformed(start..end, "expected `, ` or `}`"),
            }
        }
    }

    /// A word: literal, node, size, or a call.
    fn repr_word(&mut self, at: &mut usize, end: usize) -> Option<Value> {
        let start = *at;
        let text = &self.text[start..end];
        let len = word_len(text);
        if len == 0 {
            return self.malformed(start..end, "not a value as Python prints it");
        }
        let word = &text[..len];
        *at += len;
        if text[len..].starts_with('(') {
            return self.repr_call(at, end, start, word);
        }
        let range = start..*at;
        let node = self.defined.contains(word) || self.headed.contains(word);
        if node && constant(word).is_none() {
            return Some(self.at(ValueKind::Node(word.into()), &range));
        }
        match self.atom(&range) {
            Some(v) if !matches!(v.kind, ValueKind::Device(_)) => Some(v),
            _ if identifier(word) => Some(self.at(ValueKind::Node(word.into()), &range)),
            _ => self.malformed(range, "not a value as Python prints it"),
        }
    }

    /// `slice(…)`, `range(…)`, `device(…)`, or an object whose text is kept.
    fn repr_call(&mut self, at: &mut usize, end: usize, start: usize, word: &str) -> Option<Value> {
        let Some(len) = bracket_len(&self.text[*at..end]) else {
            return self.malformed(start..end, "the bracket is not closed");
        };
        let inner = *at + 1..*at + len - 1;
        *at += len;
        let range = start..*at;
        if matches!(word, "slice" | "range") {
            let mut items = vec![];
            let mut pos = inner.start;
            while pos < inner.end {
                items.push(self.repr_value(&mut pos, inner.end)?);
                pos = self.skip(pos + self.text[pos..inner.end].starts_with(',') as usize, inner.end);
            }
            if word == "range" && items.len() == 2 {
                items.push(self.at(ValueKind::Int(1), &range));
            }
            let Ok(three) = <[Value; 3]>::try_from(items) else {
                return self.malformed(range, "expected three values");
            };
            let three = Box::new(three);
            let kind = if word == "slice" {
                ValueKind::Slice(three)
            } else {
                ValueKind::Range(three)
            };
            return Some(self.at(kind, &range));
        }
        if word == "device" {
            let (value, errors) = parse_value(self.file, &self.text[range.clone()]);
            if let Some(v) = value.filter(|_| errors.is_empty()) {
                return Some(self.at(v.kind, &range));
            }
        }
        let hidden = self.text[inner.clone()]
            .split(|c: char| !is_ident(c))
            .find(|w| self.defined.contains(w) && constant(w).is_none());
        if let Some(node) = hidden {
            let why = format!("the node `{node}` inside of `{word}(…)` cannot be told from its text");
            return self.malformed(range, &why);
        }
        Some(self.at(ValueKind::Opaque(self.text[range.clone()].into()), &range))
    }
}

fn identifier(s: &str) -> bool {
    !s.is_empty() && !s.starts_with(|c: char| c.is_ascii_digit()) && s.chars().all(is_ident)
}

fn constant(text: &str) -> Option<ValueKind> {
    Some(match text {
        "None" => ValueKind::None,
        "True" => ValueKind::Bool(true),
        "False" => ValueKind::Bool(false),
        "Ellipsis" => ValueKind::Ellipsis,
        _ => return None,
    })
}

/// A number, if Python prints it as this very text.
fn number(text: &str) -> Option<ValueKind> {
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
    // The sign that parts the two halves is the last one that is not of an exponent.
    let part = |(i, _): &(usize, char)| *i > 0 && !body[..*i].ends_with('e');
    let split = body.char_indices().filter(|(_, c)| matches!(c, '+' | '-')).rfind(part);
    let (re, im) = match split {
        Some((i, _)) if text.starts_with('(') => (body[..i].parse().ok()?, body[i..].parse().ok()?),
        _ => (0.0, body.parse().ok()?),
    };
    (write_complex(re, im) == text).then_some(ValueKind::Complex(re, im))
}

fn device(text: &str) -> Option<ValueKind> {
    let (kind, index) = text.split_once(':').map_or((text, None), |(k, i)| (k, Some(i)));
    let index_ok = index.is_none_or(|i| !i.is_empty() && i.bytes().all(|b| b.is_ascii_digit()));
    (DEVICES.contains(&kind) && index_ok).then(|| ValueKind::Device(text.into()))
}

/// `torch.float32` as torch spells it, or another name of the torch module.
fn torch_name(text: &str) -> Option<ValueKind> {
    let known = match DType::from_torch(text) {
        Some(d) => text.strip_prefix("torch.") == Some(d.torch_name()),
        None => is_torch_name(text),
    };
    known.then(|| ValueKind::Name(text.into()))
}

/// Whether the bracket that opens `text` is closed by its last character, `close`.
fn closes(text: &str, close: char) -> bool {
    text.ends_with(close) && bracket_len(text) == Some(text.len())
}

/// The length of the bracket that opens `text`, quoted strings aside.
fn bracket_len(text: &str) -> Option<usize> {
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

fn angle(text: &str) -> Option<usize> {
    let mut depth = 0i64;
    for (i, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => {
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

/// The length of `(1+2j)` at the head of `text`.
fn complex_len(text: &str) -> Option<usize> {
    let end = text.find(')')? + 1;
    matches!(number(&text[..end]), Some(ValueKind::Complex(..))).then_some(end)
}

/// The length of a word of repr: a number, a dotted name, `%name`, or arithmetic on sizes.
fn word_len(text: &str) -> usize {
    let word = |c: char| is_ident(c) || matches!(c, '.' | '%' | '+' | '-');
    let end = text.find(|c: char| !word(c)).unwrap_or(text.len());
    // `2*s96 + 1` goes on to the next separator.
    if text[end..].trim_start().starts_with(['*', '+', '/']) {
        return text.find([',', ')', ']', '}']).unwrap_or(text.len());
    }
    end
}
