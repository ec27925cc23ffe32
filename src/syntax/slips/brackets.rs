//! Unbalanced brackets in a statement: reports one error, with the fewest edits that balance them.

use super::Cursor;
use crate::diag::{Code, Diagnostic};
use crate::source::FileId;
use crate::syntax::lexer::Spanned;
use crate::syntax::token::Token;
use std::ops::Range;

/// The maximum number of edits to try. If more are needed, the statement is not repaired.
const MOST: usize = 3;
/// The maximum number of brackets in a statement to be examined.
const LONGEST: usize = 10_000;

#[derive(Clone, Debug)]
enum BracketEdit {
    /// Inserts a bracket before this token.
    Insert(usize, Token<'static>),
    /// Replaces this token with another bracket.
    Replace(usize, Token<'static>),
    Delete(usize),
}

impl BracketEdit {
    fn token_idx(&self) -> usize {
        match self {
            BracketEdit::Insert(i, _) | BracketEdit::Replace(i, _) | BracketEdit::Delete(i) => *i,
        }
    }
}

/// Balances the brackets of each statement, as far as a few edits can.
pub(in crate::syntax) fn pair_brackets<'s>(
    file: FileId,
    text: &'s str,
    tokens: Vec<Spanned<'s>>,
    errors: &mut Vec<Diagnostic>,
) -> Vec<Spanned<'s>> {
    let mut edits: Vec<BracketEdit> = vec![];
    let c = Cursor {
        file,
        text,
        tokens: &tokens,
    };
    let mut index = 0;
    while index < tokens.len() {
        if !begins_statement(&c, index) {
            index += 1;
            continue;
        }
        let end = statement_end(&c, index);
        if let Some(repair) = find_repair(&c, index, end) {
            // An unclosed string includes the brackets after it.
            let open_string = |d: &Diagnostic| {
                let start = d.labels.first().map_or(0, |l| l.span.range().start);
                d.code == Code::E0003 && start >= tokens[index].0 && tokens.get(end).is_none_or(|t| start < t.0)
            };
            if !errors.iter().any(open_string) {
                errors.push(bracket_finding(&c, index, &repair));
            }
            edits.extend(repair);
        }
        index = end.max(index + 1);
    }
    match edits.is_empty() {
        true => tokens,
        false => apply_edits(&tokens, &edits),
    }
}

fn begins_statement(c: &Cursor<'_, '_>, index: usize) -> bool {
    if !c.first_on_line(index) {
        return false;
    }
    match c.token(index) {
        Some(Token::Node(_)) => matches!(c.token(index + 1), Some(Token::Assign | Token::Colon)),
        Some(Token::Output) => !matches!(c.token(index + 1), Some(Token::Assign | Token::Colon | Token::Comma)),
        _ => false,
    }
}

/// The first token after the statement that begins at `index`.
fn statement_end(c: &Cursor<'_, '_>, index: usize) -> usize {
    let indent = c.line_indent(c.tokens[index].0).len();
    let mut braces = 0usize;
    for i in index..c.tokens.len() {
        let new_line = i > index && c.first_on_line(i);
        if new_line && begins_statement(c, i) {
            // A node at the start of a line can also be a dict key: `{%a: 1}`.
            let key = braces > 0 && matches!(c.token(i + 1), Some(Token::Colon));
            if !key {
                return i;
            }
        }
        let outside = new_line && c.line_indent(c.tokens[i].0).len() < indent;
        match &c.tokens[i].1 {
            Token::LBrace => braces += 1,
            Token::RBrace if new_line && (outside || braces == 0) => return i,
            Token::RBrace => braces = braces.saturating_sub(1),
            t if new_line && outside && (t.begins_item() || matches!(t, Token::Ident(_))) => return i,
            _ => {}
        }
    }
    c.tokens.len()
}

fn closing_bracket(opener: &Token<'_>) -> Token<'static> {
    match opener {
        Token::LParen => Token::RParen,
        Token::LBracket => Token::RBracket,
        _ => Token::RBrace,
    }
}

/// The fewest edits that balance the brackets of tokens `at..end`; `None` if they are balanced, or if too many edits
/// are needed.
fn find_repair(c: &Cursor<'_, '_>, index: usize, end: usize) -> Option<Vec<BracketEdit>> {
    let is_bracket = |t: &Token<'_>| {
        matches!(
            t,
            Token::LParen | Token::LBracket | Token::LBrace | Token::RParen | Token::RBracket | Token::RBrace
        )
    };
    let brackets: Vec<usize> = (index..end).filter(|&i| is_bracket(&c.tokens[i].1)).collect();
    // If the body ends on the line of the statement, the line has the body's bracket too. The parser balances these.
    let one_line = end == c.tokens.len() || !c.first_on_line(end);
    if brackets.len() > LONGEST || one_line && end != c.tokens.len() {
        return None;
    }
    if are_paired(c, &brackets) || one_line && closes_body(c, &brackets) {
        return None;
    }
    (1..=MOST).find_map(|budget| go_on(c, &brackets, vec![], end, budget))
}

fn are_paired(c: &Cursor<'_, '_>, brackets: &[usize]) -> bool {
    let mut stack: Vec<Token<'static>> = vec![];
    for &i in brackets {
        match &c.tokens[i].1 {
            t @ (Token::LParen | Token::LBracket | Token::LBrace) => stack.push(closing_bracket(t)),
            t => {
                if stack.pop().is_none_or(|want| want != *t) {
                    return false;
                }
            }
        }
    }
    stack.is_empty()
}

/// Whether the brackets are balanced up to a `}`. Other items may follow it.
fn closes_body(c: &Cursor<'_, '_>, brackets: &[usize]) -> bool {
    (0..brackets.len()).any(|n| c.tokens[brackets[n]].1 == Token::RBrace && are_paired(c, &brackets[..n]))
}

/// Closes all open brackets at the end.
fn at_end(stack: Vec<Token<'static>>, end: usize, budget: usize) -> Option<Vec<BracketEdit>> {
    (stack.len() <= budget).then(|| stack.into_iter().rev().map(|t| BracketEdit::Insert(end, t)).collect())
}

/// Tries the edits at the first bracket of `rest`, which does not match the innermost open bracket.
fn try_edits(
    c: &Cursor<'_, '_>,
    rest: &[usize],
    stack: Vec<Token<'static>>,
    end: usize,
    budget: usize,
) -> Option<Vec<BracketEdit>> {
    let (&i, after) = rest.split_first()?;
    let left = budget.checked_sub(1)?;
    let mut options = vec![];
    if let Some(want) = stack.last() {
        let popped = stack[..stack.len() - 1].to_vec();
        options.push((BracketEdit::Insert(i, want.clone()), popped.clone(), rest));
        options.push((BracketEdit::Replace(i, want.clone()), popped, after));
    }
    options.push((BracketEdit::Delete(i), stack, after));
    options.into_iter().find_map(|(edit, stack, rest)| {
        let mut edits = go_on(c, rest, stack, end, left)?;
        edits.insert(0, edit);
        Some(edits)
    })
}

/// A depth-first search for edits, the most likely first.
fn go_on(
    c: &Cursor<'_, '_>,
    rest: &[usize],
    mut stack: Vec<Token<'static>>,
    end: usize,
    budget: usize,
) -> Option<Vec<BracketEdit>> {
    for (n, &i) in rest.iter().enumerate() {
        let token = &c.tokens[i].1;
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => stack.push(closing_bracket(token)),
            t if stack.last() == Some(t) => drop(stack.pop()),
            _ => return try_edits(c, &rest[n..], stack, end, budget),
        }
    }
    at_end(stack, end, budget)
}

fn apply_edits<'s>(tokens: &[Spanned<'s>], edits: &[BracketEdit]) -> Vec<Spanned<'s>> {
    let mut out = Vec::with_capacity(tokens.len() + edits.len());
    let mut next = edits.iter().peekable();
    for i in 0..=tokens.len() {
        let mut token = tokens.get(i).cloned();
        while let Some(edit) = next.next_if(|e| e.token_idx() == i) {
            match edit {
                BracketEdit::Insert(_, t) => {
                    let offset = out.last().map_or(0, |t: &Spanned<'_>| t.2);
                    out.push((offset, t.clone(), offset));
                }
                BracketEdit::Replace(_, t) => token = token.map(|(a, _, b)| (a, t.clone(), b)),
                BracketEdit::Delete(_) => token = None,
            }
        }
        out.extend(token);
    }
    out
}

/// The text of a range after edits, and the end of the text that it replaces.
fn edited_text(c: &Cursor<'_, '_>, edits: &[BracketEdit], range: Range<usize>) -> (String, usize) {
    let Range { start, end } = range;
    let mut text = String::new();
    let mut done = start;
    for e in edits {
        let upto = if matches!(e, BracketEdit::Insert(..)) {
            c.tokens[e.token_idx() - 1].2
        } else {
            c.tokens[e.token_idx()].0
        };
        text.push_str(c.slice(done..upto.max(done)));
        done = upto.max(done);
        match e {
            BracketEdit::Insert(_, t) => text.push_str(t.text().unwrap_or("")),
            BracketEdit::Replace(i, t) => {
                text.push_str(t.text().unwrap_or(""));
                done = c.tokens[*i].2;
            }
            BracketEdit::Delete(i) => done = c.tokens[*i].2,
        }
    }
    text.push_str(c.slice(done..end.max(done)));
    (text, end.max(done))
}

/// The error for the first edit. `open` is the innermost bracket that is open there.
fn bracket_error(c: &Cursor<'_, '_>, edit: &BracketEdit, open: Option<usize>) -> Diagnostic {
    let place = |i: usize| c.span(c.tokens[i].0, c.tokens[i].2);
    let before = |i: usize| c.tokens[i - 1].2;
    match (edit, open) {
        (BracketEdit::Delete(i), _) | (BracketEdit::Replace(i, _), None) | (BracketEdit::Insert(i, _), None) => {
            let i = (*i).min(c.tokens.len() - 1);
            Diagnostic::new(Code::E0007, format!("unmatched {}", c.tokens[i].1))
                .at(place(i), "no bracket of this kind is open here")
        }
        (BracketEdit::Insert(i, t), Some(o)) => {
            let missing = c.span(
                before(*i),
                c.tokens.get(*i).map_or(before(*i), |t| t.0.min(before(*i) + 1)),
            );
            Diagnostic::new(Code::E0006, format!("{} is not closed", c.tokens[o].1))
                .at(place(o), "opened here")
                .see(missing, format!("{t} is missing here"))
        }
        (BracketEdit::Replace(i, _), Some(o)) => {
            Diagnostic::new(Code::E0006, format!("{} is not closed", c.tokens[o].1))
                .at(place(o), "opened here")
                .see(place(*i), format!("{} does not match it", c.tokens[*i].1))
        }
    }
}

/// The error for a statement's brackets.
fn bracket_finding(c: &Cursor<'_, '_>, index: usize, edits: &[BracketEdit]) -> Diagnostic {
    let before = |i: usize| c.tokens[i - 1].2;
    let first = edits[0].token_idx();
    let d = bracket_error(c, &edits[0], innermost_open(c, index, first));
    let start = before(first);
    let last = edits.iter().map(BracketEdit::token_idx).max().unwrap_or(first);
    let end = match edits.last() {
        Some(BracketEdit::Insert(..)) | None => before(last),
        Some(_) => c.tokens[last].2,
    };
    let (text, end) = edited_text(c, edits, start..end);
    let help = if edits.len() == 1 {
        "correct the brackets"
    } else {
        "the brackets may be meant this way"
    };
    let span = c.span(start, end);
    match edits.len() {
        1 => d.fix(span, text, help),
        _ => d.suggest(span, text, help),
    }
}

/// The innermost bracket that is open before token `before`.
fn innermost_open(c: &Cursor<'_, '_>, index: usize, before: usize) -> Option<usize> {
    let mut open: Vec<usize> = vec![];
    for i in index..before.min(c.tokens.len()) {
        match &c.tokens[i].1 {
            Token::LParen | Token::LBracket | Token::LBrace => open.push(i),
            t if open.last().is_some_and(|&o| closing_bracket(&c.tokens[o].1) == *t) => drop(open.pop()),
            _ => {}
        }
    }
    open.pop()
}
