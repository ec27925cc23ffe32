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
        let mut offset = range.start;
        let v = self.repr_value(&mut offset, range.end)?;
        if self.skip_space(offset, range.end) != range.end {
            return self.report_malformed(range, "not a Python value");
        }
        Some(v)
    }

    fn skip_space(&self, mut offset: usize, end: usize) -> usize {
        while offset < end && self.text[offset..].starts_with([' ', '\n']) {
            offset += 1;
        }
        offset
    }

    fn repr_value(&mut self, offset: &mut usize, end: usize) -> Option<Value> {
        self.depth += 1;
        let out = if self.depth > MAX_DEPTH {
            self.errors.push(too_deep(self.span(*offset, *offset + 1)));
            None
        } else {
            *offset = self.skip_space(*offset, end);
            self.repr_within(offset, end)
        };
        self.depth -= 1;
        out
    }

    fn repr_within(&mut self, offset: &mut usize, end: usize) -> Option<Value> {
        let start = *offset;
        let text = &self.text[start..end];
        match text.chars().next() {
            Some(q @ ('\'' | '"')) => self.read_quoted(offset, end, q),
            Some('<') => {
                let len = angle_len(text).unwrap_or(0);
                if len == 0 {
                    return self.report_malformed(start..end, "`<` is not closed");
                }
                *offset += len;
                Some(self.value_at(ValueKind::Opaque(text[..len].into()), &(start..*offset)))
            }
            Some('(') if complex_len(text).is_some() => {
                *offset += complex_len(text).unwrap_or(0);
                let kind = parse_number(&self.text[start..*offset])?;
                Some(self.value_at(kind, &(start..*offset)))
            }
            Some('(') => self.repr_list(offset, end, ')'),
            Some('[') => self.repr_list(offset, end, ']'),
            Some('{') => self.repr_dict(offset, end),
            Some(_) => self.repr_word(offset, end),
            None => self.report_malformed(start..end, "expected a value"),
        }
    }

    fn read_quoted(&mut self, offset: &mut usize, end: usize, quote: char) -> Option<Value> {
        let start = *offset;
        let mut escaped = false;
        for (i, c) in self.text[start + 1..end].char_indices() {
            if c == quote && !escaped {
                let body = &self.text[start + 1..start + 1 + i];
                *offset = start + i + 2;
                let s = unescape(body, self.file, start + 1, &mut self.errors);
                return Some(self.value_at(ValueKind::Str(s.into()), &(start..*offset)));
            }
            escaped = c == '\\' && !escaped;
        }
        self.report_malformed(start..end, "the string is not closed")
    }

    fn repr_list(&mut self, offset: &mut usize, end: usize, close: char) -> Option<Value> {
        let start = *offset;
        let mut items = vec![];
        let mut comma = false;
        *offset += 1;
        loop {
            *offset = self.skip_space(*offset, end);
            if self.text[*offset..end].starts_with(close) {
                *offset += 1;
                break;
            }
            if !items.is_empty() && !comma {
                return self.report_malformed(start..end, "expected `, ` or a closing bracket");
            }
            items.push(self.repr_value(offset, end)?);
            comma = self.text[*offset..end].starts_with(',');
            *offset += comma as usize;
        }
        let kind = if close == ')' {
            ValueKind::Tuple(items)
        } else {
            ValueKind::List(items)
        };
        Some(self.value_at(kind, &(start..*offset)))
    }

    fn repr_dict(&mut self, offset: &mut usize, end: usize) -> Option<Value> {
        let start = *offset;
        let mut entries = vec![];
        *offset += 1;
        loop {
            *offset = self.skip_space(*offset, end);
            if self.text[*offset..end].starts_with('}') {
                *offset += 1;
                return Some(self.value_at(ValueKind::Dict(entries), &(start..*offset)));
            }
            let key = self.repr_value(offset, end)?;
            *offset = self.skip_space(*offset, end);
            if !self.text[*offset..end].starts_with(':') {
                return self.report_malformed(start..end, "expected `: ` after the key");
            }
            *offset += 1;
            let value = self.repr_value(offset, end)?;
            entries.push((key, value));
            match self.text[*offset..end].chars().next() {
                Some(',') => *offset += 1,
                Some('}') => {}
                _ => return self.report_malformed(start..end, "expected `, ` or `}`"),
            }
        }
    }

    /// A word: a literal, node, size, or call.
    fn repr_word(&mut self, offset: &mut usize, end: usize) -> Option<Value> {
        let start = *offset;
        let text = &self.text[start..end];
        let len = word_len(text);
        if len == 0 {
            return self.report_malformed(start..end, "not a Python value");
        }
        let word = &text[..len];
        *offset += len;
        if text[len..].starts_with('(') {
            return self.repr_call(offset, end, start, word);
        }
        let range = start..*offset;
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

    /// A slice, or a range if `is_range`, with its arguments at `inner`.
    fn repr_slice(&mut self, inner: Range<usize>, range: Range<usize>, is_range: bool) -> Option<Value> {
        let mut items = vec![];
        let mut pos = inner.start;
        while pos < inner.end {
            items.push(self.repr_value(&mut pos, inner.end)?);
            pos = self.skip_space(pos + self.text[pos..inner.end].starts_with(',') as usize, inner.end);
        }
        if is_range && items.len() == 2 {
            items.push(self.value_at(ValueKind::Int(1), &range));
        }
        let Ok(three) = <[Value; 3]>::try_from(items) else {
            return self.report_malformed(range, "expected three values");
        };
        let three = Box::new(three);
        let kind = match is_range {
            true => ValueKind::Range(three),
            false => ValueKind::Slice(three),
        };
        Some(self.value_at(kind, &range))
    }

    /// `slice(…)`, `range(…)`, `device(…)`, or an object, whose text is kept.
    fn repr_call(&mut self, offset: &mut usize, end: usize, start: usize, word: &str) -> Option<Value> {
        let Some(len) = bracket_len(&self.text[*offset..end]) else {
            return self.report_malformed(start..end, "the bracket is not closed");
        };
        let inner = *offset + 1..*offset + len - 1;
        *offset += len;
        let range = start..*offset;
        if matches!(word, "slice" | "range") {
            return self.repr_slice(inner, range, word == "range");
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
            let reason = format!("the node `{node}` inside `{word}(…)` is indistinguishable from plain text");
            return self.report_malformed(range, &reason);
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
