//! The tokens of FXIR.
//!
//! Keywords are words that begin an item, an opcode or an operator. All except operators can still be names wherever a
//! name is expected (`call_method output(…)`, `dim=1`). The tokenizer does not produce [`Token::NodeDef`],
//! [`Token::BareDef`] and the braces of bodies: [`super::delimiters`] distinguishes them from similar tokens, so that
//! the parser can resynchronise after errors.

use super::signs::tokens;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use logos::{Lexer, Logos};
use std::fmt;
use std::sync::Arc;

/// What the lexer collects besides tokens.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// The file being lexed.
    pub file: FileId,
    /// Malformed numbers and strings.
    pub errors: Vec<Diagnostic>,
    /// Comments, as byte ranges.
    pub comments: Vec<std::ops::Range<usize>>,
}

tokens! {
    /// A token of FXIR.
    #[derive(Logos, Clone, Debug, PartialEq)]
    #[logos(extras = Extras)]
    #[logos(skip r"[ \t\r\n\f\u{feff}]+")]
    #[logos(skip(r"#[^\n]*", comment, allow_greedy = true))]
    #[allow(missing_docs, reason = "a token is its text")]
    pub enum Token<'s> {
        #[regex(r"[A-Za-z_][A-Za-z0-9_]*")]
        #[regex(r"[\p{XID_Start}_]\p{XID_Continue}*", lex_foreign_name, priority = 1)]
        Ident(&'s str),
        /// A dotted path: `torch.float32`, `layer1.0.conv1`.
        #[regex(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+")]
        Path(&'s str),
        /// `%x`
        #[regex(r"%[A-Za-z_][A-Za-z0-9_]*", |l| &l.slice()[1..])]
        #[regex(r"%[\p{XID_Start}_]\p{XID_Continue}*", |l| &lex_foreign_name(l)[1..], priority = 1)]
        Node(&'s str),
        /// `%x` at the head of a statement.
        NodeDef(&'s str),
        /// A name at the head of a statement that lacks its `%`.
        BareDef(&'s str),
        /// `@f`
        #[regex(r"@[A-Za-z_][A-Za-z0-9_]*", |l| &l.slice()[1..])]
        GraphRef(&'s str),
        /// `$a`
        #[regex(r"\$[A-Za-z_][A-Za-z0-9_]*", |l| &l.slice()[1..])]
        Literal(&'s str),
        #[regex(r"[0-9][0-9_]*", integer)]
        Int(i64),
        /// `1..`, which would otherwise begin with the float `1.`; the lexer splits it.
        #[regex(r"[0-9][0-9_]*\.\.", |l| integer_text(l, 2))]
        IntDots(i64),
        #[regex(r"([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", float)]
        #[regex(r"[0-9]+[eE][+-]?[0-9]+", float)]
        Float(f64),
        #[regex(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[jJ]", imaginary)]
        Imag(f64),
        #[regex(r#""([^"\\\n]|\\(.|\n))*""#, string)]
        #[regex(r"'([^'\\\n]|\\(.|\n))*'", string)]
        #[regex(r#""([^"\\\n]|\\(.|\n))*\\?"#, open_string)]
        #[regex(r"'([^'\\\n]|\\(.|\n))*\\?", open_string)]
        #[regex("[\u{201c}\u{201d}][^\u{201c}\u{201d}\"\n]*[\u{201c}\u{201d}\"]", lex_curly_quotes)]
        #[regex("[\u{2018}\u{2019}][^\u{2018}\u{2019}'\n]*[\u{2018}\u{2019}']", lex_curly_quotes)]
        Str(Arc<str>),

        /// `{` around statements.
        BodyOpen,
        /// `}` around statements.
        BodyClose,
    }
    texts {
        Weights "weights"  Module "module"  Const "const"  Param "param"  Buffer "buffer"  Dim "dim"
        Pointwise "pointwise"  Graph "graph"  Rewrite "rewrite"  Exact "exact"  Fast "fast"  Updates "updates"
        Called "called"
        Where "where"  Loc "loc"  Frame "frame"  Scope "scope"  Signature "signature"  As "as"
        Placeholder "placeholder"  GetAttr "get_attr"  CallFunction "call_function"  CallMethod "call_method"
        CallModule "call_module"  Output "output"  In "in"  And "and"  Or "or"  Not "not"
        FatArrow "=>"  Question "?"  Dots ".."  EqEq "=="  NotEq "!="  Less "<"  LessEq "<="  Greater ">"
        GreaterEq ">="  Plus "+"  Minus "-"  StarStar "**"  Slash "/"  SlashSlash "//"  Percent "%"
    }
}

/// Operator words, which are never names.
pub(crate) const RESERVED: [&str; 4] = ["in", "and", "or", "not"];

impl Token<'_> {
    /// Whether a value can end with this token, so that a `-` after it subtracts.
    pub(crate) fn ends_value(&self) -> bool {
        use Token::*;
        matches!(
            self,
            Ident(_) | Path(_) | Node(_) | GraphRef(_) | Literal(_) | Int(_) | Float(_) | Imag(_) | Str(_)
        ) || matches!(self, RParen | RBracket | RBrace | Question)
    }

    /// Whether this is an operator that nests the syntax tree by one level.
    pub(crate) fn is_operator(&self) -> bool {
        use Token::*;
        matches!(
            self,
            In | And | Or | Not | EqEq | NotEq | Less | LessEq | Greater | GreaterEq | Plus | Minus
        ) || matches!(self, Star | StarStar | Slash | SlashSlash | Percent)
    }

    /// Whether this word begins an item.
    pub(crate) fn begins_item(&self) -> bool {
        use Token::*;
        matches!(
            self,
            Weights | Module | Const | Param | Buffer | Dim | Pointwise | Graph | Rewrite | Exact | Fast
        ) || matches!(self, Frame | Scope | Signature)
    }

    /// The text of a word that can be a name: an identifier or a keyword.
    pub(crate) fn word(&self) -> Option<String> {
        use Token::*;
        match self {
            Ident(s) => Some(s.to_string()),
            Updates | Called | Where | Loc | As => Some(self.to_string().trim_matches('`').to_string()),
            t if t.begins_item() || t.is_opcode() => Some(t.to_string().trim_matches('`').to_string()),
            _ => None,
        }
    }

    /// Whether this is an opcode.
    pub(crate) fn is_opcode(&self) -> bool {
        use Token::*;
        matches!(
            self,
            Placeholder | GetAttr | CallFunction | CallMethod | CallModule | Output
        )
    }
}

/// The description of the token in diagnostics.
impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Token::*;
        let word = match self {
            Ident(s) | BareDef(s) => return write!(f, "name `{s}`"),
            Path(s) => return write!(f, "path `{s}`"),
            Node(s) | NodeDef(s) => return write!(f, "`%{s}`"),
            GraphRef(s) => return write!(f, "`@{s}`"),
            Literal(s) => return write!(f, "`${s}`"),
            Int(v) | IntDots(v) => return write!(f, "number `{v}`"),
            Float(v) => return write!(f, "number `{}`", crate::types::write_float(*v)),
            Imag(_) => return f.write_str("an imaginary number"),
            Str(_) => return f.write_str("a string"),
            BodyOpen => "{",
            BodyClose => "}",
            t => t.text().unwrap_or("?"),
        };
        write!(f, "`{word}`")
    }
}

fn comment<'s>(lex: &mut Lexer<'s, Token<'s>>) {
    let span = lex.span();
    lex.extras.comments.push(span);
}

/// A name with letters that FXIR does not allow. It is reported, then accepted.
fn lex_foreign_name<'s>(lex: &mut Lexer<'s, Token<'s>>) -> &'s str {
    let d = Diagnostic::new(Code::E0002, format!("`{}` is not an FXIR name", lex.slice()))
        .at(token_span(lex), "it contains letters other than A-Z and a-z")
        .help("names consist of A-Z, a-z, 0-9 and `_`; quote a target with any other name");
    lex.extras.errors.push(d);
    lex.slice()
}

/// A string in typographic quotes. It is reported, then accepted.
fn lex_curly_quotes<'s>(lex: &mut Lexer<'s, Token<'s>>) -> Arc<str> {
    let mut inner = lex.slice().chars();
    inner.next();
    inner.next_back();
    let text = inner.as_str();
    let d = Diagnostic::new(Code::E0002, "typographic quotes")
        .at(token_span(lex), "use plain quotes, `\"` or `'`, for strings")
        .suggest(token_span(lex), crate::types::write_str(text), "use plain quotes");
    lex.extras.errors.push(d);
    text.into()
}

fn integer<'s>(lex: &mut Lexer<'s, Token<'s>>) -> i64 {
    integer_text(lex, 0)
}

/// The current integer without its last `tail` bytes. 2^63 becomes `i64::MIN`: the lexer accepts it after a minus sign
/// and reports it elsewhere.
fn integer_text<'s>(lex: &mut Lexer<'s, Token<'s>>, tail: usize) -> i64 {
    let text = &lex.slice()[..lex.slice().len() - tail];
    let digits: String = text.chars().filter(|&c| c != '_').collect();
    match digits.parse::<u64>() {
        Ok(v) if v <= i64::MAX as u64 + 1 => v as i64,
        _ => {
            let d = too_large(token_span(lex));
            lex.extras.errors.push(d);
            0
        }
    }
}

/// The diagnostic for an integer that does not fit in 64 bits.
pub(crate) fn too_large(span: Span) -> Diagnostic {
    Diagnostic::new(Code::E0005, "integer does not fit in 64 bits")
        .at(span, "outside the range -9223372036854775808 to 9223372036854775807")
        .help("torch's integers have 64 bits; write a larger magnitude as a float, such as `1e20`")
}

fn float<'s>(lex: &mut Lexer<'s, Token<'s>>) -> f64 {
    lex.slice().parse().unwrap_or(f64::NAN)
}

fn imaginary<'s>(lex: &mut Lexer<'s, Token<'s>>) -> f64 {
    let s = lex.slice();
    s[..s.len() - 1].parse().unwrap_or(f64::NAN)
}

fn token_span<'s>(lex: &Lexer<'s, Token<'s>>) -> Span {
    Span::new(lex.extras.file, lex.span().start, lex.span().end)
}

fn string<'s>(lex: &mut Lexer<'s, Token<'s>>) -> Arc<str> {
    let s = lex.slice();
    let start = lex.span().start + 1;
    unescape(&s[1..s.len() - 1], lex.extras.file, start, &mut lex.extras.errors).into()
}

/// A string that is not closed on its line. It is reported, then ends at the end of the line.
fn open_string<'s>(lex: &mut Lexer<'s, Token<'s>>) -> Arc<str> {
    let s = lex.slice();
    let quote = &s[..1];
    let d = Diagnostic::new(Code::E0003, "string is not closed")
        .at(token_span(lex), format!("`{quote}` is missing on this line"))
        .help(format!("close it with `{quote}`; write a newline in a string as `\\n`"));
    lex.extras.errors.push(d);
    s[1..].into()
}

/// Decodes Python's escapes. `start` is the offset of `body` in the file, for the spans of errors.
pub(crate) fn unescape(body: &str, file: FileId, start: usize, errors: &mut Vec<Diagnostic>) -> String {
    let mut out = String::with_capacity(body.len());
    let mut rest = body.char_indices().peekable();
    while let Some((offset, c)) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some((_, e)) = rest.next() else { break };
        let plain = match e {
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            '\\' | '\'' | '"' => Some(e),
            'a' => Some('\x07'),
            'b' => Some('\x08'),
            'f' => Some('\x0c'),
            'v' => Some('\x0b'),
            '\n' => continue,
            '0'..='7' => char_of_digits(&mut rest, 8, 1..=3, Some(e)),
            'x' => char_of_digits(&mut rest, 16, 2..=2, None),
            'u' => char_of_digits(&mut rest, 16, 4..=4, None),
            'U' => char_of_digits(&mut rest, 16, 8..=8, None),
            _ => None,
        };
        match plain {
            Some(c) => out.push(c),
            None => {
                let end = rest.peek().map_or(body.len(), |&(i, _)| i);
                errors.push(bad_escape(
                    &body[offset..end],
                    Span::new(file, start + offset, start + end),
                ));
                out.push_str(&body[offset..end]);
            }
        }
    }
    out
}

/// The character whose code is written in digits, of which `first` is already read. `None` if there are too few digits
/// or if there is no such character.
fn char_of_digits(
    rest: &mut std::iter::Peekable<std::str::CharIndices<'_>>,
    radix: u32,
    count: std::ops::RangeInclusive<usize>,
    first: Option<char>,
) -> Option<char> {
    let mut code = first.and_then(|c| c.to_digit(radix)).unwrap_or(0);
    let mut n = first.is_some() as usize;
    while n < *count.end() {
        let Some(d) = rest.peek().and_then(|&(_, c)| c.to_digit(radix)) else {
            break;
        };
        code = code * radix + d;
        n += 1;
        rest.next();
    }
    (n >= *count.start()).then_some(code).and_then(char::from_u32)
}

fn bad_escape(text: &str, span: Span) -> Diagnostic {
    Diagnostic::new(Code::E0004, format!("unknown escape `{text}` in a string"))
        .at(span, "not a Python escape")
        .help("write `\\\\` for a backslash; the valid escapes are \\n \\r \\t \\a \\b \\f \\v \\\\ \\' \\\" \\ooo \\xhh \\uhhhh \\Uhhhhhhhh")
}
