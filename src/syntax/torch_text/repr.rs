//! Reads values in the format of Python's repr: strings quoted, nodes without `%`.

use super::is_ident;
use super::literal::{bracket_len, is_identifier, parse_constant, parse_number};
use super::value::TorchReader;
use crate::syntax::ast::*;
use crate::syntax::delimiters::{MAX_DEPTH, too_deep};
use crate::syntax::parse_value;
use crate::syntax::token::unescape;
use std::ops::Range;

impl TorchReader<'_> {
    /// Reads a value in the format of Python's repr, which must fill the range.
    pub(super) fn read_repr(&mut self, range: Range<usize>) -> Option<Value> {
        let mut at = range.start;
        let v = self.repr_value(&mut at, range.end)?;
        if self.skip_space(at, range.end) != range.end {
            return self.report_malformed(range, "not a Python value");
        }
        Some(v)
    }

    fn skip_space(&self, mut at: usize, end: usize) -> usize {
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
            *at = self.skip_space(*at, end);
            self.repr_within(at, end)
        };
        self.depth -= 1;
        out
    }

    fn repr_within(&mut self, at: &mut usize, end: usize) -> Option<Value> {
        let start = *at;
        let text = &self.text[start..end];
        match text.chars().next() {
            Some(q @ ('\'' | '"')) => self.read_quoted(at, end, q),
            Some('<') => {
                let len = angle_len(text).unwrap_or(0);
                if len == 0 {
                    return self.report_malformed(start..end, "`<` is not closed");
                }
                *at += len;
                Some(self.value_at(ValueKind::Opaque(text[..len].into()), &(start..*at)))
            }
            Some('(') if complex_len(text).is_some() => {
                *at += complex_len(text).unwrap_or(0);
                let kind = parse_number(&self.text[start..*at])?;
                Some(self.value_at(kind, &(start..*at)))
            }
            Some('(') => self.repr_list(at, end, ')'),
            Some('[') => self.repr_list(at, end, ']'),
            Some('{') => self.repr_dict(at, end),
            Some(_) => self.repr_word(at, end),
            None => self.report_malformed(start..end, "expected a value"),
        }
    }

    fn read_quoted(&mut self, at: &mut usize, end: usize, quote: char) -> Option<Value> {
        let start = *at;
        let mut escaped = false;
        for (i, c) in self.text[start + 1..end].char_indices() {
            if c == quote && !escaped {
                let body = &self.text[start + 1..start + 1 + i];
                *at = start + i + 2;
                let s = unescape(body, self.file, start + 1, &mut self.errors);
                return Some(self.value_at(ValueKind::Str(s.into()), &(start..*at)));
            }
            escaped = c == '\\' && !escaped;
        }
        self.report_malformed(start..end, "the string is not closed")
    }

    fn repr_list(&mut self, at: &mut usize, end: usize, close: char) -> Option<Value> {
        let start = *at;
        let mut items = vec![];
        let mut comma = false;
        *at += 1;
        loop {
            *at = self.skip_space(*at, end);
            if self.text[*at..end].starts_with(close) {
                *at += 1;
                break;
            }
            if !items.is_empty() && !comma {
                return self.report_malformed(start..end, "expected `, ` or a closing bracket");
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
        Some(self.value_at(kind, &(start..*at)))
    }

    fn repr_dict(&mut self, at: &mut usize, end: usize) -> Option<Value> {
        let start = *at;
        let mut entries = vec![];
        *at += 1;
        loop {
            *at = self.skip_space(*at, end);
            if self.text[*at..end].starts_with('}') {
                *at += 1;
                return Some(self.value_at(ValueKind::Dict(entries), &(start..*at)));
            }
            let key = self.repr_value(at, end)?;
            *at = self.skip_space(*at, end);
            if !self.text[*at..end].starts_with(':') {
                return self.report_malformed(start..end, "expected `: ` after the key");
            }
            *at += 1;
            let value = self.repr_value(at, end)?;
            entries.push((key, value));
            match self.text[*at..end].chars().next() {
                Some(',') => *at += 1,
                Some('}') => {}
                _ => return self.report_malformed(start..end, "expected `, ` or `}`"),
            }
        }
    }

    /// A word: a literal, node, size, or call.
    fn repr_word(&mut self, at: &mut usize, end: usize) -> Option<Value> {
        let start = *at;
        let text = &self.text[start..end];
        let len = word_len(text);
        if len == 0 {
            return self.report_malformed(start..end, "not a Python value");
        }
        let word = &text[..len];
        *at += len;
        if text[len..].starts_with('(') {
            return self.repr_call(at, end, start, word);
        }
        let range = start..*at;
        let node = self.defined.contains(word) || self.headed.contains(word);
        if node && parse_constant(word).is_none() {
            return Some(self.value_at(ValueKind::Node(word.into()), &range));
        }
        match self.read_atom(&range) {
            Some(v) if !matches!(v.kind, ValueKind::Device(_)) => Some(v),
            _ if is_identifier(word) => Some(self.value_at(ValueKind::Node(word.into()), &range)),
            _ => self.report_malformed(range, "not a Python value"),
        }
    }

    /// `slice(…)`, `range(…)`, `device(…)`, or an object, whose text is kept.
    fn repr_call(&mut self, at: &mut usize, end: usize, start: usize, word: &str) -> Option<Value> {
        let Some(len) = bracket_len(&self.text[*at..end]) else {
            return self.report_malformed(start..end, "the bracket is not closed");
        };
        let inner = *at + 1..*at + len - 1;
        *at += len;
        let range = start..*at;
        if matches!(word, "slice" | "range") {
            let mut items = vec![];
            let mut pos = inner.start;
            while pos < inner.end {
                items.push(self.repr_value(&mut pos, inner.end)?);
                pos = self.skip_space(pos + self.text[pos..inner.end].starts_with(',') as usize, inner.end);
            }
            if word == "range" && items.len() == 2 {
                items.push(self.value_at(ValueKind::Int(1), &range));
            }
            let Ok(three) = <[Value; 3]>::try_from(items) else {
                return self.report_malformed(range, "expected three values");
            };
            let three = Box::new(three);
            let kind = if word == "slice" {
                ValueKind::Slice(three)
            } else {
                ValueKind::Range(three)
            };
            return Some(self.value_at(kind, &range));
        }
        if word == "device" {
            let (value, errors) = parse_value(self.file, &self.text[range.clone()]);
            if let Some(v) = value.filter(|_| errors.is_empty()) {
                return Some(self.value_at(v.kind, &range));
            }
        }
        let hidden = self.text[inner.clone()]
            .split(|c: char| !is_ident(c))
            .find(|w| self.defined.contains(w) && parse_constant(w).is_none());
        if let Some(node) = hidden {
            let why = format!("the node `{node}` inside `{word}(…)` is indistinguishable from plain text");
            return self.report_malformed(range, &why);
        }
        Some(self.value_at(ValueKind::Opaque(self.text[range.clone()].into()), &range))
    }
}

fn angle_len(text: &str) -> Option<usize> {
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

/// The length of `(1+2j)` at the start of `text`.
fn complex_len(text: &str) -> Option<usize> {
    let end = text.find(')')? + 1;
    matches!(parse_number(&text[..end]), Some(ValueKind::Complex(..))).then_some(end)
}

/// The length of a word in a repr: a number, a dotted name, `%name`, or arithmetic on sizes.
fn word_len(text: &str) -> usize {
    let word = |c: char| is_ident(c) || matches!(c, '.' | '%' | '+' | '-');
    let end = text.find(|c: char| !word(c)).unwrap_or(text.len());
    // `2*s96 + 1` continues up to the next separator.
    if text[end..].trim_start().starts_with(['*', '+', '/']) {
        return text.find([',', ')', ']', '}']).unwrap_or(text.len());
    }
    end
}
