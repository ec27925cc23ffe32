//! Tokenizes lines and adds tokens for newlines and indentation.

use super::regions::{PythonRegion, outside_strings};
use super::token::Token;
use crate::diag::words::escape_piece;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use logos::Logos;
use std::ops::Range;

/// A token with its start byte and its exclusive end byte.
pub(crate) type Spanned<'s> = (usize, Token<'s>, usize);

/// The maximum nesting depth of blocks.
const MAX_BLOCKS: usize = 64;

/// The result of [`lex`].
#[derive(Debug, Default)]
pub(crate) struct LexedRegion<'s> {
    /// The tokens in order.
    pub tokens: Vec<Spanned<'s>>,
    /// The comments in order, with `#`.
    pub comments: Vec<Range<usize>>,
    /// Lexical errors.
    pub errors: Vec<Diagnostic>,
}

/// Tokenizes a region of `text`, the content of `file`.
pub(crate) fn lex<'s>(file: FileId, text: &'s str, region: &PythonRegion) -> LexedRegion<'s> {
    let mut out = LexedRegion::default();
    let mut indents: Vec<usize> = vec![];
    let mut open = 0usize;
    let mut end = region.range.start;
    for range in &region.lines {
        let line = &text[range.clone()];
        let comment = comment_at(line);
        out.comments.extend(comment.map(|c| range.start + c..range.end));
        let code = &line[..comment.unwrap_or(line.len())];
        if code.trim().is_empty() {
            continue;
        }
        let column = code.len() - code.trim_start().len();
        if open == 0 {
            let offset = range.start + column;
            if !emit_indentation(&mut out.tokens, &mut indents, column, offset) {
                let d = Diagnostic::new(Code::E0008, format!("blocks nested more than {MAX_BLOCKS} deep"));
                out.errors
                    .push(d.at(Span::new(file, offset, offset + 1), "the limit is reached here"));
                break;
            }
        }
        line_tokens(file, code, range.start, &mut open, &mut out);
        end = range.start + code.len();
        if open == 0 {
            out.tokens.push((end, Token::Newline, end));
        }
    }
    if open > 0 {
        out.tokens.push((end, Token::Newline, end));
    }
    let blocks = indents.len().saturating_sub(1);
    out.tokens
        .extend(std::iter::repeat_n((end, Token::Dedent, end), blocks));
    out
}

/// Adds the indent and dedent tokens before a line at `column`. Returns false if blocks nest too deeply.
fn emit_indentation(tokens: &mut Vec<Spanned<'_>>, indents: &mut Vec<usize>, column: usize, offset: usize) -> bool {
    match indents.last() {
        None => indents.push(column),
        Some(&last) if column > last => {
            if indents.len() > MAX_BLOCKS {
                return false;
            }
            indents.push(column);
            tokens.push((offset, Token::Indent, offset));
        }
        Some(_) => {
            while indents.len() > 1 && indents.last().is_some_and(|&c| c > column) {
                indents.pop();
                tokens.push((offset, Token::Dedent, offset));
            }
        }
    }
    true
}

fn line_tokens<'s>(file: FileId, code: &'s str, start: usize, open: &mut usize, out: &mut LexedRegion<'s>) {
    let mut lexer = Token::lexer(code);
    while let Some(token) = lexer.next() {
        let (from, to) = (start + lexer.span().start, start + lexer.span().end);
        match token {
            Ok(t) => {
                match t {
                    Token::LParen | Token::LBracket | Token::LBrace => *open += 1,
                    Token::RParen | Token::RBracket | Token::RBrace => *open = open.saturating_sub(1),
                    _ => {}
                }
                out.tokens.push((from, t, to));
            }
            Err(()) => {
                let piece = escape_piece(lexer.slice());
                let d = Diagnostic::new(Code::E0013, format!("unrecognised text `{piece}`"));
                let d = d.at(Span::new(file, from, to), "this does not occur in torch's output");
                out.errors.push(d.help("paste torch's output unmodified"));
                // Skip the rest of the line: errors in it would only be consequences.
                return;
            }
        }
    }
}

/// The offset at which the comment of a line begins.
fn comment_at(line: &str) -> Option<usize> {
    // An apostrophe in the comment does not open a string, since the search stops at the first `#` outside of a string.
    outside_strings(line).find(|(_, c)| *c == '#').map(|(offset, _)| offset)
}
