//! The tokenizer. It accepts every text: an unrecognised character is reported and skipped.

use super::ast::Comment;
use super::token::{Extras, Token, too_large};
use crate::budget;
use crate::diag::limits::too_many_nodes;
use crate::diag::words::escape_piece;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use logos::Logos;
use std::ops::Range;

/// A token with its start byte and its exclusive end byte.
pub(crate) type Spanned<'s> = (usize, Token<'s>, usize);

/// The result of [`lex`].
#[derive(Debug, Default)]
pub(crate) struct Lexed<'s> {
    /// The tokens in order.
    pub tokens: Vec<Spanned<'s>>,
    /// The comments in order.
    pub comments: Vec<Comment>,
    /// Lexical errors.
    pub errors: Vec<Diagnostic>,
}

/// Tokenizes `text`, the content of `file`.
pub(crate) fn lex(file: FileId, text: &str) -> Lexed<'_> {
    if let Some(d) = find_excess(file, text) {
        return Lexed {
            errors: vec![d],
            ..Lexed::default()
        };
    }
    let extras = Extras {
        file,
        ..Extras::default()
    };
    let mut lexer = Token::lexer_with_extras(text, extras);
    let mut out = Lexed::default();
    let mut unknown: Vec<Span> = vec![];
    while let Some(token) = lexer.next() {
        let range = lexer.span();
        match token {
            Ok(Token::IntDots(v)) => {
                out.tokens.push((range.start, Token::Int(v), range.end - 2));
                out.tokens.push((range.end - 2, Token::Dots, range.end));
            }
            Ok(Token::Int(i64::MIN)) => least_integer(file, &mut out, range),
            Ok(t) => out.tokens.push((range.start, t, range.end)),
            Err(()) => match unknown.last_mut() {
                Some(s) if s.end as usize == range.start => s.end = range.end as u32,
                _ => unknown.push(Span::new(file, range.start, range.end)),
            },
        }
    }
    let Extras { errors, comments, .. } = lexer.extras;
    out.errors.extend(errors);
    out.errors.extend(unknown.into_iter().map(|s| unknown_text(text, s)));
    let comment = |r: Range<usize>| Comment {
        text: text[r.clone()].trim_end().into(),
        span: Span::new(file, r.start, r.end),
    };
    out.comments = comments.into_iter().map(comment).collect();
    out
}

/// The least length of a node's definition and what separates it from the next: `%a=f(%b) `.
const SHORTEST: usize = 8;

/// An error if the text defines more nodes than a model may have. Counts before tokens are stored, which take ten times the text's memory.
fn find_excess(file: FileId, text: &str) -> Option<Diagnostic> {
    let most = budget::max_nodes();
    if text.len() / SHORTEST <= most {
        return None;
    }
    let extras = Extras {
        file,
        ..Extras::default()
    };
    let mut lexer = Token::lexer_with_extras(text, extras);
    let (mut nodes, mut after_node) = (0, false);
    while let Some(token) = lexer.next() {
        nodes += usize::from(after_node && token == Ok(Token::Assign));
        after_node = matches!(token, Ok(Token::Node(_)));
        if nodes > most {
            let range = lexer.span();
            let d = too_many_nodes("the file has");
            return Some(d.at(Span::new(file, range.start, range.end), "the first beyond the limit"));
        }
    }
    None
}

/// Accepts 9223372036854775808 only after a minus sign that is not a subtraction.
fn least_integer(file: FileId, out: &mut Lexed<'_>, range: std::ops::Range<usize>) {
    let before = out.tokens.len().checked_sub(2).map(|i| &out.tokens[i].1);
    let negated = matches!(out.tokens.last(), Some((_, Token::Minus, _))) && !before.is_some_and(Token::ends_value);
    let start = if negated {
        out.tokens.pop().map_or(range.start, |t| t.0)
    } else {
        out.errors.push(too_large(Span::new(file, range.start, range.end)));
        range.start
    };
    out.tokens.push((start, Token::Int(i64::MIN), range.end));
}

fn unknown_text(text: &str, span: Span) -> Diagnostic {
    let piece = &text[span.range()];
    let d = Diagnostic::new(Code::E0002, format!("unrecognised text `{}`", escape_piece(piece)))
        .at(span, "not valid in FXIR");
    match piece.chars().next() {
        Some('.') => d.help("quote a path that does not begin with a letter: `\"0.weight\"`"),
        Some('%' | '@' | '$') => {
            d.help("a name must follow directly: letters, digits and `_`, not starting with a digit")
        }
        Some(';') => d.fix(span, "", "remove it: statements need no separator"),
        Some('\u{201c}' | '\u{201d}' | '\u{2018}' | '\u{2019}') => d.help("use plain quotes, `\"` or `'`, for strings"),
        _ => d.help("remove it: outside strings and comments, FXIR is plain ASCII"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Token::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let l = lex(FileId(0), text);
        assert!(l.errors.is_empty(), "{text}: {:?}", l.errors);
        l.tokens.into_iter().map(|t| t.1).collect()
    }

    fn codes(text: &str) -> Vec<Code> {
        lex(FileId(0), text).errors.iter().map(|d| d.code).collect()
    }

    #[test]
    fn numbers_are_pythons() {
        assert_eq!(tokens("1_000"), [Int(1000)]);
        for (text, want) in [
            ("1.0", 1.0),
            ("1.", 1.0),
            (".5", 0.5),
            ("1e-05", 1e-5),
            ("1E+3", 1e3),
            ("5e-324", 5e-324),
        ] {
            assert_eq!(tokens(text), [Float(want)], "{text}");
        }
        assert_eq!(tokens("2.5j"), [Imag(2.5)]);
        assert_eq!(tokens("1..4096"), [Int(1), Dots, Int(4096)]);
        assert_eq!(tokens("9223372036854775807"), [Int(i64::MAX)]);
        assert_eq!(tokens("(-9223372036854775808)"), [LParen, Int(i64::MIN), RParen]);
        assert_eq!(codes("9223372036854775808"), [Code::E0005]);
        assert_eq!(codes("1 - 9223372036854775808"), [Code::E0005]);
        assert_eq!(codes("99999999999999999999"), [Code::E0005]);
    }

    #[test]
    fn strings_know_pythons_escapes() {
        let s = |t| vec![Str(std::sync::Arc::from(t))];
        assert_eq!(tokens(r#""a\n\x41\u00e9\101\"""#), s("a\nA\u{e9}A\""));
        assert_eq!(tokens(r"'it\'s'"), s("it's"));
        assert_eq!(tokens("'a\\\nb'"), s("ab"));
        assert_eq!(codes("'open"), [Code::E0003]);
        assert_eq!(codes("\"open\\"), [Code::E0003]);
        assert_eq!(codes(r"'\q \ud800 \xg'"), [Code::E0004, Code::E0004, Code::E0004]);
    }

    #[test]
    fn names_and_operators() {
        assert_eq!(
            tokens("%x = call_function torch.add(%x, @g, a//2) # end"),
            [
                Node("x"),
                Assign,
                CallFunction,
                Path("torch.add"),
                LParen,
                Node("x"),
                Comma,
                GraphRef("g"),
                Comma,
                Ident("a"),
                SlashSlash,
                Int(2),
                RParen
            ]
        );
        assert_eq!(tokens("layer1.0.conv1"), [Path("layer1.0.conv1")]);
        assert_eq!(tokens("(N % 2)"), [LParen, Ident("N"), Percent, Int(2), RParen]);
    }

    #[test]
    fn unknown_text_is_one_error_per_run() {
        assert_eq!(codes("a \u{1f600}\u{1f600} b ;"), [Code::E0002, Code::E0002]);
        let l = lex(FileId(0), "x # c \n# d");
        assert_eq!(l.comments.iter().map(|c| &*c.text).collect::<Vec<_>>(), ["# c", "# d"]);
    }
}
