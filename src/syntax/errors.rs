//! Error messages of the parser.

use super::actions::OPCODES;
use super::token::Token;
use crate::diag::{Code, Diagnostic};
use crate::source::{FileId, Span};
use lalrpop_util::ParseError;

/// A group of tokens with one name in messages. The group is expected if the tokens in `needs` are.
struct TokenGroup {
    needs: &'static [&'static str],
    covers: &'static [&'static str],
    words: &'static str,
}

/// The words that begin an item of a file.
const ITEMS: [&str; 14] = [
    "weights",
    "module",
    "const",
    "param",
    "buffer",
    "dim",
    "pointwise",
    "graph",
    "rewrite",
    "exact",
    "fast",
    "signature",
    "frame",
    "scope",
];

/// Largest first, since each group removes the tokens it covers from the list.
const GROUPS: &[TokenGroup] = &[
    TokenGroup {
        needs: &["weights", "graph", "module"],
        covers: &ITEMS,
        words: "a top-level item (`graph`, `module`, `weights`, `const`, `param`, `buffer`, `dim`, `pointwise`, `rewrite`, `signature`, `frame` or `scope`)",
    },
    TokenGroup {
        needs: &["placeholder", "get_attr", "call_function"],
        covers: &[
            "placeholder",
            "get_attr",
            "call_function",
            "call_method",
            "call_module",
            "output",
            "name",
            "path",
        ],
        words: "an opcode (`placeholder`, `get_attr`, `call_function`, `call_method`, `call_module` or `output`)",
    },
    TokenGroup {
        needs: &["%node =", "output"],
        covers: &["%node =", "name =", "output"],
        words: "a statement (`%name = …` or `output …`)",
    },
    TokenGroup {
        needs: &["%node", "integer", "string"],
        covers: &[
            "%node",
            "@graph",
            "$literal",
            "integer",
            "float",
            "imaginary",
            "string",
            "name",
            "path",
            "(",
            "[",
            "{",
            "?",
            "-",
            "not",
            "%node =",
            "where",
        ],
        words: "a value",
    },
    TokenGroup {
        needs: &["name", "path", "?", "[", "("],
        covers: &["name", "path", "string", "?", "[", "(", "{"],
        words: "a type",
    },
    TokenGroup {
        needs: &["path", "string", "name"],
        covers: &["path", "string", "name"],
        words: "a name, a dotted path or a string",
    },
];

const OPERATORS: [&str; 17] = [
    "+", "-", "*", "**", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "in", "and", "or", "not",
];

/// All keywords that can also be names.
fn contextual_keywords() -> impl Iterator<Item = &'static str> + Clone {
    ITEMS
        .into_iter()
        .chain(["updates", "called", "where", "loc", "as"])
        .chain(OPCODES)
}

/// The diagnostic for an unexpected token.
pub(super) fn unexpected_token(file: FileId, error: ParseError<usize, Token<'_>, ()>) -> Diagnostic {
    match error {
        ParseError::UnrecognizedToken {
            token: (start, token, end),
            expected,
        } => {
            let want = expected_words(&expected);
            let d = Diagnostic::new(Code::E0001, format!("unexpected {token}"))
                .at(Span::new(file, start, end), format!("expected {want}"));
            add_help(d, &token, &expected)
        }
        ParseError::UnrecognizedEof { location, expected } => Diagnostic::new(Code::E0001, "unexpected end of file")
            .at(
                Span::new(file, location, location),
                format!("expected {}", expected_words(&expected)),
            ),
        ParseError::ExtraToken {
            token: (start, token, end),
        } => Diagnostic::new(Code::E0001, format!("unexpected {token}"))
            .at(Span::new(file, start, end), "expected the end of the file"),
        ParseError::InvalidToken { location } => {
            Diagnostic::new(Code::E0001, "invalid token").at(Span::new(file, location, location), "here")
        }
        ParseError::User { .. } => Diagnostic::new(Code::E0001, "invalid syntax"),
    }
}

/// Adds advice for common mistakes.
fn add_help(d: Diagnostic, token: &Token<'_>, expected: &[String]) -> Diagnostic {
    let wants = |t: &str| expected.iter().any(|e| e.trim_matches('"') == t);
    match token {
        Token::Colon if wants("=") || (wants(",") && wants(")")) => {
            d.help("keyword arguments are written `name=value`")
        }
        Token::Assign if wants(":") && wants("+") => d.help("dict entries are written `key: value`"),
        Token::Assign if wants(":") => d.help("a declaration has a type before its value: `: f32[2, 3]`"),
        Token::Int(_) | Token::Float(_) if wants("path") => {
            d.help("quote a path that begins with a digit: `\"0.weight\"`")
        }
        Token::Node(_) if wants("graph") && !wants("path") => {
            d.help("statements must be inside a graph: `graph name { … }`")
        }
        Token::Node(name) if wants("path") && !wants("integer") => {
            d.help(format!("a target is a name, not a node; write `{name}`"))
        }
        Token::In | Token::And | Token::Or | Token::Not if wants("path") => {
            d.help("this word is an operator; write it as a string to use it as a name")
        }
        Token::BodyOpen | Token::LParen if wants("name") && wants("graph") => d.help("give the graph a name"),
        Token::Ident(_) if wants(")") && wants(",") => d.help("separate arguments with `,`"),
        _ => d,
    }
}

/// Describes LALRPOP's list of expected tokens for a reader.
fn expected_words(expected: &[String]) -> String {
    let mut left: Vec<&str> = expected.iter().map(|e| e.trim_matches('"')).collect();
    let mut words: Vec<String> = vec![];
    // A name may be any keyword. Listing each of them would hide the other tokens.
    if contextual_keywords().all(|k| left.contains(&k)) && left.contains(&"name") {
        left.retain(|t| !contextual_keywords().any(|k| k == *t));
    }
    for g in GROUPS {
        if g.needs.iter().all(|t| left.contains(t)) {
            left.retain(|t| !g.covers.contains(t));
            words.push(g.words.into());
        }
    }
    // Operators can follow any value, so they are only listed if nothing else is expected.
    if !words.is_empty() || left.iter().any(|t| !OPERATORS.contains(t)) {
        left.retain(|t| !OPERATORS.contains(t));
    }
    words.extend(left.iter().map(|t| match *t {
        "name" => "a name".into(),
        "path" => "a dotted path".into(),
        "string" => "a string".into(),
        "integer" => "an integer".into(),
        "body {" => "`{`".into(),
        "body }" => "`}`".into(),
        "%node =" | "name =" => "a statement".into(),
        t => format!("`{t}`"),
    }));
    words.dedup();
    match words.len() {
        0 => "the end of the file".into(),
        1 => words.remove(0),
        n => format!("{} or {}", words[..n - 1].join(", "), words[n - 1]),
    }
}
