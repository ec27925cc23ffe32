//! Repairs common mistakes in FXIR before parsing.
//!
//! The parser can only say which tokens it expected. The intention behind `%y = %x + 1`, `return %y`, a `//` comment or
//! Python's `for` is derived from the tokens here. Each mistake is reported once, with the correct text, and the tokens
//! are repaired so that the rest of the file is read as intended. If tokens cannot express the meaning of a statement,
//! its name is recorded as lost, so that its uses are not reported.

mod arguments;
mod brackets;
mod expr;
mod items;
mod placeholders;
mod python;
mod statements;

pub(super) use brackets::pair_brackets;

use super::lexer::Spanned;
use super::token::Token;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use std::collections::HashSet;
use std::sync::Arc;

/// The result of [`mend`].
pub(super) struct Mended<'s> {
    /// The repaired tokens.
    pub tokens: Vec<Spanned<'s>>,
    /// Names that the text defines but the tokens do not, with their offsets.
    pub lost: Vec<(usize, Arc<str>)>,
}

/// Repairs the tokens of `text`. Removes the lexer's errors from `errors` where a repair replaces them.
pub(super) fn mend<'s>(
    file: FileId,
    text: &'s str,
    tokens: Vec<Spanned<'s>>,
    errors: &mut Vec<Diagnostic>,
) -> Mended<'s> {
    let mut m = Mender {
        c: Cursor {
            file,
            text,
            tokens: &tokens,
        },
        index: 0,
        out: Vec::with_capacity(tokens.len() + 8),
        errors,
        lost: vec![],
        open: vec![],
        in_type: false,
        moved: vec![],
        item: ItemContext::Other,
        has_output: false,
        names: None,
        defined: None,
    };
    while m.index < tokens.len() {
        m.mend_next();
    }
    let (mut tokens, lost) = (m.moved, m.lost);
    tokens.extend(m.out);
    Mended { tokens, lost }
}

/// The original tokens.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'s, 't> {
    file: FileId,
    text: &'s str,
    tokens: &'t [Spanned<'s>],
}

impl<'s> Cursor<'s, '_> {
    /// The text between token `index` and the one before it: spaces, comments, and unrecognised characters.
    fn gap_before(&self, index: usize) -> &'s str {
        let from = index.checked_sub(1).and_then(|i| self.tokens.get(i)).map_or(0, |t| t.2);
        let to = self.tokens.get(index).map_or(self.text.len(), |t| t.0);
        self.text.get(from..to).unwrap_or("")
    }

    /// The text of a range; empty if the range is not valid, as between reordered tokens.
    fn slice(&self, range: std::ops::Range<usize>) -> &'s str {
        self.text.get(range).unwrap_or("")
    }

    /// Whether token `index` is the first of its line.
    fn first_on_line(&self, index: usize) -> bool {
        index == 0 || self.gap_before(index).contains('\n')
    }

    fn token(&self, index: usize) -> Option<&Token<'s>> {
        self.tokens.get(index).map(|t| &t.1)
    }

    fn span(&self, from: usize, to: usize) -> Span {
        Span::new(self.file, from, to)
    }

    /// The byte at the end of the line of `byte`, before the newline.
    fn line_end(&self, byte: usize) -> usize {
        self.slice(byte..self.text.len())
            .find('\n')
            .map_or(self.text.len(), |i| byte + i)
    }

    /// The first token that is not on the line of token `index`.
    fn next_line(&self, index: usize) -> usize {
        (index + 1..self.tokens.len())
            .find(|&i| self.first_on_line(i))
            .unwrap_or(self.tokens.len())
    }

    /// The indentation of the line of `byte`.
    fn line_indent(&self, byte: usize) -> &'s str {
        let start = self.slice(0..byte).rfind('\n').map_or(0, |i| i + 1);
        let line = self.slice(start..self.text.len());
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }
}

/// Whether there is no text between token `index` and the one before it.
fn is_adjacent(c: &Cursor<'_, '_>, index: usize) -> bool {
    index > 0 && c.gap_before(index).is_empty()
}

/// The kind of the current item.
#[derive(Clone, Copy, PartialEq)]
enum ItemContext {
    Graph,
    Rewrite,
    /// A one-line rule, in which calls can be nested.
    OneLine,
    Other,
}

struct Mender<'s, 't, 'e> {
    c: Cursor<'s, 't>,
    /// The next token to look at.
    index: usize,
    out: Vec<Spanned<'s>>,
    errors: &'e mut Vec<Diagnostic>,
    lost: Vec<(usize, Arc<str>)>,
    /// The open brackets; the first is that of a body.
    open: Vec<Token<'s>>,
    /// Whether the current token is in a type, between a node's `:` and `=`.
    in_type: bool,
    /// Items that were inside a body. They are moved before all other items.
    moved: Vec<Spanned<'s>>,
    item: ItemContext,
    /// Whether the current body already has an output.
    has_output: bool,
    /// The names of all nodes in the text, computed on demand.
    names: Option<HashSet<&'s str>>,
    /// The names that statements define, computed on demand.
    defined: Option<HashSet<&'s str>>,
}

impl<'s> Mender<'s, '_, '_> {
    fn mend_next(&mut self) {
        let Some((_, token, _)) = self.c.tokens.get(self.index) else {
            return;
        };
        self.begin_line(token);
        if self.mend_comment() || self.mend_number() {
            return;
        }
        let mended = match self.open.len() {
            0 => self.item_slip(),
            1 => self.in_body() && self.statement_slip(),
            _ => self.item != ItemContext::OneLine && self.argument_slip(),
        };
        if !mended {
            self.take_token();
        }
    }

    /// Ends unclosed brackets where a statement begins on a new line.
    fn begin_line(&mut self, token: &Token<'s>) {
        if self.open.len() < 2 || self.item == ItemContext::OneLine || !self.c.first_on_line(self.index) {
            return;
        }
        let defines = matches!(self.c.token(self.index + 1), Some(Token::Assign | Token::Colon));
        let key = matches!(self.out.last(), Some((_, Token::LBrace | Token::Comma, _)));
        let statement = matches!(token, Token::Node(_)) && defines && !key;
        let output = *token == Token::Output && !defines && !key;
        if statement || output && self.out.last().is_some_and(|t| t.1.ends_value()) {
            self.open.truncate(1);
            self.in_type = false;
        }
    }

    /// Copies the next token.
    fn take_token(&mut self) {
        let Some(t) = self.c.tokens.get(self.index) else { return };
        match &t.1 {
            Token::Output => self.has_output = true,
            Token::LBrace if self.open.is_empty() => {
                self.has_output = false;
                self.open.push(Token::LBrace);
            }
            Token::LParen | Token::LBracket | Token::LBrace => self.open.push(t.1.clone()),
            Token::RParen => self.close(&Token::LParen),
            Token::RBracket => self.close(&Token::LBracket),
            Token::RBrace => self.close(&Token::LBrace),
            Token::Colon if self.in_body() => self.in_type = true,
            Token::Assign if self.in_body() => self.in_type = false,
            Token::Graph if self.open.is_empty() => self.item = ItemContext::Graph,
            Token::Rewrite if self.open.is_empty() => self.item = ItemContext::Rewrite,
            Token::Colon if self.open.is_empty() && self.item == ItemContext::Rewrite => {
                self.item = ItemContext::OneLine
            }
            t if t.begins_item() && self.open.is_empty() => self.item = ItemContext::Other,
            _ => {}
        }
        self.out.push(t.clone());
        self.index += 1;
    }

    fn close(&mut self, opener: &Token<'_>) {
        if let Some(i) = self.open.iter().rposition(|t| t == opener) {
            self.open.truncate(i);
        }
    }

    /// Appends a token that is not in the text.
    fn insert(&mut self, token: Token<'s>) {
        let offset = self.out.last().map_or(0, |t| t.2);
        self.out.push((offset, token, offset));
    }

    /// Replaces the next `n` tokens with `token`.
    fn replace(&mut self, n: usize, token: Token<'s>) {
        let (start, end) = (self.c.tokens[self.index].0, self.c.tokens[self.index + n - 1].2);
        self.has_output |= token == Token::Output;
        self.out.push((start, token, end));
        self.index += n;
    }

    fn report(&mut self, d: Diagnostic) {
        self.errors.push(d);
    }

    /// Removes the lexer's errors in a range.
    fn retract_errors(&mut self, start: usize, end: usize) {
        let inside = |d: &Diagnostic| {
            let range = d.labels.first().map(|l| l.span.range());
            let lexical = matches!(d.code, Code::E0002 | Code::E0003 | Code::E0004 | Code::E0005);
            lexical && range.is_some_and(|r| start <= r.start && r.end <= end)
        };
        self.errors.retain(|d| !inside(d));
    }

    /// Skips the tokens up to `byte`, and removes their errors.
    fn skip_to(&mut self, byte: usize) {
        let start = self.c.tokens[self.index].0;
        while self.c.tokens.get(self.index).is_some_and(|t| t.0 < byte) {
            self.index += 1;
        }
        self.retract_errors(start, byte);
    }

    /// Whether the next token is directly in a body, and in no other bracket.
    fn in_body(&self) -> bool {
        matches!(self.open[..], [Token::LBrace])
    }

    /// Whether a statement or item could begin here: after a value, or at the start of a body.
    fn may_begin(&self) -> bool {
        match self.out.last() {
            None => true,
            Some((_, t, _)) => t.ends_value() || self.in_body() && *t == Token::LBrace,
        }
    }

    /// Writes an expression. All its calls except the last become statements in `out`, with unused names.
    fn write_expr(
        &mut self,
        stem: &str,
        out: &mut Vec<String>,
        write: impl FnOnce(&mut Vec<String>, &mut dyn FnMut() -> String) -> String,
    ) -> String {
        let tokens = self.c.tokens;
        let names = self.names.get_or_insert_with(|| {
            let name = |t: &Spanned<'s>| match t.1 {
                Token::Node(n) => Some(n),
                _ => None,
            };
            tokens.iter().filter_map(name).collect()
        });
        let mut free = (1..)
            .map(|i| format!("{stem}_{i}"))
            .filter(|n| !names.contains(n.as_str()));
        write(out, &mut || free.next().unwrap_or_default())
    }

    /// `// a comment`, `/* a comment */`.
    fn mend_comment(&mut self) -> bool {
        let (start, token, _) = &self.c.tokens[self.index];
        let start = *start;
        let slashes = *token == Token::SlashSlash;
        let block = *token == Token::Slash && self.c.slice(start..self.c.text.len()).starts_with("/*");
        let placed = self.c.first_on_line(self.index) || self.in_body() && self.may_begin();
        let outside = self.open.is_empty() || self.in_body();
        if !outside || !placed || !(slashes || block) {
            return false;
        }
        let rest = self.c.slice(start..self.c.text.len());
        let end = match (block, rest.find("*/")) {
            (true, Some(i)) => start + i + 2,
            (true, None) => self.c.text.len(),
            (false, _) => self.c.line_end(start),
        };
        let body = self.c.slice(start + 2..end);
        let (shown, mended) = match block {
            true => {
                let lines = body.strip_suffix("*/").unwrap_or(body).trim().lines();
                let lines: Vec<String> = lines.map(|l| format!("# {}", l.trim())).collect();
                (
                    self.c.span(start, end),
                    lines.join(&format!("\n{}", self.c.line_indent(start))),
                )
            }
            false => (self.c.span(start, start + 2), "#".to_string()),
        };
        let mark = if block { "/*" } else { "//" };
        self.skip_to(end);
        let d = Diagnostic::new(Code::E0001, format!("`{mark}` does not start a comment"));
        let d = d.at(self.c.span(start, start + 2), "comments start with `#`");
        self.report(d.fix(shown, mended, "write the comment with `#`"));
        true
    }

    /// `0x10`, `0b11`, `1.5f`.
    fn mend_number(&mut self) -> bool {
        let (start, token, _) = &self.c.tokens[self.index];
        let Some((_, Token::Ident(tail), end)) = self.c.tokens.get(self.index + 1) else {
            return false;
        };
        if !is_adjacent(&self.c, self.index + 1) || !matches!(token, Token::Int(_) | Token::Float(_)) {
            return false;
        }
        let radix = match (token, tail.get(..1)) {
            (Token::Int(0), Some("x" | "X")) => 16,
            (Token::Int(0), Some("b" | "B")) => 2,
            (Token::Int(0), Some("o" | "O")) => 8,
            _ => 10,
        };
        let span = self.c.span(*start, *end);
        let written = self.c.slice(span.range());
        let digits = tail.get(1..).unwrap_or("").replace('_', "");
        let (value, shown) = match i64::from_str_radix(&digits, radix) {
            Ok(v) if radix != 10 => (Token::Int(v), v.to_string()),
            _ if radix == 10 && tail.len() == 1 && "fFlLdDuU".contains(*tail) => {
                (token.clone(), written[..written.len() - 1].to_string())
            }
            _ => return false,
        };
        let label = match radix {
            10 => "FXIR numbers have no suffix",
            _ => "FXIR integers are decimal",
        };
        let d = Diagnostic::new(Code::E0001, format!("`{written}` is not a valid number")).at(span, label);
        self.report(d.fix(span, shown, "write the number in this form"));
        self.replace(2, value);
        true
    }
}
