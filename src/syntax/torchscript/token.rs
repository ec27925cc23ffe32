//! The tokens of TorchScript's text.

use crate::syntax::signs::tokens;
use logos::{Lexer, Logos, Skip};
use std::fmt;

tokens! {
    /// A token. Scopes (`, scope: __module.net/__module.net.0`) are skipped, as are signs that older versions of torch
    /// (`Float(2!, 3!)`) and other tools write.
    #[derive(Logos, Clone, Debug, PartialEq)]
    #[logos(skip r"[ \t\r\n\f;!]+")]
    #[logos(skip(r"//[^\n]*", allow_greedy = true))]
    #[allow(missing_docs, reason = "a token is its text")]
    pub enum Token<'s> {
        #[regex(r"[A-Za-z_][A-Za-z0-9_.]*")]
        Name(&'s str),
        /// Freezing names values after attribute paths, which may contain any character: `%self.block1-0.weight`.
        #[regex(r"%[^ \t\r\n\f,():;={}\[\]]+", |l| &l.slice()[1..])]
        Value(&'s str),
        /// `aten::add`
        #[regex(r"[A-Za-z_][A-Za-z0-9_]*::[A-Za-z0-9_.]+")]
        Operator(&'s str),
        /// The content of `[value=…]`: a literal, or the elements of a tensor.
        #[token("[value=", constant)]
        Constant(&'s str),
        #[regex(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")]
        Number(&'s str),
        #[regex(r#""([^"\\\n]|\\.)*""#)]
        Str(&'s str),
        /// `# model.py:12:0`
        #[regex(r"#[^\n]*", allow_greedy = true)]
        Place(&'s str),
        #[regex(r", scope: [^#\n]*", |_| Skip)]
        Scope,
    }
    texts {
        Graph "graph"  Return "return"  Question "?"  Arrow "->"
    }
}

/// Takes the text up to the closing bracket, which `()` follows.
fn constant<'s>(lexer: &mut Lexer<'s, Token<'s>>) -> Option<&'s str> {
    let rest = lexer.remainder();
    let line = rest.lines().next().unwrap_or_default();
    // Hand-written scripts can lack the `()`: `prim::Constant[value=1]`.
    if !line.contains("]()")
        && let Some(len) = closing_bracket(line)
    {
        lexer.bump(len + 1);
        return Some(&rest[..len]);
    }
    let from = match rest.strip_prefix('"') {
        // A string may contain brackets.
        Some(body) => {
            let mut escaped = false;
            1 + body.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            })?
        }
        None => 0,
    };
    let len = from + rest[from..].find("]()")?;
    lexer.bump(len + 1);
    Some(&rest[..len])
}

/// The offset at which the bracket that was opened before `line` closes in it.
fn closing_bracket(line: &str) -> Option<usize> {
    let (mut depth, mut quoted) = (0usize, false);
    line.char_indices().find_map(|(i, c)| {
        match c {
            '"' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted && depth == 0 => return Some(i),
            ']' if !quoted => depth -= 1,
            _ => {}
        }
        None
    })
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Name(s) | Token::Operator(s) | Token::Number(s) | Token::Str(s) => write!(f, "`{s}`"),
            Token::Value(s) => write!(f, "`%{s}`"),
            Token::Constant(s) => write!(f, "`[value={s}]`"),
            Token::Place(_) => f.write_str("comment"),
            Token::Scope => f.write_str("scope"),
            t => write!(f, "`{}`", t.text().unwrap_or("?")),
        }
    }
}
